"""The stored result of a run: its metrics, and the figures of jobs and GPU use that comparisons and charts need."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.sim.run_outcome import End, Run
from advisor.sim.study.metrics import (
    Ends,
    RunSummary,
    TierTimes,
    bounded_slowdown,
    count_ends,
    gpus_over_time,
    jct_s,
    makespan_s,
    queueing_delay_s,
    summarise,
    tier_times,
    time_averages,
)
from advisor.sim.study.statistics import CellName

MOST_STEPS = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCurve:
    """GPUs held, averaged over equal intervals of `step_s` from `start_time` on."""

    start_time: float
    step_s: float
    gpus: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The stored result of a run.

    `per_job` is `(3, n_jobs)` in the order of the trace: JCT, queueing delay and bounded slowdown, NaN where a job
    has none. `sampled` names the columns of the trace that were drawn at random.
    """

    summary: RunSummary
    ends: Ends
    cluster_gpus: int
    curve: GpuCurve
    sampled: tuple[str, ...]
    per_job: NDArray[np.float64]
    tiers: TierTimes = field(default_factory=TierTimes)

    @property
    def cell(self) -> CellName:
        """The trace and the seed."""
        return CellName(self.summary.trace, self.summary.seed)

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """JCT of every job, `(n_jobs,)`."""
        return np.asarray(self.per_job[0])

    @property
    def queueing_delay_s(self) -> NDArray[np.float64]:
        """Queueing delay of every job, `(n_jobs,)`."""
        return np.asarray(self.per_job[1])

    @property
    def bounded_slowdown(self) -> NDArray[np.float64]:
        """Bounded slowdown of every job, `(n_jobs,)`."""
        return np.asarray(self.per_job[2])


def result_of(run: Run) -> RunResult:
    """Return the stored result of a run."""
    return RunResult(
        summary=summarise(run),
        ends=count_ends(run),
        cluster_gpus=run.cluster_gpus,
        curve=_curve(run),
        sampled=run.trace.sampled,
        per_job=np.stack([jct_s(run), queueing_delay_s(run), bounded_slowdown(run)]),
        tiers=tier_times(run),
    )


def _curve(run: Run) -> GpuCurve:
    span_s = makespan_s(run)
    if not span_s > 0:
        return GpuCurve(start_time=0.0, step_s=1.0, gpus=())
    start = float(run.trace.jobs["submit_time"][run.outcomes["end"] != End.IMPOSSIBLE].min())
    edges = np.linspace(start, start + span_s, MOST_STEPS + 1)
    averages = time_averages(gpus_over_time(run), edges)
    # A hundredth of a GPU is finer than any line is drawn.
    return GpuCurve(start_time=start, step_s=span_s / MOST_STEPS, gpus=tuple(np.round(averages, 2).tolist()))
