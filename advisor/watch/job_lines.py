"""Words why a job is not starting, from a cycle that was planned already; asks Slurm nothing."""

from collections.abc import Iterator
from dataclasses import replace

from advisor.config import Config
from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.planning.case import Case
from advisor.planning.causes import diagnose
from advisor.planning.turn import turn_of
from advisor.view.documents import shell
from advisor.view.explanations import Explanation, explanation
from advisor.view.forecast_report import lines as forecast_lines
from advisor.view.lease_report import change_sentence, changes_of
from advisor.view.terminal import instant
from advisor.view.turns import turn_sentences
from advisor.watch.cluster_view import ClusterView


def job_lines(view: ClusterView, config: Config, job_id: int) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about a job of a view; nothing if it is not in the queue any more."""
    planned = view.planned
    record, snapshot = planned.record, planned.record.snapshot
    job = snapshot.jobs_by_id.get(job_id)
    if job is None:
        return
    yield "job", f"{job.job_id} {job.name}, user {job.user}, {job.state}, Slurm says {job.reason or '-'}"
    diagnosis = diagnose(snapshot, job_id)
    yield from _causes(explanation(replace(diagnosis, job=with_own_nice(job, planned.memory.leases))))
    if job.is_pending:
        case = Case(
            snapshot=snapshot,
            settings=config.planning,
            limits=config.guard,
            forecasts=record.forecasts.counted,
            memory=planned.memory,
        )
        yield from turn_sentences(turn_of(case, job), job.user)
    yield from forecast_lines(record, job)
    for row in view.advice:
        if job_id in row["job_ids"]:
            yield "advice", f"{row['kind']}: {row['text']}"
            yield "", shell(row["command"])
    if (rule := record.left_alone.get(job_id)) is not None:
        yield "advice", f"left alone by rule {rule} (docs/reasons.md)"
    for change in changes_of(job_id, planned.memory.leases, planned.purposes):
        yield "changed", f"since {instant(change['applied_time'])}: {change_sentence(change)}"


def with_own_nice(job: Job, leases: tuple[Lease, ...]) -> Job:
    """Return a job with the nice that its user gave it, to which the user can do something."""
    own = (lease.undo for lease in leases if lease.job_id == job.job_id and lease.is_in_effect)
    return replace(job, nice=next((undo.after for undo in own if isinstance(undo, SetNice)), job.nice))


def _causes(explained: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the obstacles with what would change them, the first one first."""
    for label, finding in (("because", explained.first), *(("also", further) for further in explained.further)):
        yield label, f"{finding.text} ({finding.cause})"
        for remedy in finding.remedies:
            yield "change", remedy
    if explained.disagreement is not None:
        yield "note", explained.disagreement
    for text in explained.unread:
        yield "unread", text
