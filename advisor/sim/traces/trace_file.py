"""Trace files: one job per row as CSV, plain or gzip, with comments on top that say where the trace comes from.

docs/traces.md describes the columns. A million rows are converted column by column; only a column with a cell that
does not convert is looked at cell by cell.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from advisor.errors import TraceError
from advisor.sim.traces.text_file import opened_text, write_text
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_columns import (
    COLUMNS,
    EMPTY_NAMES,
    NAMES_FIELD,
    REQUIRED,
    Column,
    ColumnKind,
    not_wanted,
    spelled,
)
from advisor.sim.traces.trace_table import BadRow, TraceTable, Values
from advisor.text import blanked

FORMAT_VERSION: Final = 1

_FIRST_LINE: Final = "sadvise trace "
_SEED: Final = "seed"
_CHUNK_ROWS: Final = 20_000
_LONGEST_HEADER: Final = 1 << 16
_QUOTED: Final = frozenset(',"\r\n')


def read_trace(path: Path, *, skip_bad: bool = False) -> Trace:
    """Read a trace, sorted by (submit_time, job_id), its tables of names sorted too; `-` is standard input.

    Raises `TraceError` for whatever is not a whole trace. Bad rows are named by their lines; with `skip_bad` they
    are left out and the note says so.
    """
    table = TraceTable()
    with opened_text(path) as stream:
        comments, first = _comments(stream, path)
        rows = csv.reader(chain([first], stream), strict=True)
        try:
            header = _header(next(rows), path)
            for cells, lines in _chunks(rows, len(comments)):
                _add(table, header, cells, lines)
        except csv.Error as err:
            line = len(comments) + rows.line_num
            raise TraceError(f"{path}: line {line}: not CSV ({err}): mend it, or write the trace again") from err
    trace = table.trace(_stem(path))
    table.bad.refuse(path, skip_bad=skip_bad)
    if not len(trace):
        raise TraceError(f"{path}: holds no job: write one row per job below the header")
    return _described(trace, comments, skipped=table.bad.in_words() if table.bad.count else "")


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace, gzip where the name ends in .gz; `-` is standard output. Equal traces give equal bytes.

    Columns that hold nothing but their default are left out. The file appears whole or not at all, and only its owner
    can read it, for it holds users' names. Raises `TraceError` where it cannot be written.
    """
    write_text(path, _pieces(trace))


def _comments(stream: TextIO, path: Path) -> tuple[list[str], str]:
    """Read the comments on top, and the first line below them."""
    comments: list[str] = []
    while line := stream.readline(_LONGEST_HEADER):
        if line.startswith("#"):
            comments.append(line.lstrip("#").strip())
        elif line.strip():
            break
        else:
            comments.append("")
    if not line:
        raise TraceError(f"{path}: is empty: write a header with {', '.join(REQUIRED)} and one row per job")
    if not line.rstrip("\r\n").replace("\t", " ").isprintable():
        raise TraceError(f"{path}: holds binary data, not a trace: give the CSV file of `sadvise import`")
    version = comments[0].removeprefix(_FIRST_LINE) if comments and comments[0].startswith(_FIRST_LINE) else ""
    if version.isdecimal() and int(version) > FORMAT_VERSION:
        raise TraceError(
            f"{path}: is a trace of version {version}; this sadvise reads {FORMAT_VERSION}: upgrade sadvise"
        )
    return comments, line


def _header(cells: list[str], path: Path) -> tuple[str, ...]:
    """Check the names of the columns."""
    header = tuple(cell.strip() for cell in cells)
    for name in header:
        if name not in COLUMNS:
            near = get_close_matches(name, COLUMNS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(COLUMNS)}"
            raise TraceError(f"{path}: column {name[:40]!a} is not known: {hint}")
        if header.count(name) > 1:
            raise TraceError(f"{path}: column {name} stands twice in the header: leave one")
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise TraceError(f"{path}: column {missing[0]} is missing: a trace needs {', '.join(REQUIRED)}")
    return header


def _chunks(rows: Any, offset: int) -> Iterator[tuple[list[list[str]], list[int]]]:
    """Yield rows in portions with the lines they end in; `rows` is a `csv.reader`, which has no public type."""
    while True:
        cells: list[list[str]] = []
        lines: list[int] = []
        for row in islice(rows, _CHUNK_ROWS):
            cells.append(row)
            lines.append(offset + rows.line_num)
        if not cells:
            return
        yield cells, lines


def _add(table: TraceTable, header: tuple[str, ...], rows: list[list[str]], lines: list[int]) -> None:
    """Convert a portion of rows and add those that convert."""
    if any(len(row) != len(header) for row in rows):
        rows, lines = _whole_rows(table, header, rows, lines)
    if not rows:
        return
    texts = dict(zip(header, zip(*rows, strict=True), strict=True))
    columns: dict[str, Values] = {}
    faults: dict[int, str] = {}
    for name, cells in texts.items():
        column = COLUMNS[name]
        if column.kind is ColumnKind.NAME:
            columns[name] = table.names[name].codes(cells)
        elif column.default_from is None:
            columns[name] = _numbers(column, cells, faults)
    for name, cells in texts.items():
        source = COLUMNS[name].default_from
        if source is not None:
            own = _numbers(replace(COLUMNS[name], default=0), cells, faults)
            columns[name] = np.where([cell.strip() == "" for cell in cells], columns[source], own)
    if not faults:
        table.add(columns, np.array(lines))
        return
    for row, why in faults.items():
        table.bad.add(BadRow(line=lines[row], why=why))
    kept = np.ones(len(rows), dtype=np.bool_)
    kept[list(faults)] = False
    table.add({name: values[kept] for name, values in columns.items()}, np.array(lines)[kept])


