"""Stores what each cycle read, proposed and did."""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from advisor import __version__
from advisor.apply.step import Reconciled, Step
from advisor.clock import Clock
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, Lever
from advisor.domain.job import JobState
from advisor.domain.lease import Lease, Purpose, Purposes
from advisor.domain.plan import LeverProposals, Outcome, Receipt, Recommendation
from advisor.domain.units import HOUR_S
from advisor.errors import JournalError
from advisor.journal.base import JournalBase
from advisor.journal.cycle_record import (
    Recorded,
    Recorder,
    digest_of,
    outcome_of,
    recorded,
    recorded_cycles,
)
from advisor.journal.file import DAMAGED
from advisor.journal.rows import PastStop, action_text, past_action_of
from advisor.journal.views import Done, PastChange, PastCycle, RowQuery
from advisor.settings import JournalSettings
from advisor.view.sentences import sentence

# How far apart the cycles are that are recorded in full as polls of the queue, for `sadvise fit start-time`.
POLL_S: Final = 3 * HOUR_S
_NOTHING_PROPOSED = "nothing was proposed"
_NOT_UNICODE = "a text of it is not Unicode"
_DONE_BY_OUTCOME = {
    Outcome.APPLIED: Done.APPLIED,
    Outcome.ALREADY_SO: Done.ALREADY_SO,
    Outcome.FAILED: Done.FAILED,
}
_Entry = tuple[Action, Done, str]


