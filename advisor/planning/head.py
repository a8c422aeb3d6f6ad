"""Finds the gangs near the head of the line: those that slurmctld can start now or soon, given the jobs ahead of them.

The jobs are added to a timetable in Slurm's order. A job that can start takes its nodes, as many as it needs. A job
that cannot start reserves the nodes on which it fits first by time limits, within the window of backfill and where the
site lets it, and a job behind it starts only if it keeps off them or ends before.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.features.capacity import Fitter
from advisor.features.claims import Claim
from advisor.features.nodes import Flags
from advisor.features.queue import QueueTable
from advisor.features.supply import Releases, latest_starts_s
from advisor.planning.timetable import Timetable

# A timer runs from now, so a gang that could start much later would have used it up by then.
SOON_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInLine:
    """The turn of a gang near the head of the line.

    `fitter` computes where it fits on what the jobs ahead of it leave. `claim` holds the resources with which it can
    start now, None if it can only start soon, within `start_s`. `is_first` means that no job ahead of it waits for
    nodes of its partitions with GPUs of its type.
    """

    row: int
    fitter: Fitter
    claim: Claim | None
    start_s: float
    is_first: bool


def turns(
    make_timetable: Callable[[], Timetable],
    fitter: Fitter,
    queue: QueueTable,
    freed: Releases,
    tested: Collection[int],
    wanted: Collection[int],
    asked: Collection[int] | None = None,
) -> Iterator[TurnInLine]:
    """Yield the turns of the gangs near the head, in Slurm's order, of the rows in `wanted`, or only of those `asked`.

    Slurm can start a gang now if it fits at its turn. It can start soon if idle GPUs and those `freed` within `SOON_S`
    are enough for it and for all jobs ahead of it. The jobs of the line are added to an empty timetable, in each pool
    up to the last one whose id is in `tested`: Slurm's backfill keeps no place for those behind it. Most often no gang
    is near the head, which what is idle now tells, as `fitter` has it; then no timetable is made.
    """
    start_s = _starts_s(queue, freed)
    shown = wanted if asked is None else asked
    near = {row for row in shown if start_s[row] <= SOON_S or fitter.starts_now(queue.jobs[row])}
    if not near:
        return
    timetable, fits = make_timetable(), {row for row in wanted if fitter.starts_now(queue.jobs[row])}
    # A pool with a lower number is a higher tier of the same nodes.
    line = [row for rows in queue.rows_by_pool() for row in _until_last(rows.tolist(), queue, tested)]
    last, last_fit = (
        max((place for place, row in enumerate(line) if row in rows), default=-1) for rows in (near, fits)
    )
    waiting_by_pool: dict[int, Flags] = {}
    for place, row in enumerate(line[: last + 1]):
        job, pool, run_s = queue.jobs[row], int(queue.pool[row]), queue.longest_s(row)
        nodes = timetable.nodes(job)
        slot = timetable.slot_now(job, run_s)
        if row in near:
            pools_ahead = {other for other, theirs in waiting_by_pool.items() if (theirs & nodes).any()}
            if slot is not None or (start_s[row] <= SOON_S and pools_ahead <= {pool}):
                yield TurnInLine(
                    row=row,
                    fitter=timetable.fitter(job, run_s),
                    claim=None if slot is None else slot.claim,
                    start_s=float(start_s[row]) if slot is None else 0.0,
                    is_first=not pools_ahead,
                )
        left = int(queue.tasks[row])
        while left and slot is not None:
            timetable.add(slot)
            left -= 1
            slot = timetable.slot_now(job, run_s) if left else None
        if left:
            waiting_by_pool[pool] = waiting_by_pool[pool] | nodes if pool in waiting_by_pool else nodes
            if place < last_fit:
                timetable.reserve(job, run_s)


def _until_last(rows: list[int], queue: QueueTable, tested: Collection[int]) -> list[int]:
    """Return the rows up to the last one whose job is in `tested`."""
    last = max((place for place, row in enumerate(rows) if queue.jobs[row].job_id in tested), default=-1)
    return rows[: last + 1]


def _starts_s(queue: QueueTable, freed: Releases) -> dict[int, float]:
    """Map rows to when they have their GPUs at the latest, if the jobs of their pool ahead of them go first."""
    return {
        row: start_s
        for rows in queue.rows_by_pool()
        for row, start_s in zip(
            rows.tolist(), latest_starts_s(queue, freed, rows, queue.smallest[rows]).tolist(), strict=True
        )
    }
