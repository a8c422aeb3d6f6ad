"""A run of the model of slurmctld that is taken up from a snapshot goes on as the run that was never interrupted."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.domain.actions import SetGpus, SetNice, SetSwitches
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.planning.rollout import TimedAction
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.live.continuation import Arrivals, Continuation, Course
from advisor.sim.live.resumed_arrays import Periods, Usage
from advisor.sim.live.snapshot_model import SnapshotModel, model_of
from advisor.sim.run_outcome import End
from advisor.sim.slurm.queue_tables import PartitionTable, PreemptMode
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import FUTURE, State
from advisor.sim.traces.trace import Trace
from tests.builders import size_of
from tests.sim.building import make_state, make_trace
from tests.sim.runs import random_trace

NODES = (NodeGroup(count=4, gpus=8, leaf=2), NodeGroup(count=2, gpus=8, leaf=2))
CLUSTER = Cluster(nodes=NODES)
FOR_EVER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A run that has reached an instant, and the model of its snapshot."""

    trace: Trace
    state: State
    slurm: Slurm
    cluster: SimulatedSlurm
    model: SnapshotModel

    @property
    def rows(self) -> NDArray[np.intp]:
        """The rows of the trace that the snapshot shows, in its order."""
        return np.array([self.cluster.row_of(job_id) for job_id in self.model.trace.jobs["job_id"].tolist()], np.intp)

    @property
    def later(self) -> NDArray[np.intp]:
        """The rows of the trace that have not been submitted."""
        return np.flatnonzero(self.state.jobs["phase"] == FUTURE)

    def usage(self) -> Usage:
        """The use of the cluster as the model of slurmctld counts it."""
        pairs = np.unique(np.stack([self.trace.jobs["account"], self.trace.jobs["user"]], axis=1), axis=0).tolist()
        names = [(self.trace.accounts[account], self.trace.users[user]) for account, user in pairs]
        return Usage(gpu_s_by_user=dict(zip(names, self.slurm.associations["usage"].tolist(), strict=True)))

    def true_starts(self) -> NDArray[np.float64]:
        """Run the interrupted run to its end and return its starts."""
        run_slurm(self.state, self.slurm, np.inf)
        return np.array(self.state.jobs["start_time"])


