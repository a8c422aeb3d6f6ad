"""Applies and reverts changes as `apply` and `revert` do, for commands and live views, and publishes what was done."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from advisor.apply.applier import Applier, Wanted
from advisor.apply.gate import OpenGate
from advisor.apply.step import Reconciled
from advisor.backends.actuator import CHANGED_MEANWHILE, NOT_PENDING, NOT_RUNNING, ScontrolActuator
from advisor.backends.cluster_choice import chosen_cluster
from advisor.backends.commands import apply_argv
from advisor.backends.named_jobs import NamedJobs
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.submit_lines import read_submitted
from advisor.clock import SystemClock
from advisor.domain.actions import Action, exchanged_with
from advisor.domain.job import Job
from advisor.domain.lease import Lease, LeaseState
from advisor.domain.mode import EVERYTHING
from advisor.domain.plan import Outcome, Receipt, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import plural
from advisor.errors import AdvisorError, DecodeError, JournalError, JournalFullError, SlurmError, SlurmRefusedError
from advisor.journal import opened, opened_full
from advisor.planning.observing import observed
from advisor.planning.strays import Stray, strays
from advisor.site.plan_trials import trials_by
from advisor.site.rights import rights
from advisor.site.site_gate import RoundDeadline, SiteGate
from advisor.view.documents import SkippedDocument, shell, skipped
from advisor.view.table_layout import TableForm
from advisor.watch.planned import cycle_of
from advisor.watch.queue_source import open_queue
from advisor.watch.reading import Reading, journal_file

# How long to wait for a round of the daemon, or another command, to release the journal.
LOCK_WAIT_S: Final = 15.0
COLUMNS = (
    "job_id", "lever", "done", "outcome", "text", "command", "user", "name", "account", "partition", "job_ids",
)  # fmt: skip
FORM: Final = TableForm(
    whole=("job_id", "lever", "done", "outcome", "command", "job_ids"),
    folded=("text",),
    omissible=("job_ids", "command", "partition", "account", "name"),
)
# Strays that a line names.
MOST_NAMED: Final = 20
UNSETTLED: Final = "it can still take effect: run this again in a few minutes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneDocument:
    """What `apply` or `revert` did with a change, as published; `outcome` is None for one that was not sent.

    `command` is what was sent or would revert it, None if nothing does. The name, user, account and partition are ""
    for a job that is gone.
    """

    job_id: int
    job_ids: list[int]
    lever: str
    done: str
    outcome: str | None = None
    text: str
    before: object
    after: object
    command: list[str] | None
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayDocument:
    """A change that carries our mark and that the journal does not know, as published."""

    job_id: int
    lever: str
    text: str


class Selection(Protocol):
    """The jobs that get new changes."""

    def keeps(self, job: Job, snapshot: Snapshot) -> bool:
        """Return whether a job is selected."""

    def check(self, snapshot: Snapshot) -> None:
        """Raise `ConfigError` if the selection names what the cluster does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenJobs:
    """The jobs with these ids."""

    job_ids: frozenset[int]

    def keeps(self, job: Job, snapshot: Snapshot) -> bool:  # noqa: ARG002  (the protocol's)
        """Return whether a job is one of them."""
        return job.job_id in self.job_ids

    def check(self, snapshot: Snapshot) -> None:
        """Accept any id: a job can have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesMade:
    """What was done: the changes as published, the jobs left alone, and what went wrong, if anything did.

    `seen` is the snapshot that it rests on, read from `source`. `strays` are the changes that the journal does not
    know; None if they were not looked for.
    """

    seen: Snapshot
    source: str
    rows: list[DoneDocument]
    left_alone: list[SkippedDocument]
    fault: AdvisorError | None
    strays: tuple[Stray, ...] | None = None

    def raise_fault(self) -> None:
        """Raise the `AdvisorError` that says what went wrong, if anything did."""
        if self.fault is not None:
            raise self.fault


def apply_changes(reading: Reading, journal: Path | None, wanted: Selection) -> ChangesMade:
    """Revert what is due, then apply what is recommended for the selected jobs.

    If the queue cannot be read, or the disk of the journal is full, what is due is reverted all the same.
    """
    try:
        with live_applier(reading, journal, wanted.keeps) as applier:
            seen = applier.source.snapshot()
            wanted.check(seen)
            step = applier.step(seen)
            source = applier.source.name
    except (SlurmError, DecodeError, JournalFullError) as err:
        return _due_reverted(reading, journal, err)
    record, cluster = step.record, reading.cluster
    rows = [
        *reconciled_rows(step.reconciled, cluster),
        *(receipt_row("applied", receipt, cluster) for receipt in step.applied),
        *(put_off_row("held_back", change, cluster) for change in step.held_back),
        *(refused_row(change, cluster) for change in record.judged if change.refused_by is not None),
    ]
    return ChangesMade(
        seen=record.snapshot,
        source=source,
        rows=with_jobs(rows, record.snapshot),
        left_alone=skipped(record),
        fault=refusal_of((*step.reconciled.taken_back, *step.applied)),
    )


def revert_changes(reading: Reading, journal: Path | None, job_ids: frozenset[int] | None) -> ChangesMade:
    """Revert the changes to some jobs, None for all, due or not, wherever a job still holds the value that was set.

    Changes that the journal does not know are looked for, and not reverted.
    """
    try:
        seen, reconciled, left, found = _reverted(reading, journal, job_ids, full=False)
    except JournalFullError:
        seen, reconciled, left, found = _reverted(reading, journal, job_ids, full=True)
    cluster = reading.cluster
    rows = [
        *(receipt_row("taken_back", receipt, cluster) for receipt in reconciled.taken_back),
        *(
            lease_row("hands_off", lease, CHANGED_MEANWHILE, cluster)
            for lease in left
            if lease.state is LeaseState.HANDS_OFF
        ),
        *(lease_row("unsettled", lease, UNSETTLED, cluster) for lease in left if lease.state is LeaseState.INTENDED),
    ]
    return ChangesMade(
        seen=seen,
        source=seen.source,
        rows=with_jobs(rows, seen),
        left_alone=[],
        fault=refusal_of(reconciled.taken_back) or _unknown(found),
        strays=found,
    )


def revert_strays(reading: Reading, journal: Path | None, job_ids: frozenset[int] | None) -> ChangesMade:
    """Revert the nice values that carry our mark and that the journal does not know, on some jobs.

    None is for all jobs with a nice below 0, which no user can set.
    """
    with live_applier(reading, journal, gated=False) as applier:
        seen = _read(applier, job_ids)
        found = strays_in(reading, seen, applier.journal.leases())
        chosen = [stray for stray in found if stray.is_lift or job_ids is not None]
        reconciled = applier.revert_strays(seen, [stray.action for stray in chosen if stray.action is not None])
    left = tuple(stray for stray in found if stray not in chosen)
    return ChangesMade(
        seen=seen,
        source=seen.source,
        rows=with_jobs(reconciled_rows(reconciled, reading.cluster), seen),
        left_alone=[],
        fault=refusal_of(reconciled.taken_back),
        strays=left,
    )


def strays_in(reading: Reading, seen: Snapshot, leases: Collection[Lease]) -> tuple[Stray, ...]:
    """Return the nice values of pending jobs that carry our mark and of which the journal knows no change."""
    found = strays(seen, leases)
    if not found:
        return ()
    commands = SlurmCommands(
        timeout_s=reading.timeout_of(reading.load_config()), cluster=chosen_cluster(reading.cluster, os.environ)
    )
    try:
        submitted = read_submitted(commands, [stray.job_id for stray in found])
    except AdvisorError:
        # Without accounting the mark alone tells.
        return found
    return tuple(stray for stray in strays(seen, leases, submitted) if stray.action is not None)


@contextmanager
def live_applier(
    reading: Reading, journal: Path | None, wanted: Wanted | None = None, *, gated: bool = True, full: bool = False
) -> Iterator[Applier]:
    """Open an applier on the cluster that the options name, with the journal under its lock.

    What a person reverts is not `gated`: it is sent in a pause, too. A `full` journal can only revert.
    """
    settings = reading.load_config()
    timeout_s = reading.timeout_of(settings)
    commands = SlurmCommands(timeout_s=timeout_s, cluster=chosen_cluster(reading.cluster, os.environ))
    gate = SiteGate(
        runtime_folder=Path(settings.daemon.runtime_folder),
        modes=EVERYTHING,
        patience=RoundDeadline(),
        checks=rights(commands),
    )
    file = journal_file(settings, journal)
    with opened_full(file, wait_s=LOCK_WAIT_S) if full else opened(file, wait_s=LOCK_WAIT_S) as held:
        yield Applier(
            source=open_queue(reading, settings),
            actuator=ScontrolActuator(commands),
            cycle=replace(cycle_of(reading, settings), trial=trials_by(settings.planning)),
            named=NamedJobs(commands, SystemClock(), SiteReader(commands, SystemClock())),
            journal=held,
            observe=observed,
            wanted=wanted,
            gate=gate if gated else OpenGate(),
        )


def receipt_row(done: str, receipt: Receipt, cluster: str | None) -> DoneDocument:
    """Return the receipt of a change that was sent, as published."""
    return replace(_row(done, receipt.action, receipt.text, cluster), outcome=str(receipt.outcome))


def refused_row(change: Recommendation, cluster: str | None) -> DoneDocument:
    """Return a change that a rule of ours refused, as published."""
    return _row("refused", change.action, change.refused_by or "", cluster)


def put_off_row(done: str, put_off: Receipt, cluster: str | None) -> DoneDocument:
    """Return a change that must not be sent now, as published."""
    return _row(done, put_off.action, put_off.text, cluster)


def lease_row(done: str, lease: Lease, text: str, cluster: str | None) -> DoneDocument:
    """Return a change that was left as it is, as published, with the command that would revert it, if any."""
    row = _row(done, lease.undo, text, cluster)
    return row if lease.action.can_be_undone else replace(row, command=None)


def reconciled_rows(reconciled: Reconciled, cluster: str | None) -> list[DoneDocument]:
    """Return the changes that were reverted, overruled or postponed, as published."""
    return [
        *(receipt_row("taken_back", receipt, cluster) for receipt in reconciled.taken_back),
        *(lease_row("hands_off", lease, CHANGED_MEANWHILE, cluster) for lease in reconciled.overruled),
        *(put_off_row("put_off", change, cluster) for change in reconciled.put_off),
    ]


def stray_documents(found: Iterable[Stray] | None) -> list[StrayDocument] | None:
    """Return changes that the journal does not know as published; None if they were not looked for."""
    if found is None:
        return None
    return [StrayDocument(job_id=stray.job_id, lever=str(stray.lever), text=stray.text) for stray in found]


def with_jobs(rows: Iterable[DoneDocument], seen: Snapshot) -> list[DoneDocument]:
    """Return published changes with the name, user, account and partition of their jobs; "" for a job that is gone."""
    return [_with_job(row, seen.jobs_by_id.get(row.job_id)) for row in rows]


def fields_of(row: DoneDocument) -> list[str]:
    """Return a published change as the fields of a line."""
    spelled = {"command": shell(row.command or []), "job_ids": ",".join(map(str, row.job_ids))}
    return [spelled.get(name, str(getattr(row, name) or "")) for name in COLUMNS]


def refusal_of(receipts: Iterable[Receipt]) -> SlurmRefusedError | None:
    """Return the error if Slurm refused a change, unless the job started or was changed meanwhile."""
    sent = list(receipts)
    refused = [
        receipt
        for receipt in sent
        if receipt.outcome is Outcome.FAILED and receipt.text not in (NOT_PENDING, NOT_RUNNING, CHANGED_MEANWHILE)
    ]
    if not refused:
        return None
    return SlurmRefusedError(
        f"{len(refused)} of {plural(len(sent), 'change')} failed, the first on job "
        f"{refused[0].action.job_id}: {refused[0].text}"
    )


def _due_reverted(reading: Reading, journal: Path | None, fault: AdvisorError) -> ChangesMade:
    """Revert what is due without a cycle, which failed; raises the fault if nothing was due."""
    try:
        with live_applier(reading, journal, full=isinstance(fault, JournalFullError)) as applier:
            if not applier.journal.leases():
                raise fault
            seen = applier.leased()
            reconciled = applier.revert_due(seen)
    except AdvisorError as err:
        if err is fault:
            raise
        raise AdvisorError(f"{fault}; what is due, if anything, was not reverted: {err}") from fault
    if reconciled == Reconciled():
        raise fault
    rows = with_jobs(reconciled_rows(reconciled, reading.cluster), seen)
    return ChangesMade(
        seen=seen,
        source=seen.source,
        rows=rows,
        left_alone=[],
        fault=AdvisorError(f"{fault}; {_in_words(reconciled)}"),
    )


def _with_job(row: DoneDocument, job: Job | None) -> DoneDocument:
    if job is None:
        return row
    return replace(row, name=job.name, user=job.user, account=job.account, partition=",".join(job.partitions))


def _in_words(reconciled: Reconciled) -> str:
    reverted = sum(1 for receipt in reconciled.taken_back if receipt.outcome is not Outcome.FAILED)
    due = len(reconciled.taken_back) + len(reconciled.put_off)
    return f"reverted {reverted} of {plural(due, 'due change')}"


def _unknown(found: Collection[Stray] | None) -> JournalError | None:
    """Return the error if jobs hold a nice of ours that the journal does not know and no user can have set."""
    lifts = [stray.job_id for stray in found or () if stray.is_lift]
    if not lifts:
        return None
    jobs = ", ".join(map(str, lifts[:MOST_NAMED])) + (", ..." if len(lifts) > MOST_NAMED else "")
    return JournalError(
        f"{plural(len(lifts), 'lift')} on pending jobs that the journal does not know ({jobs}): "
        "`sadvise revert --strays` takes back what carries the mark of sadvise"
    )


def _read(applier: Applier, job_ids: frozenset[int] | None) -> Snapshot:
    """Read some jobs, or the queue as a whole."""
    if job_ids is None or applier.named is None:
        return applier.source.snapshot()
    return applier.named.snapshot_of(job_ids)


def _reverted(
    reading: Reading, journal: Path | None, job_ids: frozenset[int] | None, *, full: bool
) -> tuple[Snapshot, Reconciled, list[Lease], tuple[Stray, ...] | None]:
    with live_applier(reading, journal, gated=False, full=full) as applier:
        seen = applier.leased()
        reconciled = applier.revert(seen, job_ids)
        left = [lease for lease in applier.journal.leases() if job_ids is None or lease.job_id in job_ids]
        try:
            found = strays_in(reading, _read(applier, job_ids), applier.journal.leases())
        except (SlurmError, DecodeError):
            found = None
        return seen, reconciled, left, found


def _row(done: str, action: Action, text: str, cluster: str | None) -> DoneDocument:
    values, other = asdict(action), exchanged_with(action)
    return DoneDocument(
        job_id=action.job_id,
        job_ids=[action.job_id, *([] if other is None else [other])],
        lever=str(action.lever),
        done=done,
        text=text,
        before=values["before"],
        after=values["after"],
        command=apply_argv(action, cluster),
    )
