"""Defines the records of jobs, nodes and partitions that readers return, and converts them to domain values.

A reader decodes Slurm's spellings; their meaning is decided here, once, so that all readers agree.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, TypeVar

from advisor.backends.hints import hints
from advisor.backends.process import printable
from advisor.backends.spelling import CACHED_TEXTS, reason_word, time_limit_s
from advisor.backends.tres import (
    NO_TRES,
    Gres,
    Tres,
    counts_of,
    gpu_counts,
    gpu_pools,
    gres_counts,
    gres_pools,
    requested,
    share_counts,
)
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, GangRequest, GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Allocation, ArrayRecord, HetRecord, Job, JobState
from advisor.domain.node import Node, is_known
from advisor.errors import DecodeError

# Slurm prints one word: a flag of the state, if there is one, in place of the base state.
_STATES: Mapping[str, JobState] = {
    "PENDING": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "CONFIGURING": JobState.RUNNING,
    "POWER_UP_NODE": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "STOPPED": JobState.SUSPENDED,
    "COMPLETING": JobState.COMPLETING,
    "STAGE_OUT": JobState.COMPLETING,
    # Flags of a job that waits: to start once more, or held.
    "REQUEUED": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "EXPEDITING": JobState.PENDING,
    # It runs on another cluster of the federation.
    "REVOKED": JobState.OTHER,
}
_FINAL_STATES: Final = frozenset((
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "TIMEOUT",
))  # fmt: skip
_STARTED: Final = (JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING)

# A user can make a dependency of 128 KiB. That a job depends is what decides; the head of the text is for people.
DEPENDENCY_LENGTH: Final = 64
_CUT: Final = "..."
_LAST_DEPENDENCY: Final = re.compile("[^:,?]*$")


Row = TypeVar("Row")


# Not frozen: a record lives for a moment, and a frozen one takes markedly longer to make.
@dataclass(slots=True, kw_only=True)
class JobRecord:
    """The fields of a job as Slurm shows them, decoded but not yet interpreted.

    `tres` is what is allocated, or requested while the job waits. `nodes_shown` is Slurm's own estimate of a
    waiting job's node count, `nodes_max` the most it accepts or 0; `nodes_open` is whether it leaves the count open,
    None where the source cannot tell. `only_user` is `--exclusive=user`, `uncounted` names options of the request that
    no fit counts. `unseen` names what could not be read.
    """

    job_id: int
    state: str
    reason: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partitions: tuple[str, ...] = ()
    qos: str = ""
    comment: str = ""
    nodes_shown: int = 1
    nodes_max: int = 0
    nodes_open: bool | None = None
    tasks: int = 1
    cpus: int = 1
    cpus_per_node: int = 1
    tasks_per_node: int = 0
    tmp_disk_mib: int = 0
    tres: Tres = NO_TRES
    requests: Mapping[GpuScope, tuple[Gres, ...]] = field(default_factory=dict)
    gpus_known: bool = True
    cpus_per_gres: tuple[Gres, ...] = ()
    exclusive: bool = False
    only_user: bool = False
    uncounted: tuple[str, ...] = ()
    switch_count: int = 0
    switch_wait_s: float = 0.0
    features: str = ""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    array: ArrayRecord | None = None
    het: HetRecord | None = None
    submit_time: float | None
    eligible_time: float | None = None
    start_time: float | None = None
    end_time: float | None = None
    limit_s: float | None = None
    limit_min_s: float | None = None
    priority: int | None = None
    nice: int = 0
    dependency: str = ""
    reservation: str = ""
    requeueable: bool = False
    cron: bool = False
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadJob:
    """A job that could not be read: its id, 0 if that could not be read either, and why."""

    job_id: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRow:
    """A node or a partition that could not be read: its name, "" if that could not be read either, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """The fields of a node as Slurm shows them; `gres_used` is empty where the source cannot tell.

    CPUs and memory are those that jobs can have.
    """

    name: str
    states: tuple[str, ...]
    reason: str = ""
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    gres: tuple[Gres, ...] = ()
    gres_used: tuple[Gres, ...] = ()
    tmp_disk_mib: int | None = None
    threads_per_core: int = 1
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    weight: int = 1


