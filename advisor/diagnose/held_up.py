"""Finds the pending jobs that a maintenance holds up, and the time limits with which they would fit before it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.particulars import Reservation
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import MINUTE_S
from advisor.features.capacity import Fitter
from advisor.features.nodes import Flags, NodeTable, node_table, rows_of

# A job does not start at once.
_SPARE_S: Final = MINUTE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """A pending job that cannot start before a maintenance, for it could still run when that begins.

    `fits_s` is the longest time limit with which it would fit if it started now, and `starts_now` whether it would.
    With `by_slurm`, backfill shortens it by itself, as its `--time-min` allows.
    """

    job: Job
    maintenance: Reservation
    fits_s: float
    starts_now: bool
    by_slurm: bool


def coming_maintenance(reservations: Sequence[Reservation], now: float) -> list[Reservation]:
    """Return the maintenance reservations that have not begun, the next one first."""
    coming = [each for each in reservations if each.is_maintenance and each.start_time > now]
    return sorted(coming, key=lambda each: (each.start_time, each.name))


def held_up(snapshot: Snapshot, reservations: Sequence[Reservation]) -> list[HeldUp]:
    """Return the pending jobs that a maintenance holds up, each by the first that does, in the order of the queue."""
    now, table = snapshot.taken_at, node_table(snapshot)
    coming = [each for each in coming_maintenance(reservations, now) if each.start_time > now + 2 * _SPARE_S]
    jobs = [job for job in snapshot.jobs if job.is_pending and not job.reservation and not job.held]
    emptied = replace(
        table, gpus_idle=table.gpus_total, cpus_idle=table.cpus_total, memory_idle_mib=table.memory_total_mib
    )
    return [found for job in jobs if coming and (found := _held_up(job, coming, snapshot, table, emptied))]


def _held_up(
    job: Job, coming: Sequence[Reservation], snapshot: Snapshot, table: NodeTable, emptied: NodeTable
) -> HeldUp | None:
    now = snapshot.taken_at
    ends_time = np.inf if job.time_limit_s is None else now + job.time_limit_s
    reached = [each for each in coming if each.start_time < ends_time]
    if not reached or not _fits(job, snapshot, emptied, table.usable):
        return None
    usable = table.usable.copy()
    for maintenance in reached:
        usable[rows_of(table, maintenance.nodes)] = False
        if _fits(job, snapshot, emptied, usable):
            continue
        fits_s = maintenance.start_time - now - _SPARE_S
        return HeldUp(
            job=job,
            maintenance=maintenance,
            fits_s=fits_s,
            starts_now=_fits(job, snapshot, table, table.usable),
            by_slurm=job.time_min_s is not None and job.time_min_s <= fits_s,
        )
    return None


def _fits(job: Job, snapshot: Snapshot, table: NodeTable, usable: Flags) -> bool:
    return Fitter(snapshot, replace(table, usable=usable)).tier_now(job.gang, job.partitions) is not None
