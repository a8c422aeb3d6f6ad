"""Estimates speeds and inflations of jobs: from forecasts where there are any, else by the rule of the settings."""

from enum import StrEnum

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement
from advisor.domain.job import Job
from advisor.domain.topology import LocalityTier
from advisor.settings import PlanningSettings


class Basis(StrEnum):
    """Where the inflation of a gang on a spread placement comes from."""

    FORECAST = "forecast"
    FORECAST_OVER_NODES = "forecast_over_nodes"
    RULE = "rule"
    RULE_FOR_MORE_NODES = "rule_for_more_nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """Speeds and inflations of jobs, by model or by rule."""

    forecasts: Forecasts
    settings: PlanningSettings

    def speed(self, job: Job, gpus: int) -> Interval:
        """Return the speed of a job at a size on its closest placement, in units of about one GPU's."""
        asked = job.gang.gpu_count or 1
        unit = float(asked) ** self.settings.scaling_exponent
        relative = self._at_closest(job, gpus)
        if relative is None:
            return _exact(float(gpus) ** self.settings.scaling_exponent)
        return Interval(low=relative.low * unit, median=relative.median * unit, high=relative.high * unit)

    def stretch(self, job: Job, gpus: int) -> Interval:
        """Return the run time of a job at a size over that at the size it asks for."""
        asked = float(job.gang.gpu_count or 1)
        relative_speed = self._at_closest(job, gpus)
        if relative_speed is None:
            return _exact((asked / gpus) ** self.settings.scaling_exponent)
        return _inverse(relative_speed)

    def speed_is_forecast(self, job: Job, gpus: int) -> bool:
        """Return whether the speed of a job at a size is forecast."""
        return self._at_closest(job, gpus) is not None

    def inflation(self, job: Job, tier: LocalityTier, best: LocalityTier) -> Interval:
        """Return the inflation of a gang, at the size it asks for, at a tier; `best` is the closest it can sit.

        A forecast includes the effect of neighbours where the gang sits on more nodes than it has to.
        """
        forecast = self.forecasts.of(job.job_id)
        gpus = job.gang.gpu_count or 1
        speed = forecast.speed_by_placement.get(Placement(gpus=gpus, tier=tier))
        if speed is None:
            return self._unmeasured(forecast, gpus, tier)
        alone = _inverse(speed)
        beside = forecast.inflation_beside
        if beside is None or tier <= best:
            return alone
        return Interval(low=alone.low * beside.low, median=alone.median * beside.median, high=alone.high * beside.high)

    def inflation_on_more_nodes(self, job: Job, tier: LocalityTier) -> Interval:
        """Return the inflation of a gang on more nodes of its closest tier than could hold it.

        By rule, since no model predicts it; where the next tier is forecast, that bounds it.
        """
        fewest = self.inflation(job, tier, tier)
        step = self.settings.leaf_inflation
        rule = Interval(low=fewest.low * step, median=fewest.median * step, high=fewest.high * step)
        spine = Placement(gpus=job.gang.gpu_count or 1, tier=LocalityTier.SPINE)
        if tier >= LocalityTier.SPINE or spine not in self.forecasts.of(job.job_id).speed_by_placement:
            return rule
        upper = self.inflation(job, LocalityTier.SPINE, tier)
        return Interval(
            low=min(rule.low, upper.low),
            median=min(rule.median, upper.median),
            high=min(rule.high, upper.high),
        )

    def _unmeasured(self, forecast: JobForecast, gpus: int, tier: LocalityTier) -> Interval:
        """Return the inflation at a tier that is not forecast: by rule, from the tier below where that one is."""
        below = forecast.speed_by_placement.get(Placement(gpus=gpus, tier=LocalityTier.LEAF))
        by_rule = _by_rule(tier, self.settings)
        if below is None or tier <= LocalityTier.LEAF:
            return _exact(by_rule)
        step, on_leaf = by_rule / self.settings.leaf_inflation, _inverse(below)
        return Interval(low=on_leaf.low * step, median=on_leaf.median * step, high=on_leaf.high * step)

    def inflation_basis(self, job: Job, tier: LocalityTier) -> Basis:
        """Return where the inflation at a tier comes from."""
        speeds, gpus = self.forecasts.of(job.job_id).speed_by_placement, job.gang.gpu_count or 1
        if Placement(gpus=gpus, tier=tier) in speeds:
            return Basis.FORECAST
        if tier > LocalityTier.LEAF and Placement(gpus=gpus, tier=LocalityTier.LEAF) in speeds:
            return Basis.FORECAST_OVER_NODES
        return Basis.RULE

    def _at_closest(self, job: Job, gpus: int) -> Interval | None:
        speeds = self.forecasts.of(job.job_id).speed_by_placement
        tiers = (Placement(gpus=gpus, tier=tier) for tier in LocalityTier)
        return next((speeds[placement] for placement in tiers if placement in speeds), None)


def _by_rule(tier: LocalityTier, settings: PlanningSettings) -> float:
    match tier:
        case LocalityTier.NODE:
            return 1.0
        case LocalityTier.LEAF:
            return settings.leaf_inflation
        case LocalityTier.SPINE | LocalityTier.CLUSTER:
            return settings.spine_inflation


def _inverse(speed: Interval) -> Interval:
    return Interval(low=1.0 / speed.high, median=1.0 / speed.median, high=1.0 / speed.low)


def _exact(value: float) -> Interval:
    return Interval(low=value, median=value, high=value)
