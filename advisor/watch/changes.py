"""Applies and reverts changes as `apply` and `revert` do, for commands and live views, and publishes what was done."""

import getpass
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final, Protocol

from advisor.apply.applier import Applier, Wanted
from advisor.apply.step import OpenGate, Reconciled
from advisor.backends.actuator import CHANGED_MEANWHILE, NOT_PENDING, ScontrolActuator
from advisor.backends.commands import apply_argv, chosen_cluster
from advisor.backends.named_jobs import NamedJobs
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.submit_lines import read_submitted
from advisor.clock import SystemClock
from advisor.domain.actions import Action
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Lease, LeaseState
from advisor.domain.mode import EVERYTHING
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import plural
from advisor.errors import AdvisorError, DecodeError, JournalError, JournalFullError, SlurmError, SlurmRefusedError
from advisor.journal import SqliteJournal, opened, opened_full
from advisor.planning.observing import observed
from advisor.planning.strays import Stray, strays
from advisor.site.adoption import drop
from advisor.site.plan_trials import trials_by
from advisor.site.site_gate import RoundDeadline, SiteGate, rights
from advisor.view.documents import SkippedDocument, job_ids, shell, skipped
from advisor.view.table_layout import TableForm
from advisor.watch.planned import cycle_of
from advisor.watch.reading import Reading, journal_file, open_queue

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
    record = step.record
    made = ChangeRows(seen=record.snapshot, cluster=reading.cluster)
    return ChangesMade(
        seen=record.snapshot,
        source=source,
        rows=[
            *made.reconciled(step.reconciled),
            *made.sent("applied", step.applied),
            *made.put_off("held_back", step.held_back),
            *(made.row("refused", one.action, one.refused_by) for one in record.judged if one.refused_by is not None),
        ],
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
    made = ChangeRows(seen=seen, cluster=reading.cluster)
    overruled, unsettled = (
        [lease for lease in left if lease.state is state] for state in (LeaseState.HANDS_OFF, LeaseState.INTENDED)
    )
    return ChangesMade(
        seen=seen,
        source=seen.source,
        rows=[
            *made.sent("taken_back", reconciled.taken_back),
            *made.left("hands_off", overruled, CHANGED_MEANWHILE),
            *made.left("unsettled", unsettled, UNSETTLED),
        ],
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
        rows=ChangeRows(seen=seen, cluster=reading.cluster).reconciled(reconciled),
        left_alone=[],
        fault=refusal_of(reconciled.taken_back),
        strays=left,
    )


def revert_settings(reading: Reading, journal: Path | None) -> str:
    """Return to the configured settings where the daemon took up others by itself, and say what was done."""
    config = reading.load_config()
    path = journal_file(config, journal)
    # Nothing is made where there is no journal.
    SqliteJournal.read_only(path).close_file()
    with opened(path, wait_s=LOCK_WAIT_S) as held:
        if not drop(held, config, SystemClock().now(), by=getpass.getuser(), why="sadvise revert --settings"):
            return "those configured are in force"
    return "those configured, from the next round on; to keep them, take the preset out of daemon.tune_presets"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRows:
    """Publishes changes with what a snapshot shows of their jobs, and the commands for a cluster."""

    seen: Snapshot
    cluster: str | None

    def row(self, done: str, action: Action, text: str, outcome: str | None = None) -> DoneDocument:
        """Return a change as published; the name, user, account and partition are "" for a job that is gone."""
        values, job = asdict(action), self.seen.jobs_by_id.get(action.job_id)
        row = DoneDocument(
            job_id=action.job_id,
            job_ids=job_ids(action),
            lever=str(action.lever),
            done=done,
            outcome=outcome,
            text=text,
            before=values["before"],
            after=values["after"],
            command=apply_argv(action, self.cluster),
        )
        if job is None:
            return row
        return replace(row, name=job.name, user=job.user, account=job.account, partition=",".join(job.partitions))

    def sent(self, done: str, receipts: Iterable[Receipt]) -> list[DoneDocument]:
        """Return the receipts of changes that were sent."""
        return [self.row(done, receipt.action, receipt.text, str(receipt.outcome)) for receipt in receipts]

    def put_off(self, done: str, receipts: Iterable[Receipt]) -> list[DoneDocument]:
        """Return changes that must not be sent now."""
        return [self.row(done, receipt.action, receipt.text) for receipt in receipts]

    def left(self, done: str, leases: Iterable[Lease], text: str) -> list[DoneDocument]:
        """Return changes that were left as they are, with the command that would revert each."""
        return [self.row(done, lease.undo, text) for lease in leases]

    def reconciled(self, reconciled: Reconciled) -> list[DoneDocument]:
        """Return the changes that were reverted, overruled or postponed."""
        return [
            *self.sent("taken_back", reconciled.taken_back),
            *self.left("hands_off", reconciled.overruled, CHANGED_MEANWHILE),
            *self.put_off("put_off", reconciled.put_off),
        ]


def stray_documents(found: Iterable[Stray] | None) -> list[StrayDocument] | None:
    """Return changes that the journal does not know as published; None if they were not looked for."""
    if found is None:
        return None
    return [StrayDocument(job_id=stray.job_id, lever=str(stray.lever), text=stray.text) for stray in found]


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
        if receipt.outcome is Outcome.FAILED and receipt.text not in (NOT_PENDING, CHANGED_MEANWHILE)
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
    return ChangesMade(
        seen=seen,
        source=seen.source,
        rows=ChangeRows(seen=seen, cluster=reading.cluster).reconciled(reconciled),
        left_alone=[],
        fault=AdvisorError(f"{fault}; {_in_words(reconciled)}"),
    )


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