def row_or_unread(decode: Callable[[], Row], name: object) -> Row | UnreadRow:
    """Return what a decoder makes of a node or a partition, or why it cannot, which affects no other row."""
    try:
        return decode()
    except DecodeError as err:
        return UnreadRow(name=name if isinstance(name, str) else "", why=str(err))


# sinfo shortens one of them.
_PARTITION_STATES: Final[Mapping[str, bool]] = {
    "UP": True,
    "DOWN": False,
    "DRAIN": False,
    "INACTIVE": False,
    "INACT": False,
}


def takes_jobs(state: str) -> bool:
    """Return whether a partition in a state takes jobs; raises `DecodeError` for a state that is not known."""
    known = _PARTITION_STATES.get(state.strip().upper())
    if known is None:
        raise DecodeError(f"its state is {printable(state.strip(), 40)}, which is not known")
    return known


def node_or_unread(record: NodeRecord | UnreadRow) -> Node | UnreadRow:
    """Make the node of a record, or say why that cannot be done."""
    if isinstance(record, UnreadRow):
        return record
    try:
        return node_of(record)
    except ValueError as err:
        cause = f"Slurm answered with a node that cannot be: {err}; try another --source"
        return UnreadRow(name=record.name, why=cause)
    except DecodeError as err:
        return UnreadRow(name=record.name, why=str(err))


def node_of(record: NodeRecord) -> Node:
    """Make the node of a record; raises `DecodeError` for a word of its state that is not known."""
    base, *flags = record.states or ("UNKNOWN",)
    unknown = next((word for word in record.states if not is_known(word)), None)
    if unknown is not None:
        raise DecodeError(f"its state has the word {printable(unknown, 40)}, which is not known")
    # sinfo of old releases calls a drained node allocated as soon as one of its CPUs is.
    if base == "ALLOCATED" and "DRAIN" in flags and record.cpus_used < record.cpus:
        base = "MIXED"
    return Node(
        name=record.name,
        state=base,
        flags=tuple(sorted(set(flags))),
        reason="" if record.reason in ("none", "(null)") else record.reason,
        cpus=record.cpus,
        cpus_used=record.cpus_used,
        memory_mib=record.memory_mib,
        memory_used_mib=record.memory_used_mib,
        gpus=gpu_pools(record.gres, record.gres_used),
        shares=share_counts(record.gres),
        gres=gres_pools(record.gres, record.gres_used),
        tmp_disk_mib=record.tmp_disk_mib,
        threads_per_core=record.threads_per_core,
        partitions=tuple(sorted(record.partitions)),
        features=tuple(sorted(set(record.features))),
        weight=record.weight,
    )


def jobs_of(records: Iterable[JobRecord | Job | UnreadJob], nodes: Iterable[Node]) -> tuple[Job, ...]:
    """Make the jobs of the records that have not ended, by id; raises `DecodeError` for one that cannot be read."""
    jobs, unread = jobs_and_unread(records, nodes)
    if unread:
        raise DecodeError(unread[0].why)
    return jobs


def jobs_and_unread(
    records: Iterable[JobRecord | Job | UnreadJob], nodes: Iterable[Node], *, hides_lone_tasks: bool = False
) -> tuple[tuple[Job, ...], tuple[UnreadJob, ...]]:
    """Make the jobs of the records that have not ended, and list those that cannot be read, each by id.

    What is a job already stays as it is. A job whose rows disagree is one that cannot be read. `hides_lone_tasks` is a
    trait of the release.
    """
    nodes_by_name = {node.name: node for node in nodes}
    most_gpus = max((sum(pool.total for pool in node.gpus) for node in nodes_by_name.values()), default=MOST)
    doubted_above = most_gpus if hides_lone_tasks else MOST
    jobs: list[Job] = []
    unread: dict[int, UnreadJob] = {}
    for record in records:
        made = _made(record, nodes_by_name, most_gpus, doubted_above) if isinstance(record, JobRecord) else record
        if isinstance(made, Job):
            jobs.append(made)
        elif made is not None:
            unread.setdefault(made.job_id, made)
    jobs.sort(key=attrgetter("job_id"))
    unread |= {
        job.job_id: UnreadJob(job_id=job.job_id, why=f"Slurm lists job {job.job_id} twice, with different values")
        for job, following in pairwise(jobs)
        if job.job_id == following.job_id and job != following
    }
    read = {job.job_id: job for job in jobs if job.job_id not in unread}
    return tuple(read.values()), tuple(unread[job_id] for job_id in sorted(unread))


