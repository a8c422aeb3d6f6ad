"""Slurm with this advisor: the live cycle reads the simulated Slurm, and what it recommends is applied."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np

from advisor.apply.applier import Applier
from advisor.cycle import Cycle, Forecaster, NoForecaster
from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.features.observe.known_models import KnownModels
from advisor.features.policy import Policy
from advisor.planning.case import EVERY_LEVER
from advisor.planning.observing import observed
from advisor.planning.plan_trial import KeptTrials, Trial, TrialSize
from advisor.predict.interference import InterferenceForecaster, models_known_to
from advisor.predict.library import Library
from advisor.predict.served_policy import open_policy
from advisor.sim.live.rollout_trial import RolloutTrial
from advisor.sim.policies.known_forecaster import KnownForecaster
from advisor.sim.policies.learning import NOWHERE, LearningForecaster, opened
from advisor.sim.policies.slurm import hold_to_fewest
from advisor.sim.queueing import PAUSED
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.slurm.job_update import with_room_for_lists
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import pick_now, run_slurm
from advisor.sim.state import State

MakeForecaster = Callable[[Problem, SimulatedSlurm], Forecaster]

# How far the forecasts of `forecast-noisy` are off, unless `--speeds noisy=X` gives another share.
NOISE_RATIO: Final = 0.3


def few_rollouts() -> Trial:
    """Return what tries plans as the daemon does, with fewer plans and draws."""
    return KeptTrials(trial=RolloutTrial(size=TrialSize(plans=5, draws=6), places=20, threads=1))


@cache
def shipped_policy(name: str) -> Policy:
    """Open a rule, or a policy that ships, by its name."""
    return open_policy(Library(NOWHERE), name)


@cache
def shipped_neighbours() -> KnownModels:
    """Return the models that the shipped model of interference knows, with what they add to each other."""
    return models_known_to(InterferenceForecaster.from_bundle(opened("interference")))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvisedSlurm:
    """The model of slurmctld with the advisor's cycle every `advise_every_s`, using `levers` alone.

    Nothing is read while no job is pending. With a `policy` that chooses nodes, the advisor names nodes. With `pins`,
    gangs that leave their node count open are held to the fewest nodes, as in `SlurmPolicy`, until it takes that back.
    """

    name: str
    summary: str
    forecaster: MakeForecaster
    levers: frozenset[Lever] = EVERY_LEVER
    policy: Callable[[], Policy | None] = lambda: None
    trial: Callable[[], Trial | None] = lambda: None
    pins: bool = False

    def run(self, problem: Problem) -> State:
        """Run the compiled loop from cycle to cycle."""
        applier, cluster = self.advisor(problem)
        every_s = problem.options.advise_every_s
        return drive(problem, cluster.state, lambda state, until: follow(applier, cluster, state, until, every_s))

    def advisor(self, problem: Problem) -> tuple[Applier, SimulatedSlurm]:
        """Set up the simulated Slurm before the first submission, and what advises it."""
        policy, planning = self.policy(), problem.options.planning
        names_nodes = policy is not None and Lever.NODE_LIST in policy.levers
        state = with_room_for_lists(problem.state) if names_nodes else problem.state
        if self.pins:
            hold_to_fewest(state)
        slurm = build_slurm(state, problem.trace, problem.cluster)
        cluster = SimulatedSlurm(problem.trace, problem.cluster, state, slurm, pins=self.pins)
        leave_out(state, lambda row: pick_now(state, slurm, row, np.inf))
        cycle = Cycle(
            planning=replace(planning, name_nodes=True) if names_nodes else planning,
            limits=problem.options.limits,
            forecaster=self.forecaster(problem, cluster),
            levers=self.levers,
            policy=policy,
            trial=self.trial(),
            models=shipped_neighbours() if names_nodes else None,
        )
        return Applier(source=cluster, actuator=cluster, cycle=cycle, observe=observed), cluster


def follow(applier: Applier, cluster: SimulatedSlurm, state: State, until: float, every_s: float) -> int:
    """Run the compiled loop up to an instant, with a cycle every `every_s`; what is due is taken back on time."""
    cluster.state = state
    while True:
        now = state.tally["now"][0]
        cycle_time = (now // every_s + 1.0) * every_s
        due = (lease.due_time for lease in applier.journal.leases() if lease.due_time is not None)
        following = min((instant for instant in due if instant > now), default=cycle_time)
        following = min(following, cycle_time)
        stopped = run_slurm(state, cluster.slurm, min(until, following))
        if stopped != PAUSED or until < following:
            return stopped
        if following < cycle_time:
            applier.reconcile(cluster.snapshot())
        else:
            advise(applier, cluster)


def advise(applier: Applier, cluster: SimulatedSlurm) -> None:
    """Run one cycle; while no job is pending, no change is in effect either."""
    if cluster.state.tally["pending"][0]:
        applier.step()
    elif applier.journal.leases():
        applier.reconcile(cluster.snapshot())


def no_forecasts(_problem: Problem, _cluster: SimulatedSlurm) -> Forecaster:
    """Return the forecaster without forecasts, under which the planner goes by its rules."""
    return NoForecaster()


def shipped_models(_problem: Problem, cluster: SimulatedSlurm) -> Forecaster:
    """Return the models that ship, which learn from the jobs that end."""
    return LearningForecaster(cluster)


def truth(problem: Problem, cluster: SimulatedSlurm) -> Forecaster:
    """Return a forecaster that is always right."""
    return KnownForecaster(cluster, 0.0, problem.rng)


def truth_with_noise(problem: Problem, cluster: SimulatedSlurm) -> Forecaster:
    """Return a forecaster that is off by the share of `--speeds noisy=X`, or by 30 %."""
    return KnownForecaster(cluster, problem.options.noise or NOISE_RATIO, problem.rng)


def as_believed(problem: Problem, cluster: SimulatedSlurm) -> Forecaster:
    """Return the forecaster of `--speeds`: the truth, the truth within a share, or no forecasts."""
    noise = problem.options.noise
    return NoForecaster() if noise is None else KnownForecaster(cluster, noise, problem.rng)
