"""Rows on their way into a trace: checked column by column, bad ones counted and kept out, names turned into codes."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import TraceError
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from advisor.sim.traces.trace_columns import (
    COLUMNS,
    EMPTY_NAMES,
    NAMES_FIELD,
    RULES,
    ColumnKind,
    Mask,
    not_wanted,
    out_of_bounds,
    spelled,
)

_LINES_SHOWN: Final = 10

Unit = Literal["line", "entry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """An unusable row, identified by its line, or by its place in a list if `unit` says so."""

    line: int
    why: str
    unit: Unit = "line"


@dataclass(slots=True)
class BadRows:
    """The bad rows of one file: their count, the first ten lines and the first reason."""

    count: int = 0
    _first: list[BadRow] = field(default_factory=list)

    def add(self, row: BadRow) -> None:
        """Count a row."""
        self.count += 1
        self._first = sorted([*self._first, row], key=lambda bad: bad.line)[:_LINES_SHOWN]

    def add_many(self, first: list[BadRow], count: int) -> None:
        """Count rows of which only the first are given."""
        for row in first[:_LINES_SHOWN]:
            self.add(row)
        self.count += count - min(len(first), _LINES_SHOWN)

    def in_words(self) -> str:
        """Describe how many rows were skipped, and which."""
        return f"{_rows(self.count)} skipped ({self._places()})"

    def refuse(self, path: Path, *, skip_bad: bool) -> None:
        """Raise `TraceError` if there are bad rows that the user did not ask to skip."""
        if not self.count or skip_bad:
            return
        first = self._first[0]
        others = "" if self.count == 1 else f" ({_rows(self.count)} in all: {self._places()})"
        raise TraceError(
            f"{path}: {first.unit} {first.line}: {first.why}{others}: mend it, or leave bad rows out with --skip-bad"
        )

    def _places(self) -> str:
        """List the first lines."""
        unit = self._first[0].unit
        numbers = ", ".join(str(row.line) for row in self._first)
        plural = {"line": "lines", "entry": "entries"}[unit]
        return f"{unit if self.count == 1 else plural} {numbers}{', ...' if self.count > len(self._first) else ''}"


def _rows(count: int) -> str:
    return "1 bad row" if count == 1 else f"{count} bad rows"


Values = NDArray[np.int64] | NDArray[np.float64]

_MOST_TOLD: Final = 10


class Names:
    """The names of one column, numbered as they come."""

    def __init__(self) -> None:
        self._code_of: dict[str, int] = {}

    def codes(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the codes of names, new ones included, `(n,)`."""
        known = self._code_of
        return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)

    def settled(self, codes: NDArray[np.int32], empty: str | None) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        """Return the names in use, sorted, and the codes for them; `empty` stands for the empty name, None for -1."""
        names = list(self._code_of)
        meant = {code: names[code] or empty for code in np.unique(codes).tolist()}
        table = tuple(sorted({name for name in meant.values() if name is not None}))
        code_of = {name: code for code, name in enumerate(table)}
        renumbered = np.full(max(len(names), 1), -1, dtype=np.int32)
        for code, name in meant.items():
            renumbered[code] = -1 if name is None else code_of[name]
        return table, renumbered[codes]


class TraceTable:
    """The rows of a trace being read; `names` maps the columns that hold names, `bad` counts the rows left out."""

    def __init__(self) -> None:
        self.names: Mapping[str, Names] = {
            name: Names() for name, column in COLUMNS.items() if column.kind is ColumnKind.NAME
        }
        self.bad = BadRows()
        self._parts: list[NDArray[np.void]] = []
        self._lines: list[NDArray[np.int64]] = []

    def add(self, columns: Mapping[str, Values], lines: NDArray[np.int64]) -> None:
        """Add rows, whose columns are wide arrays `(n,)`, codes in those of names; a column left out is all default."""
        jobs = np.zeros(len(lines), TRACE_DTYPE)
        good = np.ones(len(lines), dtype=np.bool_)
        for name, column in COLUMNS.items():
            if column.kind is ColumnKind.NAME:
                jobs[name] = columns[name] if name in columns else self.names[name].codes([""] * len(lines))
            elif name not in columns:
                jobs[name] = jobs[column.default_from] if column.default_from else column.default
            else:
                values = columns[name]
                outside = out_of_bounds(column, values)
                self._refuse(
                    outside & good,
                    lines,
                    [not_wanted(column, spelled(v)) for v in values[outside & good][:_MOST_TOLD].tolist()],
                )
                good &= ~outside
                jobs[name] = np.where(outside, column.low, values)
        for rule in RULES:
            broken = rule.broken(jobs) & good
            reasons = [
                f"column {rule.column}: {spelled(value)} {rule.message}"
                for value in jobs[rule.column][broken][:_MOST_TOLD].tolist()
            ]
            self._refuse(broken, lines, reasons)
            good &= ~broken
        self._parts.append(jobs[good])
        self._lines.append(lines[good])

    def trace(self, name: str) -> Trace:
        """Return the trace of all good rows, sorted, without those whose job id stands in an earlier line."""
        jobs = self._distinct()
        jobs = jobs[np.lexsort((jobs["job_id"], jobs["submit_time"]))]
        tables: dict[str, Any] = {}
        for column, names in self.names.items():
            tables[NAMES_FIELD[column]], jobs[column] = names.settled(jobs[column], EMPTY_NAMES.get(column))
        return Trace(name=name, jobs=jobs, **tables)

    def _distinct(self) -> NDArray[np.void]:
        jobs = np.concatenate([np.zeros(0, TRACE_DTYPE), *self._parts])
        lines = np.concatenate([np.zeros(0, np.int64), *self._lines])
        self._parts, self._lines = [jobs], [lines]
        order = np.lexsort((lines, jobs["job_id"]))
        ids = jobs["job_id"][order]
        again = np.zeros(len(jobs), dtype=np.bool_)
        again[order[1:]] = ids[1:] == ids[:-1]
        # Among the bad rows the first ones count, so the lines must ascend, as they do by construction.
        self._refuse(
            again,
            lines,
            [
                f"column job_id: {job_id} stands in an earlier line"
                for job_id in jobs["job_id"][again][:_MOST_TOLD].tolist()
            ],
        )
        return jobs[~again]

    def _refuse(self, rows: Mask, lines: NDArray[np.int64], reasons: Sequence[str]) -> None:
        """Count rows as bad, with the reasons of the first ones."""
        first = lines[rows][:_MOST_TOLD].tolist()
        self.bad.add_many(
            [BadRow(line=line, why=why) for line, why in zip(first, reasons, strict=True)], int(np.count_nonzero(rows))
        )
