"""Words the turn of a pending job: its place in line, its size, lifts before it, and what advice does to its user."""

from collections.abc import Iterator
from dataclasses import dataclass

from advisor.diagnose.turn import JobTurn, PlaceInLine, WithoutAdvice
from advisor.domain.forecast import Interval
from advisor.domain.units import HOUR_S, duration, gpu_time, plural
from advisor.planning.beliefs import Basis
from advisor.view.documents import document_of
from advisor.view.standing_report import credit_words, difference_words
from advisor.view.terminal import instant


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
            f"it is not lifted: its {place.tasks} tasks can take {asked} by their time limit, and at most {most} of "
            "one user are lifted at a time"
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
