"""The metrics of a run: completion times, queueing delays, use of GPUs, and the cost of the simulation itself.

JCT and bounded slowdown are over the jobs that finished: a job killed by its time limit has no completion time, and
`Ends` counts it apart. Queueing delay is over the jobs that ended, killed ones included, for they started like any
other. A metric over no job at all is NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.topology import LocalityTier
from advisor.sim.run_outcome import End, Run
from advisor.sim.traces.trace import Trace

SLOWDOWN_BOUND_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The metrics of one run; the names are those of the published JSON.

    `mean_bounded_slowdown` is bounded at 10 s of the run time in the trace. `gpu_allocated_ratio`
    counts a GPU once for each job on it, and so can pass 1 where a policy lets jobs share GPUs.
    """

    policy: str
    trace: str
    seed: int
    jobs: int
    finished: int
    mean_jct_s: float
    p50_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    makespan_s: float
    mean_queueing_delay_s: float
    p99_queueing_delay_s: float
    max_queueing_delay_s: float
    mean_bounded_slowdown: float
    gpu_allocated_ratio: float
    communication_overhead_ratio: float
    preemptions: int
    resizes: int
    changes: int
    wall_s: float
    jobs_per_s: float
    peak_rss_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The number of jobs of a run by how they ended."""

    finished: int
    time_limit: int
    impossible: int
    not_ended: int
    preempted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveWaits:
    """The waits of the interactive jobs of a run, and the mean JCT of all other jobs."""

    jobs: int
    p50_queueing_delay_s: float
    p90_queueing_delay_s: float
    mean_jct_of_others_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTimes:
    """GPU-seconds held by gangs of several GPUs per locality tier; as in `gpu_allocated_ratio`, once per job."""

    node_gpu_s: float = 0.0
    leaf_gpu_s: float = 0.0
    spine_gpu_s: float = 0.0

    @property
    def shares(self) -> tuple[float, float, float]:
        """The shares of node, leaf and spine in their sum; NaN if no gang held any."""
        held = (self.node_gpu_s, self.leaf_gpu_s, self.spine_gpu_s)
        node, leaf, spine = (_ratio(held_s, sum(held)) for held_s in held)
        return node, leaf, spine


class StepFunction(NamedTuple):
    """A step function of time: `values[i]` from `times[i]` to `times[i + 1]`, the last value from then on."""

    times: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A division of jobs; `group_of_job` `(n_jobs,)` are indices into `names`."""

    names: tuple[str, ...]
    group_of_job: NDArray[np.int64]


def summarise(run: Run) -> RunSummary:
    """Compute the metrics of a run."""
    jct, delay, slowdown = jct_s(run), queueing_delay_s(run), bounded_slowdown(run)
    finished, started = jct[~np.isnan(jct)], delay[~np.isnan(delay)]
    span_s = makespan_s(run)
    held_gpu_s = float(run.outcomes["held_gpu_s"].sum())
    return RunSummary(
        policy=run.policy,
        trace=run.trace.name,
        seed=run.seed,
        jobs=len(run.trace),
        finished=len(finished),
        mean_jct_s=_mean(finished),
        p50_jct_s=_quantile(finished, 0.50),
        p95_jct_s=_quantile(finished, 0.95),
        p99_jct_s=_quantile(finished, 0.99),
        makespan_s=span_s,
        mean_queueing_delay_s=_mean(started),
        p99_queueing_delay_s=_quantile(started, 0.99),
        max_queueing_delay_s=_quantile(started, 1.0),
        mean_bounded_slowdown=_mean(slowdown[~np.isnan(slowdown)]),
        gpu_allocated_ratio=_ratio(held_gpu_s, run.cluster_gpus * span_s),
        communication_overhead_ratio=_ratio(float(run.outcomes["exposed_gpu_s"].sum()), held_gpu_s),
        preemptions=int(run.outcomes["preemptions"].sum()),
        resizes=int(run.outcomes["resizes"].sum()),
        changes=run.changes,
        wall_s=run.wall_s,
        jobs_per_s=_ratio(float(_has_ended(run).sum()), run.wall_s),
        peak_rss_mib=run.peak_rss_mib,
    )


def count_ends(run: Run) -> Ends:
    """Count the jobs by how they ended."""
    counts = np.bincount(run.outcomes["end"], minlength=len(End))
    return Ends(
        finished=int(counts[End.FINISHED]),
        time_limit=int(counts[End.TIME_LIMIT]),
        impossible=int(counts[End.IMPOSSIBLE]),
        not_ended=int(counts[End.NOT] + counts[End.DEPENDENCY]),
        preempted=int(counts[End.PREEMPTED]),
    )


