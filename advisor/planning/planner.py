"""The rule-based planner: order first, then places, then sizes."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from advisor.domain.limits import Limits
from advisor.domain.plan import Kind, Lever, Plan, Recommendation, SetNice, applied
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import Fitter, node_table
from advisor.features.queue import QueueTable, queue_table
from advisor.features.supply import Releases, releases
from advisor.planning import ordering, placement, sizing
from advisor.planning.levers import missing_by_lever
from advisor.planning.settings import PlanningSettings

_KIND_RANK = {kind: rank for rank, kind in enumerate(Kind)}


def plan(
    snapshot: Snapshot, settings: PlanningSettings, limits: Limits, *, untouchable: frozenset[int] = frozenset()
) -> Plan:
    """Plan one cycle; jobs in `untouchable` keep their place in the line but are not changed.

    One proposal per job: a job that steps back is neither consolidated nor resized, and one that waits for a
    better place is not resized. Equal inputs give equal plans.
    """
    table = node_table(snapshot)
    queue = queue_table(snapshot, table, settings.depth)
    missing = frozenset(missing_by_lever(snapshot))
    freed = releases(snapshot, queue)
    found = [] if Lever.NICE in missing else ordering.moves(queue, freed, settings, limits, untouchable)
    changes = list(ordering.recommendations(queue, found, settings))
    queue = _reordered(queue, changes)
    done = untouchable | {change.job_id for change in changes}
    changes += _pool_by_pool(Fitter(snapshot, table), snapshot, queue, freed, settings, missing, done)
    changes.sort(key=lambda change: (_KIND_RANK[change.kind], change.job_id))
    return Plan(recommendations=tuple(changes))


def _reordered(queue: QueueTable, changes: list[Recommendation]) -> QueueTable:
    """Return the queue as it stands once the moves have taken effect."""
    delta = {
        change.job_id: change.action.after - change.action.before
        for change in changes
        if isinstance(change.action, SetNice)
    }
    priority = queue.priority - np.array([delta.get(job.job_id, 0) for job in queue.jobs], dtype=np.int64)
    # Slurm's own tie-breaks, as in the table.
    submit_time = np.array([job.submit_time for job in queue.jobs])
    job_id = np.array([job.job_id for job in queue.jobs], dtype=np.int64)
    order = np.lexsort((job_id, submit_time, -priority))
    return replace(
        queue,
        jobs=tuple(queue.jobs[row] for row in order),
        pool=queue.pool[order],
        priority=priority[order],
        wait_s=queue.wait_s[order],
        gpus=queue.gpus[order],
        smallest=queue.smallest[order],
        gpu_type=queue.gpu_type[order],
        limit_s=queue.limit_s[order],
        work=queue.work[order],
        tasks=queue.tasks[order],
    )


def _pool_by_pool(
    fitter: Fitter,
    snapshot: Snapshot,
    queue: QueueTable,
    freed: Releases,
    settings: PlanningSettings,
    missing: frozenset[Lever],
    done: frozenset[int],
) -> Iterator[Recommendation]:
    """Place and size the jobs of each pool, leaving alone those in `done`."""
    for pool in range(len(queue.pool_gpus)):
        rows = queue.rows_of(pool)
        if not len(rows):
            continue
        placed = list(placement.recommendations(snapshot, queue, freed, rows, fitter, settings, missing, done))
        yield from placed
        if Lever.GPU_COUNT not in missing:
            # A gang that waits for a better place leaves its GPUs to others for now.
            waiting = _changed(queue, placed)
            taken = done | {change.job_id for change in placed}
            yield from sizing.recommendations(waiting, freed, rows, fitter, settings, taken)


def _changed(queue: QueueTable, changes: list[Recommendation]) -> QueueTable:
    """Return the queue with its jobs as they stand once the changes have taken effect."""
    actions = {change.job_id: change.action for change in changes}
    return replace(
        queue,
        jobs=tuple(applied(job, actions[job.job_id]) if job.job_id in actions else job for job in queue.jobs),
    )
