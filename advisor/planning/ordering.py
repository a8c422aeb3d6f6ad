"""Proposes to reorder: moves long work behind shorter work where that saves more waiting than it costs.

Within a pool the pending jobs are seen as a line of GPU-time before the same GPUs. When job B steps behind the
jobs S, each of them gains B's GPU-time divided by the pool's GPUs, and B loses theirs: Smith's rule for the
weighted sum of completion times on one machine, with a weight that grows with the time a job has waited, so
that every move stops paying in the end. Fluid model, ours: GPUs of a type are interchangeable, and jobs that
backfill can start anyway count for nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever, Reason, SetNice
from advisor.domain.facts import UNPUBLISHED, Facts
from advisor.domain.mark import MARK, MARK_SPAN, marked
from advisor.domain.plan import Expected, Kind, Recommendation
from advisor.features.policy import Options
from advisor.features.queue import ANY_TYPE, Others, QueueTable, by_place
from advisor.features.supply import backfilled, latest_starts_s
from advisor.planning.case import Case
from advisor.settings import PlanningSettings

# The shortest time a job steps back for; below it the order settles by itself.
MIN_LEASE_S = 600.0
# The most points of priority that a job is put below the one it steps behind.
LARGEST_STEP = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LongWorkAhead(Facts):
    """The GPU-time of a job and of the jobs that pass it; `forecast_jobs` of them all have a forecast run time."""

    reason = Reason.LONG_WORK_AHEAD

    gpu_hours_low: float
    gpu_hours: float
    gpu_hours_high: float
    gpu_hours_passing: float
    jobs_passing: int
    priority: int
    priority_after: int
    queueing_delay_s: float
    passing: tuple[int, ...] = field(metadata=UNPUBLISHED)
    forecast_jobs: int = field(metadata=UNPUBLISHED)
    used_limit_ratio_low: float = field(metadata=UNPUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One job stepping behind others of its pool, as row numbers of the queue table; `helped` are those that gain."""

    row: int
    passed_by: tuple[int, ...]
    helped: tuple[int, ...]
    nice: int
    saved_s: float  # in all, as expected
    capacity: float
    lease_s: float
    added_delay_max_s: float


@dataclass(slots=True)
class _Line:
    """The jobs of one pool in their present order; all arrays `(n_rows,)` and kept in that order.

    No job is put below the priority `floor`.
    """

    floor: int
    others: Others

    rows: NDArray[np.intp]
    job_id: NDArray[np.int64]
    submit_time: NDArray[np.float64]
    priority: NDArray[np.int64]
    work: NDArray[np.float64]  # expected GPU seconds
    work_high: NDArray[np.float64]  # what the lease counts with
    weight: NDArray[np.float64]
    limit_s: NDArray[np.float64]
    gpu_type: NDArray[np.int32]
    capacity: NDArray[np.float64]
    left_s: NDArray[np.float64]  # how much longer each may be delayed
    own_nice: NDArray[np.int64]
    movable: NDArray[np.bool_]
    gains: NDArray[np.bool_]  # False for jobs that backfill starts anyway, and for those without a known limit

    def step_back(self, source: int, priority: int) -> None:
        """Move the job at place `source` to where `priority` puts it, by Slurm's own tie-breaks."""
        self.priority[source] = priority
        self.movable[source] = False
        order = by_place(self.priority, self.submit_time, self.job_id)
        for column in fields(self):
            if column.name not in ("floor", "others"):
                setattr(self, column.name, getattr(self, column.name)[order])


