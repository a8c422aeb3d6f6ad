"""Serving speeds: what is known, how wide, and what is refused."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.fit.throughput_fit import fit_throughput
from advisor.predict.bundle import Bundle
from advisor.predict.intervals import Intervals
from advisor.predict.scaling import FLOOR, VOLUME, Vector, Work
from advisor.predict.throughput import PlacementTable, ThroughputForecaster
from advisor.predict.throughput_adapt import JobForecaster, adapt
from advisor.predict.throughput_knowledge import (
    UNTRAINED,
    Knowledge,
    believe,
    live_laws,
    parse_knowledge,
    write_knowledge,
)
from tests.predict.throughput_cluster import opened, steps, theta_of, work, write_cluster

ROWS = 160_000
NOTHING = np.zeros(0)
# Twice the measured 0.2 s, for a machine under load.
BUDGET_S = 0.5


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("data")
    slow = write_cluster(folder / "cloud_t4")
    fast = write_cluster(folder / "ib_a100", network=-2.0)
    return opened(fit_throughput([*slow, *fast], form="auto", seed=3))


@pytest.fixture(scope="module")
def forecaster(bundle: Bundle) -> ThroughputForecaster:
    return ThroughputForecaster.from_bundle(bundle)


def table(gpus: list[float], nodes: list[float], *, profile: int = -1, batch: float = np.nan) -> PlacementTable:
    rows = len(gpus)
    return PlacementTable(
        profile=np.full(rows, profile),
        gpu_type=np.full(rows, -1),
        gpus=np.array(gpus, dtype=np.float64),
        nodes=np.array(nodes, dtype=np.float64),
        tier=np.array([0 if each == 1 else 1 for each in nodes]),
        local_batch=np.full(rows, batch),
        link_gbps=np.full(rows, np.nan),
    )


def speeds(forecaster: ThroughputForecaster, asked: PlacementTable) -> Intervals:
    """Forecast speeds over those of the same models on one GPU of the reference type, that of the first cluster."""
    one = np.ones(len(asked))
    gpu_type = np.where(asked.gpu_type >= 0, 0, -1)
    tier = np.zeros(len(asked), dtype=np.int64)
    return forecaster.relative(asked, replace(asked, gpu_type=gpu_type, gpus=one, nodes=one, tier=tier))


def observed(
    forecaster: ThroughputForecaster,
    points: Work,
    step_s: Vector,
    *,
    model: str | None = None,
    cluster: str | None = None,
) -> JobForecaster:
    """Return the forecaster of a job whose speed was seen at some points."""
    return adapt(forecaster.knowledge, points, step_s, model=model, cluster=cluster)


def test_names_are_compared_by_letters_and_digits(forecaster: ThroughputForecaster) -> None:
    found = forecaster.codes(["Al-PHA", "beta", "omega", None, ""])

    assert found.tolist() == [0, 1, -1, -1, -1]


def test_gpu_types_are_found_by_the_word_they_share_with_a_cluster(forecaster: ThroughputForecaster) -> None:
    found = forecaster.type_codes(["nvidia_a100-sxm4-40gb", "Tesla_T4", "h100", "tesla", None])

    assert [forecaster.clusters[code] if code >= 0 else "" for code in found] == ["ib_a100", "cloud_t4", "", "", ""]


def test_a_placement_over_itself_is_one(forecaster: ThroughputForecaster) -> None:
    asked = table([8.0, 2.0], [2.0, 1.0])

    found = forecaster.relative(asked, asked)

    assert found.low.tolist() == found.median.tolist() == found.high.tolist() == [1.0, 1.0]
    assert found.known.all()


def test_speed_counts_from_one_gpu(forecaster: ThroughputForecaster) -> None:
    found = speeds(forecaster, table([1.0, 4.0, 8.0], [1.0, 1.0, 2.0], profile=0))

    assert found.median[0] == pytest.approx(1.0)
    assert 2.0 < found.median[1] <= 4.0
    assert np.all(found.low <= found.median) and np.all(found.median <= found.high)


def test_spreading_an_unknown_job_has_a_wider_interval_than_one_node(forecaster: ThroughputForecaster) -> None:
    found = forecaster.relative(table([4.0, 4.0], [1.0, 4.0]), table([2.0, 2.0], [1.0, 1.0]))

    width = np.log(found.high / found.low)
    assert width[1] > 2.0 * width[0]


def test_more_gpus_than_were_ever_measured_are_not_known(forecaster: ThroughputForecaster) -> None:
    found = speeds(forecaster, table([4.0, 400.0, 16.0], [1.0, 4.0, 16.0]))

    assert found.known.tolist() == [True, False, False]


def test_batch_far_from_those_of_the_profile_is_not_known(forecaster: ThroughputForecaster) -> None:
    inside = speeds(forecaster, table([2.0], [1.0], profile=1, batch=16.0))
    outside = speeds(forecaster, table([2.0], [1.0], profile=1, batch=5000.0))

    assert inside.known.all() and not outside.known.any()


def test_another_gpu_type_counts_by_the_models_that_both_measured(forecaster: ThroughputForecaster) -> None:
    types = forecaster.type_codes(["t4", "a100", "h100"])
    base = table([1.0] * 3, [1.0] * 3)

    found = forecaster.relative(replace(base, gpu_type=types), replace(base, gpu_type=np.full(3, types[1])))

    assert found.median == pytest.approx([1.0, 1.0, 1.0], rel=0.1)
    assert found.known.tolist() == [True, True, False]


def test_link_of_one_row_is_no_matter_of_the_others(forecaster: ThroughputForecaster) -> None:
    asked, base = table([4.0, 4.0], [4.0, 4.0]), table([4.0, 4.0], [1.0, 1.0])
    mixed, slow, unknown = (
        [replace(rows, link_gbps=np.array(gbps)) for rows in (asked, base)]
        for gbps in ([1.0, np.nan], [1.0, 1.0], [np.nan, np.nan])
    )

    both, one, other = (forecaster.relative(*rows).median for rows in (mixed, slow, unknown))

    assert both.tolist() == [one[0], other[1]]
    assert one[0] < other[1]


def test_faster_gpu_type_is_as_much_faster_as_the_models_that_both_measured(bundle: Bundle) -> None:
    knowledge = parse_knowledge(bundle.parameters, "throughput test")
    speeds_of = {"cloud_t4": 0.0, "ib_a100": float(np.log(2.0))}
    forecaster = ThroughputForecaster(knowledge.model_copy(update={"speeds": speeds_of}), bundle)
    slow, fast = forecaster.type_codes(["t4", "a100"])
    base = table([1.0, 1.0], [1.0, 1.0])

    found = forecaster.relative(
        replace(base, gpu_type=np.array([fast, slow])), replace(base, gpu_type=np.array([slow, fast]))
    )

    assert found.median == pytest.approx([2.0, 0.5])


def test_slower_link_makes_spreading_slower(forecaster: ThroughputForecaster) -> None:
    asked, base = table([4.0, 4.0], [4.0, 4.0]), table([4.0, 4.0], [1.0, 1.0])

    found = forecaster.relative(replace(asked, link_gbps=np.array([10.0, 400.0])), base)

    assert found.median[0] < found.median[1]


def test_smaller_batch_of_an_unknown_job_is_relative_to_its_own(forecaster: ThroughputForecaster) -> None:
    asked, base = table([4.0], [1.0], batch=8.0), table([2.0], [1.0], batch=16.0)

    strong, weak = (
        forecaster.relative(asked, base),
        forecaster.relative(replace(asked, local_batch=base.local_batch), base),
    )

    assert strong.median[0] < weak.median[0]
    assert np.log(strong.high / strong.low)[0] > np.log(weak.high / weak.low)[0]


def test_no_rows_give_no_answers(forecaster: ThroughputForecaster) -> None:
    assert len(speeds(forecaster, table([], []))) == 0


def test_rows_of_other_jobs_are_refused(forecaster: ThroughputForecaster) -> None:
    with pytest.raises(ValueError, match="same jobs"):
        forecaster.relative(table([1.0], [1.0]), table([1.0], [1.0], profile=1))


@pytest.mark.parametrize(("gpus", "nodes"), [([1.0], [2.0]), ([1.0], [0.0]), ([np.nan], [1.0]), ([1.0, 2.0], [1.0])])
def test_impossible_placements_are_refused(gpus: list[float], nodes: list[float]) -> None:
    with pytest.raises(ValueError, match="placement"):
        table(gpus, nodes)


def test_a_full_queue_is_served_in_time(forecaster: ThroughputForecaster) -> None:
    generator = np.random.default_rng(1)
    gpus = generator.integers(1, 64, ROWS).astype(np.float64)
    nodes = np.minimum(gpus, generator.integers(1, 9, ROWS).astype(np.float64))
    asked = replace(
        table([1.0] * ROWS, [1.0] * ROWS),
        profile=generator.integers(-1, 4, ROWS),
        gpus=gpus,
        nodes=nodes,
        local_batch=generator.uniform(8.0, 64.0, ROWS),
    )
    base = replace(asked, gpus=gpus + 1.0)
    forecaster.relative(asked, base)

    started = time.perf_counter()
    found = forecaster.relative(asked, base)

    assert time.perf_counter() - started < BUDGET_S
    assert len(found) == ROWS


@pytest.mark.parametrize(
    "change",
    [
        {"columns": ("a",)},
        {"outputs": ("a",)},
        {"kind": "run_time"},
        {"parameters": "no json"},
        {"parameters": "{}"},
        {"parameters": "[" * 5000},
    ],
    ids=["columns", "outputs", "kind", "text", "empty", "deep"],
)
def test_foreign_or_damaged_bundle_is_refused_in_one_line(bundle: Bundle, change: dict[str, str]) -> None:
    with pytest.raises(ModelError) as caught:
        ThroughputForecaster.from_bundle(replace(bundle, **change))  # type: ignore[arg-type]

    assert "\n" not in str(caught.value) and "fit it again" in str(caught.value)


@pytest.mark.parametrize("damage", ["theta", "covariance", "ragged", "extra", "batch", "nan", "infinite"])
def test_damaged_parameters_are_refused(bundle: Bundle, damage: str) -> None:
    tree = json.loads(bundle.parameters)
    profile = tree["profiles"][0]
    changes = {
        "theta": {"theta": profile["theta"][:-1]},
        "covariance": {"covariance": [[-1.0] * 12] * 12},
        "ragged": {"covariance": [[1.0] * 12] * 11 + [[1.0]]},
        "extra": {"further": 1},
        "batch": {"batch": [9.0, 1.0]},
        "nan": {"weights": [float("nan"), *profile["weights"][1:]]},
        "infinite": {"gpus": float("inf")},
    }
    profile.update(changes[damage])

    with pytest.raises(ModelError, match="damaged"):
        parse_knowledge(json.dumps(tree), "throughput test")


def test_knowledge_survives_being_written(bundle: Bundle) -> None:
    knowledge = parse_knowledge(bundle.parameters, "throughput test")

    assert parse_knowledge(write_knowledge(knowledge), "again") == knowledge


def test_points_of_one_node_and_the_network_foretell_several_nodes(bundle: Bundle) -> None:
    knowledge = parse_knowledge(bundle.parameters, "throughput test")
    known, asked = work("1", "2", "4"), work("22", "444", "1111")
    theta = theta_of(2)

    slow = adapt(knowledge, known, steps(theta, known), model=None, cluster="cloud_t4").step_s(asked)
    fast = adapt(knowledge, known, steps(theta, known), model=None, cluster="ib_a100").step_s(asked)

    true = steps(theta, asked)
    assert slow.median == pytest.approx(true, rel=0.3)
    assert np.all((slow.low < true) & (true < slow.high)) and slow.known.all()
    assert np.all(fast.median < slow.median)


def test_points_elsewhere_narrow_the_interval(forecaster: ThroughputForecaster) -> None:
    one, two, asked = work("1", "2"), work("1", "2", "22", "44"), work("33")
    theta = theta_of(1)

    before = observed(forecaster, one, steps(theta, one), cluster="somewhere").step_s(asked)
    after = observed(forecaster, two, steps(theta, two), cluster="somewhere").step_s(asked)

    assert (after.high / after.low)[0] < (before.high / before.low)[0]
    assert after.median == pytest.approx(steps(theta, asked), rel=0.15)


def test_measured_model_needs_no_points(forecaster: ThroughputForecaster) -> None:
    asked = work("22", "333")

    found = observed(forecaster, work(), NOTHING, model="Gamma", cluster="cloud_t4").step_s(asked)

    assert found.median == pytest.approx(steps(theta_of(2), asked), rel=0.1)
    assert found.known.all()
    # That of a model which was never measured spans a factor of 36.
    assert np.all(found.high / found.low < 1.2)


def test_measured_model_on_a_new_cluster_is_not_known(forecaster: ThroughputForecaster) -> None:
    found = observed(forecaster, work(), NOTHING, model="gamma", cluster="new").step_s(work("1", "2"))

    assert not found.known.any()


def test_a_point_moves_a_measured_model_to_its_new_speed(forecaster: ThroughputForecaster) -> None:
    one, asked = work("1"), work("2", "4")

    found = observed(forecaster, one, 0.5 * steps(theta_of(0), one), model="alpha", cluster="new").step_s(asked)

    assert found.median == pytest.approx(0.5 * steps(theta_of(0), asked), rel=0.1)


def test_job_of_which_nothing_is_known_says_so() -> None:
    found = adapt(UNTRAINED, work(), NOTHING, model=None, cluster=None).step_s(work("1", "44"))

    assert not found.known.any()


def test_batch_beyond_all_that_was_seen_overflows_nothing(forecaster: ThroughputForecaster) -> None:
    found = observed(forecaster, work("1"), np.array([1e-9])).step_s(work("1", "9999", batch=1e11))

    assert np.isfinite(found.high).all() and not found.known.any()


def test_largest_sizes_of_a_job_are_those_it_or_the_network_showed() -> None:
    knowledge = Knowledge.model_validate(UNTRAINED.model_dump())
    known = work("1", "2", "4")

    found = adapt(knowledge, known, steps(theta_of(0), known), model=None, cluster=None).step_s(work("3", "5", "11"))

    assert found.known.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("placement", "batch", "is_known"),
    [("4", 16.0, True), ("5", 16.0, False), ("1", 8.0, True), ("1", 7.9, False), ("1", 32.0, True), ("1", 32.1, False)],
)
def test_job_is_known_up_to_its_largest_size_and_to_twice_its_batches(
    placement: str, batch: float, is_known: bool
) -> None:
    points = work("1", "2", "4")
    of_job = adapt(UNTRAINED, points, steps(theta_of(0), points), model=None, cluster=None)

    assert of_job.step_s(work(placement, batch=batch)).known.tolist() == [is_known]


def test_network_that_is_not_known_can_be_faster_as_well_as_slower(forecaster: ThroughputForecaster) -> None:
    found = forecaster.relative(table([4.0, 4.0], [1.0, 4.0]), table([2.0, 2.0], [1.0, 1.0]))

    ups, downs = np.log(found.high / found.median), np.log(found.median / found.low)
    assert ups[1] > 3.0 * ups[0] and downs[1] > 3.0 * downs[0]


def with_doubt(bundle: Bundle, number: int, factor: float) -> ThroughputForecaster:
    """Return a forecaster for which one number of a job of any model is known so much less well."""
    knowledge = parse_knowledge(bundle.parameters, "throughput test")
    deviation = np.array(knowledge.pooled.deviation)
    deviation[number] *= factor
    pooled = knowledge.pooled.model_copy(update={"deviation": deviation})
    return ThroughputForecaster(knowledge.model_copy(update={"pooled": pooled}), bundle)


def test_doubt_about_the_network_widens_both_sides_of_the_interval(bundle: Bundle) -> None:
    asked, base = table([4.0], [4.0]), table([2.0], [1.0])

    certain, usual, wide = (with_doubt(bundle, VOLUME, times).relative(asked, base) for times in (0.0, 1.0, 1.4))

    assert certain.median == usual.median
    assert usual.low < certain.low and usual.high > certain.high
    assert usual.known and not wide.known


def test_doubt_about_the_fixed_part_of_a_step_widens_the_interval_of_another_batch(bundle: Bundle) -> None:
    asked = table([4.0], [1.0], batch=16.0)
    base = replace(asked, local_batch=np.array([8.0]))

    less, usual, more = (with_doubt(bundle, FLOOR, times).relative(asked, base) for times in (0.5, 1.0, 2.0))

    assert more.low < usual.low < less.low and more.high > usual.high > less.high


def test_measured_models_keep_their_own_volumes_on_an_unknown_network(forecaster: ThroughputForecaster) -> None:
    alpha, delta, unknown = live_laws(forecaster.knowledge, ["alpha", "delta"])[:, VOLUME]

    assert alpha < delta
    assert alpha < unknown


def test_model_that_was_measured_once_is_believed_elsewhere(forecaster: ThroughputForecaster) -> None:
    knowledge = forecaster.knowledge
    once = [profile for profile in knowledge.profiles if (profile.model, profile.cluster) != ("alpha", "ib_a100")]

    belief = believe(knowledge.model_copy(update={"profiles": once}), "alpha", "new")

    assert belief.profile is not None and belief.profile.cluster == "cloud_t4"
    assert not belief.is_same_cluster


def test_batch_of_a_job_that_was_never_measured_counts_against_its_own(forecaster: ThroughputForecaster) -> None:
    asked = table([4.0], [1.0], batch=16.0)

    same = forecaster.relative(asked, asked)
    halved = forecaster.relative(asked, replace(asked, local_batch=np.array([8.0])))

    assert same.low.tolist() == same.high.tolist() == [1.0]
    # Twice the batch takes less than twice as long.
    assert 1.0 < halved.low[0] < halved.median[0] < halved.high[0] < 2.0


def test_measured_model_on_a_new_cluster_sends_as_much_as_others_do_there(forecaster: ThroughputForecaster) -> None:
    knowledge = forecaster.knowledge
    slow, fast = (knowledge.clusters[name].mean[VOLUME] for name in ("cloud_t4", "ib_a100"))

    volumes = [believe(knowledge, name, "new").prior.mean[VOLUME] for name in ("alpha", "delta")]

    # The first sends less than the last, and both are between what they take on the two networks.
    assert fast < volumes[0] < volumes[1] < slow
    assert volumes == pytest.approx([knowledge.pooled.mean[VOLUME]] * 2, abs=0.4)
