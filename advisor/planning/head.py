"""Finds the gangs near the head of the line: those that slurmctld can start now or soon, given the jobs ahead of them.

The jobs are planned in Slurm's order over one picture of the idle resources. A job that can start takes its nodes, as
many as it needs. A job that cannot start reserves the nodes on which it fits first by the time limits of running jobs,
within the window of backfill, and a job behind it starts only if it keeps off them or ends before.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.domain.gang import GangRequest
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fitter
from advisor.features.claims import Claim, claim, less
from advisor.features.nodes import Flags, NodeTable
from advisor.features.queue import QueueTable
from advisor.features.supply import Releases, latest_starts_s
from advisor.planning.earliest import holdings_of, without

# A timer runs from now, so a gang that could start much later would have used it up by then.
SOON_S: Final = 600.0
# Instants at which reservations are tried, as shares of the window of backfill: an hour, six and 24 hours of a day.
_SHARES_OF_WINDOW: Final = (1 / 24, 1 / 4, 1.0)


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
    snapshot: Snapshot, fitter: Fitter, queue: QueueTable, freed: Releases, wanted: Collection[int]
) -> Iterator[TurnInLine]:
    """Yield the turns of the gangs near the head, in Slurm's order, of the rows in `wanted`.

    Slurm can start a gang now if it fits at its turn. It can start soon if idle GPUs and those `freed` within `SOON_S`
    are enough for it and for all jobs ahead of it. `fitter` computes where gangs fit before any job starts.
    """
    picture, nodes_of = _Picture(snapshot, fitter), _NodesByRequest(fitter.table)
    start_s = _starts_s(queue, freed)
    fits = {row for row in wanted if picture.fits(queue.jobs[row], 0, 0.0)}
    near = fits | {row for row in wanted if start_s[row] <= SOON_S}
    # A pool with a lower number is a higher tier of the same nodes.
    line = [row for rows in queue.rows_by_pool() for row in rows.tolist()]
    last, last_fit = (
        max((place for place, row in enumerate(line) if row in rows), default=-1) for rows in (near, fits)
    )
    waiting_by_pool: dict[int, Flags] = {}
    for place, row in enumerate(line[: last + 1]):
        job, pool, run_s = queue.jobs[row], int(queue.pool[row]), _longest_s(queue, row)
        nodes = nodes_of(job)
        starts = picture.starts_now(job, run_s)
        if row in near:
            pools_ahead = {other for other, theirs in waiting_by_pool.items() if (theirs & nodes).any()}
            if starts or (start_s[row] <= SOON_S and pools_ahead <= {pool}):
                yield TurnInLine(
                    row=row,
                    fitter=picture.fitter(0, run_s),
                    claim=picture.claim(job, 0, run_s) if starts else None,
                    start_s=0.0 if starts else float(start_s[row]),
                    is_first=not pools_ahead,
                )
        left = int(queue.tasks[row])
        while left and picture.starts_now(job, run_s):
            picture.take(job, 0, run_s)
            left -= 1
        if left:
            waiting_by_pool[pool] = waiting_by_pool[pool] | nodes if pool in waiting_by_pool else nodes
            if place < last_fit:
                picture.reserve(job, run_s)


def _starts_s(queue: QueueTable, freed: Releases) -> dict[int, float]:
    """Map rows to when they have their GPUs at the latest, if the jobs of their pool ahead of them go first."""
    return {
        row: start_s
        for rows in queue.rows_by_pool()
        for row, start_s in zip(
            rows.tolist(), latest_starts_s(queue, freed, rows, queue.smallest[rows]).tolist(), strict=True
        )
    }


def _longest_s(queue: QueueTable, row: int) -> float:
    """Return the time limit of a row; infinity without one."""
    limit_s = float(queue.limit_s[row])
    return limit_s if np.isfinite(limit_s) else np.inf


class _NodesByRequest:
    """The nodes of the partitions of a job that have GPUs of its types, marked once for jobs alike."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._nodes: dict[tuple[tuple[str, ...], frozenset[str | None]], Flags] = {}

    def __call__(self, job: Job) -> Flags:
        """Mark the nodes of a job: `(n_nodes,)`."""
        key = job.partitions, frozenset(gpu.gpu_type for gpu in job.gang.all_counts)
        if key not in self._nodes:
            self._nodes[key] = self._marked(*key)
        return self._nodes[key]

    def _marked(self, partitions: tuple[str, ...], types: frozenset[str | None]) -> Flags:
        table = self._table
        named = [number for number, name in enumerate(table.partition_names) if name in partitions]
        columns = [number for number, name in enumerate(table.gpu_types) if None in types or name in types]
        return np.asarray(table.partition_member[named].any(axis=0) & table.gpus_total[:, columns].any(axis=1))