def moves(case: Case, so_far: Sequence[Recommendation] = ()) -> list[Move]:
    """Return the moves worth making, best first within each pool; no job moves twice.

    A job that gets its GPUs now where it stands is left there.
    """
    queue, freed, settings, limits = case.queue, case.freed_by_limits, case.settings, case.limits
    delay_left_s = case.permits.delay_left_s
    made: list[Move] = []
    for pool in range(len(queue.pool_gpus)):
        line = _line_of(queue, pool, settings, case.done(so_far))
        line.left_s = np.array([delay_left_s.get(job_id, limits.max_added_delay_s) for job_id in line.job_id.tolist()])
        line.movable &= latest_starts_s(queue, freed, line.rows, queue.smallest[line.rows]) > 0.0
        line.movable &= queue.wait_s[line.rows] <= limits.max_job_wait_s
        # Slurm's backfill keeps no place for a job beyond its depth.
        tested = np.array([job_id in case.tested for job_id in line.job_id.tolist()], dtype=np.bool_)
        line.movable &= tested
        line.gains &= tested
        line.gains &= ~backfilled(queue, freed, line.rows)
        while len(made) < limits.max_changes and (move := _best_move(line, case)) is not None:
            made.append(move)
    return made


def _line_of(queue: QueueTable, pool: int, settings: PlanningSettings, untouchable: frozenset[int]) -> _Line:
    rows = queue.rows_of(pool)
    totals = queue.pool_gpus[pool]
    types = queue.gpu_type[rows]
    capacity = np.where(types == ANY_TYPE, totals.sum(), totals[types]).astype(np.float64)
    jobs = [queue.jobs[row] for row in rows]
    limited = np.isfinite(queue.limit_s[rows])
    priority = queue.priority[rows].copy()
    # Slurm keeps priorities at 1 or above; 0 would mean held. Below the last job of a line that is cut off stand jobs
    # that this plan does not see.
    floor = int(priority[-1]) + 1 if len(rows) == settings.depth else 1
    return _Line(
        floor=floor,
        others=_from(queue.others[pool], floor),
        rows=rows,
        job_id=np.array([job.job_id for job in jobs], dtype=np.int64),
        submit_time=np.array([job.submit_time for job in jobs], dtype=np.float64),
        priority=priority,
        # A job without a limit keeps its place, and no job steps behind it: it can run for ever.
        work=np.where(limited, queue.width[rows] * queue.run.expected_s[rows], 0.0),
        work_high=np.where(limited, queue.width[rows] * queue.run.high_s[rows], 0.0),
        weight=1.0 + queue.wait_s[rows] / settings.ageing_s,
        limit_s=np.where(limited, queue.limit_s[rows], np.inf),
        gpu_type=types,
        capacity=capacity,
        left_s=np.zeros(len(rows)),
        own_nice=np.array([job.nice for job in jobs], dtype=np.int64),
        # A nice of the user's own is where the step begins; to restore one below 0 takes an Operator.
        movable=limited & np.array([job.nice >= 0 and job.job_id not in untouchable for job in jobs], dtype=np.bool_),
        gains=limited,
    )


def _from(others: Others, floor: int) -> Others:
    """Return those of the others that a job of the line may step behind."""
    start = int(np.searchsorted(others.priority, floor, side="left"))
    return Others(priority=others.priority[start:], limit_s=others.limit_s[start:])


# What the options of a step back are scored by, in this order.
OPTION_COLUMNS: Final = (
    *("work", "work_high", "weight", "helped", "helped_weight", "passed_work", "saved_s", "lease_s"),
    *("longest_s", "nice", "capacity"),
)


