"""Builds what a policy sees that sizes elastic jobs: the next steps of a window of pending jobs, as DL2 does.

Every job of a window begins at its smallest size. Each decision takes one step of one job, one more GPU or one more
node's worth of them, or stops. The planner fills the tables from a snapshot, training from the arrays of the simulator;
both call the functions here. A window can have leading axes, `...`: training runs many side by side.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.units import MINUTE_S
from advisor.errors import ModelError
from advisor.features.policy import Options, Scores

Reals = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rungs = NDArray[np.intp]

# The most jobs of a window, and the most sizes of a job.
WINDOW: Final = 40
RUNGS: Final = 24
# Jobs are sized once the jobs before them ask for no more than the idle GPUs and this share of all.
REACH_RATIO: Final = 0.25

# What a step is scored by, in this order. Sizes are base-2 logarithms, times are log(1 + minutes), GPUs are shares of
# all GPUs that the jobs of the window can take.
OPTION_COLUMNS: Final = (
    "is_node",  # 1: a node's worth of GPUs, 0: one GPU
    "gpus",
    "gpus_added",  # of the ratio of the sizes
    "gpus_asked",  # of the present size over the size asked
    "gain_per_gpu",  # speed that each GPU adds, over that of each GPU so far
    "run_time",
    "run_time_saved",
    "wait",
    "share",
    "idle",
    "spare",  # idle GPUs less those that pending jobs ask for, from -4 to 1
    "crowd",  # pending jobs for each GPU, times the GPUs of the job
    "run_is_forecast",
    "speed_is_forecast",
)
# How much the wait of others counts against a job's own run time. Ours, chosen by trials on drawn workloads.
PRICE: Final = 10.0
# A run time of 0 has no cost to compare with.
_LEAST_MIN: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJobs:
    """The jobs of a window in the order of the line; an empty place has `is_there` false."""

    sizes: Reals  # (..., n_jobs, RUNGS), ascending; the last size is repeated
    speed: Reals  # (..., n_jobs, RUNGS): over that at the size asked
    asked: Reals  # (..., n_jobs): GPUs
    first: Rungs  # (..., n_jobs): the smallest size that is allowed
    run_s: Reals  # (..., n_jobs): expected at the size asked
    wait_s: Reals  # (..., n_jobs)
    run_is_forecast: Flags  # (..., n_jobs)
    speed_is_forecast: Flags  # (..., n_jobs)
    is_there: Flags  # (..., n_jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """The GPUs that the jobs of a window can take, and who waits for them; `(...)` each."""

    capacity: Reals
    idle: Reals
    wanted: Reals  # GPUs that all pending jobs ask for, those of the window included
    waiting: Reals  # pending jobs
    node_gpus: Reals  # of the largest node


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The jobs of one pool that take GPUs of one type and can start soon, as rows of a queue, with their tables."""

    rows: Rungs  # (n_jobs,)
    jobs: ElasticJobs
    supply: Supply


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The next steps of a window, `(..., 2, n_jobs)`: first one more GPU for each job, then one more node's worth."""

    rung: Rungs  # after the step
    is_legal: Flags
    gpus: Reals
    gpus_after: Reals
    run_s: Reals  # expected at `gpus`
    run_after_s: Reals
    columns: Reals  # (..., 2, n_jobs, len(OPTION_COLUMNS))


def ladder(low: int, high: int, asked: int, node_gpus: int) -> list[int]:
    """Return the sizes of a job, ascending, at most `RUNGS`: by one GPU on a node, by nodes beyond.

    Where these are too many, they are powers of two.
    """
    ends = {low, asked, high}
    if max(0, min(high, node_gpus) - low) + high // node_gpus + len(ends) <= RUNGS:
        sizes = ends.union(range(low, node_gpus), range(node_gpus, high + 1, node_gpus))
    else:
        sizes = ends.union(1 << bit for bit in range(RUNGS - len(ends)))
    return sorted(size for size in sizes if low <= size <= high)


def rungs(sizes: Iterable[int]) -> Reals:
    """Return the sizes of a job, `(RUNGS,)`, with the last repeated."""
    listed = np.array(list(sizes), dtype=np.float64)
    return np.pad(listed, (0, RUNGS - len(listed)), mode="edge")


