"""Answers for one job, for people and for programs: why it is not starting, where it stands, what advice does to it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from advisor.backends.commands import apply_argv
from advisor.config import Config
from advisor.diagnose.causes import diagnose
from advisor.diagnose.starving import Passing, passing
from advisor.diagnose.turn import JobTurn, turn_of
from advisor.domain.actions import SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import CONTENTION
from advisor.domain.forecast import ForecastBasis
from advisor.domain.idle_gpus import IdleJob
from advisor.domain.job import Job, JobHints
from advisor.domain.lease import Lease
from advisor.domain.particulars import NOTHING_ASKED, Particulars
from advisor.domain.snapshot import Snapshot
from advisor.domain.waiting_gangs import StarvedGang
from advisor.planning.case import Case
from advisor.planning.pins import waits_begun
from advisor.planning.plan_trial import is_tried
from advisor.planning.timers import TimerOut, timers_out
from advisor.site.status_file import DaemonStatus
from advisor.view.documents import TimerDocument, document_of, shell, timer_document
from advisor.view.explanations import Explanation, Obstacle, explanation, since_sentence
from advisor.view.gang_words import starved_lines
from advisor.view.idle_words import job_sentence
from advisor.view.lease_report import (
    EndedChangeDocument,
    HeldChangeDocument,
    change_sentence,
    changes_of,
    ended_change_sentence,
    ended_changes_of,
)
from advisor.view.prospects import (
    ForecastDocument,
    TurnDocument,
    advice_sentences,
    forecast_document,
    forecast_lines,
    place_sentences,
    turn_document,
)
from advisor.view.request_words import evidence_words, hint_sentences
from advisor.view.rule_words import rule_sentence
from advisor.view.sentences import sentence, timer_out_sentence
from advisor.view.terminal import instant, title
from advisor.watch.planned import Planned

Labelled = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDocument(Explanation):
    """All that is known of a job, as published: why it waits, its forecasts, its turn, and what advice does to it."""

    forecast: ForecastDocument
    hints: JobHints
    left_alone_by: str | None
    advice: tuple[str, ...]
    changes: Sequence[HeldChangeDocument]
    ended_changes: Sequence[EndedChangeDocument]
    turn: TurnDocument | None
    timers: tuple[TimerDocument, ...]
    idle: IdleJob | None
    starved: StarvedGang | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """All that is known of a job; `changes` are in effect, `ended` are not any more.

    `left_alone` names the rule by which it is not changed, and says what to do; "" for none. `idle` is what a running
    job holds idle, in `idle_words`. A gang that is `starved` is passed as `passed` says.
    """

    explained: Explanation
    planned: Planned
    job: Job
    bases: Sequence[ForecastBasis]
    turn: JobTurn | None
    changes: Sequence[HeldChangeDocument] = field(default_factory=list)
    ended: Sequence[EndedChangeDocument] = field(default_factory=list)
    timers: Sequence[TimerOut] = ()
    left_alone: str = ""
    idle: IdleJob | None = None
    idle_words: str = ""
    starved: StarvedGang | None = None
    passed: Passing | None = None

    def document(self) -> JobDocument:
        """Return the answer as published."""
        record, job = self.planned.record, self.job
        note = self.planned.remembered.note
        return document_of(
            JobDocument,
            self.explained,
            forecast=forecast_document(record.forecasts, job.job_id, self.bases),
            hints=job.hints,
            left_alone_by=record.left_alone.get(job.job_id),
            advice=tuple(str(change.kind) for change in record.recommendations if change.job_id == job.job_id),
            changes=self.changes,
            ended_changes=self.ended,
            turn=None if self.turn is None else turn_document(self.turn, job.user),
            timers=tuple(map(timer_document, self.timers)),
            idle=self.idle,
            starved=self.starved,
            notes=(note,) if note else (),
        )

    def groups(self, cluster: str | None, source: str, *, is_long: bool = False) -> list[list[Labelled]]:
        """Return labels and sentences for people, the causes first; groups are set off from each other."""
        groups = (
            self._first(is_long=is_long),
            self._further(is_long=is_long),
            self._standing(source),
            self._forecasts(is_long=is_long),
            self._advice(cluster),
            self._unread(),
        )
        return [lines for lines in map(list, groups) if lines]

    @property
    def background(self) -> tuple[Labelled, ...]:
        """Labels and sentences on its turn, its forecasts, its timers, and the rule that leaves it alone."""
        return tuple(self._background())

    def _background(self) -> Iterator[Labelled]:
        if self.turn is not None:
            yield from place_sentences(self.turn)
            yield from advice_sentences(self.turn, self.job.user)
        yield from forecast_lines(self.planned.record, self.job)
        yield from self._timers()
        yield from self._idle()
        yield from self._starved()
        if self.left_alone:
            yield "advice", f"left alone by rule {self.left_alone}"

    def _first(self, *, is_long: bool) -> Iterator[Labelled]:
        first = self.explained.first
        yield "why", f"{first.text} ({first.cause})"
        yield from self._idle()
        if self.job.is_pending:
            yield "since", since_sentence(self.job, self.planned.record.snapshot.taken_at)
        yield from _remedies(first, is_long=is_long)
        yield from self._starved()

    def _further(self, *, is_long: bool) -> Iterator[Labelled]:
        # What helps a job to its turn does nothing for one that Slurm does not consider.
        competes = self.explained.first.cause in CONTENTION
        for finding in self.explained.further:
            yield "also", f"{finding.text} ({finding.cause})"
            if is_long or competes:
                yield from _remedies(finding, is_long=is_long)
        if self.explained.disagreement is not None:
            yield "note", self.explained.disagreement

    def _standing(self, source: str) -> Iterator[Labelled]:
        job = self.job
        yield "job", f"{job.job_id} {job.name}, user {job.user}, {job.state}, Slurm says {job.reason or '-'}"
        yield "seen", title(self.planned.record.snapshot, source)
        yield from hint_sentences(job.hints)
        if self.explained.share is not None:
            yield "share", self.explained.share
        if self.turn is not None:
            yield from place_sentences(self.turn)

    def _forecasts(self, *, is_long: bool) -> Iterator[Labelled]:
        return forecast_lines(self.planned.record, self.job, self.bases, is_long=is_long)

    def _advice(self, cluster: str | None) -> Iterator[Labelled]:
        for change in self.changes:
            yield "changed", f"since {instant(change.applied_time)}: {change_sentence(change)}"
        for ended in self.ended:
            span = f"from {instant(ended.applied_time)} to {instant(ended.ended_time)}"
            yield "was", f"{span}: {ended_change_sentence(ended)}"
        yield from self._timers()
        if self.turn is not None:
            yield from advice_sentences(self.turn, self.job.user)
        yield from self._next_advice(cluster)

    def _timers(self) -> Iterator[Labelled]:
        for timer_out in self.timers:
            yield "timer", f"since {instant(timer_out.began_time)}: {timer_out_sentence(timer_out)}"

    def _idle(self) -> Iterator[Labelled]:
        if self.idle_words:
            yield "idle", self.idle_words

    def _starved(self) -> Iterator[Labelled]:
        if self.starved is not None and self.passed is not None:
            yield from starved_lines(self.starved, self.passed, self.job, self.planned.record.snapshot.taken_at)

    def _next_advice(self, cluster: str | None) -> Iterator[Labelled]:
        record, job_id = self.planned.record, self.job.job_id
        advice = [change for change in record.recommendations if change.job_id == job_id]
        for change in advice:
            if_it_gains = "; sent only if all jobs gain in simulations, as `sadvise recommend` says"
            yield "advice", f"{change.kind}: {sentence(change)}{if_it_gains if is_tried(change) else ''}"
            yield "", shell(apply_argv(change.action, cluster))
        if self.left_alone:
            yield "advice", f"{'no other' if advice else 'none'}: left alone by rule {self.left_alone}"

    def _unread(self) -> Iterator[Labelled]:
        for text in self.explained.unread:
            yield "unread", text
        if self.planned.remembered.note:
            yield "note", self.planned.remembered.note


def _remedies(finding: Obstacle, *, is_long: bool) -> Iterator[Labelled]:
    for remedy in finding.remedies:
        yield "to do", remedy
    if is_long and finding.evidence:
        yield "", ", ".join(f"{name} {value}" for name, value in evidence_words(finding.evidence))


def job_answer(
    job: Job,
    seen: Snapshot,
    settings: Config,
    planned: Planned,
    bases: Sequence[ForecastBasis] = (),
    asked: Particulars | None = None,
    last: DaemonStatus | None = None,
) -> JobReport:
    """Return all that is known of a job; `asked` is what Slurm was asked about it beside the snapshot.

    `last` is the last round of its daemon.
    """
    look, gangs = (None, None) if last is None else (last.idle, last.gangs)
    idle = None if look is None or job.is_pending else look.of(job.job_id)
    gang = None if gangs is None or not job.is_pending else gangs.of(job.job_id)
    forecasts, memory = planned.record.forecasts.counted, planned.memory
    diagnosis = diagnose(seen, job.job_id, particulars=asked or NOTHING_ASKED)
    record = planned.record
    # A plan counts changes that are due as taken back; the job stands in the queue with them until then.
    case = (
        record.case_with(settings.planning, settings.guard)
        if record.snapshot is seen
        else Case(snapshot=seen, settings=settings.planning, limits=settings.guard, forecasts=forecasts, memory=memory)
    )
    begun = (
        tuple(lease for lease in waits_begun(case) if not lease.is_due(seen.taken_at)) if job.leaves_nodes_open else ()
    )
    timed = replace(memory, leases=(*memory.leases, *begun))
    return JobReport(
        explained=explanation(replace(diagnosis, job=_with_own_nice(job, memory.leases))),
        planned=planned,
        job=job,
        bases=bases,
        turn=turn_of(case, job) if job.is_pending else None,
        changes=changes_of(job.job_id, memory.leases, planned.remembered.purposes),
        ended=ended_changes_of(job.job_id, memory.leases),
        timers=timers_out(seen, job.job_id, settings.planning, settings.guard, forecasts, timed),
        left_alone=_left_alone(planned.record.left_alone.get(job.job_id), job, settings),
        idle=idle,
        idle_words="" if look is None or idle is None else job_sentence(idle, settings.utilisation, look.looked_time),
        starved=gang,
        passed=None if gang is None else passing(seen, job),
    )


def job_lines(planned: Planned, settings: Config, job_id: int) -> list[Labelled]:
    """Return labels and sentences about a job of a planned cycle; none if it is not in the queue any more."""
    snapshot = planned.record.snapshot
    job = snapshot.jobs_by_id.get(job_id)
    groups = [] if job is None else job_answer(job, snapshot, settings, planned).groups(None, snapshot.source)
    return [line for group in groups for line in group]


def _left_alone(rule: str | None, job: Job, settings: Config) -> str:
    """Return a rule with its sentence, which names the job in commands; "" without a rule."""
    if rule is None:
        return ""
    sentence = rule_sentence(rule, settings.guard, settings.planning)
    return f"{rule}: {sentence.replace('JOBID', str(job.job_id))}"


def _with_own_nice(job: Job, leases: Iterable[Lease]) -> Job:
    """Return a job with the nice that its user gave it, to which the user can do something."""
    own = (lease.undo for lease in leases if lease.job_id == job.job_id and lease.is_in_effect)
    return replace(job, nice=next((undo.after for undo in own if isinstance(undo, SetNice)), job.nice))
