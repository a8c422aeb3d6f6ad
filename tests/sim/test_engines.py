"""Cells as jobs on Slurm, by a submitit that runs them here."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import SimulationError
from advisor.sim import engines
from advisor.sim.cell import Cell
from advisor.sim.result import RunResult
from advisor.sim.sweep import run_sweep
from tests.sim.runs import eight_cells, expected, failing, same, shifted


@pytest.fixture
def cells() -> list[Cell]:
    """Eight cells of two traces."""
    return eight_cells()


def test_slurm_without_submitit_gets_one_line(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)

    with pytest.raises(SimulationError, match=r"^--engine slurm needs submitit: .* install "):
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)


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

    def map_array(self, function: Callable[[Any], RunResult], tasks: list[Any]) -> list["FakeJob"]:
        self.submitted.append(len(tasks))
        return [FakeJob(f"1_{index}", function, task) for index, task in enumerate(tasks)]


class FakeJob:
    """A job of a `FakeExecutor`."""

    def __init__(self, job_id: str, function: Callable[[Any], RunResult], task: Any) -> None:
        self.job_id = job_id
        self.paths = types.SimpleNamespace(result_pickle=Path("/nonexistent/result.pkl"))
        self._function = function
        self._task = task

    def result(self) -> RunResult:
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


@pytest.fixture
def fake_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeExecutor]:
    """Put a submitit that runs jobs here into place, and Slurm's commands on PATH."""
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
        (tmp_path / command).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / command).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return FakeExecutor


def test_slurm_runs_cells_as_one_array_and_finds_what_one_process_finds(
    cells: list[Cell], tmp_path: Path, fake_submitit: type[FakeExecutor]
) -> None:
    results = run_sweep(cells, store=tmp_path / "store", engine="slurm", workers=5, simulate=shifted)

    assert same(results, expected(cells))
    assert fake_submitit.submitted == [8]
    assert fake_submitit.parameters["slurm_array_parallelism"] == 5
    assert fake_submitit.folders == [f"slurm {tmp_path}/store/slurm/%A"]
    assert fake_submitit.cancelled == []
    assert list((tmp_path / "store" / "traces").iterdir()) == []


def test_more_cells_than_an_array_holds_go_in_several(
    cells: list[Cell], tmp_path: Path, fake_submitit: type[FakeExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_MOST_IN_ARRAY", 3)

    run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)

    assert fake_submitit.submitted == [3, 3, 2]


def test_a_failed_job_on_slurm_gets_one_line_and_the_others_are_cancelled(
    cells: list[Cell], tmp_path: Path, fake_submitit: type[FakeExecutor]
) -> None:
    with pytest.raises(SimulationError) as caught:
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=failing)

    assert "SimulationError: of 40, rules, seed 1: cannot be: logs are under" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(fake_submitit.cancelled) == 8


def test_nothing_is_submitted_where_everything_is_kept(
    cells: list[Cell], tmp_path: Path, fake_submitit: type[FakeExecutor]
) -> None:
    run_sweep(cells, store=tmp_path / "store", simulate=shifted)

    run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=failing)

    assert fake_submitit.submitted == []


def test_slurm_needs_a_store_and_its_commands(
    cells: list[Cell], tmp_path: Path, fake_submitit: type[FakeExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SimulationError, match="--engine slurm needs --store"):
        run_sweep(cells, store=None, engine="slurm", simulate=shifted)

    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SimulationError, match="needs sbatch and srun on PATH"):
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)
