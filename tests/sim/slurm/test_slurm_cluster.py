"""The simulated Slurm as the advisor meets it: what it reads, and what its changes do."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.cycle import Cycle
from advisor.domain.actions import Action, NodeRange, SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Allocation, GpuRange, JobState
from advisor.domain.plan import Outcome
from advisor.domain.topology import TopologyKind
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.queueing import DONE
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import FAULT_DTYPE
from advisor.sim.traces.trace import Trace
from tests.builders import size_of
from tests.sim.building import make_trace, slurm_at

SLURM = SlurmParameters(tick_s=0.0, batch_sched_delay_s=0.0, limit_check_s=0.0, max_switch_wait_s=300.0)
SIX = Cluster(nodes=(NodeGroup(count=4, gpus=4, leaf=2), NodeGroup(count=2, gpus=4, leaf=2)), slurm=SLURM)


def running(trace: Trace, cluster: Cluster = SIX, *, until: float = 100.0) -> SimulatedSlurm:
    return slurm_at(until, trace, cluster)


def full_and_one(**job: object) -> SimulatedSlurm:
    """Six full nodes until 1000, and one job that waits: job 7."""
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    return running(make_trace([*[full] * 6, {"submit_time": 10, "time_limit_s": 3600, **job}]))


def test_a_snapshot_shows_jobs_nodes_and_switches() -> None:
    now = full_and_one(gpus=8, nodes_min=2, nodes_max=2, switches=1, switches_wait_s=120, cpus_per_gpu=4)

    snapshot = now.snapshot()

    assert snapshot.taken_at == 100.0
    assert [job.job_id for job in snapshot.jobs] == [1, 2, 3, 4, 5, 6, 7]
    first, last = snapshot.jobs[0], snapshot.jobs[-1]
    assert first.state is JobState.RUNNING
    assert first.allocation is not None
    assert first.allocation.nodes == ("n1",)
    assert first.allocation.gpus == (GpuCount(count=4),)
    assert (first.start_time, first.end_time, first.reason) == (0.0, 1200.0, "")
    assert last.state is JobState.PENDING
    assert last.allocation is None
    assert (last.start_time, last.end_time, last.reason) == (None, None, "Priority")
    assert last.gang.per_node == (GpuCount(count=4),)
    assert (last.gang.nodes_min, last.gang.nodes_max, last.gang.cpus) == (2, 2, 32)
    assert last.gang.switches == SwitchRequest(count=1, max_wait_s=120.0)
    assert [node.gpus[0].used for node in snapshot.nodes] == [4] * 6
    assert snapshot.topology.kind is TopologyKind.TREE
    assert [switch.nodes for switch in snapshot.topology.switches][:3] == [("n1", "n2"), ("n3", "n4"), ("n5", "n6")]


def test_a_job_without_limit_shows_none() -> None:
    now = running(
        make_trace([{"run_time_s": 500, "time_limit_s": np.inf}, {"gpus": 24, "nodes_max": 6, "time_limit_s": np.inf}])
    )

    one, other = now.snapshot().jobs

    assert (one.time_limit_s, one.end_time) == (None, None)
    assert other.time_limit_s is None


def test_a_job_of_an_open_node_count_asks_for_gpus_in_all() -> None:
    now = full_and_one(gpus=6, gpus_min=3, gpus_max=12, nodes_max=0, checkpoint_interval_s=600, time_min_s=60)

    job = now.snapshot().jobs[-1]

    assert (job.gang.per_node, job.gang.per_job) == ((), (GpuCount(count=6),))
    assert job.gang.nodes_max is None
    assert job.hints.gpus == GpuRange(low=3, high=12)
    assert (job.hints.checkpoint_s, job.time_min_s) == (600.0, 60.0)


def test_an_open_gang_asks_a_node_for_no_more_than_its_gpus_need() -> None:
    now = full_and_one(gpus=16, nodes_max=0, memory_mib_per_gpu=200_000)

    gang = now.snapshot().jobs[-1].gang

    # A node has four GPUs and 1 TiB; the least node count is left to Slurm.
    assert (gang.memory_mib_per_node, gang.nodes_min) == (800_000, 1)


def test_gpu_types_have_their_names() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=2, gpu_type="a100"),), slurm=SLURM)
    jobs = [{"gpus": 2, "gpu_type": 0, "run_time_s": 500}, {"gpus": 2, "gpu_type": 0}, {"gpus": 2}]
    now = running(replace(make_trace(jobs), gpu_types=("a100",)), cluster)

    snapshot = now.snapshot()

    first, second, third = snapshot.jobs
    assert first.allocation is not None
    assert first.allocation.gpus == (GpuCount(gpu_type="a100", count=2),)
    assert second.gang.per_node == (GpuCount(gpu_type="a100", count=2),)
    assert third.gang.per_node == (GpuCount(count=2),)
    assert snapshot.nodes[0].gpus[0].gpu_type == "a100"


def test_what_did_not_change_is_the_same_object_in_the_next_snapshot() -> None:
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    trace = make_trace([full, {"run_time_s": 150}, {"gpus": 24, "nodes_max": 6}, {"submit_time": 120}])
    now = running(trace)

    before = now.snapshot()
    run_slurm(now.state, now.slurm, 160.0)
    after = now.snapshot()

    assert after.jobs[0] is before.jobs[0]
    assert [job.job_id for job in after.jobs] == [1, 3, 4]
    assert after.nodes[0] is before.nodes[0]


def test_a_node_that_is_down_says_so() -> None:
    now = full_and_one()
    now.state.nodes["is_up"][5] = 0

    nodes = now.snapshot().nodes

    assert [node.state for node in nodes] == [*["MIXED"] * 5, "DOWN"]


def test_failed_node_that_is_back_and_the_job_that_started_again_meanwhile_are_read_again() -> None:
    now = running(make_trace([{"run_time_s": 5000}]), until=0.0)
    failing = now.state._replace(faults=np.array([(150.0, 0, 0), (600.0, 0, 1)], FAULT_DTYPE))
    now.state = failing
    seen = []

    for until in (100.0, 300.0, 700.0):
        run_slurm(failing, now.slurm, until)
        snapshot = now.snapshot()
        seen.append((snapshot.nodes[0].state, snapshot.jobs[0].allocation))

    assert seen == [
        (state, Allocation(nodes=(name,), gpus=(GpuCount(count=1),)))
        for state, name in (("MIXED", "n1"), ("DOWN", "n2"), ("IDLE", "n2"))
    ]


def test_an_idle_node_says_so() -> None:
    now = running(make_trace([{"run_time_s": 500}]))

    nodes = now.snapshot().nodes

    assert [node.state for node in nodes] == ["MIXED", *["IDLE"] * 5]


LEVERS = [
    pytest.param(SetNice(job_id=7, before=0, after=50), id="nice"),
    pytest.param(
        SetSwitches(job_id=7, before=None, after=SwitchRequest(count=1, max_wait_s=120.0)), id="switches asked"
    ),
    pytest.param(
        SetNodeRange(job_id=7, before=NodeRange(low=2, high=2), after=NodeRange(low=2, high=3)), id="node range"
    ),
    pytest.param(
        SetGpus(job_id=7, scope=GpuScope.NODE, before=size_of(GpuCount(count=4)), after=size_of(GpuCount(count=2))),
        id="GPUs",
    ),
    pytest.param(
        SetGpus(
            job_id=7,
            scope=GpuScope.NODE,
            before=size_of(GpuCount(count=4), limit_s=3600.0),
            after=size_of(GpuCount(count=2), limit_s=6720.0),
        ),
        id="GPUs and limit",
    ),
    pytest.param(SetTimeMin(job_id=7, before=None, after=1800.0), id="soft limit"),
]


@pytest.mark.parametrize("action", LEVERS)
def test_an_applied_change_is_read_back_and_can_be_taken_back(action: Action) -> None:
    now = full_and_one(gpus=8, nodes_min=2, nodes_max=2, gpus_min=2, gpus_max=16)
    row = 6
    priority = now.state.jobs["priority"][row]
    before = now.job(row)
    assert action.held_by(before) == action.before

    receipt = now.apply(action)

    assert receipt.outcome is Outcome.APPLIED, receipt.text
    assert action.held_by(now.job(row)) == action.after
    assert action.held_by(now.snapshot().jobs[-1]) == action.after
    assert now.apply(action).outcome is Outcome.ALREADY_SO
    assert now.apply(action.swapped()).outcome is Outcome.APPLIED
    assert now.job(row) == before
    assert now.state.jobs["priority"][row] == priority


def test_a_soft_limit_counts_in_minutes_and_stays_within_the_limit() -> None:
    now = full_and_one()

    rounded = now.apply(SetTimeMin(job_id=7, before=None, after=61.0))
    beyond = now.apply(SetTimeMin(job_id=7, before=120.0, after=3660.0))

    assert now.job(6).time_min_s == 120.0
    assert (rounded.outcome, beyond.outcome) == (Outcome.FAILED, Outcome.FAILED)
    assert "time limit" in beyond.text


def test_a_soft_limit_lets_backfill_start_a_job_in_a_hole_too_short_for_its_limit() -> None:
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    gang = {"gpus": 24, "nodes_min": 6, "nodes_max": 6, "submit_time": 10, "run_time_s": 500, "time_limit_s": 600}
    small = {"gpus": 2, "submit_time": 20, "run_time_s": 300, "time_limit_s": 7200}
    soft = replace(SIX, slurm=replace(SLURM, time_min_as_soft_limit=True))
    trace = make_trace([*[full] * 5, {**full, "gpus": 2}, gang, small])
    with_it, without = running(trace, soft), running(trace, soft)

    receipt = with_it.apply(SetTimeMin(job_id=8, before=None, after=600.0))
    run_slurm(with_it.state, with_it.slurm, np.inf)
    run_slurm(without.state, without.slurm, np.inf)

    assert receipt.outcome is Outcome.APPLIED
    start_times = [float(each.state.jobs["start_time"][7]) for each in (with_it, without)]
    assert start_times[0] < 200.0
    assert start_times[1] >= 1500.0
    assert with_it.state.jobs["limit_s"][7] == 7200.0


def test_a_change_reaches_no_job_that_runs_and_none_that_is_unknown() -> None:
    now = full_and_one()

    running_job = now.apply(SetNice(job_id=1, before=0, after=50))
    unknown = now.apply(SetNice(job_id=99, before=0, after=50))

    assert (running_job.outcome, unknown.outcome) == (Outcome.FAILED, Outcome.FAILED)
    assert running_job.text == "the job is not pending"
    assert now.state.jobs["nice"][0] == 0


def test_what_cannot_be_written_as_asked_is_a_failure() -> None:
    now = full_and_one(gpus=8, nodes_min=2, nodes_max=2)

    # Slurm cuts the wait at max_switch_wait.
    receipt = now.apply(SetSwitches(job_id=7, before=None, after=SwitchRequest(count=1, max_wait_s=9999.0)))

    assert receipt.outcome is Outcome.FAILED
    assert receipt.text == "read back another value than the one written"
    assert now.job(6).gang.switches == SwitchRequest(count=1, max_wait_s=300.0)


def test_nice_lowers_the_priority_by_as_much_and_moves_the_job_back() -> None:
    slurm = replace(SLURM, priority_weight_fairshare=0.0, priority_weight_age=1000.0, priority_max_age_s=1000.0)
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=1),), slurm=slurm)
    jobs = [{"run_time_s": 900}, {"submit_time": 10, "run_time_s": 10}, {"submit_time": 20, "run_time_s": 10}]
    now = running(make_trace(jobs), cluster, until=310.0)

    now.apply(SetNice(job_id=2, before=0, after=50))

    # Its age, brought up to date, is worth 300 points; that of the third, as of 300 s, is worth 280.
    assert now.state.jobs["priority"][1:].tolist() == [250.0, 280.0]
    assert now.slurm.line[:2].tolist() == [2, 1]
    assert run_slurm(now.state, now.slurm, np.inf) == DONE
    assert now.state.jobs["start_time"].tolist() == [0.0, 910.0, 900.0]


@pytest.mark.parametrize(("limit_s", "ends"), [(400.0, 500.0), (800.0, 700.0)], ids=["limit stays", "limit rises"])
def test_smaller_job_is_stopped_at_its_limit_unless_that_rises(limit_s: float, ends: float) -> None:
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    wide = {"submit_time": 10, "gpus": 16, "nodes_max": 0, "gpus_min": 8, "gpus_max": 16, "run_time_s": 300}
    now = running(make_trace([*[full] * 4, {**wide, "time_limit_s": 400}]))
    now.state.rules["limits_bind"] = 1

    now.apply(
        SetGpus(
            job_id=5,
            scope=GpuScope.JOB,
            before=size_of(GpuCount(count=16), limit_s=400.0),
            after=size_of(GpuCount(count=8), limit_s=limit_s),
        )
    )
    run_slurm(now.state, now.slurm, np.inf)

    # At half its size it has 600 s of work from 100 s on.
    assert now.state.jobs["end_time"][4] == ends


def test_half_the_gpus_start_sooner_and_take_twice_as_long() -> None:
    # 16 of 24 GPUs are taken; eight of twelve wanted are free.
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    wide = {"submit_time": 10, "gpus": 16, "nodes_max": 0, "gpus_min": 8, "gpus_max": 16, "run_time_s": 300}
    now = running(make_trace([*[full] * 4, wide]))

    receipt = now.apply(
        SetGpus(job_id=5, scope=GpuScope.JOB, before=size_of(GpuCount(count=16)), after=size_of(GpuCount(count=8)))
    )
    run_slurm(now.state, now.slurm, np.inf)

    assert receipt.outcome is Outcome.APPLIED
    job = now.state.jobs[4]
    assert (job["start_time"], job["end_time"], job["resizes"]) == (100.0, 700.0, 1)
    assert job["held_gpu_s"] == 8 * 600.0


def test_a_request_for_switches_makes_a_gang_wait() -> None:
    # Free: one node of the first leaf and one of the second; the third leaf is free from 200 on.
    jobs = [{"gpus": 4, "run_time_s": run_time_s} for run_time_s in (900, 150, 900, 150, 200, 200)]
    gang = {"submit_time": 10, "gpus": 8, "nodes_min": 2, "nodes_max": 2, "run_time_s": 50}
    asked = SetSwitches(job_id=7, before=None, after=SwitchRequest(count=1, max_wait_s=240.0))
    left_alone, told = running(make_trace([*jobs, gang])), running(make_trace([*jobs, gang]))

    told.apply(asked)
    run_slurm(left_alone.state, left_alone.slurm, np.inf)
    run_slurm(told.state, told.slurm, np.inf)

    assert left_alone.state.jobs["start_time"][6] == 150.0
    assert told.state.jobs["start_time"][6] == 200.0


def test_an_ended_request_for_switches_is_gone() -> None:
    now = full_and_one(gpus=8, nodes_min=2, nodes_max=2, switches=1, switches_wait_s=240)

    now.apply(SetSwitches(job_id=7, before=SwitchRequest(count=1, max_wait_s=240.0), after=None))

    assert now.job(6).gang.switches is None
    assert np.isinf(now.state.jobs["watch_time"][6])


def test_a_change_at_the_instant_of_a_backfill_waits_for_the_next() -> None:
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    now = running(make_trace([*[full] * 6, {"submit_time": 10}]), until=30.0)
    assert now.slurm.control["backfill_time"].tolist() == [30.0]

    now.apply(SetNice(job_id=7, before=0, after=50))

    assert now.slurm.control["backfill_due_time"].tolist() == [60.0]


def test_only_a_pending_job_is_found_by_its_id() -> None:
    now = full_and_one()

    found, started = now.job_by_id(7), now.job_by_id(1)

    assert found is now.job(6)
    assert started is None


def test_the_live_cycle_plans_for_the_simulated_cluster() -> None:
    long, short = {"run_time_s": 90_000, "time_limit_s": 90_000}, {"run_time_s": 600, "time_limit_s": 600}
    jobs = [{"gpus": 4, **each} for each in [long] * 5]
    jobs += [{"submit_time": 1, "gpus": 4, "run_time_s": 500, "time_limit_s": 600}]
    jobs += [{"submit_time": 10, "gpus": 4, **long}, *[{"submit_time": 20, "gpus": 4, **short}] * 4]
    now = running(make_trace(jobs), until=300.0)
    cycle = Cycle(planning=PlanningSettings(min_saving_s=1.0), limits=Limits(min_job_age_s=0.0))

    record = cycle.judge(now.snapshot())
    receipts = [now.apply(change.action) for change in record.recommendations]

    # The short jobs pass the long one at the head of the line.
    assert [receipt.action.job_id for receipt in receipts] == [8, 9, 10, 11]
    assert {receipt.outcome for receipt in receipts} == {Outcome.APPLIED}
    assert now.slurm.line[:5].tolist() == [7, 8, 9, 10, 6]
