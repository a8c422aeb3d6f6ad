"""Holds jobs as columns, and computes the rows of the run-time model: last runs over an anchor, and the request."""

import re

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S, HOUR_S
from advisor.features.columns import Columns

RUNS_KEPT = 32
NEAR, USER = 0, 1
BLOCKS = ("near", "user")
# Without any run to go by, the anchor is this share of the time limit.
COLD_RATIO = 0.2
# Stands for what is not known: below anything that is, so that a tree can split it off.
MISSING = np.float32(-30.0)
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
COLD, USER_KNOWN, REQUEST_KNOWN, SIBLINGS_ENDED = range(4)
GROUPS = ("cold", "user known", "request known", "siblings ended")

_OF_REQUEST = (
    *("limit", "limit_over_anchor", "group", "gpus", "cpus", "cpus_per_gpu", "memory_per_cpu", "nodes"),
    "waited",
)
_OF_BLOCK = (
    "last",
    "mean_of_two",
    "recent_mean",
    *(f"quantile_{level}" for level in LEVELS),
    "spread",
    "step",
    "ratio_median",
    "timed_out_ratio",
    "instant_ratio",
    "count",
    "age",
    "last_limit",
    "same_limit_ratio",
    "time_between",
    "ended_since_submission",
)
COLUMNS = (*_OF_REQUEST, *(f"{block}_{column}" for block in BLOCKS for column in _OF_BLOCK))
# The forecast of a pending job is made again when its wait reaches one of these, so that it can be kept in between.
WAITS_S = np.array([0.0, 0.25, 1.0, 4.0, 12.0, 24.0, 48.0, 96.0, 192.0, 384.0]) * HOUR_S
# Weight of a run relative to the next newer one, in `recent_mean`.
DECAY = 0.6
TIMED_OUT, INSTANT_S, TRIAL_RATIO = 0.98, 120.0, 0.02


Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
# Long enough for any real name; job names are written by users.
TEXT_LIMIT = 64
# Ten years: Slurm's largest limits in minutes are meant as none.
LONGEST_S = 10 * 366 * DAY_S
# The cluster ended these: their run times say nothing about the job.
ENDED_BY_THE_CLUSTER = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED", "REQUEUED", "RESIZING")
_FAMILY_END = re.compile(r"[0-9\x00-\x1f\x7f]")


def name_family(name: str) -> str:
    """Return the family name of a numbered series of jobs: the name up to its first digit, in lower case."""
    return _FAMILY_END.split(name[:TEXT_LIMIT], maxsplit=1)[0].strip(" -_.,:;/([").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeTable(Columns):
    """Jobs, row by row; texts are empty and numbers NaN where not known, `limit_s` also where there is no limit.

    `gpus`, `cpus`, `nodes` and `memory_mib` are of the whole job. `waited_s` is how long a job has been pending so
    far, or was until its start; `elapsed_s` how long it has run, 0 for one that has not started.
    """

    user: tuple[str, ...]
    account: tuple[str, ...]
    name: tuple[str, ...]
    partition: tuple[str, ...]
    qos: tuple[str, ...]
    gpus: Floats
    cpus: Floats
    nodes: Floats
    memory_mib: Floats
    limit_s: Floats
    submit_time: Floats
    waited_s: Floats
    elapsed_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJobs(Columns):
    """Jobs with their run times, the instants of their ends and Slurm's words for how they ended."""

    jobs: RunTimeTable
    run_s: Floats
    end_time: Floats
    state: tuple[str, ...]

    def usable(self) -> tuple[NDArray[np.bool_], dict[str, int]]:
        """Return which rows are usable, and the number of the others by fault."""
        jobs, limit_s = self.jobs, self.jobs.limit_s
        by_cluster = [state.upper().startswith(ENDED_BY_THE_CLUSTER) for state in self.state]
        nameless = [not (user or account) for user, account in zip(jobs.user, jobs.account, strict=True)]
        good, dropped = np.ones(len(self), dtype=np.bool_), {}
        for reason, bad in (
            ("no run time, or a negative one", ~(np.isfinite(self.run_s) & (self.run_s > 0))),
            ("no submit or end time", ~(_plausible(jobs.submit_time) & _plausible(self.end_time))),
            ("ended before it was submitted", jobs.submit_time > self.end_time),
            ("no time limit", ~(np.isfinite(limit_s) & (limit_s > 0) & (limit_s < LONGEST_S))),
            ("ran far beyond its limit", self.run_s > 1.5 * limit_s + HOUR_S),
            ("neither user nor account", np.array(nameless, dtype=np.bool_)),
            ("ended by the cluster", np.array(by_cluster, dtype=np.bool_)),
        ):
            if count := int(np.count_nonzero(good & bad)):
                dropped[reason] = count
            good &= ~bad
        return good, dropped