class CycleTables(JournalBase):
    """Cycles, their proposals and actions, and records from which they can be planned again."""

    def __init__(self, path: Path, database: sqlite3.Connection, *, retention: JournalSettings, clock: Clock) -> None:
        super().__init__(path, database, retention=retention, clock=clock)
        self._recorder = Recorder()
        # Whether cycles in which GPU jobs wait, and the one after each, are recorded in full whatever they propose.
        self.keeps_waits = False
        self._had_waits = False
        # Whether a cycle in which GPU jobs wait is recorded in full if the last such record is `POLL_S` old.
        self.keeps_polls = False
        self._poll_time: float | None = None
        # What the last cycle proposed and could not do: each is written once, not in every cycle.
        self._proposed: frozenset[tuple[Action, str | None]] = frozenset()
        self._undone: frozenset[_Entry] = frozenset()

    def record(self, record: CycleRecord, cycle: Cycle, *, whole: bool | None = None) -> int:
        """Store a cycle and return its id; `whole` says whether in full.

        By default, a cycle is stored in full if it proposed something, and with `keeps_waits` also if GPU jobs wait in
        it or did so in the one before, so that it shows where they started; with `keeps_polls` also if GPU jobs wait in
        it, once in `POLL_S`.
        """
        has_waits = bool(record.snapshot.pending_gpu_jobs)
        if whole is None:
            is_kept = self.keeps_waits and (has_waits or self._had_waits)
            is_kept = is_kept or (self.keeps_polls and has_waits and self._is_poll(record.snapshot.taken_at))
            whole = is_kept or bool(record.judged)
        self._had_waits = has_waits
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
        if whole and has_waits:
            self._poll_time = record.snapshot.taken_at
        self._proposed = frozenset(changes)
        return cycle_id

    def receipts(self, cycle_id: int, step: Step) -> None:
        """Store the actions of a cycle that is already stored."""
        undone = frozenset((*_worded(step.held_back, Done.HELD_BACK), *_not_returned(step.reconciled)))
        applied = [(receipt.action, _DONE_BY_OUTCOME[receipt.outcome], receipt.text) for receipt in step.applied]
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
                    *applied,
                    *(entry for entry in _in_order(undone) if entry not in self._undone),
                ],
            )
        self._undone = undone

    def returns(self, time: float, reconciled: Reconciled) -> None:
        """Store the changes reverted outside a cycle: for a person, or by a daemon before it ends."""
        with self._writing():
            self._add_changes(None, time, (*_returned(reconciled), *_in_order(_not_returned(reconciled))))

    def adopted(self, time: float, actions: Iterable[Action], purpose: str) -> None:
        """Store changes that a program of ours made outside of any cycle, and their purpose.

        `purpose` is a sentence and, in brackets, the code of the reason.
        """
        with self._writing():
            entries = [(action, done, purpose) for action in actions for done in (Done.RECOMMENDED, Done.APPLIED)]
            self._add_changes(None, time, entries)

    def cycles(self, query: RowQuery) -> tuple[PastCycle, ...]:
        """Return past cycles, newest first; with job ids only those that proposed or did something about the jobs."""
        which, values = "", []
        if query.job_ids is not None:
            which = f"AND cycles.id IN (SELECT cycle_id FROM changes WHERE {_of_jobs(query.job_ids)}) "  # noqa: S608  (ours)
            values = list(query.job_ids)
        with self._reading():
            rows = self._database.execute(
                "SELECT cycles.id AS cycle_id, taken_at, version, jobs, pending, proposed, recommended, left_alone, "  # noqa: S608  (ours)
                "applied, held_back, digest, note, coalesce(length(content), 0) AS record_bytes "
                "FROM cycles LEFT JOIN records ON records.cycle_id = cycles.id "
                f"WHERE taken_at > ? {which}ORDER BY cycles.id DESC LIMIT ?",
                (query.since, *values, query.most),
            )
            names = [column for column, *_ in rows.description]
            return tuple(PastCycle(**dict(zip(names, row, strict=True))) for row in rows.fetchall())

    def changes(self, query: RowQuery) -> tuple[PastChange, ...]:
        """Return the proposals and actions about jobs, newest first."""
        which = "" if query.job_ids is None else f"AND {_of_jobs(query.job_ids)} "
        with self._reading():
            rows = self._database.execute(
                "SELECT cycle_id, time, job_id, lever, done, action, said FROM changes "  # noqa: S608  (ours)
                f"WHERE time > ? {which}ORDER BY id DESC LIMIT ?",
                (query.since, *(query.job_ids or ()), query.most),
            )
            return tuple(
                PastChange(
                    cycle_id=cycle_id,
                    time=time,
                    job_id=job_id,
                    lever=lever,
                    done=Done(done),
                    action=past_action_of(lever, action),
                    said=text,
                )
                for cycle_id, time, job_id, lever, done, action, text in rows.fetchall()
            )

    def proposals(self, since: float) -> tuple[LeverProposals, ...]:
        """Return for how many jobs each lever was proposed, refused and applied after an instant, every lever once."""
        with self._reading():
            rows = self._database.execute(
                "SELECT lever, done, CASE done WHEN 'refused' THEN said ELSE '' END, count(DISTINCT job_id) "
                "FROM changes WHERE time > ? GROUP BY 1, 2, 3",
                (since,),
            ).fetchall()
            proposed = self._database.execute(
                "SELECT lever, count(DISTINCT job_id) FROM changes "
                "WHERE time > ? AND done IN ('recommended', 'refused') GROUP BY lever",
                (since,),
            ).fetchall()
        count_by_lever = dict(proposed)
        return tuple(
            LeverProposals(
                lever=lever,
                proposed=count_by_lever.get(lever, 0),
                refused={rule: count for name, done, rule, count in rows if (name, done) == (lever, Done.REFUSED)},
                applied=sum(count for name, done, _, count in rows if (name, done) == (lever, Done.APPLIED)),
            )
            for lever in Lever
        )

    def purposes(self, leases: Iterable[Lease]) -> Purposes:
        """Return why the changes of leases were made, as far as their proposals are kept."""
        wanted = {lease.action for lease in leases}
        with self._reading():
            rows = self._database.execute(
                "SELECT lever, action, said FROM changes "
                "WHERE done = ? AND job_id IN (SELECT value FROM json_each(?)) ORDER BY id",
                (Done.RECOMMENDED, json.dumps(sorted({action.job_id for action in wanted}))),
            )
            proposed = [(past_action_of(lever, action), text) for lever, action, text in rows.fetchall()]
        # Earlier versions wrote some actions with more values.
        return {
            (action.job_id, action.lever): _purpose(text)
            for action, text in proposed
            if not isinstance(action, PastStop) and action in wanted
        }

    def recorded(self, cycle_id: int | None = None) -> Recorded:
        """Return a cycle recorded in full, by default the last one; raises `JournalError` if there is none."""
        with self._reading():
            row = self._database.execute(
                "SELECT cycles.id, note, digest, frame FROM cycles LEFT JOIN records ON cycle_id = cycles.id "
                "WHERE CASE WHEN ? IS NULL THEN frame IS NOT NULL ELSE cycles.id = ? END "
                "ORDER BY cycles.id DESC LIMIT 1",
                (cycle_id, cycle_id),
            ).fetchone()
            if row is None:
                what = "no cycle is recorded in full" if cycle_id is None else f"there is no cycle {cycle_id}"
                raise JournalError(f"{self._path}: {what}: list the cycles with `sadvise journal cycles`")
            number, note, digest, frame = row
            if frame is None:
                why = note or "its record was deleted to make room (journal.records_mib)"
                raise JournalError(f"{self._path}: cycle {number} is not recorded in full: {why}")
            contents = self._database.execute(
                "SELECT content FROM records WHERE frame = ? AND cycle_id <= ? ORDER BY cycle_id", (frame, number)
            )
            whole = recorded(number, (content for (content,) in contents.fetchall()))
            if whole.digest != digest:
                raise JournalError(f"{self._path}: the record of cycle {number} {DAMAGED}")
            return whole

    def recorded_ids(self, most: int) -> tuple[int, ...]:
        """Return the ids of the last `most` cycles that are recorded in full, oldest first."""
        with self._reading():
            rows = self._database.execute("SELECT cycle_id FROM records ORDER BY cycle_id DESC LIMIT ?", (most,))
            return tuple(cycle_id for (cycle_id,) in rows.fetchall())[::-1]

    def recorded_times(self) -> tuple[tuple[int, float], ...]:
        """Return the ids and the times of the cycles that are recorded in full, oldest first."""
        with self._reading():
            rows = self._database.execute(
                "SELECT cycle_id, taken_at FROM records JOIN cycles ON cycles.id = cycle_id ORDER BY cycle_id"
            )
            return tuple((cycle_id, taken_at) for cycle_id, taken_at in rows.fetchall())

    def recorded_cycles(self, cycle_ids: Iterable[int]) -> Iterator[Recorded]:
        """Yield cycles recorded in full, oldest first; raises `JournalError` for one that is damaged.

        Each frame is read once, so that reading all cycles takes no longer than reading them one by one from a frame.
        """
        wanted = frozenset(cycle_ids)
        with self._reading():
            digests = dict(self._database.execute("SELECT id, digest FROM cycles").fetchall())
            frames = dict(self._database.execute("SELECT cycle_id, frame FROM records").fetchall())
        for frame in sorted({frames[cycle_id] for cycle_id in wanted & frames.keys()}):
            with self._reading():
                rows = self._database.execute(
                    "SELECT cycle_id, content FROM records WHERE frame = ? ORDER BY cycle_id", (frame,)
                ).fetchall()
                for whole in recorded_cycles(rows, wanted):
                    if whole.digest != digests.get(whole.cycle_id):
                        raise JournalError(f"{self._path}: the record of cycle {whole.cycle_id} {DAMAGED}")
                    yield whole

    def _is_poll(self, now: float) -> bool:
        """Return whether the last record of waiting GPU jobs is `POLL_S` old; after a restart, the last record."""
        if self._poll_time is None:
            times = self.recorded_times()
            self._poll_time = times[-1][1] if times else -math.inf
        # A clock that was set back does not end the polls.
        return not 0.0 <= now - self._poll_time < POLL_S

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
        """Delete the oldest frames with their records until the others fit; the newest frame is kept."""
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

    def _add_changes(self, cycle_id: int | None, time: float, entries: Iterable[_Entry]) -> None:
        self._database.executemany(
            "INSERT INTO changes (cycle_id, time, job_id, lever, done, action, said) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (cycle_id, time, action.job_id, action.lever, done, action_text(action), text)
                for action, done, text in entries
            ],
        )


