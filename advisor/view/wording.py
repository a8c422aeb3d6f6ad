"""Metrics and changes as people read them, and the sentence with which a report opens."""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.units import duration, plural
from advisor.sim.study.comparison import PairedTally, Results, mean_of
from advisor.sim.study.frontier import Point
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
        "cancelled to make room for others": ends.preempted,
    }
    counts = [f"{count} {kind}" for kind, count in kinds.items() if count]
    return ", ".join([*counts, f"in all over {seeds} seeds"] if counts and seeds > 1 else counts)


def signed(percent: float) -> str:
    """Return a number with its sign and one decimal, 0 without a sign."""
    text = f"{percent:+.1f}"
    return "0.0" if text in {"+0.0", "-0.0"} else text


JCT_EXPLAINED: Final = (
    "JCT is the job completion time: the time from the submission of a job to its end, in the queue and running. "
    "Lower is better."
)


class Tone(StrEnum):
    """How a change of something that is better when lower reads, and the class of its colour."""

    BETTER = "better"
    WORSE = "worse"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class JctOutcome:
    """What a policy does to the mean JCT, and to the JCT of jobs and users; `users` is None where none are named."""

    policy: str
    against: str
    change: RelativeChange
    jobs: PairedTally
    users: PairedTally | None


def tone_of(change: RelativeChange) -> Tone:
    """Return how a change reads; unclear where its interval holds 0 or there is none."""
    if not change.is_clear:
        return Tone.UNCLEAR
    return Tone.BETTER if change.percent < 0 else Tone.WORSE


def best_first(outcomes: Sequence[JctOutcome]) -> list[JctOutcome]:
    """Return the outcomes, first those that are clearly better, then by their change."""

    def rank(outcome: JctOutcome) -> tuple[bool, float]:
        percent = outcome.change.percent
        return tone_of(outcome.change) is not Tone.BETTER, math.inf if math.isnan(percent) else percent

    return sorted(outcomes, key=rank)


def lead(outcomes: Sequence[JctOutcome], *, traces: int) -> str:
    """Return the sentence on the best of the outcomes, which were compared on some traces."""
    best, count = best_first(outcomes)[0], len(outcomes)
    scope = f"Over {plural(traces, 'trace')}, " if traces > 1 else ""
    if count == 1:
        return scope + outcome_in_words(best)
    compared = f"{count} policies compared with {best.against}"
    if tone_of(best.change) is Tone.BETTER:
        return (
            f"{scope}{best.policy} is the best of {compared}: {_sentence(best, jct_change_in_words('it', best.change))}"
        )
    none = "none" if scope else "None"
    return f"{scope}{none} of {compared} is clearly better: {outcome_in_words(best)}"


def outcome_in_words(outcome: JctOutcome) -> str:
    """Return an outcome as a sentence: the change, its interval, and how many have a longer JCT."""
    return _sentence(outcome, jct_change_in_words(outcome.policy, outcome.change, against=outcome.against))


def jct_change_in_words(subject: str, change: RelativeChange, *, against: str = "") -> str:
    """Return a change of the mean JCT as a sentence without its full stop."""
    compared = f" against {against}" if against else ""
    if math.isnan(change.percent):
        return f"{subject} cannot be compared{compared}: no job finished under both"
    size = f"{abs(change.percent):.1f} %"
    verb = "lowers" if change.percent < 0 else "raises"
    if math.isnan(change.low):
        return f"{subject} {verb} the mean JCT by {size}{compared}, on too little data for an interval"
    if not change.is_clear:
        interval = f"{signed(change.low)} to {signed(change.high)} %"
        return (
            f"{subject} makes no clear difference{compared}: "
            f"the mean JCT changes by {signed(change.percent)} % (95 % interval {interval})"
        )
    low, high = sorted((abs(change.low), abs(change.high)))
    return f"{subject} {verb} the mean JCT by {size}{compared} (95 % interval {low:.1f} to {high:.1f} %)"


def _sentence(outcome: JctOutcome, change: str) -> str:
    return f"{change}; {jct_cost_in_words(outcome)}." if _counted(outcome.jobs) else f"{change}."


def jct_cost_in_words(outcome: JctOutcome) -> str:
    """Return how many jobs and users have a longer JCT."""
    jobs = f"{100 * outcome.jobs.higher / _counted(outcome.jobs):.0f} % of the jobs"
    users = (
        "" if outcome.users is None else f" and for {outcome.users.higher} of {plural(_counted(outcome.users), 'user')}"
    )
    return f"JCT is longer for {jobs}{users}"


def figures_in_words(policy: str, results: Results) -> str:
    """Return what a policy alone came to, as a sentence."""
    jct, delay, median = (mean_of(metric, results) for metric in ("mean_jct_s", "mean_queueing_delay_s", "p50_jct_s"))
    if math.isnan(jct):
        return f"Under {policy} no job finished."
    return (
        f"Under {policy} the mean JCT is {duration(jct)}, and half of the jobs have {duration(median)} or less; "
        f"the mean queueing delay is {duration(delay)}."
    )


def frontier_lead(advised: Point | None, *, settings: int, jobs: int) -> str:
    """Return the sentence on the setting that is advised of all; None where none is."""
    tried = plural(settings, "setting")
    if advised is None:
        return f"Of {tried}, no preset lowers the mean JCT clearly: leave Slurm as it is."
    change = jct_change_in_words("it", advised.change, against="plain Slurm")
    late = f"{100 * advised.late_jobs / max(1, jobs):.1f} % of the jobs start late"
    worse, users = advised.users_beyond_chance, plural(len(advised.losses), "user")
    name = f"{advised.setting.name} (preset {advised.setting.preset})"
    return (
        f"Of {tried}, {name} is advised: {change}; {late}, and {worse} of {users} with enough jobs lose beyond chance."
    )


def _counted(tally: PairedTally) -> int:
    return tally.lower + tally.higher + tally.same
