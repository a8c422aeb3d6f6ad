"""The sampler: fills in what is missing and nothing else, the same for the same seed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest

from advisor.sim.traces.sampling import (
    BURST_S,
    CHECKPOINT_FROM_S,
    CHECKPOINT_INTERVALS_S,
    INTERACTIVE,
    LIMIT_RATIOS,
    LONGEST_INTERACTIVE_S,
    LONGEST_LIMIT_S,
    MODEL_WEIGHTS,
    OPEN,
    USER_COUNT,
    USUAL,
    USUAL_LIMITS_H,
    fill,
)
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from advisor.sim.traces.trace_file import read_trace, write_trace
from tests.examples import examples

MODELS = tuple(MODEL_WEIGHTS)
ALL_SAMPLED = (
    "model", "time_limit_s", "nodes_min", "nodes_max", "checkpoint_interval_s", "user", "account", "array_id",
)  # fmt: skip


def bare_trace(count: int = 4000, *, run_time_s: float | None = None, gpus: int | None = None) -> Trace:
    """Return a trace that tells nothing but when, how long and how large."""
    stream = np.random.default_rng(0)
    jobs = np.zeros(count, TRACE_DTYPE)
    jobs["job_id"] = np.arange(count)
    jobs["submit_time"] = np.sort(stream.integers(0, 10**6, count))
    jobs["run_time_s"] = np.exp(stream.uniform(1, 13, count)) if run_time_s is None else run_time_s
    jobs["gpus"] = stream.choice([1, 2, 3, 4, 8, 16, 32], count) if gpus is None else gpus
    jobs["gpus_min"] = jobs["gpus_max"] = jobs["gpus"]
    jobs["time_limit_s"], jobs["recorded_start_time"] = np.inf, np.nan
    jobs["gpu_type"] = jobs["model"] = -1
    return Trace(name="bare", jobs=jobs)


def test_everything_missing_is_filled_in_and_named_with_the_seed() -> None:
    filled = fill(bare_trace(), MODELS, 3)

    assert filled.sampled == ALL_SAMPLED
    assert filled.seed == 3
    assert np.all(filled.jobs["model"] >= 0)
    assert np.all(np.isfinite(filled.jobs["time_limit_s"]))


def test_the_given_trace_stays_as_it_was() -> None:
    bare = bare_trace()
    before = bare.jobs.copy()

    fill(bare, MODELS, 3)

    assert bare.jobs.tobytes() == before.tobytes()


def test_equal_seeds_give_equal_traces_and_others_do_not() -> None:
    bare = bare_trace()

    first, again, other = fill(bare, MODELS, 3), fill(bare, MODELS, 3), fill(bare, MODELS, 4)

    assert first.jobs.tobytes() == again.jobs.tobytes()
    assert first.users == again.users
    for column in ("model", "time_limit_s", "nodes_max", "checkpoint_interval_s", "user"):
        assert np.any(first.jobs[column] != other.jobs[column])


def test_a_filled_trace_is_not_filled_again() -> None:
    filled = fill(bare_trace(), MODELS, 3)

    again = fill(filled, MODELS, 4)

    assert again is filled


def test_what_an_earlier_seed_filled_in_is_told_apart() -> None:
    partly = replace(bare_trace(10), sampled=("run_time_s",), seed=8, note="here")

    filled = fill(partly, MODELS, 3)

    assert filled.sampled == ("run_time_s", *ALL_SAMPLED)
    assert filled.seed == 3
    assert filled.note == "here; run_time_s drawn before from seed 8"


@pytest.mark.parametrize("column", ["time_limit_s", "checkpoint_interval_s", "gpus_max", "nodes_max"])
def test_a_column_with_one_recorded_value_is_left_alone(column: str) -> None:
    bare = bare_trace()
    bare.jobs[column][5] = 64

    filled = fill(bare, MODELS, 3, requests=OPEN)

    np.testing.assert_array_equal(filled.jobs[column], bare.jobs[column])
    assert column not in filled.sampled


def test_filling_in_one_column_more_leaves_the_others_as_they_were() -> None:
    bare = bare_trace()
    limited = bare_trace()
    limited.jobs["time_limit_s"] = 7200.0
    named = replace(bare_trace(), users=("ann",))

    # Tasks of an array share what is drawn.
    requests = replace(USUAL, array=0.0)
    everything, without_limits, without_users = (
        fill(each, MODELS, 3, requests=requests) for each in (bare, limited, named)
    )

    for column in set(ALL_SAMPLED) - {"time_limit_s"}:
        np.testing.assert_array_equal(without_limits.jobs[column], everything.jobs[column])
    for column in set(ALL_SAMPLED) - {"user", "account"}:
        np.testing.assert_array_equal(without_users.jobs[column], everything.jobs[column])
    assert without_users.users == ("ann",)


def test_recorded_models_stay_and_only_the_others_are_drawn() -> None:
    bare = replace(bare_trace(), models=("ours",))
    bare.jobs["model"][:10] = 0

    filled = fill(bare, MODELS, 3)

    names = [filled.models[code] for code in filled.jobs["model"].tolist()]
    assert names[:10] == ["ours"] * 10
    assert "ours" not in names[10:]
    assert set(names[10:]) <= set(MODELS)


def test_without_profiles_models_stay_unknown() -> None:
    filled = fill(bare_trace(), (), 3)

    assert np.all(filled.jobs["model"] == -1)
    assert "model" not in filled.sampled


def test_models_follow_their_weights() -> None:
    count = 20_000

    filled = fill(bare_trace(count, gpus=1), MODELS, 3)

    total = sum(weights[0] for weights in MODEL_WEIGHTS.values())
    names = [filled.models[code] for code in filled.jobs["model"].tolist()]
    for name, weights in MODEL_WEIGHTS.items():
        share = weights[0] / total
        assert names.count(name) / count == pytest.approx(share, abs=5 * np.sqrt(share / count) + 1e-9)


def test_profiles_of_one_model_share_its_weight() -> None:
    count = 20_000

    filled = fill(bare_trace(count, gpus=1), ("lm", "lm/5", "lm/80", "a3c"), 3)

    share = np.bincount(filled.jobs["model"]) / count
    assert filled.models == ("a3c", "lm", "lm/5", "lm/80")
    assert share.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6], abs=0.02)


def test_a_size_that_no_profile_is_meant_for_takes_any() -> None:
    filled = fill(bare_trace(1000, gpus=64), ("resnet18", "a3c"), 3)

    assert filled.models == ("a3c", "resnet18")


def test_a_profile_without_weights_is_chosen_too() -> None:
    filled = fill(bare_trace(1000), ("brandnew", "llama30"), 3)

    assert filled.models == ("brandnew", "llama30")


def test_time_limits_are_never_below_the_run_time() -> None:
    filled = fill(bare_trace(), MODELS, 3)

    assert np.all(filled.jobs["time_limit_s"] >= filled.jobs["run_time_s"])


def test_time_limits_that_are_not_the_usual_ones_are_round_numbers() -> None:
    filled = fill(bare_trace(), MODELS, 3, requests=OPEN)

    limit_s, run_time_s = filled.jobs["time_limit_s"], filled.jobs["run_time_s"]
    assert np.all(limit_s >= run_time_s)
    assert np.all(limit_s[limit_s <= 4 * 3600] % 900 == 0)
    assert np.all(limit_s[limit_s > 4 * 3600] % 3600 == 0)
    assert np.all(limit_s[limit_s > 2 * 86400] % 86400 == 0)
    assert np.all(limit_s <= np.maximum(LONGEST_LIMIT_S, run_time_s + 86400))


@pytest.mark.parametrize(
    ("run_time_s", "band"), [(1800.0, 2), (7200.0, 3), (40_000.0, 4), (100_000.0, 5)], ids=["30m", "2h", "11h", "28h"]
)
def test_time_limits_follow_the_measured_ratios(run_time_s: float, band: int) -> None:
    filled = fill(bare_trace(run_time_s=run_time_s), MODELS, 3)

    # Draws end at the 90th percentile, so the measured median stands at 5/9 of them; rounding adds up to one step.
    drawn = float(np.quantile(filled.jobs["time_limit_s"] / run_time_s, 0.5 / 0.9))
    measured = LIMIT_RATIOS[band][3]
    assert measured * 0.85 <= drawn <= measured * 1.15 + 86400 / run_time_s


def test_a_job_longer_than_every_limit_gets_its_run_time_in_whole_days() -> None:
    filled = fill(bare_trace(10, run_time_s=40.5 * 86400), MODELS, 3)

    assert set(filled.jobs["time_limit_s"].tolist()) == {41 * 86400.0}


def test_a_share_of_larger_jobs_is_elastic_and_single_gpus_are_rigid() -> None:
    jobs = fill(bare_trace(), MODELS, 3, requests=OPEN).jobs

    elastic = jobs["gpus_min"] < jobs["gpus_max"]
    large = jobs["gpus"] >= 2
    assert not np.any(elastic & ~large)
    # One in nine drawn ranges has the asked size at both ends.
    assert np.mean(elastic[large]) == pytest.approx(OPEN.elastic * 8 / 9, abs=0.03)
    assert np.all((jobs["gpus_min"] >= 1) & (jobs["gpus_min"] <= jobs["gpus"]) & (jobs["gpus"] <= jobs["gpus_max"]))


def test_a_share_of_rigid_jobs_leaves_the_node_count_open() -> None:
    jobs = fill(bare_trace(), MODELS, 3, gpus_per_node=4, requests=OPEN).jobs

    rigid = (jobs["gpus"] >= 2) & (jobs["gpus_min"] == jobs["gpus_max"])
    fixed = jobs["nodes_max"] > 0
    assert np.mean(~fixed[rigid]) == pytest.approx(OPEN.open_nodes, abs=0.03)
    assert not np.any(fixed & ~rigid)
    np.testing.assert_array_equal(jobs["nodes_max"][fixed], -(-jobs["gpus"][fixed] // 4))
    np.testing.assert_array_equal(jobs["nodes_min"], jobs["nodes_max"])


def test_a_share_of_long_jobs_writes_checkpoints() -> None:
    jobs = fill(bare_trace(), MODELS, 3, requests=OPEN).jobs

    writes = jobs["checkpoint_interval_s"] > 0
    long = jobs["run_time_s"] >= CHECKPOINT_FROM_S
    assert not np.any(writes & ~long)
    assert np.mean(writes[long]) == pytest.approx(OPEN.checkpoint, abs=0.04)
    assert set(jobs["checkpoint_interval_s"][writes].tolist()) == set(CHECKPOINT_INTERVALS_S)


def in_bursts(count: int = 6000) -> Trace:
    """Return a trace of known users, of whose jobs one in four follows another with an equal request within seconds."""
    bare = bare_trace(count)
    stream = np.random.default_rng(1)
    jobs, follows = bare.jobs, stream.random(count) < 0.25
    follows[0] = False
    first = np.maximum.accumulate(np.where(follows, 0, np.arange(count)))
    jobs["gpus"] = jobs["gpus_min"] = jobs["gpus_max"] = jobs["gpus"][first]
    jobs["submit_time"] = jobs["submit_time"][first] + np.arange(count) - first
    jobs["user"] = stream.integers(0, 3, count)[first]
    return replace(bare, users=("ann", "bob", "eve"), jobs=np.sort(jobs, order=["submit_time", "job_id"]))


def wilson(least: int, most: int, of: int) -> tuple[float, float]:
    """Return the lowest and the highest share that a count of scripts between two readings of them leaves open."""
    low, high = (binomtest(count, of).proportion_ci(method="wilson") for count in (least, most))
    return low.low, high.high


def array_share(jobs: NDArray[Any]) -> float:
    """Return the share of arrays in submissions."""
    arrays = len(set(jobs["array_id"].tolist()) - {0})
    return arrays / (arrays + int(np.sum(jobs["array_id"] == 0)))


# Counts of the public job scripts, from the strict to the wide reading where the two differ (docs/traces.md).
SCRIPTS: Final[Mapping[str, tuple[tuple[float, float], Callable[[NDArray[Any]], float]]]] = {
    "open node counts": (
        wilson(5, 22, 273),
        lambda jobs: float(np.mean(jobs["nodes_max"][jobs["gpus"] > 1] == 0)),
    ),
    "several nodes below 8 GPUs": (
        wilson(7, 7, 185),
        lambda jobs: float(
            np.mean(jobs["nodes_min"][(jobs["gpus"] > 1) & (jobs["gpus"] < 8) & (jobs["gpus"] != 3)] > 1)
        ),
    ),
    "several nodes at 8 GPUs": (
        wilson(11, 11, 56),
        lambda jobs: float(np.mean(jobs["nodes_min"][jobs["gpus"] == 8] > 1)),
    ),
    "ranges of sizes": (wilson(0, 0, 273), lambda jobs: float(np.mean(jobs["gpus_min"] < jobs["gpus_max"]))),
    "checkpoints of an hour and more": (
        (0.066, 0.132),
        lambda jobs: float(np.mean(jobs["checkpoint_interval_s"][jobs["run_time_s"] >= CHECKPOINT_FROM_S] > 0)),
    ),
    "usual limits": (
        wilson(292, 292, 361),
        lambda jobs: float(np.mean(np.isin(jobs["time_limit_s"], np.multiply(USUAL_LIMITS_H, 3600)))),
    ),
    "arrays among submissions": (wilson(23, 23, 398), array_share),
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_requests_have_the_shares_of_public_scripts(kind: str) -> None:
    (low, high), share_of = SCRIPTS[kind]

    found = [share_of(fill(in_bursts(), MODELS, seed).jobs) for seed in range(3)]

    assert low <= np.mean(found) <= high


def test_tasks_of_an_array_have_one_request() -> None:
    jobs = fill(in_bursts(), MODELS, 3).jobs

    of_task = {"job_id", "submit_time", "run_time_s", "recorded_start_time"}
    request = [name for name in TRACE_DTYPE.names or () if name not in of_task]
    for array_id in set(jobs["array_id"].tolist()) - {0}:
        tasks = jobs[jobs["array_id"] == array_id]
        assert len(tasks) > 1
        assert len(np.unique(tasks[request])) == 1
        assert np.all(np.diff(tasks["submit_time"]) <= BURST_S)


def test_a_source_that_has_node_counts_gets_no_arrays() -> None:
    trace = in_bursts()
    trace.jobs["nodes_min"] = trace.jobs["nodes_max"] = 1

    filled = fill(trace, MODELS, 3)

    assert not np.any(filled.jobs["array_id"])
    assert "array_id" not in filled.sampled


def test_a_few_users_submit_most_jobs_and_each_has_one_account() -> None:
    filled = fill(bare_trace(), MODELS, 3)

    jobs_of_user = np.sort(np.bincount(filled.jobs["user"]))[::-1]
    pairs = {(job["user"], job["account"]) for job in filled.jobs}
    assert len(filled.users) == USER_COUNT
    assert jobs_of_user[0] > 5 * jobs_of_user[5]
    assert len(pairs) == USER_COUNT
    assert 2 <= len(filled.accounts) <= 4


@settings(deadline=None, max_examples=examples(25))
@given(seed=st.integers(0, 2**64), count=st.integers(1, 30), profiles=st.sampled_from([(), ("bert",), MODELS]))
def test_a_filled_trace_is_valid_and_survives_a_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, profiles: tuple[str, ...]
) -> None:
    path: Path = tmp_path_factory.mktemp("filled") / "t.csv"
    filled = fill(bare_trace(count), profiles, seed)

    write_trace(filled, path)

    found = read_trace(path)
    order = np.lexsort((filled.jobs["job_id"], filled.jobs["submit_time"]))
    assert found.jobs.tobytes() == filled.jobs[order].tobytes()
    assert (found.users, found.accounts, found.models) == (filled.users, filled.accounts, filled.models)
    assert (found.sampled, found.seed) == (filled.sampled, seed)


def test_interactive_jobs_are_a_share_of_all_short_and_on_one_node() -> None:
    drawn, usual = (fill(bare_trace(), MODELS, 3, requests=requests) for requests in (INTERACTIVE, USUAL))
    marked = drawn.jobs[drawn.jobs["interactive"] == 1]

    assert len(marked) == 200 and drawn.sampled == (*ALL_SAMPLED, "interactive")
    assert np.all(marked["time_limit_s"] <= LONGEST_INTERACTIVE_S) and not np.any(marked["array_id"])
    assert np.all((marked["gpus"] == 1) | (marked["nodes_max"] == 1))
    others = [name for name in TRACE_DTYPE.names or () if name != "interactive"]
    assert all(np.array_equal(drawn.jobs[name], usual.jobs[name], equal_nan=True) for name in others)


def test_nobody_submits_several_interactive_jobs_at_a_time() -> None:
    trace = bare_trace(1000, run_time_s=60.0, gpus=1)
    trace.jobs["time_limit_s"], trace.jobs["submit_time"] = 600.0, np.arange(1000) // 20 * 100.0

    jobs = fill(trace, MODELS, 3, requests=replace(INTERACTIVE, interactive=1.0)).jobs
    marked = jobs[jobs["interactive"] == 1]

    pairs = set(zip(marked["user"].tolist(), marked["submit_time"].tolist(), strict=True))
    assert 0 < len(marked) == len(pairs) < 1000