def _best_move(line: _Line, case: Case) -> Move | None:
    """Enumerate the moves that are allowed, have one chosen, make it in the line, and return it.

    Matrices are `(n_movable, n_rows)`: the i-th job that may move put right below the priority of the job in row j, as
    far as its nice value has to go for the mark.
    """
    movable = np.flatnonzero(line.movable)
    if len(line.rows) < 2 or not len(movable):
        return None
    places = np.arange(len(line.rows))
    types, mine = line.gpu_type, line.gpu_type[movable]
    meets = (mine[:, None] == types[None, :]) | (mine[:, None] == ANY_TYPE) | (types[None, :] == ANY_TYPE)
    meets &= places[None, :] > movable[:, None]  # j stands behind i and wants the same GPUs
    gains = meets & line.gains[None, :]
    gap = line.priority[movable, None] - (line.priority - _steps(line.priority))[None, :]
    nice = gap + (MARK - gap - line.own_nice[movable, None]) % MARK_SPAN
    below = line.priority[movable, None] - nice
    last = _last_passed(line, movable, below)
    helped = np.take_along_axis(gains.cumsum(axis=1), last, axis=1)
    helped_weight = np.take_along_axis(np.where(gains, line.weight, 0.0).cumsum(axis=1), last, axis=1)
    passed_work = np.take_along_axis(np.where(meets, line.work, 0.0).cumsum(axis=1), last, axis=1)
    passed_high = np.take_along_axis(np.where(meets, line.work_high, 0.0).cumsum(axis=1), last, axis=1)
    longest = np.take_along_axis(np.maximum.accumulate(np.where(meets, line.limit_s, 0.0), axis=1), last, axis=1)
    longest = np.maximum(longest, _longest_other(line, movable, below))

    settings, limits = case.settings, case.limits
    work, capacity = line.work[movable, None], line.capacity[movable, None]
    saved_s = (helped * work - passed_work) / capacity
    lease_s = np.maximum(passed_high / capacity, MIN_LEASE_S)
    allowed = (
        gains
        # The mark lets no job ahead that the place alone would not: a place further back stands for that.
        & (line.priority[last] == line.priority[None, :])
        & (saved_s >= settings.min_saving_s)
        & (lease_s + longest <= line.left_s[movable, None])
        & (nice >= 1)
        & (nice <= limits.nice_max)
        & (below >= line.floor)
    )
    choices = np.flatnonzero(allowed)
    numbers = (
        *(work, line.work_high[movable, None], line.weight[movable, None], helped, helped_weight, passed_work),
        *(saved_s, lease_s, longest, nice, capacity),
    )
    options = Options(
        lever=Lever.NICE,
        job=line.rows[movable][choices // len(line.rows)],
        columns={
            name: _chosen(column, choices, len(line.rows)) for name, column in zip(OPTION_COLUMNS, numbers, strict=True)
        },
    )
    best = case.decider.best(lambda: case.board, options)
    if best is None:
        return None
    source, target = divmod(int(choices[best]), len(line.rows))
    passed_by = line.rows[meets[source] & (places <= last[source, target])]
    row = int(movable[source])
    move = Move(
        row=int(line.rows[row]),
        passed_by=tuple(int(row) for row in passed_by),
        helped=tuple(int(row) for row in line.rows[gains[source] & (places <= last[source, target])]),
        nice=int(nice[source, target]),
        saved_s=float(saved_s[source, target]),
        capacity=float(line.capacity[row]),
        lease_s=float(lease_s[source, target]),
        added_delay_max_s=float(lease_s[source, target] + longest[source, target]),
    )
    line.step_back(row, int(below[source, target]))
    return move


def _chosen(column: NDArray[Any], choices: NDArray[np.intp], width: int) -> NDArray[np.float64]:
    """Return the values of a matrix `(n_movable, width)`, or of one column of it, at flat places `(n_choices,)`."""
    values = column[:, 0][choices // width] if column.shape[1] == 1 else column.ravel()[choices]
    return values.astype(np.float64, copy=False)


def _longest_other(line: _Line, movable: NDArray[np.intp], below: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the longest limit of a job outside the line that the job of row i would let ahead at `below[i, j]`.

    `below` and the result are `(n_movable, n_rows)`: the largest limit over a range of priorities, read off
    two overlapping blocks of a table of powers of two.
    """
    if not len(line.others.priority):
        return np.zeros(below.shape)
    blocks = [line.others.limit_s]
    while len(blocks[-1]) > 1 << (len(blocks) - 1):
        half = 1 << (len(blocks) - 1)
        blocks.append(np.maximum(blocks[-1], np.r_[blocks[-1][half:], np.zeros(half)]))
    table = np.stack(blocks)  # (n_powers, n_others): the largest of the 2**power limits from here on
    low = np.searchsorted(line.others.priority, below, side="left")
    high = np.searchsorted(line.others.priority, line.priority[movable], side="right")[:, None]
    length = np.maximum(high - low, 1)
    power = np.minimum(np.log2(length).astype(np.intp), len(blocks) - 1)
    most = len(line.others.limit_s) - 1
    first, second = np.minimum(low, most), np.clip(high - (1 << power), 0, most)
    return np.where(high > low, np.maximum(table[power, first], table[power, second]), 0.0)


def _last_passed(line: _Line, movable: NDArray[np.intp], below: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the last row that stands before the job of row i once its priority is `below[i, j]`.

    `below` and the result are `(n_movable, n_rows)`. Jobs of the very same priority stand before it if they
    were submitted earlier.
    """
    higher = np.searchsorted(-line.priority, -below, side="left")
    higher_or_same = np.searchsorted(-line.priority, -below, side="right")
    rank = np.empty(len(line.rows), dtype=np.intp)
    rank[np.lexsort((line.job_id, line.submit_time))] = np.arange(len(line.rows))
    earlier = np.zeros((len(movable), len(rank) + 1), dtype=np.intp)
    earlier[:, 1:] = (rank[None, :] < rank[movable, None]).cumsum(axis=1)
    of_same = np.take_along_axis(earlier, higher_or_same, axis=1) - np.take_along_axis(earlier, higher, axis=1)
    return np.asarray(higher + of_same - 1)


def _steps(priority: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how far below each job another is put to stand right behind it `(n_rows,)`.

    Half the way to the next lower priority: priorities move by a few points as jobs age.
    """
    lower = np.r_[priority, 0][np.searchsorted(-priority, -priority, side="right")]
    gap = priority - lower
    steps: NDArray[np.int64] = np.clip(gap // 2, 1, LARGEST_STEP)
    return steps


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose the moves worth making, with the numbers behind each."""
    queue, counted = case.queue, set(case.let_ahead)
    for move in moves(case, so_far):
        row, job, width = move.row, queue.jobs[move.row], float(queue.width[move.row])
        passing = list(move.passed_by)
        passed_work = float((queue.width[passing] * queue.run.expected_s[passing]).sum())
        low_s, expected_s, high_s = (
            float(run_s[row]) for run_s in (queue.run.low_s, queue.run.expected_s, queue.run.high_s)
        )
        # What is saved grows with the time that the job would have held the GPUs before the others.
        for_each_s = len(move.helped) * width / move.capacity
        low, high = (move.saved_s + for_each_s * (run_s - expected_s) for run_s in (low_s, high_s))
        helped = {queue.jobs[other].job_id for other in move.helped}
        yield Recommendation(
            kind=Kind.REORDER,
            action=SetNice(job_id=job.job_id, before=job.nice, after=marked(job.nice + move.nice)),
            facts=LongWorkAhead(
                gpu_hours_low=width * low_s / 3600,
                gpu_hours=width * expected_s / 3600,
                gpu_hours_high=width * high_s / 3600,
                gpu_hours_passing=passed_work / 3600,
                jobs_passing=len(passing),
                priority=int(queue.priority[row]),
                priority_after=int(queue.priority[row]) - move.nice,
                queueing_delay_s=float(queue.wait_s[row]),
                passing=tuple(queue.jobs[passed].job_id for passed in passing),
                forecast_jobs=int(queue.run.by_model[[row, *passing]].sum()),
                used_limit_ratio_low=case.settings.used_limit_ratio_low,
            ),
            expected=Expected(
                saved_s_low=low,
                saved_s_high=high,
                jobs_helped=len(helped - counted),
                added_delay_max_s=move.added_delay_max_s,
            ),
            revert_after_s=move.lease_s,
            serves=tuple(queue.jobs[passed].job_id for passed in passing),
        )
        counted |= helped