def _proposal(change: Recommendation) -> _Entry:
    if change.refused_by is None:
        return change.action, Done.RECOMMENDED, f"{sentence(change)} ({change.reason})"
    return change.action, Done.REFUSED, change.refused_by


def _purpose(text: str) -> Purpose:
    """Return the purpose that the text of a proposal gives."""
    words, _, reason = text.rpartition(" (")
    return Purpose(reason=reason.removesuffix(")"), text=words)


def _returned(reconciled: Reconciled) -> tuple[_Entry, ...]:
    taken = [
        (receipt.action, Done.TAKEN_BACK, "")
        for receipt in reconciled.taken_back
        if receipt.outcome is not Outcome.FAILED
    ]
    return (*taken, *((lease.action, Done.OVERRULED, "") for lease in reconciled.overruled))


def _not_returned(reconciled: Reconciled) -> frozenset[_Entry]:
    failed = (receipt for receipt in reconciled.taken_back if receipt.outcome is Outcome.FAILED)
    return frozenset(_worded((*failed, *reconciled.put_off), Done.NOT_TAKEN_BACK))


def _worded(receipts: Iterable[Receipt], done: Done) -> tuple[_Entry, ...]:
    return tuple((receipt.action, done, receipt.text) for receipt in receipts)


def _in_order(entries: Iterable[_Entry]) -> list[_Entry]:
    return sorted(entries, key=lambda entry: (entry[0].job_id, entry[0].lever, entry[1]))


def _of_jobs(job_ids: Iterable[int]) -> str:
    return f"job_id IN ({', '.join('?' for _ in job_ids)})"
