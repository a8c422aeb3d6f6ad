"""Backfill's estimates on cases small enough to compute by hand."""

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurmctld import run_slurm
from tests.sim.building import make_state, make_trace, run_of, starts_and_ends

FIRST_COME = SlurmParameters(
    priority_weight_age=0.0,
    priority_weight_fairshare=0.0,
    tick_s=0.0,
    batch_sched_delay_s=0.0,
    limit_check_s=0.0,
    bf_resolution_s=1.0,
)
ONE_NODE = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=FIRST_COME)


@pytest.mark.parametrize(("limit_s", "start"), [(60.0, 30.0), (80.0, 110.0)])
def test_jobs_of_a_node_are_taken_away_in_the_order_of_their_ends(limit_s: float, start: float) -> None:
    jobs: list[dict[str, float]] = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 500, "time_limit_s": 500},
        {"submit_time": 0, "gpus": 2, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 3, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "gpus": 1, "run_time_s": 10, "time_limit_s": limit_s},
    ]

    run = run_of(make_trace(jobs), ONE_NODE, "slurm")

    # The third is promised 100, when the second ends by its limit. Backfill at 30 starts what is over by then; what is
    # not waits until the third has ended.
    assert starts_and_ends(run)[2:] == [(100.0, 110.0), (start, start + 10.0)]


def test_where_no_reservation_can_be_kept_nothing_is_promised() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 4, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "gpus": 1, "run_time_s": 200, "time_limit_s": 200},
    ]
    trace = make_trace(jobs)
    state = make_state(trace, ONE_NODE, ideal=True)
    slurm = build_slurm(state, trace, ONE_NODE)
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

    run = run_of(make_trace(jobs), two, "slurm")

    # The fourth could start at 1000 on the second node; it is planned for 200 on the first, after the third.
    assert [start for start, _ in starts_and_ends(run)] == [0, 0, 100, 200, 30]
