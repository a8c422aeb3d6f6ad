"""Compares the savings that a daemon promised with what the same jobs took on the plain cluster.

A promise is an interval that should hold the truth for four of five jobs. A lift promises by how much its job starts
sooner, any other change the time that its job saves until its end. Each job counts once for each lever, with the first
promise.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import Recorded
from advisor.journal.views import Done, RowQuery
from advisor.replay.deviations import replayed
from advisor.sim.run_outcome import End, Run

# Of intervals that are to hold the truth for 80 %.
TARGET: Final = (0.7, 0.9)
# A miss is within the noise if this share of the jobs differ by more between two plain clusters.
BEYOND_SHARE: Final = 0.2
_MOST_CHANGES: Final = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Says what a change was to save its job, in seconds until its start or, without `is_start`, its end."""

    job_id: int
    lever: Lever
    low_s: float
    high_s: float
    is_start: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Says what came of a promise, in seconds; `noise_s` is what differs between two plain clusters."""

    lever: Lever
    low_s: float
    high_s: float
    came_s: float
    noise_s: float

    @property
    def is_held(self) -> bool:
        """Whether the interval holds what came."""
        return self.low_s <= self.came_s <= self.high_s

    @property
    def is_held_or_noise(self) -> bool:
        """Whether the interval misses what came by no more than the noise, or not at all."""
        return self.low_s - self.noise_s <= self.came_s <= self.high_s + self.noise_s


def promises_of(path: Path, *, again: bool = False) -> list[Promise]:
    """Read the promises of the changes that a daemon applied, the first of each job and lever, from its journal.

    With `again` they are what this version states for the recorded cycles.
    """
    found: dict[tuple[int, str], Promise] = {}
    for cycle, applied in _applied_changes(path):
        for verdict in json.loads(replayed(cycle) if again else cycle.outcome)["verdicts"]:
            change = (verdict["recommendation"]["action"]["job_id"], verdict["lever"])
            if change in applied:
                found.setdefault(change, _promise(verdict, change[0]))
    return list(found.values())


def _applied_changes(path: Path) -> Iterator[tuple[Recorded, set[tuple[int, str]]]]:
    """Yield the recorded cycles whose changes were applied, oldest first, each with those: the job and the lever."""
    journal = SqliteJournal.read_only(path)
    try:
        rows = [row for row in journal.changes(RowQuery(most=_MOST_CHANGES)) if row.done is Done.APPLIED]
        applied: dict[int, set[tuple[int, str]]] = {}
        for row in rows:
            if row.cycle_id is not None:
                applied.setdefault(row.cycle_id, set()).add((row.job_id, row.lever))
        for cycle in journal.recorded_cycles(applied):
            yield cycle, applied[cycle.cycle_id]
    finally:
        journal.close_file()


def savings(
    promises: Sequence[Promise], plain: Run, advised: Run, again: Run | None, job_ids: NDArray[np.int64], speedup: float
) -> Iterator[Saving]:
    """Yield what came of promises; promises are in live seconds, the runs and savings in the time of the trace.

    `job_ids` `(n_jobs,)` are those of the advised cluster. `again` is a second plain run, None if there is none.
    """
    row_by_id = {job_id: row for row, job_id in enumerate(job_ids.tolist())}
    came = {is_start: _instants(plain, is_start) - _instants(advised, is_start) for is_start in (True, False)}
    noise = {is_start: _noise_s(plain, again, is_start) for is_start in came}
    for promise in promises:
        if promise.job_id not in row_by_id:
            continue
        came_s = float(came[promise.is_start][row_by_id[promise.job_id]])
        if np.isfinite(came_s):
            yield Saving(
                lever=promise.lever,
                low_s=promise.low_s * speedup,
                high_s=promise.high_s * speedup,
                came_s=came_s,
                noise_s=noise[promise.is_start],
            )


def _promise(verdict: Mapping[str, Any], job_id: int) -> Promise:
    """Return the promise of a change; both ends of a range that ends where it begins are the same."""
    change = verdict["recommendation"]
    evidence = change["evidence"]
    low_s, high_s = float(change["expected"]["saved_s_low"]), float(change["expected"]["saved_s_high"])
    if "sooner_s_low" in evidence:
        low_s, high_s = evidence["sooner_s_low"], evidence["sooner_s_high"]
    return Promise(
        job_id=job_id, lever=Lever(verdict["lever"]), low_s=low_s, high_s=high_s, is_start=change["kind"] == "reorder"
    )


def _instants(run: Run, is_start: bool) -> NDArray[np.float64]:
    """Return the starts of the jobs, or the ends of those that finished, `(n_jobs,)`, NaN where there is none."""
    if is_start:
        return np.asarray(run.outcomes["start_time"])
    return np.where(run.outcomes["end"] == End.FINISHED, run.outcomes["end_time"], np.nan)


def _noise_s(plain: Run, again: Run | None, is_start: bool) -> float:
    if again is None:
        return 0.0
    apart = np.abs(_instants(again, is_start) - _instants(plain, is_start))
    return float(np.nanquantile(apart, 1.0 - BEYOND_SHARE))
