"""The forecasts of a job, for people and as plain values."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from advisor.cycle import CycleRecord
from advisor.domain.forecast import ForecastBasis, Forecasts, Interval, JobForecast, Placement
from advisor.domain.job import Job
from advisor.domain.topology import LocalityTier
from advisor.domain.units import duration, plural
from advisor.view.documents import document_of
from advisor.view.terminal import instant

_TIERS = {
    LocalityTier.NODE: "on one node",
    LocalityTier.LEAF: "under one leaf",
    LocalityTier.SPINE: "over several leaves",
    LocalityTier.CLUSTER: "anywhere",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeDocument:
    """The run time of a job in seconds: its interval of 80 %, and its mean."""

    low: float
    median: float
    high: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedDocument:
    """The speed of a job on some GPUs at a tier, relative to its request at the closest placement."""

    gpus: int
    tier: str
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastDocument:
    """The forecasts of a job, times in seconds, starts counted from the snapshot; parts that are not known are None."""

    run_time_s: RunTimeDocument | None
    start_s: Interval | None
    speeds: tuple[SpeedDocument, ...]
    inflation_beside: Interval | None
    unknown: tuple[str, ...]
    models: tuple[str, ...]
    notes: tuple[str, ...]
    on_probation: tuple[str, ...]
    bases: tuple[ForecastBasis, ...]


def forecast_document(forecasts: Forecasts, job_id: int, bases: Iterable[ForecastBasis]) -> ForecastDocument:
    """Return the forecasts of a job as published."""
    forecast = forecasts.of(job_id)
    run_time = forecast.run_time
    return ForecastDocument(
        run_time_s=None
        if run_time is None
        else document_of(RunTimeDocument, run_time.interval_s, mean=run_time.mean_s),
        start_s=forecast.start_s,
        speeds=tuple(
            document_of(SpeedDocument, speed, gpus=placement.gpus, tier=placement.tier.name.lower())
            for placement, speed in _ordered(forecast)
        ),
        inflation_beside=forecast.inflation_beside,
        unknown=tuple(forecast.unknown),
        models=tuple(forecasts.models),
        notes=tuple(forecasts.notes),
        on_probation=tuple(forecasts.on_probation),
        bases=tuple(bases),
    )


def lines(
    record: CycleRecord, job: Job, bases: Iterable[ForecastBasis] = (), *, is_long: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about a job, in short when it starts and how long it runs; intervals are of 80 %.

    A start is given for no job that waits for another one, nor before the begin time.
    """
    forecast = record.forecasts.of(job.job_id)
    if job.is_pending and forecast.start_s is not None:
        now = record.snapshot.taken_at
        low, high = (instant(now + start_s) for start_s in (forecast.start_s.low, forecast.start_s.high))
        middle = duration(forecast.start_s.median)
        yield "starts", f"between {low} and {high} (80 %), as likely before as after {middle} from now"
    if forecast.run_time is not None:
        interval = forecast.run_time.interval_s
        limit = "" if job.time_limit_s is None else f"; its limit is {duration(job.time_limit_s)}"
        middle = f"{duration(interval.median)}{limit}"
        low, high = duration(interval.low), duration(interval.high)
        yield "runs", f"between {low} and {high} (80 %), as likely below as above {middle}"
    for note in record.forecasts.notes:
        yield "refused", f"{note}; rules serve instead"
    if is_long:
        yield from _further_lines(record, forecast, bases)


def _further_lines(
    record: CycleRecord, forecast: JobForecast, bases: Iterable[ForecastBasis]
) -> Iterator[tuple[str, str]]:
    if forecast.speed_by_placement:
        yield "speed", f"relative to its request at the closest placement: {'; '.join(_speeds(forecast))} (80 %)"
    if forecast.inflation_beside is not None:
        beside = forecast.inflation_beside
        times = f"{beside.low:.2f} to {beside.high:.2f} times as long (80 %)"
        yield "beside", f"spread out beside the gangs that run now, it runs {times}"
    if forecast.run_time is not None:
        for model in record.forecasts.on_probation:
            yield "probation", f"{model} is not proven on jobs of this site, so plans count with time limits instead"
    for basis in bases:
        next_step = f"; better with {basis.next_step}" if basis.next_step else ""
        yield "basis", f"{basis.forecast}, step {basis.step} of {basis.steps}: {basis.rests_on}{next_step}"
    for text in forecast.unknown:
        yield "unknown", text


def _ordered(forecast: JobForecast) -> list[tuple[Placement, Interval]]:
    """Return the speeds by size, the closest tier first."""
    return sorted(forecast.speed_by_placement.items(), key=lambda item: (item[0].gpus, item[0].tier))


def _speeds(forecast: JobForecast) -> Iterator[str]:
    for placement, speed in _ordered(forecast):
        yield f"{plural(placement.gpus, 'GPU')} {_TIERS[placement.tier]} {speed.low:.2f} to {speed.high:.2f}"
