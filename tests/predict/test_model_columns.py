"""The columns of the models, computed by hand: of run times, of starts, and of step times."""

from collections.abc import Sequence

import numpy as np
import pytest

from advisor.features.backlog import BacklogTable, Load
from advisor.predict.run_time_features import COLUMNS, MISSING, RUNS_KEPT, Recalled, features
from advisor.predict.scaling import shape_of
from advisor.predict.start_time import CENTRE, UNKNOWN, log_wait_of, model_rows
from advisor.predict.start_time import COLUMNS as START_COLUMNS
from advisor.predict.throughput import columns_of as ratio_columns
from tests.predict.run_time_jobs import MONDAY, make_jobs
from tests.predict.throughput_cluster import work

HOUR_S = 3600.0


def recalled(near: Sequence[tuple[float, float, float]], user: Sequence[tuple[float, float, float]] = ()) -> Recalled:
    """The history of one job: run time, limit and end of each run, newest first."""
    runs = np.full((1, 2, RUNS_KEPT, 3), np.nan)
    for block, rows in enumerate((near, user)):
        for place, run in enumerate(rows):
            runs[0, block, place] = run
    return Recalled(runs=runs, counts=np.array([[len(near), len(user)]]))


def run_time_columns(history: Recalled, *, limit_s: float = 8 * HOUR_S, **job: object) -> dict[str, float]:
    jobs = make_jobs(1, **{"submit_time": MONDAY, **job})
    found = features(jobs, history, np.array([limit_s]))
    return dict(zip(COLUMNS, found.rows[0].tolist(), strict=True)) | {"anchor": float(found.anchor[0])}


def logs(**values: float) -> dict[str, float]:
    """The logarithms of values; those that are negative stand as they are, without the sign."""
    return {name: float(np.log(value)) for name, value in values.items()}


