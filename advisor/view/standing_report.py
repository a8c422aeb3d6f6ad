"""Words the waits with and without advice: in all, and of the users and accounts that gained and gave most."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.domain.standings import Standing, Standings
from advisor.domain.units import duration, plural
from advisor.view.documents import document_of
from advisor.view.terminal import instant

# As many of each side are named in words.
_MOST_NAMED: Final = 5
_NO_RUN: Final = "plain Slurm was not run beside the cluster in this time (daemon.twin_interval_s)"
_LIMIT: Final = "an estimate by the model of slurmctld, and no measurement: see docs/whatif.md"

Row = tuple[str, str, str, float | None, float | None, float | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingDocument:
    """Waits with advice and on plain Slurm, in all; `is_known` is whether the sign of the difference is certain."""

    jobs: int
    waited_s: float
    plain_s: Interval
    difference_s: Interval
    is_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """The standings since the begin of a report, those of the last week, and the instant of the report.

    `credit_by_user` holds how many times as much the jobs of users weigh who are owed something, `max_credit` at most.
    """

    whole: Standings
    week: Standings
    now: float
    credit_by_user: Mapping[str, float] = field(default_factory=dict)
    max_credit: float = 1.0


def standings_document(report: Counterfactual) -> dict[str, object] | None:
    """Return the standings as plain values; None where nothing was compared."""
    whole, week = report.whole, report.week
    if whole.total is None:
        return None
    return {
        "since": whole.since,
        "until": whole.until,
        "age_s": whole.age_s(report.now),
        "total": standing_document(whole.total),
        "week": {
            "since": week.since,
            "max_credit": report.max_credit,
            "users": [
                {"user": name, **asdict(standing_document(standing)), "credit": report.credit_by_user.get(name, 1.0)}
                for name, standing in in_order(week.by_user)
            ],
            "accounts": [
                {"account": name, **asdict(standing_document(standing))} for name, standing in in_order(week.by_account)
            ],
        },
        "not_known": list(whole.notes),
    }


def standing_rows(report: Counterfactual) -> Iterator[Row]:
    """Yield the figures as section, name, figure, value, low, high and number of jobs."""
    whole, week = report.whole, report.week
    if whole.total is None:
        return
    yield from _figures("counterfactual", "all", whole.total)
    yield "counterfactual", "all", "age_s", whole.age_s(report.now), None, None, None
    for section, table in (("user", week.by_user), ("account", week.by_account)):
        for name, standing in in_order(table):
            yield from _figures(f"counterfactual_{section}", name, standing)


def standing_sentences(report: Counterfactual) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences for people."""
    whole, week = report.whole, report.week
    total = whole.total
    if total is None or whole.since is None or whole.until is None:
        yield "no advice", _NO_RUN
        return
    yield "no advice", mean_waits(total)
    yield "no advice", f"difference per job {difference_words(_per_job(total))}{sure_words(total)}"
    age_s = whole.age_s(report.now) or 0.0
    yield "no advice", f"from {instant(whole.since)} to {instant(whole.until)}, {duration(age_s)} ago"
    for kind, table in (("user", week.by_user), ("account", week.by_account)):
        gained, gave = _extremes(table)
        for label, side in (("gained", gained), ("gave", gave)):
            for name, standing in side:
                known = "" if standing.is_known else "; can be chance"
                waits = f"{difference_words(standing.difference_s)} in all, {plural(standing.jobs, 'job')}{known}"
                yield label, f"{kind} {name}: {waits}"
    for name, weight in sorted(report.credit_by_user.items(), key=lambda item: (-item[1], item[0])):
        yield "credit", f"user {name}: {credit_words(weight, report.max_credit)}"
    yield "not known", _LIMIT
    for note in whole.notes:
        yield "not known", note


def in_order(table: Mapping[str, Standing]) -> list[tuple[str, Standing]]:
    """Return standings from the one that gained most to the one that gave most."""
    return sorted(table.items(), key=lambda item: (item[1].difference_s.median, item[0]))


def _extremes(table: Mapping[str, Standing]) -> tuple[list[tuple[str, Standing]], list[tuple[str, Standing]]]:
    """Return those that gained most and those that gave most, the most first."""
    ordered = in_order(table)
    gained = [item for item in ordered if item[1].difference_s.median < 0.0]
    gave = [item for item in reversed(ordered) if item[1].difference_s.median > 0.0]
    return gained[:_MOST_NAMED], gave[:_MOST_NAMED]


def _per_job(standing: Standing) -> Interval:
    difference, jobs = standing.difference_s, max(1, standing.jobs)
    return Interval(low=difference.low / jobs, median=difference.median / jobs, high=difference.high / jobs)


def difference_words(difference: Interval) -> str:
    """Return a difference of waits with its sign and interval."""
    low, median, high = (signed_duration(value) for value in (difference.low, difference.median, difference.high))
    return f"{median} ({low} to {high})"


def mean_waits(standing: Standing) -> str:
    """Return the mean waits with advice and on plain Slurm, over how many jobs."""
    advised, plain = standing.waited_s / standing.jobs, standing.plain_s.median / standing.jobs
    waits = f"{duration(advised)} with advice, {duration(plain)} without"
    return f"{plural(standing.jobs, 'job')} compared with plain Slurm: mean wait {waits}"


def sure_words(standing: Standing) -> str:
    """Return what follows a difference whose sign can be chance."""
    return "" if standing.is_known else "; the sign is not certain"


def credit_words(weight: float, most: float) -> str:
    """Return how much more jobs weigh for what their user is owed, with the bound."""
    return f"jobs weigh {weight:.1f} times as much until that is repaid (planning.max_credit = {most:g})"


def signed_duration(seconds: float) -> str:
    """Return a difference of times with its sign."""
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def standing_document(standing: Standing) -> StandingDocument:
    """Return the standing of a user or an account as published."""
    return document_of(StandingDocument, standing)


def _figures(section: str, name: str, standing: Standing) -> Iterator[Row]:
    difference, plain = standing.difference_s, standing.plain_s
    yield section, name, "waited_s", standing.waited_s, None, None, standing.jobs
    yield section, name, "plain_s", plain.median, plain.low, plain.high, standing.jobs
    yield section, name, "difference_s", difference.median, difference.low, difference.high, standing.jobs
