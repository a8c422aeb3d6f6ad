"""Finds the jobs of a snapshot that the model of slurmctld knows, and turns what they ask for into rows of a trace."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import CONTENTION, Cause, causes_named
from advisor.domain.gang import GangRequest, GpuScope
from advisor.domain.job import Job, JobState, tasks_of
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import memory_is_shared_out
from advisor.features.queue import limits_s
from advisor.sim.live.split_allocations import Omissions, places_of
from advisor.sim.node_classes import is_readable
from advisor.sim.traces.eligibility import parse_dependency
from advisor.sim.traces.trace import TRACE_DTYPE, Trace

_NICE_MOST: Final = 2**31 - 1
_MOST_TASKS: Final = 1000
_NO_LIMIT: Final = 2**31 - 1
# Why a job that will start is not eligible yet.
_WAITS: Final = frozenset({Cause.DEPENDENCY, Cause.BEGIN_TIME})
_STARTS: Final = CONTENTION | _WAITS | {Cause.ARRAY_LIMIT}


def is_waiting(job: Job, now: float) -> bool:
    """Return whether a pending job waits for its begin time or for other jobs."""
    if job.dependency or (job.eligible_time is not None and job.eligible_time > now):
        return True
    return bool(causes_named(job.reason) & _WAITS)


def jobs_with_rows(snapshot: Snapshot, row_by_node: Mapping[str, int], notes: Omissions) -> list[Job]:
    """Return the jobs that the model knows, by submit time and id; a job array stands once for each waiting task."""
    known: list[Job] = []
    out: set[int] = set(snapshot.unread_jobs)
    for job in snapshot.jobs:
        sentence = _why_without_row(job, snapshot, row_by_node)
        if sentence is None:
            known.append(job)
            continue
        notes.add(sentence)
        out |= _ids(job)
    known = _without_stuck(known, out, notes)
    notes.add(
        f"{{}} job arrays have more than {_MOST_TASKS} waiting tasks, of which the model knows that many",
        sum(job.is_pending and tasks_of(job) > _MOST_TASKS for job in known),
    )
    return [job for job in sorted(known, key=lambda job: (job.submit_time, job.job_id)) for _ in range(_rows(job))]


def _rows(job: Job) -> int:
    return min(_MOST_TASKS, tasks_of(job)) if job.is_pending and job.array else 1


def _ids(job: Job) -> set[int]:
    """Return the ids by which others wait for a job."""
    return {job.job_id} | ({job.array.array_job_id} if job.array else set())


def _without_stuck(known: list[Job], out: set[int], notes: Omissions) -> list[Job]:
    """Remove the pending jobs that wait for a job without a row: the model would let them start."""
    while True:
        stuck = [job for job in known if job.is_pending and job.dependency and _waits_for(job, out)]
        if not stuck:
            return known
        notes.add("{} pending jobs that wait for a job without a row do not start", len(stuck))
        numbers = {job.job_id for job in stuck}
        known = [job for job in known if job.job_id not in numbers]
        out.update(*map(_ids, stuck))


def _waits_for(job: Job, out: set[int]) -> bool:
    return any(requirement.job_id in out for requirement in parse_dependency(job.dependency)[0])


def _is_held(job: Job) -> bool:
    return job.held or (job.priority == 0 and not job.dependency and not causes_named(job.reason) & _WAITS)


# Why a pending job has no row, the first that holds.
_PENDING_WITHOUT_ROW: Final[Sequence[tuple[str, Callable[[Job], bool]]]] = (
    ("{} pending jobs with an unknown number of GPUs do not start", lambda job: job.gang.gpu_count is None),
    ("{} pending jobs that ask for parts of GPUs do not start", lambda job: bool(job.gang.shares)),
    ("{} pending components of heterogeneous jobs do not start", lambda job: job.het is not None),
    ("{} pending jobs of scrontab do not start", lambda job: job.cron),
    ("{} pending jobs of a reservation do not start", lambda job: bool(job.reservation)),
    ("{} pending jobs that are held do not start", _is_held),
    (
        "{} pending jobs that Slurm holds back for another reason, such as a limit, do not start",
        lambda job: not causes_named(job.reason) <= _STARTS,
    ),
    (
        "{} pending jobs with an unknown priority do not start",
        lambda job: job.priority is None and not causes_named(job.reason) & _WAITS,
    ),
    (
        "{} pending jobs with a dependency that the model does not know do not start",
        lambda job: bool(job.dependency) and not parse_dependency(job.dependency)[0],
    ),
    (
        "{} pending jobs with a constraint that the model does not know do not start",
        lambda job: bool(job.gang.features) and not is_readable(job.gang.features),
    ),
)


def _why_without_row(job: Job, snapshot: Snapshot, row_by_node: Mapping[str, int]) -> str | None:
    """Return the sentence that says why the model leaves a job out; None if it has a row."""
    match job.state:
        case JobState.RUNNING | JobState.COMPLETING:
            nodes, gpus = places_of(job, row_by_node)
            if job.allocation is not None and job.allocation.nodes and not nodes:
                return "{} jobs on nodes without a row are not simulated"
            is_known = nodes and (gpus or not (job.gang.wants_gpus or job.gang.shares or not job.gang.gpus_known))
            return None if is_known else "{} running jobs without known GPUs keep what they hold"
        case JobState.PENDING:
            sentence = next((sentence for sentence, holds in _PENDING_WITHOUT_ROW if holds(job)), None)
            if sentence is None and _open_nodes(job.partitions, snapshot, row_by_node) == frozenset():
                return "{} pending jobs in partitions without GPUs are not simulated"
            return sentence
        case _:
            return "{} jobs that are suspended or in another state keep what they hold"


def note_requests(snapshot: Snapshot, notes: Omissions) -> None:
    """Note what could not be read of requests."""
    notes.add("{} jobs could not be read", len(snapshot.unread_jobs))
    for lever in snapshot.hidden_levers:
        notes.add(f"the reader does not show the field {lever}: it counts as not set")


def _open_nodes(
    partitions: tuple[str, ...], snapshot: Snapshot, row_by_node: Mapping[str, int]
) -> frozenset[str] | None:
    """Return the nodes with rows that partitions offer; None if that is unknown."""
    known = [snapshot.partitions_by_name[name] for name in partitions if name in snapshot.partitions_by_name]
    if not known:
        return None
    return frozenset(name for partition in known for name in partition.nodes if name in row_by_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A gang as columns of a trace."""

    gpus: int
    nodes_min: int
    nodes_max: int
    cpus: int
    cpus_per_gpu: int
    memory_mib: int
    memory_mib_per_gpu: int
    exclusive: bool
    gpu_type: int
    switches: int
    switches_wait_s: float


