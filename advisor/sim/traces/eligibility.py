"""Read the columns of a trace that hold jobs back: begin times, dependencies and limits of arrays."""

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import MINUTE_S
from advisor.sim.traces.trace import Trace

GATE_DTYPE = np.dtype(
    [
        ("begin_time", np.float64),  # 0: none
        ("first", np.int32),  # of its conditions
        ("conditions", np.int32),
        ("array", np.int32),  # -1: none
        ("needs_one", np.int8),  # one condition is enough
    ],
    align=True,
)

CONDITION_DTYPE = np.dtype(
    [
        ("delay_s", np.float64),
        ("tested_change", np.int64),  # the change after which the next field was found
        ("found", np.int32),
        ("first", np.int32),  # of the rows that it waits for
        ("awaited", np.int32),
        ("kind", np.int32),  # Await
    ],
    align=True,
)

TASK_ARRAY_DTYPE = np.dtype(
    [
        ("planned_pass", np.int64),  # the pass of backfill that the next field counts in
        ("planned", np.int32),
        ("limit", np.int32),  # tasks that run at once, 0: all
        ("running", np.int32),
    ],
    align=True,
)

_NONE: Final = -1
Key = TypeVar("Key")


class Await(IntEnum):
    """What a condition waits for, as stored in `CONDITION_DTYPE`."""

    START = 0
    END = 1
    SUCCESS = 2
    FAILURE = 3
    TURN = 4  # no job of the same name and user runs or was submitted before


_KINDS: Final = {
    "after": Await.START,
    "afterany": Await.END,
    "afterburstbuffer": Await.END,
    "afterok": Await.SUCCESS,
    "aftercorr": Await.SUCCESS,
    "afternotok": Await.FAILURE,
}
_SINGLETON: Final = "singleton"
_CORRESPONDING: Final = "aftercorr"
# 4711, 4711_7, 4711_*, 4711+5, with the state in brackets that squeue adds.
_AWAITED: Final = re.compile(r"(\d+)(?:_(?:\*|\d+))?(?:\+(\d+))?(?:\(\w+\))?")


