"""What the planners of places and sizes share in one cycle."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from advisor.domain.job import Job
from advisor.domain.limits import Limits
from advisor.domain.plan import Lever
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fitter
from advisor.features.nodes import NodeTable
from advisor.features.supply import Releases
from advisor.planning.beliefs import Beliefs
from advisor.planning.earliest import Holdings, earliest, holdings_of
from advisor.planning.observing import NO_PAST, Past
from advisor.planning.tuning import Tuner


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The cluster, what running jobs are expected to give back, what is believed, and the levers that are not there.

    `remaining_s` maps running jobs to the time that each is expected to run on, `past_by_job` jobs to what our advice
    did to them before, `delay_left_s` jobs to how much longer they may be delayed where it is less than the full bound.
    """

    snapshot: Snapshot
    table: NodeTable
    fitter: Fitter
    freed: Releases
    remaining_s: Mapping[int, float]
    beliefs: Beliefs
    missing: frozenset[Lever]
    limits: Limits
    tuner: Tuner
    past_by_job: Mapping[int, Past]
    delay_left_s: Mapping[int, float]

    @cached_property
    def holdings(self) -> Holdings:
        """What running jobs hold, until they are expected to end."""
        return holdings_of(self.snapshot, self.table, self.remaining_s)

    def past_of(self, job_id: int) -> Past:
        """Return what our advice did to a job before."""
        return self.past_by_job.get(job_id, NO_PAST)

    def delay_left_of(self, job_id: int) -> float:
        """Return how much longer a job may be delayed."""
        full_s = self.limits.max_added_delay_s
        return min(full_s - self.past_of(job_id).delayed_s, self.delay_left_s.get(job_id, full_s))

    def wait_for_s(self, job: Job, tier: LocalityTier) -> float:
        """Return how long a gang is expected to wait for a tier if nobody comes in between; infinity for ever."""
        found = earliest(self.snapshot, self.table, self.holdings, job, tier)
        return float("inf") if found is None else found - self.snapshot.taken_at
