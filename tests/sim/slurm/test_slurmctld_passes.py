"""When the model of slurmctld looks at its queue and its priorities, on cases computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.queueing import PAUSED
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import FAULT_DTYPE, State
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_state, make_trace, run_of, starts_and_ends
from tests.sim.slurm.test_backfill import FIRST_COME


def cluster_of(count: int, gpus: int, slurm: SlurmParameters = FIRST_COME) -> Cluster:
    return Cluster(nodes=(NodeGroup(count=count, gpus=gpus),), slurm=slurm)


def stopped_at(until: float, trace: Trace, cluster: Cluster) -> tuple[State, Slurm]:
    """Run until an instant before the last job has ended."""
    state = make_state(trace, cluster, ideal=True)
    slurm = build_slurm(state, trace, cluster)
    assert run_slurm(state, slurm, until) == PAUSED
    return state, slurm


@pytest.mark.parametrize(("depth", "starts"), [(1, [0, 10, 30, 30]), (2, [0, 10, 10, 30]), (3, [0, 10, 10, 10])])
def test_main_pass_starts_no_more_jobs_than_it_looks_at(depth: int, starts: list[float]) -> None:
    slurm = replace(FIRST_COME, default_queue_depth=depth)
    jobs = [{"submit_time": 0}, *({"submit_time": 10} for _ in range(3))]

    run = run_of(make_trace(jobs), cluster_of(1, 4, slurm), "slurm")

    # Backfill takes the others at its next turn.
    assert [start for start, _ in starts_and_ends(run)] == starts


def test_main_pass_of_a_tick_of_a_second_waits_for_it() -> None:
    slurm = replace(FIRST_COME, tick_s=1.0)

    run = run_of(make_trace([{"submit_time": 0}, {"submit_time": 0.5}]), cluster_of(1, 4, slurm), "slurm")

    assert [start for start, _ in starts_and_ends(run)] == [0, 1]


def test_main_pass_keeps_the_next_away_for_the_batch_delay() -> None:
    slurm = replace(FIRST_COME, tick_s=2.0, batch_sched_delay_s=3.0)

    run = run_of(make_trace([{"submit_time": 0.5}, {"submit_time": 1.0}]), cluster_of(1, 2, slurm), "slurm")

    # Ticks at 0.5, 2.5 and 4.5: the one at 2.5 comes less than three seconds after the first pass.
    assert [start for start, _ in starts_and_ends(run)] == [0.5, 4.5]


def test_main_pass_ends_at_the_first_job_that_does_not_fit() -> None:
    jobs = [{"submit_time": 0, "gpus": 2}, {"submit_time": 10, "gpus": 4}, {"submit_time": 10, "time_limit_s": 20}]

    run = run_of(make_trace(jobs), cluster_of(1, 4), "slurm")

    assert starts_and_ends(run)[2][0] == 30.0


def test_priorities_are_worked_out_as_of_the_last_full_period() -> None:
    slurm = replace(FIRST_COME, priority_weight_fairshare=1000.0, priority_calc_period_s=300.0)
    jobs = [{"submit_time": 100, "run_time_s": 5000}, {"submit_time": 450, "run_time_s": 10}]

    state, model = stopped_at(
        1050.0, make_trace(jobs), cluster_of(1, 1, replace(slurm, priority_decay_half_life_s=0.0))
    )

    # The periods begin with the first submission: the last one that is over ended at 1000.
    assert model.control["calc_time"][0] == 1000.0
    assert model.account_usage.tolist() == [900.0]
    assert model.associations["usage"].tolist() == [900.0]
    assert state.jobs["priority"][1] == model.associations["factor"][0] * 1000.0


def test_usage_fades_with_each_period() -> None:
    slurm = replace(FIRST_COME, priority_calc_period_s=300.0, priority_decay_half_life_s=693.0)
    jobs = [{"submit_time": 0, "run_time_s": 5000}, {"submit_time": 10, "run_time_s": 10}]

    _, model = stopped_at(700.0, make_trace(jobs), cluster_of(1, 1, slurm))

    # What was used in a period fades with it: by one thousandth a second.
    kept = 0.999**300
    assert model.account_usage.tolist() == [pytest.approx(300 * kept * kept + 300 * kept)]


def test_priorities_are_not_worked_out_while_no_job_waits() -> None:
    slurm = replace(FIRST_COME, priority_calc_period_s=300.0)
    jobs = [{"submit_time": 0, "run_time_s": 5000}, {"submit_time": 4000, "run_time_s": 10}]

    _, before = stopped_at(3900.0, make_trace(jobs), cluster_of(1, 1, slurm))
    _, after = stopped_at(4001.0, make_trace(jobs), cluster_of(1, 1, slurm))

    assert before.control["calc_time"][0] == 0.0
    assert after.control["calc_time"][0] == 3900.0


def test_order_changes_only_when_priorities_are_worked_out() -> None:
    age = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0, priority_calc_period_s=300.0)
    jobs = [
        {"submit_time": 0, "run_time_s": 590, "time_limit_s": 3000},
        {"submit_time": 10, "run_time_s": 20, "nice": -100},
        {"submit_time": 20, "run_time_s": 20, "nice": -105},
    ]

    run = run_of(make_trace(jobs), cluster_of(1, 1, age), "slurm")

    # At its submission the second has 100 points, the third 105; at 300 they have 390 and 385.
    assert [start for start, _ in starts_and_ends(run)] == [0, 590, 610]
    early = run_of(make_trace([{**jobs[0], "run_time_s": 290}, *jobs[1:]]), cluster_of(1, 1, age), "slurm")
    assert [start for start, _ in starts_and_ends(early)] == [0, 310, 290]


def test_job_that_can_never_fit_ends_unstarted_and_keeps_no_other_waiting() -> None:
    run = run_of(make_trace([{"submit_time": 0, "gpus": 5}, {"submit_time": 1}]), cluster_of(1, 4), "slurm")

    assert np.isnan(starts_and_ends(run)[0][0])
    assert starts_and_ends(run)[1] == (1.0, 101.0)


def test_backfill_runs_once_at_each_of_its_instants() -> None:
    blocker: dict[str, float] = {"submit_time": 0, "gpus": 3, "run_time_s": 500, "time_limit_s": 500}
    head: dict[str, float] = {"submit_time": 1, "gpus": 4, "time_limit_s": 100}
    # Submitted just when backfill runs, the third is seen by it; the fourth, a moment later, by the next one.
    jobs: list[dict[str, float]] = [blocker, head, {"submit_time": 30, "run_time_s": 15, "time_limit_s": 20}]
    jobs.append({"submit_time": 30.5, "run_time_s": 15, "time_limit_s": 20})

    run = run_of(make_trace(jobs), cluster_of(1, 4), "slurm")

    assert [start for start, _ in starts_and_ends(run)][2:] == [30, 60]


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

    state = failing(make_trace(jobs), cluster_of(1, 2, slurm), (70.0, 0, 0), (200.0, 0, 1))

    # Both start over at the repair, before the third, which was submitted later.
    assert state.jobs["end_time"].tolist() == [300.0, 300.0, 330.0]
    assert state.jobs["lost_gpu_s"].tolist() == [70.0, 70.0, 0.0]
