"""Reads ended jobs from the tables of DRAC's Slurm clusters, .csv or .csv.gz."""

import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.errors import TraceError
from advisor.predict.run_time_features import EndedJobs, RunTimeTable
from advisor.sim.traces.text_file import opened_text

TEXTS: Final[Mapping[str, str]] = {"partition": "partition_id", "qos": "qos", "state": "state"}
AMOUNTS: Final[Mapping[str, str]] = {
    "run_s": "elapsed_s",
    "limit_s": "time_limit_s",
    "cpus": "req_cpus",
    "memory_mib": "req_mem_mb",
    "gpus": "req_gpus",
    "nodes": "alloc_nodes",
}
TIMES: Final = ("submit_time", "end_time")
NEEDED: Final = ("account_id", *TIMES, *AMOUNTS.values())
_MOST: Final = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Ended jobs, the files that hold each `(n_jobs,)`, and the number of rows of each file left out, by reason."""

    ended: EndedJobs
    files: tuple[set[Path], ...]
    left_out: Mapping[Path, Mapping[str, int]]

    def held_by(self, paths: Iterable[Path]) -> NDArray[np.bool_]:
        """Return which jobs one of these files holds."""
        return np.array([not own.isdisjoint(paths) for own in self.files], dtype=np.bool_)


def read_tables(paths: Iterable[Path]) -> Tables:
    """Read tables as one, every job once; raises `TraceError` with file and line."""
    columns: dict[str, list[str]] = {name: [] for name in ("user", *TEXTS)}
    numbers: dict[str, list[float]] = {name: [] for name in (*TIMES, *AMOUNTS)}
    files: dict[str, set[Path]] = {}
    left_out: dict[Path, Counter[str]] = {}
    for path in dict.fromkeys(paths):
        of_file = left_out[path] = Counter()
        for line, cells in _rows(path):
            # Accounts and jobs of two clusters with the same number are not the same.
            cluster, account, job = (cells.get(name, "").strip() for name in ("cluster", "account_id", "job_id"))
            name = f"{cluster}/{job}" if job else f"{path}:{line}"
            row = {time: _instant(path, line, cells, time) for time in TIMES}
            row |= {amount: _number(path, line, cells, column) for amount, column in AMOUNTS.items()}
            if math.isnan(row["end_time"]) or math.isnan(row["run_s"]):
                of_file["not ended"] += 1
            elif name in files:
                of_file["there twice"] += path in files[name]
                files[name].add(path)
            else:
                files[name] = {path}
                columns["user"].append(f"{cluster}/{account}" if cluster and account else account)
                for text, column in TEXTS.items():
                    columns[text].append(cells.get(column, "").strip())
                for number, value in row.items():
                    numbers[number].append(value)
    if not files:
        raise TraceError(f"{', '.join(map(str, paths))}: no job that ended: give tables of ended jobs")
    return Tables(ended=_table(columns, numbers), files=tuple(files.values()), left_out=left_out)


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the cells of a table by column, with the number of their line."""
    with opened_text(path) as stream:
        reader = csv.reader(stream)
        try:
            header = [name.strip() for name in next(reader, [])]
            missing = [name for name in NEEDED if name not in header]
            if missing:
                raise TraceError(f"{path}: column {missing[0]} is missing: give a table of DRAC's jobs")
            for cells in filter(None, reader):
                if len(cells) != len(header):
                    raise TraceError(
                        f"{path}: line {reader.line_num}: {len(cells)} cells instead of {len(header)}: mend the line"
                    )
                yield reader.line_num, dict(zip(header, cells, strict=True))
        except csv.Error as err:
            raise TraceError(f"{path}: line {reader.line_num}: {err}: mend the line") from err


def _number(path: Path, line: int, cells: Mapping[str, str], column: str) -> float:
    """Read a number, NaN for an empty cell."""
    text = cells[column].strip()
    try:
        value = float(text) if text else 0.0
    except ValueError:
        value = math.nan
    if not 0 <= value < _MOST:
        raise TraceError(f"{path}: line {line}: {column} {text[:40]!a} is no number of 0 or more: mend the line")
    return value if text else math.nan


def _instant(path: Path, line: int, cells: Mapping[str, str], column: str) -> float:
    """Read a date with time in UTC, NaN for an empty cell."""
    text = cells[column].strip()
    try:
        time = datetime.fromisoformat(text) if text else None
    except ValueError as err:
        raise TraceError(
            f"{path}: line {line}: {column} {text[:40]!a} is no date and time: write it as 2021-05-24 13:00:00"
        ) from err
    return math.nan if time is None else (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _table(texts: Mapping[str, list[str]], numbers: Mapping[str, list[float]]) -> EndedJobs:
    columns = {name: np.array(values, dtype=np.float64) for name, values in numbers.items()}
    run_s, end_time = columns.pop("run_s"), columns.pop("end_time")
    user, partition, qos, state = (tuple(texts[name]) for name in ("user", *TEXTS))
    jobs = RunTimeTable(
        user=user,
        account=user,
        name=("",) * len(user),
        partition=partition,
        qos=qos,
        waited_s=np.zeros(len(user)),
        elapsed_s=np.zeros(len(user)),
        **columns,
    )
    return EndedJobs(jobs=jobs, run_s=run_s, end_time=end_time, state=state)