def _request(gang: GangRequest, codes: Mapping[str, int], most_gpus: int, *, memory_binds: bool) -> _Request:
    gpus = gang.gpu_count or 0
    nodes_min = min(gang.nodes_min, gpus) if gpus else gang.nodes_min
    per_node = gang.scope is GpuScope.NODE
    # A job with GPUs per node takes as many nodes as it needs at least.
    nodes_max = nodes_min if per_node else max(nodes_min, gang.nodes_max) if gang.nodes_max else 0
    is_even = per_node or gpus <= 1 or (nodes_min == nodes_max and gpus % nodes_min == 0)
    memory_mib = (gang.memory_mib_per_node or 0) if memory_binds else 0
    by_gpu = gpus > 0 and (not is_even or gang.cpus % gpus == 0)
    return _Request(
        gpus=gpus,
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        cpus=0 if by_gpu else gang.cpus,
        cpus_per_gpu=gang.cpus // gpus if by_gpu else 0,
        memory_mib=memory_mib if is_even else 0,
        memory_mib_per_gpu=0 if is_even else memory_mib // max(1, min(gpus, most_gpus)),
        exclusive=gang.exclusive,
        gpu_type=-1 if gang.gpu_type is None else codes[gang.gpu_type],
        switches=gang.switches.count if gang.switches else 0,
        switches_wait_s=gang.switches.max_wait_s if gang.switches else 0.0,
    )


