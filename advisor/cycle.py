"""One pass from a snapshot to judged recommendations; the same in the daemon, the command line and the simulator."""

from collections.abc import Collection, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Protocol

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.memory import NOTHING_KNOWN, Journal, Memory
from advisor.domain.mode import EVERYTHING, Modes
from advisor.domain.plan import Permits, Recommendation
from advisor.domain.probation import Trust
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import WINDOW_S
from advisor.features.policy import Decider, Policy, ScoredDecision, models_of
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge, permitted
from advisor.planning.case import EVERY_LEVER, Case
from advisor.planning.counterfactual import Watched, watched, with_planned_starts
from advisor.planning.line import LINE, Proposer, plan
from advisor.planning.objective import overdue_jobs
from advisor.planning.plan_trial import NO_TRIAL, PlanTrial, Trial, is_tried, refused_by_trial
from advisor.planning.tuning import MEMORIES
from advisor.settings import Limits, PlanningSettings

if TYPE_CHECKING:
    from advisor.features.observe.known_models import KnownModels


class ClusterSource(Protocol):
    """Where snapshots come from; `backends.sources` opens one by name.

    Raises `SlurmError`, `DecodeError` or `SnapshotFileError`; never returns half a snapshot as a whole one.
    """

    @property
    def name(self) -> str:
        """The reader's name: text, json, pyslurm, file or demo."""

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""


