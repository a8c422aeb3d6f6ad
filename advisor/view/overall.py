"""What changes cost others, what several of them come to, and what rollouts found about a plan."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.domain.plan import Recommendation
from advisor.domain.units import duration, gain, plural
from advisor.planning.compensation import DelayedByAdvice
from advisor.planning.exchange import GivesPlace
from advisor.planning.lift import StartsNext
from advisor.planning.plan_trial import PlanTrial, TrialFinding, TriedChange
from advisor.planning.soft_limit import RunsShorterThanLimit
from advisor.view.table_layout import TableForm

# One line per change; what is named in `omissible` leaves a narrow terminal, the first first.
COLUMNS: Final = (
    "job", "kind", "user", "name", "change", "saves", "others wait", "account", "partition", "reason", "command",
)  # fmt: skip
FORM: Final = TableForm(
    whole=frozenset({"saves", "others wait", "kind", "reason", "command"}),
    narrowest={"name": 6, "change": 16},
    omissible=("command", "reason", "partition", "account", "user"),
    last_resort=("name", "kind"),
    names_omitted=False,
)
# The jobs that these delay are not counted one by one.
_UNCOUNTED: Final = (DelayedByAdvice, RunsShorterThanLimit)


@dataclass(frozen=True, slots=True, kw_only=True)
class OthersDocument:
    """How many other jobs a change delays, and each by how much at worst; None where that is not known."""

    jobs: int | None
    delay_s_max: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What changes come to together: the time they save, the jobs that wait longer, and the longest such delay.

    `is_complete` is False where a change delays jobs that cannot be counted.
    """

    changes: int
    saved_s: float
    saved_s_low: float
    saved_s_high: float
    jobs_delayed: int
    delay_s_max: float
    is_complete: bool


def cost_to_others(change: Recommendation) -> OthersDocument:
    """Return what a change costs other jobs; of an exchange, the half that gives its place has the cost."""
    match change.facts:
        case StartsNext() as facts:
            return OthersDocument(jobs=facts.jobs_passed, delay_s_max=facts.others_delayed_s_max)
        case DelayedByAdvice() as facts:
            return OthersDocument(jobs=facts.jobs_passed, delay_s_max=None)
        case GivesPlace() as facts:
            return OthersDocument(jobs=1, delay_s_max=-facts.sooner_s_low)
        case RunsShorterThanLimit() as facts:
            return OthersDocument(jobs=None, delay_s_max=facts.others_delayed_s_max)
        case _:
            return OthersDocument(jobs=0, delay_s_max=0.0)


def total(changes: Sequence[Recommendation]) -> Total:
    """Return what changes come to; a job that several of them pass waits for all of these."""
    changed = {change.job_id for change in changes}
    delay_s: defaultdict[int, float] = defaultdict(float)
    for change in changes:
        for job_id, longer_s in _delays(change):
            delay_s[job_id] += longer_s
    delayed = {job_id: longer_s for job_id, longer_s in delay_s.items() if job_id not in changed}
    delayed |= {change.job_id: -change.facts.sooner_s_low for change in changes if isinstance(change.facts, GivesPlace)}
    return Total(
        changes=len(changes),
        saved_s=sum(change.expected.saved_s for change in changes),
        saved_s_low=sum(change.expected.saved_s_low for change in changes),
        saved_s_high=sum(change.expected.saved_s_high for change in changes),
        jobs_delayed=len(delayed),
        delay_s_max=max(delayed.values(), default=0.0),
        is_complete=not any(isinstance(change.facts, _UNCOUNTED) for change in changes),
    )


def _delays(change: Recommendation) -> Iterable[tuple[int, float]]:
    """Yield the jobs that a change passes, each with the longest time that it waits for that."""
    if isinstance(change.facts, StartsNext):
        yield from ((job_id, change.facts.others_delayed_s_max) for job_id in change.facts.passed)


def total_sentence(total: Total, *, left_out: int = 0) -> str:
    """Return the line under the changes; `left_out` is how many more there are."""
    changes = f"{total.changes} of {total.changes + left_out} changes" if left_out else plural(total.changes, "change")
    # What makes up for a wait can cost more than it saves.
    saves = total.saved_s >= 0.0
    saved = (total.saved_s, total.saved_s_low, total.saved_s_high)
    amount = gain(*saved) if saves else gain(-total.saved_s, -total.saved_s_high, -total.saved_s_low)
    verb = f"{'save' if saves else 'cost'}{'s' if total.changes == 1 else ''}"
    return f"{changes} {verb} {amount} of job completion time; {_delayed_words(total)}"


