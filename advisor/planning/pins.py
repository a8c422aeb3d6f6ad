"""Begins the waits of gangs that the submit script holds to few nodes, each with an end, as those of delay timers have.

`job_submit.lua` writes `pinned` with their number into the comment. Such a gang loses nothing until it could start as
its user asked. From then on the bound on its nodes is a change of ours, with a lease, which is reverted when the wait
is over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from advisor.domain.actions import Lever, NodeRange, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.lease import Lease, LeaseState, intended
from advisor.domain.topology import LocalityTier
from advisor.features.queue import QueueTable
from advisor.planning.case import Case
from advisor.planning.counterfactual import watched
from advisor.planning.earliest import latest_start_s
from advisor.planning.placement import turns_near_head
from advisor.planning.timers import closer_places, timer_for, timer_of


def pin_of(job: Job) -> SetNodeRange | None:
    """Return the change that the submit script made to a pending gang; None if it made none, or the bound is another.

    An open node count has no number: up to as many nodes as GPUs are the same to Slurm, on every release.
    """
    gang, gpus = job.gang, job.gang.gpu_count
    held = NodeRange(low=gang.nodes_min, high=gang.nodes_max or 0)
    if not job.leaves_nodes_open or held.high != job.hints.pinned or gpus is None or not held.low <= held.high < gpus:
        return None
    return SetNodeRange(job_id=job.job_id, before=NodeRange(low=held.low, high=gpus), after=held)


def waits_begun(case: Case) -> tuple[Lease, ...]:
    """Return the leases of the pinned gangs that would have started on more nodes; one that should not wait is due now.

    A chance can pass between two snapshots: GPUs on which jobs from behind it have started count as idle.
    """
    known = case.untouchable | {lease.job_id for lease in case.memory.leases if lease.lever is Lever.NODE_RANGE}
    pins = {
        row: pin
        for row, job in enumerate(case.queue.jobs)
        if job.job_id not in known and (pin := pin_of(job)) is not None
    }
    return tuple(_begun(case, pins)) if pins and Lever.NODE_RANGE not in case.missing else ()


def _begun(case: Case, pins: Mapping[int, SetNodeRange]) -> Iterator[Lease]:
    """Yield the leases of the pins of some rows of the queue whose gangs have declined a first chance."""
    jobs = [pins[row].swapped().applied_to(job) if row in pins else job for row, job in enumerate(case.queue.jobs)]
    asked = replace(case.queue, jobs=tuple(jobs))
    held = {row: replace(job := case.queue.jobs[row], gang=replace(job.gang, nodes_open=False)) for row in pins}
    can_start = {
        turn.row: turn.is_first
        for turn, _ in turns_near_head(case, asked, list(pins))
        if turn.claim is not None and turn.fitter.tier_now(held[turn.row].gang, held[turn.row].partitions) is None
    }
    passed = {job.job_id for job in watched(case, list(_since_queued(case, pins))) if job.would_start_time is not None}
    for row, job in held.items():
        starts_by_itself = case.fitter.tier_now(job.gang, job.partitions) is not None
        if row in can_start or (job.job_id in passed and not starts_by_itself):
            wait_s = _wait_s(case, asked, row, job, is_first=can_start.get(row, True))
            yield _lease(case, pins[row], case.queue.jobs[row], wait_s)


def _since_queued(case: Case, pins: Mapping[int, SetNodeRange]) -> Iterator[Lease]:
    for row, pin in pins.items():
        job = case.queue.jobs[row]
        yield replace(intended(pin, job.waits_since, job=job, added_delay_s=1.0), state=LeaseState.OUT)


def _lease(case: Case, pin: SetNodeRange, job: Job, wait_s: float) -> Lease:
    now = case.snapshot.taken_at
    begun = intended(pin, now, after_s=wait_s, job=job, added_delay_s=wait_s, planned_start=now)
    return replace(begun, state=LeaseState.OUT)


def _wait_s(case: Case, asked: QueueTable, row: int, held: Job, *, is_first: bool) -> float:
    """Return how long a pinned gang waits from now on: 0 where it saves less than that, or could wait beyond its bound.

    `asked` is the queue with the requests of the users.
    """
    job, limits = asked.jobs[row], case.limits
    fit = case.fitter.fit_in_service(job.gang, job.partitions)
    places = closer_places(case, job, fit, case.fitter)
    place = next((place for place in places if place.tier is LocalityTier.NODE), None)
    if place is None or place.gang.nodes_max != held.gang.nodes_max or not np.isfinite(asked.run.expected_s[row]):
        return 0.0
    if job.queueing_delay_s(case.snapshot.taken_at) > limits.max_job_wait_s:
        return 0.0
    if latest_start_s(case.snapshot, case.table, case.holdings_by_limits, held) > limits.max_added_delay_s:
        return 0.0
    if not asked.run.by_model[row]:
        timer = timer_for(case, asked, row, place, is_first=is_first)
        return 0.0 if timer is None else timer.timer_s
    worth = timer_of(case, asked, row, place, 0.0)
    saved_s = worth.spread_cost_s_low if is_first else worth.spread_cost_s
    wait_s = min(saved_s, case.delay_left_of(job.job_id) / 2)
    return wait_s if case.wait_for_s(held, place.closest) <= wait_s else 0.0
