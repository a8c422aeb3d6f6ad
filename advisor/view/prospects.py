"""Words and publishes what is expected of a job: its forecasts, its turn in line, and what advice does to its user."""

import math
from collections.abc import Iterable, Iterator

from advisor.cycle import CycleRecord
from advisor.diagnose.turn import JobTurn, PlaceInLine, WithoutAdvice
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import ForecastBasis, Forecasts, Interval, JobForecast, Placement
from advisor.domain.job import Job
from advisor.domain.topology import LocalityTier
from advisor.domain.units import HOUR_S, MINUTE_S, duration, gpu_time, plural
from advisor.planning.beliefs import Basis
from advisor.view.documents import document_of
from advisor.view.gate_words import slurm_time
from advisor.view.standing_report import credit_words, difference_words
from advisor.view.terminal import instant

_TIERS = {
    LocalityTier.NODE: "on one node",
    LocalityTier.LEAF: "under one leaf",
    LocalityTier.SPINE: "over several leaves",
    LocalityTier.CLUSTER: "anywhere",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeDocument(Interval):
    """The run time of a job in seconds: its interval of 80 %, and its mean."""

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


def forecast_lines(
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
    yield from deadline_lines(job, forecast, record.snapshot.taken_at)
    for note in record.forecasts.notes:
        yield "refused", f"{note}; rules serve instead"
    if is_long:
        yield from _further_lines(record, forecast, bases)


def deadline_lines(job: Job, forecast: JobForecast, now: float) -> Iterator[tuple[str, str]]:
    """Yield whether a job is forecast to meet the deadline that its user declares, and what would help; none without.

    Without a forecast a job can start at once or never, and end at once or at its limit.
    """
    if job.hints.deadline_time is None:
        return
    left_s, limit_s = job.hints.deadline_time - now, job.time_limit_s
    run_s = forecast.run_time.interval_s if forecast.run_time else None
    low_s, high_s = (run_s.low, run_s.high) if run_s else (0.0, limit_s or math.inf)
    start = forecast.start_s
    first_s, last_s = (start.low, start.high) if start else (0.0, math.inf)
    if not job.is_pending:
        first_s = last_s = (job.start_time or now) - now
    sooner_s, later_s = left_s - first_s - low_s, left_s - last_s - high_s
    by = instant(job.hints.deadline_time)
    if sooner_s < 0.0:
        yield "deadline", f"{by} is missed by {duration(-sooner_s)} at the least, if it starts and runs as forecast"
    elif later_s >= 0.0:
        yield (
            "deadline",
            f"{by} is met with {duration(later_s)} to spare at the least, if it starts and runs as forecast",
        )
    else:
        within_s = left_s - (high_s if high_s < left_s else first_s)
        needs = f"a {'start' if high_s < left_s else 'run'} within {duration(within_s)}"
        yield "deadline", f"whether {by} is met is open: it takes {needs}"
    if later_s < 0.0 and job.is_pending:
        yield from _sooner(job, high_s)


def _sooner(job: Job, high_s: float) -> Iterator[tuple[str, str]]:
    limit_s, gpus = job.time_limit_s, job.gang.gpu_count or 0
    if limit_s is None or high_s < 0.9 * limit_s:
        shorter = slurm_time(high_s + MINUTE_S) if math.isfinite(high_s) else "..."
        command = f"scontrol update JobId={job.job_id} TimeLimit={shorter}"
        yield (
            "to do",
            f"backfill can start it sooner with a shorter time limit, which ends what runs longer: {command}",
        )
    if gpus > 1 and job.hints.gpus is None:
        yield (
            "to do",
            f"fewer GPUs come free sooner; gpus=1-{gpus} beside by= lets sadvise choose, if it can run on fewer",
        )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutAdviceDocument:
    """When plain Slurm beside the cluster would have started a job, and whether the job goes before all others."""

    until: float
    start_time: float | None
    late_s: float
    bound_s: float | None
    is_late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWeekDocument:
    """The waits of a user's jobs in the last week, and how many times as much they weigh for what the user is owed."""

    user: str
    jobs: int
    waited_s: float
    plain_s: Interval
    difference_s: Interval
    is_known: bool
    owed: float
    credit: float
    max_credit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDocument:
    """The turn of a job; parts that are not known are None."""

    place: PlaceInLine | None
    without_advice: WithoutAdviceDocument | None
    user_week: UserWeekDocument | None


def turn_document(turn: JobTurn, user: str) -> TurnDocument:
    """Return the turn of a job as published."""
    without, standing = turn.without_advice, turn.standing
    owed = {"owed": turn.owed, "credit": turn.credit, "max_credit": turn.max_credit}
    return TurnDocument(
        place=turn.place,
        without_advice=None if without is None else document_of(WithoutAdviceDocument, without),
        user_week=None if standing is None else document_of(UserWeekDocument, standing, user=user, **owed),
    )


def place_sentences(turn: JobTurn) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about the place of a job in line and its size; none where they are not known."""
    if turn.place is not None:
        yield from _of_place(turn.place)


def advice_sentences(turn: JobTurn, user: str) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about what advice does to a job and to its user."""
    if turn.without_advice is not None:
        yield "without", _without_advice(turn.without_advice)
    if turn.standing is not None:
        chance = "" if turn.standing.is_known else "; can be chance"
        jobs = plural(turn.standing.jobs, "job")
        waits = difference_words(turn.standing.difference_s)
        verb = "gave" if turn.standing.difference_s.median > 0.0 else "gained"
        yield "user", f"{user} {verb} in the last week: wait {waits} in all by the advice, {jobs}{chance}"
        if turn.credit > 1.0:
            yield "credit", credit_words(turn.credit, turn.max_credit)


def _of_place(place: PlaceInLine) -> Iterator[tuple[str, str]]:
    ours = f"{place.place} of {plural(place.jobs, 'job')} that wait for these GPUs"
    if place.place == place.place_as_submitted:
        yield "place", f"{ours}, as in the site's own order"
    else:
        yield "place", f"{ours}; {place.place_as_submitted} in the site's own order"
    yield "size", _size(place)
    lifted = ["it was lifted"] if place.is_lifted else []
    if place.lifted_ahead:
        jobs = plural(place.lifted_ahead, "lifted job")
        verb = "stands" if place.lifted_ahead == 1 else "stand"
        passed = f", {place.passed_by} of them behind it in the site's own order" if place.passed_by else ""
        lifted.append(f"{jobs} {verb} before it, with {gpu_time(place.lifted_ahead_gpu_s / HOUR_S)} expected{passed}")
    if place.most_gpu_s is not None and place.liftable_gpu_s is not None:
        asked, most = (gpu_time(gpu_s / HOUR_S) for gpu_s in (place.most_gpu_s, place.liftable_gpu_s))
        lifted.append(
            f"it is not lifted: its {place.tasks} tasks count as {asked}, and at most {most} of one user are lifted at "
            "a time"
        )
    if lifted:
        yield "lifts", "; ".join(lifted)


def _size(place: PlaceInLine) -> str:
    kept = f" (it keeps {place.gpus_taken:.3g} from other jobs)" if place.gpus_taken > place.gpus else ""
    asked = f"{plural(place.gpus, 'GPU')}{kept}"
    tasks = f" for each of {place.tasks} tasks" if place.tasks > 1 else ""
    if place.run_s is None or place.gpu_s is None:
        return f"{asked}{tasks} for a time that is not known: it has neither a time limit nor a forecast"
    if place.basis is Basis.FORECAST:
        basis = "by the mean of its forecast"
    else:
        limit_s = place.limit_s or place.run_s
        basis = f"by {100 * place.run_s / limit_s:.0f} % of its time limit of {duration(limit_s)}, without a forecast"
    return f"{gpu_time(place.gpu_s / HOUR_S)} expected: {asked} for {duration(place.run_s)}{tasks}, {basis}"


def _without_advice(without: WithoutAdvice) -> str:
    if without.start_time is None:
        return f"without advice it would most likely wait too, as of {instant(without.until)}"
    start = instant(without.start_time)
    late = f"without advice it would most likely have started at {start}, {duration(without.late_s)} ago"
    if without.bound_s is None:
        return late
    if without.is_late:
        return f"{late}; that is beyond the bound of {duration(without.bound_s)}, so that it goes before all others"
    return f"{late}; once it is {duration(without.bound_s)} late, it goes before all others"
