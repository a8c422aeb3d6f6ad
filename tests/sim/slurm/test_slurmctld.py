"""The model of slurmctld on cases small enough to compute by hand."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.profiles import load_profiles
from advisor.sim.queueing import DONE
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import FAULT_DTYPE, build_state
from tests.sim.building import make_trace, run_of, starts_and_ends

FIRST_COME = SlurmParameters(
    priority_weight_age=0.0,
    priority_weight_fairshare=0.0,
    tick_s=0.0,
    batch_sched_delay_s=0.0,
    limit_check_s=0.0,
    bf_resolution_s=1.0,
)


def cluster_of(*groups: NodeGroup, slurm: SlurmParameters = FIRST_COME) -> Cluster:
    return Cluster(nodes=groups, slurm=slurm)


def test_backfill_starts_a_short_job_before_the_head_of_the_line() -> None:
    trace = make_trace(
        [
            {"submit_time": 0, "run_time_s": 90, "time_limit_s": 100},
            {"submit_time": 10, "gpus": 2, "run_time_s": 10, "time_limit_s": 100},
            {"submit_time": 20, "run_time_s": 10, "time_limit_s": 69},
        ]
    )

    run = run_of(trace, cluster_of(NodeGroup(count=1, gpus=2)), "slurm")

    # Backfill runs at 30; the third job's limit ends before the first's at 100, where the second is expected to start.
    assert starts_and_ends(run) == [(0, 90), (90, 100), (30, 40)]


def test_backfill_does_not_delay_the_head_of_the_line() -> None:
    trace = make_trace(
        [
            {"submit_time": 0, "run_time_s": 90, "time_limit_s": 100},
            {"submit_time": 10, "gpus": 2, "run_time_s": 10, "time_limit_s": 100},
            {"submit_time": 20, "run_time_s": 10, "time_limit_s": 70},
        ]
    )

    run = run_of(trace, cluster_of(NodeGroup(count=1, gpus=2)), "slurm")

    assert starts_and_ends(run) == [(0, 90), (90, 100), (100, 110)]


def test_a_later_reservation_holds_as_firmly_as_the_first() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 4, "run_time_s": 50, "time_limit_s": 50},
        {"submit_time": 2, "gpus": 4, "run_time_s": 50, "time_limit_s": 50},
        {"submit_time": 3, "gpus": 2, "run_time_s": 10, "time_limit_s": 200},
        {"submit_time": 4, "gpus": 2, "run_time_s": 10, "time_limit_s": 60},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=2, gpus=2)), "slurm")

    assert starts_and_ends(run) == [(0, 100), (100, 150), (150, 200), (200, 210), (30, 40)]


def test_a_reservation_keeps_a_whole_node() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 3, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 2, "run_time_s": 10, "time_limit_s": 50},
        # One of four GPUs stays free even beside the second job, but its node is reserved from 100 on.
        {"submit_time": 2, "gpus": 1, "run_time_s": 10, "time_limit_s": 600},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=1, gpus=4)), "slurm")

    assert starts_and_ends(run) == [(0, 100), (100, 110), (100, 110)]


def test_a_job_beyond_the_tested_depth_is_not_backfilled() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 2, "run_time_s": 10, "time_limit_s": 60},
        {"submit_time": 2, "gpus": 2, "run_time_s": 10, "time_limit_s": 60},
        {"submit_time": 3, "run_time_s": 10, "time_limit_s": 10},
    ]
    shallow = cluster_of(NodeGroup(count=1, gpus=2), slurm=replace(FIRST_COME, bf_max_job_test=2))

    run = run_of(make_trace(jobs), shallow, "slurm")

    assert starts_and_ends(run)[3] == (120, 130)


def test_an_older_job_has_the_higher_priority() -> None:
    slurm = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0)
    jobs = [
        {"submit_time": 0, "run_time_s": 900},
        {"submit_time": 10, "nice": 100, "run_time_s": 10},
        {"submit_time": 400, "run_time_s": 10},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm")

    # By 900 s the second is worth 890 - 100 points and the third 500.
    assert starts_and_ends(run)[1:] == [(900, 910), (910, 920)]


def test_nice_moves_a_job_back() -> None:
    slurm = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0)
    jobs = [
        {"submit_time": 0, "run_time_s": 900},
        {"submit_time": 10, "nice": 500, "run_time_s": 10},
        {"submit_time": 400, "run_time_s": 10},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm")

    assert starts_and_ends(run)[1:] == [(910, 920), (900, 910)]


def test_the_user_who_used_less_goes_first() -> None:
    slurm = replace(FIRST_COME, priority_weight_fairshare=1000.0)
    jobs = [
        {"submit_time": 0, "user": "ann", "run_time_s": 900},
        {"submit_time": 10, "user": "ann", "run_time_s": 10},
        {"submit_time": 20, "user": "bob", "run_time_s": 10},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm")

    assert starts_and_ends(run)[1:] == [(910, 920), (900, 910)]


def test_a_gang_waits_for_one_switch_until_its_time_is_up() -> None:
    slurm = replace(FIRST_COME, max_switch_wait_s=3600.0)
    jobs = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 1, "gpus": 2, "nodes_min": 1, "nodes_max": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 2, "gpus": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 9, "gpus": 4, "nodes_max": 2, "switches": 1, "switches_wait_s": 120, "time_limit_s": 1000},
    ]
    leaves = cluster_of(NodeGroup(count=4, gpus=2, leaf=2), slurm=slurm)

    run = run_of(make_trace(jobs), leaves, "slurm")

    # The first and third share a node, the second takes the node beside it: the other leaf is free at once.
    assert starts_and_ends(run)[3] == (9, 109)


def test_a_gang_starts_spread_when_its_wait_for_a_switch_ends() -> None:
    slurm = replace(FIRST_COME, max_switch_wait_s=3600.0)
    short, long = {"run_time_s": 50, "time_limit_s": 100}, {"run_time_s": 900, "time_limit_s": 1000}
    gang = {"gpus": 4, "nodes_max": 2, "switches": 1, "switches_wait_s": 120, "time_limit_s": 300}
    jobs = [{"submit_time": 0, "gpus": 2, **each} for each in (short, long, long, long, short, long)]
    jobs.append({"submit_time": 1, **gang})
    leaves = cluster_of(NodeGroup(count=6, gpus=2, leaf=3), slurm=slurm)

    run = run_of(make_trace(jobs), leaves, "slurm")

    # Free from 50 on: one node of each leaf. The wait began with the submission and ends at 121; the next full main
    # pass or backfill sees it.
    assert starts_and_ends(run)[6] == (150, 250)


def test_max_switch_wait_cuts_a_longer_wait() -> None:
    slurm = replace(FIRST_COME, max_switch_wait_s=60.0)
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 900, "time_limit_s": 1000},
        {"submit_time": 0, "gpus": 4, "nodes_max": 2, "switches": 1, "switches_wait_s": 9999, "time_limit_s": 300},
    ]
    leaves = cluster_of(NodeGroup(count=3, gpus=2, leaf=1), slurm=slurm)

    run = run_of(make_trace(jobs), leaves, "slurm")

    assert starts_and_ends(run)[1] == (60, 160)


def test_an_open_gang_takes_what_is_free() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 1, "gpus": 2, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 2, "gpus": 3, "nodes_max": 0, "run_time_s": 10, "time_limit_s": 100},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=3, gpus=2)), "slurm")

    assert starts_and_ends(run)[2] == (2, 12)
    assert run.segments["nodes"].tolist()[0] == 2


def test_an_open_gang_gets_a_reservation_too() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 3, "nodes_max": 0, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 2, "gpus": 1, "run_time_s": 10, "time_limit_s": 200},
        {"submit_time": 3, "gpus": 1, "run_time_s": 10, "time_limit_s": 60},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=2, gpus=2)), "slurm")

    assert starts_and_ends(run) == [(0, 100), (100, 110), (100, 110), (30, 40)]


def test_a_soft_limit_lets_backfill_plan_with_it() -> None:
    slurm = replace(FIRST_COME, time_min_as_soft_limit=True)
    jobs = [
        {"submit_time": 0, "run_time_s": 90, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 2, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "run_time_s": 10, "time_limit_s": 500, "time_min_s": 60},
    ]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=1, gpus=2), slurm=slurm), "slurm")

    assert starts_and_ends(run) == [(0, 90), (90, 100), (30, 40)]


def test_a_failed_node_sends_its_job_back_to_the_last_checkpoint() -> None:
    trace = make_trace([{"submit_time": 0, "run_time_s": 100, "checkpoint_interval_s": 30}])
    cluster = cluster_of(NodeGroup(count=1, gpus=1))
    state = build_state(trace, cluster, load_profiles(), ideal=False, loses_work=True)
    state.rules["restart_s"] = 0.0
    state = state._replace(faults=np.array([(70.0, 0, 0), (200.0, 0, 1)], FAULT_DTYPE))

    stopped = run_slurm(state, build_slurm(state, trace, cluster), np.inf)

    # 70 s of work were done, 60 are kept.
    assert stopped == DONE
    assert state.jobs["end_time"].tolist() == [240.0]
    assert state.jobs["lost_gpu_s"].tolist() == pytest.approx([10.0])


def test_the_main_pass_waits_for_its_tick_and_for_the_batch_delay() -> None:
    slurm = replace(FIRST_COME, tick_s=2.0, batch_sched_delay_s=3.0)
    jobs = [{"submit_time": 0.5, "run_time_s": 3}, {"submit_time": 1.0, "run_time_s": 3}]

    run = run_of(make_trace(jobs), cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm")

    # Ticks at 0.5, 2.5, 4.5 and so on; the pass at 0.5 keeps the next from running before second 3.
    assert starts_and_ends(run) == [(0.5, 3.5), (4.5, 7.5)]


def test_a_job_beyond_its_limit_ends_at_the_next_check() -> None:
    slurm = replace(FIRST_COME, limit_check_s=30.0)
    trace = make_trace([{"submit_time": 0, "run_time_s": 300, "time_limit_s": 100}])

    run = run_of(trace, cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm", SimulationOptions())

    assert starts_and_ends(run) == [(0, 120)]


def test_a_nameless_execution_is_refused() -> None:
    with pytest.raises(SimulationError, match="known are measured, ideal"):
        SimulationOptions(execution="magic")
