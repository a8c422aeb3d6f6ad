"""One pass from a snapshot to verdicts; the same in the daemon, the command line and the simulator."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.domain.forecast import Forecasts
from advisor.domain.lease import Lease
from advisor.domain.limits import Limits
from advisor.domain.mode import EVERYTHING, Modes
from advisor.domain.plan import Lever, Plan, Recommendation, Verdict
from advisor.domain.snapshot import Snapshot
from advisor.domain.waits import Wait
from advisor.guard.circumstances import circumstances, delays_left_s
from advisor.guard.rules import judge, refusals, stoppable
from advisor.planning.planner import EVERY_LEVER, plan
from advisor.planning.settings import PlanningSettings
from advisor.ports import ClusterSource, Forecaster, NoForecaster


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRecord:
    """All that one cycle saw, proposed and judged.

    `outstanding`, `waits` and `leases` are what was remembered of earlier ones. `left_alone` maps pending GPU jobs that
    must not be changed to the rule that says so.
    """

    snapshot: Snapshot
    outstanding: frozenset[int] = frozenset()
    waits: tuple[Wait, ...] = ()
    leases: tuple[Lease, ...] = ()
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
    """The pipeline and its settings; it plans with the levers in `levers` alone, and not for jobs only observed."""

    planning: PlanningSettings = field(default_factory=PlanningSettings)
    limits: Limits = field(default_factory=Limits)
    forecaster: Forecaster = field(default_factory=NoForecaster)
    levers: frozenset[Lever] = EVERY_LEVER
    modes: Modes = EVERYTHING

    def run(
        self,
        source: ClusterSource,
        outstanding: frozenset[int] = frozenset(),
        waits: tuple[Wait, ...] = (),
        leases: tuple[Lease, ...] = (),
    ) -> CycleRecord:
        """Read the cluster and judge a plan for it."""
        return self.judge(source.snapshot(), outstanding, waits, leases)

    def judge(
        self,
        snapshot: Snapshot,
        outstanding: frozenset[int] = frozenset(),
        waits: tuple[Wait, ...] = (),
        leases: tuple[Lease, ...] = (),
    ) -> CycleRecord:
        """Plan and judge a snapshot at hand; `outstanding` names the jobs with a change under way.

        `waits` is what was seen of gangs that waited for closer places, `leases` the changes that are or were out for
        jobs that are pending, or that run if jobs may be stopped, and for any job within the guard's window.
        """
        preempts = self.planning.preempt and Lever.CHECKPOINT_REQUEUE in self.levers
        around = circumstances(snapshot, self.limits, outstanding, preempts=preempts, leases=leases, modes=self.modes)
        left_alone = refusals(snapshot, around)
        forecasts = self.forecaster.forecasts(snapshot)
        proposed = plan(
            snapshot,
            self.planning,
            self.limits,
            untouchable=frozenset(left_alone),
            forecasts=forecasts,
            waits=waits,
            leases=leases,
            levers=self.levers,
            stoppable=stoppable(snapshot, around),
            delay_left_s=delays_left_s(snapshot, around),
        )
        return CycleRecord(
            snapshot=snapshot,
            outstanding=outstanding,
            waits=waits,
            leases=leases,
            forecasts=forecasts,
            plan=proposed,
            verdicts=judge(proposed, snapshot, around),
            left_alone=left_alone,
        )
