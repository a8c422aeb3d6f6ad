"""Addresses the waiting tasks of job arrays; `JobId=7` alone addresses the tasks that run as well."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from advisor.backends.named_jobs import IDS_PER_COMMAND, names_no_job
from advisor.backends.process import Commands, ask_text
from advisor.errors import SlurmRefusedError

# A scontrol without readline reads lines of up to 4,095 bytes.
LONGEST_LINE: Final = 4_000
# The kernel passes no argument of more than 128 KiB.
LONGEST_ADDRESS: Final = 100_000

# The id of the array and the brackets around its tasks.
_AROUND: Final = 16

# The id of the record, its task or tasks, and its nice; the last waiting task of an array has no brackets, or has.
_FORMAT: Final = "%A %i %y"
_ROW: Final = re.compile(
    r"(?P<job>\d{1,10}) (?P<array>\d{1,10})_\[?(?P<tasks>[\d,:-]+)(?:%\d{1,10})?\]? (?P<nice>-?\d{1,10})", re.ASCII
)
_SPAN: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?(?::(\d{1,10}))?", re.ASCII)
# Slurm's own limit of an array.
_MOST_TASKS: Final = 4_000_001


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """A waiting task of an array, in the record `job_id`: that of the array, or its own once it was split off."""

    job_id: int
    array_job_id: int
    task_id: int
    nice: int


def waiting_tasks(commands: Commands, array_job_ids: Collection[int]) -> list[WaitingTask]:
    """Read the waiting tasks of arrays, each for itself.

    squeue merges an array with the tasks that were split off, unless it shows each task in a row (`-r`); then it leaves
    out the last task of an array in steps such as `0-100:2` (22.05 to 26.05). So the tasks of the record of an array
    are the merged ones without those split off. They are read first: a task can be split off in between.
    """
    wanted = sorted(set(array_job_ids))
    tasks: list[WaitingTask] = []
    for start in range(0, len(wanted), IDS_PER_COMMAND):
        ids = wanted[start : start + IDS_PER_COMMAND]
        merged, each = (list(_tasks(_rows(commands, ids, *options))) for options in ((), ("-r",)))
        split = [task for task in each if task.job_id != task.array_job_id]
        nices = {task.array_job_id: task.nice for task in each if task.job_id == task.array_job_id}
        own = {(task.array_job_id, task.task_id) for task in merged if task.array_job_id in nices}
        own -= {(task.array_job_id, task.task_id) for task in split}
        tasks += [
            WaitingTask(job_id=array, array_job_id=array, task_id=task_id, nice=nices[array])
            for array, task_id in sorted(own)
        ]
        tasks += split
    return tasks


def _rows(commands: Commands, job_ids: Iterable[int], *options: str) -> str:
    ids = ",".join(map(str, job_ids))
    try:
        return ask_text(commands, "squeue", "-h", "-a", *options, "-t", "PENDING", "-j", ids, "-o", _FORMAT)
    except SlurmRefusedError as err:
        if names_no_job(err):
            return ""
        raise


def addresses(tasks: Iterable[WaitingTask], array_job_id: int, nice: int) -> tuple[str, ...]:
    """Return what scontrol calls the waiting tasks of an array that hold a nice, such as `7_[4-9]`; empty without any.

    slurmctld writes to the record of an array as a whole where all its waiting tasks are named, and otherwise splits
    off each task that is. Tasks start but never join the record, so the list still names all of them when it arrives.
    A list longer than one request takes goes as several, of which all but the last split tasks off.
    """
    own = [task for task in tasks if task.array_job_id == array_job_id]
    if not any(task.job_id == array_job_id for task in own):
        return ()
    named = {task.task_id for task in own if task.job_id == array_job_id or task.nice == nice}
    return tuple(f"{array_job_id}_[{','.join(spans)}]" for spans in _parts(_spans(sorted(named))))


def longest_address(tasks: Iterable[WaitingTask], array_job_id: int) -> int:
    """Return the most bytes that the address of an array can take while its tasks start, or are changed one by one."""
    named = (task.task_id for task in tasks if task.array_job_id == array_job_id)
    return len(f"{array_job_id}_[]") + sum(len(f"{task_id},") for task_id in named)


def _parts(spans: Iterable[str]) -> Iterator[list[str]]:
    """Yield runs of tasks in parts, each of which one request takes."""
    part: list[str] = []
    length = 0
    for span in spans:
        if length + len(span) + 1 > LONGEST_ADDRESS - _AROUND:
            yield part
            part, length = [], 0
        part.append(span)
        length += len(span) + 1
    yield part


def _tasks(text: str) -> Iterator[WaitingTask]:
    for line in text.splitlines():
        match = _ROW.fullmatch(line.strip())
        if match is not None:
            job_id, array_job_id, nice = (int(match[name]) for name in ("job", "array", "nice"))
            for task_id in _ids(match["tasks"]):
                yield WaitingTask(job_id=job_id, array_job_id=array_job_id, task_id=task_id, nice=nice)


def _ids(text: str) -> Iterator[int]:
    """Yield the tasks of a list such as `0,4-6,10-20:2`."""
    for part in text.split(","):
        match = _SPAN.fullmatch(part)
        if match is not None:
            low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            yield from range(low, min(high, _MOST_TASKS) + 1, max(1, step))


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    """Yield runs of numbers as `4-9` or `4`: scontrol takes no steps as in `0-8:2`."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            low, high = numbers[start], numbers[place - 1]
            yield str(low) if low == high else f"{low}-{high}"
            start = place
