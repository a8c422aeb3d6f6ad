"""Draws what a snapshot does not show: run times of its jobs, periods of slurmctld, and fractions of seconds.

A run time is that from the start to the end of a job. A draw has one uniform number per job, the same under every plan.
A forecast can be longer than the time limit of its job, at which the model of slurmctld ends the job.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.forecast import Forecasts, RunTime
from advisor.sim.live.resumed_arrays import Periods
from advisor.sim.live.snapshot_model import SnapshotModel

Floats = NDArray[np.float64]

# Forecasts can begin at 0, which has no logarithm; no run is that short.
_SHORTEST_S: Final = 1.0
# The upper end of an 80 % interval as log odds: log(0.9 / 0.1).
_LOG_ODDS: Final = 2.1972245773362196
# Beyond this share of the runs a forecast says nothing about the rest.
_LEAST_TAIL: Final = 1e-9


def uniforms(model: SnapshotModel, draws: Sequence[int], seed: int, *, of: int = 0) -> Floats:
    """Return the uniform numbers of the draws with some numbers, `(n_draws, n_jobs)`; `of` tells uses of them apart."""
    seeds = ([seed, draw, of] if of else [seed, draw] for draw in draws)
    rows = [np.random.default_rng(each).random(len(model.trace)) for each in seeds]
    return np.array(rows).reshape(len(draws), len(model.trace))


def by_forecasts(
    model: SnapshotModel, forecasts: Forecasts, uniform: Floats, *, used_limit_ratio_low: float = 1.0
) -> Floats:
    """Return run times from forecasts at uniform numbers, `(n_draws, n_jobs)` both.

    A job that runs already gets a run time from the part of its forecast beyond the time that it has run. Jobs without
    a forecast use their limits in equal shares, from `used_limit_ratio_low` on.
    """
    known_s, elapsed_s = _known(model), _elapsed_s(model)
    least_s = np.minimum(known_s, np.maximum(used_limit_ratio_low * known_s, elapsed_s))
    reach_s = np.where(np.isfinite(known_s), known_s, 0.0) - np.where(np.isfinite(known_s), least_s, 0.0)
    run_time_s: Floats = least_s + uniform * reach_s
    drawn = np.flatnonzero(~model.is_ending)
    runs = [forecasts.of(job_id).run_time for job_id in model.trace.jobs["job_id"][drawn].tolist()]
    run_time_s[:, drawn] = draw_run_times(runs, run_time_s[:, drawn], elapsed_s[drawn], uniform[:, drawn])
    return run_time_s


def within_limits(model: SnapshotModel, run_time_s: Floats, horizon_s: float) -> Floats:
    """Return run times `(n_draws, n_jobs)` up to the limits of the jobs, and up to `horizon_s` from now without one."""
    limit_s = model.trace.jobs["time_limit_s"]
    most_s = np.where(np.isfinite(limit_s), limit_s, _elapsed_s(model) + horizon_s)
    return np.asarray(np.minimum(run_time_s, most_s))


def draw_run_times(runs: Sequence[RunTime | None], otherwise_s: Floats, elapsed_s: Floats, uniform: Floats) -> Floats:
    """Return run times at uniform numbers, `(n_draws, n_jobs)` both; `elapsed_s`, `(n_jobs,)`, have passed of them.

    The interval and the median of a forecast stand for a log-logistic distribution whose two halves differ in width.
    Jobs without a forecast run for `otherwise_s`, `(n_jobs,)` or by draw.
    """
    run_time_s = np.broadcast_to(otherwise_s, uniform.shape).copy()
    drawn = np.array([row for row, run in enumerate(runs) if run is not None], dtype=np.intp)
    if not len(drawn):
        return run_time_s
    intervals = [run.interval_s for run in runs if run is not None]
    ends = np.array([(i.low, i.median, i.high) for i in intervals]).T
    low, median, high = np.log(np.maximum(ends, _SHORTEST_S))
    ran = _share_below(elapsed_s[drawn], low, median, high)
    beyond = np.minimum(ran + uniform[:, drawn] * (1.0 - ran), 1.0 - _LEAST_TAIL)
    run_time_s[:, drawn] = np.maximum(quantile(beyond, low, median, high), elapsed_s[drawn] + _SHORTEST_S)
    return run_time_s


def _known(model: SnapshotModel) -> Floats:
    """Return run times without a draw, `(n_jobs,)`: the time limits, for completing jobs the time that they ran."""
    return np.where(model.is_ending, _elapsed_s(model), model.trace.jobs["time_limit_s"])


def _elapsed_s(model: SnapshotModel) -> Floats:
    """Return how long each job has run, 0 before its start: `(n_jobs,)`."""
    return np.nan_to_num(model.taken_at - model.start_time)


def quantile(share: Floats, low: Floats, median: Floats, high: Floats) -> Floats:
    """Return the values below which the shares lie, log-logistic on each side; the interval is given as logarithms."""
    odds = np.log(np.maximum(share, _LEAST_TAIL) / (1.0 - share))
    return np.asarray(np.exp(median + odds / _LOG_ODDS * np.where(odds < 0.0, median - low, high - median)))


def _share_below(run_s: Floats, low: Floats, median: Floats, high: Floats) -> Floats:
    """Return the share of the runs that are shorter; the interval is given as logarithms."""
    beyond = np.log(np.maximum(run_s, _LEAST_TAIL)) - median
    width = np.maximum(np.where(beyond < 0.0, median - low, high - median), 1e-6)
    return np.where(run_s > 0.0, 1.0 / (1.0 + np.exp(-np.clip(_LOG_ODDS * beyond / width, -50.0, 50.0))), 0.0)


# The number of queues of plain Slurm that are carried over to another anchor.
_QUEUES: Final = 8


def drawn_periods(model: SnapshotModel, rng: np.random.Generator) -> Periods:
    """Return periods of slurmctld that began within one period before the snapshot."""
    parameters, shares = model.cluster.slurm, rng.random(3)
    return Periods(
        main_time=model.taken_at - shares[0] * parameters.tick_s,
        backfill_time=model.taken_at - shares[1] * parameters.bf_interval_s,
        priority_time=model.taken_at - shares[2] * parameters.priority_calc_period_s,
    )


def spread_draws(starts: Floats, until: float) -> list[int]:
    """Return draws that stand for all: by the sum of the waits, in the middle of equal parts; the first of a few."""
    if len(starts) < _QUEUES:
        return [0]
    order = np.argsort(np.nan_to_num(starts, nan=until).sum(axis=1), kind="stable")
    return [int(order[(2 * part + 1) * len(starts) // (2 * _QUEUES)]) for part in range(_QUEUES)]


def with_fractions(submit_time: Floats, rng: np.random.Generator) -> Floats:
    """Return instants within the whole seconds that Slurm shows; those of one second keep their order."""
    return np.sort(submit_time + rng.random(len(submit_time)))
