"""How the judgement of a predictor is printed."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How far one predictor was off on one set of rows; None where it does not apply.

    Errors are in percent where `unit` is "%", else in the unit itself. `coverage` is the share of true values inside
    the stated 80 % interval, `flagged` the share of rows that it said not to know.
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
    """The scores of a predictor and its baselines on the same rows, the predictor first; times in seconds."""

    what: str
    train_rows: int
    test_rows: int
    fit_s: float
    predict_s: float
    scores: tuple[Score, ...]
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


def print_report(report: Report, *, as_json: bool) -> None:
    """Print a report as a table, or as JSON."""
    if as_json:
        print(json.dumps(asdict(report), indent=2))
        return
    from rich.console import Console

    # In a pipe nothing is folded.
    out = Console(width=None if sys.stdout.isatty() else 400, soft_wrap=True, highlight=False)
    out.print(f"{report.what}: {report.train_rows} rows to fit on, {report.test_rows} to be judged on", markup=False)
    out.print(_table(report.scores))
    out.print(f"fit {report.fit_s:.2f} s, predict {report.predict_s:.3f} s")
    for note in report.notes:
        out.print(note, markup=False)


def _table(scores: Sequence[Score]) -> "Table":
    """Lay scores out, one line each, with a column for whatever any of them has further."""
    from rich.table import Table

    further = list(dict.fromkeys(key for each in scores for key in each.further))
    table = Table(box=None, pad_edge=False)
    for heading in ("predictor", "rows", "mean", "median", "covered", "flagged", "unflagged", "flagged mean", *further):
        table.add_column(heading, justify="left" if heading == "predictor" else "right")
    for each in scores:
        table.add_row(
            each.name,
            str(each.rows),
            _number(each.mean_error, each.unit),
            _number(each.median_error, each.unit),
            _share(each.coverage),
            _share(each.flagged),
            _number(each.mean_error_unflagged, each.unit),
            _number(each.mean_error_flagged, each.unit),
            *(_number(each.further.get(key), "") for key in further),
        )
    return table


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.1f} %" if unit == "%" else f"{value:.3g} {unit}".strip()


def _share(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.1f} %"
