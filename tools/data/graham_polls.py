"""Reads polls of a queue, one row per pending job, as published for the cluster Graham, into a table of backlogs."""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from advisor.backends.tres import tres
from advisor.domain.units import HOUR_S
from advisor.errors import DecodeError, TraceError
from advisor.features.backlog import BacklogTable, Floats, Load
from advisor.fit.fitted import Fitted, Source, source_of
from advisor.fit.start_time_fit import Codes, Polls, bursts, fit_polls
from advisor.sim.traces.text_file import opened_text

_JOB, _POLL, _TRES, _ACCOUNT, _WAIT = "job_unique_id", "poll_time", "req_tres", "account_id", "poll_wait_sec"
# The partition at the poll; the other column has the one in which the job ran.
_PARTITION = "partition_id_y"
_TIMES: Final = (_POLL, "submit_time", "eligible_time")
_LOADS: Final = ("q", "q_p", "q_a")
_AMOUNTS: Final = (
    "time_limit_sec",
    *(f"{load}_{what}_above" for load in _LOADS for what in ("gpus", "gpu_hours")),
    "r_gpus_above",
    "r_a_gpus_above",
)
# The rest of a time limit is negative for a job in its grace time.
_LEFT: Final = ("r_gpu_hours_above", "r_a_gpu_hours_above")
# Larger numbers are damaged data.
_MOST: Final = 1e12
COLUMNS: Final = (_JOB, _ACCOUNT, _PARTITION, _TRES, *_TIMES, *_AMOUNTS, *_LEFT, _WAIT)


def fit_start_time(files: Sequence[Path], *, seed: int) -> Fitted:
    """Fit the model to files of polls; raises `TraceError` and `ConfigError`."""
    polls, sources = read_polls(files)
    return fit_polls(polls, seen_until=polls.seen_until, seed=seed, sources=sources)


def read_polls(files: Sequence[Path]) -> tuple[Polls, tuple[Source, ...]]:
    """Read tables of polls, .csv or .csv.gz, as one; raises `TraceError` with the file and the line.

    Of the columns about the time after a poll, only the wait is read: not the run time, the final state, the final
    priority or `q_*_run_hours`, which are sums of true run times.
    """
    cells: dict[str, list[str]] = {name: [] for name in COLUMNS}
    floats: dict[str, list[float]] = {name: [] for name in (*_TIMES, *_AMOUNTS, *_LEFT, _WAIT, "gpus")}
    sources = []
    for path in files:
        before = len(cells[_JOB])
        _read(path, cells, floats)
        rows = len(cells[_JOB]) - before
        sources.append(source_of(path.name, path.read_bytes(), rows))
    if not cells[_JOB]:
        raise TraceError(
            f"{', '.join(map(str, files)) or 'no file'}: there is no row of a pending GPU job: give others"
        )
    numbers = {name: np.array(values, dtype=np.float64) for name, values in floats.items()}
    return _polls(cells, numbers), tuple(sources)


def _read(path: Path, cells: dict[str, list[str]], floats: dict[str, list[float]]) -> None:
    """Append the rows of a file, without jobs that ask for no GPU."""
    readers: dict[str, Callable[[str], float]] = {
        **dict.fromkeys(_TIMES, _instant),
        **dict.fromkeys((*_AMOUNTS, _WAIT), _amount),
        **dict.fromkeys(_LEFT, _left),
    }
    with opened_text(path) as stream:
        lines = csv.DictReader(stream)
        try:
            missing = [name for name in COLUMNS if name not in (lines.fieldnames or ())]
            if missing:
                raise TraceError(f"{path}: column {missing[0]} is missing: give a table of polls of a queue")
            for row in lines:
                gpus = _of(path, lines.line_num, row, _TRES, _gpus)
                if not gpus:
                    continue
                floats["gpus"].append(gpus)
                for name, reader in readers.items():
                    floats[name].append(_of(path, lines.line_num, row, name, reader))
                for name in (_JOB, _ACCOUNT, _PARTITION):
                    cells[name].append(row[name] or "")
        except csv.Error as err:
            raise TraceError(f"{path}, line {lines.line_num}: is no CSV: {err}; give a table of polls") from err


