"""Estimates how shorter time limits would have changed the waits of users, by a replay of their cluster's history.

A limit is suggested from the jobs of a user in the earlier part of a trace, and judged on those in the later part: how
many of them ran longer than it, and how much sooner they would have started. Both replays, with the limits that were
asked and with the suggested one, run on the same perturbed copies of the trace (`perturbed`), with run times as
recorded. A later job that ran longer than the suggested limit keeps its own, since it would have been killed, and its
user has to ask more for it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.sim.cluster import Cluster
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import Cell, PerturbedTrace, RunCells
from advisor.sim.traces.trace import Trace
from advisor.stats import standard_error, t_quantile
from advisor.trial.tallies import Share

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST_JOBS: Final = 20
# The share of the jobs, in the order of their submission, that suggestions are made from.
EARLIER_RATIO: Final = 0.5
_QUANTILE: Final = 0.95
_SPARE: Final = 1.25
# A suggestion has to be below this share of the limit that is asked in the median.
_WORTH_RATIO: Final = 0.75
_MOST_BLOCKS: Final = 20
_LEAST_BLOCKS: Final = 3
# Limits as people ask them.
LADDER_S: Final = (
    *(minutes * MINUTE_S for minutes in (5, 10, 15, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 4, 6, 8, 12, 16, 24, 36)),
    *(days * DAY_S for days in (2, 3, 4, 5, 7, 10, 14, 21, 28)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitChange:
    """The change of the mean wait of some jobs and its 95 % interval, NaN where there is none; below 0 is sooner."""

    jobs: int
    before_s: float
    mean_s: float
    low_s: float
    high_s: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.high_s < 0.0 or self.low_s > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A time limit for a user, from the user's earlier jobs; `user` is the code in the trace.

    `used_ratio` is the share of the asked time that the jobs used, `asked_s` the median limit. `killed` counts the
    later jobs that ran longer than the limit, out of those with a limit above it.
    """

    user: int
    jobs: int
    used_ratio: float
    asked_s: float
    limit_s: float
    killed: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAdvice:
    """A suggestion, and what it would have changed for the later jobs of the user and for the jobs of all others."""

    suggestion: Suggestion
    own: WaitChange
    others: WaitChange

    @property
    def helps(self) -> bool:
        """Whether the user's jobs would clearly have started sooner."""
        return self.own.is_clear and self.own.mean_s < 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAdvice:
    """Why a user gets no suggestion."""

    user: int
    jobs: int
    reason: str


def is_later(trace: Trace) -> Mask:
    """Mark the jobs on which suggestions are judged, `(n_jobs,)`: those submitted after the earlier part."""
    submitted = trace.jobs["submit_time"]
    split = submitted[int(EARLIER_RATIO * len(trace))] if len(trace) else 0.0
    return np.asarray(submitted >= split)


def users_by_waste(trace: Trace) -> list[int]:
    """Return the users with enough jobs, by the GPU time that they asked and did not use, most first."""
    jobs = trace.jobs[np.isfinite(trace.jobs["time_limit_s"])]
    unused = jobs["gpus"] * np.maximum(0.0, jobs["time_limit_s"] - jobs["run_time_s"])
    waste = np.bincount(jobs["user"], weights=unused, minlength=len(trace.users))
    count = np.bincount(jobs["user"], minlength=len(trace.users))
    users = [user for user in range(len(trace.users)) if count[user] >= LEAST_JOBS and waste[user] > 0.0]
    return sorted(users, key=lambda user: (-waste[user], user))


def suggested(trace: Trace, user: int, *, killed_ratio: float) -> Suggestion | NoAdvice:
    """Suggest a limit from the earlier jobs of a user; none that kills more than a share of the later ones."""
    own = (trace.jobs["user"] == user) & np.isfinite(trace.jobs["time_limit_s"])
    later = is_later(trace)
    jobs, past, held_out = trace.jobs[own], trace.jobs[own & ~later], trace.jobs[own & later]
    if min(len(past), len(held_out)) < LEAST_JOBS // 2 or len(jobs) < LEAST_JOBS:
        return NoAdvice(user=user, jobs=len(jobs), reason="too few jobs")
    limit_s = _least_limit(past["run_time_s"], killed_ratio)
    asked_s = float(np.median(past["time_limit_s"]))
    if limit_s is None or limit_s > _WORTH_RATIO * asked_s:
        return NoAdvice(user=user, jobs=len(jobs), reason="the limits that are asked fit the run times")
    concerned = held_out[held_out["time_limit_s"] > limit_s]
    killed = Share(count=int((concerned["run_time_s"] > limit_s).sum()), n=len(concerned))
    if not killed.n:
        return NoAdvice(user=user, jobs=len(jobs), reason="later jobs ask less already")
    if killed.ratio > killed_ratio:
        reason = f"{killed.count} of {killed.n} later jobs ran longer than the suggested limit"
        return NoAdvice(user=user, jobs=len(jobs), reason=reason)
    used = float(jobs["run_time_s"].sum() / jobs["time_limit_s"].sum())
    return Suggestion(user=user, jobs=len(jobs), used_ratio=used, asked_s=asked_s, limit_s=limit_s, killed=killed)


