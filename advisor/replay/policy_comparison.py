"""Compares two learned policies, or one and the rules: what each plans in recorded cycles, and what comes of it.

Every recorded cycle is planned again with both from the recorded snapshot, forecasts and settings. The guard judges
both plans; neither is tried in rollouts as the daemon tries what it sends, so that nothing but the policy differs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.cycle import CycleRecord
from advisor.domain.actions import Action
from advisor.domain.plan import Recommendation
from advisor.errors import SimulationError
from advisor.features.policy import KnowsSite, Options, Policy, Scores
from advisor.journal.cycle_record import Recorded
from advisor.planning.case import Case
from advisor.planning.plan_trial import scenario
from advisor.planning.rollout import Rollout, mean_completion_s
from advisor.replay.deviations import AsRecorded, cycle_of
from advisor.stats import mean_interval

Stopwatch = Callable[[], float]


class TimedPolicy:
    """A policy, and the seconds that its decisions take."""

    def __init__(self, policy: Policy, stopwatch: Stopwatch) -> None:
        self.name, self.digest, self.levers = policy.name, policy.digest, policy.levers
        self.models = policy.models if isinstance(policy, KnowsSite) else None
        self.seconds = 0.0
        self._policy = policy
        self._stopwatch = stopwatch

    def act(self, options: Options) -> Scores:
        """Ask the policy."""
        began = self._stopwatch()
        try:
            return self._policy.act(options)
        finally:
            self.seconds += self._stopwatch() - began


@dataclass(slots=True)
class PlannedBy:
    """What one side planned over all cycles; savings are sums over its changes, in seconds of all jobs helped."""

    decisions: int = 0
    decision_s: float = 0.0
    plan_s: float = 0.0
    changes: int = 0
    only_here: int = 0
    saved_s_low: float = 0.0
    saved_s_high: float = 0.0
    faults: int = 0
    first_fault: str = ""

    @property
    def s_per_decision(self) -> float | None:
        """The mean time of a decision in seconds; None without any."""
        return self.decision_s / self.decisions if self.decisions else None


@dataclass(slots=True)
class PlanComparison:
    """Two sides over the same recorded cycles; `equal` counts the cycles in which both plan the same."""

    cycles: int = 0
    equal: int = 0
    both: int = 0
    sides: tuple[PlannedBy, PlannedBy] = field(default_factory=lambda: (PlannedBy(), PlannedBy()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPair:
    """The changes that two sides propose for one recorded snapshot, and all else that a rollout needs."""

    case: Case
    plans: tuple[Sequence[Recommendation], Sequence[Recommendation]]

    @property
    def simulated(self) -> tuple[Sequence[Recommendation], Sequence[Recommendation]]:
        """The plans without names of nodes, which the model of slurmctld does not know."""
        first, second = ([change for change in plan if not change.action.reserves_nodes] for plan in self.plans)
        return first, second

    @property
    def is_equal(self) -> bool:
        """Whether both propose the same, but for names of nodes."""
        first, second = (_actions(plan) for plan in self.simulated)
        return first == second

    @property
    def names_differ(self) -> bool:
        """Whether the plans name different nodes."""
        first, second = ({action for action in _actions(plan) if action.reserves_nodes} for plan in self.plans)
        return first != second


class PolicyComparison:
    """Plans recorded cycles with two sides, each a policy or None for the rules, in the order of the cycles."""

    def __init__(self, policies: tuple[Policy | None, Policy | None], stopwatch: Stopwatch) -> None:
        self.found = PlanComparison()
        self._stopwatch = stopwatch
        self._policies = [None if policy is None else TimedPolicy(policy, stopwatch) for policy in policies]

    def plan(self, recorded: Recorded) -> PlanPair:
        """Plan a cycle with both sides and add it to what was found."""
        first, second = (self._planned(recorded, side) for side in (0, 1))
        pair = PlanPair(
            case=Case(snapshot=recorded.snapshot, forecasts=recorded.forecasts.counted, settings=recorded.planning),
            plans=(first.recommendations, second.recommendations),
        )
        ours, theirs = (_actions(plan) for plan in pair.plans)
        found = self.found
        found.cycles += 1
        found.equal += ours == theirs
        found.both += len(ours & theirs)
        found.sides[0].only_here += len(ours - theirs)
        found.sides[1].only_here += len(theirs - ours)
        return pair

    def _planned(self, recorded: Recorded, side: int) -> CycleRecord:
        policy, sums = self._policies[side], self.found.sides[side]
        cycle = replace(cycle_of(recorded), forecaster=AsRecorded(recorded.forecasts), policy=policy)
        began = self._stopwatch()
        record = cycle.judge(recorded.snapshot, recorded.memory)
        sums.plan_s += self._stopwatch() - began
        if policy:
            sums.decision_s = policy.seconds
        sums.decisions += len(record.decisions)
        sums.changes += len(record.recommendations)
        sums.saved_s_low += sum(change.expected.saved_s_low for change in record.recommendations)
        sums.saved_s_high += sum(change.expected.saved_s_high for change in record.recommendations)
        if record.policy_fault:
            sums.faults += 1
            sums.first_fault = sums.first_fault or record.policy_fault
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOut:
    """How the second side changes the mean completion of all jobs against the first, in seconds, below 0 for sooner.

    `low` and `high` bound the 95 % interval of the mean over recorded snapshots, Student's; over the draws where there
    is one snapshot. Snapshots for which both sides plan the same count as 0 without a rollout. `skipped` counts those
    that cannot be simulated, and `named` those for which the sides name different nodes, which is not simulated.
    """

    snapshots: int
    differing: int
    skipped: int
    named: int
    draws: int
    horizon_s: float
    change_s: float
    low: float
    high: float
    left_out: tuple[str, ...]

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0.0 or self.high < 0.0


def rolled_out(
    pairs: Iterable[PlanPair], rollout: Rollout, *, horizon_s: float, draws: int, done: Callable[[], None]
) -> RolledOut:
    """Value both plans of each snapshot under the same draws; raises `SimulationError` if none can be simulated."""
    changes_s: list[NDArray[np.float64]] = []
    left_out: dict[str, None] = {}
    differing = skipped = named = 0
    fault = "no cycle was compared"
    for pair in pairs:
        named += pair.names_differ
        if pair.is_equal:
            changes_s.append(np.zeros(draws))
        else:
            try:
                plans = [scenario(plan) for plan in pair.simulated]
                values = rollout.values(pair.case, plans, horizon_s=horizon_s, draws=draws)
            except SimulationError as err:
                skipped, fault = skipped + 1, str(err)
            else:
                completion_s = mean_completion_s(values)
                changes_s.append(completion_s[1] - completion_s[0])
                left_out |= dict.fromkeys(values.left_out)
                differing += 1
        done()
    if not changes_s:
        raise SimulationError(f"no plan can be rolled out: {fault}")
    by_snapshot = np.array([change_s.mean() for change_s in changes_s])
    _, low, high = mean_interval(by_snapshot if len(by_snapshot) > 1 else changes_s[0])
    return RolledOut(
        snapshots=len(by_snapshot),
        differing=differing,
        skipped=skipped,
        named=named,
        draws=draws,
        horizon_s=horizon_s,
        change_s=float(by_snapshot.mean()),
        low=low,
        high=high,
        left_out=tuple(left_out),
    )


def _actions(plan: Sequence[Recommendation]) -> frozenset[Action]:
    return frozenset(change.action for change in plan)