def varied_trace(jobs: int, seed: int) -> Trace:
    """A queue with open gangs, waits for switches and nice values."""
    trace, rng = random_trace(jobs, seed=seed), np.random.default_rng(seed + 1)
    rows = trace.jobs
    rows["nodes_max"] = np.where(rng.random(jobs) < 0.3, 0, np.maximum(1, rows["gpus"] // 8))
    rows["switches"] = np.where((rows["gpus"] > 8) & (rng.random(jobs) < 0.5), 1, 0)
    rows["switches_wait_s"] = 120.0
    rows["cpus_per_gpu"], rows["memory_mib_per_gpu"] = 4, 10_000
    rows["nice"] = np.where(rng.random(jobs) < 0.1, 20, 0)
    return trace


def mixed_trace(jobs: int, seed: int, before: float) -> Trace:
    """The same queue with CPU jobs and exclusive ones, and up to an instant arrays, dependencies and begin times."""
    trace, rng = varied_trace(jobs, seed), np.random.default_rng(seed + 2)
    rows = trace.jobs
    kind = rng.random(jobs)
    cpus_alone, whole = kind < 0.2, (kind >= 0.2) & (kind < 0.3)
    for name in ("gpus", "gpus_min", "gpus_max", "nodes_max", "switches", "cpus_per_gpu", "memory_mib_per_gpu"):
        rows[name][cpus_alone] = 0
    rows["cpus"][cpus_alone] = 8 * rng.integers(1, 12, jobs)[cpus_alone]
    rows["exclusive"] = whole
    early = np.flatnonzero(rows["submit_time"] < before)
    tasks = early[(early % 40 >= 10) & (early % 40 < 16)]
    alike = (
        "gpus",
        "gpus_min",
        "gpus_max",
        "nodes_max",
        "switches",
        "exclusive",
        "cpus",
        "cpus_per_gpu",
        "time_limit_s",
    )
    for name in (*alike, "memory_mib_per_gpu", "time_limit_s"):
        rows[name][tasks] = rows[name][tasks - tasks % 40 + 10]
    rows["array_id"][tasks], rows["array_limit"][tasks] = 10_000 + tasks // 40, 2
    awaiting = early[(early > 20) & (early % 9 == 5)]
    dependencies = ["", *(f"{('afterok', 'afterany', 'after')[row % 3]}:{row - 3 + 1}" for row in awaiting.tolist())]
    rows["dependency"][awaiting] = np.arange(1, len(dependencies))
    later = early[early % 11 == 7]
    rows["begin_time"][later] = rows["submit_time"][later] + 2000.0
    return replace(trace, dependencies=tuple(dependencies))


def paused(trace: Trace, until: float, cluster: Cluster = CLUSTER) -> Paused:
    state = make_state(trace, cluster, ideal=True)
    state.rules["limits_bind"] = state.rules["loses_work"] = 1
    slurm = build_slurm(state, trace, cluster)
    run_slurm(state, slurm, until)
    shown = SimulatedSlurm(trace, cluster, state, slurm)
    model = model_of(shown.snapshot(), cluster.slurm)
    return Paused(trace=trace, state=state, slurm=slurm, cluster=shown, model=model)


def continued(run: Paused, *, periods: Periods | None = None, usage: Usage | None = None) -> Course:
    """Go on with the true run times and the true later jobs."""
    later, jobs = run.later, run.trace.jobs
    arrivals = Arrivals(template=np.arange(len(later)), submit_time=jobs["submit_time"][later])
    continuation = Continuation(
        run.model,
        periods=periods,
        usage=usage,
        templates=replace(run.trace, jobs=jobs[later]),
        most_arrivals=len(later),
    )
    run_time_s = jobs["run_time_s"][run.rows]
    return continuation.run(continuation.workspace(), run_time_s, horizon_s=FOR_EVER_S, arrivals=arrivals)


@pytest.mark.parametrize("until", [3000.0, 6000.0, 12_000.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("weight_fairshare", [0.0, 10_000.0])
def test_resumed_run_starts_and_ends_every_job_as_the_uninterrupted_one(
    weight_fairshare: float, seed: int, until: float
) -> None:
    slurm = SlurmParameters(priority_weight_fairshare=weight_fairshare, priority_weight_job_size=500.0)
    run = paused(varied_trace(300, seed), until, Cluster(nodes=NODES, slurm=slurm))

    course = continued(run, periods=Periods.of(run.slurm), usage=run.usage())

    rows = np.r_[run.rows, run.later]
    np.testing.assert_array_equal(course.start_time, run.true_starts()[rows])
    np.testing.assert_array_equal(course.end_time, run.state.jobs["end_time"][rows])


@pytest.mark.parametrize("until", [3000.0, 6000.0, 12_000.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_resumed_run_equals_the_uninterrupted_one_with_every_kind_of_request(seed: int, until: float) -> None:
    slurm = SlurmParameters(priority_weight_job_size=500.0, priority_weight_fairshare=100.0)
    run = paused(mixed_trace(300, seed, until), until, Cluster(nodes=NODES, slurm=slurm))
    shown = run.model
    assert shown.is_waiting.any()
    assert (shown.trace.jobs["array_id"] > 0).any()
    assert (run.slurm.control["departures"] > 5).all()

    course = continued(run, periods=Periods.of(run.slurm), usage=run.usage())

    rows = np.r_[run.rows, run.later]
    np.testing.assert_array_equal(course.start_time, run.true_starts()[rows])
    np.testing.assert_array_equal(course.end_time, run.state.jobs["end_time"][rows])


@pytest.mark.parametrize("until", [3000.0, 6000.0, 12_000.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_resumed_run_equals_the_uninterrupted_one_with_partitions(seed: int, until: float) -> None:
    partitions = (
        PartitionTable(name="all", default=True, priority_job_factor=3),
        PartitionTable(name="small", nodes="n[1-3]", priority_tier=2, priority_job_factor=10),
        PartitionTable(name="wide", nodes="n[3-6]"),
    )
    slurm = SlurmParameters(priority_weight_partition=300.0, priority_weight_fairshare=0.0)
    trace, rng = varied_trace(300, seed), np.random.default_rng(seed)
    # A job that arrives later starts in the first of its partitions alone.
    codes = np.where(trace.jobs["submit_time"] <= until, rng.integers(0, 5, 300), rng.integers(0, 3, 300))
    trace.jobs["partition"] = np.where(trace.jobs["gpus"] <= 16, codes, 0)
    trace = replace(trace, partitions=("", "small", "wide", "small,all", "wide,small"))
    run = paused(trace, until, Cluster(nodes=NODES, slurm=slurm, partitions=partitions))
    assert (run.slurm.control["lined"] > run.state.tally["pending"]).all()

    course = continued(run, periods=Periods.of(run.slurm))

    rows = np.r_[run.rows, run.later]
    np.testing.assert_array_equal(course.start_time, run.true_starts()[rows])
    np.testing.assert_array_equal(course.end_time, run.state.jobs["end_time"][rows])


@pytest.mark.parametrize("until", [3000.0, 6000.0, 12_000.5])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("mode", ["cancel", "requeue"])
def test_resumed_run_preempts_as_the_uninterrupted_one(mode: PreemptMode, seed: int, until: float) -> None:
    partitions = (PartitionTable(name="low", default=True), PartitionTable(name="high", priority_tier=2))
    slurm = SlurmParameters(priority_weight_fairshare=0.0, preempt_type="partition_prio", preempt_mode=mode)
    # What a running job left open when it was submitted, a snapshot does not show.
    trace, rng = random_trace(300, seed=seed), np.random.default_rng(seed)
    # Jobs that were preempted before the snapshot are held back by a time that it does not show.
    trace.jobs["partition"] = (rng.random(300) < 0.3) & (trace.jobs["submit_time"] > until)
    trace = replace(trace, partitions=("low", "high"))
    run = paused(trace, until, Cluster(nodes=NODES, slurm=slurm, partitions=partitions))

    course = continued(run, periods=Periods.of(run.slurm))

    rows = np.r_[run.rows, run.later]
    np.testing.assert_array_equal(course.start_time, run.true_starts()[rows])
    np.testing.assert_array_equal(course.end_time, run.state.jobs["end_time"][rows])
    # Running and waiting jobs of the snapshot were preempted.
    preempted = run.state.jobs["preemptions"] if mode == "requeue" else run.state.jobs["end"] == End.PREEMPTED
    assert preempted[run.rows].sum() > 3


def test_an_arrival_starts_on_the_nodes_of_its_templates_partition() -> None:
    full = {"gpus": 8, "run_time_s": 1000.0, "time_limit_s": 1000.0}
    partitions = (PartitionTable(name="one", nodes="n1", default=True), PartitionTable(name="two", nodes="n2"))
    cluster = Cluster(nodes=(NodeGroup(count=2, gpus=8),), partitions=partitions)
    templates = replace(make_trace([full, {**full, "partition": 1}]), partitions=("one", "two"))
    run = paused(replace(make_trace([full]), partitions=("one",)), 100.0, cluster)
    continuation = Continuation(run.model, templates=templates, most_arrivals=2)

    course = continuation.run(
        continuation.workspace(),
        np.array([1000.0]),
        horizon_s=5000.0,
        arrivals=Arrivals(template=np.array([1, 0]), submit_time=np.array([200.0, 300.0])),
    )

    # The first node is taken until 1000.
    assert course.start_time[1] < 240.0
    assert course.start_time[2] >= 1000.0


@pytest.mark.parametrize("until", [3000.0, 6000.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_without_the_periods_of_slurmctld_the_mean_wait_stays_and_single_starts_do_not(seed: int, until: float) -> None:
    slurm = SlurmParameters(priority_weight_fairshare=0.0)
    run = paused(varied_trace(300, seed), until, Cluster(nodes=NODES, slurm=slurm))
    waiting, rows = np.flatnonzero(np.isnan(run.model.start_time)), run.rows

    course = continued(run)

    # A pass that comes seconds earlier or later places a job elsewhere, and all later jobs follow.
    start_time, true_time = course.start_time[waiting], run.true_starts()[rows[waiting]]
    assert not np.array_equal(start_time, true_time)
    assert np.mean(start_time - until) == pytest.approx(np.mean(true_time - until), rel=0.05)


def test_limits_end_jobs_that_would_run_longer() -> None:
    jobs = [{"gpus": 8, "run_time_s": 500.0, "time_limit_s": 200.0}, {"gpus": 8, "submit_time": 1.0}]
    run = paused(make_trace(jobs), 100.0, Cluster(nodes=(NodeGroup(count=1, gpus=8),)))

    course = continued(run, periods=Periods.of(run.slurm))

    # Limits are checked every 30 s.
    assert course.end_time[0] == 210.0
    assert course.start_time[1] == run.true_starts()[1]


def queue_of_two(**changes: float) -> tuple[Paused, Continuation]:
    """A full node until 1000, and two jobs that wait for all of it: 2 before 3."""
    full = {"gpus": 8, "run_time_s": 1000.0, "time_limit_s": 1000.0}
    waiting = {"gpus": 8, "run_time_s": 100.0, "time_limit_s": 100.0, **changes}
    jobs = [full, {"submit_time": 10.0, **waiting}, {"submit_time": 20.0, **waiting}]
    slurm = SlurmParameters(priority_weight_fairshare=0.0, priority_max_age_s=1000.0)
    run = paused(make_trace(jobs), 600.0, Cluster(nodes=(NodeGroup(count=1, gpus=8),), slurm=slurm))
    return run, Continuation(run.model, periods=Periods.of(run.slurm))


def starts_of(
    run: Paused, continuation: Continuation, *changes: TimedAction, horizon_s: float = 10_000.0
) -> list[float]:
    run_time_s = run.trace.jobs["run_time_s"][run.rows]
    course = continuation.run(continuation.workspace(), run_time_s, changes, horizon_s=horizon_s)
    return [float(start) for start in course.start_time]


def nice(job_id: int, after: int, after_s: float = 0.0) -> TimedAction:
    return TimedAction(action=SetNice(job_id=job_id, before=0, after=after), after_s=after_s)


def test_nice_lets_the_next_job_ahead_and_changes_nothing_else() -> None:
    run, continuation = queue_of_two()

    as_they_are = starts_of(run, continuation)
    changed = starts_of(run, continuation, nice(2, 50))
    too_small = starts_of(run, continuation, nice(2, 5))
    too_late = starts_of(run, continuation, nice(2, 50, after_s=450.0))

    assert as_they_are[1] < as_they_are[2]
    assert changed == [as_they_are[0], as_they_are[2], as_they_are[1]]
    assert too_small == too_late == as_they_are


def test_change_that_is_taken_back_in_time_has_no_effect() -> None:
    run, continuation = queue_of_two()

    back = TimedAction(action=SetNice(job_id=2, before=50, after=0), after_s=100.0)

    assert starts_of(run, continuation, nice(2, 50), back) == starts_of(run, continuation)


@pytest.mark.parametrize("job_id", [1, 99])
def test_change_of_a_running_or_unknown_job_has_no_effect(job_id: int) -> None:
    run, continuation = queue_of_two()

    assert starts_of(run, continuation, nice(job_id, 50)) == starts_of(run, continuation)


def test_size_above_the_declared_range_has_no_effect() -> None:
    run, continuation = queue_of_two()
    larger = SetGpus(
        job_id=2, scope=GpuScope.NODE, before=size_of(GpuCount(count=8)), after=size_of(GpuCount(count=64))
    )

    assert starts_of(run, continuation, TimedAction(action=larger)) == starts_of(run, continuation)


def test_jobs_beyond_the_places_of_backfill_reserve_nothing() -> None:
    # Four GPUs of each node are free from 50 on; job 5 takes the second node at 500, job 6 the first at 900.
    held = [{"gpus": 4, "run_time_s": end_s, "time_limit_s": end_s} for end_s in (900.0, 500.0)]
    filling = [{"gpus": 4, "run_time_s": 50.0, "time_limit_s": 50.0}] * 2
    waiting = [{"gpus": 8, "submit_time": 10.0 + n, "run_time_s": 3000.0, "time_limit_s": 3000.0} for n in (0, 1)]
    small = {"gpus": 4, "submit_time": 20.0, "run_time_s": 2000.0, "time_limit_s": 2000.0}
    cluster = Cluster(nodes=(NodeGroup(count=2, gpus=8),), slurm=SlurmParameters(priority_weight_fairshare=0.0))
    run = paused(make_trace([held[0], filling[0], held[1], filling[1], *waiting, small]), 55.0, cluster)

    of_all, of_one = (
        starts_of(run, Continuation(run.model, periods=Periods.of(run.slurm), places=places)) for places in (0, 1)
    )

    assert of_all[-1] > 900.0
    assert of_one[-1] < 100.0


def test_request_for_switches_makes_a_gang_wait_from_the_snapshot_on() -> None:
    # One node of each leaf is free from 650 on, the second node of the first leaf from 800 on.
    jobs = [{"gpus": 8, "run_time_s": run_s, "time_limit_s": run_s} for run_s in (650.0, 800.0, 650.0, 5000.0)]
    gang = {"gpus": 16, "nodes_min": 2, "nodes_max": 2, "submit_time": 10.0, "time_limit_s": 600.0}
    cluster = Cluster(nodes=(NodeGroup(count=4, gpus=8, leaf=2),))
    run = paused(make_trace([*jobs, gang]), 600.0, cluster)
    continuation = Continuation(run.model, periods=Periods.of(run.slurm))
    # Slurm counts the wait from the first request on, which the model takes for the submission if there was one.
    asked = SetSwitches(job_id=5, before=None, after=SwitchRequest(count=1, max_wait_s=300.0))

    alone = starts_of(run, continuation)
    waiting = starts_of(run, continuation, TimedAction(action=asked))

    assert 650.0 <= alone[4] < 800.0
    assert 800.0 <= waiting[4] < 900.0


def test_start_beyond_the_horizon_is_open_and_counts_from_the_horizon() -> None:
    run, continuation = queue_of_two()
    run_time_s = run.trace.jobs["run_time_s"][run.rows]

    course = continuation.run(continuation.workspace(), run_time_s, horizon_s=450.0)

    assert np.isnan(course.start_time).tolist() == [False, False, True]
    assert np.isnan(course.end_time).tolist() == [False, True, True]
    assert course.completion_time.tolist() == [1000.0, float(course.start_time[1]) + 100.0, 1050.0 + 100.0]


def test_runs_in_one_workspace_do_not_disturb_each_other() -> None:
    run = paused(varied_trace(300, 3), 6000.0)
    continuation = Continuation(run.model, periods=Periods.of(run.slurm))
    workspace, run_time_s = continuation.workspace(), run.trace.jobs["run_time_s"][run.rows]
    pending = int(run.model.trace.jobs["job_id"][np.flatnonzero(np.isnan(run.model.start_time))[0]])

    first = continuation.run(workspace, run_time_s, horizon_s=FOR_EVER_S)
    continuation.run(workspace, 2.0 * run_time_s, (nice(pending, 50_000),), horizon_s=7000.0)
    again = continuation.run(workspace, run_time_s, horizon_s=FOR_EVER_S)

    np.testing.assert_array_equal(first.start_time, again.start_time)
    np.testing.assert_array_equal(first.completion_time, again.completion_time)