def record_or_unread(decode: Callable[[], JobRecord], job_id: int) -> JobRecord | UnreadJob:
    """Return the record that a decoder makes of a job, or why it cannot, which affects no other job."""
    try:
        return decode()
    except DecodeError as err:
        return UnreadJob(job_id=job_id, why=str(err))


def _made(
    record: JobRecord, nodes_by_name: Mapping[str, Node], most_gpus: int, doubted_above: int
) -> Job | UnreadJob | None:
    """Make the job of a record; None if it has ended.

    No node has more than `most_gpus`; whether one task may have more than `doubted_above` is in doubt.
    """
    try:
        if record.state in _FINAL_STATES:
            return None
        return _job(record, nodes_by_name, most_gpus, doubted_above)
    except (ValueError, DecodeError) as err:
        cause = f"Slurm answered with a job that cannot be: {err}; try another --source"
        return UnreadJob(job_id=record.job_id, why=str(err) if isinstance(err, DecodeError) else cause)


def _job(record: JobRecord, nodes_by_name: Mapping[str, Node], most_gpus: int, doubted_above: int) -> Job:
    state = _state(record.state)
    if record.submit_time is None:
        raise DecodeError(f"Slurm gives no submit time for job {record.job_id}: try another --source")
    started = state in _STARTED
    gang = _gang(record, most_gpus, doubted_above, pending=state is JobState.PENDING)
    limit_s = time_limit_s(record.limit_s)
    return Job(
        job_id=record.job_id,
        state=state,
        reason=reason_word(record.reason),
        name=record.name,
        user=record.user,
        account=record.account,
        partitions=record.partitions,
        qos=record.qos,
        gang=gang,
        allocation=_allocation(record, gang, nodes_by_name) if started and record.nodes else None,
        hints=hints(record.comment),
        array=record.array,
        het=record.het,
        submit_time=record.submit_time,
        eligible_time=record.eligible_time,
        start_time=record.start_time,
        # Slurm computes an end also for jobs without a limit, and for jobs that have not started.
        end_time=record.end_time if started and limit_s is not None else None,
        time_limit_s=limit_s,
        time_min_s=record.limit_min_s or None,
        priority=record.priority,
        nice=record.nice,
        held=state is JobState.PENDING and record.priority == 0,
        dependency=_head(record.dependency),
        reservation=record.reservation,
        requeueable=record.requeueable,
        cron=record.cron,
        unseen=record.unseen,
    )


def _head(dependency: str) -> str:
    """Return a dependency as every reader can know it: a long one ends after a whole part of it."""
    if len(dependency) < DEPENDENCY_LENGTH:
        return dependency
    return _LAST_DEPENDENCY.sub(_CUT, dependency[: DEPENDENCY_LENGTH - len(_CUT)], count=1)


