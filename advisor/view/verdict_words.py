"""The sentence with which a report opens: what is better, by how much, and at whose cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from advisor.domain.units import duration, plural
from advisor.sim.study.comparison import PairedTally, Results, mean_of
from advisor.sim.study.frontier import Point
from advisor.sim.study.statistics import RelativeChange
from advisor.view.wording import signed

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
        return f"{scope}{best.policy} is the best of {compared}: {_sentence(best, change_in_words('it', best.change))}"
    none = "none" if scope else "None"
    return f"{scope}{none} of {compared} is clearly better: {outcome_in_words(best)}"


def outcome_in_words(outcome: JctOutcome) -> str:
    """Return an outcome as a sentence: the change, its interval, and how many have a longer JCT."""
    return _sentence(outcome, change_in_words(outcome.policy, outcome.change, against=outcome.against))


def change_in_words(subject: str, change: RelativeChange, *, against: str = "") -> str:
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
    return f"{change}; {cost_in_words(outcome)}." if _counted(outcome.jobs) else f"{change}."


def cost_in_words(outcome: JctOutcome) -> str:
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
    change = change_in_words("it", advised.change, against="plain Slurm")
    late = f"{100 * advised.late_jobs / max(1, jobs):.1f} % of the jobs start late"
    worse, users = advised.users_beyond_chance, plural(len(advised.losses), "user")
    name = f"{advised.setting.name} (preset {advised.setting.preset})"
    return (
        f"Of {tried}, {name} is advised: {change}; {late}, and {worse} of {users} with enough jobs lose beyond chance."
    )


def _counted(tally: PairedTally) -> int:
    return tally.lower + tally.higher + tally.same
