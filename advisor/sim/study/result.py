"""The result of a run, its metrics and the figures that comparisons and charts need, and the folder that stores it."""

import os
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationError

from advisor.domain.dataclass import dataclass
from advisor.errors import SimulationError
from advisor.files import replacing
from advisor.sim.run_outcome import End, Run
from advisor.sim.study.metrics import (
    Ends,
    InteractiveWaits,
    RunSummary,
    TierTimes,
    bounded_slowdown,
    count_ends,
    gpus_over_time,
    interactive_waits,
    jct_s,
    makespan_s,
    queueing_delay_s,
    summarise,
    tier_times,
    time_averages,
)
from advisor.sim.study.statistics import CellName

MOST_STEPS = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCurve:
    """GPUs held, averaged over equal intervals of `step_s` from `start_time` on."""

    start_time: float
    step_s: float
    gpus: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The stored result of a run.

    `per_job` is `(3, n_jobs)` in the order of the trace: JCT, queueing delay and bounded slowdown, NaN where a job
    has none. `sampled` names the columns of the trace that were drawn at random.
    """

    summary: RunSummary
    ends: Ends
    cluster_gpus: int
    curve: GpuCurve
    sampled: tuple[str, ...]
    per_job: NDArray[np.float64]
    tiers: TierTimes = field(default_factory=TierTimes)
    interactive: InteractiveWaits | None = None

    @property
    def cell(self) -> CellName:
        """The trace and the seed."""
        return CellName(self.summary.trace, self.summary.seed)

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """JCT of every job, `(n_jobs,)`."""
        return np.asarray(self.per_job[0])

    @property
    def queueing_delay_s(self) -> NDArray[np.float64]:
        """Queueing delay of every job, `(n_jobs,)`."""
        return np.asarray(self.per_job[1])

    @property
    def bounded_slowdown(self) -> NDArray[np.float64]:
        """Bounded slowdown of every job, `(n_jobs,)`."""
        return np.asarray(self.per_job[2])


def result_of(run: Run) -> RunResult:
    """Return the stored result of a run."""
    return RunResult(
        summary=summarise(run),
        ends=count_ends(run),
        cluster_gpus=run.cluster_gpus,
        curve=_curve(run),
        sampled=run.trace.sampled,
        per_job=np.stack([jct_s(run), queueing_delay_s(run), bounded_slowdown(run)]),
        tiers=tier_times(run),
        interactive=interactive_waits(run),
    )


def _curve(run: Run) -> GpuCurve:
    span_s = makespan_s(run)
    if not span_s > 0:
        return GpuCurve(start_time=0.0, step_s=1.0, gpus=())
    start = float(run.trace.jobs["submit_time"][run.outcomes["end"] != End.IMPOSSIBLE].min())
    edges = np.linspace(start, start + span_s, MOST_STEPS + 1)
    averages = time_averages(gpus_over_time(run), edges)
    # A hundredth of a GPU is finer than any line is drawn.
    return GpuCurve(start_time=start, step_s=span_s / MOST_STEPS, gpus=tuple(np.round(averages, 2).tolist()))


RESULTS = "results.jsonl"
JOBS = "jobs"


def _nan_for_null(summary: object) -> object:
    """Replace null by NaN, which JSON lacks."""
    if not isinstance(summary, dict):
        return summary
    return {name: float("nan") if value is None else value for name, value in summary.items()}


class _Line(BaseModel):
    """One finished cell as stored in the file."""

    model_config = ConfigDict(strict=True, extra="forbid", ser_json_inf_nan="null")

    key: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    summary: Annotated[RunSummary, BeforeValidator(_nan_for_null)]
    ends: Ends
    cluster_gpus: int
    curve: GpuCurve
    tiers: TierTimes
    interactive: Annotated[InteractiveWaits | None, BeforeValidator(_nan_for_null)]
    sampled: tuple[str, ...]


_COPIED: Final = tuple(name for name in _Line.model_fields if name != "key")


class Store:
    """A folder of finished cells; raises `SimulationError` if it is not writable."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / RESULTS
        try:
            (folder / JOBS).mkdir(parents=True, exist_ok=True)
            self._end_last_line()
        except OSError as err:
            raise SimulationError(
                f"{folder}: nothing can be kept there: {err.strerror}: choose another --store"
            ) from err

    def load(self) -> dict[str, RunResult]:
        """Read the cells by key; a half-written cell is skipped and runs again."""
        results = {}
        for line in self._lines():
            per_job = self._per_job(line)
            if per_job is not None:
                results[line.key] = RunResult(per_job=per_job, **{name: getattr(line, name) for name in _COPIED})
        return results

    def keep(self, key: str, result: RunResult) -> RunResult:
        """Write a cell to disk; the numbers of the returned result stay on disk, not in memory."""
        line = _Line(key=key, **{name: getattr(result, name) for name in _COPIED})
        try:
            self._write_jobs(key, result.per_job)
            with self._file.open("ab") as file:
                file.write(line.model_dump_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as err:
            raise SimulationError(f"{self._folder}: a result cannot be written: {err.strerror}") from err
        return replace(result, per_job=np.load(self._path(key), mmap_mode="r"))

    def _path(self, key: str) -> Path:
        return self._folder / JOBS / f"{key}.npy"

    def _lines(self) -> Iterator[_Line]:
        try:
            content = self._file.read_bytes()
        except OSError as err:
            raise SimulationError(f"{self._file}: cannot be read: {err.strerror}") from err
        for raw in content.split(b"\n"):
            try:
                yield _Line.model_validate_json(raw)
            except ValidationError:
                continue

    def _per_job(self, line: _Line) -> NDArray[np.float64] | None:
        try:
            per_job = np.load(self._path(line.key), mmap_mode="r")
        except (OSError, ValueError, EOFError):
            return None
        return per_job if per_job.shape == (3, line.summary.jobs) and per_job.dtype == np.float64 else None

    def _write_jobs(self, key: str, per_job: NDArray[np.float64]) -> None:
        with replacing(self._path(key)) as file:
            np.save(file, per_job)

    def _end_last_line(self) -> None:
        """End the last line of the file if an interruption cut it off."""
        with self._file.open("ab+") as file:
            size = file.tell()
            file.seek(max(0, size - 1))
            if size and file.read(1) != b"\n":
                file.write(b"\n")
