"""Defines the forecasts of models for the jobs of one snapshot."""

from collections.abc import Mapping
from dataclasses import field, replace

from advisor.domain.dataclass import dataclass
from advisor.domain.job import LATEST_TIME
from advisor.domain.topology import LocalityTier

# Speeds and inflations are ratios; one beyond this factor, either way, is no forecast of a job.
MOST_RATIO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An 80 % interval with its median; the outcome is below `low` in 10 % of cases, and above `high` in 10 %."""

    low: float
    median: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"{self.low}, {self.median}, {self.high} are no interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """The run time of a job in seconds; `mean_s` is never below the low end of the interval."""

    interval_s: Interval
    mean_s: float

    def __post_init__(self) -> None:
        if not (0 <= self.interval_s.low <= self.mean_s <= LATEST_TIME and self.interval_s.high <= LATEST_TIME):
            raise ValueError(f"{self.interval_s} with the mean {self.mean_s} is no run time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A number of GPUs at one locality tier."""

    gpus: int
    tier: LocalityTier


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecast:
    """The forecasts for one job; None, or a missing key, if models cannot tell and rules are used.

    `speed_by_placement` maps a size and a tier to the speed there relative to the requested size on the best tier.
    `inflation_beside` is its inflation beside the gangs that run now if it starts spread out among them. `unknown`
    lists in plain words what is not known and why.
    """

    run_time: RunTime | None = None
    start_s: Interval | None = None
    speed_by_placement: Mapping[Placement, Interval] = field(default_factory=dict)
    inflation_beside: Interval | None = None
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        start_s = self.start_s
        if start_s is not None and not (abs(start_s.low) <= LATEST_TIME and abs(start_s.high) <= LATEST_TIME):
            raise ValueError(f"{start_s} is no start")
        ratios = (*self.speed_by_placement.values(), *((self.inflation_beside,) if self.inflation_beside else ()))
        for ratio in ratios:
            if not 1 / MOST_RATIO <= ratio.low <= ratio.high <= MOST_RATIO:
                raise ValueError(f"{ratio} is no speed and no inflation")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastBasis:
    """What a forecast of a job rests on: the `step` of `steps`, each worth more than the one before.

    `next_step` says in plain words what brings the next one, "" at the last.
    """

    forecast: str
    step: int
    steps: int
    rests_on: str
    next_step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """The forecasts of one cycle by job id; start times count in seconds from the snapshot.

    `models` names the models used, `notes` states in plain words which model was refused and why. `on_probation` names
    the run-time models among them that jobs of this site have not proven: plans set their run times aside.
    """

    by_job: Mapping[int, JobForecast] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    on_probation: tuple[str, ...] = ()

    def of(self, job_id: int) -> JobForecast:
        """Return the forecast of a job, or an empty one."""
        return self.by_job.get(job_id, NO_FORECAST)

    @property
    def counted(self) -> "Forecasts":
        """The forecasts that plans count with: without the run times of models on probation."""
        if not self.on_probation:
            return self
        # Without their run times the forecasts of many jobs are alike.
        alike: dict[tuple[int, int, int, tuple[str, ...]], JobForecast] = {}
        by_job: dict[int, JobForecast] = {}
        for job_id, of_job in self.by_job.items():
            key = id(of_job.speed_by_placement), id(of_job.inflation_beside), id(of_job.start_s), of_job.unknown
            if key not in alike:
                alike[key] = replace(of_job, run_time=None)
            by_job[job_id] = alike[key]
        return replace(
            self,
            by_job=by_job,
            models=tuple(model for model in self.models if model not in self.on_probation),
            on_probation=(),
        )


NO_FORECAST = JobForecast()
NO_FORECASTS = Forecasts()
