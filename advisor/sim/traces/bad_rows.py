"""Unusable rows of a file: counted, reported by line, and refused unless the user skips them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from advisor.errors import TraceError

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