class Eligibility(NamedTuple):
    """What holds jobs back; `gates` and `waiting` are `(n_jobs,)`, or empty if no job of the trace is held back."""

    gates: NDArray[np.void]
    conditions: NDArray[np.void]
    awaited: NDArray[np.int32]
    arrays: NDArray[np.void]
    waiting: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One condition of a dependency: `job_id` is 0 for a singleton."""

    word: str
    job_id: int = 0
    delay_s: float = 0.0


def parse_dependency(text: str) -> tuple[list[Requirement], bool]:
    """Split a dependency as Slurm spells it into requirements, and whether one of them is enough.

    What the simulator does not know, such as `expand`, is left out.
    """
    requirements = []
    for part in re.split(r"[,?]", text.strip()):
        word, *jobs = part.strip().split(":")
        word = word.partition("(")[0].lower()
        if word == _SINGLETON:
            requirements.append(Requirement(word=word))
        elif word in _KINDS:
            found = [match for job in jobs if (match := _AWAITED.fullmatch(job.strip()))]
            requirements += [
                Requirement(word=word, job_id=int(match[1]), delay_s=MINUTE_S * int(match[2] or 0)) for match in found
            ]
    return requirements, "?" in text


def held_back(trace: Trace) -> NDArray[np.bool_]:
    """Mark the jobs with a dependency, a begin time after their submission, or a limit on tasks, `(n_jobs,)`."""
    jobs = trace.jobs
    limited = (jobs["array_id"] > 0) & (jobs["array_limit"] > 0)
    return np.asarray(limited | _depends(trace) | (jobs["begin_time"] > jobs["submit_time"]))


def _depends(trace: Trace) -> NDArray[np.bool_]:
    named = np.array([bool(text) for text in trace.dependencies], dtype=np.bool_)
    return np.asarray(named[trace.jobs["dependency"]])


def build_eligibility(trace: Trace) -> Eligibility:
    """Return the arrays that hold back the jobs of a trace."""
    jobs = trace.jobs
    if not held_back(trace).any():
        return Eligibility(
            gates=np.zeros(0, GATE_DTYPE),
            conditions=np.zeros(0, CONDITION_DTYPE),
            awaited=np.zeros(0, np.int32),
            arrays=np.zeros(0, TASK_ARRAY_DTYPE),
            waiting=np.zeros(0, np.int32),
        )
    gates = np.zeros(len(jobs), GATE_DTYPE)
    gates["begin_time"] = np.where(jobs["begin_time"] > jobs["submit_time"], jobs["begin_time"], 0.0)
    gates["array"] = _NONE
    tasks = np.flatnonzero(jobs["array_id"] > 0)
    ids, array_of_task = np.unique(jobs["array_id"][tasks], return_inverse=True)
    gates["array"][tasks] = array_of_task
    arrays = np.zeros(len(ids), TASK_ARRAY_DTYPE)
    np.maximum.at(arrays["limit"], array_of_task, jobs["array_limit"][tasks])
    conditions: list[tuple[float, int, int, int, int, int]] = []
    awaited: list[int] = []
    lists: dict[tuple[int, ...], int] = {}
    finder = _Finder(trace)
    shared: dict[int, int] = {}
    for row in np.flatnonzero(_depends(trace)).tolist():
        code = int(jobs["dependency"][row])
        if code in shared:
            for name in ("first", "conditions", "needs_one"):
                gates[name][row] = gates[name][shared[code]]
            continue
        requirements, gates["needs_one"][row] = parse_dependency(trace.dependencies[code])
        # Which rows these two wait for depends on the waiting job too.
        if not {requirement.word for requirement in requirements} & {_SINGLETON, _CORRESPONDING}:
            shared[code] = row
        gates["first"][row] = len(conditions)
        for requirement in requirements:
            rows = finder.rows(row, requirement)
            if rows not in lists:
                lists[rows] = len(awaited)
                awaited += rows
            kind = Await.TURN if requirement.word == _SINGLETON else _KINDS[requirement.word]
            conditions.append((requirement.delay_s, _NONE, 0, lists[rows], len(rows), kind))
        gates["conditions"][row] = len(conditions) - gates["first"][row]
    return Eligibility(
        gates=gates,
        conditions=np.array(conditions, CONDITION_DTYPE),
        awaited=np.array(awaited, np.int32),
        arrays=arrays,
        waiting=np.zeros(len(jobs), np.int32),
    )


class _Finder:
    """Finds the rows that a requirement waits for."""

    def __init__(self, trace: Trace) -> None:
        jobs = trace.jobs
        self._row_by_id = {int(job_id): row for row, job_id in enumerate(jobs["job_id"])}
        self._array_ids = jobs["array_id"].tolist()
        self._tasks = _grouped((array_id, row) for row, array_id in enumerate(self._array_ids) if array_id)
        names = zip(jobs["user"].tolist(), jobs["name"].tolist(), strict=True)
        self._names = list(names)
        self._unnamed = {code for code, name in enumerate(trace.job_names) if not name}
        self._alike = _grouped((key, row) for row, key in enumerate(self._names))

    def rows(self, row: int, requirement: Requirement) -> tuple[int, ...]:
        """Return the awaited rows, none for a job that the trace does not hold."""
        if requirement.word == _SINGLETON:
            key = self._names[row]
            return () if key[1] in self._unnamed else tuple(self._alike[key])
        tasks = self._tasks.get(requirement.job_id)
        if tasks is None:
            found = self._row_by_id.get(requirement.job_id)
            return () if found is None else (found,)
        own = self._tasks.get(self._array_ids[row], ())
        if requirement.word == _CORRESPONDING and len(own) == len(tasks):
            return (tasks[own.index(row)],)
        return tuple(tasks)


def _grouped(pairs: Iterator[tuple[Key, int]]) -> dict[Key, Sequence[int]]:
    groups: dict[Key, list[int]] = {}
    for key, row in pairs:
        groups.setdefault(key, []).append(row)
    return {key: tuple(rows) for key, rows in groups.items()}