def _delayed_words(total: Total) -> str:
    others = "" if total.is_complete else "at least "
    if not total.jobs_delayed:
        return "no other job waits longer" if total.is_complete else "other jobs can wait longer"
    jobs = f"{plural(total.jobs_delayed, 'job')} {'waits' if total.jobs_delayed == 1 else 'wait'}"
    return f"{others}{jobs} up to {duration(total.delay_s_max)} longer"


def cost_in_words(jobs: int | None, delay_s_max: float | None) -> str:
    """Return what a change costs others, in a few words: `2 jobs, 40 min`."""
    if jobs == 0:
        return "none"
    who = "some" if jobs is None else plural(jobs, "job")
    return who if delay_s_max is None else f"{who}, {duration(delay_s_max)}"


def change_in_short(before: str, after: str) -> str:
    """Return a change without the words that both sides share, and without a side that is nothing.

    `nice 0 -> -50`, `8 -> 4 v100`, `1 leaf switch for up to 30 min`.
    """
    if before.startswith("no "):
        return after
    parts = [(old.split(), new.split()) for old, new in zip(before.split(", "), after.split(", "), strict=False)]
    if before.count(", ") != after.count(", ") or any(len(old) != len(new) for old, new in parts):
        return f"{before} -> {after}"
    return ", ".join(_between(old, new) for old, new in parts).removeprefix("per job ")


def _between(before: Sequence[str], after: Sequence[str]) -> str:
    """Return two values of as many words, with an arrow where they differ and the words around it once."""
    differ = [index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if not differ:
        return " ".join(before)
    first, last = differ[0], differ[-1] + 1
    return " ".join([*before[:first], *before[first:last], "->", *after[first:last], *after[last:]])


_FINDINGS: Final[Mapping[TrialFinding, str]] = {
    TrialFinding.GAINS: "goes out: it gains",
    TrialFinding.GAINS_TOGETHER: "goes out: it gains together with the other changes of its kind",
    TrialFinding.NO_CLEAR_LOSS: "go out: no clear loss",
    TrialFinding.CLEAR_LOSS: "do not go out: they clearly lose",
    TrialFinding.NO_CLEAR_GAIN: "does not go out: no clear gain",
    TrialFinding.NOT_CONFIRMED: "does not go out: under other draws there was no clear gain",
    TrialFinding.NOT_TRIED: "does not go out: no rollout could be afforded",
}


def trial_fields(trial: PlanTrial) -> Mapping[str, str | int]:
    """Return a trial as fields of an event."""
    return {
        "tried": sum(change.finding is not TrialFinding.NOT_TRIED for change in trial.changes),
        "refused": sum(change.finding.refused_by is not None for change in trial.changes),
        **({} if trial.effect is None else {"completion": mean_change_in_words(trial.effect.completion_s)}),
        **({} if trial.lifts is None else {"lifts": str(trial.lifts)}),
        **({"fault": trial.fault} if trial.fault else {}),
    }


def trial_lines(trial: PlanTrial) -> Iterator[str]:
    """Yield what was found about the lifts and each other change."""
    if trial.lifts is not None:
        found = "" if trial.lifts_s is None else f"{mean_change_in_words(trial.lifts_s)}; "
        yield f"lifts: {found}they {_FINDINGS[trial.lifts]}"
    for change in trial.changes:
        yield f"job {change.job_id}, {change.lever}: {_found(change)}{_FINDINGS[change.finding]}"


def _found(change: TriedChange) -> str:
    if change.alone_s is not None:
        return f"{mean_change_in_words(change.alone_s)}; "
    return "" if change.together_s is None else f"{mean_change_in_words(change.together_s)} with all of its kind; "


def mean_change_in_words(change_s: Interval) -> str:
    """Return a change of a mean time with its interval."""
    low, mean, high = map(signed, (change_s.low, change_s.median, change_s.high))
    return f"{mean} (80 %: {low} to {high})"


def signed(time_s: float) -> str:
    """Return a difference of times with its sign."""
    sign = "-" if time_s < 0.0 else "+"
    # A change of one job among many moves the mean by less than a second.
    return f"{sign}{abs(time_s):.1f} s" if abs(time_s) < 60.0 else f"{sign}{duration(abs(time_s))}"
