"""Slurm with this advisor's lifts alone, on the arrays of a simulation: the same choices as on snapshots, and fast.

`lift` is one policy with options, such as `lift:run-times=truth,fairness=user`; what is asked for often has a name.
What sites set without the daemon, `pin` and parameters of slurm.conf, are options of `slurm` as well.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final, Literal, get_args

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S, duration
from advisor.errors import SimulationError
from advisor.settings import Fairness
from advisor.sim.policies.at_submission import AtSubmission
from advisor.sim.policies.learning import LearnedRunTimes
from advisor.sim.policies.mover import KnownRunTimes, Mover, RunTimes
from advisor.sim.policies.slurm import Run, SlurmPolicy, left_alone
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_state import Slurm

Known = Literal["limits", "forecast", "truth"]
LIFT: Final = "lift"
PLAIN: Final = "slurm"


def by_limits(problem: Problem, _slurm: Slurm) -> RunTimes:
    """Return the run times that are expected without forecasts: a share of the time limits."""
    return KnownRunTimes(problem.state.jobs["limit_s"] * problem.options.planning.used_limit_ratio_low)


def by_run_times(problem: Problem, _slurm: Slurm) -> RunTimes:
    """Return the true run times, as far as the time limits let jobs run."""
    return KnownRunTimes(np.minimum(problem.state.jobs["work_s"], problem.state.jobs["limit_s"]))


RUN_TIMES: Final[Mapping[Known, Callable[[Problem, Slurm], RunTimes]]] = {
    "limits": by_limits,
    "forecast": LearnedRunTimes,
    "truth": by_run_times,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """The options of `lift`: which run times are known, whose jobs change places, and the share of interactive jobs.

    Without a `fairness` or a share, in percent, it is that of the settings.
    """

    run_times: Known = "limits"
    fairness: Fairness | None = None
    interactive: float | None = None

    def __call__(self, problem: Problem, slurm: Slurm) -> Run:
        """Return the loop of a run."""
        limits = problem.options.limits
        if self.fairness is not None:
            limits = replace(limits, fairness=self.fairness)
        if self.interactive is not None:
            limits = replace(limits, interactive_ratio=self.interactive / 100.0)
        problem = replace(problem, options=replace(problem.options, limits=limits))
        mover = Mover(problem, slurm, RUN_TIMES[self.run_times](problem, slurm))
        run = partial(mover.run, problem.options.advise_every_s)
        return partial(AtSubmission(problem, mover).run, run) if limits.interactive_ratio > 0.0 else run


_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "run-times": get_args(Known),
    "fairness": get_args(Fairness),
}
# What a site sets in its submit script, and in slurm.conf: fields of `SlurmParameters`; with lifts or without.
_PINS: Final[Mapping[str, tuple[str, ...]]] = {"pin": ("yes", "no")}
_TIMES: Final = {"reserve-after": "bf_min_age_reserve_s", "backfill-every": "bf_interval_s"}
_COUNTS: Final = {"reserve-first": "bf_job_part_count_reserve"}
_COUNT: Final = re.compile(r"\d{1,5}")
_PERCENT: Final = re.compile(r"\d{1,2}(\.\d)?|100")
_TIME: Final = re.compile(r"(\d{1,5})([smhd])")
_UNITS_S: Final = {"s": 1.0, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S}


def policy_with(name: str) -> SlurmPolicy:
    """Return the policy `lift:OPTION=VALUE,...`, or `slurm:OPTION=VALUE,...` without lifts.

    Raises `SimulationError` for an unknown option or value.
    """
    base, _, texts = name.partition(":")
    choices = {**(_CHOICES if base == LIFT else {}), **_PINS}
    chosen: dict[str, Any] = {}
    parameters: dict[str, float] = {}
    for text in texts.split(","):
        option, _, value = text.partition("=")
        if option in _TIMES and (time := _TIME.fullmatch(value)):
            parameters[_TIMES[option]] = float(time[1]) * _UNITS_S[time[2]]
        elif option in _COUNTS and _COUNT.fullmatch(value):
            parameters[_COUNTS[option]] = int(value)
        elif base == LIFT and option == "interactive" and _PERCENT.fullmatch(value):
            chosen[option] = float(value)
        elif value in choices.get(option, ()):
            chosen[option.replace("-", "_")] = value
        else:
            known = "; ".join(f"{key} = {', '.join(values)}" for key, values in choices.items())
            known += f"; {', '.join(_TIMES)} = a time such as 31s, 6h, 3d; {', '.join(_COUNTS)} = a number of jobs"
            known += "; interactive = a percentage of the GPUs" if base == LIFT else ""
            raise SimulationError(f"policy {name!r}: {text!r} is no option of {base}: known are {known}")
    pins = chosen.pop("pin", "no") == "yes"
    options = Lift(**chosen)
    words = [f"{key.replace('_', ' ')} {value}" for key, value in asdict(options).items() if value is not None]
    summary = f"lift with {', '.join(words)}" if base == LIFT else "plain Slurm"
    if pins:
        summary += ", open gangs on the fewest nodes"
    for field, number in parameters.items():
        summary += f", {field.removesuffix('_s')} {duration(number) if field in _TIMES.values() else number}"
    return SlurmPolicy(
        name=name,
        summary=summary,
        begin=options if base == LIFT else left_alone,
        pins=pins,
        parameters=parameters,
    )


# What is asked for often.
PRESETS: Final = tuple(
    SlurmPolicy(name=name, summary=summary, begin=options)
    for name, summary, options in (
        (LIFT, "Slurm with this advisor's lifts alone, run times a share of the time limits", Lift()),
        (
            "lift-forecast",
            "lift, run times forecast by the shipped model and the jobs that ended so far",
            Lift(run_times="forecast"),
        ),
        ("lift-oracle", "lift, run times the truth", Lift(run_times="truth")),
        ("lift-site", "lift at fairness site: by size alone", Lift(fairness="site")),
        (
            "lift-site-oracle",
            "lift at fairness site, run times the truth",
            Lift(run_times="truth", fairness="site"),
        ),
        (
            "lift-user",
            "lift at fairness user: short jobs change places with long ones of their user",
            Lift(fairness="user"),
        ),
        (
            "lift-account",
            "lift at fairness account: short jobs change places with long ones of their account",
            Lift(fairness="account"),
        ),
    )
)
PINNED: Final = SlurmPolicy(
    name="lift-pin", summary="lift, with gangs of open node counts on the fewest nodes", begin=Lift(), pins=True
)
