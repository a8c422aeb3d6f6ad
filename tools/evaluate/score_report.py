"""What all judgements share: options that take several files, dates, and scores as a table or as JSON."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typer.core import TyperCommand

from advisor.errors import ConfigError
from advisor.predict.intervals import Intervals
from advisor.view.terminal import print_table

FILE_OPTIONS = ("--train", "--test", "--estimates")


class TableFormat(StrEnum):
    """The form of the tables: `drac`, what DRAC published of its clusters."""

    DRAC = "drac"


class ManyFiles(TyperCommand):
    """A command whose `--train a b` means `--train a --train b`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each file, then parse as usual."""
        return super().parse_args(ctx, repeated(args))


def repeated(arguments: list[str]) -> list[str]:
    """Return arguments with the option of files before each of its files."""
    spread: list[str] = []
    option = ""
    for argument in arguments:
        if argument.startswith("-"):
            option = argument if argument in FILE_OPTIONS else ""
        if argument != option:
            spread += [option, argument] if option else [argument]
    return spread


def parsed_date(text: str) -> float:
    """Read the date of `--split`, UTC where it names no zone; raises `ConfigError`."""
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError as err:
        raise ConfigError(f"--split {text!a} is no date: give one such as 2021-05-24") from err
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def date_text(instant: float) -> str:
    """Return an instant as a date with time in UTC."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S")


HEADER = ("predictor", "rows", "mean", "median", "covered", "flagged", "unflagged", "flagged mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Says how far one predictor was off on one set of rows; None where it does not apply.

    Errors are in percent where `unit` is "%", else in the unit itself. `coverage` is the share of true values inside
    the stated 80 % interval, `flagged` the share of rows that it marked as unknown.
    """

    name: str
    rows: int
    unit: str
    mean_error: float
    median_error: float
    coverage: float | None = None
    flagged: float | None = None
    mean_error_unflagged: float | None = None
    mean_error_flagged: float | None = None
    further: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The scores of a predictor and its baselines on the same rows, the predictor first, and times in seconds.

    `test_rows` are the rows judged; `left_out` counts the other rows to judge by the reason why they were not, None
    where that is not counted.
    """

    what: str
    train_rows: int
    test_rows: int
    scores: tuple[Score, ...]
    fit_s: float | None = None
    predict_s: float | None = None
    left_out: Mapping[str, int] | None = None
    notes: tuple[str, ...] = ()


def score(
    name: str,
    unit: str,
    errors: NDArray[np.float64],
    *,
    inside: NDArray[np.bool_] | None = None,
    known: NDArray[np.bool_] | None = None,
    further: dict[str, float] | None = None,
) -> Score:
    """Sum up absolute errors `(n_rows,)`; `inside` the interval and `known` are `(n_rows,)`, None where not stated."""
    return Score(
        name=name,
        rows=len(errors),
        unit=unit,
        mean_error=float(np.mean(errors)),
        median_error=float(np.median(errors)),
        coverage=None if inside is None else float(np.mean(inside)),
        flagged=None if known is None else float(np.mean(~known)),
        mean_error_unflagged=None if known is None or not known.any() else float(np.mean(errors[known])),
        mean_error_flagged=None if known is None or known.all() else float(np.mean(errors[~known])),
        further=further or {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRows:
    """The forecasts of judged rows, and what the baselines say; `index` `(n_rows,)` says which rows of the test."""

    index: NDArray[np.intp]
    forecast: Intervals
    by_baseline: Mapping[str, NDArray[np.float64]]


def together(parts: Sequence[JudgedRows]) -> JudgedRows:
    """Return what was judged part by part as one."""
    return JudgedRows(
        index=np.concatenate([each.index for each in parts]),
        forecast=Intervals.join([each.forecast for each in parts]),
        by_baseline={name: np.concatenate([each.by_baseline[name] for each in parts]) for name in parts[0].by_baseline},
    )


def print_report(report: Report, *, as_json: bool) -> None:
    """Print a report as a table, with a column for whatever any score has further, or as JSON."""
    if as_json:
        print(json.dumps(asdict(report), indent=2))
        return
    print(f"{report.what}: {report.train_rows} rows to fit on, {report.test_rows} judged")
    if report.left_out is not None:
        print(f"rows not judged: {left_out_text(report.left_out)}")
    further = list(dict.fromkeys(key for each in report.scores for key in each.further))
    header = (*HEADER, *further)
    print_table(header, [_row(each, further) for each in report.scores], right=range(1, len(header)))
    times = (
        []
        if None in {report.fit_s, report.predict_s}
        else [f"fit {report.fit_s:.2f} s, predict {report.predict_s:.3f} s"]
    )
    print(*times, *report.notes, sep="\n")


def left_out_text(counts: Mapping[str, int]) -> str:
    """Return how many rows were left out, in all and by reason, the most frequent first."""
    reasons = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = "; ".join(f"{count:,} {reason}" for reason, count in reasons)
    return f"{sum(counts.values()):,}: {listed}" if listed else "none"


def counted(*counts: Mapping[str, int]) -> dict[str, int]:
    """Add up counts of rows by reason; reasons without a row are dropped."""
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return dict(+total)


def _row(each: Score, further: Sequence[str]) -> list[str]:
    return [
        each.name,
        str(each.rows),
        *(_number(error, each.unit) for error in (each.mean_error, each.median_error)),
        *("" if share is None else f"{share * 100:.1f} %" for share in (each.coverage, each.flagged)),
        *(_number(error, each.unit) for error in (each.mean_error_unflagged, each.mean_error_flagged)),
        *(_number(each.further.get(key), "") for key in further),
    ]


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.1f} %" if unit == "%" else f"{value:.3g} {unit}".strip()