def with_limit(trace: Trace, suggestion: Suggestion) -> Trace:
    """Return a trace in which the later jobs of a user ask the suggested limit, unless they ask less or ran longer."""
    jobs = trace.jobs.copy()
    limit_s = suggestion.limit_s
    chosen = is_later(trace) & (jobs["user"] == suggestion.user)
    chosen &= (jobs["time_limit_s"] > limit_s) & (jobs["run_time_s"] <= limit_s)
    jobs["time_limit_s"][chosen] = limit_s
    # The least time is at most the limit.
    jobs["time_min_s"][chosen] = np.minimum(jobs["time_min_s"][chosen], limit_s)
    return replace(trace, jobs=jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitStudy:
    """Replays a trace with the limits that were asked, and once more for each suggestion; `copies` are of the trace."""

    trace: Trace
    cluster: Cluster
    policy: str
    options: SimulationOptions
    copies: tuple[PerturbedTrace, ...]
    seed: int

    def advice(self, suggestions: Sequence[Suggestion], run_cells: RunCells) -> list[LimitAdvice]:
        """Run everything, and return what each suggestion would have changed."""
        traces = [self.trace, *(with_limit(self.trace, suggestion) for suggestion in suggestions)]
        cells = [self._cell(_copied(trace, copy)) for trace in traces for copy in self.copies]
        waits = [
            copy.in_original_order(result.queueing_delay_s)
            for result, copy in zip(run_cells(cells, 0), list(self.copies) * len(traces), strict=True)
        ]
        per_trace = np.stack(waits).reshape(len(traces), len(self.copies), len(self.trace))
        later = is_later(self.trace)
        return [
            LimitAdvice(
                suggestion=suggestion,
                own=wait_change(per_trace[0], after, later & (self.trace.jobs["user"] == suggestion.user)),
                others=wait_change(per_trace[0], after, later & (self.trace.jobs["user"] != suggestion.user)),
            )
            for suggestion, after in zip(suggestions, per_trace[1:], strict=True)
        ]

    def runs(self, suggestions: int) -> int:
        """Return the number of runs for a number of suggestions."""
        return len(self.copies) * (1 + suggestions)

    def _cell(self, trace: Trace) -> Cell:
        return Cell(trace=trace, cluster=self.cluster, policy=self.policy, seed=self.seed, options=self.options)


def wait_change(before_s: Floats, after_s: Floats, chosen: Mask) -> WaitChange:
    """Compare the waits of some jobs, `(n_copies, n_jobs)` each, NaN where a job did not start.

    The interval is Student's. Its standard error is that between blocks of jobs in the order of their submission, which
    meet the same congestion, together with that between the copies; the smaller number of the two counts as the degrees
    of freedom.
    """
    known = chosen & np.isfinite(before_s).all(axis=0) & np.isfinite(after_s).all(axis=0)
    difference = (after_s - before_s)[:, known]
    count = int(known.sum())
    if not count:
        return WaitChange(jobs=0, before_s=math.nan, mean_s=math.nan, low_s=math.nan, high_s=math.nan)
    mean_s, before = float(difference.mean()), float(before_s[:, known].mean())
    blocks = min(_MOST_BLOCKS, math.isqrt(count))
    if blocks < _LEAST_BLOCKS or len(difference) < 2:
        return WaitChange(jobs=count, before_s=before, mean_s=mean_s, low_s=math.nan, high_s=math.nan)
    of_blocks = np.array([block.mean() for block in np.array_split(difference.mean(axis=0), blocks)])
    error_s = math.hypot(standard_error(of_blocks), standard_error(difference.mean(axis=1)))
    reach_s = t_quantile(min(blocks, len(difference)) - 1) * error_s
    return WaitChange(jobs=count, before_s=before, mean_s=mean_s, low_s=mean_s - reach_s, high_s=mean_s + reach_s)


def _least_limit(run_time_s: Floats, killed_ratio: float) -> float | None:
    """Return the least limit of the ladder with room above most run times, that kills no more than a share of them."""
    least_s = _SPARE * float(np.quantile(run_time_s, _QUANTILE))
    fits = (limit_s for limit_s in LADDER_S if limit_s >= least_s and (run_time_s > limit_s).mean() <= killed_ratio)
    return next(fits, None)


def _copied(trace: Trace, copy: PerturbedTrace) -> Trace:
    """Return a copy with the limits of a trace."""
    jobs = copy.trace.jobs.copy()
    for column in ("time_limit_s", "time_min_s"):
        jobs[column] = trace.jobs[column][copy.row]
    return replace(copy.trace, jobs=jobs)