def _plausible(instant: Floats) -> NDArray[np.bool_]:
    # Up to 2200; the clock of a simulated cluster begins at 0. NaN compares False.
    plausible: NDArray[np.bool_] = (instant >= 0.0) & (instant < 7_258_118_400)
    return plausible


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled(Columns):
    """The history of each job by block: that of its request, and that of its user.

    `runs` `(n_rows, 2, RUNS_KEPT, 3)` are run time, time limit and end, newest first, NaN where there was no run;
    `counts` `(n_rows, 2)` how many there ever were.
    """

    runs: Floats
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features(Columns):
    """Rows for the model, `(n_rows, len(COLUMNS))`; the logarithm of the run time counts from `anchor` `(n_rows,)`."""

    rows: NDArray[np.float32]
    anchor: Floats
    group: NDArray[np.int64]


def features(jobs: RunTimeTable, recalled: Recalled, limit_s: Floats) -> Features:
    """Return the feature rows of jobs; `limit_s` is the time limit, or its substitute."""
    limit, waited_s = np.log(limit_s), wait_reached_s(jobs.waited_s)
    logs = [np.log(recalled.runs[:, block, :, 0]) for block in (NEAR, USER)]
    known = recalled.counts > 0
    siblings = (recalled.runs[:, NEAR, :, 2] > jobs.submit_time[:, None]).any(axis=1)
    group = np.where(known[:, NEAR], REQUEST_KNOWN, np.where(known[:, USER], USER_KNOWN, COLD))
    group = np.where(siblings, SIBLINGS_ENDED, group)
    centres = [_centre(recalled.runs[:, block]) for block in (NEAR, USER)]
    anchor = np.where(np.isnan(centres[NEAR]), centres[USER], centres[NEAR])
    # Jobs that were submitted together end alike: the latest of them says more than the median of all runs.
    anchor = np.where(siblings, _recent_mean(logs[NEAR]), anchor)
    anchor = np.where(np.isnan(anchor), limit + np.log(COLD_RATIO), anchor)
    anchor = np.minimum(anchor, limit)
    cpus, gpus = _log(jobs.cpus), np.log(np.maximum(jobs.gpus, 0.5))
    columns = [
        limit,
        limit - anchor,
        group.astype(np.float64),
        gpus,
        cpus,
        cpus - np.log(np.maximum(jobs.gpus, 1.0)),
        _log(jobs.memory_mib) - cpus,
        _log(jobs.nodes),
        np.log1p(waited_s),
    ]
    for block in (NEAR, USER):
        runs, counts = recalled.runs[:, block], recalled.counts[:, block]
        columns += _block(
            runs, logs[block], counts, anchor=anchor, limit=limit, submit_time=jobs.submit_time, waited_s=waited_s
        )
    rows = np.column_stack(columns)
    rows = np.where(np.isfinite(rows), rows, MISSING).astype(np.float32)
    return Features(rows=rows, anchor=anchor, group=group)


def wait_reached_s(waited_s: Floats) -> Floats:
    """Return the last of `WAITS_S` that each wait `(n_rows,)` has reached."""
    reached: Floats = WAITS_S[np.maximum(np.searchsorted(WAITS_S, waited_s, side="right") - 1, 0)]
    return reached