def _whole_rows(
    table: TraceTable, header: tuple[str, ...], rows: list[list[str]], lines: list[int]
) -> tuple[list[list[str]], list[int]]:
    """Leave out blank rows, and as bad those with too few or too many cells."""
    kept: list[list[str]] = []
    kept_lines: list[int] = []
    for row, line in zip(rows, lines, strict=True):
        if len(row) == len(header):
            kept.append(row)
            kept_lines.append(line)
        elif any(cell.strip() for cell in row):
            table.bad.add(BadRow(line=line, why=f"{len(row)} cells where the header has {len(header)}"))
    return kept, kept_lines


def _numbers(column: Column, cells: Sequence[str], faults: dict[int, str]) -> Values:
    """Convert the cells of a column, `(n_rows,)`; `faults` maps the rows whose cells do not convert to the reason."""
    if column.default is not None and "" in cells:
        empty = spelled(column.default)
        cells = [cell or empty for cell in cells]
    # Python also reads 1_000 and the digits of every script; a trace that holds them was meant otherwise.
    together = "".join(cells)
    if together.isascii() and "_" not in together:
        with suppress(ValueError, OverflowError):
            if column.kind is ColumnKind.WHOLE:
                return np.array([int(cell) for cell in cells], dtype=np.int64)
            return np.array([float(cell) for cell in cells], dtype=np.float64)
    values: Values = (
        np.zeros(len(cells), np.int64) if column.kind is ColumnKind.WHOLE else np.zeros(len(cells), np.float64)
    )
    for row, cell in enumerate(cells):
        number = _number(column, cell.strip())
        if number is None:
            faults.setdefault(row, not_wanted(column, cell.strip()))
        else:
            values[row] = number
    return values


def _number(column: Column, text: str) -> float | None:
    """Convert one cell; None where it is no number of this column's kind."""
    if not text:
        return column.default
    if not text.isascii() or "_" in text:
        return None
    with suppress(ValueError, OverflowError):
        if column.kind is ColumnKind.NUMBER:
            return float(text)
        with suppress(ValueError):
            whole = int(text)
            return whole if column.low <= whole <= column.high else None
        # Spreadsheets write whole numbers as 8.0.
        number = float(text)
        return int(number) if number.is_integer() and column.low <= number <= column.high else None
    return None


def _described(trace: Trace, comments: list[str], *, skipped: str) -> Trace:
    """Add to a trace what the comments above its rows say."""
    facts = {key.strip(): value.strip() for key, _, value in (comment.partition(":") for comment in comments)}
    sampled = facts.get("sampled", "").split()
    seed = None
    if len(sampled) >= 2 and sampled[-2] == _SEED and sampled[-1].isdecimal():
        seed, sampled = int(sampled[-1]), sampled[:-2]
    note = "; ".join(part for part in (facts.get("source", ""), skipped) if part)
    return replace(trace, name=facts.get("name") or trace.name, sampled=tuple(sampled), seed=seed, note=note)


def _stem(path: Path) -> str:
    """Name a trace after its file."""
    return path.name.removesuffix(".gz").removesuffix(".csv")


def _pieces(trace: Trace) -> Iterator[str]:
    """Yield the text of a trace file."""
    yield f"# {_FIRST_LINE}{FORMAT_VERSION}\n"
    yield f"# name: {_plain(trace.name)}\n"
    if trace.note:
        yield f"# source: {_plain(trace.note)}\n"
    if trace.sampled or trace.seed is not None:
        seed = [] if trace.seed is None else [_SEED, str(trace.seed)]
        yield f"# sampled: {' '.join([*trace.sampled, *seed])}\n"
    names = {
        column: tuple(_quoted("" if name == EMPTY_NAMES.get(column) else name) for name in getattr(trace, field))
        for column, field in NAMES_FIELD.items()
    }
    written = [column for column in COLUMNS.values() if column.is_required or not _is_default(column, trace, names)]
    yield ",".join(column.name for column in written) + "\n"
    for start in range(0, len(trace), _CHUNK_ROWS):
        jobs = trace.jobs[start : start + _CHUNK_ROWS]
        texts = [_texts(column, jobs[column.name], names.get(column.name, ())) for column in written]
        yield "".join(f"{','.join(row)}\n" for row in zip(*texts, strict=True))


def _is_default(column: Column, trace: Trace, names: dict[str, tuple[str, ...]]) -> bool:
    """Whether every job has a column's default, so that it need not be written."""
    values = trace.jobs[column.name]
    if column.default_from is not None:
        return bool(np.all(values == trace.jobs[column.default_from]))
    if column.kind is ColumnKind.NAME:
        return not any(_texts(column, np.unique(values), names[column.name]))
    default = math.nan if column.default is None else column.default
    return np.array_equal(values, np.full_like(values, default), equal_nan=column.kind is ColumnKind.NUMBER)


def _texts(column: Column, values: NDArray[Any], names: Sequence[str]) -> list[str]:
    """Format the cells of a column."""
    if column.kind is ColumnKind.NAME:
        return [names[code] if code >= 0 else "" for code in values.tolist()]
    empty = None if column.special is None else spelled(column.special)
    spelt = map(spelled, values.tolist())
    return list(spelt) if empty is None else ["" if text == empty else text for text in spelt]


def _quoted(name: str) -> str:
    """Format a name as a cell."""
    return '"' + name.replace('"', '""') + '"' if _QUOTED.intersection(name) else name


def _plain(text: str) -> str:
    """Return free text on one line."""
    return blanked(text).strip()
