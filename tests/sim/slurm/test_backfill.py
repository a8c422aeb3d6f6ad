"""Backfill's estimates on cases small enough to compute by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.slurm.slurmctld import run_slurm
from tests.sim.building import FIRST_COME, make_trace, model_of, run_of, starts_and_ends, times_of

ONE_NODE = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=FIRST_COME)


@pytest.mark.parametrize(("limit_s", "start"), [(60.0, 30.0), (80.0, 110.0)])
def test_jobs_of_a_node_are_taken_away_in_the_order_of_their_ends(limit_s: float, start: float) -> None:
    jobs: list[dict[str, float]] = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 500, "time_limit_s": 500},
        {"submit_time": 0, "gpus": 2, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 3, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "gpus": 1, "run_time_s": 10, "time_limit_s": limit_s},
    ]

    # The third is promised 100, when the second ends by its limit. Backfill at 30 starts what is over by then; what is
    # not waits until the third has ended.
    assert times_of(jobs, ONE_NODE, "slurm")[2:] == [(100.0, 110.0), (start, start + 10.0)]


def test_where_no_reservation_can_be_kept_nothing_is_promised() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 4, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "gpus": 1, "run_time_s": 200, "time_limit_s": 200},
    ]
    trace = make_trace(jobs)
    state, slurm = model_of(trace, ONE_NODE)
    slurm = slurm._replace(reservations=slurm.reservations[:0])

    run_slurm(state, slurm, np.inf)

    # The third would have waited for the second, which 100 was promised to.
    assert state.jobs["start_time"].tolist() == [0.0, 230.0, 30.0]


def test_a_job_is_tried_again_from_the_end_of_a_reservation_if_its_estimate_lies_beyond() -> None:
    two = Cluster(nodes=(NodeGroup(count=2, gpus=4),), slurm=FIRST_COME)
    jobs = [
        {"submit_time": 0, "gpus": 4, "time_limit_s": 100},
        {"submit_time": 0, "gpus": 3, "run_time_s": 900, "time_limit_s": 1000},
        {"submit_time": 1, "gpus": 4, "time_limit_s": 100},
        {"submit_time": 2, "gpus": 4, "time_limit_s": 100},
        {"submit_time": 3, "gpus": 1, "run_time_s": 10, "time_limit_s": 2000},
    ]

    # The fourth could start at 1000 on the second node; it is planned for 200 on the first, after the third.
    assert [start for start, _ in times_of(jobs, two, "slurm")] == [0, 0, 100, 200, 30]


# Backfill runs at 0, 30, 60 and so on: at 30 all jobs of these tests wait in the order in which they are listed.
SOFT = replace(FIRST_COME, time_min_as_soft_limit=True)


def starts(
    jobs: Sequence[Mapping[str, Any]], *, slurm: SlurmParameters = FIRST_COME, nodes: int = 1, gpus: int = 4
) -> list[float]:
    """Simulate jobs that are submitted one second after the other, from 0 on."""
    trace = make_trace([{"submit_time": second, **job} for second, job in enumerate(jobs)])
    cluster = Cluster(nodes=(NodeGroup(count=nodes, gpus=gpus),), slurm=slurm)
    return [start for start, _ in starts_and_ends(run_of(trace, cluster, "slurm"))]


def lasting(seconds: float, gpus: int = 1, **fields: float) -> dict[str, float]:
    """A job that runs as long as its limit."""
    return {"gpus": gpus, "run_time_s": seconds, "time_limit_s": seconds, **fields}


def passing(limit_s: float, gpus: int = 1) -> dict[str, float]:
    """A job of ten seconds that backfill has to take for a longer one."""
    return {"gpus": gpus, "run_time_s": 10, "time_limit_s": limit_s}


@pytest.mark.parametrize(("window_s", "start"), [(69.0, 30.0), (70.0, 200.0)])
def test_job_that_starts_beyond_the_window_has_no_reservation(window_s: float, start: float) -> None:
    jobs = [lasting(100), lasting(100, gpus=4), passing(400)]

    # The second is expected at 100. Seen from 30, that is just within a window of 70 s.
    assert starts(jobs, slurm=replace(FIRST_COME, bf_window_s=window_s))[2] == start


@pytest.mark.parametrize(("limit_s", "start"), [(69.0, 30.0), (71.0, 110.0)])
def test_running_job_is_expected_to_end_at_its_soft_limit(limit_s: float, start: float) -> None:
    running = {"gpus": 1, "run_time_s": 100, "time_limit_s": 500, "time_min_s": 100}

    # With soft limits the second is expected at 100, and the third is over by then or waits; without, at 500.
    assert starts([running, lasting(10, gpus=4), passing(limit_s)], slurm=SOFT)[2] == start
    assert starts([running, lasting(10, gpus=4), passing(limit_s)])[2] == 30.0


@pytest.mark.parametrize(("limit_s", "start"), [(234.0, 30.0), (236.0, 510.0)])
def test_job_past_its_soft_limit_is_expected_to_use_half_of_what_is_left(limit_s: float, start: float) -> None:
    running = {"gpus": 1, "run_time_s": 500, "time_limit_s": 500, "time_min_s": 20}

    # At 30 that is 265, at 60 it is 280, too early for the third once it did not fit.
    assert starts([running, lasting(10, gpus=4), passing(limit_s)], slurm=SOFT)[2] == start


def test_job_that_backfill_starts_gives_its_gpus_back_at_its_limit() -> None:
    jobs = [lasting(200), lasting(10, gpus=4, time_limit_s=100), lasting(60, gpus=2), lasting(9, gpus=2)]

    # At 30 the third starts beside the first, and the fourth is expected when it ends, at 90, well before the second
    # at 200. A fifth that is over by 90 starts, one that is not starts beside the fourth.
    assert starts([*jobs, passing(59)]) == [0, 200, 30, 90, 30]
    assert starts([*jobs, passing(65)]) == [0, 200, 30, 90, 90]


@pytest.mark.parametrize(
    ("other_ends", "start"),
    [
        pytest.param(110.0, 30.0, id="same group"),
        pytest.param(149.0, 30.0, id="its last"),
        pytest.param(151.0, 110.0, id="the next"),
    ],
)
def test_ends_of_a_group_are_taken_for_the_last_of_them(other_ends: float, start: float) -> None:
    jobs = [lasting(100), lasting(other_ends - 1), lasting(10, gpus=3, time_limit_s=100), passing(78)]

    # The third needs one of two GPUs in use. The first group ends at 150: an end at 110 is taken together with 100.
    assert starts(jobs)[3] == start


@pytest.mark.parametrize(("last_ends", "start"), [(299.0, 30.0), (301.0, 195.0)])
def test_groups_of_ends_grow_with_the_distance(last_ends: float, start: float) -> None:
    jobs = [lasting(40), lasting(184), lasting(last_ends - 2), lasting(10, gpus=3, time_limit_s=100), passing(200)]

    # Groups end at 90, 120, 180 and 300: the second end, at 185, is taken for one at 299 but not for one at 301.
    assert starts(jobs)[4] == start


@pytest.mark.parametrize(("limit_s", "start"), [(29.0, 30.0), (31.0, 110.0)])
def test_reservation_begins_on_the_grid_of_the_resolution(limit_s: float, start: float) -> None:
    jobs = [lasting(100), lasting(10, gpus=4, time_limit_s=100), passing(limit_s)]

    # What is expected at 100 is reserved from 60 on.
    slurm = replace(FIRST_COME, bf_resolution_s=60.0)
    assert starts(jobs, slurm=slurm)[2] == start


def test_gang_of_several_nodes_is_planned_where_enough_of_them_come_free() -> None:
    jobs = [
        lasting(100, gpus=2),
        lasting(200, gpus=2),
        lasting(300, gpus=2),
        lasting(50, gpus=4, nodes_min=2, nodes_max=2),
    ]

    # Two of three nodes are free from 201 on; from 120 on, backfill has one for a job that is over by then.
    assert starts([*jobs, passing(60, gpus=2)], nodes=3, gpus=2) == [0, 1, 2, 201, 120]
    assert starts([*jobs, passing(120, gpus=2)], nodes=3, gpus=2) == [0, 1, 2, 201, 251]


def test_node_beside_a_reservation_is_free_for_the_whole_limit() -> None:
    jobs = [lasting(100, gpus=2), lasting(50, gpus=2), passing(1000, gpus=2)]

    # Two nodes: the second takes the other node at once, so that the third is expected there at 51.
    assert starts(jobs, nodes=2, gpus=2) == [0, 1, 51]


def test_job_without_a_limit_is_planned_for_a_year() -> None:
    endless = {"gpus": 1, "run_time_s": 100, "time_limit_s": np.inf}

    # The second is never expected within the window, so that it keeps no later job from starting.
    assert starts([endless, lasting(10, gpus=4), passing(10_000)]) == [0, 100, 30]


def test_reservation_ends_with_the_limit_of_its_job() -> None:
    jobs = [lasting(100, gpus=3), lasting(50, gpus=4), lasting(40, gpus=2, time_limit_s=40), passing(500, gpus=2)]

    # Expected at 100, at 150 and, beside the third, at 150 too.
    assert starts(jobs) == [0, 100, 150, 150]


@pytest.mark.parametrize(("limit_s", "start"), [(69.0, 30.0), (80.0, 100.0)])
def test_end_that_frees_enough_counts_even_if_a_later_one_is_listed_first(limit_s: float, start: float) -> None:
    jobs = [lasting(500), lasting(99, gpus=2), passing(500, gpus=2), passing(limit_s)]

    # One GPU is free; the third needs two, which the second gives back at 100.
    assert starts(jobs)[2:] == [100, start]


def test_start_that_would_meet_a_later_reservation_is_put_after_it() -> None:
    jobs = [lasting(40), lasting(199), lasting(100, gpus=4), passing(165, gpus=3), passing(100)]

    # The gang of four is reserved from 200 on. The next would be ready at 40, but lasts beyond 200, so that it is
    # expected at 300, and the last one does not delay it.
    assert starts(jobs)[2:] == [200, 300, 30]


def test_job_past_its_soft_limit_is_planned_again_at_each_pass() -> None:
    running = {"gpus": 1, "run_time_s": 500, "time_limit_s": 500, "time_min_s": 20}

    # Its end is expected at 265 as seen from 30, and at 280 as seen from 60, when the third is there to start.
    assert starts([running, lasting(10, gpus=4), {**passing(210), "submit_time": 45}], slurm=SOFT)[2] == 60


@pytest.mark.parametrize(("limit_s", "start"), [(160.0, 30.0), (200.0, 251.0)])
def test_open_gang_is_planned_with_single_gpus_that_are_idle_now(limit_s: float, start: float) -> None:
    jobs = [lasting(300), lasting(200, gpus=2), lasting(50, gpus=3, nodes_max=0), passing(limit_s)]

    # One of two GPUs of the first node is idle, and both of the second are from 201 on.
    assert starts(jobs, nodes=2, gpus=2)[2:] == [201, start]


@pytest.mark.parametrize(("limit_s", "start"), [(69.0, 30.0), (71.0, 110.0)])
def test_open_gang_is_planned_on_a_single_node(limit_s: float, start: float) -> None:
    jobs = [lasting(100), lasting(10, gpus=4, nodes_max=0), passing(limit_s)]

    assert starts(jobs) == [0, 100, start]


@pytest.mark.parametrize(("limit_s", "start"), [(149.0, 30.0), (151.0, 200.0)])
def test_reservation_ends_on_the_grid_of_the_resolution(limit_s: float, start: float) -> None:
    jobs = [lasting(100, gpus=2), lasting(1000, gpus=3), lasting(100, gpus=4), lasting(50, gpus=2, nodes_max=2)]
    jobs[3]["nodes_min"] = 2

    # The first node is reserved for the third from 60 to 180, then both for the fourth: what runs on the second until
    # then, at 180, does not delay it.
    slurm = replace(FIRST_COME, bf_resolution_s=60.0)
    assert starts([*jobs, passing(limit_s)], slurm=slurm, nodes=2) == [0, 1, 100, 200, start]


def test_open_gang_waits_for_gpus_on_as_many_nodes_as_it_takes() -> None:
    jobs = [lasting(seconds, gpus=3) for seconds in (100, 200, 300)]
    gang = lasting(50, gpus=3, nodes_min=1, nodes_max=2)

    # Each node has one GPU idle. Two of the nodes give three from 100 on, and until then the idle ones are free.
    assert starts([*jobs, gang, *[passing(60)] * 3], nodes=3)[3:] == [100, 30, 30, 30]
    assert sorted(starts([*jobs, gang, *[passing(90)] * 3], nodes=3)[4:]) == [30, 30, 60]


def test_end_on_a_closed_node_hides_that_the_next_end_is_beyond_the_group() -> None:
    # The fourth is expected on the first node at 106, which closes that node to the fifth. The end at 106 then hides
    # that the one at 502 comes much later: the fifth is expected at 502, or rather on the first node once it opens.
    running = [lasting(106, gpus=3), lasting(99, gpus=3), lasting(500, gpus=4)]
    waiting = [lasting(50, gpus=4), lasting(50, gpus=4), passing(600)]

    assert starts([*running, *waiting], nodes=3)[5] == 30.0


def test_plan_that_ends_in_the_slot_in_which_another_begins_is_kept() -> None:
    # The third is expected at 130, kept as 120; the fourth from 70 to 130, kept as 60 to 120. The fifth ends at 70.
    jobs = [lasting(130, gpus=2), lasting(69), lasting(50, gpus=4), lasting(60, gpus=2), passing(40)]

    assert starts(jobs)[4] > 30.0


def of(release: str) -> SlurmParameters:
    """First come, first served, as of a release of Slurm."""
    return replace(FIRST_COME, release=release)


@pytest.mark.parametrize(
    ("release", "limit_s", "start"), [("22.05", 151.0, 200.0), ("24.11", 209.0, 30.0), ("24.11", 211.0, 200.0)]
)
def test_reservation_ends_on_the_next_point_of_the_grid(release: str, limit_s: float, start: float) -> None:
    jobs = [lasting(100, gpus=2), lasting(1000, gpus=3), lasting(100, gpus=4), lasting(50, gpus=2, nodes_max=2)]
    jobs[3]["nodes_min"] = 2

    # The first node is reserved for the third from 60 to 180, or to 240, then both for the fourth: what runs on the
    # second until then does not delay it.
    slurm = replace(of(release), bf_resolution_s=60.0)
    assert starts([*jobs, passing(limit_s)], slurm=slurm, nodes=2)[4] == start


def test_end_after_the_next_opening_of_a_node_does_not_count() -> None:
    # The fourth is expected on the first node at 106. The fifth then fits the second node at 100; 22.05 goes on to the
    # end at 502, prefers the first node from 156 on, and leaves a GPU of the second to the sixth.
    running = [lasting(106, gpus=3), lasting(99, gpus=3), lasting(500, gpus=4)]
    waiting = [lasting(50, gpus=4), lasting(50, gpus=4), passing(600)]

    assert starts([*running, *waiting], slurm=of("22.05"), nodes=3)[5] == 30.0
    assert starts([*running, *waiting], slurm=of("24.11"), nodes=3)[5] == 150.0


@pytest.mark.parametrize(
    ("release", "limit_s", "start"), [("24.11", 110.0, 30.0), ("26.05", 69.0, 30.0), ("26.05", 110.0, 149.0)]
)
def test_job_is_expected_at_the_last_end_on_its_own_nodes(release: str, limit_s: float, start: float) -> None:
    # The ends at 100 and 149 are in one group; the third takes the first node, whose job ends at 100.
    jobs = [lasting(100, gpus=2), lasting(148, gpus=4), lasting(50, gpus=4), passing(limit_s, gpus=2)]

    assert starts(jobs, slurm=of(release), nodes=2)[3] == start


@pytest.mark.parametrize(("count", "start"), [(0, 1100.0), (1, 30.0), (2, 1100.0)])
def test_only_the_first_jobs_of_a_partition_hold_nodes(count: int, start: float) -> None:
    slurm = replace(FIRST_COME, bf_job_part_count_reserve=count)
    two = Cluster(nodes=(NodeGroup(count=2, gpus=4),), slurm=slurm)
    jobs: list[dict[str, float]] = [
        {"submit_time": 0, "gpus": 4, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 0, "gpus": 3, "run_time_s": 1000, "time_limit_s": 1000},
        {"submit_time": 1, "gpus": 4, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 2, "gpus": 8, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 3, "gpus": 1, "run_time_s": 10, "time_limit_s": 2000},
    ]

    # The third holds the first node from 100 on, the fourth both from 1000 on, where it may.
    starts = [start for start, _ in times_of(jobs, two, "slurm")]

    assert starts == [0.0, 0.0, 100.0, 1000.0, start]