def between(sizes: Reals, known_sizes: Reals, known_speed: Reals) -> Reals:
    """Return speeds at `sizes`, `(n_sizes,)`, by lines between the known ones on logarithmic scales."""
    return np.exp(np.interp(np.log(sizes), np.log(known_sizes), np.log(known_speed)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The sizes of one elastic job and its speeds there over that at the size asked, `(RUNGS,)` each."""

    sizes: Reals
    speed: Reals
    is_forecast: bool


def elastic_jobs(
    tables: Sequence[Scaling],
    *,
    asked: Reals,
    run_s: Reals,
    run_is_forecast: Flags,
    limit_s: Reals,
    wait_s: Reals,
    limit_ratio: float,
) -> ElasticJobs:
    """Return the table of the jobs of a window, `(n_jobs,)` each; a job of unknown run time takes no step."""
    sizes, speed = np.array([table.sizes for table in tables]), np.array([table.speed for table in tables])
    is_there = np.isfinite(run_s)
    at_asked = _rungs_of(sizes, asked)
    first = first_rungs(sizes, speed, asked=asked, limit_s=limit_s, limit_ratio=limit_ratio)
    return ElasticJobs(
        sizes=sizes,
        speed=speed,
        asked=asked,
        first=np.where(is_there, first, at_asked),
        run_s=np.where(is_there, run_s, MINUTE_S),
        wait_s=wait_s,
        run_is_forecast=run_is_forecast,
        speed_is_forecast=np.array([table.is_forecast for table in tables]),
        is_there=is_there,
    )


def supply_of(*, capacity: float, idle: float, wanted: float, waiting: float, node_gpus: float) -> Supply:
    """Return the supply of one window."""
    return Supply(
        capacity=np.array(max(1.0, capacity)),
        idle=np.array(float(idle)),
        wanted=np.array(float(wanted)),
        waiting=np.array(float(waiting)),
        node_gpus=np.array(float(node_gpus)),
    )


def first_rungs(sizes: Reals, speed: Reals, *, asked: Reals, limit_s: Reals, limit_ratio: float) -> Rungs:
    """Return the smallest sizes that jobs can take, `(n_jobs,)`.

    A smaller job gets a longer time limit (`limit_factor`), up to `limit_ratio` times as long; `limit_s` is infinite
    where there is none.
    """
    factor = np.maximum(asked[:, None] / sizes, 1.0 / speed)
    can_run = (factor <= limit_ratio) | np.isinf(limit_s)[:, None]
    return np.asarray(np.minimum(can_run.argmax(axis=1), _rungs_of(sizes, asked)))


def _rungs_of(sizes: Reals, asked: Reals) -> Rungs:
    """Return the places of the sizes asked, or the last where jobs ask for more than they declare, `(n_jobs,)`."""
    return np.asarray(np.minimum((sizes < asked[:, None]).sum(axis=1), RUNGS - 1))


def next_steps(jobs: ElasticJobs, supply: Supply, rung: Rungs) -> Steps:
    """Return the next steps of the jobs of a window, which are at the sizes `rung`, `(..., n_jobs)`.

    A job grows beyond the size that it asks for only by GPUs for which no pending job waits.
    """
    now, speed = (_at(table, rung[..., None, :]) for table in (jobs.sizes, jobs.speed))
    node_gpus, capacity = supply.node_gpus[..., None, None], supply.capacity[..., None, None]
    of_node = (now // node_gpus + 1.0) * node_gpus
    by_gpu = np.minimum(rung + 1, RUNGS - 1)
    by_node = (jobs.sizes < np.swapaxes(of_node, -1, -2)).sum(axis=-1)
    after_rung = np.stack([by_gpu, np.minimum(by_node, RUNGS - 1)], axis=-2)
    after, speed_after = (_at(table, after_rung) for table in (jobs.sizes, jobs.speed))
    asked, added = jobs.asked[..., None, :], after - now
    # Of what all ask for, the jobs of the window take their sizes so far.
    taken = np.where(jobs.is_there, now[..., 0, :] - jobs.asked, 0.0).sum(axis=-1)
    spare = (supply.idle - supply.wanted - taken)[..., None, None]
    is_legal = jobs.is_there[..., None, :] & (added > 0.0) & ((after <= asked) | (added <= spare))
    # A node's worth that is one more GPU is offered once.
    is_legal[..., 1, :] &= (by_node > by_gpu) & (by_node < RUNGS)
    run_s, run_after_s = jobs.run_s[..., None, :] / speed, jobs.run_s[..., None, :] / speed_after
    columns = np.empty((*after.shape, len(OPTION_COLUMNS)))
    crowd = (supply.waiting / supply.capacity)[..., None, None]
    for place, column in enumerate(
        (
            np.array([[0.0], [1.0]]),
            np.log2(now),
            np.log2(after / now),
            np.log2(now / asked),
            (speed_after - speed) / np.maximum(added, 1.0) * now / speed,
            np.log1p(run_s / MINUTE_S),
            np.log1p(np.maximum(run_s - run_after_s, 0.0) / MINUTE_S),
            np.log1p(np.maximum(jobs.wait_s, 0.0) / MINUTE_S)[..., None, :],
            after / capacity,
            (supply.idle / supply.capacity)[..., None, None],
            np.clip(spare / capacity, -4.0, 1.0),
            np.log1p(crowd * now),
            jobs.run_is_forecast[..., None, :],
            jobs.speed_is_forecast[..., None, :],
        )
    ):
        columns[..., place] = column
    return Steps(
        rung=after_rung,
        is_legal=is_legal,
        gpus=np.broadcast_to(now, after.shape),
        gpus_after=after,
        run_s=np.broadcast_to(run_s, after.shape),
        run_after_s=run_after_s,
        columns=columns,
    )


# Returns the index of a legal step among `(2 * n_jobs,)`; None to stop.
Choose = Callable[[Steps, Supply], int | None]


def climb(jobs: ElasticJobs, supply: Supply, choose: Choose) -> Rungs:
    """Return the sizes of the jobs of one window, `(n_jobs,)`, after steps from the smallest ones."""
    rung = jobs.first.copy()
    while (steps := next_steps(jobs, supply, rung)).is_legal.any():
        chosen = choose(steps, supply)
        if chosen is None:
            break
        kind, place = divmod(chosen, len(rung))
        rung[place] = steps.rung[kind, place]
    return rung


def step_options(steps: Steps, job_ids: NDArray[np.int64]) -> tuple[Rungs, Options]:
    """Return the legal steps of one window of jobs `(n_jobs,)` as options, and their indices among `(2 * n_jobs,)`."""
    legal = np.flatnonzero(steps.is_legal)
    columns = steps.columns.reshape(-1, len(OPTION_COLUMNS))[legal]
    return legal, Options(
        lever=Lever.GPU_COUNT,
        job_id=job_ids[legal % len(job_ids)],
        columns=dict(zip(OPTION_COLUMNS, columns.T, strict=True)),
    )


def near(gpus: Reals, idle: float, capacity: float) -> int:
    """Return how many jobs at the head of a line, which ask for `gpus` `(n_jobs,)`, can start soon."""
    ahead = np.cumsum(gpus) - gpus
    return int(np.searchsorted(ahead, idle + REACH_RATIO * capacity, side="right"))


def _at(table: Reals, rung: Rungs) -> Reals:
    """Return the entries of a table `(..., n_jobs, RUNGS)` at rungs `(..., n_kinds, n_jobs)`, in that shape."""
    return np.take_along_axis(np.swapaxes(table, -1, -2), rung, axis=-2)


def cost_saved(run: Reals, run_after: Reals, crowding: Reals, crowding_after: Reals) -> Reals:
    """Return the share of its cost that a step saves.

    Run times are in one unit; crowding is the price times the GPUs and the pending jobs for each GPU.
    """
    return np.asarray(1.0 - run_after * (1.0 + crowding_after) / (run * (1.0 + crowding)))


class PriceRule:
    """The rule as a policy, which scores the steps that the planner offers to learned ones."""

    name = "price"
    digest = ""
    levers = frozenset({Lever.GPU_COUNT})

    def act(self, options: Options) -> Scores:
        """Return a score for each step; raises `ModelError` for options of another lever."""
        if tuple(options.columns) != OPTION_COLUMNS:
            raise ModelError(f"policy {self.name}: it does not score options of {options.lever}")
        run = np.maximum(np.expm1(options.columns["run_time"]), _LEAST_MIN)
        run_after = np.maximum(run - np.expm1(options.columns["run_time_saved"]), 0.0)
        crowding = PRICE * np.expm1(options.columns["crowd"])
        return cost_saved(run, run_after, crowding, crowding * np.exp2(options.columns["gpus_added"]))