def _gang(record: JobRecord, most_gpus: int, doubted_above: int, *, pending: bool) -> GangRequest:
    nodes_min, nodes_max = _node_range(record, pending=pending)
    tasks, cpus = _tasks_and_cpus(record, nodes_max, pending=pending)
    in_doubt = _in_doubt(record, nodes_min, nodes_max)
    memory_mib = record.tres.memory_mib
    return _asked(
        tuple(record.requests.items()),
        record.cpus_per_gres,
        (
            *record.uncounted,
            *in_doubt,
            *(("--ntasks",) if pending and _can_be_one_task_of(record, doubted_above) else ()),
        ),
        record.switch_count,
        record.switch_wait_s,
        gpus_known=record.gpus_known,
        # As with GPUs: what is larger never starts.
        nodes_min=min(nodes_min, MOST),
        nodes_max=min(nodes_max, MOST),
        nodes_open=pending and _is_open(record, nodes_min, most_gpus),
        tasks=min(tasks, MOST),
        cpus=min(cpus, MOST),
        # What is in doubt makes nothing impossible.
        cpus_per_node=1 if "--mincpus" in in_doubt else min(record.cpus_per_node, MOST),
        tasks_per_node=min(record.tasks_per_node, MOST) or None,
        tmp_disk_mib=min(record.tmp_disk_mib, MOST**2),
        memory_mib_per_node=min(memory_mib // (record.tres.nodes or nodes_min), MOST**2) if memory_mib else None,
        exclusive=record.exclusive,
        only_beside=record.user if record.only_user else "",
        features=record.features,
        required_nodes=record.required_nodes,
        excluded_nodes=record.excluded_nodes,
    )


def _in_doubt(record: JobRecord, nodes_min: int, nodes_max: int) -> tuple[str, ...]:
    """Name the options that some releases refuse or count otherwise.

    --mincpus is in doubt beside GPUs for each task and beside --ntasks-per-node, and beside several nodes if it is no
    multiple of --cpus-per-task; --ntasks-per-node above the number of tasks, and where the nodes would hold unequal
    numbers of tasks beside --gpus or GPUs for each task.
    """
    per_task, asked = bool(record.requests.get(GpuScope.TASK)), record.cpus_per_node
    counts_gpus = per_task or bool(record.requests.get(GpuScope.JOB))
    # Slurm shows the CPUs of all tasks, or of one where the number of tasks follows from a range of nodes.
    cpus = {record.cpus // record.tasks, 0 if per_task or record.tasks > nodes_min else record.cpus} - {0}
    is_own = bool(cpus) and asked not in {1, *(each * max(1, record.tasks_per_node) for each in cpus)}
    holds = {
        "--mincpus": is_own
        and (per_task or record.tasks_per_node > 0 or (nodes_max > 1 and any(asked % each for each in cpus))),
        "--ntasks-per-node": record.tasks < record.tasks_per_node
        or (counts_gpus and record.tasks_per_node > 0 and record.tasks % record.tasks_per_node > 0),
    }
    return tuple(option for option, there in holds.items() if there)


def _tasks_and_cpus(record: JobRecord, nodes_max: int, *, pending: bool) -> tuple[int, int]:
    """Return the tasks of a job and their CPUs.

    Slurm 24.11 checks a job submitted with --hold at its release, and starts it without the tasks that its nodes do not
    take.
    """
    most = nodes_max * record.tasks_per_node
    if not pending or record.eligible_time is not None or not 0 < most < record.tasks:
        return record.tasks, record.cpus
    return most, record.cpus * most // record.tasks


def _can_be_one_task_of(record: JobRecord, gpus: int) -> bool:
    """Return whether a job that leaves its nodes open can have asked for one task with more GPUs than `gpus`."""
    if record.tasks > 1 or record.nodes_max > max(1, record.nodes_shown):
        return False
    asked = gpu_counts(requested(record.requests.get(GpuScope.JOB, ())))
    return not record.cpus_per_gres and sum(gpu.count for gpu in asked) > gpus


@lru_cache(CACHED_TEXTS)
def _asked(
    requests: tuple[tuple[GpuScope, tuple[Gres, ...]], ...],
    cpus_per_gres: tuple[Gres, ...],
    uncounted: tuple[str, ...],
    switch_count: int,
    switch_wait_s: float,
    **plain: Any,
) -> GangRequest:
    """Make a request, `plain` fields as they are; whole queues ask for the same few things and then share one value."""
    gpus = {scope: gpu_counts(requested(listed)) for scope, listed in requests}
    cpus_per_gpu = gpu_counts(cpus_per_gres)
    others = {scope: gres_counts(requested(listed)) for scope, listed in requests}
    # Of what is counted over a job or its tasks, nothing tells how much of it each node has to give.
    elsewhere = {f"gres/{gres.name}" for scope, listed in others.items() for gres in listed if scope != GpuScope.NODE}
    return GangRequest(
        per_job=gpus.get(GpuScope.JOB, ()),
        per_node=gpus.get(GpuScope.NODE, ()),
        per_socket=gpus.get(GpuScope.SOCKET, ()),
        per_task=gpus.get(GpuScope.TASK, ()),
        shares=share_counts(tuple(gres for _, listed in requests for gres in requested(listed))),
        cpus_per_gpu=cpus_per_gpu[0].count if cpus_per_gpu else None,
        gres=others.get(GpuScope.NODE, ()),
        uncounted=(*uncounted, *sorted(elsewhere)),
        switches=SwitchRequest(count=switch_count, max_wait_s=switch_wait_s) if switch_count else None,
        **plain,
    )


def _node_range(record: JobRecord, *, pending: bool) -> tuple[int, int]:
    """Return the fewest and the most nodes; an open node count looks like a fixed one."""
    shown = max(1, record.nodes_shown)
    if not pending:
        return shown, shown
    # What the user asked for at least stands in the TRES only; the node count shown is an estimate.
    nodes_min = record.tres.nodes or shown
    return nodes_min, max(nodes_min, shown, record.nodes_max)


def leaves_nodes_open(nodes_max: int | None, eligible_time: float | None) -> bool | None:
    """Return whether a job leaves its node count open, by the most nodes that Slurm shows; None if unknown.

    Slurm holds 0 for an open count. Of a job that was never eligible, as one submitted with --hold, newer releases show
    an estimate in its place.
    """
    if nodes_max == 0:
        return True
    return None if nodes_max is None or eligible_time is None else False


def _is_open(record: JobRecord, nodes_min: int, most_gpus: int) -> bool:
    """Return whether a pending job leaves its node count open.

    squeue prints the most nodes of a range, and otherwise its estimate for both: the fewest that suffice, and one
    before the first try. Slurm refuses a fixed count that no nodes suffice for.
    """
    # Of a job whose required nodes are reserved, the number of these is shown as the most.
    is_estimate = record.nodes_open is False and 0 < len(record.required_nodes) == record.nodes_max
    if record.nodes_open is not None and not is_estimate:
        return record.nodes_open
    if nodes_min > 1 or record.nodes_max > max(1, record.nodes_shown):
        return False
    if record.priority == 0 and record.eligible_time is None:
        # Slurm checks the request of a job submitted with --hold, and so its estimate, at the release.
        return True
    times = {GpuScope.JOB: 1, GpuScope.TASK: record.tasks}
    asked = (
        sum(gpu.count for gpu in gpu_counts(requested(record.requests.get(scope, ())))) * factor
        for scope, factor in times.items()
    )
    return record.nodes_shown > 1 or max(asked) > most_gpus


def _allocation(record: JobRecord, gang: GangRequest, nodes_by_name: Mapping[str, Node]) -> Allocation:
    return Allocation(nodes=record.nodes, gpus=_allocated_gpus(record, gang, nodes_by_name))


def _allocated_gpus(record: JobRecord, gang: GangRequest, nodes_by_name: Mapping[str, Node]) -> tuple[GpuCount, ...]:
    """Return the GPUs a started job holds, counted by Slurm or else worked out from its request."""
    pools = [pool for name in record.nodes if name in nodes_by_name for pool in nodes_by_name[name].gpus]
    whole = Counter[str | None]()
    for pool in pools:
        whole[pool.gpu_type] += pool.total
    if record.tres.gpus is not None:
        return _typed(record.tres.gpus, whole)
    if record.exclusive:
        return counts_of(whole)
    match gang.scope if gang.gpus_known else None:
        case GpuScope.JOB:
            factor = 1
        case GpuScope.NODE:
            factor = len(record.nodes)
        case GpuScope.TASK:
            factor = gang.tasks
        case GpuScope.SOCKET | None:
            return ()
    asked = gang.counts(gang.scope) if gang.scope else ()
    return _typed((GpuCount(gpu_type=gpu.gpu_type, count=gpu.count * factor) for gpu in asked), whole)


def _typed(counts: Iterable[GpuCount], whole: Mapping[str | None, int]) -> tuple[GpuCount, ...]:
    """Fill in the type of untyped GPUs where the allocated nodes have exactly one."""
    only = next(iter(whole)) if len(whole) == 1 else None
    totals = Counter[str | None]()
    for gpu in counts:
        totals[gpu.gpu_type or only] += gpu.count
    return counts_of(totals)


def _state(word: str) -> JobState:
    """Return the state of a job that has not ended; raises `DecodeError` for a word that is not known."""
    if word not in _STATES:
        raise DecodeError(f"its state is {printable(word, 40) or 'empty'}, which is not known")
    return _STATES[word]
