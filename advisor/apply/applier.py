"""Applies the recommendations of a cycle one at a time, and reverts changes that are due; live and simulated alike.

Every change is written to the journal before it is sent, so that after a kill the next advisor knows of all of them.
A field that holds a value other than ours was changed by a person, and is left as it is.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from advisor.apply import leases
from advisor.apply.gate import Gate, OpenGate
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import Reconciled, Step, StepJournal
from advisor.cycle import ClusterSource, Cycle, CycleRecord
from advisor.domain.actions import Action, Requeue
from advisor.domain.job import Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.plan import Outcome, Receipt, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.waits import Wait
from advisor.planning.counterfactual import Watched
from advisor.planning.observing import started_since

# Takes the snapshot, the instant up to which starts were observed, and the leases of the jobs that started since.
Observe = Callable[[Snapshot, float, Sequence[Lease]], tuple[Wait, ...]]
Wanted = Callable[[Job, Snapshot], bool]

# For this long a command that outlived the advisor, or a request in Slurm's backlog, can still take effect.
INTENT_GRACE_S: Final = 120.0


class Actuator(Protocol):
    """Sends actions to the cluster and reads back the result."""

    def apply(self, action: Action) -> Receipt:
        """Carry out an action; return a receipt, also for a failure."""

    def hides_range_end(self, job_id: int) -> bool:
        """Return whether Slurm shows the lower end of a job's node range in place of the upper one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applier:
    """Applies plans to a cluster; `wanted` restricts the jobs that get new changes.

    `observe` returns the waits of the jobs that started. `gate` is asked before each change is sent. An intent whose
    outcome is unknown is dropped if it has taken no effect after `grace_s`.
    """

    source: ClusterSource
    actuator: Actuator
    cycle: Cycle
    journal: StepJournal = field(default_factory=MemoryJournal)
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
        over = self._end(record, seen)
        applied: list[Receipt] = []
        held_back: list[Receipt] = []
        # Gangs for which one of the jobs cannot be stopped; the others are not stopped either.
        not_stoppable = {_stops_for(change) for change in record.recommendations if not self._wants(change, seen)} - {
            None
        }
        for change in record.recommendations:
            if not self._wants(change, seen) or _stops_for(change) in not_stoppable:
                continue
            job = seen.jobs_by_id[change.job_id]
            objection = self.gate.against_change(change, job)
            if objection is None:
                lease = previous.get((change.job_id, change.action.lever))
                applied.append(self._apply(change, seen.taken_at, lease, job))
            else:
                held_back.append(Receipt(action=change.action, outcome=Outcome.HELD_BACK, text=objection))
            if _stops_for(change) is not None and (objection or applied[-1].outcome is Outcome.FAILED):
                not_stoppable.add(_stops_for(change))
        step = Step(record=record, reconciled=reconciled + over, applied=tuple(applied), held_back=tuple(held_back))
        self.journal.receipts(cycle_id, step)
        return step

    def reconcile(self, snapshot: Snapshot) -> Reconciled:
        """Update the journal from the cluster, and revert changes that are due."""
        return self._reconcile(snapshot, lambda lease: lease.is_due(snapshot.taken_at))

    def revert(self, snapshot: Snapshot, job_ids: Collection[int] | None = None) -> Reconciled:
        """Revert, for a person, every outstanding change, or those of the jobs `job_ids`."""
        return self._outside_a_cycle(snapshot, lambda lease: job_ids is None or lease.job_id in job_ids, by_person=True)

    def leave(self, snapshot: Snapshot) -> Reconciled:
        """Revert, before the daemon ends, every change that does not end by itself."""
        return self._outside_a_cycle(
            snapshot, lambda lease: lease.due_time is not None or lease.state is LeaseState.RETURNING
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

    def _end(self, record: CycleRecord, snapshot: Snapshot) -> Reconciled:
        """Revert the changes that no longer serve."""
        over = {(job.job_id, lever) for job in record.watched for lever in job.over}
        if not over:
            return Reconciled()
        return self._reconcile(snapshot, lambda lease: (lease.job_id, lease.lever) in over)

    def _wants(self, change: Recommendation, snapshot: Snapshot) -> bool:
        return self.wanted is None or self.wanted(snapshot.jobs_by_id[change.job_id], snapshot)

    def _apply(self, change: Recommendation, now: float, previous: Lease | None, job: Job) -> Receipt:
        """Record a change, send it, and record its outcome."""
        lease = intended(
            change.action,
            now,
            after_s=change.revert_after_s,
            previous=previous,
            job=job,
            added_delay_s=change.expected.added_delay_max_s,
            planned_start=change.planned_start,
            serves=change.serves,
        )
        self.journal.keep(lease)
        receipt = self.actuator.apply(change.action)
        if receipt.outcome is Outcome.APPLIED:
            self._write(lease, leases.came_out(lease), now)
        elif receipt.is_settled:
            self._write(lease, leases.came_to_nothing(lease), now)
        return receipt

    def _take_back(self, lease: Lease, now: float) -> Receipt:
        """Revert a change; a failed attempt is repeated in the next step, if the value is still ours then."""
        self.journal.keep(replace(lease, state=LeaseState.RETURNING))
        receipt = self.actuator.apply(lease.undo)
        if receipt.outcome is not Outcome.FAILED:
            self._write(lease, leases.returned(lease), now)
        elif receipt.is_overruled:
            self._write(lease, leases.overruled(lease, now), now)
        return receipt

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
        self._reopen(snapshot)
        now = snapshot.taken_at
        receipts: list[Receipt] = []
        overruled: list[Lease] = []
        put_off: list[Receipt] = []
        for lease in self.journal.leases():
            current = self._write(lease, leases.next_lease(lease, self._sight(lease, snapshot), now, self.grace_s), now)
            match None if current is None else current.state:
                case LeaseState.HANDS_OFF if lease.state is not LeaseState.HANDS_OFF:
                    overruled.append(lease)
                case LeaseState.INTENDED if by_person and current is not None and taken_back(current):
                    # If it takes effect after all, it is reverted then.
                    self.journal.keep(replace(current, by_person=True))
                case LeaseState.OUT | LeaseState.RETURNING if current is not None and taken_back(current):
                    objection = self.gate.against_return(current)
                    if objection is None:
                        wanted = replace(current, by_person=current.by_person or by_person)
                        receipts.append(self._take_back(wanted, now))
                    else:
                        put_off.append(Receipt(action=current.undo, outcome=Outcome.HELD_BACK, text=objection))
        return Reconciled(taken_back=tuple(receipts), overruled=tuple(overruled), put_off=tuple(put_off))

    def _sight(self, lease: Lease, snapshot: Snapshot) -> leases.Sight:
        """Return what is seen of a lease; whether one end of a node range is hidden, only slurmctld knows."""
        sight = leases.sight_of(lease, snapshot)
        unsure = sight is leases.Sight.ONE_END and lease.state is LeaseState.INTENDED
        return leases.Sight.OURS if unsure and not self.actuator.hides_range_end(lease.job_id) else sight

    def _reopen(self, snapshot: Snapshot) -> None:
        """Reopen the leases of jobs that had started and were requeued with our value."""
        owned = {(lease.job_id, lease.lever) for lease in self.journal.leases()}
        pending = frozenset(job.job_id for job in snapshot.jobs if job.is_pending)
        # In the order in which they ended, so that the last one of each field is kept.
        last = {(lease.job_id, lease.lever): lease for lease in self.journal.closed(pending)}
        for key, lease in sorted(last.items()):
            if lease.ending is Ending.NO_LONGER_PENDING and key not in owned:
                again = leases.requeued(lease, snapshot.jobs_by_id[lease.job_id], snapshot)
                if again is not None:
                    self.journal.keep(again)


def _stops_for(change: Recommendation) -> int | None:
    """Return the job id of the gang for which a change stops a job; None for other changes."""
    return change.action.for_job_id if isinstance(change.action, Requeue) else None


def _start_time_after(lease: Lease, snapshot: Snapshot) -> float | None:
    """Return when the job of a closed lease started after it, or was seen to be gone; None while it is not known."""
    if lease.start_time is not None or lease.ending is Ending.NOT_APPLIED or lease.added_delay_s <= 0.0:
        return None
    job = snapshot.jobs_by_id.get(lease.job_id)
    if job is None:
        return snapshot.taken_at
    started = job.state in (JobState.RUNNING, JobState.SUSPENDED) and job.start_time is not None
    return job.start_time if started and (job.start_time or 0.0) >= math.floor(lease.applied_time) else None


def _started_since(snapshot: Snapshot, since: float) -> Iterator[int]:
    """Yield the ids of the jobs that started after `since` and before a snapshot."""
    for job in snapshot.jobs:
        if started_since(job, since, snapshot):
            yield job.job_id