def _block(
    runs: Floats,
    logs: Floats,
    counts: NDArray[np.int64],
    *,
    anchor: Floats,
    limit: Floats,
    submit_time: Floats,
    waited_s: Floats,
) -> list[Floats]:
    """Sum up the runs `(n_rows, RUNS_KEPT, 3)` of one block, whose logarithms are `logs`; NaN where there are none."""
    run_s, limit_s, end_time = runs[..., 0], runs[..., 1], runs[..., 2]
    there = ~np.isnan(logs)
    kept = there.sum(axis=1)
    by_size = np.sort(logs, axis=1)
    ratio = run_s / limit_s
    quantiles = [_quantile(by_size, kept, level) - anchor for level in LEVELS]
    same_limit = np.abs(np.log(limit_s) - limit[:, None]) < 0.01
    steps = np.abs(np.diff(logs[:, :8], axis=1))
    log_ratios = np.sort(np.log(ratio), axis=1)
    return [
        logs[:, 0] - anchor,
        _mean(logs[:, :2], there[:, :2]) - anchor,
        _recent_mean(logs) - anchor,
        *quantiles,
        quantiles[3] - quantiles[1],
        _mean(steps, there[:, 1:8]),
        _quantile(log_ratios, kept, 0.5) + limit - anchor,
        _mean(ratio >= TIMED_OUT, there),
        _mean(run_s < INSTANT_S, there),
        np.log1p(counts.astype(np.float64)),
        np.log1p(np.maximum(submit_time + waited_s - end_time[:, 0], 0.0)),
        np.log(limit_s[:, 0]) - limit,
        _mean(same_limit, there),
        np.log1p(np.maximum(end_time[:, 0] - end_time[np.arange(len(kept)), np.maximum(kept - 1, 0)], 0.0)),
        np.log1p((end_time > submit_time[:, None]).sum(axis=1).astype(np.float64)),
    ]


def _centre(runs: Floats) -> Floats:
    """Return the median logarithm of the runs `(n_rows, RUNS_KEPT, 3)` that did not fail at once, NaN without any.

    A run of seconds is a trial: what comes after it is most often not another one.
    """
    run_s, limit_s = runs[..., 0], runs[..., 1]
    trial = (run_s < INSTANT_S) & (run_s < TRIAL_RATIO * limit_s)
    logs = np.sort(np.log(np.where(trial, np.nan, run_s)), axis=1)
    return _quantile(logs, _kept(logs), 0.5)


def _recent_mean(logs: Floats) -> Floats:
    """Return the mean of logarithms `(n_rows, RUNS_KEPT)`, newest first, each weighing less than the one before."""
    return _mean(logs, np.where(np.isnan(logs), 0.0, DECAY ** np.arange(RUNS_KEPT)))


def _kept(logs: Floats) -> NDArray[np.int64]:
    kept: NDArray[np.int64] = (~np.isnan(logs)).sum(axis=1)
    return kept


def _quantile(by_size: Floats, kept: NDArray[np.int64], level: float) -> Floats:
    """Return a quantile of the first `kept` values of each row, NaN where there are none."""
    place = level * np.maximum(kept - 1, 0)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(kept - 1, 0))
    row = np.arange(len(kept))
    weight = place - below
    quantile: Floats = by_size[row, below] * (1 - weight) + by_size[row, above] * weight
    return quantile


def _mean(values: NDArray[np.float64] | NDArray[np.bool_], weights: NDArray[np.float64] | NDArray[np.bool_]) -> Floats:
    """Return the weighted mean of each row over positive weights, NaN without any."""
    total = weights.sum(axis=1).astype(np.float64)
    summed = np.where(weights > 0, values, 0.0) * weights
    mean: Floats = np.divide(summed.sum(axis=1), total, out=np.full(len(total), np.nan), where=total > 0)
    return mean


def _log(values: Floats) -> Floats:
    # Zero and less stand for what is not known.
    return np.log(np.where(values > 0, values, np.nan))
