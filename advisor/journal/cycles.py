"""The part of the journal that tells what each cycle saw, proposed and did."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from advisor import __version__
from advisor.apply.step import Reconciled, Step
from advisor.clock import Clock
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action
from advisor.domain.job import JobState
from advisor.domain.memory import NO_STATE, PolicyState
from advisor.domain.plan import Outcome, Receipt, Recommendation
from advisor.errors import JournalError
from advisor.journal.base import JournalBase
from advisor.journal.cycle_record import Recorded, Recorder, digest_of, outcome_of, recorded
from advisor.journal.file import DAMAGED
from advisor.journal.rows import action_of, action_text
from advisor.journal.views import Done, Looked, PastChange, PastCycle
from advisor.settings import JournalSettings
from advisor.view.sentences import sentence

_NOTHING_PROPOSED = "nothing was proposed"
_NOT_UNICODE = "a text of it is not Unicode"
_DONE_BY_OUTCOME = {
    Outcome.APPLIED: Done.APPLIED,
    Outcome.ALREADY_SO: Done.ALREADY_SO,
    Outcome.FAILED: Done.FAILED,
}
_Said = tuple[Action, Done, str]


class CycleTables(JournalBase):
    """Cycles, what they said and did about jobs, and records from which they can be planned again."""

    def __init__(self, path: Path, database: sqlite3.Connection, *, retention: JournalSettings, clock: Clock) -> None:
        super().__init__(path, database, retention=retention, clock=clock)
        self._recorder = Recorder()
        # What the last cycle proposed, and what it could not do: what stands is told once.
        self._proposed: frozenset[tuple[Action, str | None]] = frozenset()
        self._undone: frozenset[_Said] = frozenset()
        # Of the last cycle; None where it was not read yet.
        self._policy_state: PolicyState | None = None

    def record(self, record: CycleRecord, cycle: Cycle, *, whole: bool | None = None) -> int:
        """Write down a cycle and return its number; as a whole if `whole` says so.

        Where it says nothing, a cycle that proposed something is kept whole, and one that changed the policy's state.
        """
        if whole is None:
            whole = bool(record.judged) or record.policy_state != record.memory.policy_state
        changes = {(change.action, change.refused_by): change for change in record.judged}
        try:
            with self._writing():
                cycle_id = self._add_cycle(record)
                self._add_changes(
                    cycle_id,
                    record.snapshot.taken_at,
                    (_proposal(change) for key, change in changes.items() if key not in self._proposed),
                )
                if whole:
                    self._add_record(cycle_id, record, cycle)
                else:
                    self._say(cycle_id, _NOTHING_PROPOSED)
        except BaseException:
            self._recorder.forget()
            raise
        self._recorder.written()
        self._proposed = frozenset(changes)
        self._policy_state = record.policy_state
        return cycle_id

    def policy_state(self) -> PolicyState:
        """Return what the policy of the last cycle remembers; after a restart, of the last cycle kept whole."""
        if self._policy_state is None:
            try:
                self._policy_state = self.recorded().policy_state
            except JournalError:  # there is none, or it is damaged: the policy begins as new
                self._policy_state = NO_STATE
        return self._policy_state

    def receipts(self, cycle_id: int, step: Step) -> None:
        """Write down what was done in a cycle that is written down."""
        undone = frozenset((*_worded(step.held_back, Done.HELD_BACK), *_not_returned(step.reconciled)))
        said = [(receipt.action, _DONE_BY_OUTCOME[receipt.outcome], receipt.text) for receipt in step.applied]
        with self._writing():
            self._database.execute(
                "UPDATE cycles SET applied = ?, held_back = ? WHERE id = ?",
                (
                    sum(receipt.outcome is Outcome.APPLIED for receipt in step.applied),
                    len(step.held_back),
                    cycle_id,
                ),
            )
            self._add_changes(
                cycle_id,
                step.record.snapshot.taken_at,
                [
                    *_returned(step.reconciled),
                    *said,
                    *(each for each in _in_order(undone) if each not in self._undone),
                ],
            )
        self._undone = undone

    def returns(self, time: float, reconciled: Reconciled) -> None:
        """Write down what was taken back outside of a cycle: for a person, or by a daemon that ends."""
        with self._writing():
            self._add_changes(None, time, (*_returned(reconciled), *_in_order(_not_returned(reconciled))))

    def cycles(self, looked: Looked) -> tuple[PastCycle, ...]:
        """Return past cycles, newest first; of some jobs those that said or did something about them."""
        which, values = "", []
        if looked.job_ids is not None:
            which = f"AND cycles.id IN (SELECT cycle_id FROM changes WHERE {_of_jobs(looked.job_ids)}) "  # noqa: S608  (ours)
            values = list(looked.job_ids)
        with self._reading():
            rows = self._database.execute(
                "SELECT cycles.id AS cycle_id, taken_at, version, jobs, pending, proposed, recommended, left_alone, "  # noqa: S608  (ours)
                "applied, held_back, digest, note, coalesce(length(content), 0) AS record_bytes "
                "FROM cycles LEFT JOIN records ON records.cycle_id = cycles.id "
                f"WHERE taken_at > ? {which}ORDER BY cycles.id DESC LIMIT ?",
                (looked.since, *values, looked.most),
            )
            names = [column for column, *_ in rows.description]
            return tuple(PastCycle(**dict(zip(names, row, strict=True))) for row in rows.fetchall())

    def changes(self, looked: Looked) -> tuple[PastChange, ...]:
        """Return what was said and done about jobs, newest first."""
        which = "" if looked.job_ids is None else f"AND {_of_jobs(looked.job_ids)} "
        with self._reading():
            rows = self._database.execute(
                "SELECT cycle_id, time, job_id, lever, done, action, said FROM changes "  # noqa: S608  (ours)
                f"WHERE time > ? {which}ORDER BY id DESC LIMIT ?",
                (looked.since, *(looked.job_ids or ()), looked.most),
            )
            return tuple(
                PastChange(
                    cycle_id=cycle_id,
                    time=time,
                    job_id=job_id,
                    lever=lever,
                    done=Done(done),
                    action=action_of(lever, action),
                    said=said,
                )
                for cycle_id, time, job_id, lever, done, action, said in rows.fetchall()
            )

    def recorded(self, cycle_id: int | None = None) -> Recorded:
        """Return a whole cycle, the last one if none is named; raises `JournalError` where it is not there."""
        with self._reading():
            found = self._database.execute(
                "SELECT cycles.id, note, digest, frame FROM cycles LEFT JOIN records ON cycle_id = cycles.id "
                "WHERE CASE WHEN ? IS NULL THEN frame IS NOT NULL ELSE cycles.id = ? END "
                "ORDER BY cycles.id DESC LIMIT 1",
                (cycle_id, cycle_id),
            ).fetchone()
            if found is None:
                what = "no whole cycle is written down" if cycle_id is None else f"there is no cycle {cycle_id}"
                raise JournalError(f"{self._path}: {what}: `sadvise journal cycles` lists those there are")
            number, note, digest, frame = found
            if frame is None:
                why = note or "there was no room to keep it"
                raise JournalError(f"{self._path}: cycle {number} is not written down as a whole, for {why}")
            contents = self._database.execute(
                "SELECT content FROM records WHERE frame = ? AND cycle_id <= ? ORDER BY cycle_id", (frame, number)
            )
            whole = recorded(number, (content for (content,) in contents.fetchall()))
            if whole.digest != digest:
                raise JournalError(f"{self._path}: the record of cycle {number} {DAMAGED}")
            return whole

    def _add_cycle(self, record: CycleRecord) -> int:
        written = self._database.execute(
            "INSERT INTO cycles (taken_at, version, jobs, pending, proposed, recommended, left_alone, digest) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.snapshot.taken_at,
                __version__,
                len(record.snapshot.jobs),
                sum(job.state is JobState.PENDING for job in record.snapshot.jobs),
                len(record.judged),
                len(record.recommendations),
                len(record.left_alone),
                digest_of(outcome_of(record)),
            ),
        )
        return int(written.lastrowid or 0)

    def _add_record(self, cycle_id: int, record: CycleRecord, cycle: Cycle) -> None:
        packed = self._recorder.packed(cycle_id, record, cycle)
        if packed is None:
            self._say(cycle_id, _NOT_UNICODE)
            return
        self._database.execute(
            "INSERT INTO records (cycle_id, frame, content) VALUES (?, ?, ?)", (cycle_id, packed.frame, packed.content)
        )
        if packed.frame == cycle_id:
            self._make_room()

    def _make_room(self) -> None:
        """Delete the oldest frames, each with what follows from it, until the others fit; the newest stays."""
        left = self._retention.records_mib * (1 << 20)
        frames = self._database.execute(
            "SELECT frame, sum(length(content)) FROM records GROUP BY frame ORDER BY frame DESC"
        ).fetchall()
        for place, (frame, size) in enumerate(frames):
            left -= size
            if left < 0 and place:
                self._database.execute("DELETE FROM records WHERE frame = ?", (frame,))

    def _say(self, cycle_id: int, note: str) -> None:
        self._database.execute("UPDATE cycles SET note = ? WHERE id = ?", (note, cycle_id))

    def _add_changes(self, cycle_id: int | None, time: float, said: Iterable[_Said]) -> None:
        self._database.executemany(
            "INSERT INTO changes (cycle_id, time, job_id, lever, done, action, said) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (cycle_id, time, action.job_id, action.lever, done, action_text(action), text)
                for action, done, text in said
            ],
        )


def _proposal(change: Recommendation) -> _Said:
    if change.refused_by is None:
        return change.action, Done.RECOMMENDED, f"{sentence(change)} ({change.reason})"
    return change.action, Done.REFUSED, change.refused_by


def _returned(found: Reconciled) -> tuple[_Said, ...]:
    taken = [
        (receipt.action, Done.TAKEN_BACK, "") for receipt in found.taken_back if receipt.outcome is not Outcome.FAILED
    ]
    return (*taken, *((lease.action, Done.OVERRULED, "") for lease in found.overruled))


def _not_returned(found: Reconciled) -> frozenset[_Said]:
    failed = (receipt for receipt in found.taken_back if receipt.outcome is Outcome.FAILED)
    return frozenset(_worded((*failed, *found.put_off), Done.NOT_TAKEN_BACK))


def _worded(receipts: Iterable[Receipt], done: Done) -> tuple[_Said, ...]:
    return tuple((receipt.action, done, receipt.text) for receipt in receipts)


def _in_order(said: Iterable[_Said]) -> list[_Said]:
    return sorted(said, key=lambda each: (each[0].job_id, each[0].lever, each[1]))


def _of_jobs(job_ids: Iterable[int]) -> str:
    return f"job_id IN ({', '.join('?' for _ in job_ids)})"
