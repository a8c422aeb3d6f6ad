"""Applies the recommendations of a cycle in batches, and reverts changes that are due; live and simulated alike.

Every change is written to the journal before it is sent, so that after a kill the next advisor knows of all of them.
A field that holds a value other than ours was changed by a person, and is left as it is. Of two jobs that change
places, the one that is lifted is changed first; if the other cannot be changed then, the lift is reverted.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final, Protocol

from advisor.apply import leases
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import Gate, OpenGate, Reconciled, Step, StepJournal
from advisor.cycle import ClusterSource, Cycle, CycleRecord
from advisor.domain.actions import Action, Lever, SetNice, exchanged_with
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, intended, request_without
from advisor.domain.memory import Memory, Wait
from advisor.domain.plan import Outcome, Receipt, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.planning.counterfactual import Watched
from advisor.planning.observing import started_since
from advisor.planning.pins import waits_begun

# Takes the snapshot, the instant up to which starts were observed, and the leases of the jobs that started since.
Observe = Callable[[Snapshot, float, Sequence[Lease]], tuple[Wait, ...]]
Wanted = Callable[[Job, Snapshot], bool]

# For this long a command that outlived the advisor, or a request in Slurm's backlog, can still take effect.
INTENT_GRACE_S: Final = 120.0
OTHER_HALF: Final = "the job with which it changes places is not changed"


class Actuator(Protocol):
    """Sends actions to the cluster and reads back the result."""

    def apply(self, action: Action) -> Receipt:
        """Carry out an action; return a receipt, also for a failure."""

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Make changes to pending jobs; return their receipts in the same order, also for failures."""

    def hides_range_end(self, job_id: int) -> bool:
        """Return whether Slurm shows the lower end of a job's node range in place of the upper one."""


