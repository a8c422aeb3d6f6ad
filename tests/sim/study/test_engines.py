"""Cells as jobs on Slurm, by a submitit that runs them here."""

import sys
from pathlib import Path

import pytest

from advisor.errors import SimulationError
from advisor.sim.study import engines
from advisor.sim.study.cell import Cell
from advisor.sim.study.sweep import run_sweep
from tests.fake_submitit import FakeExecutor, put_in_place
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


@pytest.fixture
def fake_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeExecutor]:
    """Put a submitit that runs jobs here into place."""
    return put_in_place(tmp_path, monkeypatch)


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