class _Picture:
    """The idle resources now and at instants of the window of backfill, less those of the jobs planned so far."""

    def __init__(self, snapshot: Snapshot, fitter: Fitter) -> None:
        self._snapshot = snapshot
        self._tables = [fitter.table]
        self._times_s = [0.0]
        self._idle = fitter.table
        self._claims: list[tuple[Claim, float]] = []
        self._fitters = {(0, 1): fitter}
        # What does not fit once never does: the picture only shrinks.
        self._refused: set[tuple[int, int, GangRequest, tuple[str, ...]]] = set()

    def starts_now(self, job: Job, run_s: float) -> bool:
        """Return whether slurmctld can start a job now; not if its own plan has a later start for it."""
        is_later = job.start_time is not None and job.start_time > self._snapshot.taken_at
        return not is_later and self.fits(job, 0, run_s)

    def fits(self, job: Job, begin: int, run_s: float) -> bool:
        """Return whether a job fits from an instant on, on few enough switches if it waits for those."""
        key = begin, self._end(begin, run_s), job.gang, job.partitions
        if key in self._refused:
            return False
        tier = self.fitter(begin, run_s).tier_now(job.gang, job.partitions)
        fits = tier is not None and (job.gang.switches is None or tier <= LocalityTier.LEAF)
        if not fits:
            self._refused.add(key)
        return fits

    def fitter(self, begin: int, run_s: float) -> Fitter:
        """Return the fitter for jobs that hold their nodes from an instant on for `run_s`."""
        key = begin, self._end(begin, run_s)
        if key not in self._fitters:
            self._fitters[key] = Fitter(self._snapshot, _least(self._tables[slice(*key)]))
        return self._fitters[key]

    def claim(self, job: Job, begin: int, run_s: float) -> Claim:
        """Return the resources that a job takes from an instant on, if it fits then."""
        fitter = self.fitter(begin, run_s)
        return claim(fitter.table, job.gang, fitter.nodes_now(job.gang, job.partitions))

    def take(self, job: Job, begin: int, run_s: float) -> None:
        """Take the resources of a job from an instant on."""
        taken = self.claim(job, begin, run_s)
        until_s = self._times_s[begin] + run_s
        for number in range(begin, len(self._tables)):
            if number == begin or self._times_s[number] < until_s:
                self._tables[number] = less(self._tables[number], taken)
        self._claims.append((taken, until_s))
        # A fitter of earlier instants alone stays true.
        self._fitters = {key: fitter for key, fitter in self._fitters.items() if key[1] <= begin}

    def reserve(self, job: Job, run_s: float) -> None:
        """Reserve the nodes on which a job fits first; none where that is beyond the window."""
        self._look_ahead()
        for begin in range(1, len(self._tables)):
            if self.fits(job, begin, run_s):
                self.take(job, begin, run_s)
                return

    def _end(self, begin: int, run_s: float) -> int:
        """Return the number of the first instant that a job which starts at `begin` leaves alone.

        A reservation of an instant can begin at any time since the instant before.
        """
        until_s = self._times_s[begin] + run_s
        return next(
            (number for number in range(begin + 1, len(self._tables)) if self._times_s[number - 1] >= until_s),
            len(self._tables),
        )

    def _look_ahead(self) -> None:
        """Build the tables of later instants, where there are none yet."""
        if len(self._tables) > 1:
            return
        snapshot, table = self._snapshot, self._idle
        holdings, window_s = holdings_of(snapshot, table), snapshot.config.backfill_window_s
        for share in _SHARES_OF_WINDOW:
            later_s = share * window_s
            later = without(table, holdings, holdings.end_time <= snapshot.taken_at + later_s)
            for taken, until_s in self._claims:
                later = less(later, taken) if later_s < until_s else later
            self._times_s.append(later_s)
            self._tables.append(later)
        self._fitters.clear()


def _least(tables: list[NodeTable]) -> NodeTable:
    """Return the table of what is idle in all of several tables."""
    first, *others = tables
    if not others:
        return first
    return replace(
        first,
        gpus_idle=np.minimum.reduce([table.gpus_idle for table in tables]),
        cpus_idle=np.minimum.reduce([table.cpus_idle for table in tables]),
        memory_idle_mib=np.minimum.reduce([table.memory_idle_mib for table in tables]),
    )
