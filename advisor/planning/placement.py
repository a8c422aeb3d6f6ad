"""Proposes to consolidate: sets delay timers at the node and leaf tiers through Slurm's own fields.

Where a policy chooses nodes for gangs, it proposes these.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np

from advisor.domain.actions import Action, Lever, NodeRange, Reason, SetNodeRange, SetSwitches
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GangRequest, GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.plan import UNPUBLISHED, Evidence, Expected, Facts, Kind, Recommendation, published
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fit
from advisor.features.queue import QueueTable
from advisor.planning.beliefs import Basis
from advisor.planning.case import Case
from advisor.planning.head import TurnInLine, turns
from advisor.planning.timers import Place, Timer, closer_places, timer_for
from advisor.planning.tuning import mean_gain_s

# A gang with fewer GPUs sits on one node.
FEWEST_GPUS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceWorthWaiting(Facts):
    """A timer, and the place where the gang could start without it; inflations are medians."""

    timer: Timer = field(metadata=UNPUBLISHED)
    best_tier: LocalityTier
    tier_now: LocalityTier | None
    delayed_before_s: float
    queueing_delay_s: float
    first_in_line: bool
    inflation: float = field(metadata=UNPUBLISHED)
    inflation_there: float = field(metadata=UNPUBLISHED)
    basis: Basis = field(metadata=UNPUBLISHED)

    @property
    def reason(self) -> Reason:
        """Return the reason by what the gang waits for."""
        return Reason.LEAF_WORTH_WAITING if self.timer.nodes is None else Reason.NODE_WORTH_WAITING

    @property
    def evidence(self) -> dict[str, Evidence]:
        """Return the facts as published, those of the timer first."""
        return {**self.timer.evidence, **published(self)}


def action_for(job: Job, place: Place, wait_s: float) -> Action:
    """Return the action that makes Slurm wait."""
    gang, held = job.gang, place.gang
    if place.tier is LocalityTier.NODE:
        return SetNodeRange(
            job_id=job.job_id,
            before=NodeRange(low=gang.nodes_min, high=gang.nodes_max or 0),
            after=NodeRange(low=held.nodes_min, high=held.nodes_max or 0),
        )
    return SetSwitches(job_id=job.job_id, before=None, after=SwitchRequest(count=1, max_wait_s=wait_s))


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose timers for gangs near the head of the line that could sit closer."""
    queue, done = case.queue_after(so_far), case.done(so_far)
    wanted = [row for row in rows_that_can_wait(queue) if queue.jobs[row].job_id not in done]
    asked = None if case.asked is None else [row for row in wanted if queue.jobs[row].job_id in case.asked]
    if asked is not None and not asked:
        return
    for turn, fit in turns_near_head(case, queue, wanted, asked):
        if fit.restricted or fit.tier_now is LocalityTier.NODE:
            continue
        closest = next(_timers(case, queue, turn, fit), None)
        if closest is not None:
            yield _recommendation(case, queue, turn, *closest, fit)


def turns_near_head(
    case: Case, queue: QueueTable, wanted: Sequence[int], asked: Sequence[int] | None = None
) -> Iterator[tuple[TurnInLine, Fit]]:
    """Yield the turns of the gangs in some rows of the queue that stand near the head, and where each fits then.

    Those of the rows `asked` are the same without the others.
    """
    tested = [row for row in wanted if queue.jobs[row].job_id in case.tested]
    if not tested:
        return
    shown = None if asked is None else [row for row in asked if queue.jobs[row].job_id in case.tested]
    line = case.as_asked(queue)
    for turn in turns(case.timetable, case.fitter, line, case.freed, case.tested, tested, shown):
        job = queue.jobs[turn.row]
        fit = turn.fitter.fit_in_service(job.gang, job.partitions)
        yield turn, fit if turn.claim is not None else replace(fit, tier_now=None)


def rows_that_can_wait(queue: QueueTable) -> list[int]:
    """Return the rows of the gangs that can sit closer or further apart, with a run time to count with.

    The saving of a job without a limit and a forecast is unknown.
    """
    rows = np.flatnonzero((queue.gpus >= FEWEST_GPUS) & np.isfinite(queue.run.expected_s)).tolist()
    return [row for row in rows if can_be_spread(queue.jobs[row].gang, int(queue.gpus[row]))]


def can_be_spread(gang: GangRequest, gpus: int) -> bool:
    """Return whether a gang of some GPUs can sit on several nodes."""
    return gpus >= FEWEST_GPUS and gang.nodes_max != 1 and gang.scope is not GpuScope.SOCKET and not gang.has_slices


def _timers(case: Case, queue: QueueTable, turn: TurnInLine, fit: Fit) -> Iterator[tuple[Place, Timer]]:
    """Yield the places that are worth waiting for with their timers, the closest first."""
    job = queue.jobs[turn.row]
    for place in closer_places(case, job, fit, turn.fitter):
        timer = timer_for(case, queue, turn.row, place, is_first=turn.is_first)
        if timer is None or turn.start_s > timer.timer_s:
            continue  # by the time it may start, its timer has ended
        # By rule it is unknown when a place comes free; with forecasts, only waits that can succeed begin.
        held = job if place.gang is job.gang else replace(job, gang=place.gang)
        if not queue.run.by_model[turn.row] or case.wait_for_s(held, place.closest) <= timer.timer_s:
            yield place, timer


def _recommendation(
    case: Case, queue: QueueTable, turn: TurnInLine, place: Place, timer: Timer, fit: Fit
) -> Recommendation:
    job = queue.jobs[turn.row]
    rates = case.tuner.rates(timer.gpus, place.tier)
    return Recommendation(
        kind=Kind.CONSOLIDATE,
        action=action_for(job, place, timer.timer_s),
        facts=PlaceWorthWaiting(
            timer=timer,
            best_tier=place.tier,
            tier_now=fit.tier_now,
            delayed_before_s=case.past_of(job.job_id).delayed_s,
            queueing_delay_s=float(queue.wait_s[turn.row]),
            first_in_line=turn.is_first,
            inflation=place.inflation.median,
            inflation_there=place.inflation_there.median,
            basis=_basis(case, job, place),
        ),
        expected=Expected(
            saved_s=mean_gain_s(rates, timer.spread_cost_s, timer.timer_s),
            saved_s_low=-timer.timer_s,
            saved_s_high=timer.spread_cost_s_high,
            jobs_helped=1,
            added_delay_max_s=timer.timer_s,
        ),
        revert_after_s=timer.timer_s if place.tier is LocalityTier.NODE else None,
    )


def _basis(case: Case, job: Job, place: Place) -> Basis:
    if place.spread <= place.closest:
        return Basis.RULE_FOR_MORE_NODES
    return case.beliefs.inflation_basis(job, place.spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceForGang(Facts):
    """The nodes chosen for a gang that can start now; neighbours are gangs that send from these nodes, too."""

    reason = Reason.PLACE_FOR_GANG

    gpus: int
    nodes: int
    leaves: int
    neighbours: int
    slowed_by_neighbours: float
    lease_s: float
    by_policy: str


def named_places(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterable[Recommendation]:
    """Propose nodes for the gangs that can start now, where the site allows it and a policy chooses them.

    Where the policy fails, the rule goes on in its place.
    """
    policy = case.decider.policy
    if not case.settings.name_nodes or policy is None or Lever.NODE_LIST not in policy.levers:
        return ()
    # What such a policy sees is imported for it alone.
    from advisor.planning import gang_nodes

    return gang_nodes.recommendations(case, so_far)
