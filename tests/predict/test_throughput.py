"""Serving speeds: what is known, how wide, and what is refused."""

import json
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.fit.fitted import bundled
from advisor.fit.throughput_fit import fit_throughput
from advisor.predict.intervals import Intervals
from advisor.predict.onnx_model import Bundle
from advisor.predict.scaling import (
    COUNT,
    DEFAULT,
    FLOOR,
    INSIDE,
    LARGEST_DEVIATION,
    NORMAL,
    PARAMETERS,
    VOLUME,
    Prior,
    learn,
    log_step,
    slopes,
)
from advisor.predict.throughput import PlacementTable, ThroughputForecaster
from advisor.predict.throughput_knowledge import Calibration, parse_knowledge, write_knowledge
from advisor.predict.throughput_site import Evidence, SitePoints, no_points
from tests.predict.throughput_cluster import THETA, steps, theta_of, work, write_cluster


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("data")
    slow = write_cluster(folder / "cloud_t4")
    fast = write_cluster(folder / "ib_a100", network=-2.0)
    return bundled(fit_throughput([*slow, *fast], seed=3))


@pytest.fixture(scope="module")
def forecaster(bundle: Bundle) -> ThroughputForecaster:
    return ThroughputForecaster.from_bundle(bundle)


def table(gpus: list[float], nodes: list[float], *, profile: int = -1, batch: float = np.nan) -> PlacementTable:
    rows = len(gpus)
    return PlacementTable(
        profile=np.full(rows, profile),
        gpus=np.array(gpus, dtype=np.float64),
        nodes=np.array(nodes, dtype=np.float64),
        local_batch=np.full(rows, batch),
    )


def speeds(forecaster: ThroughputForecaster, asked: PlacementTable) -> Intervals:
    """Forecast speeds over those of the same jobs on one GPU."""
    one = np.ones(len(asked))
    return forecaster.relative(asked, replace(asked, gpus=one, nodes=one))


def shown(*placements: str, family: str = "omega", number: int = 2, network: float = 0.7) -> SitePoints:
    """Return the true step times of a family on a network of its own."""
    at = work(*placements)
    theta = theta_of(number, network)
    return SitePoints(family=np.array([family] * len(at)), work=at, step_s=steps(theta, at))


def spread_speed(forecaster: ThroughputForecaster, family: str | None) -> tuple[Intervals, float]:
    """Return the speed of a family on four nodes over one node, and the true one."""
    code = int(forecaster.codes([family])[0])
    asked, base = table([4.0], [4.0], profile=code, batch=16.0), table([4.0], [1.0], profile=code, batch=16.0)
    one, four = steps(theta_of(2, 0.7), work("4", "1111"))
    return forecaster.relative(asked, base), float(one / four)


def test_names_are_compared_by_letters_and_digits(forecaster: ThroughputForecaster) -> None:
    found = forecaster.codes(["Al-PHA", "beta", "omega", None, ""])

    assert [forecaster.models[code] if code >= 0 else "" for code in found] == ["alpha", "beta", "", "", ""]


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


def test_more_gpus_than_were_ever_measured_are_not_known(forecaster: ThroughputForecaster) -> None:
    found = speeds(forecaster, table([4.0, 400.0, 16.0, 400.0], [1.0, 4.0, 16.0, 1.0]))

    assert found.known.tolist() == [True, False, False, False]


def test_quantiles_of_a_model_that_was_not_calibrated_are_those_of_the_normal_distribution() -> None:
    plain = Calibration()

    assert (plain.low, plain.high) == pytest.approx((NormalDist().inv_cdf(0.1), NormalDist().inv_cdf(0.9)), abs=1e-4)


def test_batch_far_from_those_of_the_profile_is_not_known(forecaster: ThroughputForecaster) -> None:
    inside = speeds(forecaster, table([2.0], [1.0], profile=1, batch=16.0))
    outside = speeds(forecaster, table([2.0], [1.0], profile=1, batch=5000.0))

    assert inside.known.all() and not outside.known.any()


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
    with pytest.raises(ValueError, match=r"[Pp]lacement"):
        table(gpus, nodes)


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
        "nan": {"theta": [float("nan"), *profile["theta"][1:]]},
        "infinite": {"gpus": float("inf")},
    }
    profile.update(changes[damage])

    with pytest.raises(ModelError, match="damaged"):
        parse_knowledge(json.dumps(tree), "throughput test")


def test_knowledge_survives_being_written(bundle: Bundle) -> None:
    knowledge = parse_knowledge(bundle.parameters, "throughput test")

    assert parse_knowledge(write_knowledge(knowledge), "again") == knowledge


