"""Runs a step without changing the cluster: what `apply` would do now, for commands that only show it."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import OpenGate, Step
from advisor.cycle import Cycle
from advisor.domain.actions import Action
from advisor.domain.job import Job
from advisor.domain.memory import KEPT_S, Journal
from advisor.domain.plan import Outcome, Receipt, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import WINDOW_S
from advisor.planning.observing import observed


class RehearsedCluster:
    """The cluster of a snapshot after the changes requested so far."""

    name = "rehearsal"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> Snapshot:
        """Return the snapshot with the changes requested so far."""
        return self._snapshot

    def apply(self, action: Action) -> Receipt:
        """Change a pending job as Slurm would; a field that was not read counts as holding our value."""
        job = self._snapshot.jobs_by_id.get(action.job_id)
        if job is None or not job.is_pending:
            return Receipt(action=action, outcome=Outcome.FAILED, text="the job is not pending")
        if self._snapshot.shows(job, action.lever):
            if action.held_by(job) == action.after:
                return Receipt(action=action, outcome=Outcome.ALREADY_SO)
            if not action.can_hold(job, action.before):
                return Receipt(action=action, outcome=Outcome.FAILED, text="the field was changed", is_overruled=True)
        jobs = tuple(action.applied_to(other) if other is job else other for other in self._snapshot.jobs)
        self._snapshot = replace(self._snapshot, jobs=jobs)
        return Receipt(action=action, outcome=Outcome.APPLIED)

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Change pending jobs, one after the other."""
        return tuple(map(self.apply, changes))

    def hides_range_end(self, job_id: int) -> bool:  # noqa: ARG002  (the protocol's)
        """Return False: only slurmctld knows, and a rehearsal sends nothing to it."""
        return False


class NothingNew(OpenGate):
    """A gate that lets changes be reverted and holds all new ones back."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:  # noqa: ARG002  (the protocol's)
        """Return why no change is applied."""
        return "rehearsal: nothing is sent"


def in_memory(journal: Journal, cycle: Cycle, snapshot: Snapshot) -> MemoryJournal:
    """Copy what a journal holds that a step on a snapshot depends on; raises what reading the journal raises."""
    jobs = frozenset(job.job_id for job in snapshot.jobs)
    return MemoryJournal(
        leases=journal.leases(),
        closed=journal.closed(jobs, since=snapshot.taken_at - cycle.limits.fairness_window_s),
        waits=journal.waits(snapshot.taken_at - KEPT_S),
        observed_until=journal.observed_until(),
        trust=journal.trust(),
        standings=journal.standings(snapshot.taken_at - WINDOW_S),
    )


def rehearse(cycle: Cycle, journal: Journal, snapshot: Snapshot) -> Step:
    """Run a step on a copy of a journal; neither the cluster nor the journal is changed.

    Raises what reading the journal raises.
    """
    cluster, copy = RehearsedCluster(snapshot), in_memory(journal, cycle, snapshot)
    applier = Applier(source=cluster, actuator=cluster, cycle=cycle, journal=copy, observe=observed, gate=NothingNew())
    return applier.step(snapshot)
