"""Consolidate: delay timers at the node and the leaf tier, carried by Slurm's own fields.

The rule of delay scheduling: a gang that could start now, or soon, only on a worse tier than its best waits for
the better one until its timer ends. Timers are fixed defaults, never longer than the run time they can save
(`algorithms`: our interpretation of Dally, whose timers are not published).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.domain.forecast import Interval
from advisor.domain.gang import GpuScope, SwitchRequest
from advisor.domain.job import Job, Sensitivity
from advisor.domain.plan import (
    Action,
    Expected,
    Kind,
    Lever,
    NodeRange,
    Reason,
    Recommendation,
    SetNodeRange,
    SetSwitches,
)
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fit
from advisor.features.queue import QueueTable
from advisor.features.supply import latest_starts_s
from advisor.planning.beliefs import Beliefs
from advisor.planning.surroundings import Surroundings
from advisor.planning.words import duration

MINUTE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """How long one gang should wait for a tier, and the inflation it escapes by waiting."""

    tier: LocalityTier
    wait_s: float
    inflation: Interval
    inflation_at_tier: Interval
    spread: LocalityTier


def timer_for(queue: QueueTable, row: int, fit: Fit, beliefs: Beliefs, cap_s: float) -> Timer | None:
    """Return what is left of the timer of a gang that may start on a worse tier than it could, or None.

    `cap_s` is the longest wait the tier's lever grants. The timer started when the job became eligible. It is rounded
    down to whole minutes, since that is what Slurm's fields take.
    """
    job, settings = queue.jobs[row], beliefs.settings
    spread = LocalityTier.SPINE if fit.tier_now is None else fit.tier_now
    if fit.best_tier >= spread or fit.best_tier > LocalityTier.LEAF or job.hints.sensitivity is Sensitivity.LOW:
        return None
    timer_s = settings.node_timer_s if fit.best_tier is LocalityTier.NODE else settings.leaf_timer_s
    inflation, at_tier = (
        beliefs.inflation(job, spread, fit.best_tier),
        beliefs.inflation(job, fit.best_tier, fit.best_tier),
    )
    # Never wait longer than waiting can save; a job that declares itself sensitive vouches for its whole limit.
    sensitive = job.hints.sensitivity is Sensitivity.HIGH
    run_s = float((queue.run.high_s if sensitive else queue.run.expected_s)[row])
    bound_s = run_s * (inflation.median - at_tier.median)
    wait_s = round(min(timer_s - float(queue.wait_s[row]), bound_s, cap_s), 3) // MINUTE_S * MINUTE_S
    if wait_s < MINUTE_S:
        return None
    return Timer(tier=fit.best_tier, wait_s=wait_s, inflation=inflation, inflation_at_tier=at_tier, spread=spread)


def action_for(job: Job, timer: Timer, missing: frozenset[Lever]) -> Action | None:
    """Return the action that makes Slurm wait, or None where no lever serves this job."""
    gang = job.gang
    if timer.tier is LocalityTier.NODE:
        # Only a range that the user gave can be narrowed and restored exactly.
        # Counted per node, fewer nodes would mean fewer GPUs.
        counted_apart = gang.scope in (GpuScope.JOB, GpuScope.TASK)
        ranged = gang.nodes_max is not None and gang.nodes_min == 1 < gang.nodes_max
        if Lever.NODE_RANGE in missing or gang.nodes_max is None or not (counted_apart and ranged):
            return None
        before = NodeRange(low=gang.nodes_min, high=gang.nodes_max)
        return SetNodeRange(job_id=job.job_id, before=before, after=NodeRange(low=1, high=1))
    if Lever.SWITCHES in missing or gang.switches is not None:
        return None
    return SetSwitches(job_id=job.job_id, before=None, after=SwitchRequest(count=1, max_wait_s=timer.wait_s))


def recommendations(
    around: Surroundings, queue: QueueTable, rows: NDArray[np.intp], done: frozenset[int]
) -> Iterator[Recommendation]:
    """Propose timers for the gangs of one pool but those in `done`; `rows` `(n_rows,)` in planned order."""
    settings = around.beliefs.settings
    starts_s = latest_starts_s(queue, around.freed, rows, queue.smallest[rows])
    longest_s = max(settings.node_timer_s, settings.leaf_timer_s)
    for row, start_s in zip(rows.tolist(), starts_s.tolist(), strict=True):
        job = queue.jobs[row]
        if (
            job.job_id in done
            or queue.gpus[row] < 2
            or job.gang.scope is GpuScope.SOCKET
            or not np.isfinite(queue.limit_s[row])
            # Whatever its tier, its timer has ended; most of a long queue is done with here.
            or queue.wait_s[row] > longest_s - MINUTE_S
        ):
            continue
        fit = around.fitter.fit(job.gang, job.partitions)
        if fit.restricted:
            continue
        cap_s = np.inf if fit.best_tier is LocalityTier.NODE else around.snapshot.config.max_switch_wait_s
        timer = timer_for(queue, row, fit, around.beliefs, float(cap_s))
        if timer is None or (fit.tier_now is None and start_s > timer.wait_s):
            continue  # by the time it may start, its timer has ended
        action = action_for(job, timer, around.missing)
        # By rule nobody knows when a place comes free; with forecasts a wait in vain is not begun.
        if action is None or (queue.run.by_model[row] and around.wait_for_s(job, timer.tier) > timer.wait_s):
            continue
        yield _recommendation(queue, row, timer, action, fit, around.beliefs)


def _recommendation(
    queue: QueueTable, row: int, timer: Timer, action: Action, fit: Fit, beliefs: Beliefs
) -> Recommendation:
    low_s = float(queue.run.low_s[row]) * max(0.0, timer.inflation.low - timer.inflation_at_tier.median)
    high_s = float(queue.run.high_s[row]) * max(0.0, timer.inflation.high - timer.inflation_at_tier.median)
    on_node = timer.tier is LocalityTier.NODE
    place = "one node" if on_node else "one leaf switch"
    found = "it could start now only spread out" if fit.tier_now is not None else "free GPUs may soon come spread out"
    return Recommendation(
        kind=Kind.CONSOLIDATE,
        action=action,
        reason=Reason.NODE_WORTH_WAITING if on_node else Reason.LEAF_WORTH_WAITING,
        text=(
            f"{int(queue.gpus[row])} GPUs fit {place}, but {found}; waits up to {duration(timer.wait_s)} for {place}, "
            f"since staying spread would cost {duration(low_s)} to {duration(high_s)} of run time"
        ),
        expected=Expected(
            saved_s_low=-timer.wait_s,
            saved_s_high=high_s,
            jobs_helped=1,
            added_delay_max_s=timer.wait_s,
            assumes=(
                f"inflation {timer.inflation.median:.3g} spread against {timer.inflation_at_tier.median:.3g} on "
                f"{place}, {beliefs.inflation_in_words(queue.jobs[row], timer.spread)}; the low end is a wait in vain"
            ),
        ),
        evidence={
            "gpus": int(queue.gpus[row]),
            "best_tier": timer.tier.name.lower(),
            "tier_now": "none" if fit.tier_now is None else fit.tier_now.name.lower(),
            "timer_s": timer.wait_s,
            "spread_cost_s_low": round(low_s, 3),
            "spread_cost_s_high": round(high_s, 3),
            "queueing_delay_s": round(float(queue.wait_s[row]), 3),
        },
        revert_after_s=timer.wait_s if on_node else None,
    )
