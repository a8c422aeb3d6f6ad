"""Prints what rollouts found about a plan."""

from advisor.config import Config
from advisor.cycle import CycleRecord
from advisor.domain.units import duration
from advisor.planning.case import Case
from advisor.planning.plan_trial import PlanTrial
from advisor.planning.rollout import PlanEffect
from advisor.view.terminal import print_labelled
from advisor.view.trial_words import change_in_words, trial_lines


def trial_of(record: CycleRecord, config: Config) -> PlanTrial:
    """Return the trial of a plan; one that was not tried, as lifts alone are not, is tried now, without a deadline."""
    from advisor.sim.live.rollout_trial import RolloutTrial

    if record.trial.effect is not None:
        return record.trial
    case = Case(snapshot=record.snapshot, forecasts=record.forecasts.counted, settings=config.planning)
    return RolloutTrial().tried(case, record.judged)


def print_trial(trial: PlanTrial) -> None:
    """Print what a plan changes for all jobs together, each change alone, and what the simulation leaves out."""
    if trial.effect is not None:
        _print_effect(trial.effect)
    if trial.fault:
        print_labelled("rollout", trial.fault, width=9)
    for line in trial_lines(trial):
        print_labelled("tried", line, width=9)
    for sentence in trial.effect.left_out if trial.effect is not None else ():
        print_labelled("not in it", sentence, width=11)


def _print_effect(effect: PlanEffect) -> None:
    verdict = "" if effect.gains else "; not a clear gain"
    print_labelled(
        "rollout",
        f"all that goes out together, simulated for {duration(effect.horizon_s)} under {effect.draws} draws: mean "
        f"completion of {effect.jobs} jobs {change_in_words(effect.completion_s)}, mean wait of {effect.waiting} "
        f"waiting ones {change_in_words(effect.wait_s)}; {effect.sooner} start sooner, {effect.later} later{verdict}",
        width=9,
    )