def test_network_that_is_not_known_can_be_faster_as_well_as_slower(forecaster: ThroughputForecaster) -> None:
    found = forecaster.relative(table([4.0, 4.0], [1.0, 4.0]), table([2.0, 2.0], [1.0, 1.0]))

    ups, downs = np.log(found.high / found.median), np.log(found.median / found.low)
    assert ups[1] > 2.0 * ups[0] and downs[1] > 3.0 * downs[0]


def test_doubt_about_the_fixed_part_of_a_step_widens_the_interval_of_another_batch(bundle: Bundle) -> None:
    asked = table([4.0], [1.0], batch=16.0)
    base = replace(asked, local_batch=np.array([8.0]))
    knowledge = parse_knowledge(bundle.parameters, "throughput test")

    def doubting(factor: float) -> Intervals:
        within = np.array(knowledge.pooled.within)
        within[FLOOR] *= factor
        pooled = knowledge.pooled.model_copy(update={"within": within.tolist()})
        return ThroughputForecaster(knowledge.model_copy(update={"pooled": pooled}), bundle).relative(asked, base)

    less, more = doubting(0.2), doubting(5.0)

    assert more.low < less.low and more.high > less.high


def test_batch_of_a_job_that_was_never_measured_counts_against_its_own(forecaster: ThroughputForecaster) -> None:
    asked = table([4.0], [1.0], batch=16.0)

    same = forecaster.relative(asked, asked)
    halved = forecaster.relative(asked, replace(asked, local_batch=np.array([8.0])))

    assert same.low.tolist() == same.high.tolist() == [1.0]
    # Twice the batch takes less than twice as long.
    assert 1.0 < halved.low[0] < halved.median[0] < halved.high[0] < 2.0


@pytest.mark.parametrize(
    ("points", "is_known"),
    [
        (no_points(), False),
        (shown("1", "2", "4"), False),
        (shown("22"), False),
        (shown("1", "2", "4", "22", family="another"), False),
        (shown("1", "2", "4", "22"), False),
        (shown("1", "1111"), False),
        (shown("1", "4", "1111"), True),
    ],
    ids=["nothing", "one node", "no node to compare with", "another family", "fewer nodes", "one GPU alone", "own"],
)
def test_placement_over_several_nodes_is_known_only_as_far_as_a_job_of_the_family_was_seen(
    forecaster: ThroughputForecaster, points: SitePoints, is_known: bool
) -> None:
    found, _ = spread_speed(forecaster.at_site(None, points), "omega")

    assert found.known.tolist() == [is_known]


@pytest.mark.parametrize(
    ("points", "evidence"),
    [
        (("1", "4"), Evidence.NONE),
        (("1", "2", "4"), Evidence.ONE_NODE),
        (("4", "1111"), Evidence.NONE),
        (("1", "4", "1111"), Evidence.SPREAD),
    ],
)
def test_three_sizes_of_a_node_tell_of_others_there_and_two_of_those_over_several(
    forecaster: ThroughputForecaster, points: tuple[str, ...], evidence: Evidence
) -> None:
    here = forecaster.at_site(None, shown(*points))

    assert here.evidence(here.codes(["omega"])).tolist() == [evidence]


@pytest.mark.parametrize(("points", "is_known"), [(("1", "2", "3"), False), (("1", "2", "4"), True)])
def test_size_beyond_those_that_a_family_showed_is_not_known(
    forecaster: ThroughputForecaster, points: tuple[str, ...], is_known: bool
) -> None:
    here = forecaster.at_site(None, shown(*points))
    code = int(here.codes(["omega"])[0])

    found = here.relative(*(table([gpus], [1.0], profile=code, batch=16.0) for gpus in (4.0, 1.0)))

    assert found.known.tolist() == [is_known]


def test_each_point_brings_the_forecast_nearer_to_the_truth(forecaster: ThroughputForecaster) -> None:
    one_node = forecaster.at_site(None, shown("1", "2", "4"))
    another = SitePoints.join([shown("1", "2", "4"), shown("1", "2", "4", "22", family="alpha", number=0)])
    own = forecaster.at_site(None, shown("1", "2", "4", "22"))

    answers = [spread_speed(each, "omega") for each in (one_node, forecaster.at_site(None, another), own)]

    off = [abs(float(np.log(found.median[0] / true))) for found, true in answers]
    width = [float(np.log(found.high[0] / found.low[0])) for found, _ in answers]
    assert off[0] > 2.0 * off[1] and off[2] < 0.15
    assert width[0] > width[1] > width[2]


