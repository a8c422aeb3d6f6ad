"""Sums up a cluster for people: GPUs and nodes, the line with forecast starts, the advice, and changes in effect."""

from collections.abc import Collection, Iterator

from advisor.diagnose.survey import overview
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts, Interval
from advisor.domain.job import Job, tasks_of
from advisor.domain.lease import Lease, Purposes
from advisor.domain.overview import Overview
from advisor.domain.plan import Kind
from advisor.domain.snapshot import Snapshot
from advisor.features.queue import expected_limit_s, highest_tier, slurms_place, tier_by_partition
from advisor.site.status_words import Overlook
from advisor.view.documents import ChangeDocument, change_document, document_of
from advisor.view.lease_report import HeldChangeDocument, held_change
from advisor.watch.planned import Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """The GPUs of one type on a node; `in_use` is None if it is not known, `leaf` is "" without switches."""

    name: str
    leaf: str
    gpu_type: str
    gpus: int
    in_use: int | None
    state: str
    is_usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A pending GPU job in the order in which Slurm considers it, `place` from 1.

    `gpus` are those of one task, None if the request does not determine them; `gpu_type` is "" for any. `start` is
    when it is forecast to start, in seconds since the epoch, `slurms_start_time` the start that Slurm expects. `advice`
    names the changes recommended for it, `in_effect` the fields that sadvise has set. `left_alone_by` is the rule by
    which it is not changed, "" for none.
    """

    place: int
    job_id: int
    name: str
    user: str
    account: str
    partition: str
    gpus: int | None
    gpu_type: str
    tasks: int
    wait_s: float
    limit_s: float | None
    run_s: Interval | None
    start: Interval | None
    slurms_start_time: float | None
    reason: str
    advice: tuple[Kind, ...]
    in_effect: tuple[str, ...]
    left_alone_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInEffect(HeldChangeDocument):
    """A change of sadvise that a pending job holds, with whose job it is; not reverted where `due_time` is None."""

    job_id: int
    user: str
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster as people see it at `taken_at`; `source` is where it was read from.

    `advice` holds the recommendations as `recommend --json` publishes them, the largest expected gain first.
    `in_effect` holds the changes that sadvise made and has not reverted, newest first. `daemon` is None for a file or
    the demo. `notes` say what could not be read. `planned` is what all this was made from.
    """

    cluster: str
    slurm_version: str
    taken_at: float
    source: str
    overview: Overview
    nodes: tuple[NodeUse, ...]
    line: tuple[WaitingJob, ...]
    advice: tuple[ChangeDocument, ...]
    in_effect: tuple[ChangeInEffect, ...]
    daemon: Overlook | None
    notes: tuple[str, ...]
    planned: Planned


def cluster_view(
    planned: Planned, starts: Forecasts, *, source: str, cluster: str | None, daemon: Overlook | None
) -> ClusterView:
    """Return the view of a planned cycle; `starts` holds the forecasts of its pending GPU jobs, with their starts.

    `cluster` is the one that commands name with -M, None for that of this host.
    """
    record, snapshot = planned.record, planned.record.snapshot
    config = snapshot.config
    rows = [change_document(change, snapshot, cluster) for change in record.recommendations]
    leases = sorted(planned.memory.leases, key=lambda lease: (-lease.applied_time, lease.job_id, lease.lever))
    return ClusterView(
        cluster=config.cluster,
        slurm_version=config.slurm_version,
        taken_at=snapshot.taken_at,
        source=source,
        overview=overview(snapshot),
        nodes=tuple(_nodes(snapshot)),
        line=tuple(_line(planned, starts)),
        advice=tuple(sorted(rows, key=lambda row: row.expected.jct_saved_expected_s, reverse=True)),
        in_effect=tuple(_in_effect(lease, planned.remembered.purposes) for lease in leases if lease.is_in_effect),
        daemon=daemon,
        notes=tuple(note for note in (planned.remembered.note, *snapshot.unread, *record.forecasts.notes) if note),
        planned=planned,
    )


def waiting_gpu_jobs(snapshot: Snapshot) -> Collection[int]:
    """Return the ids of the pending GPU jobs, whose starts are forecast."""
    return [job.job_id for job in snapshot.pending_gpu_jobs]


def _nodes(snapshot: Snapshot) -> Iterator[NodeUse]:
    leaf_by_node = {name: switch.name for switch in snapshot.topology.leaves for name in switch.nodes}
    for node in snapshot.nodes:
        for pool in node.gpus:
            yield NodeUse(
                name=node.name,
                leaf=leaf_by_node.get(node.name, ""),
                gpu_type=pool.gpu_type or "gpu",
                gpus=pool.total,
                in_use=pool.used,
                state="+".join((node.state, *node.flags)),
                is_usable=node.is_usable,
            )


def _line(planned: Planned, starts: Forecasts) -> Iterator[WaitingJob]:
    record, snapshot = planned.record, planned.record.snapshot
    tiers = tier_by_partition(snapshot)
    kinds_by_job: dict[int, tuple[Kind, ...]] = {}
    for change in record.recommendations:
        kinds_by_job[change.job_id] = (*kinds_by_job.get(change.job_id, ()), change.kind)
    levers_by_job: dict[int, tuple[str, ...]] = {}
    for lease in planned.memory.leases:
        if lease.is_in_effect:
            levers_by_job[lease.job_id] = (*levers_by_job.get(lease.job_id, ()), str(lease.lever))

    def place(job: Job) -> tuple[int, int, float, int]:
        return slurms_place(job, highest_tier(job, tiers))

    for number, job in enumerate(sorted(snapshot.pending_gpu_jobs, key=place), start=1):
        gpus = job.gang.gpus_by_type
        forecast, now = starts.of(job.job_id), snapshot.taken_at
        yield WaitingJob(
            place=number,
            job_id=job.job_id,
            name=job.name,
            user=job.user,
            account=job.account,
            partition=",".join(job.partitions),
            gpus=None if gpus is None else sum(gpus.values()),
            gpu_type=",".join(sorted(name or "" for name in gpus or {})),
            tasks=tasks_of(job),
            wait_s=job.queueing_delay_s(now),
            limit_s=expected_limit_s(job, snapshot),
            run_s=None if forecast.run_time is None else forecast.run_time.interval_s,
            start=None if forecast.start_s is None else _instants(forecast.start_s, now),
            slurms_start_time=job.start_time,
            reason=job.reason,
            advice=kinds_by_job.get(job.job_id, ()),
            in_effect=levers_by_job.get(job.job_id, ()),
            left_alone_by=record.left_alone.get(job.job_id, ""),
        )


def _in_effect(lease: Lease, purposes: Purposes) -> ChangeInEffect:
    """Return a change in effect as published, with whose job holds it."""
    change = held_change(lease, purposes.get((lease.job_id, lease.lever)))
    return document_of(ChangeInEffect, change, job_id=lease.job_id, user=lease.user, account=lease.account)


def _instants(in_s: Interval, now: float) -> Interval:
    return Interval(low=now + in_s.low, median=now + in_s.median, high=now + in_s.high)
