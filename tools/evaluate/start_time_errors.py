"""Judges forecasts of start times at polls after the fit."""

import csv
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import ConfigError, TraceError
from advisor.features.backlog import Floats
from advisor.fit.fitted import bundled
from advisor.fit.start_time_fit import HIGH, LOW, Polls, fit_polls, log_wait
from advisor.predict.intervals import Intervals
from advisor.predict.start_time import StartTimeForecaster
from advisor.sim.traces.text_file import opened_text
from tools.data.graham_polls import read_polls
from tools.evaluate.score_report import (
    Report,
    Score,
    TableFormat,
    counted,
    date_text,
    parsed_date,
    print_report,
    score,
)

TEST_DAYS: Final = 14
BINS: Final = 10
LEAST_IN_BIN: Final = 20
_QUANTILES: Final = (LOW, 0.5, HIGH)
_TRUE, _ESTIMATE = "true_start_time", "estimate_start_time"


def start(  # noqa: PLR0913, PLR0917 - a command takes the options it has
    train: Annotated[list[Path], typer.Option("--train", help="Polls to fit on, .csv or .csv.gz.")],
    test: Annotated[list[Path], typer.Option("--test", help="Polls to be judged on; may be the same files.")],
    format_: Annotated[TableFormat, typer.Option("--format", help="What the tables are.")] = TableFormat.DRAC,  # noqa: ARG001 - the only one
    split: Annotated[
        str | None, typer.Option(help="Polls from this date on are judged; the last 14 days where files overlap.")
    ] = None,
    estimates: Annotated[
        list[Path] | None, typer.Option("--estimates", help="Tables of Slurm's own estimates.")
    ] = None,
    daily: Annotated[bool, typer.Option("--daily", help="Fit again before each poll as well; takes minutes.")] = False,
    parts: Annotated[
        str | None,
        typer.Option(
            "--parts", metavar="DATE", help="Judge fits of the polls before and after this date, and their mean."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the fit.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts of when pending jobs start, fitted on what was known before the polls they are judged on."""
    errors_by_file = {path.name: read_errors_s(path) for path in estimates or []}
    fitted_on, _ = read_polls(train)
    judged_on = fitted_on if [*train] == [*test] else read_polls(test)[0]
    at = default_split(fitted_on, judged_on) if split is None else parsed_date(split)
    every = read_polls(list(dict.fromkeys([*train, *test])))[0] if daily else None
    parts_time = None if parts is None else parsed_date(parts)
    report = judge(
        fitted_on, judged_on, split_time=at, seed=seed, estimates=errors_by_file, every=every, parts_time=parts_time
    )
    print_report(report, as_json=json)


def default_split(train: Polls, test: Polls) -> float:
    """Return the midnight before the last 14 days of polls or, where `test` begins after `train`, its first poll."""
    if train.poll_time.max() < test.poll_time.min():
        return float(test.poll_time.min())
    last_day = max(train.poll_time.max(), test.poll_time.max()) // DAY_S
    return float((last_day - TEST_DAYS + 1) * DAY_S)


def judge(
    train: Polls,
    test: Polls,
    *,
    split_time: float,
    seed: int,
    estimates: Mapping[str, Floats] | None = None,
    every: Polls | None = None,
    parts_time: float | None = None,
) -> Report:
    """Fit on what was known at the split and judge the later polls; raises `ConfigError` where either is too small.

    `estimates` are by how many seconds those of Slurm were off, `(n_jobs,)` by file. With `every`, the rows of both
    files, it is fitted again before each poll as well, to all that was known by then. With `parts_time` fits of the
    polls before and after it are judged as well, and their mean in the logarithm.
    """
    before = float(np.nextafter(split_time, -np.inf))
    known = train.take(train.poll_time <= before)
    left_out = counted(_left_out(known, test, split_time))
    later = test.take((test.poll_time >= split_time) & np.isfinite(test.wait_s))
    if not len(later):
        raise ConfigError(f"no job polled from {date_text(split_time)} on was seen to start: give an earlier --split")
    if not len(known):
        raise ConfigError(f"there is no poll before {date_text(split_time)} to fit on: give a later --split")
    began = time.perf_counter()
    fitted = fit_polls(known, seen_until=before, seed=seed)
    fit_s = time.perf_counter() - began
    forecaster = StartTimeForecaster.from_bundle(bundled(fitted))
    began = time.perf_counter()
    found = forecaster.forecast(later.table)
    predict_s = time.perf_counter() - began
    started = known.take(known.started_by(split_time))
    scores = [_scored_intervals("sadvise", later, found)]
    if every is not None:
        scores.append(_scored_intervals("sadvise, fitted before each poll", later, _daily(every, later, seed=seed)))
    if parts_time is not None:
        scores += _of_parts(known, later, parts_time, before, seed=seed)
    scores += [_scored(name, later, *guess) for name, guess in baselines(started, later).items()]
    if estimates:
        scores.append(score("sadvise, hours", "h", np.abs(found.median - later.wait_s) / HOUR_S))
        scores += [score(f"Slurm, {name}", "h", errors_s / HOUR_S) for name, errors_s in estimates.items()]
    return Report(
        what="start time, log10 of the seconds from the poll on",
        train_rows=len(started),
        test_rows=len(later),
        fit_s=fit_s,
        predict_s=predict_s,
        scores=tuple(scores),
        notes=tuple(
            _notes(
                known,
                started,
                later,
                split_time,
                overlaps=known.poll_time.max() >= test.poll_time.min(),
                with_estimates=bool(estimates),
            )
        ),
        left_out=left_out,
    )


def _of_parts(known: Polls, later: Polls, parts_time: float, before: float, *, seed: int) -> list[Score]:
    """Judge a fit of the polls before a time, one of those from it on, and their mean in the logarithm."""
    parts = known.poll_time < parts_time, known.poll_time >= parts_time
    if not all(part.any() for part in parts):
        raise ConfigError(f"--parts {date_text(parts_time)}: there are no polls on one side: give another date")
    ends = float(np.nextafter(parts_time, -np.inf)), before
    first, second = (
        StartTimeForecaster.from_bundle(bundled(fit_polls(known.take(part), seen_until=end, seed=seed))).forecast(
            later.table
        )
        for part, end in zip(parts, ends, strict=True)
    )
    mean = Intervals(
        low=np.sqrt(first.low * second.low),
        median=np.sqrt(first.median * second.median),
        high=np.sqrt(first.high * second.high),
        known=first.known & second.known,
    )
    date = date_text(parts_time)
    named = ((f"polls before {date}", first), (f"polls from {date} on", second), ("mean of both", mean))
    return [_scored_intervals(name, later, found) for name, found in named]


def _daily(every: Polls, later: Polls, *, seed: int) -> Intervals:
    """Forecast each poll by a fit to what was known right before it."""
    low, median, high = (np.empty(len(later)) for _ in range(3))
    known = np.empty(len(later), dtype=np.bool_)
    for poll_time in np.unique(later.poll_time):
        before = float(np.nextafter(poll_time, -np.inf))
        forecaster = StartTimeForecaster.from_bundle(
            bundled(fit_polls(every.take(every.poll_time <= before), seen_until=before, seed=seed))
        )
        rows = np.flatnonzero(later.poll_time == poll_time)
        found = forecaster.forecast(later.table.take(rows))
        low[rows], median[rows], high[rows], known[rows] = found.low, found.median, found.high, found.known
    return Intervals(low=low, median=median, high=high, known=known)


def _scored_intervals(name: str, later: Polls, forecast: Intervals) -> Score:
    low, middle, high = (log_wait(each) for each in (forecast.low, forecast.median, forecast.high))
    return _scored(name, later, middle, low, high, known=forecast.known)


def _scored(
    name: str,
    later: Polls,
    middle: Floats,
    low: Floats | None = None,
    high: Floats | None = None,
    *,
    known: NDArray[np.bool_] | None = None,
) -> Score:
    """Score an answer in log10 seconds; squared errors with waits of no less than 60 s, and of no less than 1 s."""
    true = log_wait(later.wait_s)
    errors = np.abs(middle - true)
    further = {
        "squared": float(np.mean(errors**2)),
        "squared, bursts": float(np.average(errors**2, weights=1.0 / np.bincount(later.burst)[later.burst])),
        "squared, 1 s": float(np.mean((middle - log_wait(later.wait_s, 1.0)) ** 2)),
    }
    if low is None or high is None:
        return score(name, "", errors, known=known, further=further)
    further["width"] = float(np.mean(high - low))
    return score(name, "", errors, inside=(true >= low) & (true <= high), known=known, further=further)


def _notes(
    known: Polls, started: Polls, later: Polls, split_time: float, *, overlaps: bool, with_estimates: bool
) -> Iterator[str]:
    """Say what the figures are of and what they are not."""
    polls, bursts = (len(np.unique(each)) for each in (later.poll_time, later.burst))
    yield (
        f"Judged on {polls} polls from {date_text(split_time)} on, {bursts} bursts of jobs alike. Errors are of the "
        "log10 of the wait, none taken for less than 60 s. Squared: their mean square; bursts: each burst counts as "
        "one job; 1 s: with waits down to 1 s. Width: of the interval, in log10."
    )
    yield (
        f"Left out of the fit: {len(known) - len(started)} rows of earlier polls whose jobs had not started by then. "
        "The forecast weights the others for it; the baselines do not."
    )
    if overlaps:
        yield (
            f"The files overlap in time, and only polls after the fit are judged: those from {date_text(split_time)} "
            "on; --split moves that date."
        )
    if with_estimates:
        yield (
            "The estimates of Slurm are of other jobs on other clusters in another year, made at an unknown time: "
            "neither a wait nor a queue goes with them. That the hours differ does not tell which is better."
        )


def _left_out(known: Polls, test: Polls, split_time: float) -> dict[str, int]:
    """Count the rows of the test that are not judged, by reason."""
    earlier, unseen = test.poll_time < split_time, ~np.isfinite(test.wait_s)
    # Files overlap in time if the fit has polls as late as the first one of the test.
    fitted_on = earlier & (test.poll_time <= known.poll_time.max(initial=-np.inf))
    return {
        "polled before the split, in the time of the fit": int(np.count_nonzero(fitted_on)),
        "polled before the split, after the fit": int(np.count_nonzero(earlier & ~fitted_on)),
        "polled later, of jobs never seen to start": int(np.count_nonzero(~earlier & unseen)),
    }


def baselines(train: Polls, test: Polls) -> Mapping[str, tuple[Floats, ...]]:
    """Return what each baseline says of the rows of `test`, in log10 seconds, from rows of jobs that had started.

    The answer comes first; where the baseline states an interval, its low and its high end follow.
    """
    true = log_wait(train.wait_s)
    partitions, accounts = _rows_by_key(train.partition), _rows_by_key(train.account)
    medians = {name: float(np.median(true[rows])) for name, rows in partitions.items()}
    # The wait, at its poll, of the job of the account that started last.
    last = {
        name: float(true[rows[np.lexsort((true[rows], train.start_time[rows]))[-1]]]) for name, rows in accounts.items()
    }
    ahead_s = _ahead_s(test)
    return {
        "training mean": tuple(
            np.full(len(test), figure) for figure in (true.mean(), np.quantile(true, LOW), np.quantile(true, HIGH))
        ),
        # Lindy: what has waited for so long will wait for as long again.
        "wait so far": (log_wait(test.table.since_submit_s),),
        # The line before a job is worked off by all GPUs that jobs hold.
        "GPU-hours ahead / GPUs running": (np.where(np.isfinite(ahead_s), log_wait(ahead_s), true.mean()),),
        "median of the partition": (np.array([medians.get(name, float(np.median(true))) for name in test.partition]),),
        "last wait of the account": (np.array([last.get(name, true.mean()) for name in test.account]),),
        "quantiles by GPU-hours ahead": _by_bin_of_work(true, _ahead_s(train), ahead_s),
    }


def _by_bin_of_work(true: Floats, ours: Floats, theirs: Floats) -> tuple[Floats, ...]:
    """Give the quantiles of the waits in the same tenth of GPU-hours ahead; those of all where few are in it."""
    edges: Floats = np.empty(0)
    if np.isfinite(ours).any():
        edges = np.quantile(ours[np.isfinite(ours)], np.linspace(0.0, 1.0, BINS + 1)[1:-1])
    bin_of_train, bin_of_test = (np.searchsorted(edges, each, side="right") for each in (ours, theirs))
    quantiles = np.tile(np.quantile(true, _QUANTILES), (len(theirs), 1))
    for number in range(BINS):
        inside = np.isfinite(ours) & (bin_of_train == number)
        if inside.sum() >= LEAST_IN_BIN:
            quantiles[np.isfinite(theirs) & (bin_of_test == number)] = np.quantile(true[inside], _QUANTILES)
    low, middle, high = quantiles.T
    return middle, low, high


def _ahead_s(polls: Polls) -> Floats:
    running = np.where(polls.table.running.gpus > 0.0, polls.table.running.gpus, np.nan)
    return np.asarray(polls.table.ahead.gpu_s / running, dtype=np.float64)


def _rows_by_key(keys: Sequence[str]) -> dict[str, NDArray[np.intp]]:
    names = np.array(keys)
    return {name: np.flatnonzero(names == name) for name in dict.fromkeys(keys)}


def read_errors_s(path: Path) -> Floats:
    """Return by how many seconds Slurm's estimates in a file were off, `(n_jobs,)`; raises `TraceError`."""
    with opened_text(path) as stream:
        try:
            rows = list(csv.DictReader(stream))
            # What stands in one row is of one clock, so that its zone does not matter.
            true, estimate = (
                [datetime.fromisoformat(row[name].strip()).replace(tzinfo=None) for row in rows]
                for name in (_TRUE, _ESTIMATE)
            )
        except (AttributeError, KeyError, ValueError, csv.Error) as err:
            raise TraceError(f"{path}: is no table of Slurm's estimates ({err}): give one with {_TRUE}") from err
    if not rows:
        raise TraceError(f"{path}: there is no estimate in it: give another")
    return np.array([abs((then - now).total_seconds()) for then, now in zip(estimate, true, strict=True)])