def test_request_counts_by_its_logarithms() -> None:
    columns = run_time_columns(recalled([]), gpus=4.0, cpus=32.0, nodes=2.0, memory_mib=64_000.0)

    # Without a run, the anchor is a fifth of the limit.
    expected = logs(anchor=0.2 * 8 * HOUR_S, limit=8 * HOUR_S, limit_over_anchor=5.0, gpus=4.0, cpus=32.0)
    expected |= logs(cpus_per_gpu=8.0, memory_per_cpu=2000.0, nodes=2.0)
    assert {name: columns[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert columns["group"] == 0.0
    assert {columns[name] for name in ("near_last", "user_spread", "near_age")} == {float(MISSING)}
    assert columns["near_count"] == 0.0


def test_request_of_no_gpu_counts_as_half_a_gpu_and_its_cpus_as_those_of_one() -> None:
    columns = run_time_columns(recalled([]), gpus=0.0, cpus=1.0, memory_mib=0.5, nodes=0.0)

    assert columns["gpus"] == pytest.approx(np.log(0.5))
    assert (columns["cpus"], columns["cpus_per_gpu"]) == (0.0, 0.0)
    assert columns["memory_per_cpu"] == pytest.approx(np.log(0.5))
    assert columns["nodes"] == MISSING


def test_runs_count_against_their_median() -> None:
    runs = [(800.0, 8000.0, MONDAY - 50.0), (400.0, 28_800.0, MONDAY - 950.0), (3200.0, 3200.0, MONDAY - 5000.0)]

    columns = run_time_columns(recalled(runs, [(100.0, 200.0, MONDAY - 50.0)]))

    # The anchor is the median of the runs, 800 s.
    half = float(np.log(2.0))
    expected = {
        "anchor": np.log(800.0),
        "limit_over_anchor": np.log(36.0),
        "group": 2.0,
        "near_last": 0.0,
        "near_mean_of_two": -half / 2,
        "near_recent_mean": (-0.6 * half + 0.36 * 2 * half) / 1.96,
        "near_quantile_0.1": -0.8 * half,
        "near_quantile_0.25": -0.5 * half,
        "near_quantile_0.5": 0.0,
        "near_quantile_0.75": half,
        "near_quantile_0.9": 1.6 * half,
        "near_spread": 1.5 * half,
        "near_step": 2.0 * half,
        # A tenth is the middle of the shares used; of 8 h that is 2880 s.
        "near_ratio_median": np.log(2880.0 / 800.0),
        "near_timed_out_ratio": 1 / 3,
        "near_instant_ratio": 0.0,
        "near_count": np.log(4.0),
        "near_age": np.log1p(50.0),
        "near_last_limit": np.log(8000.0 / 28_800.0),
        "near_same_limit_ratio": 1 / 3,
        "near_time_between": np.log1p(4950.0),
        "user_last": np.log(100.0 / 800.0),
        "user_instant_ratio": 1.0,
        "user_count": np.log(2.0),
        "user_step": float(MISSING),
        "user_time_between": 0.0,
    }
    assert {name: columns[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_runs_of_the_user_anchor_a_request_that_is_new() -> None:
    columns = run_time_columns(recalled([], [(600.0, 3600.0, MONDAY - 10.0)]))

    assert columns["anchor"] == pytest.approx(np.log(600.0))
    assert columns["group"] == 1.0
    assert columns["user_last"] == pytest.approx(0.0, abs=1e-6)


def test_anchor_is_never_beyond_the_limit() -> None:
    columns = run_time_columns(recalled([(7200.0, 7200.0, MONDAY - 10.0)]), limit_s=3600.0)

    assert columns["anchor"] == pytest.approx(np.log(3600.0))
    assert columns["near_last"] == pytest.approx(np.log(2.0))


@pytest.mark.parametrize(
    ("run_s", "limit_s", "anchor_s"),
    [(119.0, 6000.0, 900.0), (121.0, 60_000.0, np.sqrt(121.0 * 900.0)), (119.0, 5900.0, np.sqrt(119.0 * 900.0))],
    ids=["a trial", "no longer instant", "much of its limit"],
)
def test_run_that_failed_at_once_is_left_out_of_the_anchor(run_s: float, limit_s: float, anchor_s: float) -> None:
    columns = run_time_columns(recalled([(run_s, limit_s, MONDAY - 10.0), (900.0, 6000.0, MONDAY - 99.0)]))

    assert np.exp(columns["anchor"]) == pytest.approx(anchor_s)


def test_run_that_ended_after_the_submission_has_no_age() -> None:
    assert run_time_columns(recalled([(900.0, 3600.0, MONDAY + 500.0)]))["near_age"] == 0.0


def test_runs_that_ended_while_a_job_waits_become_its_anchor() -> None:
    runs = recalled([(1000.0, 9000.0, MONDAY + 500.0), (400.0, 9000.0, MONDAY + 400.0), (9000.0, 9000.0, MONDAY - 9.0)])

    columns = run_time_columns(runs, waited_s=5000.0)

    weights = np.array([1.0, 0.6, 0.36])
    anchor = float(np.average(np.log([1000.0, 400.0, 9000.0]), weights=weights))
    assert columns["anchor"] == pytest.approx(anchor)
    # The wait counts in steps, the last of which is at an hour.
    expected = {"group": 3.0} | logs(waited=3601.0, near_ended_since_submission=3.0, near_age=3101.0)
    assert {name: columns[name] for name in expected} == pytest.approx(expected, rel=1e-5)


def load(gpus: float, hours: float) -> Load:
    return Load(gpus=np.array([gpus]), gpu_s=np.array([hours * HOUR_S]))


def start_columns(**changed: object) -> dict[str, float]:
    fields: dict[str, object] = {
        "job_id": np.array([1]),
        "gpus": np.array([9.0]),
        "limit_s": np.array([1000.0]),
        "eligible": np.array([1.0]),
        "since_submit_s": np.array([9 * HOUR_S]),
        "since_eligible_s": np.array([0.0]),
        "begins_in_s": np.array([0.0]),
        "ahead": load(90.0, 990.0),
        "ahead_in_partition": load(10.0, 90.0),
        "ahead_in_account": load(40.0, 0.0),
        "running": load(10.0, 30.0),
        "running_in_account": load(5.0, 1.0),
    }
    (row,) = model_rows(BacklogTable(**(fields | changed))).tolist()  # type: ignore[arg-type]
    return dict(zip(START_COLUMNS, row, strict=True))


def test_backlog_counts_in_hours_of_the_gpus_that_jobs_hold() -> None:
    columns = start_columns()

    assert columns == pytest.approx(
        {
            "log_hours_ahead": 2.0,
            "log_hours_ahead_in_partition": 1.0,
            "log_hours_ahead_in_account": 0.0,
            "log_gpus_ahead": 1.0,
            "log_gpus_ahead_in_account": np.log10(5.0),
            "log_hours_left": np.log10(4.0),
            "running_ratio_of_account": 0.5,
            "log_gpus": 1.0,
            "log_limit_s": 3.0,
            "log_hours_since_submit": 1.0,
            "log_hours_since_eligible": 0.0,
            "eligible": 1.0,
        },
        abs=1e-6,
    )


def test_backlog_of_a_cluster_where_nothing_runs_is_not_known() -> None:
    columns = start_columns(running=load(0.0, 0.0), limit_s=np.array([0.5]), since_submit_s=np.array([-5.0]))

    assert {columns[name] for name in ("log_hours_ahead", "log_gpus_ahead", "running_ratio_of_account")} == {UNKNOWN}
    assert (columns["log_limit_s"], columns["log_hours_since_submit"]) == (0.0, 0.0)


def test_wait_is_a_quarter_of_the_way_to_the_wait_so_far_and_the_deviation_that_its_square_leaves() -> None:
    wait = log_wait_of(np.array([[1.0, 1.25], [-1.0, 1.0]], np.float32), np.array([1e5, 0.0]))

    # The wait so far is a minute at least.
    assert wait.mean.tolist() == pytest.approx(
        [0.75 * (CENTRE + 1.0) + 0.25 * 5.0, 0.75 * (CENTRE - 1.0) + 0.25 * np.log10(60.0)]
    )
    assert wait.spread.tolist() == [0.5, pytest.approx(0.05)]


def test_shape_of_a_placement_is_that_of_its_nodes() -> None:
    shape = shape_of(work("4", "13", "44", "1111", "244"))

    assert shape.tolist() == [
        [0, 0, 0, 0, 0],
        pytest.approx([0, 0, 1, 1, np.log2(3.0)]),
        pytest.approx([0, 0, 2, 2, 0]),
        pytest.approx([1, np.log2(4.0 / 3.0), 0, 0, 0]),
        pytest.approx([1, 0, np.log2(10.0 / 3.0), 0, 1]),
    ]


def test_columns_of_a_ratio_compare_two_placements() -> None:
    asked, base = work("44", "1", batch=2.0), work("1", "13", batch=8.0)

    rows = ratio_columns(np.array([0.5, -0.5]), np.array([1, 0]), asked, base)

    assert rows.tolist() == [
        pytest.approx([0.5, 1, 3, 1, 2, 0, 1, -2, 3, 1, 0.5, 1]),
        pytest.approx([-0.5, 0, -2, -1, -1, -np.log2(3.0), -1, -2, 2, 1, 0.5, 1], rel=1e-6),
    ]