class NamedSource(Protocol):
    """Reads some jobs of a cluster, also where the queue as a whole cannot be read."""

    def snapshot_of(self, job_ids: Collection[int]) -> Snapshot:
        """Read the jobs of some ids, and no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applier:
    """Applies plans to a cluster; `wanted` restricts the jobs that get new changes.

    `named` reads the jobs with leases alone, in place of all that `source` reads.
    `observe` returns the waits of the jobs that started. `gate` is asked before each change is sent. An intent whose
    outcome is unknown is dropped if it has taken no effect after `grace_s`.
    """

    source: ClusterSource
    actuator: Actuator
    cycle: Cycle
    journal: StepJournal = field(default_factory=MemoryJournal)
    named: NamedSource | None = None
    observe: Observe | None = None
    wanted: Wanted | None = None
    gate: Gate = field(default_factory=OpenGate)
    grace_s: float = INTENT_GRACE_S

    def step(self, snapshot: Snapshot | None = None) -> Step:
        """Run one cycle on a snapshot, by default a new one, and apply the recommendations that no rule refused.

        Raises what the source, the actuator and the journal raise; the next step then determines what took effect.
        """
        seen = self.source.snapshot() if snapshot is None else snapshot
        self.journal.claim(seen.config.cluster)
        self._learn(seen)
        reconciled = self.reconcile(seen)
        if reconciled.taken_back:
            seen = self.source.snapshot()
        memory = self.cycle.memory(self.journal, seen)
        record = self.cycle.judge(seen, memory)
        previous = {(lease.job_id, lease.lever): lease for lease in memory.leases if lease.ending is None}
        cycle_id = self.journal.record(record, self.cycle)
        self._follow(memory, seen, record.watched)
        over = self._end(record, seen, reconciled, self._begin_waits(record, seen))
        sendable, held_back = self._sendable(record.recommendations, seen)
        intents = [self._intent(change, seen, previous) for change in sendable]
        first = [lease for lease in intents if not lease.gives_place]
        receipts = self._send(first)
        second, not_begun = _begun([lease for lease in intents if lease.gives_place], receipts)
        given = self._send(second)
        with self.journal.together():
            for lease, receipt in zip((*first, *second), (*receipts, *given), strict=True):
                self._settle(lease, receipt, seen.taken_at)
            step = Step(
                record=record,
                reconciled=reconciled + over,
                applied=(*receipts, *given),
                held_back=(*held_back, *not_begun),
            )
            self.journal.receipts(cycle_id, step)
        undone = self._undo_halves(given, seen.taken_at)
        return replace(step, reconciled=step.reconciled + undone)

    def leased(self) -> Snapshot:
        """Read the jobs that have a lease, and those that had one as they started: if requeued, they keep its value."""
        if self.named is None:
            return self.source.snapshot()
        started = (lease for lease in self.journal.closed((), since=0.0) if lease.ending is Ending.NO_LONGER_PENDING)
        return self.named.snapshot_of({lease.job_id for lease in (*self.journal.leases(), *started)})

    def reconcile(self, snapshot: Snapshot) -> Reconciled:
        """Update the journal from the cluster; revert changes that are due, and named nodes that are no longer free."""
        lost = leases.without_place(self.journal.leases(), snapshot)
        return self._reconcile(
            snapshot,
            lambda lease: lease.is_due(snapshot.taken_at) or (lease.lever is Lever.NODE_LIST and lease.job_id in lost),
        )

    def return_due(self, now: float) -> Reconciled:
        """Revert changes that are due in a round that could not read the queue; without any, nothing is asked."""
        if not any(lease.is_due(now) and lease.state is not LeaseState.HANDS_OFF for lease in self.journal.leases()):
            return Reconciled()
        return self.revert_due(self.leased())

    def revert_due(self, snapshot: Snapshot) -> Reconciled:
        """Revert changes that are due, outside of a cycle, on a snapshot of every job that `leased` reads, or more."""
        return self._outside_a_cycle(snapshot, lambda lease: lease.is_due(snapshot.taken_at))

    def revert(self, snapshot: Snapshot, job_ids: Collection[int] | None = None) -> Reconciled:
        """Revert, for a person, every outstanding change, or those of the jobs `job_ids`.

        The snapshot holds every job that `leased` reads, or more.
        """
        return self._outside_a_cycle(snapshot, lambda lease: job_ids is None or lease.job_id in job_ids, by_person=True)

    def revert_strays(self, snapshot: Snapshot, actions: Collection[SetNice]) -> Reconciled:
        """Record changes that the journal does not know as made, and revert them for a person."""
        self.journal.claim(snapshot.config.cluster)
        with self.journal.together():
            for action in actions:
                lease = intended(action, snapshot.taken_at, job=snapshot.jobs_by_id.get(action.job_id))
                self.journal.keep(lease)
                self.journal.keep(replace(lease, state=LeaseState.OUT))
        ours = {action.job_id for action in actions}
        return self._outside_a_cycle(snapshot, lambda lease: lease.lever is Lever.NICE and lease.job_id in ours)

    def leave(self, snapshot: Snapshot) -> Reconciled:
        """Revert, before the daemon ends, every change that does not end by itself."""
        return self._outside_a_cycle(
            snapshot, lambda lease: lease.due_time is not None or lease.is_due(snapshot.taken_at)
        )

    def _outside_a_cycle(
        self, snapshot: Snapshot, taken_back: Callable[[Lease], bool], *, by_person: bool = False
    ) -> Reconciled:
        """Reconcile and revert the leases that `taken_back` selects, and record that on its own."""
        reconciled = self._reconcile(snapshot, taken_back, by_person=by_person)
        self.journal.returns(snapshot.taken_at, reconciled)
        return reconciled

    def _learn(self, snapshot: Snapshot) -> None:
        """Add the waits of the jobs that started since the last observation to the journal."""
        if self.observe is None:
            return
        until = self.journal.observed_until()
        waits: tuple[Wait, ...] = ()
        if until is not None:
            started = frozenset(_started_since(snapshot, until))
            still_open = [lease for lease in self.journal.leases() if lease.job_id in started]
            waits = self.observe(snapshot, until, (*self.journal.closed(started), *still_open))
        self.journal.add_waits(waits, max(snapshot.taken_at, until or 0.0))

    def _follow(self, memory: Memory, snapshot: Snapshot, watched: Sequence[Watched]) -> None:
        """Store when changed jobs have started, and when they would have as submitted."""
        started = {
            lease.job_id: instant
            for lease in memory.leases
            if lease.ending is not None and (instant := _start_time_after(lease, snapshot)) is not None
        }
        if started:
            self.journal.started(started)
        noted = {lease.job_id for lease in memory.leases if lease.would_start_time is None and lease.start_time is None}
        would_start = {
            job.job_id: job.would_start_time
            for job in watched
            if job.would_start_time is not None and job.job_id in noted
        }
        if would_start:
            self.journal.would_start(would_start)

    def _begin_waits(self, record: CycleRecord, snapshot: Snapshot) -> Sequence[Lease]:
        """Store the leases of pinned gangs that decline their first chance from now on, and return them."""
        begun = () if record.case is None else waits_begun(record.case)
        begun = tuple(
            lease for lease in begun if self.wanted is None or self.wanted(snapshot.jobs_by_id[lease.job_id], snapshot)
        )
        with self.journal.together():
            for lease in begun:
                self.journal.keep(lease)
        return begun

    def _end(
        self, record: CycleRecord, snapshot: Snapshot, reconciled: Reconciled, begun: Sequence[Lease]
    ) -> Reconciled:
        """Revert the changes that no longer serve, beside those that were tried already."""
        tried = {
            (receipt.action.job_id, receipt.action.lever) for receipt in (*reconciled.taken_back, *reconciled.put_off)
        }
        over = {(job.job_id, lever) for job in record.watched for lever in job.over} - tried
        over |= {(lease.job_id, lease.lever) for lease in begun if lease.is_due(snapshot.taken_at)}
        if not over:
            return Reconciled()
        return self._reconcile(snapshot, lambda lease: (lease.job_id, lease.lever) in over)

    def _wants(self, change: Recommendation, snapshot: Snapshot) -> bool:
        return self.wanted is None or self.wanted(snapshot.jobs_by_id[change.job_id], snapshot)

    def _sendable(
        self, changes: Sequence[Recommendation], snapshot: Snapshot
    ) -> tuple[list[Recommendation], list[Receipt]]:
        """Return the changes that can be sent now, and the receipts of those held back."""
        sendable: list[Recommendation] = []
        held_back: list[Receipt] = []
        for change in changes:
            if not self._wants(change, snapshot):
                continue
            objection = self.gate.against_change(change, snapshot.jobs_by_id[change.job_id])
            if objection is None:
                sendable.append(change)
            else:
                held_back.append(_held_back(change.action, objection))
        sendable, alone = _whole(sendable)
        room = self.gate.room(len(sendable))
        # Both halves of an exchange are within the room, or neither.
        sendable = _adjacent(sendable)
        held_back += [_held_back(change.action, room.text or "") for change in sendable[room.changes :]]
        sendable, cut = _whole(sendable[: room.changes])
        return sendable, held_back + [_held_back(change.action, OTHER_HALF) for change in (*alone, *cut)]

    def _intent(self, change: Recommendation, snapshot: Snapshot, previous: Mapping[tuple[int, Lever], Lease]) -> Lease:
        """Return the lease of a change that is about to be sent."""
        request = request_without(previous.values(), snapshot.jobs_by_id[change.job_id])
        return intended(
            change.action,
            snapshot.taken_at,
            after_s=change.revert_after_s,
            previous=previous.get((change.job_id, change.action.lever)),
            job=snapshot.jobs_by_id[change.job_id],
            added_delay_s=change.expected.added_delay_max_s,
            planned_start=change.planned_start,
            request=replace(request, gpu_s=change.gpu_s),
        )

    def _send(self, intents: Sequence[Lease]) -> tuple[Receipt, ...]:
        """Record changes together, and send them together."""
        if not intents:
            return ()
        with self.journal.together():
            for lease in intents:
                self.journal.keep(lease)
        return self.actuator.apply_all([lease.action for lease in intents])

    def _undo_halves(self, given: Sequence[Receipt], now: float) -> Reconciled:
        """Revert the lifts of the jobs whose partners did not give them their places."""
        without = {exchanged_with(receipt.action) for receipt in given if receipt.outcome is not Outcome.APPLIED}
        if not without:
            return Reconciled()
        lifted = [
            lease
            for lease in self.journal.leases()
            if lease.job_id in without and lease.exchanged_with is not None and lease.state is LeaseState.OUT
        ]
        undone = Reconciled(taken_back=self._take_back(lifted, now))
        self.journal.returns(now, undone)
        return undone

    def _settle(self, lease: Lease, receipt: Receipt, now: float) -> None:
        """Record what became of an intent; one of unknown outcome stays an intent."""
        if receipt.outcome is Outcome.APPLIED:
            self._write(lease, leases.took_effect(lease), now)
        elif receipt.is_settled:
            self._write(lease, leases.took_no_effect(lease), now)

    def _take_back(self, due: Sequence[Lease], now: float) -> tuple[Receipt, ...]:
        """Revert changes; a failed attempt is repeated in the next step, if the value is still ours then."""
        if not due:
            return ()
        with self.journal.together():
            for lease in due:
                self.journal.keep(replace(lease, state=LeaseState.RETURNING))
        receipts = self.actuator.apply_all([lease.undo for lease in due])
        with self.journal.together():
            for lease, receipt in zip(due, receipts, strict=True):
                if receipt.outcome is not Outcome.FAILED:
                    self._write(lease, leases.returned(lease), now)
                elif receipt.is_overruled:
                    self._write(lease, leases.overruled(lease, now), now)
        return tuple(
            replace(receipt, text=f"the job {lease.lost}") if lease.lost and not receipt.text else receipt
            for lease, receipt in zip(due, receipts, strict=True)
        )

    def _write(self, lease: Lease, following: leases.Next, now: float) -> Lease | None:
        """Record the next state of a lease and return it; return None if the lease has ended."""
        if isinstance(following, leases.Ended):
            self.journal.close(lease, following.ending, now)
            return None
        if following != lease:
            self.journal.keep(following)
        return following

    def _reconcile(
        self, snapshot: Snapshot, taken_back: Callable[[Lease], bool], *, by_person: bool = False
    ) -> Reconciled:
        self.journal.claim(snapshot.config.cluster)
        with self.journal.together():
            self._reopen(snapshot)
            for lost in leases.outgrown(self.journal.leases(), snapshot):
                self.journal.keep(lost)
        seen = self._with_merged_tasks(snapshot)
        sights = [(lease, self._sight(lease, seen)) for lease in self.journal.leases()]
        with self.journal.together():
            due, overruled = self._followed(sights, snapshot.taken_at, taken_back, by_person=by_person)
        due += leases.unpaired(self.journal.leases(), due, snapshot)
        returnable, put_off = self._returnable(due)
        return Reconciled(
            taken_back=self._take_back(returnable, snapshot.taken_at),
            overruled=tuple(overruled),
            put_off=tuple(put_off),
        )

    def _with_merged_tasks(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the leased tasks of arrays that text merges into these, where pyslurm failed."""
        missing = {lease.job_id for lease in self.journal.leases()} - snapshot.jobs_by_id.keys()
        if self.named is None or not missing or snapshot.splits_told or not snapshot.reader_fault:
            return snapshot
        tasks = (job for job in self.named.snapshot_of(missing).jobs if job.job_id in missing)
        return replace(snapshot, jobs=(*snapshot.jobs, *tasks))

    def _returnable(self, due: Sequence[Lease]) -> tuple[list[Lease], list[Receipt]]:
        """Return the leases that can be taken back now, and the receipts of those put off."""
        objections = [(lease, self.gate.against_return(lease)) for lease in due]
        returnable = [lease for lease, objection in objections if objection is None]
        put_off = [_held_back(lease.undo, objection) for lease, objection in objections if objection is not None]
        room = self.gate.room(len(returnable), returning=True)
        put_off += [_held_back(lease.undo, room.text or "") for lease in returnable[room.changes :]]
        return returnable[: room.changes], put_off

    def _followed(
        self,
        sights: Iterable[tuple[Lease, leases.Sight]],
        now: float,
        taken_back: Callable[[Lease], bool],
        *,
        by_person: bool,
    ) -> tuple[list[Lease], list[Lease]]:
        """Record what was seen of the leases; return those to take back, and those just overruled."""
        due: list[Lease] = []
        overruled: list[Lease] = []
        for lease, sight in sights:
            current = self._write(lease, leases.next_lease(lease, sight, now, self.grace_s), now)
            match None if current is None else current.state:
                case LeaseState.HANDS_OFF if lease.state is not LeaseState.HANDS_OFF:
                    overruled.append(lease)
                case LeaseState.INTENDED if by_person and current is not None and taken_back(current):
                    # If it takes effect after all, it is reverted then.
                    self.journal.keep(replace(current, by_person=True))
                case LeaseState.OUT | LeaseState.RETURNING if current is not None and taken_back(current):
                    due.append(replace(current, by_person=current.by_person or by_person))
        return due, overruled

    def _sight(self, lease: Lease, snapshot: Snapshot) -> leases.Sight:
        """Return what is seen of a lease; whether one end of a node range is hidden, only slurmctld knows."""
        sight = leases.sight_of(lease, snapshot)
        unsure = sight is leases.Sight.ONE_END and lease.state is LeaseState.INTENDED
        return leases.Sight.OURS if unsure and not self.actuator.hides_range_end(lease.job_id) else sight

    def _reopen(self, snapshot: Snapshot) -> None:
        """Reopen the leases of jobs that had started and were requeued with our value."""
        owned = {(lease.job_id, lease.lever) for lease in self.journal.leases()}
        pending = frozenset(job.job_id for job in snapshot.pending)
        # In the order in which they ended, so that the last one of each field is kept.
        last = {(lease.job_id, lease.lever): lease for lease in self.journal.closed(pending)}
        for key, lease in sorted(last.items()):
            if lease.ending is Ending.NO_LONGER_PENDING and key not in owned:
                again = leases.requeued(lease, snapshot.jobs_by_id[lease.job_id], snapshot)
                if again is not None:
                    self.journal.keep(again)
        self._inherit(snapshot)

    def _inherit(self, snapshot: Snapshot) -> None:
        """Open leases for requeued tasks of arrays that had started with a nice of ours."""
        owned = {lease.job_id for lease in self.journal.leases() if lease.lever is Lever.NICE}
        # The open lease of an array reverts the nice of all its waiting tasks.
        tasks = [
            (job.array.array_job_id, job)
            for job in snapshot.pending
            if job.array is not None and job.is_split_off and owned.isdisjoint((job.job_id, job.array.array_job_id))
        ]
        closed = self.journal.closed({array_job_id for array_job_id, _ in tasks}) if tasks else ()
        for array_job_id, task in tasks:
            lease = leases.inherited((lease for lease in closed if lease.job_id == array_job_id), task, snapshot)
            if lease is not None:
                self.journal.keep(lease)


