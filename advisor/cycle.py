"""One pass from a snapshot to verdicts; the same in the daemon, the command line and the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.domain.forecast import Forecasts
from advisor.domain.limits import Limits
from advisor.domain.plan import Plan, Recommendation, Verdict
from advisor.domain.snapshot import Snapshot
from advisor.guard.rules import circumstances, judge, refusals
from advisor.planning.planner import plan
from advisor.planning.settings import PlanningSettings
from advisor.ports import ClusterSource, Forecaster, NoForecaster


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """All that one cycle saw, proposed and judged.

    `left_alone` maps pending GPU jobs that must not be changed to the rule that says so.
    """

    snapshot: Snapshot
    forecasts: Forecasts
    plan: Plan
    verdicts: tuple[Verdict, ...]
    left_alone: Mapping[int, str]

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        """The recommendations that no rule refused."""
        return tuple(verdict.recommendation for verdict in self.verdicts if verdict.refused_by is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """The pipeline and its settings."""

    planning: PlanningSettings = field(default_factory=PlanningSettings)
    limits: Limits = field(default_factory=Limits)
    forecaster: Forecaster = field(default_factory=NoForecaster)

    def run(self, source: ClusterSource, outstanding: frozenset[int] = frozenset()) -> CycleRecord:
        """Read the cluster and judge a plan for it."""
        return self.judge(source.snapshot(), outstanding)

    def judge(self, snapshot: Snapshot, outstanding: frozenset[int] = frozenset()) -> CycleRecord:
        """Plan and judge a snapshot at hand; `outstanding` names the jobs with a change under way."""
        around = circumstances(snapshot, self.limits, outstanding)
        left_alone = refusals(snapshot, around)
        forecasts = self.forecaster.forecasts(snapshot)
        proposed = plan(snapshot, self.planning, self.limits, untouchable=frozenset(left_alone), forecasts=forecasts)
        return CycleRecord(
            snapshot=snapshot,
            forecasts=forecasts,
            plan=proposed,
            verdicts=judge(proposed, snapshot, around),
            left_alone=left_alone,
        )
