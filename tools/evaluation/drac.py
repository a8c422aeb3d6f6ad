"""Ended jobs out of the tables of DRAC's Slurm clusters, .csv or .csv.gz."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from advisor.errors import TraceError
from advisor.predict.run_time_table import EndedJobs, RunTimeTable
from advisor.sim.text_file import opened_text

NEEDED: Final = (
    "account_id",
    "submit_time",
    "end_time",
    "elapsed_s",
    "time_limit_s",
    *("req_cpus", "req_mem_mb", "req_gpus", "alloc_nodes"),
)
_MOST: Final = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Ended jobs of some tables; `ids` tell them apart, `left_out` counts rows that are no ended job, by reason."""

    ended: EndedJobs
    ids: tuple[str, ...]
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Row:
    number: str
    user: str
    partition: str
    qos: str
    state: str
    submit_time: float
    end_time: float
    run_s: float
    limit_s: float
    cpus: float
    memory_mib: float
    gpus: float
    nodes: float


def read_ended(paths: Sequence[Path]) -> EndedJobs:
    """Read the ended jobs of tables; raises `TraceError` with file and line for what is no such table."""
    return read_tables(paths).ended


def read_tables(paths: Sequence[Path]) -> Tables:
    """Read tables, a job that is there twice once; raises `TraceError` with file and line."""
    by_id: dict[str, _Row] = {}
    twice = unfinished = 0
    for path in paths:
        for line, cells in _cells(path):
            row = _row(path, line, cells)
            if row is None:
                unfinished += 1
            elif row.number in by_id:
                twice += 1
            else:
                by_id[row.number] = row
    if not by_id:
        raise TraceError(f"{', '.join(map(str, paths))}: no job that ended: give tables of ended jobs")
    left_out = {"not ended": unfinished, "there twice": twice}
    return Tables(
        ended=_table(list(by_id.values())),
        ids=tuple(by_id),
        left_out={reason: count for reason, count in left_out.items() if count},
    )


def _cells(path: Path) -> Iterable[tuple[int, Mapping[str, str]]]:
    with opened_text(path) as stream:
        reader = csv.reader(stream)
        try:
            header = [name.strip() for name in next(reader, [])]
            missing = [name for name in NEEDED if name not in header]
            if missing:
                raise TraceError(f"{path}: column {missing[0]} is missing: give a table of DRAC's jobs")
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise TraceError(
                        f"{path}: line {reader.line_num}: {len(cells)} cells instead of {len(header)}: mend the line"
                    )
                yield reader.line_num, dict(zip(header, cells, strict=True))
        except csv.Error as err:
            raise TraceError(f"{path}: line {reader.line_num}: {err}: mend the line") from err


def _row(path: Path, line: int, cells: Mapping[str, str]) -> _Row | None:
    """Decode a line; None for a job that has not ended."""

    def number(column: str) -> float:
        return _number(cells[column], column, path, line)

    def instant(column: str) -> float:
        return _instant(cells[column], column, path, line)

    end_time, run_s = instant("end_time"), number("elapsed_s")
    if math.isnan(end_time) or math.isnan(run_s):
        return None
    # Accounts of two clusters with the same number are not the same.
    cluster, account = cells.get("cluster", "").strip(), cells["account_id"].strip()
    job_id = cells.get("job_id", "").strip()
    return _Row(
        number=f"{cluster}/{job_id}" if job_id else f"{path}:{line}",
        user=f"{cluster}/{account}" if cluster and account else account,
        partition=cells.get("partition_id", "").strip(),
        qos=cells.get("qos", "").strip(),
        state=cells.get("state", "").strip(),
        submit_time=instant("submit_time"),
        end_time=end_time,
        run_s=run_s,
        limit_s=number("time_limit_s"),
        cpus=number("req_cpus"),
        memory_mib=number("req_mem_mb"),
        gpus=number("req_gpus"),
        nodes=number("alloc_nodes"),
    )


def _number(text: str, column: str, path: Path, line: int) -> float:
    """Read a number, NaN for an empty cell."""
    if not text.strip():
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < _MOST:
        raise TraceError(f"{path}: line {line}: {column} {text[:40]!a} is no number of 0 or more: mend the line")
    return value


def _instant(text: str, column: str, path: Path, line: int) -> float:
    """Read a date with time in UTC, NaN for an empty cell."""
    if not text.strip():
        return math.nan
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as err:
        raise TraceError(
            f"{path}: line {line}: {column} {text[:40]!a} is no date and time: write it as 2021-05-24 13:00:00"
        ) from err
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _table(rows: Sequence[_Row]) -> EndedJobs:
    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    user = tuple(row.user for row in rows)
    return EndedJobs(
        jobs=RunTimeTable(
            user=user,
            account=user,
            name=("",) * len(rows),
            partition=tuple(row.partition for row in rows),
            qos=tuple(row.qos for row in rows),
            gpus=column("gpus"),
            cpus=column("cpus"),
            nodes=column("nodes"),
            memory_mib=column("memory_mib"),
            limit_s=column("limit_s"),
            submit_time=column("submit_time"),
            elapsed_s=np.zeros(len(rows)),
        ),
        run_s=column("run_s"),
        end_time=column("end_time"),
        state=tuple(row.state for row in rows),
    )
