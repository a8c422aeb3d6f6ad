"""Slurm's own estimates of when jobs start, and when they did."""

import csv
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.errors import TraceError
from advisor.sim.text_file import opened_text

_TRUE, _ESTIMATE = "true_start_time", "estimate_start_time"


def read_errors_s(path: Path) -> NDArray[np.float64]:
    """Return by how many seconds the estimates of a file were off, `(n_jobs,)`; raises `TraceError`."""
    errors_s = []
    with opened_text(path) as stream:
        lines = csv.DictReader(stream)
        try:
            for name in (_TRUE, _ESTIMATE):
                if name not in (lines.fieldnames or ()):
                    raise TraceError(f"{path}: column {name} is missing: give a table of Slurm's estimates")
            for row in lines:
                true, estimate = (_instant(path, lines.line_num, row, name) for name in (_TRUE, _ESTIMATE))
                errors_s.append(abs((estimate - true).total_seconds()))
        except csv.Error as err:
            raise TraceError(f"{path}, line {lines.line_num}: is no CSV: {err}; give a table of estimates") from err
    if not errors_s:
        raise TraceError(f"{path}: there is no estimate in it: give another")
    return np.array(errors_s, dtype=np.float64)


def _instant(path: Path, line: int, row: Mapping[str, str | None], name: str) -> datetime:
    text = row[name] or ""
    try:
        # What stands in one row is of one clock, so that its zone does not matter.
        return datetime.fromisoformat(text.strip()).replace(tzinfo=None)
    except ValueError as err:
        raise TraceError(
            f"{path}, line {line}: {name} {text[:40]!r}: it is no time such as 2022-12-01 12:05:41: mend it"
        ) from err
