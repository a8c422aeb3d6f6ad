"""Metrics of a run, against numbers worked out by hand."""

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.topology import LocalityTier
from advisor.sim.run_outcome import SEGMENT_DTYPE, End, Run
from advisor.sim.study.metrics import (
    RunSummary,
    StepFunction,
    TierTimes,
    bounded_slowdown,
    by_gpus,
    by_user,
    count_ends,
    gpus_over_time,
    jct_s,
    makespan_s,
    summarise,
    tier_times,
    time_averages,
)
from advisor.sim.study.result import result_of
from tests.sim.building import make_trace
from tests.sim.runs import NAN, make_run


@pytest.fixture
def run() -> Run:
    """Three finished jobs and one that its time limit killed, on 4 GPUs."""
    trace = make_trace(
        [
            {"submit_time": 0.0, "run_time_s": 100.0},
            {"submit_time": 10.0, "run_time_s": 5.0, "gpus": 2},
            {"submit_time": 20.0, "run_time_s": 50.0},
            {"submit_time": 30.0, "run_time_s": 90.0, "time_limit_s": 40.0},
        ]
    )
    ends = [End.FINISHED, End.FINISHED, End.FINISHED, End.TIME_LIMIT]
    times = [(0.0, 100.0), (20.0, 30.0), (60.0, 140.0), (40.0, 80.0)]
    return make_run(trace, times, ends=ends, exposed_ratio=0.1)


EXPECTED = {
    "jobs": 4,
    "finished": 3,
    "mean_jct_s": 80.0,  # 100, 20, 120
    "p50_jct_s": 100.0,
    "p95_jct_s": 118.0,
    "p99_jct_s": 119.6,
    "makespan_s": 140.0,
    "mean_queueing_delay_s": 15.0,  # 0, 10, 40, 10
    "p99_queueing_delay_s": 39.1,
    "max_queueing_delay_s": 40.0,
    "mean_bounded_slowdown": 1.8,  # 1, 20 over the bound of 10, 120 over 50
    "gpu_allocated_ratio": 240.0 / 560.0,
    "communication_overhead_ratio": 0.1,
    "preemptions": 0,
    "resizes": 0,
    "changes": 0,
    "wall_s": 2.0,
    "jobs_per_s": 2.0,
    "peak_rss_mib": 50.0,
}


@pytest.mark.parametrize("metric", EXPECTED)
def test_a_metric_is_what_it_comes_to_by_hand(run: Run, metric: str) -> None:
    assert getattr(summarise(run), metric) == pytest.approx(EXPECTED[metric])


def test_the_summary_has_the_published_names_and_no_others() -> None:
    assert [field.name for field in fields(RunSummary)] == ["policy", "trace", "seed", *EXPECTED]


def test_preemptions_and_resizes_are_added_up(run: Run) -> None:
    run.outcomes["preemptions"] = [1, 0, 2, 0]
    run.outcomes["resizes"] = [0, 0, 0, 5]

    summary = summarise(run)

    assert (summary.preemptions, summary.resizes) == (3, 5)


def test_jobs_are_counted_by_how_they_ended(run: Run) -> None:
    run.outcomes["end"][0] = End.IMPOSSIBLE
    run.outcomes["end"][1] = End.NOT

    ends = count_ends(run)

    assert (ends.finished, ends.time_limit, ends.impossible, ends.not_ended) == (1, 1, 1, 1)


def test_a_killed_job_has_a_queueing_delay_but_no_jct(run: Run) -> None:
    assert math.isnan(jct_s(run)[3])
    assert summarise(run).mean_queueing_delay_s == pytest.approx(15.0)


def test_a_job_that_is_faster_than_its_bound_has_slowdown_one() -> None:
    run = make_run(make_trace([{"run_time_s": 1.0}]), [(0.0, 2.0)])

    assert bounded_slowdown(run).tolist() == [1.0]


def test_a_job_too_large_for_the_cluster_does_not_stretch_the_makespan() -> None:
    trace = make_trace([{"submit_time": 0.0, "gpus": 999}, {"submit_time": 50.0}])
    run = make_run(trace, [(NAN, NAN), (50.0, 150.0)], ends=[End.IMPOSSIBLE, End.FINISHED])

    assert makespan_s(run) == 100.0