def trace_of(snapshot: Snapshot, jobs: Sequence[Job], most_gpus: int) -> Trace:
    """Return the jobs as rows of a trace; the run time of each is its time limit."""
    types = tuple(dict.fromkeys(job.gang.gpu_type for job in jobs if job.gang.gpu_type))
    codes = {name: code for code, name in enumerate(types)}
    binds = memory_is_shared_out(snapshot.config)
    # Many jobs share one request.
    requests: dict[int, _Request] = {}
    for job in jobs:
        if id(job.gang) not in requests:
            requests[id(job.gang)] = _request(job.gang, codes, most_gpus, memory_binds=binds)
    asked = [requests[id(job.gang)] for job in jobs]
    rows = np.zeros(len(jobs), TRACE_DTYPE)
    for name in _Request.__slots__:
        rows[name] = [getattr(request, name) for request in asked]
    rows["job_id"] = [job.job_id for job in jobs]
    rows["submit_time"] = [job.submit_time for job in jobs]
    rows["gpus_min"] = rows["gpus_max"] = rows["gpus"]
    _lay_ranges(rows, jobs)
    rows["time_limit_s"] = [np.inf if limit_s is None else max(1.0, limit_s) for limit_s in limits_s(jobs, snapshot)]
    rows["run_time_s"] = rows["time_limit_s"]
    rows["time_min_s"] = np.minimum([job.time_min_s or 0.0 for job in jobs], rows["time_limit_s"])
    rows["nice"] = [max(-_NICE_MOST, min(_NICE_MOST, job.nice)) for job in jobs]
    rows["model"] = -1
    rows["recorded_start_time"] = np.nan
    users, rows["user"] = _coded(job.user for job in jobs)
    accounts, rows["account"] = _coded(job.account for job in jobs)
    qos, rows["qos"] = _coded(job.qos for job in jobs)
    names, rows["name"] = _coded((job.name for job in jobs), "")
    partitions, rows["partition"] = _coded((",".join(job.partitions) for job in jobs), "")
    named = _Named.of(jobs)
    dependencies, rows["dependency"] = _coded(named.dependencies, "")
    features, rows["features"] = _coded(named.features, "")
    required, rows["required_nodes"] = _coded(named.required, "")
    excluded, rows["excluded_nodes"] = _coded(named.excluded, "")
    _lay_waits(rows, jobs, snapshot.taken_at)
    _outlast(rows, jobs, snapshot.taken_at)
    return Trace(
        name="snapshot",
        jobs=rows,
        users=users,
        accounts=accounts,
        qos=qos,
        partitions=partitions,
        gpu_types=types,
        job_names=names,
        dependencies=dependencies,
        features=features,
        required_nodes=required,
        excluded_nodes=excluded,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """What pending jobs name; running jobs name nothing, as they have their nodes."""

    dependencies: list[str]
    features: list[str]
    required: list[str]
    excluded: list[str]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> "_Named":
        """Return the texts."""
        return cls(
            dependencies=[job.dependency if job.is_pending else "" for job in jobs],
            features=[job.gang.features if job.is_pending else "" for job in jobs],
            required=[",".join(job.gang.required_nodes) if job.is_pending else "" for job in jobs],
            excluded=[",".join(job.gang.excluded_nodes) if job.is_pending else "" for job in jobs],
        )


def _lay_waits(rows: NDArray[np.void], jobs: Sequence[Job], now: float) -> None:
    """Fill in arrays with their limits, and begin times."""
    for row, job in enumerate(jobs):
        if job.array is not None:
            rows["array_id"][row] = job.array.array_job_id
            # Backfill plans few tasks of an array at once, whether it has a limit or not.
            rows["array_limit"][row] = job.array.max_running or _NO_LIMIT
        if job.is_pending and job.eligible_time is not None and is_waiting(job, now):
            rows["begin_time"][row] = job.eligible_time
    limit_by_array: dict[int, int] = {}
    for array_id, limit in zip(rows["array_id"].tolist(), rows["array_limit"].tolist(), strict=True):
        limit_by_array[array_id] = min(limit, limit_by_array.get(array_id, _NO_LIMIT))
    rows["array_limit"] = [limit_by_array[array_id] for array_id in rows["array_id"].tolist()]


def _lay_ranges(rows: NDArray[np.void], jobs: Sequence[Job]) -> None:
    """Set how many GPUs a pending job can be given by a change: the range that it declares."""
    for row, job in enumerate(jobs):
        if job.hints.gpus is not None:
            rows["gpus_min"][row] = min(job.hints.gpus.low, int(rows["gpus"][row]))
            rows["gpus_max"][row] = max(job.hints.gpus.high, int(rows["gpus"][row]))


def _outlast(rows: NDArray[np.void], jobs: Sequence[Job], now: float) -> None:
    """Raise the limits of running jobs that have passed theirs: they end at the next check of the limits."""
    for row, job in enumerate(jobs):
        if not job.is_pending and job.start_time is not None:
            rows["time_limit_s"][row] = max(rows["time_limit_s"][row], np.ceil(now - job.start_time) + 1.0)


def _coded(names: Iterable[str], *known: str) -> tuple[tuple[str, ...], list[int]]:
    """Return the distinct names in order, behind the known ones, and the code of each name."""
    code_by_name: dict[str, int] = {name: code for code, name in enumerate(known)}
    codes = [code_by_name.setdefault(name, len(code_by_name)) for name in names]
    return tuple(code_by_name), codes
