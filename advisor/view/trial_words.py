"""Says what rollouts found about a plan."""

from collections.abc import Iterator, Mapping
from typing import Final

from advisor.domain.forecast import Interval
from advisor.domain.units import duration
from advisor.planning.plan_trial import PlanTrial, TrialFinding, TriedChange

_SENTENCES: Final[Mapping[TrialFinding, str]] = {
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
        **({} if trial.effect is None else {"completion": change_in_words(trial.effect.completion_s)}),
        **({} if trial.lifts is None else {"lifts": str(trial.lifts)}),
        **({"fault": trial.fault} if trial.fault else {}),
    }


def trial_lines(trial: PlanTrial) -> Iterator[str]:
    """Yield what was found about the lifts and each other change."""
    if trial.lifts is not None:
        found = "" if trial.lifts_s is None else f"{change_in_words(trial.lifts_s)}; "
        yield f"lifts: {found}they {_SENTENCES[trial.lifts]}"
    for change in trial.changes:
        yield f"job {change.job_id}, {change.lever}: {_found(change)}{_SENTENCES[change.finding]}"


def _found(change: TriedChange) -> str:
    if change.alone_s is not None:
        return f"{change_in_words(change.alone_s)}; "
    return "" if change.together_s is None else f"{change_in_words(change.together_s)} with all of its kind; "


def change_in_words(change_s: Interval) -> str:
    """Return a change of a mean time with its interval."""
    low, mean, high = map(signed, (change_s.low, change_s.median, change_s.high))
    return f"{mean} (80 %: {low} to {high})"


def signed(time_s: float) -> str:
    """Return a difference of times with its sign."""
    sign = "-" if time_s < 0.0 else "+"
    # A change of one job among many moves the mean by less than a second.
    return f"{sign}{abs(time_s):.1f} s" if abs(time_s) < 60.0 else f"{sign}{duration(abs(time_s))}"
