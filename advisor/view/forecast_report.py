"""The forecasts of a job, for people and as plain values."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from advisor.cycle import CycleRecord
from advisor.domain.forecast import ForecastBasis, Forecasts, Interval, JobForecast, Placement
from advisor.domain.job import Job
from advisor.domain.topology import LocalityTier
from advisor.domain.units import duration, plural
from advisor.view.terminal import instant

_TIERS = {
    LocalityTier.NODE: "on one node",
    LocalityTier.LEAF: "under one leaf",
    LocalityTier.SPINE: "over several leaves",
    LocalityTier.CLUSTER: "anywhere",
}


def document(forecasts: Forecasts, job_id: int) -> dict[str, object]:
    """Return what is believed of a job as plain values; times in seconds, starts counted from the snapshot."""
    forecast = forecasts.of(job_id)
    run_time = forecast.run_time
    return {
        "run_time_s": None if run_time is None else {**asdict(run_time.interval_s), "mean": run_time.mean_s},
        "start_s": _values(forecast.start_s),
        "speeds": [
            {"gpus": placement.gpus, "tier": placement.tier.name.lower(), **asdict(speed)}
            for placement, speed in _ordered(forecast)
        ],
        "inflation_beside": _values(forecast.inflation_beside),
        "unknown": list(forecast.unknown),
        "models": list(forecasts.models),
        "notes": list(forecasts.notes),
        "on_probation": list(forecasts.on_probation),
    }


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


def _values(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)
