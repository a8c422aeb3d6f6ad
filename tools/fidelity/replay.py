"""Give the model the workload of a recording, and see when it starts each job."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import SetNice
from advisor.sim.cluster import Cluster, NodeChange, NodeGroup, StateChange
from advisor.sim.node_events import draw_faults
from advisor.sim.profiles import load_profiles
from advisor.sim.queueing import DONE
from advisor.sim.slurm.queue_tables import AssociationTable, PartitionTable
from advisor.sim.slurm.slurm_builder import Phases, build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_settings import settings_left_out
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import State, build_state
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from tools.fidelity.recording import JobRequest, NiceChange, Pass, RecordedJob, Recording, RecordingError, Scheduler
from tools.fidelity.recording import RecordedNodeState as RecordedState

# The QOS of jobs that ask for none.
DEFAULT_QOS = "normal"
# About the time that slurmctld's background loop takes for one turn.
_TICK_S = 1.0013
_MOMENT_S = 0.001
_SHORTEST_TICK_S, _LONGEST_TICK_S = 1.0003, 1.06
# Later releases wake at each full second of the clock. The coarse clock then still shows the second before, so they
# wake again as soon as it goes on, within a few milliseconds.
_DRIFTING_RELEASE = "22.05"
_STEADY_WITHIN_S = 0.04
_AGAIN_AFTER_S, _AGAIN_AT_S = 0.003, 0.005
# slurmctld reads the coarse clock of the kernel, which goes on every 4 ms.
_CLOCK_LAG_S = 0.004
# How soon after the end of a job the message of its last node can run the main scheduler.
_DIRECT_WITHIN_S = 0.15
_GONE_WITHIN_S = 1.0
# How long a pass takes at most, from its begin to the last job that it starts.
_PASS_TAKES_S = 0.5


def replay(recording: Recording) -> Mapping[tuple[int, int], float]:
    """Map job ids, with the number of each run from 0, to the instants at which the model starts them.

    The model knows when slurmctld came up, what was submitted and changed when, and how long each job ran. A recording
    with features that the model does not know is refused.
    """
    if unknown := unknown_features(recording):
        raise RecordingError(f"the model does not know yet: {', '.join(unknown)}")
    trace, cluster = trace_of(recording), cluster_of(recording)
    state = build_state(trace, cluster, load_profiles(), ideal=True, loses_work=True)
    state.rules["loses_work"] = True
    state = state._replace(faults=draw_faults(state, cluster, np.random.default_rng(0)))
    slurm = build_slurm(state, trace, cluster, phases_of(recording))
    # The passes that ends of preempted jobs run are recorded.
    slurm.control["completing_s"] = np.inf
    model = SimulatedSlurm(trace, cluster, state, slurm)
    id_by_name = {job.request.name: job.job_id for job in recording.jobs}
    events: list[NiceChange | Pass] = [*recording.changes_made, *direct_passes_of(recording)]
    for event in sorted(events, key=lambda event: event.time):
        if isinstance(event, Pass):
            _run_directly(state, slurm, event.time + clock_of(recording))
            continue
        run_slurm(state, slurm, event.time + clock_of(recording))
        job = model.job_by_id(id_by_name[event.name])
        if job is not None:
            model.apply(SetNice(job_id=job.job_id, before=job.nice, after=event.nice))
    if run_slurm(state, slurm, np.inf) != DONE:
        raise RuntimeError("the model stopped before the last job had ended")
    begun = [(int(run["job"]), float(run["start_time"])) for run in state.segments[: state.tally["segments"][0]]]
    starts: dict[tuple[int, int], float] = {}
    for row, start in sorted(begun):
        job_id = int(trace.jobs["job_id"][row])
        number = next(number for number in itertools.count() if (job_id, number) not in starts)
        starts[job_id, number] = start - clock_of(recording)
    return starts


def _run_directly(state: State, slurm: Slurm, time: float) -> None:
    """Run up to a main pass that answers the end of a job in place of the next tick."""
    run_slurm(state, slurm, time - _DIRECT_WITHIN_S)
    asked = slurm.control["pass_time"].copy()
    run_slurm(state, slurm, time)
    slurm.control["pass_time"] = asked
    slurm.control["direct_time"] = time


def unknown_features(recording: Recording) -> list[str]:
    """List what decided starts in the recording and is missing from the model."""
    return [*settings_left_out(recording.parameters)]


def clock_of(recording: Recording) -> float:
    """Return the start of the workload on the clock of the model: the second of the hour, as slurmctld saw it."""
    return recording.zero_time % 3600.0 - _CLOCK_LAG_S


def trace_of(recording: Recording) -> Trace:
    """Return the recorded workload as a trace; a job killed by its limit ran as long as it did."""
    users = tuple(account.user for account in recording.accounts)
    accounts = tuple(account.name for account in recording.accounts)
    ids = _submitted_ids(recording)
    # A task that starts gets an id of its own; in the line it stands at that of its array.
    jobs = sorted(recording.jobs, key=lambda job: (job.submit_time, ids[job.request.name], job.array_task or 0))
    dependencies = tuple(sorted({"", *(_dependency(job.request, ids) for job in jobs)}))
    job_names = tuple(sorted({"", *(job.request.shared_name for job in jobs)}))
    partitions = tuple(sorted({job.request.partition for job in recording.jobs}))
    qos = tuple(sorted({job.request.qos or DEFAULT_QOS for job in recording.jobs}))
    rows = np.zeros(len(jobs), TRACE_DTYPE)
    ticks = ticks_of(recording)
    passes = {each: [one.time for one in recording.passes if one.scheduler is each] for each in Scheduler}
    for row, job in zip(rows, jobs, strict=True):
        asked = job.request
        row["job_id"] = job.job_id
        row["submit_time"] = job.submit_time + clock_of(recording)
        ran_s = _end_time(job, ticks) - _pass_time(job, passes)
        # A job that was cancelled would have run for longer.
        row["run_time_s"] = max(ran_s, asked.sleep_s) if job.state == "PREEMPTED" else ran_s
        row["gpus"] = row["gpus_min"] = row["gpus_max"] = asked.gpus
        row["nodes_min"] = row["nodes_max"] = asked.nodes or 0
        row["cpus_per_gpu"] = asked.cpus_per_gpu or 1
        # Tasks have one CPU each, and a job that asks for CPUs per GPU has one task on each node.
        row["cpus"] = (asked.nodes or 1) * max(asked.cpus, 1) if asked.cpus or asked.cpus_per_gpu else 0
        row["memory_mib"] = asked.memory_mib
        row["exclusive"] = asked.exclusive
        row["time_limit_s"] = asked.time_limit_s
        row["user"] = row["account"] = users.index(asked.user)
        row["switches"] = 1 if asked.switches_wait_s else 0
        row["switches_wait_s"] = asked.switches_wait_s
        row["nice"] = asked.nice
        row["array_id"] = ids[asked.name] if asked.array_size else 0
        row["array_limit"] = asked.array_limit
        row["dependency"] = dependencies.index(_dependency(asked, ids))
        row["name"] = job_names.index(asked.shared_name)
        if asked.begin_delay_s:
            # sbatch counts from the present second.
            row["begin_time"] = math.floor(row["submit_time"]) + math.ceil(asked.begin_delay_s)
        row["partition"] = partitions.index(asked.partition)
        row["qos"] = qos.index(asked.qos or DEFAULT_QOS)
    rows["gpu_type"] = rows["model"] = -1
    rows["recorded_start_time"] = [job.start_time + clock_of(recording) for job in jobs]
    return Trace(
        name=f"seed {recording.workload.seed}",
        jobs=rows,
        users=users,
        accounts=accounts,
        dependencies=dependencies,
        job_names=job_names,
        partitions=partitions,
        qos=qos,
    )


def _end_time(job: RecordedJob, ticks: Sequence[float]) -> float:
    """Return when a job ended: the log tells, but for a kill by the time limit, whose second accounting has.

    slurmctld kills at a tick.
    """
    if job.state != "TIMEOUT":
        return job.end_time
    return next((tick - _MOMENT_S for tick in ticks if job.end_time <= tick < job.end_time + 1.5), job.end_time)


def _pass_time(job: RecordedJob, passes: Mapping[Scheduler, Sequence[float]]) -> float:
    """Return when the pass began that started a job: the model starts its jobs then, slurmctld one after the other."""
    began = max((time for time in passes[job.started_by] if time <= job.start_time), default=-math.inf)
    return began if job.start_time - began < _PASS_TAKES_S else job.start_time


def _submitted_ids(recording: Recording) -> dict[str, int]:
    """Map the names of requests to the ids of their submissions; the last task of an array keeps that."""
    ids: dict[str, int] = {}
    for job in recording.jobs:
        ids[job.request.name] = min(job.job_id, ids.get(job.request.name, job.job_id))
    return ids


def _dependency(request: JobRequest, ids: Mapping[str, int]) -> str:
    """Spell what a job waits for."""
    if request.dependency is None:
        return ""
    return ":".join([request.dependency.type, *(str(ids[name]) for name in request.dependency.names)])


def cluster_of(recording: Recording) -> Cluster:
    """Return the recorded cluster with the parameters that its slurmctld read."""
    sizes = {len(leaf) for leaf in recording.leaves}
    count = sum(len(leaf) for leaf in recording.leaves)
    nodes = NodeGroup(
        count=count,
        gpus=recording.gpus_per_node,
        cpus=recording.cpus_per_node,
        memory_mib=recording.memory_mib_per_node or 1_048_576,
        leaf=max(sizes),
        names=",".join(name for leaf in recording.leaves for name in leaf),
    )
    changes = {RecordedState.DRAIN: NodeChange.DRAINED, RecordedState.RESUME: NodeChange.RESUMED}
    events = tuple(
        StateChange(nodes=event.node, time_s=event.time + clock_of(recording), state=changes[event.state])
        for event in recording.node_events_made
    )
    slurm = replace(
        recording.stated,
        bf_interval_s=_backfills(recording)[1],
        tick_s=_ticks(recording)[1],
        tres_billing_weights={"cpu": 1.0},
    )
    return Cluster(
        nodes=(nodes,),
        slurm=slurm,
        events=events,
        partitions=tuple(
            PartitionTable(
                name=partition.name,
                nodes=",".join(partition.nodes),
                priority_tier=partition.priority_tier,
                priority_job_factor=partition.priority_job_factor,
                max_time_s=partition.max_time_s,
                default=partition.default,
            )
            for partition in recording.partitions
        ),
        qos=recording.qos,
        associations=tuple(
            AssociationTable(account=account.name, shares=float(account.shares)) for account in recording.accounts
        ),
    )


def phases_of(recording: Recording) -> Phases:
    """Return the instants from which the periods of the recorded slurmctld count: they depend on when it came up."""
    up = recording.controller_start_time
    clock = clock_of(recording)
    ticks = ticks_of(recording)
    # Ticks that drift count from the loop's begin, 0.8 s after slurmctld came up.
    drifts = recording.release == _DRIFTING_RELEASE
    main_time = min(ticks, key=lambda tick: abs(tick - up - 0.8)) if drifts else ticks[0]
    return Phases(
        main_time=clock + main_time,
        backfill_time=clock + _backfills(recording)[0],
        priority_time=clock + min(recording.recalculations, default=up + 60.80) - 60.0,
        wakes=tuple(clock + tick for tick in ticks),
        backfill_wakes=tuple(clock + turn for turn in turns_of(recording)),
    )


def ticks_of(recording: Recording) -> list[float]:
    """List the instants at which slurmctld looked whether to run the main scheduler, up to the last recorded pass.

    Between two passes there are as many as fit at somewhat more than a second, evenly spread: the recording does not
    tell at which of them slurmctld found nothing to do. Passes right after a kill lie between the ticks.
    """
    drifts = recording.release == _DRIFTING_RELEASE
    times = sorted(each.time for each in recording.passes if each.scheduler is Scheduler.MAIN)
    passes = np.array(_on_ticks(times, drifts=drifts))
    turns = np.r_[0, np.cumsum([_ticks_within(gap, drifts=drifts) for gap in np.diff(passes)])]
    if not drifts:
        return _steady_ticks(recording, passes)
    before = int((passes[0] - recording.controller_start_time) // _TICK_S)
    early = passes[0] - _TICK_S * np.arange(before, 0, -1)
    return [*early.tolist(), *np.interp(np.arange(turns[-1] + 1), turns, passes).tolist()]


def _steady_ticks(recording: Recording, passes: NDArray[np.float64]) -> list[float]:
    """List the ticks of a slurmctld that wakes at each full second, and again when its clock shows it.

    A tick without a pass is left out where one had to run: over the full queue, or for a submission or an end.
    """
    interval, delay = recording.stated.sched_interval_s, recording.stated.batch_sched_delay_s
    zero = recording.zero_time
    ends = [job.end_time for job in recording.jobs if job.state == "COMPLETED"]
    known, asks = passes + zero, np.array([job.submit_time for job in recording.jobs] + ends) + zero
    second = math.floor(zero + recording.controller_start_time)
    # Parameters count from the first pass on.
    due, free, last = second + interval, second + 3.0, float(second)
    ticks = [second + _AGAIN_AT_S]
    while ticks[-1] < known[-1]:
        second += 1
        here = _within(known, second)
        # The first tick of a second can be held up to the instant of the other; a later pass then shows it.
        later = known[known > second + _STEADY_WITHIN_S]
        following = math.floor(later[0] - _AGAIN_AFTER_S) if len(later) else math.inf
        is_early = following < min(second + delay, due)
        is_full = due < second and len(_within(known, second - 1 + interval)) > 0
        is_held_up = len(here) == 1 and (is_early or is_full)
        first = here[(here < second + _AGAIN_AFTER_S) | is_held_up]
        again = here[(here >= second + _AGAIN_AFTER_S) & (not is_held_up)]
        for seen, there, usual in ((second - 1, first, 0.0), (second, again, _AGAIN_AT_S)):
            asked = np.any((last < asks) & (asks < second - _STEADY_WITHIN_S)) and seen >= free
            if len(there):
                ticks.append(second if is_held_up else max(second + usual, float(there[0])))
                last, free = float(there[-1]), seen + delay
                due = seen + interval if seen >= due else due
            elif seen < due and not asked:
                ticks.append(second + usual)
    return [tick - zero for tick in ticks]


def _within(passes: NDArray[np.float64], second: float) -> NDArray[np.float64]:
    """Return the passes that ran right after a full second."""
    return passes[(passes > second - _AGAIN_AFTER_S) & (passes < second + _STEADY_WITHIN_S)]


def direct_passes_of(recording: Recording) -> list[Pass]:
    """List the main passes that the end of a job ran at once, beside the ticks.

    Whether the message of a job's last node runs one is a race within slurmctld: about one end in fifty does, and every
    kill by a time limit and every preemption, once the job has gone. Of the latter only those count that started a job:
    before that, others were still to go.
    """
    passes = [each for each in recording.passes if each.scheduler is Scheduler.MAIN]
    drifts = recording.release == _DRIFTING_RELEASE
    on_ticks = set(_on_ticks(sorted(each.time for each in passes), drifts=drifts))
    ticks = ticks_of(recording)
    ends = np.array([_end_time(job, ticks) for job in recording.jobs])
    is_cancelled = np.array([job.state == "PREEMPTED" for job in recording.jobs])
    stopped = np.array([run.end_time for job in recording.jobs for run in job.stopped])
    stopped = np.r_[stopped, ends[is_cancelled]]
    starts = np.array([began for job in recording.jobs for _, began in job.begins.values()])

    def follows(time: float, ended: NDArray[np.float64], within_s: float) -> bool:
        return bool(np.any((ended <= time) & (time - ended < within_s)))

    def starts_a_job(time: float) -> bool:
        following = min((each.time for each in passes if each.time > time), default=math.inf)
        return bool(np.any((starts >= time) & (starts < following)))

    return [
        each
        for each in passes
        if each.time not in on_ticks
        and (
            follows(each.time, ends[~is_cancelled], _DIRECT_WITHIN_S)
            or (follows(each.time, stopped, _GONE_WITHIN_S) and starts_a_job(each.time))
        )
    ]


def _on_ticks(times: list[float], *, drifts: bool) -> list[float]:
    """Return the longest chain of instants that are whole numbers of ticks apart."""
    best: list[list[float]] = []
    for time in times:
        chains = [chain for chain in best if _ticks_within(time - chain[-1], drifts=drifts)]
        best.append([*max(chains, key=len, default=[]), time])
    return max(best, key=len)


def _ticks_within(gap_s: float, *, drifts: bool) -> int:
    """Return the whole number of ticks in a time, 0 if none fits; on a busy machine ticks that drift are longer."""
    if not drifts:
        return round(gap_s) if abs(gap_s - round(gap_s)) < _STEADY_WITHIN_S else 0
    count = int(gap_s // _SHORTEST_TICK_S)
    return count if gap_s <= count * _LONGEST_TICK_S else 0


def turns_of(recording: Recording) -> list[float]:
    """List the instants at which backfill can run: when it did, and every second while it had nothing to do."""
    interval = recording.stated.bf_interval_s
    ran = sorted(each.time for each in recording.passes if each.scheduler is Scheduler.BACKFILL)
    idle = [
        time
        for one, other in itertools.pairwise(ran)
        for time in np.arange(one + interval, other - 0.5, _TICK_S).tolist()
    ]
    return sorted([*ran, *idle])


def _backfills(recording: Recording) -> tuple[float, float]:
    """Fit phase and period of backfill to the instants of its passes: it sleeps an interval after each."""
    return _period(recording, Scheduler.BACKFILL, recording.stated.bf_interval_s)


def _ticks(recording: Recording) -> tuple[float, float]:
    """Fit phase and period of the main scheduler's ticks to the instants of its passes."""
    return _period(recording, Scheduler.MAIN, _TICK_S)


def _period(recording: Recording, scheduler: Scheduler, about_s: float) -> tuple[float, float]:
    """Fit phase and period of a scheduler that runs about so often; passes between are left out."""
    times = np.array(sorted(each.time for each in recording.passes if each.scheduler is scheduler))
    turns = np.round((times - times[0]) / about_s)
    regular = np.abs(times - times[0] - turns * about_s) < 0.2
    period, phase = np.polyfit(turns[regular], times[regular], 1)
    return float(phase), float(period)
