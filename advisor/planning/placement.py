"""Consolidate: delay timers at the node and the leaf tier, carried by Slurm's own fields."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Action, NodeRange, Reason, SetNodeRange, SetSwitches
from advisor.domain.gang import GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.plan import Expected, Kind, Recommendation
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fit
from advisor.features.queue import QueueTable
from advisor.features.supply import latest_starts_s
from advisor.planning.case import Case
from advisor.planning.timers import Timer, closer_places, timer_for

# A timer runs from now, so a gang that may start much later would have used it up by then.
SOON_S = 600.0


def action_for(job: Job, timer: Timer) -> Action:
    """Return the action that makes Slurm wait."""
    gang, held = job.gang, timer.place.gang
    if timer.place.tier is LocalityTier.NODE:
        return SetNodeRange(
            job_id=job.job_id,
            before=NodeRange(low=gang.nodes_min, high=gang.nodes_max or 0),
            after=NodeRange(low=held.nodes_min, high=held.nodes_max or 0),
        )
    return SetSwitches(job_id=job.job_id, before=None, after=SwitchRequest(count=1, max_wait_s=timer.wait_s))


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose timers for gangs that could sit closer."""
    queue, done = case.queue_after(so_far), case.done(so_far)
    for rows in queue.rows_by_pool():
        yield from _of_pool(case, queue, rows, done)


def _of_pool(case: Case, queue: QueueTable, rows: NDArray[np.intp], done: frozenset[int]) -> Iterator[Recommendation]:
    """Propose timers for the gangs of one pool but those in `done`; `rows` `(n_rows,)` in planned order."""
    starts_s = latest_starts_s(queue, case.freed, rows, queue.smallest[rows])
    for row, start_s in zip(rows.tolist(), starts_s.tolist(), strict=True):
        job = queue.jobs[row]
        if (
            job.job_id in done
            or queue.gpus[row] < 2
            or job.gang.scope is GpuScope.SOCKET
            # Nobody knows what a place saves to a job without a limit and without a forecast.
            or not np.isfinite(queue.run.expected_s[row])
        ):
            continue
        # What may start neither now nor soon has nothing to decline, and nothing is closer than a node; most of a long
        # queue is done with here.
        tier_now = case.fitter.tier_now(job.gang, job.partitions)
        if tier_now is LocalityTier.NODE or (tier_now is None and start_s > SOON_S):
            continue
        fit = case.fitter.fit_in_service(job.gang, job.partitions)
        if fit.restricted:
            continue
        timer = _first_timer(case, queue, row, fit, start_s)
        if timer is not None:
            yield _recommendation(case, queue, row, timer, fit)


def _first_timer(case: Case, queue: QueueTable, row: int, fit: Fit, start_s: float) -> Timer | None:
    """Return the timer for the closest place that is worth one."""
    job = queue.jobs[row]
    for place in closer_places(case, job, fit):
        timer = timer_for(case, queue, row, place)
        if timer is None or (fit.tier_now is None and start_s > timer.wait_s):
            continue  # by the time it may start, its timer has ended
        # By rule nobody knows when a place comes free; with forecasts a wait in vain is not begun.
        held = job if place.gang is job.gang else replace(job, gang=place.gang)
        if not queue.run.by_model[row] or case.wait_for_s(held, place.closest) <= timer.wait_s:
            return timer
    return None


def _recommendation(case: Case, queue: QueueTable, row: int, timer: Timer, fit: Fit) -> Recommendation:
    job, place, cost_s = queue.jobs[row], timer.place, timer.cost_s
    on_nodes = place.tier is LocalityTier.NODE
    found = "it could start now only spread out" if fit.tier_now is not None else "free GPUs may soon come spread out"
    return Recommendation(
        kind=Kind.CONSOLIDATE,
        action=action_for(job, timer),
        reason=Reason.NODE_WORTH_WAITING if on_nodes else Reason.LEAF_WORTH_WAITING,
        text=f"{timer.gpus} GPUs fit {place.words}, but {found}; {timer.in_words()}",
        expected=Expected(
            saved_s_low=-timer.wait_s,
            saved_s_high=cost_s.high,
            jobs_helped=1,
            added_delay_max_s=timer.wait_s,
            assumes=(
                f"inflation {place.inflation.median:.3g} spread against {place.inflation_there.median:.3g} on "
                f"{place.words}, {_origin(case, job, timer)}; the low end is a wait in vain"
            ),
        ),
        evidence={
            **timer.evidence(),
            "best_tier": place.tier.name.lower(),
            "tier_now": "none" if fit.tier_now is None else fit.tier_now.name.lower(),
            "delayed_before_s": round(case.past_of(job.job_id).delayed_s, 3),
            "queueing_delay_s": round(float(queue.wait_s[row]), 3),
        },
        revert_after_s=timer.wait_s if on_nodes else None,
    )


def _origin(case: Case, job: Job, timer: Timer) -> str:
    """Say where the inflations come from."""
    if timer.place.spread <= timer.place.closest:
        return "by rule for more nodes than needed"
    return case.beliefs.inflation_in_words(job, timer.place.spread)
