"""Compares two policies on recorded cycles: their plans, what comes of them in rollouts, and the nodes one names."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.cycle import CycleRecord
from advisor.domain.actions import Action, SetNodeList
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.errors import ModelError, SimulationError
from advisor.features.observe.known_models import KnownModels
from advisor.features.policy import KnowsSite, Options, Policy, Scores
from advisor.journal.cycle_record import Recorded
from advisor.planning.case import Case
from advisor.planning.gang_nodes import PlaceSpeeds
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


_Key = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesCompared:
    """How much longer gangs are expected to run on the named nodes than where they started, by the performance model.

    `change` is the geometric mean over `gangs` as a share of the run time, below 0 for shorter; `low` and `high` bound
    its 95 % interval, Student's. `same` of the gangs started on the nodes that the policy names. Not among `gangs` are
    `by_name` gangs, which named nodes as they started, and `unseen` gangs, whose start or nodes are not recorded.
    """

    gangs: int
    same: int
    by_name: int
    unseen: int
    change: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    job: Job
    nodes: tuple[str, ...]
    speeds: PlaceSpeeds


class PlaceComparison:
    """Follows the gangs for which one policy names nodes through recorded cycles, in the order of the cycles."""

    def __init__(self, models: KnownModels) -> None:
        """Take the models that the policy looks at; raises `ModelError` without a performance model among them."""
        if models.speeds is None:
            raise ModelError("places are compared by a performance model, and the policy looks at none")
        self._models, self._speeds = models, models.speeds
        self._waiting: dict[_Key, _Named] = {}
        self._started: set[_Key] = set()
        self._unseen: set[_Key] = set()
        self._changes: list[float] = []
        self._same = self._by_name = 0

    def add(self, case: Case, changes: Iterable[Recommendation]) -> None:
        """Add a recorded cycle, and the changes that the policy proposes in it."""
        jobs = {_key(job): job for job in case.snapshot.jobs}
        for key, named in [*self._waiting.items()]:
            job = jobs.get(key)
            if job is None or not job.is_pending:
                del self._waiting[key]
                self._follow(key, named, job)
        speeds = PlaceSpeeds(case=case, models=self._models, speeds=self._speeds)
        for change in changes:
            if isinstance(change.action, SetNodeList) and change.action.after:
                job = case.snapshot.jobs_by_id[change.job_id]
                key = _key(job)
                if key not in self._started:
                    self._unseen.discard(key)
                    self._waiting[key] = _Named(job=job, nodes=change.action.after, speeds=speeds)

    def result(self) -> PlacesCompared:
        """Return the comparison of all gangs so far."""
        found = PlacesCompared(
            gangs=len(self._changes),
            same=self._same,
            by_name=self._by_name,
            unseen=len(self._unseen) + len(self._waiting),
        )
        return _with_figures(found, self._changes) if self._changes else found

    def _follow(self, key: _Key, named: _Named, job: Job | None) -> None:
        """Take in that a gang does not wait any more, None where it is not shown either."""
        if job is None or job.allocation is None:
            self._unseen.add(key)
            return
        self._started.add(key)
        if job.gang.required_nodes:
            self._by_name += 1
        elif (change := _change(named, job.allocation.nodes)) is None:
            self._unseen.add(key)
        else:
            self._changes.append(change)
            self._same += set(job.allocation.nodes) == set(named.nodes)


def _change(named: _Named, nodes: tuple[str, ...]) -> float | None:
    """Return the logarithm of the run time on the named nodes over that on others, None where a node is not known."""
    here, there = (named.speeds.log_speed(named.job, names) for names in (named.nodes, nodes))
    return None if here is None or there is None else there - here


def _with_figures(found: PlacesCompared, changes: list[float]) -> PlacesCompared:
    values = np.array(changes)
    with_mean = replace(found, change=math.expm1(float(values.mean())))
    if len(values) < 2:
        return with_mean
    _, low, high = mean_interval(values)
    return replace(with_mean, low=math.expm1(low), high=math.expm1(high))


def _key(job: Job) -> _Key:
    return job.job_id, job.submit_time
