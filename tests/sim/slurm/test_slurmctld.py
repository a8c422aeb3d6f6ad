"""The model of slurmctld on cases small enough to compute by hand."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.profiles import load_profiles
from advisor.sim.queueing import DONE, PAUSED
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import FAULT_DTYPE, State, build_state
from advisor.sim.traces.trace import Trace
from tests.sim.building import FIRST_COME, make_state, make_trace, model_of, run_of, starts_and_ends, times_of


def cluster_of(*groups: NodeGroup, slurm: SlurmParameters = FIRST_COME) -> Cluster:
    return Cluster(nodes=groups, slurm=slurm)


def test_backfill_starts_a_short_job_before_the_head_of_the_line() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 90, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 2, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "run_time_s": 10, "time_limit_s": 69},
    ]

    # Backfill runs at 30; the third job's limit ends before the first's at 100, where the second is expected to start.
    assert times_of(jobs, cluster_of(NodeGroup(count=1, gpus=2)), "slurm") == [(0, 90), (90, 100), (30, 40)]


def test_backfill_does_not_delay_the_head_of_the_line() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 90, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 2, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "run_time_s": 10, "time_limit_s": 70},
    ]

    assert times_of(jobs, cluster_of(NodeGroup(count=1, gpus=2)), "slurm") == [(0, 90), (90, 100), (100, 110)]


def test_a_later_reservation_holds_as_firmly_as_the_first() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 4, "run_time_s": 50, "time_limit_s": 50},
        {"submit_time": 2, "gpus": 4, "run_time_s": 50, "time_limit_s": 50},
        {"submit_time": 3, "gpus": 2, "run_time_s": 10, "time_limit_s": 200},
        {"submit_time": 4, "gpus": 2, "run_time_s": 10, "time_limit_s": 60},
    ]

    run = run_of(jobs, cluster_of(NodeGroup(count=2, gpus=2)), "slurm")

    assert starts_and_ends(run) == [(0, 100), (100, 150), (150, 200), (200, 210), (30, 40)]


def test_a_reservation_keeps_a_whole_node() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 3, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 2, "run_time_s": 10, "time_limit_s": 50},
        # One of four GPUs stays free even beside the second job, but its node is reserved from 100 on.
        {"submit_time": 2, "gpus": 1, "run_time_s": 10, "time_limit_s": 600},
    ]

    assert times_of(jobs, cluster_of(NodeGroup(count=1, gpus=4)), "slurm") == [(0, 100), (100, 110), (100, 110)]


def test_a_job_beyond_the_tested_depth_is_not_backfilled() -> None:
    jobs = [
        {"submit_time": 0, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 2, "run_time_s": 10, "time_limit_s": 60},
        {"submit_time": 2, "gpus": 2, "run_time_s": 10, "time_limit_s": 60},
        {"submit_time": 3, "run_time_s": 10, "time_limit_s": 10},
    ]
    shallow = cluster_of(NodeGroup(count=1, gpus=2), slurm=replace(FIRST_COME, bf_max_job_test=2))

    assert times_of(jobs, shallow, "slurm")[3] == (120, 130)


def test_an_older_job_has_the_higher_priority() -> None:
    slurm = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0)
    jobs = [
        {"submit_time": 0, "run_time_s": 900},
        {"submit_time": 10, "nice": 100, "run_time_s": 10},
        {"submit_time": 400, "run_time_s": 10},
    ]

    # By 900 s the second is worth 890 - 100 points and the third 500.
    assert times_of(jobs, cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm")[1:] == [(900, 910), (910, 920)]


def test_nice_moves_a_job_back() -> None:
    slurm = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0)
    jobs = [
        {"submit_time": 0, "run_time_s": 900},
        {"submit_time": 10, "nice": 500, "run_time_s": 10},
        {"submit_time": 400, "run_time_s": 10},
    ]

    assert times_of(jobs, cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm")[1:] == [(910, 920), (900, 910)]


def test_the_user_who_used_less_goes_first() -> None:
    slurm = replace(FIRST_COME, priority_weight_fairshare=1000.0)
    jobs = [
        {"submit_time": 0, "user": "ann", "run_time_s": 900},
        {"submit_time": 10, "user": "ann", "run_time_s": 10},
        {"submit_time": 20, "user": "bob", "run_time_s": 10},
    ]

    assert times_of(jobs, cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm")[1:] == [(910, 920), (900, 910)]


def test_a_gang_waits_for_one_switch_until_its_time_is_up() -> None:
    slurm = replace(FIRST_COME, max_switch_wait_s=3600.0)
    jobs = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 1, "gpus": 2, "nodes_min": 1, "nodes_max": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 2, "gpus": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 9, "gpus": 4, "nodes_max": 2, "switches": 1, "switches_wait_s": 120, "time_limit_s": 1000},
    ]
    leaves = cluster_of(NodeGroup(count=4, gpus=2, leaf=2), slurm=slurm)

    # The first and third share a node, the second takes the node beside it: the other leaf is free at once.
    assert times_of(jobs, leaves, "slurm")[3] == (9, 109)


def test_a_gang_starts_spread_when_its_wait_for_a_switch_ends() -> None:
    slurm = replace(FIRST_COME, max_switch_wait_s=3600.0)
    short, long = {"run_time_s": 50, "time_limit_s": 100}, {"run_time_s": 900, "time_limit_s": 1000}
    gang = {"gpus": 4, "nodes_max": 2, "switches": 1, "switches_wait_s": 120, "time_limit_s": 300}
    jobs = [{"submit_time": 0, "gpus": 2, **each} for each in (short, long, long, long, short, long)]
    jobs.append({"submit_time": 1, **gang})
    leaves = cluster_of(NodeGroup(count=6, gpus=2, leaf=3), slurm=slurm)

    # Free from 50 on: one node of each leaf. The wait began with the submission and ends at 121; the next full main
    # pass or backfill sees it.
    assert times_of(jobs, leaves, "slurm")[6] == (150, 250)


def test_max_switch_wait_cuts_a_longer_wait() -> None:
    slurm = replace(FIRST_COME, max_switch_wait_s=60.0)
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 900, "time_limit_s": 1000},
        {"submit_time": 0, "gpus": 4, "nodes_max": 2, "switches": 1, "switches_wait_s": 9999, "time_limit_s": 300},
    ]
    leaves = cluster_of(NodeGroup(count=3, gpus=2, leaf=1), slurm=slurm)

    assert times_of(jobs, leaves, "slurm")[1] == (60, 160)


def test_an_open_gang_takes_what_is_free() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 1, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 1, "gpus": 2, "run_time_s": 500, "time_limit_s": 1000},
        {"submit_time": 2, "gpus": 3, "nodes_max": 0, "run_time_s": 10, "time_limit_s": 100},
    ]

    run = run_of(jobs, cluster_of(NodeGroup(count=3, gpus=2)), "slurm")

    assert starts_and_ends(run)[2] == (2, 12)
    assert run.segments["nodes"].tolist()[0] == 2


def test_an_open_gang_gets_a_reservation_too() -> None:
    jobs = [
        {"submit_time": 0, "gpus": 2, "run_time_s": 100, "time_limit_s": 100},
        {"submit_time": 1, "gpus": 3, "nodes_max": 0, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 2, "gpus": 1, "run_time_s": 10, "time_limit_s": 200},
        {"submit_time": 3, "gpus": 1, "run_time_s": 10, "time_limit_s": 60},
    ]

    run = run_of(jobs, cluster_of(NodeGroup(count=2, gpus=2)), "slurm")

    assert starts_and_ends(run) == [(0, 100), (100, 110), (100, 110), (30, 40)]


def test_a_soft_limit_lets_backfill_plan_with_it() -> None:
    slurm = replace(FIRST_COME, time_min_as_soft_limit=True)
    jobs = [
        {"submit_time": 0, "run_time_s": 90, "time_limit_s": 100},
        {"submit_time": 10, "gpus": 2, "run_time_s": 10, "time_limit_s": 100},
        {"submit_time": 20, "run_time_s": 10, "time_limit_s": 500, "time_min_s": 60},
    ]

    run = run_of(jobs, cluster_of(NodeGroup(count=1, gpus=2), slurm=slurm), "slurm")

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

    # Ticks at 0.5, 2.5, 4.5 and so on; the pass at 0.5 keeps the next from running before second 3.
    assert times_of(jobs, cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm") == [(0.5, 3.5), (4.5, 7.5)]


def test_a_job_beyond_its_limit_ends_at_the_next_check() -> None:
    slurm = replace(FIRST_COME, limit_check_s=30.0)
    jobs = [{"submit_time": 0, "run_time_s": 300, "time_limit_s": 100}]

    run = run_of(jobs, cluster_of(NodeGroup(count=1, gpus=1), slurm=slurm), "slurm", SimulationOptions())

    assert starts_and_ends(run) == [(0, 120)]


def test_a_nameless_execution_is_refused() -> None:
    with pytest.raises(SimulationError, match="known are measured, ideal"):
        SimulationOptions(execution="magic")


def cluster_with(count: int, gpus: int, slurm: SlurmParameters = FIRST_COME) -> Cluster:
    return Cluster(nodes=(NodeGroup(count=count, gpus=gpus),), slurm=slurm)


def stopped_at(until: float, trace: Trace, cluster: Cluster) -> tuple[State, Slurm]:
    """Run until an instant before the last job has ended."""
    state, slurm = model_of(trace, cluster)
    assert run_slurm(state, slurm, until) == PAUSED
    return state, slurm


@pytest.mark.parametrize(("depth", "starts"), [(1, [0, 10, 30, 30]), (2, [0, 10, 10, 30]), (3, [0, 10, 10, 10])])
def test_main_pass_starts_no_more_jobs_than_it_looks_at(depth: int, starts: list[float]) -> None:
    slurm = replace(FIRST_COME, default_queue_depth=depth)
    jobs = [{"submit_time": 0}, *({"submit_time": 10} for _ in range(3))]

    # Backfill takes the others at its next turn.
    assert [start for start, _ in times_of(jobs, cluster_with(1, 4, slurm), "slurm")] == starts


def test_main_pass_of_a_tick_of_a_second_waits_for_it() -> None:
    slurm = replace(FIRST_COME, tick_s=1.0)

    run = run_of([{"submit_time": 0}, {"submit_time": 0.5}], cluster_with(1, 4, slurm), "slurm")

    assert [start for start, _ in starts_and_ends(run)] == [0, 1]


def test_main_pass_keeps_the_next_away_for_the_batch_delay() -> None:
    slurm = replace(FIRST_COME, tick_s=2.0, batch_sched_delay_s=3.0)

    run = run_of([{"submit_time": 0.5}, {"submit_time": 1.0}], cluster_with(1, 2, slurm), "slurm")

    # Ticks at 0.5, 2.5 and 4.5: the one at 2.5 comes less than three seconds after the first pass.
    assert [start for start, _ in starts_and_ends(run)] == [0.5, 4.5]


def test_main_pass_ends_at_the_first_job_that_does_not_fit() -> None:
    jobs = [{"submit_time": 0, "gpus": 2}, {"submit_time": 10, "gpus": 4}, {"submit_time": 10, "time_limit_s": 20}]

    assert times_of(jobs, cluster_with(1, 4), "slurm")[2][0] == 30.0


def test_priorities_are_worked_out_as_of_the_last_full_period() -> None:
    slurm = replace(FIRST_COME, priority_weight_fairshare=1000.0, priority_calc_period_s=300.0)
    jobs = [{"submit_time": 100, "run_time_s": 5000}, {"submit_time": 450, "run_time_s": 10}]

    state, model = stopped_at(
        1050.0, make_trace(jobs), cluster_with(1, 1, replace(slurm, priority_decay_half_life_s=0.0))
    )

    # The periods begin with the first submission: the last one that is over ended at 1000.
    assert model.control["calc_time"][0] == 1000.0
    assert model.account_usage.tolist() == [900.0]
    assert model.associations["usage"].tolist() == [900.0]
    assert state.jobs["priority"][1] == model.associations["factor"][0] * 1000.0


def test_usage_fades_with_each_period() -> None:
    slurm = replace(FIRST_COME, priority_calc_period_s=300.0, priority_decay_half_life_s=693.0)
    jobs = [{"submit_time": 0, "run_time_s": 5000}, {"submit_time": 10, "run_time_s": 10}]

    _, model = stopped_at(700.0, make_trace(jobs), cluster_with(1, 1, slurm))

    # What was used in a period fades with it: by one thousandth a second.
    kept = 0.999**300
    assert model.account_usage.tolist() == [pytest.approx(300 * kept * kept + 300 * kept)]


def test_priorities_are_not_worked_out_while_no_job_waits() -> None:
    slurm = replace(FIRST_COME, priority_calc_period_s=300.0)
    jobs = [{"submit_time": 0, "run_time_s": 5000}, {"submit_time": 4000, "run_time_s": 10}]

    _, before = stopped_at(3900.0, make_trace(jobs), cluster_with(1, 1, slurm))
    _, after = stopped_at(4001.0, make_trace(jobs), cluster_with(1, 1, slurm))

    assert before.control["calc_time"][0] == 0.0
    assert after.control["calc_time"][0] == 3900.0


def test_order_changes_only_when_priorities_are_worked_out() -> None:
    age = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0, priority_calc_period_s=300.0)
    jobs = [
        {"submit_time": 0, "run_time_s": 590, "time_limit_s": 3000},
        {"submit_time": 10, "run_time_s": 20, "nice": -100},
        {"submit_time": 20, "run_time_s": 20, "nice": -105},
    ]

    # At its submission the second has 100 points, the third 105; at 300 they have 390 and 385.
    assert [start for start, _ in times_of(jobs, cluster_with(1, 1, age), "slurm")] == [0, 590, 610]
    early = run_of([{**jobs[0], "run_time_s": 290}, *jobs[1:]], cluster_with(1, 1, age), "slurm")
    assert [start for start, _ in starts_and_ends(early)] == [0, 310, 290]


def test_job_that_can_never_fit_ends_unstarted_and_keeps_no_other_waiting() -> None:
    run = run_of([{"submit_time": 0, "gpus": 5}, {"submit_time": 1}], cluster_with(1, 4), "slurm")

    assert np.isnan(starts_and_ends(run)[0][0])
    assert starts_and_ends(run)[1] == (1.0, 101.0)


def test_backfill_runs_once_at_each_of_its_instants() -> None:
    blocker: dict[str, float] = {"submit_time": 0, "gpus": 3, "run_time_s": 500, "time_limit_s": 500}
    head: dict[str, float] = {"submit_time": 1, "gpus": 4, "time_limit_s": 100}
    # Submitted just when backfill runs, the third is seen by it; the fourth, a moment later, by the next one.
    jobs: list[dict[str, float]] = [blocker, head, {"submit_time": 30, "run_time_s": 15, "time_limit_s": 20}]
    jobs.append({"submit_time": 30.5, "run_time_s": 15, "time_limit_s": 20})

    assert [start for start, _ in times_of(jobs, cluster_with(1, 4), "slurm")][2:] == [30, 60]


def failing(trace: Trace, cluster: Cluster, *faults: tuple[float, int, int]) -> State:
    """Run with failures (0) and repairs (1) of nodes: instant, node, and which of both."""
    state = make_state(trace, cluster, loses_work=True)
    state.rules["restart_s"] = 0.0
    state = state._replace(faults=np.array(list(faults), FAULT_DTYPE))
    run_slurm(state, build_slurm(state, trace, cluster), np.inf)
    return state


def test_jobs_of_a_failed_node_stand_in_line_by_their_age_and_lose_their_work() -> None:
    slurm = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0)
    jobs = [
        {"submit_time": 0, "run_time_s": 100, "time_limit_s": 400, "checkpoint_interval_s": 1000},
        {"submit_time": 0, "run_time_s": 100, "time_limit_s": 400, "checkpoint_interval_s": 1000},
        {"submit_time": 40, "gpus": 2, "run_time_s": 30, "time_limit_s": 40},
    ]

    state = failing(make_trace(jobs), cluster_with(1, 2, slurm), (70.0, 0, 0), (200.0, 0, 1))

    # Both start over at the repair, before the third, which was submitted later.
    assert state.jobs["end_time"].tolist() == [300.0, 300.0, 330.0]
    assert state.jobs["lost_gpu_s"].tolist() == [70.0, 70.0, 0.0]
