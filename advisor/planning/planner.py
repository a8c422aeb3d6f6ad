"""The planner: order first, then places, then sizes; with forecasts where there are, else by rules."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType

import numpy as np

from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.lease import Lease
from advisor.domain.limits import Limits
from advisor.domain.plan import Kind, Lever, Plan, Recommendation, SetNice, applied
from advisor.domain.snapshot import Snapshot
from advisor.domain.waits import Wait
from advisor.features.capacity import Fitter, node_table
from advisor.features.queue import QueueTable, queue_table
from advisor.features.supply import releases, remaining_s
from advisor.planning import ordering, placement, room, sizing, soft_limit
from advisor.planning.beliefs import Beliefs
from advisor.planning.levers import missing_by_lever
from advisor.planning.observing import past_by_job, still_waiting
from advisor.planning.settings import PlanningSettings
from advisor.planning.surroundings import Surroundings
from advisor.planning.tuning import Tuner, tuning_of

EVERY_LEVER = frozenset(Lever)
NO_BOUNDS: Mapping[int, float] = MappingProxyType({})
_KIND_RANK = {kind: rank for rank, kind in enumerate(Kind)}


def plan(  # noqa: PLR0913  (all that one cycle knows)
    snapshot: Snapshot,
    settings: PlanningSettings,
    limits: Limits,
    *,
    untouchable: frozenset[int] = frozenset(),
    forecasts: Forecasts = NO_FORECASTS,
    waits: Iterable[Wait] = (),
    leases: Iterable[Lease] = (),
    levers: frozenset[Lever] = EVERY_LEVER,
    stoppable: frozenset[int] = frozenset(),
    delay_left_s: Mapping[int, float] = NO_BOUNDS,
) -> Plan:
    """Plan one cycle; jobs in `untouchable` keep their place in the line but are not changed.

    `waits` is what was seen of gangs that waited, `leases` the changes that are or were out for pending jobs, `levers`
    what may be used, `stoppable` the running jobs that may be stopped for a gang; where some are, nothing else is
    proposed. `delay_left_s` maps jobs to how much longer they may be delayed, where that is less than the full bound.
    One proposal per job: a job that steps back is neither consolidated nor resized, and one that waits for a better
    place is not resized. Equal inputs give equal plans.
    """
    leases = tuple(leases)  # read more than once
    queue, around = surroundings(snapshot, settings, limits, forecasts, waits, leases, levers, delay_left_s)
    stops = list(room.recommendations(around, queue, stoppable, leases))
    if stops:
        # Nobody else moves until the gang has what comes free.
        return Plan(recommendations=tuple(sorted(stops, key=attrgetter("job_id"))))
    bounded, missing = releases(snapshot, queue), around.missing
    found = [] if Lever.NICE in missing else ordering.moves(queue, bounded, settings, limits, untouchable, delay_left_s)
    changes = list(ordering.recommendations(queue, found, settings))
    queue = _reordered(queue, changes)
    if Lever.TIME_MIN not in missing:
        left = replace(limits, max_changes=limits.max_changes - len(changes))
        moved, rows = untouchable | {change.job_id for change in changes}, np.arange(len(queue.jobs))
        changes += soft_limit.recommendations(snapshot, queue, bounded, rows, forecasts, settings, left, moved)
    changes += _pool_by_pool(around, queue, untouchable | {change.job_id for change in changes})
    changes.sort(key=lambda change: (_KIND_RANK[change.kind], change.job_id))
    return Plan(recommendations=tuple(changes))


def surroundings(
    snapshot: Snapshot,
    settings: PlanningSettings,
    limits: Limits,
    forecasts: Forecasts = NO_FORECASTS,
    waits: Iterable[Wait] = (),
    leases: Iterable[Lease] = (),
    levers: frozenset[Lever] = EVERY_LEVER,
    delay_left_s: Mapping[int, float] = NO_BOUNDS,
) -> tuple[QueueTable, Surroundings]:
    """Return the pending jobs in line, and all else that a plan looks at."""
    leases = tuple(leases)
    table, ratio = node_table(snapshot), settings.used_limit_ratio_low
    queue = queue_table(snapshot, table, settings.depth, forecasts, rule_ratio=ratio)
    remaining = remaining_s(snapshot, forecasts, ratio)
    return queue, Surroundings(
        snapshot=snapshot,
        table=table,
        fitter=Fitter(snapshot, table),
        freed=releases(snapshot, queue, remaining),
        remaining_s=remaining,
        beliefs=Beliefs(forecasts=forecasts, settings=settings),
        missing=frozenset(missing_by_lever(snapshot)) | (EVERY_LEVER - levers),
        limits=limits,
        tuner=Tuner((*waits, *still_waiting(snapshot, leases)), snapshot.taken_at, tuning_of(settings)),
        past_by_job=past_by_job(leases, snapshot.taken_at),
        delay_left_s=delay_left_s,
    )


def _reordered(queue: QueueTable, changes: list[Recommendation]) -> QueueTable:
    """Return the queue as it stands once the moves have taken effect."""
    delta = {
        change.job_id: change.action.after - change.action.before
        for change in changes
        if isinstance(change.action, SetNice)
    }
    moved = np.array([delta.get(job.job_id, 0) for job in queue.jobs], dtype=np.int64)
    return queue.by_priority(queue.priority - moved)


def _pool_by_pool(around: Surroundings, queue: QueueTable, done: frozenset[int]) -> Iterator[Recommendation]:
    """Place and size the jobs of each pool, leaving alone those in `done`."""
    for pool in range(len(queue.pool_gpus)):
        rows = queue.rows_of(pool)
        if not len(rows):
            continue
        placed = list(placement.recommendations(around, queue, rows, done))
        yield from placed
        if Lever.GPU_COUNT not in around.missing:
            # A gang that waits for a better place leaves its GPUs to others for now.
            waiting = _changed(queue, placed)
            taken = done | {change.job_id for change in placed}
            yield from sizing.recommendations(waiting, around.freed, rows, around.fitter, around.beliefs, taken)


def _changed(queue: QueueTable, changes: list[Recommendation]) -> QueueTable:
    """Return the queue with its jobs as they stand once the changes have taken effect."""
    actions = {change.job_id: change.action for change in changes}
    return replace(
        queue,
        jobs=tuple(applied(job, actions[job.job_id]) if job.job_id in actions else job for job in queue.jobs),
    )
