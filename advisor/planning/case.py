"""Holds the inputs that all proposers share in one cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from advisor.domain.actions import Lever, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.plan import Kind, Permits, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fitter, node_table
from advisor.features.nodes import NodeTable
from advisor.features.policy import Decider
from advisor.features.queue import QueueTable, jobs_within_depth, queue_table
from advisor.features.supply import Releases, releases, remaining_s
from advisor.planning.beliefs import Beliefs
from advisor.planning.earliest import Holdings, earliest, holdings_of
from advisor.planning.head import turns
from advisor.planning.levers import missing_by_lever
from advisor.planning.observing import NO_PAST, Past, past_by_job, still_waiting, timer_tier
from advisor.planning.timetable import Timetable
from advisor.planning.tuning import Tuner, tuning_of
from advisor.settings import Limits, PlanningSettings

if TYPE_CHECKING:
    from advisor.features.observe.known_models import KnownModels

EVERY_LEVER: Final = frozenset(Lever)


@dataclass(frozen=True, kw_only=True)
class Case:
    """The inputs of one cycle: snapshot, forecasts, memory of earlier cycles, permits of the guard, and settings.

    Only delay timers of the jobs `asked` are wanted, of all jobs if it is None. Derived values are computed once, on
    first use.
    """

    snapshot: Snapshot
    settings: PlanningSettings = field(default_factory=PlanningSettings)
    limits: Limits = field(default_factory=Limits)
    forecasts: Forecasts = NO_FORECASTS
    memory: Memory = NOTHING_KNOWN
    permits: Permits = field(default_factory=Permits)
    levers: frozenset[Lever] = EVERY_LEVER
    decider: Decider = field(default_factory=Decider)
    models: "KnownModels | None" = None
    asked: frozenset[int] | None = None

    @cached_property
    def missing(self) -> frozenset[Lever]:
        """Return the levers that cannot be used."""
        return frozenset(missing_by_lever(self.snapshot)) | (EVERY_LEVER - self.levers)

    @cached_property
    def untouchable(self) -> frozenset[int]:
        """Return the jobs that keep their place in the line and are not changed."""
        return frozenset(self.permits.left_alone)

    @cached_property
    def nice_of_ours(self) -> Mapping[int, int]:
        """Map jobs to the part of their nice that an open change added."""
        return nice_of_ours(self.snapshot, self.memory)

    @cached_property
    def table(self) -> NodeTable:
        """Return the nodes as arrays."""
        return node_table(self.snapshot)

    @cached_property
    def fitter(self) -> Fitter:
        """Return the fitter, which finds where gangs fit."""
        return Fitter(self.snapshot, self.table)

    @cached_property
    def queue(self) -> QueueTable:
        """Return the pending jobs in the order in which Slurm considers them."""
        settings = self.settings
        ratio = settings.used_limit_ratio_low
        return queue_table(self.snapshot, self.table, settings.depth, self.forecasts, rule_ratio=ratio)

    @cached_property
    def whole_queue(self) -> QueueTable:
        """Return the pending jobs in the order in which Slurm considers them, those beyond the depth as well."""
        if (np.bincount(self.queue.pool) < self.settings.depth).all():
            return self.queue
        ratio = self.settings.used_limit_ratio_low
        return queue_table(self.snapshot, self.table, len(self.snapshot.jobs), self.forecasts, rule_ratio=ratio)

    @cached_property
    def tested(self) -> frozenset[int]:
        """Return the jobs that a pass of backfill considers."""
        return jobs_within_depth(self.snapshot)

    @cached_property
    def remaining_s(self) -> Mapping[int, float]:
        """Return the time that each running job is expected to run on."""
        return remaining_s(self.snapshot, self.forecasts, self.settings.used_limit_ratio_low)

    @cached_property
    def freed(self) -> Releases:
        """Return the GPUs that running jobs are expected to release, and when."""
        return releases(self.snapshot, self.queue, self.remaining_s)

    @cached_property
    def freed_by_limits(self) -> Releases:
        """Return the GPUs that running jobs release at their time limits."""
        return releases(self.snapshot, self.queue)

    @cached_property
    def beliefs(self) -> Beliefs:
        """Return the speeds and inflations of jobs."""
        return Beliefs(forecasts=self.forecasts, settings=self.settings)

    @cached_property
    def tuner(self) -> Tuner:
        """Return the tuner of delay timers, with the known waits of gangs near the head of the line."""
        waits = (*self.memory.waits, *still_waiting(self.snapshot, self._leases_near_head()))
        return Tuner(waits, self.snapshot.taken_at, tuning_of(self.settings))

    @cached_property
    def past_by_job(self) -> Mapping[int, Past]:
        """Map jobs to the effect that our earlier changes had on them."""
        return past_by_job(self.memory.leases, self.snapshot.taken_at)

    @cached_property
    def holdings(self) -> Holdings:
        """Return the resources of running jobs with their expected ends."""
        return holdings_of(self.snapshot, self.table, self.remaining_s)

    @cached_property
    def holdings_by_limits(self) -> Holdings:
        """Return the resources of running jobs until their time limits."""
        return holdings_of(self.snapshot, self.table)

    def timetable(self, horizon_s: float | None = None) -> Timetable:
        """Return a timetable of the running jobs by their limits, over the window of backfill or up to a horizon."""
        window_s = self.snapshot.config.backfill_window_s
        return Timetable(
            self.snapshot, self.fitter, self.holdings_by_limits, window_s if horizon_s is None else horizon_s
        )

    def past_of(self, job_id: int) -> Past:
        """Return the effect that our earlier changes had on a job."""
        return self.past_by_job.get(job_id, NO_PAST)

    def delay_left_of(self, job_id: int) -> float:
        """Return the seconds by which a job can still be delayed."""
        full_s = self.limits.max_added_delay_s
        return min(full_s - self.past_of(job_id).delayed_s, self.permits.delay_left_s.get(job_id, full_s))

    def wait_for_s(self, job: Job, tier: LocalityTier) -> float:
        """Return how long a gang should wait for a tier if no other job takes it; infinity if it never fits."""
        start_time = earliest(self.snapshot, self.table, self.holdings, job, tier)
        return float("inf") if start_time is None else start_time - self.snapshot.taken_at

    def done(self, so_far: Sequence[Recommendation]) -> frozenset[int]:
        """Return the jobs that get no further change: the untouchable ones and those with a change."""
        return self.untouchable | {change.job_id for change in so_far}

    def queue_after(self, so_far: Sequence[Recommendation]) -> QueueTable:
        """Return the queue as it stands once the changes so far have taken effect.

        Lifted jobs stand before those that they pass, and gangs with a delay timer ask for the better place.
        """
        steps = {
            change.job_id: change.action.after - change.action.before
            for change in so_far
            if isinstance(change.action, SetNice)
        }
        queue = self.queue
        if steps:
            moved = np.array([steps.get(job.job_id, 0) for job in queue.jobs], dtype=np.int64)
            queue = queue.by_priority(queue.priority - moved)
        waiting = {change.job_id: change.action for change in so_far if change.kind is Kind.CONSOLIDATE}
        if not waiting:
            return queue
        return replace(
            queue,
            jobs=tuple(waiting[job.job_id].applied_to(job) if job.job_id in waiting else job for job in queue.jobs),
        )

    def as_asked(self, queue: QueueTable) -> QueueTable:
        """Return a queue with the requests of users in place of those that our open timers narrow."""
        asked = dict(self.snapshot.jobs_by_id)
        for lease in self._open_timers:
            if lease.job_id in asked:
                asked[lease.job_id] = replace(lease.undo.applied_to(asked[lease.job_id]), start_time=None)
        timed = {lease.job_id for lease in self._open_timers}
        return replace(queue, jobs=tuple(asked[job.job_id] if job.job_id in timed else job for job in queue.jobs))

    @cached_property
    def _open_timers(self) -> tuple[Lease, ...]:
        leases = self.memory.leases
        return tuple(lease for lease in leases if lease.ending is None and timer_tier(lease.action) is not None)

    def _leases_near_head(self) -> list[Lease]:
        """Return the open timers of the gangs that stand near the head of the line by their users' requests."""
        timed = {lease.job_id for lease in self._open_timers}
        if not timed:
            return []
        queue = self.as_asked(self.queue)
        wanted = [row for row, job in enumerate(queue.jobs) if job.job_id in timed]
        found = turns(self.timetable, self.fitter, queue, self.freed, self.tested, wanted)
        near = {queue.jobs[turn.row].job_id for turn in found}
        return [lease for lease in self._open_timers if lease.job_id in near]


def nice_of_ours(snapshot: Snapshot, memory: Memory) -> Mapping[int, int]:
    """Map jobs to the part of their nice that an open change added; it is below 0 for a lift."""
    jobs = snapshot.jobs_by_id
    return {
        lease.job_id: lease.action.after - lease.undo.after
        for lease in memory.leases
        if isinstance(lease.action, SetNice)
        and isinstance(lease.undo, SetNice)
        and lease.ending is None
        and lease.job_id in jobs
        and jobs[lease.job_id].nice == lease.action.after
    }