def test_model_is_known_on_the_network_that_it_was_measured_on(forecaster: ThroughputForecaster) -> None:
    here = forecaster.at_site("Cloud-T4", no_points())
    asked, base = (table([4.0], [nodes], profile=int(here.codes(["gamma"])[0]), batch=16.0) for nodes in (4.0, 1.0))

    found = here.relative(asked, base)

    one, four = steps(theta_of(2), work("4", "1111"))
    assert found.known.all() and found.median == pytest.approx([one / four], rel=0.1)
    with pytest.raises(ModelError, match="was not measured: name one of cloud_t4, ib_a100"):
        forecaster.at_site("cloud_v100", no_points())


def test_no_known_interval_is_wider_than_that_of_the_largest_deviation(forecaster: ThroughputForecaster) -> None:
    here = forecaster.at_site(None, shown("1", "2", "4", "22"))
    gpus = np.arange(1.0, 17.0)
    code = int(here.codes(["omega"])[0])
    asked = replace(table(gpus.tolist(), np.minimum(gpus, 4.0).tolist()), profile=np.where(gpus > 8, -1, code))

    found = speeds(here, asked)

    widths = np.log(found.high / found.low)
    assert widths[found.known].max() <= 2.0 * NORMAL * LARGEST_DEVIATION < widths.max()
    assert found.known.any()


EVERYWHERE = ("1", "2", "4", "11", "22", "44", "13", "111", "222", "444", "1111", "2222", "4444")


def test_one_gpu_at_the_reference_batch_takes_the_scale() -> None:
    found = log_step(THETA, work("1", batch=1.0))

    assert found == pytest.approx(THETA[0])


@pytest.mark.parametrize(
    ("longer", "shorter"),
    [(("4", 2.0), ("4", 1.0)), (("4", 1.0), ("1", 1.0)), (("11", 1.0), ("1", 1.0)), (("44", 1.0), ("22", 1.0))],
    ids=["batch", "gpus on a node", "nodes", "gpus on two nodes"],
)
def test_step_grows_with(longer: tuple[str, float], shorter: tuple[str, float]) -> None:
    more, less = (log_step(THETA, work(place, batch=batch))[0] for place, batch in (longer, shorter))

    assert more > less


def test_two_nodes_can_be_slower_than_three() -> None:
    two, three = log_step(THETA, work("22", "222", batch=1.0))

    assert two > three


def test_rows_of_many_jobs_get_the_law_of_each() -> None:
    other = THETA + 0.1
    rows = work("22", "22", batch=2.0)

    found = log_step(np.array([THETA, other]), rows)

    assert found.tolist() == pytest.approx([log_step(THETA, rows)[0], log_step(other, rows)[0]])


def test_slopes_are_those_of_the_law() -> None:
    rows, moved = work("13", "4", batch=3.0), THETA.copy()
    moved[VOLUME] += 1e-3

    found = slopes(THETA, rows)

    assert found.shape == (2, COUNT) and len(PARAMETERS) == COUNT
    assert found[:, VOLUME] * 1e-3 == pytest.approx(log_step(moved, rows) - log_step(THETA, rows), rel=1e-2)


def test_law_is_found_from_points_on_all_placements() -> None:
    points = work(*EVERYWHERE * 2, batch=1.0)
    points = points.take(np.arange(len(points)))
    points.batch[len(EVERYWHERE) :] = 4.0

    law = learn(points, log_step(THETA, points), DEFAULT)

    assert log_step(law.theta, points) == pytest.approx(log_step(THETA, points), abs=0.05)


def test_without_points_the_law_is_the_prior() -> None:
    law = learn(work(), np.zeros(0), DEFAULT)

    assert law.theta.tolist() == DEFAULT.mean.tolist()
    assert np.sqrt(np.diag(law.covariance)) == pytest.approx(DEFAULT.deviation)


def test_one_node_says_nothing_of_the_network() -> None:
    points = work("1", "2", "4", batch=1.0)

    law = learn(points, log_step(THETA, points), DEFAULT)

    assert law.theta[VOLUME] == pytest.approx(DEFAULT.mean[VOLUME])
    assert law.covariance[INSIDE, INSIDE] < DEFAULT.deviation[INSIDE] ** 2


def test_an_outlier_hardly_moves_the_law() -> None:
    points = work(*EVERYWHERE * 3, batch=1.0)
    off = log_step(THETA, points)
    off[3] += 3.0
    near = Prior(mean=THETA, deviation=DEFAULT.deviation)

    law = learn(points, off, near)

    # The mean of the three points there is off by 1.
    assert np.abs(log_step(law.theta, points) - log_step(THETA, points)).max() < 0.15
