"""Finds the running jobs that hold GPUs which do nothing, by measurements of the GPUs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from advisor.domain.idle_gpus import MEASURED_S, GpuReading, IdleJob, IdleLook, UtilisationSettings
from advisor.domain.job import Job, JobState
from advisor.domain.snapshot import Snapshot

# The indices of the GPUs that jobs hold: by job, then by node.
Indices = Mapping[int, Mapping[str, frozenset[int]]]
_HOLDING = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)


def whole_nodes(snapshot: Snapshot, readings: Sequence[GpuReading]) -> Mapping[str, int]:
    """Map nodes whose GPUs are all held by one job to that job; none on which more GPUs are measured than it has."""
    measured = Counter(each.node for each in readings)
    holders: defaultdict[str, set[int]] = defaultdict(set)
    for job in snapshot.jobs:
        if job.state in _HOLDING and job.allocation is not None and (job.allocation.gpus or job.gang.wants_gpus):
            for name in job.allocation.nodes:
                holders[name].add(job.job_id)
    return {
        node.name: min(holders[node.name])
        for node in snapshot.nodes
        if len(holders[node.name]) == 1
        and all(pool.used == pool.total for pool in node.gpus)
        and measured[node.name] <= sum(pool.total for pool in node.gpus)
    }


def jobs_to_map(snapshot: Snapshot, readings: Sequence[GpuReading], settings: UtilisationSettings) -> tuple[Job, ...]:
    """Return the jobs that share a node on which a GPU is idle, so that the indices of their GPUs matter."""
    whole = whole_nodes(snapshot, readings)
    idle = {each.node for each in readings if each.idle_s >= settings.idle_after_s} - whole.keys()
    return tuple(job for job in _long_running(snapshot, settings) if not idle.isdisjoint(_nodes_of(job)))


def idle_look(
    snapshot: Snapshot, readings: Sequence[GpuReading], indices: Indices, settings: UtilisationSettings
) -> IdleLook:
    """Return the running jobs with GPUs that have been idle for `idle_after_s`; a GPU that is not measured is not one.

    `indices` are those of the jobs that share nodes. Where measurements name jobs, these decide.
    """
    by_job = _named(snapshot, readings) if settings.job_label else _mapped(snapshot, readings, indices)
    unmapped = () if settings.job_label else jobs_to_map(snapshot, readings, settings)
    found = [
        idle
        for job in _long_running(snapshot, settings)
        if (idle := _idle(job, by_job.get(job.job_id, ()), snapshot.taken_at, settings)) is not None
    ]
    gpus, measured = _counts(snapshot, readings, by_job if settings.job_label else None)
    return IdleLook(
        looked_time=snapshot.taken_at,
        jobs=tuple(sorted(found, key=lambda job: (job.since_time, job.job_id))),
        unmapped=tuple(job.job_id for job in unmapped if job.job_id not in indices),
        gpus=gpus,
        measured=measured,
    )


def _long_running(snapshot: Snapshot, settings: UtilisationSettings) -> Iterable[Job]:
    """Yield the running GPU jobs that could have been idle for long enough."""
    latest = snapshot.taken_at - settings.idle_after_s
    return (job for job in snapshot.running_gpu_jobs if job.start_time is not None and job.start_time <= latest)


def _nodes_of(job: Job) -> tuple[str, ...]:
    return () if job.allocation is None else job.allocation.nodes


def _named(snapshot: Snapshot, readings: Sequence[GpuReading]) -> Mapping[int, list[GpuReading]]:
    """Map jobs to the measurements that name them, on their own nodes alone: ids recur in other clusters."""
    found: defaultdict[int, list[GpuReading]] = defaultdict(list)
    for each in readings:
        job = None if each.job_id is None else snapshot.jobs_by_id.get(each.job_id)
        if job is not None and each.node in _nodes_of(job):
            found[job.job_id].append(each)
    return found


def _mapped(snapshot: Snapshot, readings: Sequence[GpuReading], indices: Indices) -> Mapping[int, list[GpuReading]]:
    """Map jobs to the measurements of the nodes that they hold, and of their GPUs on nodes that they share."""
    whole = whole_nodes(snapshot, readings)
    holder_of = {(node, index): job_id for job_id, held in indices.items() for node in held for index in held[node]}
    found: defaultdict[int, list[GpuReading]] = defaultdict(list)
    for each in readings:
        job_id = whole.get(each.node) or holder_of.get((each.node, each.index))
        if job_id is not None:
            found[job_id].append(each)
    return found


def _idle(job: Job, own: Sequence[GpuReading], now: float, settings: UtilisationSettings) -> IdleJob | None:
    """Return a job with those of its GPUs that are idle; None if none is."""
    idle = [each.idle_s for each in own if each.idle_s >= settings.idle_after_s]
    if not idle or job.start_time is None:
        return None
    run_s, idle_s = now - job.start_time, min(idle)
    held = sum(gpu.count for gpu in job.allocation.gpus) if job.allocation is not None else 0
    return IdleJob(
        job_id=job.job_id,
        gpus=max(held, len(own)),
        idle_gpus=len(idle),
        since_time=now - min(idle_s, run_s),
        is_at_least=run_s > idle_s >= MEASURED_S,
    )


def _counts(
    snapshot: Snapshot, readings: Sequence[GpuReading], by_job: Mapping[int, Sequence[GpuReading]] | None
) -> tuple[int, int]:
    """Count the GPUs of running jobs and those that are measured: those on their nodes, or by the jobs they name."""
    jobs = snapshot.running_gpu_jobs
    if by_job is not None:
        held = [sum(gpu.count for gpu in job.allocation.gpus) for job in jobs if job.allocation is not None]
        return sum(held), sum(len(by_job.get(job.job_id, ())) for job in jobs)
    names = {name for job in jobs for name in _nodes_of(job)}
    gpus = sum(pool.total for node in snapshot.nodes if node.name in names for pool in node.gpus)
    return gpus, sum(1 for each in readings if each.node in names)