def interactive_waits(run: Run) -> InteractiveWaits | None:
    """Return how long interactive jobs waited; None where none started."""
    is_interactive = run.trace.jobs["interactive"] == 1
    delay, jct = queueing_delay_s(run)[is_interactive], jct_s(run)[~is_interactive]
    started = delay[~np.isnan(delay)]
    if not len(started):
        return None
    return InteractiveWaits(
        jobs=len(started),
        p50_queueing_delay_s=_quantile(started, 0.50),
        p90_queueing_delay_s=_quantile(started, 0.90),
        mean_jct_of_others_s=_mean(jct[~np.isnan(jct)]),
    )


def tier_times(run: Run) -> TierTimes:
    """Sum the GPU-seconds that gangs held at each tier."""
    gangs = run.segments[run.segments["gpus"] > 1]
    held_gpu_s = gangs["gpus"] * (gangs["end_time"] - gangs["start_time"])
    sums = np.bincount(gangs["tier"], weights=held_gpu_s, minlength=len(LocalityTier))
    return TierTimes(
        node_gpu_s=float(sums[LocalityTier.NODE]),
        leaf_gpu_s=float(sums[LocalityTier.LEAF]),
        spine_gpu_s=float(sums[LocalityTier.SPINE]),
    )


def jct_s(run: Run) -> NDArray[np.float64]:
    """Return the JCT of every job `(n_jobs,)`, NaN where it did not finish."""
    taken = run.outcomes["end_time"] - run.trace.jobs["submit_time"]
    return np.where(run.outcomes["end"] == End.FINISHED, taken, np.nan)


def queueing_delay_s(run: Run) -> NDArray[np.float64]:
    """Return the time from submit to first start of every job `(n_jobs,)`, NaN where it did not end."""
    waited = run.outcomes["start_time"] - run.trace.jobs["submit_time"]
    return np.where(_has_ended(run), waited, np.nan)


def bounded_slowdown(run: Run) -> NDArray[np.float64]:
    """Return the bounded slowdown of every job `(n_jobs,)`, NaN where it did not finish."""
    slowdown = jct_s(run) / np.maximum(run.trace.jobs["run_time_s"], SLOWDOWN_BOUND_S)
    return np.asarray(np.maximum(slowdown, 1.0))


def makespan_s(run: Run) -> float:
    """Return the time from the first submit to the last end."""
    queued = run.outcomes["end"] != End.IMPOSSIBLE
    ends = run.outcomes["end_time"][_has_ended(run)]
    if not queued.any() or len(ends) == 0:
        return float("nan")
    return float(ends.max()) - float(run.trace.jobs["submit_time"][queued].min())


def gpus_over_time(run: Run) -> StepFunction:
    """Return the GPUs that jobs held, from the first start on."""
    segments = run.segments
    times = np.concatenate([segments["start_time"], segments["end_time"]])
    gpus = segments["gpus"].astype(np.int64)
    instants, slot = np.unique(times, return_inverse=True)
    jumps = np.bincount(slot, weights=np.concatenate([gpus, -gpus]), minlength=len(instants))
    return StepFunction(instants, np.cumsum(jumps))


def time_averages(steps: StepFunction, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average a step function over the intervals between rising `edges` `(n + 1,)`: `(n,)`, 0 before its first step."""
    if len(steps.times) == 0:
        return np.zeros(len(edges) - 1)
    # The integral is linear between steps, so that its values at the edges are exact.
    times = np.concatenate([steps.times, [max(edges[-1], steps.times[-1])]])
    integral = np.concatenate([[0.0], np.cumsum(steps.values * np.diff(times))])
    return np.asarray(np.diff(np.interp(edges, times, integral)) / np.diff(edges))


def by_gpus(trace: Trace) -> Grouping:
    """Group jobs by the GPUs they request, in classes that double: 0, 1, 2, 3-4, 5-8 and so on."""
    gpus = trace.jobs["gpus"]
    exponent = np.where(gpus == 0, -1, np.ceil(np.log2(np.maximum(gpus, 1)))).astype(np.int64)
    exponents, group_of_job = np.unique(exponent, return_inverse=True)
    return Grouping(names=tuple(_size_class(int(power)) for power in exponents), group_of_job=group_of_job)


def by_user(trace: Trace) -> Grouping:
    """Group jobs by user."""
    return Grouping(names=trace.users, group_of_job=trace.jobs["user"].astype(np.int64))


def _size_class(power: int) -> str:
    if power < 0:
        return "0"
    low, high = (2**power) // 2 + 1, 2**power
    return str(high) if low >= high else f"{low}-{high}"


def _has_ended(run: Run) -> NDArray[np.bool_]:
    end = run.outcomes["end"]
    return np.isin(end, (End.FINISHED, End.TIME_LIMIT, End.PREEMPTED))


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _quantile(values: NDArray[np.float64], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else float("nan")


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
