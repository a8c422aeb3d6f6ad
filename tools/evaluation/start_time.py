"""How far forecasts of start times are off on later polls of a queue."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.evaluation.many_files import ManyFiles
from tools.evaluation.report import Report, Score, print_report, score
from tools.evaluation.served import Format, bundled, date_text, parsed_date

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from advisor.features.backlog import Floats
    from advisor.fit.start_time_files import Polls
    from advisor.predict.intervals import Intervals

DAY_S = 86_400.0
TEST_DAYS = 14
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """By how much the estimates of Slurm in a file were off, in seconds `(n_jobs,)`."""

    name: str
    errors_s: "Floats"


def add_to(app: typer.Typer) -> None:
    """Add the command `start`."""
    app.command("start", cls=ManyFiles)(start)


def start(
    train: Annotated[list[Path], typer.Option("--train", help="Polls to fit on, .csv or .csv.gz.")],
    test: Annotated[list[Path], typer.Option("--test", help="Polls to be judged on; may be the same files.")],
    format_: Annotated[Format, typer.Option("--format", help="What the tables are.")] = Format.DRAC,  # noqa: ARG001 - the only one
    split: Annotated[
        str | None, typer.Option(help="Polls from this date on are judged; the last 14 days where files overlap.")
    ] = None,
    estimates: Annotated[
        list[Path] | None, typer.Option("--estimates", help="Tables of Slurm's own estimates.")
    ] = None,
    daily: Annotated[bool, typer.Option("--daily", help="Fit again before each poll as well; takes minutes.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the fit.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts of when pending jobs start, fitted on what was known before the polls they are judged on."""
    from advisor.fit.start_time_files import read_polls
    from tools.evaluation.start_time_estimates import read_errors_s

    held_against = [Estimates(name=path.name, errors_s=read_errors_s(path)) for path in estimates or []]
    fitted_on, _ = read_polls(train)
    judged_on = fitted_on if [*train] == [*test] else read_polls(test)[0]
    at = default_split(fitted_on, judged_on) if split is None else parsed_date(split)
    every = read_polls(list(dict.fromkeys([*train, *test])))[0] if daily else None
    report = judge(fitted_on, judged_on, split_time=at, seed=seed, estimates=held_against, every=every)
    print_report(report, as_json=json)


def default_split(train: "Polls", test: "Polls") -> float:
    """Return the midnight before the last 14 days of polls or, where `test` begins after `train`, its first poll."""
    if train.poll_time.max() < test.poll_time.min():
        return float(test.poll_time.min())
    last_day = max(train.poll_time.max(), test.poll_time.max()) // DAY_S
    return float((last_day - TEST_DAYS + 1) * DAY_S)


def judge(
    train: "Polls",
    test: "Polls",
    *,
    split_time: float,
    seed: int,
    estimates: Sequence[Estimates] = (),
    every: "Polls | None" = None,
) -> Report:
    """Fit on what was known at the split and judge the later polls; raises `ConfigError` where either is too small.

    With `every`, the rows of both files, it is fitted again before each poll as well, to all that was known by then.
    """
    import numpy as np

    from advisor.errors import ConfigError
    from advisor.fit.start_time_fit import fit_polls
    from advisor.predict.start_time import StartTimeForecaster
    from tools.evaluation.start_time_baselines import baselines

    before = float(np.nextafter(split_time, -np.inf))
    known = train.take(train.poll_time <= before)
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
    scores += [
        _scored(each.name, later, each.middle, low=each.low, high=each.high) for each in baselines(started, later)
    ]
    if estimates:
        scores.append(score("sadvise, hours", "h", np.abs(found.median - later.wait_s) / _HOUR_S))
        scores += [score(f"Slurm, {each.name}", "h", each.errors_s / _HOUR_S) for each in estimates]
    return Report(
        what="start time, log10 of the seconds from the poll on",
        train_rows=len(started),
        test_rows=len(later),
        fit_s=fit_s,
        predict_s=predict_s,
        scores=tuple(scores),
        notes=tuple(_notes(known, started, test, later, split_time, with_estimates=bool(estimates))),
    )


def _daily(every: "Polls", later: "Polls", *, seed: int) -> "Intervals":
    """Forecast each poll by a fit to what was known right before it."""
    import numpy as np

    from advisor.fit.start_time_fit import fit_polls
    from advisor.predict.intervals import Intervals
    from advisor.predict.start_time import StartTimeForecaster

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


def _scored_intervals(name: str, later: "Polls", found: "Intervals") -> Score:
    from advisor.fit.start_time_fit import log_wait

    low, middle, high = (log_wait(each) for each in (found.low, found.median, found.high))
    return _scored(name, later, middle, low=low, high=high, known=found.known)


def _scored(
    name: str,
    later: "Polls",
    middle: "Floats",
    *,
    low: "Floats | None" = None,
    high: "Floats | None" = None,
    known: "NDArray[np.bool_] | None" = None,
) -> Score:
    """Score an answer in log10 seconds; squared errors with waits of no less than 60 s, and of no less than 1 s."""
    import numpy as np

    from advisor.fit.start_time_fit import log_wait

    true = log_wait(later.wait_s)
    errors = np.abs(middle - true)
    further = {
        "squared": float(np.mean(errors**2)),
        "squared, bursts": float(np.average(errors**2, weights=1.0 / np.bincount(later.burst)[later.burst])),
        "squared, 1 s": float(np.mean((middle - log_wait(later.wait_s, 1.0)) ** 2)),
    }
    inside = None
    if low is not None and high is not None:
        inside = (true >= low) & (true <= high)
        further["width"] = float(np.mean(high - low))
    return score(name, "", errors, inside=inside, known=known, further=further)


def _notes(
    known: "Polls", started: "Polls", test: "Polls", later: "Polls", split_time: float, *, with_estimates: bool
) -> Iterator[str]:
    """Say what the figures are of and what they are not."""
    import numpy as np

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
    unseen = int(np.sum((test.poll_time >= split_time) & ~np.isfinite(test.wait_s)))
    if unseen:
        yield f"Not judged: {unseen} rows of later polls whose jobs were never seen to start."
    if with_estimates:
        yield (
            "The estimates of Slurm are of other jobs on other clusters in another year, made at an unknown time: "
            "neither a wait nor a queue goes with them. That the hours differ does not tell which is better."
        )