def _held_back(action: Action, objection: str) -> Receipt:
    return Receipt(action=action, outcome=Outcome.HELD_BACK, text=objection)


def _whole(changes: Sequence[Recommendation]) -> tuple[list[Recommendation], list[Recommendation]]:
    """Return the changes without the single halves of exchanges, and these halves."""
    jobs = {change.job_id for change in changes if exchanged_with(change.action) is not None}
    whole = [change for change in changes if exchanged_with(change.action) in (None, *jobs)]
    return whole, [change for change in changes if exchanged_with(change.action) not in (None, *jobs)]


def _adjacent(changes: Sequence[Recommendation]) -> list[Recommendation]:
    """Return the changes in their order, the second half of each exchange right after the first."""
    sets: dict[tuple[Lever, int] | int, list[Recommendation]] = {}
    for place, change in enumerate(changes):
        sets.setdefault(change.action.all_or_none or place, []).append(change)
    return [change for together in sets.values() for change in together]


def _begun(given: Sequence[Lease], receipts: Sequence[Receipt]) -> tuple[list[Lease], list[Receipt]]:
    """Return the second halves of the exchanges whose lift took effect, and the receipts of the others."""
    lifted = {receipt.action.job_id for receipt in receipts if receipt.outcome is Outcome.APPLIED}
    begun = [lease for lease in given if lease.exchanged_with in lifted]
    return begun, [_held_back(lease.action, OTHER_HALF) for lease in given if lease.exchanged_with not in lifted]


def _start_time_after(lease: Lease, snapshot: Snapshot) -> float | None:
    """Return when the job of a closed lease started after it, or was seen to be gone; None while it is not known."""
    if lease.start_time is not None or lease.ending is Ending.NOT_APPLIED or lease.added_delay_s <= 0.0:
        return None
    job = snapshot.jobs_by_id.get(lease.job_id)
    if job is None:
        return snapshot.taken_at
    if job.state not in (JobState.RUNNING, JobState.SUSPENDED) or job.start_time is None:
        return None
    return job.start_time if job.start_time >= math.floor(lease.applied_time) else None


def _started_since(snapshot: Snapshot, since: float) -> Iterator[int]:
    """Yield the ids of the jobs that started after `since` and before a snapshot."""
    for job in snapshot.jobs:
        if started_since(job, since, snapshot):
            yield job.job_id