def _of(path: Path, line: int, row: Mapping[str, str | None], name: str, reader: Callable[[str], float]) -> float:
    text = row[name]
    if text is None:
        raise TraceError(f"{path}, line {line}: it ends before {name}: mend or leave out the row")
    try:
        return reader(text)
    except (ValueError, DecodeError) as err:
        raise TraceError(f"{path}, line {line}: {name} {text[:40]!r}: {err}: mend or leave out the row") from err


def _gpus(text: str) -> float:
    """Read the number of GPUs that a job asks for."""
    return float(sum(gpus.count for gpus in tres(text, field="req_tres").gpus or ()))


def _instant(text: str) -> float:
    """Read a time, in UTC if it names no zone."""
    try:
        instant = datetime.fromisoformat(text.strip())
    except ValueError as err:
        raise ValueError("it is no time such as 2021-05-01 12:00:00") from err
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def _left(text: str) -> float:
    """Parse a number, possibly below 0; NaN for an empty text."""
    if not text.strip():
        return math.nan
    try:
        number = float(text)
    except ValueError as err:
        raise ValueError("it is no number") from err
    if not abs(number) <= _MOST:
        raise ValueError("it is beyond any queue")
    return number


def _amount(text: str) -> float:
    amount = _left(text)
    if amount < 0.0:
        raise ValueError("it is negative")
    return amount


def _polls(cells: Mapping[str, list[str]], numbers: Mapping[str, Floats]) -> Polls:
    poll_time = numbers[_POLL]
    since_eligible_s = poll_time - numbers["eligible_time"]
    running, running_in_account = _running(numbers)
    loads = [
        Load(gpus=numbers[f"{load}_gpus_above"], gpu_s=numbers[f"{load}_gpu_hours_above"] * HOUR_S) for load in _LOADS
    ]
    account = _numbered(cells[_ACCOUNT])
    return Polls(
        table=BacklogTable(
            job_id=_numbered(cells[_JOB]),
            gpus=numbers["gpus"],
            limit_s=numbers["time_limit_sec"],
            # The time at which a job with dependencies becomes eligible is not known in advance.
            eligible=(since_eligible_s >= 0.0).astype(np.float64),
            since_submit_s=np.maximum(poll_time - numbers["submit_time"], 0.0),
            since_eligible_s=np.maximum(since_eligible_s, 0.0),
            begins_in_s=np.zeros(len(poll_time)),
            ahead=loads[0],
            ahead_in_partition=loads[1],
            ahead_in_account=loads[2],
            running=running,
            running_in_account=running_in_account,
        ),
        poll_time=poll_time,
        wait_s=numbers[_WAIT],
        burst=bursts(poll_time, numbers["submit_time"], account, numbers["gpus"], numbers["time_limit_sec"]),
        account=tuple(cells[_ACCOUNT]),
        partition=tuple(cells[_PARTITION]),
    )


def _running(numbers: Mapping[str, Floats]) -> tuple[Load, Load]:
    """Return the running load of the cluster, equal in all rows of a poll, and of the account of each row.

    In the published table the rows of some jobs lack it; the cluster's load is taken from the other rows.
    """
    _, poll = np.unique(numbers[_POLL], return_inverse=True)
    gpus, hours = numbers["r_gpus_above"], numbers["r_gpu_hours_above"]
    most = np.full((2, int(poll.max()) + 1), -np.inf)
    for largest, column in zip(most, (gpus, hours), strict=True):
        np.fmax.at(largest, poll, column)
    cluster = np.where(most[0] > 0.0, most, np.nan)[:, poll]
    known = gpus > 0.0
    return (
        Load(gpus=cluster[0], gpu_s=np.maximum(cluster[1], 0.0) * HOUR_S),
        Load(
            gpus=np.where(known, numbers["r_a_gpus_above"], np.nan),
            gpu_s=np.where(known, np.maximum(numbers["r_a_gpu_hours_above"], 0.0) * HOUR_S, np.nan),
        ),
    )


def _numbered(texts: Sequence[str]) -> Codes:
    return np.unique(np.array(texts), return_inverse=True)[1].reshape(-1).astype(np.int64)
