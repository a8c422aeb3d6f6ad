"""Addresses the waiting tasks of job arrays; `JobId=7` alone addresses the tasks that run as well."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from advisor.backends.named_jobs import IDS_PER_COMMAND, names_no_job
from advisor.backends.process import Commands, text_of
from advisor.errors import SlurmRefusedError

# A scontrol without readline reads lines of up to 4,095 bytes.
LONGEST_LINE: Final = 4_000
# The kernel passes no argument of more than 128 KiB.
LONGEST_ADDRESS: Final = 100_000

# The id of the array and the brackets around its tasks.
_AROUND: Final = 16

# The id of the record, the task, and its nice; the last waiting task of an array is printed as `7_[4%2]` or as `7_4`.
_FORMAT: Final = "%A %i %y"
_ROW: Final = re.compile(r"(\d{1,10}) (\d{1,10})_\[?(\d{1,10})(?:%\d{1,10})?\]? (-?\d{1,10})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """A waiting task of an array, in the record `job_id`: that of the array, or its own once it was split off."""

    job_id: int
    array_job_id: int
    task_id: int
    nice: int


def waiting_tasks(commands: Commands, array_job_ids: Collection[int]) -> list[WaitingTask]:
    """Read the waiting tasks of arrays, each for itself; squeue shows them as one job otherwise."""
    wanted = sorted(set(array_job_ids))
    tasks: list[WaitingTask] = []
    for start in range(0, len(wanted), IDS_PER_COMMAND):
        ids = ",".join(map(str, wanted[start : start + IDS_PER_COMMAND]))
        try:
            answer = commands.ask("squeue", "-h", "-a", "-r", "-t", "PENDING", "-j", ids, "-o", _FORMAT)
        except SlurmRefusedError as err:
            if names_no_job(err):
                continue
            raise
        tasks += _tasks(text_of(answer.output))
    return tasks


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
            job_id, array_job_id, task_id, nice = map(int, match.groups())
            yield WaitingTask(job_id=job_id, array_job_id=array_job_id, task_id=task_id, nice=nice)


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    """Yield runs of numbers as `4-9` or `4`: scontrol takes no steps as in `0-8:2`."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            low, high = numbers[start], numbers[place - 1]
            yield str(low) if low == high else f"{low}-{high}"
            start = place
