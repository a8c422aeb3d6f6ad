"""The facts behind a proposal: a class for each reason, which holds the numbers that its sentence is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from advisor.domain.actions import Reason
from advisor.domain.job import GpuRange
from advisor.domain.topology import LocalityTier

Evidence = str | int | float

# Marks a fact that its sentence needs and that is not published as evidence.
_UNPUBLISHED: Final[Mapping[str, bool]] = {"is_unpublished": True}


class Basis(StrEnum):
    """Where the inflation of a gang on a spread placement comes from."""

    FORECAST = "forecast"
    FORECAST_OVER_NODES = "forecast_over_nodes"
    RULE = "rule"
    RULE_FOR_MORE_NODES = "rule_for_more_nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Facts by name, not rounded; the order of the fields is that of the evidence."""

    @property
    def evidence(self) -> dict[str, Evidence]:
        """Return the facts as published, numbers rounded to a thousandth."""
        return _evidence(self)


def _evidence(facts: _Facts) -> dict[str, Evidence]:
    return {fact.name: _published(getattr(facts, fact.name)) for fact in fields(facts) if not fact.metadata}


def _published(value: Evidence | LocalityTier | None) -> Evidence:
    match value:
        case None:
            return "none"
        case LocalityTier():
            return value.name.lower()
        case float():
            return round(value, 3)
        case int() | str():
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class LongWorkAhead(_Facts):
    """The GPU-time of a job and of the jobs that pass it; `forecast_jobs` of them all have a forecast run time."""

    reason = Reason.LONG_WORK_AHEAD

    gpu_hours_low: float
    gpu_hours: float
    gpu_hours_high: float
    gpu_hours_passing: float
    jobs_passing: int
    priority: int
    priority_after: int
    queueing_delay_s: float
    passing: tuple[int, ...] = field(metadata=_UNPUBLISHED)
    forecast_jobs: int = field(metadata=_UNPUBLISHED)
    used_limit_ratio_low: float = field(metadata=_UNPUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing(_Facts):
    """The sizes of a job that grows or shrinks within the range that it declares; a rule is None where it is forecast.

    It runs `stretch` times as long, and ends within its own limit, None for no limit, if it would have used up to
    `limit_share` of it.
    """

    gpus: int
    gpus_after: int
    expected_wait_s: float
    expected_run_time_change_s: float
    time_limit_s: float
    declared: GpuRange | None = field(metadata=_UNPUBLISHED)
    stretch: float = field(metadata=_UNPUBLISHED)
    own_limit_s: float | None = field(metadata=_UNPUBLISHED)
    limit_share: float = field(metadata=_UNPUBLISHED)
    checkpoint_s: float | None = field(metadata=_UNPUBLISHED)
    scaling_exponent: float | None = field(metadata=_UNPUBLISHED)
    used_limit_ratio_low: float | None = field(metadata=_UNPUBLISHED)

    @property
    def reason(self) -> Reason:
        """The reason by whether the job shrinks."""
        return Reason.SMALLER_STARTS_SOONER if self.gpus_after < self.gpus else Reason.IDLE_GPUS_TO_GROW


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer(_Facts):
    """The length of a gang's wait for a place, how gangs fared that waited for one, and the cost of staying spread.

    `nodes` is the number of nodes that it waits for, None for one leaf switch.
    """

    gpus: int
    timer_s: float
    gangs_seen: int
    gangs_got: int
    within_s: float
    assumed_wait_s: float
    spread_cost_s: float
    spread_cost_s_low: float
    spread_cost_s_high: float
    nodes: int | None = field(metadata=_UNPUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceWorthWaiting(_Facts):
    """A timer, and the place where the gang could start without it; inflations are medians."""

    timer: Timer = field(metadata=_UNPUBLISHED)
    best_tier: LocalityTier
    tier_now: LocalityTier | None
    delayed_before_s: float
    queueing_delay_s: float
    inflation: float = field(metadata=_UNPUBLISHED)
    inflation_there: float = field(metadata=_UNPUBLISHED)
    basis: Basis = field(metadata=_UNPUBLISHED)

    @property
    def reason(self) -> Reason:
        """The reason by what the gang waits for."""
        return Reason.LEAF_WORTH_WAITING if self.timer.nodes is None else Reason.NODE_WORTH_WAITING

    @property
    def evidence(self) -> dict[str, Evidence]:
        """The facts as published, those of the timer first."""
        return {**self.timer.evidence, **_evidence(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsShorterThanLimit(_Facts):
    """The forecast run time of a job beside its limits, and what it may cost others if it runs longer."""

    reason = Reason.RUNS_SHORTER_THAN_LIMIT

    time_limit_s: float
    soft_limit_s: float
    run_time_s_low: float
    run_time_s_median: float
    run_time_s_high: float
    chance_longer: float
    chance_others_delayed: float
    others_delayed_s_max: float
    expected_wait_s_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GangNeedsThePlace(_Facts):
    """What a gang gains if jobs are stopped for it, what that costs them, and what it costs the job in question."""

    reason = Reason.GANG_NEEDS_THE_PLACE

    gang_job_id: int
    gang_gpus: int
    place: str
    tier: LocalityTier
    victims: int
    gain_s: float
    cost_s: float
    lost_work_s: float
    key: float
    key_needed_above: float
    run_s: float = field(metadata=_UNPUBLISHED)


Facts = LongWorkAhead | Resizing | PlaceWorthWaiting | RunsShorterThanLimit | GangNeedsThePlace
