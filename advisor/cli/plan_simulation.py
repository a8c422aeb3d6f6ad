"""Simulates a plan as a whole, and prints what it changes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.cycle import CycleRecord
    from advisor.domain.forecast import Interval
    from advisor.planning.plan_effect import PlanEffect

HORIZON_S = 86400.0
DRAWS = 32


def simulated_effect(record: "CycleRecord") -> "PlanEffect":
    """Roll a plan out; raises `SimulationError` for a snapshot without anything to simulate."""
    from typing import get_args

    from advisor.planning.case import Case
    from advisor.planning.plan_effect import effect_of
    from advisor.planning.rollout import TimedAction
    from advisor.sim.job_update import Modelled
    from advisor.sim.slurm_rollout import SlurmRollout

    case = Case(snapshot=record.snapshot, forecasts=record.forecasts)
    actions = [change.action for change in record.recommendations if isinstance(change.action, get_args(Modelled))]
    plans = [[], [TimedAction(action=action) for action in actions]]
    return effect_of(SlurmRollout().values(case, plans, horizon_s=HORIZON_S, draws=DRAWS))


def print_effect(effect: "PlanEffect") -> None:
    """Print what a plan changes for all jobs together, and what the simulation leaves out."""
    from advisor.domain.units import duration
    from advisor.view.terminal import print_labelled

    verdict = "" if effect.gains else "; not a clear gain"
    print_labelled(
        "rollout",
        f"all changes together, simulated for {duration(effect.horizon_s)}: mean completion of {effect.jobs} jobs "
        f"{_change(effect.completion_s, effect.draws)}, mean wait of {effect.waiting} waiting ones "
        f"{_change(effect.wait_s, effect.draws)}; {effect.sooner} start sooner, {effect.later} later{verdict}",
        width=9,
    )
    for sentence in effect.left_out:
        print_labelled("not in it", sentence, width=11)


def _change(interval: "Interval", draws: int) -> str:
    from advisor.domain.units import duration

    low, median, high = (
        f"{'-' if end < 0 else '+'}{duration(abs(end))}" for end in (interval.low, interval.median, interval.high)
    )
    return f"{median} (80 % of {draws} draws: {low} to {high})"