class Forecaster(Protocol):
    """What says how long jobs run, how fast, and when they start."""

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast the GPU jobs of a snapshot; what is not known is absent, a broken model is a note, not an error."""


class StartForecaster(Forecaster, Protocol):
    """A forecaster that can also forecast starts afterwards, which plans do not use."""

    def with_starts(self, forecasts: Forecasts, snapshot: Snapshot, job_ids: Collection[int]) -> Forecasts:
        """Return the forecasts of some jobs, with their starts; other jobs can be absent."""


class NoForecaster:
    """Knows nothing, so that the planner goes by its rules."""

    def forecasts(self, snapshot: Snapshot) -> Forecasts:  # noqa: ARG002  (the protocol's)
        """Return no forecasts."""
        return NO_FORECASTS

    def with_starts(
        self,
        forecasts: Forecasts,
        snapshot: Snapshot,  # noqa: ARG002  (the protocol's)
        job_ids: Collection[int],  # noqa: ARG002  (the protocol's)
    ) -> Forecasts:
        """Add nothing."""
        return forecasts


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """All that one cycle saw, proposed and judged; the plan rests on `forecasts.counted`.

    `memory` is what earlier ones left. `left_alone` maps pending GPU jobs that must not be changed to the rule that
    says so. `watched` are the changed jobs that still wait. `decisions` is what a learned policy scored, and
    `policy_fault` why the rules decided in its place from some point on, "" where they did not. `trial` is what
    rollouts found about the changes that no rule of the guard refused.
    `case` holds what the plan was made from, None in a record that was read from a journal.
    """

    snapshot: Snapshot
    memory: Memory = NOTHING_KNOWN
    forecasts: Forecasts
    judged: tuple[Recommendation, ...]
    left_alone: Mapping[int, str]
    watched: tuple[Watched, ...] = ()
    decisions: tuple[ScoredDecision, ...] = ()
    policy_fault: str = ""
    trial: PlanTrial = NO_TRIAL
    case: Case | None = field(default=None, compare=False, repr=False)

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """The recommendations that no rule refused."""
        return tuple(change for change in self.judged if change.refused_by is None)

    def case_with(self, planning: PlanningSettings, limits: Limits) -> Case:
        """Return what the plan was made from; made again with some settings where it was not kept."""
        return self.case or Case(
            snapshot=self.snapshot,
            settings=planning,
            limits=limits,
            forecasts=self.forecasts.counted,
            memory=self.memory,
            permits=Permits(left_alone=self.left_alone),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The pipeline and its settings; it plans with the levers in `levers` alone, and not for jobs only observed.

    Without a `policy` the rules decide; `models` are the models of jobs, such as bert, whose
    interference it sees. Without a `trial` all
    changes go out that the guard accepts. With `asked`, delay timers of other jobs can be missing from the plan.
    """

    planning: PlanningSettings = field(default_factory=PlanningSettings)
    limits: Limits = field(default_factory=Limits)
    forecaster: Forecaster = field(default_factory=NoForecaster)
    levers: frozenset[Lever] = EVERY_LEVER
    modes: Modes = EVERYTHING
    line: tuple[Proposer, ...] = LINE
    policy: Policy | None = None
    trial: Trial | None = None
    models: "KnownModels | None" = None
    asked: frozenset[int] | None = None

    def memory(self, journal: Journal, snapshot: Snapshot) -> Memory:
        """Return what a journal holds that a plan for a snapshot depends on; raises what the journal raises."""
        jobs = frozenset(job.job_id for job in snapshot.pending)
        ended = journal.closed(jobs, since=snapshot.taken_at - self.limits.fairness_window_s)
        return Memory(
            leases=(*ended, *journal.leases()),
            waits=journal.waits(snapshot.taken_at - MEMORIES * self.planning.timer_memory_s),
            trust=journal.trust(),
            standings=journal.standings(snapshot.taken_at - WINDOW_S),
        )

    def _fault_of_settings(self) -> str:
        """Return why the policy can choose nothing under the settings; "" where it can."""
        if self.policy is None or self.planning.name_nodes or self.policy.levers != {Lever.NODE_LIST}:
            return ""
        return f"policy {self.policy.name} chooses nodes for gangs alone, and planning.name_nodes is off"

    def judge(self, snapshot: Snapshot, memory: Memory = NOTHING_KNOWN) -> CycleRecord:
        """Plan for a snapshot with what earlier cycles left, and judge the plan."""
        forecasts = self._marked(self.forecaster.forecasts(snapshot), memory.trust)
        context = circumstances(
            snapshot,
            self.limits,
            memory.outstanding,
            names_nodes=self.planning.name_nodes and Lever.NODE_LIST in self.levers,
            leases=memory.leases,
            modes=self.modes,
            lifted=memory.lifted,
            overdue=overdue_jobs(snapshot, memory.standings, self.limits),
        )
        permits = permitted(snapshot, context)
        decider = Decider(policy=self.policy)
        case = Case(
            snapshot=snapshot,
            settings=self.planning,
            limits=self.limits,
            forecasts=forecasts.counted,
            memory=memory,
            permits=permits,
            levers=self.levers,
            decider=decider,
            models=models_of(self.policy, self.models),
            asked=self.asked,
        )
        seen = watched(case)
        judged = judge(with_planned_starts(plan(case, self.line), case), snapshot, context)
        trial = NO_TRIAL if self.trial is None or not any(map(is_tried, judged)) else self.trial.tried(case, judged)
        return CycleRecord(
            snapshot=snapshot,
            memory=memory,
            forecasts=forecasts,
            judged=judged if trial is NO_TRIAL else refused_by_trial(judged, trial),
            left_alone=permits.left_alone,
            watched=seen,
            decisions=tuple(decider.decisions),
            policy_fault=decider.fault or self._fault_of_settings(),
            trial=trial,
            case=case,
        )

    def _marked(self, forecasts: Forecasts, trust: Trust | None) -> Forecasts:
        """Return forecasts of which those models are on probation that drifted, or that still have to prove themselves.

        A model that drifted is on probation also where it did not have to prove itself before.
        """
        unproven = forecasts.on_probation if self.limits.probation_jobs > 0 else ()
        left = tuple(
            model
            for model in forecasts.models
            if trust is not None and (model in trust.drifted or (model in unproven and model not in trust.proven))
        )
        return forecasts if left == forecasts.on_probation else replace(forecasts, on_probation=left)
