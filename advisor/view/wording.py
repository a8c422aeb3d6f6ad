"""Metrics and changes as people read them."""

import math
from collections.abc import Mapping

from advisor.domain.units import duration, plural
from advisor.sim.study.metrics import Ends
from advisor.sim.study.statistics import LEAST_UNITS, Pairing, RelativeChange

LABELS: Mapping[str, str] = {
    "mean_jct_s": "mean JCT",
    "p50_jct_s": "median JCT",
    "p95_jct_s": "95th percentile of JCT",
    "p99_jct_s": "99th percentile of JCT",
    "mean_queueing_delay_s": "mean queueing delay",
    "p99_queueing_delay_s": "99th percentile of queueing delay",
    "max_queueing_delay_s": "longest queueing delay",
    "mean_bounded_slowdown": "mean bounded slowdown",
    "makespan_s": "makespan",
    "gpu_allocated_ratio": "GPUs allocated",
    "communication_overhead_ratio": "communication overhead",
    "preemptions": "preemptions",
    "resizes": "resizes",
    "changes": "changes of pending jobs",
    "finished": "jobs finished",
    "wall_s": "wall time",
    "jobs_per_s": "jobs per second of it",
    "peak_rss_mib": "peak memory, MiB",
}


def shown(metric: str, value: float) -> str:
    """Return the value of a metric in its unit."""
    if math.isnan(value):
        return "none"
    if metric.endswith("_s") and metric != "jobs_per_s":
        return duration(value)
    if metric.endswith("_ratio"):
        return f"{100 * value:.1f} %"
    if metric == "mean_bounded_slowdown":
        return f"{value:.2f}"
    # A mean over seeds can fall between counts.
    return f"{value:,.0f}" if float(value).is_integer() or value >= 100 else f"{value:.1f}"


def change_in_words(change: RelativeChange) -> str:
    """Return a change with its interval: `-9.1 % (-12.0 to -6.3)`."""
    if math.isnan(change.percent):
        return "not comparable"
    percent = f"{signed(change.percent)} %"
    return percent if math.isnan(change.low) else f"{percent} ({signed(change.low)} to {signed(change.high)})"


def verdict(change: RelativeChange) -> str:
    """Say whether a change shows: `lower`, `higher` or `no clear difference`.

    `no change` where all figures are the same; `no interval` where there is none.
    """
    if change.low == change.percent == change.high == 0.0:
        return "no change"
    if math.isnan(change.low):
        return "no interval"
    if not change.is_clear:
        return "no clear difference"
    return "lower" if change.percent < 0 else "higher"


def basis(change: RelativeChange) -> str:
    """Say what was paired, and what an interval was drawn from."""
    match change.pairing:
        case Pairing.JOBS:
            left_out = f"; {plural(change.left_out, 'job')} finished under one only" if change.left_out else ""
            units = f"{plural(change.pairs, 'job')}, in {plural(change.units, 'block')} by submit time{left_out}"
        case Pairing.SEEDS:
            units = plural(change.units, "seed")
        case Pairing.TRACES:
            units = f"{plural(change.units, 'trace')}, and their seeds"
        case Pairing.NONE:
            return "one figure each"
    return f"{units}: too few for an interval" if change.units < LEAST_UNITS else units


def ends_in_words(ends: Ends, *, seeds: int = 1) -> str:
    """Say how many jobs did not finish, in all over `seeds`, and why; empty if all did."""
    kinds = {
        "killed by the time limit": ends.time_limit,
        "too large for the cluster or refused by a limit": ends.impossible,
        "not ended when the run stopped": ends.not_ended,
    }
    counts = [f"{count} {kind}" for kind, count in kinds.items() if count]
    return ", ".join([*counts, f"in all over {seeds} seeds"] if counts and seeds > 1 else counts)


def signed(percent: float) -> str:
    """Return a number with its sign and one decimal, 0 without a sign."""
    text = f"{percent:+.1f}"
    return "0.0" if text in {"+0.0", "-0.0"} else text
