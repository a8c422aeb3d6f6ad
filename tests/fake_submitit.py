"""A submitit that runs jobs in this process."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import SimulationError


class FakeExecutor:
    """Takes job arrays as submitit does, and runs each job when it is asked for."""

    submitted: list[int]
    cancelled: list[str]
    folders: list[str]
    parameters: dict[str, Any]

    def __init__(self, folder: Path, cluster: str) -> None:
        self.folders.append(f"{cluster} {folder}")

    def update_parameters(self, **parameters: object) -> None:
        self.parameters.update(parameters)

    def map_array(self, function: Callable[[Any], Any], tasks: list[Any]) -> list["FakeJob"]:
        self.submitted.append(len(tasks))
        return [FakeJob(f"1_{index}", function, task) for index, task in enumerate(tasks)]


class FakeJob:
    """A job of a `FakeExecutor`."""

    def __init__(self, job_id: str, function: Callable[[Any], Any], task: Any) -> None:
        self.job_id = job_id
        self.paths = types.SimpleNamespace(result_pickle=Path("/nonexistent/result.pkl"))
        self._function = function
        self._task = task

    def result(self) -> Any:
        try:
            return self._function(self._task)
        except SimulationError as err:
            raise FakeUncompletedJobError(
                f"Job failed during processing with trace:\n  raise\nadvisor.errors.SimulationError: {err}\n\n"
                "You can check full logs with:\n - job.out\n"
            ) from err

    def cancel(self, **_: object) -> None:
        FakeExecutor.cancelled.append(self.job_id)


class FakeUncompletedJobError(RuntimeError):
    """What submitit raises for a job that failed."""


def put_in_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeExecutor]:
    """Put a submitit that runs jobs here into place, and Slurm's commands on PATH, which are in `folder`."""
    FakeExecutor.submitted, FakeExecutor.cancelled, FakeExecutor.folders, FakeExecutor.parameters = [], [], [], {}
    utils = types.SimpleNamespace(
        UncompletedJobError=FakeUncompletedJobError, FailedSubmissionError=type("Failed", (RuntimeError,), {})
    )
    module, helpers = types.ModuleType("submitit"), types.ModuleType("submitit.helpers")
    module.__dict__.update(AutoExecutor=FakeExecutor, core=types.SimpleNamespace(utils=utils), helpers=helpers)
    # Jobs end in another order than they were submitted in.
    helpers.__dict__.update(as_completed=lambda jobs, **_: iter(reversed(jobs)))
    monkeypatch.setitem(sys.modules, "submitit", module)
    monkeypatch.setitem(sys.modules, "submitit.helpers", helpers)
    for command in ("sbatch", "srun"):
        (folder / command).write_text("#!/bin/sh\nexit 1\n")
        (folder / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return FakeExecutor