def test_metrics_over_no_job_are_nan_and_counts_are_zero() -> None:
    trace = make_trace([{"gpus": 999}])

    summary = summarise(make_run(trace, [(NAN, NAN)], ends=[End.IMPOSSIBLE]))

    assert (summary.jobs, summary.finished, summary.jobs_per_s) == (1, 0, 0.0)
    assert all(
        math.isnan(value)
        for value in (
            summary.mean_jct_s,
            summary.p99_jct_s,
            summary.makespan_s,
            summary.max_queueing_delay_s,
            summary.mean_bounded_slowdown,
            summary.gpu_allocated_ratio,
            summary.communication_overhead_ratio,
        )
    )


def test_gpus_rise_at_starts_and_fall_at_ends(run: Run) -> None:
    times, gpus = gpus_over_time(run)

    assert times.tolist() == [0.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0, 140.0]
    assert gpus.tolist() == [1.0, 3.0, 1.0, 2.0, 3.0, 2.0, 1.0, 0.0]


def test_gpu_time_of_gangs_is_added_up_by_tier_and_single_gpus_are_left_out(run: Run) -> None:
    run.segments["gpus"] = [2, 4, 8, 1]
    run.segments["tier"] = [LocalityTier.NODE, LocalityTier.LEAF, LocalityTier.SPINE, LocalityTier.NODE]

    tiers = tier_times(run)

    # For 100 s, 10 s and 80 s.
    assert (tiers.node_gpu_s, tiers.leaf_gpu_s, tiers.spine_gpu_s) == (200.0, 40.0, 640.0)
    assert tiers.shares == pytest.approx((200 / 880, 40 / 880, 640 / 880))
    assert result_of(run).tiers == tiers


def test_where_no_gang_ran_tiers_have_no_shares() -> None:
    run = make_run(make_trace([{}]), [(0.0, 100.0)])

    assert tier_times(run) == TierTimes()
    assert all(math.isnan(share) for share in tier_times(run).shares)


Segments = list[tuple[int, float, float]]
segments = st.lists(
    st.tuples(st.integers(1, 64), st.floats(0, 1e6), st.floats(0, 1e5)).map(
        lambda row: (row[0], row[1], row[1] + row[2])
    ),
    min_size=1,
    max_size=30,
)


@given(rows=segments, cuts=st.integers(1, 900))
def test_averages_over_time_keep_every_gpu_second(rows: Segments, cuts: int) -> None:
    run = make_run(make_trace([{}]), [(0.0, 1.0)])
    made = np.zeros(len(rows), SEGMENT_DTYPE)
    made["gpus"], made["start_time"], made["end_time"] = (np.array(column) for column in zip(*rows, strict=True))
    steps = gpus_over_time(Run(**{**{f.name: getattr(run, f.name) for f in fields(Run)}, "segments": made}))

    edges = np.linspace(0.0, 1.2e6, cuts + 1)
    averages = time_averages(steps, edges)

    assert float((averages * np.diff(edges)).sum()) == pytest.approx(
        float((made["gpus"] * (made["end_time"] - made["start_time"])).sum()), rel=1e-6, abs=1e-3
    )
    assert steps.values[-1] == 0.0


def test_an_average_weighs_by_time() -> None:
    steps = StepFunction(np.array([0.0, 10.0, 15.0]), np.array([4.0, 8.0, 0.0]))

    averages = time_averages(steps, np.array([-10.0, 0.0, 20.0]))

    assert averages.tolist() == [0.0, (4 * 10 + 8 * 5) / 20]


def test_nothing_held_averages_to_zero() -> None:
    empty = StepFunction(np.array([]), np.array([]))

    assert time_averages(empty, np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 0.0]


def test_sizes_fall_into_classes_that_double() -> None:
    asked = [1, 2, 3, 4, 5, 8, 9, 64, 65]

    sizes = by_gpus(make_trace([{"gpus": gpus} for gpus in asked]))

    assert [sizes.names[group] for group in sizes.group_of_job] == [
        "1", "2", "3-4", "3-4", "5-8", "5-8", "9-16", "33-64", "65-128",
    ]  # fmt: skip


def test_jobs_are_divided_by_user() -> None:
    users = by_user(make_trace([{"user": "bob"}, {"user": "bob"}, {"user": "ann"}]))

    assert [users.names[group] for group in users.group_of_job] == ["bob", "bob", "ann"]
