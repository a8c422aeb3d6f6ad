"""Compare policies on the same cells with the first policy: overall, by job size and by user."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.sim.study.metrics import Ends, Grouping
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName, RelativeChange, difference_of_figures, paired_difference

Results = Mapping[CellName, RunResult]
# By cell, all with the same names.
Groupings = Mapping[CellName, Grouping]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfJobs:
    """A metric over the jobs of a run: the mean of `values`, or their quantile at `share`."""

    values: Callable[[RunResult], NDArray[np.float64]]
    share: float | None = None


# The rest of what is compared is one figure for each run.
OF_JOBS: Mapping[str, OfJobs] = {
    "mean_jct_s": OfJobs(values=lambda result: result.jct_s),
    "p50_jct_s": OfJobs(values=lambda result: result.jct_s, share=0.50),
    "p95_jct_s": OfJobs(values=lambda result: result.jct_s, share=0.95),
    "p99_jct_s": OfJobs(values=lambda result: result.jct_s, share=0.99),
    "mean_queueing_delay_s": OfJobs(values=lambda result: result.queueing_delay_s),
    "p99_queueing_delay_s": OfJobs(values=lambda result: result.queueing_delay_s, share=0.99),
    "mean_bounded_slowdown": OfJobs(values=lambda result: result.bounded_slowdown),
}
COMPARED = (
    "mean_jct_s",
    "p50_jct_s",
    "p95_jct_s",
    "p99_jct_s",
    "mean_queueing_delay_s",
    "p99_queueing_delay_s",
    "max_queueing_delay_s",
    "mean_bounded_slowdown",
    "makespan_s",
    "gpu_allocated_ratio",
    "communication_overhead_ratio",
)
# Two ends of a job this close are the same: they differ by rounding, not by policy.
SAME_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """The difference of one metric from the first policy, on one trace or, with `trace` None, over all traces."""

    trace: str | None
    policy: str
    against: str
    metric: str
    change: RelativeChange


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDifference:
    """The difference in mean JCT of one group of jobs; the means are over the jobs that finished under both."""

    group: str
    jobs: int
    before_s: float
    after_s: float
    change: RelativeChange


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTally:
    """Counts of jobs, or of users by their mean, with a lower and a higher JCT than under the first policy."""

    lower: int
    higher: int
    same: int


def by_policy(results: Sequence[RunResult]) -> dict[str, dict[CellName, RunResult]]:
    """Return the results by policy and cell, the policies in order of appearance."""
    sorted_out: dict[str, dict[CellName, RunResult]] = {}
    for result in results:
        sorted_out.setdefault(result.summary.policy, {})[result.cell] = result
    return sorted_out


def traces_of(results: Sequence[RunResult]) -> tuple[str, ...]:
    """Return the names of the traces in order of appearance."""
    return tuple(dict.fromkeys(result.summary.trace for result in results))


def mean_of(metric: str, results: Results) -> float:
    """Return the mean of a metric over cells."""
    return float(np.mean([getattr(result.summary, metric) for result in results.values()]))


def ends_of(results: Results) -> Ends:
    """Sum the counts of how jobs ended over cells."""
    return Ends(
        **{field.name: sum(getattr(result.ends, field.name) for result in results.values()) for field in fields(Ends)}
    )


def compare(results: Sequence[RunResult], *, seed: int, metrics: Sequence[str] = COMPARED) -> list[PairedDifference]:
    """Compare every policy with the first, per trace and, with several traces, over all of them."""
    traces = traces_of(results)
    scopes = [*traces, None] if len(traces) > 1 else list(traces)
    policies = by_policy(results)
    first, *others = policies
    return [
        PairedDifference(
            trace=trace,
            policy=other,
            against=first,
            metric=metric,
            change=change_of(_on(policies[first], trace), _on(policies[other], trace), metric, seed),
        )
        for trace in scopes
        for other in others
        for metric in metrics
    ]


def compare_groups(before: Results, after: Results, groupings: Groupings, *, seed: int) -> list[GroupDifference]:
    """Compare the mean JCT of each group that holds jobs, over cells; jobs that several cells share count once."""
    rows = {id(grouping): _rows_of(grouping) for grouping in groupings.values()}
    groups = []
    for number, name in enumerate(_names_of(groupings)):
        jobs = sum(len(rows_of_group[number]) for rows_of_group in rows.values())
        if not jobs:
            continue
        a, b = (
            {cell: result.jct_s[rows[id(groupings[cell])][number]] for cell, result in results.items()}
            for results in (before, after)
        )
        groups.append(
            GroupDifference(
                group=name,
                jobs=jobs,
                before_s=_mean_of_both(a, b),
                after_s=_mean_of_both(b, a),
                change=paired_difference(a, b, seed=seed),
            )
        )
    return groups


def tally_jobs(before: Results, after: Results) -> PairedTally:
    """Count the jobs that finished under both by whether their JCT is lower or higher, over all seeds."""
    return _tally([after[cell].jct_s - before[cell].jct_s for cell in sorted(before.keys() & after.keys())])


def tally_groups(before: Results, after: Results, groupings: Groupings) -> PairedTally:
    """Count the groups by whether the mean JCT of their jobs is lower or higher, over all seeds."""
    size = len(_names_of(groupings))
    total, count = np.zeros(size), np.zeros(size)
    for cell in sorted(before.keys() & after.keys()):
        difference = after[cell].jct_s - before[cell].jct_s
        both = ~np.isnan(difference)
        group_of_job = groupings[cell].group_of_job[both]
        total += np.bincount(group_of_job, weights=difference[both], minlength=size)
        count += np.bincount(group_of_job, minlength=size)
    return _tally([total[count > 0] / count[count > 0]])


def parted(grouping: Grouping, results: Results) -> Groupings:
    """Divide a grouping of the jobs of all cells, which follow each other in the order of `results`."""
    ends = np.cumsum([len(result.jct_s) for result in results.values()])
    parts = np.split(grouping.group_of_job, ends[:-1])
    return {cell: replace(grouping, group_of_job=part) for cell, part in zip(results, parts, strict=True)}


def heaviest(grouping: Grouping, weights: NDArray[np.float64], most: int, others: str) -> Grouping:
    """Keep the `most` groups with the greatest sum of `weights` `(n_jobs,)`, greatest first, and merge the rest."""
    sums = np.bincount(grouping.group_of_job, weights=weights, minlength=len(grouping.names))
    kept = np.argsort(-sums, kind="stable")[:most]
    new_of_old = np.full(len(grouping.names), len(kept))
    new_of_old[kept] = np.arange(len(kept))
    return Grouping(
        names=(*(grouping.names[old] for old in kept), others), group_of_job=new_of_old[grouping.group_of_job]
    )


def _on(results: Results, trace: str | None) -> Results:
    return {cell: result for cell, result in results.items() if trace is None or cell.trace == trace}


def change_of(before: Results, after: Results, metric: str, seed: int) -> RelativeChange:
    """Return the change of one metric over the cells that both have."""
    of_jobs = OF_JOBS.get(metric)
    if of_jobs is not None:
        return paired_difference(
            {cell: of_jobs.values(result) for cell, result in before.items()},
            {cell: of_jobs.values(result) for cell, result in after.items()},
            seed=seed,
            share=of_jobs.share,
        )
    return difference_of_figures(
        {cell: getattr(result.summary, metric) for cell, result in before.items()},
        {cell: getattr(result.summary, metric) for cell, result in after.items()},
        seed=seed,
    )


def _names_of(groupings: Groupings) -> tuple[str, ...]:
    return next(iter(groupings.values())).names


def _rows_of(grouping: Grouping) -> list[NDArray[np.intp]]:
    """Return the rows of each group, in order of submission."""
    order = np.argsort(grouping.group_of_job, kind="stable")
    sizes = np.bincount(grouping.group_of_job, minlength=len(grouping.names))
    return np.split(order, np.cumsum(sizes)[:-1])


def _mean_of_both(a: Mapping[CellName, NDArray[np.float64]], b: Mapping[CellName, NDArray[np.float64]]) -> float:
    """Average `a` over all cells and over the jobs that have a value in both; NaN over none."""
    values = np.concatenate([a[cell][~np.isnan(a[cell] + b[cell])] for cell in sorted(a.keys() & b.keys())])
    return float(values.mean()) if len(values) else float("nan")


def _tally(differences: Sequence[NDArray[np.float64]]) -> PairedTally:
    """Count differences of seconds by sign; NaN counts nowhere."""
    return PairedTally(
        lower=sum(int((difference < -SAME_S).sum()) for difference in differences),
        higher=sum(int((difference > SAME_S).sum()) for difference in differences),
        same=sum(int((np.abs(difference) <= SAME_S).sum()) for difference in differences),
    )
