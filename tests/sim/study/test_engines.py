"""Cells as jobs on Slurm, by submitit on a Slurm that runs them here."""

import sys
from pathlib import Path

import pytest

from advisor.errors import SimulationError
from advisor.sim.study import engines
from advisor.sim.study.cell import Cell
from advisor.sim.study.sweep import run_sweep
from tests.fake_submitit import FakeSlurm, put_in_place
from tests.sim.runs import eight_cells, expected, failing, same, shifted


@pytest.fixture
def cells() -> list[Cell]:
    """Two cells of two traces."""
    first, *_, last = eight_cells()
    return [first, last]


def test_slurm_without_submitit_gets_one_line(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)

    with pytest.raises(SimulationError, match=r"^--engine slurm needs submitit: .* install "):
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Put a Slurm that runs jobs here into place."""
    (tmp_path / "bin").mkdir()
    return put_in_place(tmp_path / "bin", monkeypatch)


def test_slurm_runs_cells_as_one_array_and_finds_what_one_process_finds(
    cells: list[Cell], tmp_path: Path, slurm: FakeSlurm
) -> None:
    store = tmp_path / "store"

    results = run_sweep(cells, store=store, engine="slurm", workers=5, simulate=shifted)

    assert same(results, expected(cells))
    assert [options["array"] for options in slurm.arrays] == ["0-1%2"]
    assert slurm.cancelled == []
    assert list((store / "traces").iterdir()) == []
    assert (store / "slurm" / "100").is_dir()


def test_killed_job_costs_itself_alone_and_runs_again_by_the_same_command(
    cells: list[Cell], tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_MOST_IN_ARRAY", 1)
    monkeypatch.setenv("FAKE_SLURM_KILLS", "0")
    with pytest.raises(SimulationError, match=r"^2 of 2 jobs on Slurm ended without a result, .*: the same "):
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)
    monkeypatch.setattr(engines, "_MOST_IN_ARRAY", 2)
    with pytest.raises(SimulationError, match=r"^1 of 2 jobs on Slurm ended without a result"):
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)
    monkeypatch.delenv("FAKE_SLURM_KILLS")

    results = run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)

    assert same(results, expected(cells))
    assert slurm.submitted == [1, 1, 2, 1]


def test_a_failed_job_on_slurm_gets_one_line_and_the_others_are_cancelled(
    cells: list[Cell], tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One job alone fails by itself, so that a busy machine does not decide which failure is seen first.
    monkeypatch.setenv("FAKE_SLURM_KILLS", "0")
    with pytest.raises(SimulationError) as caught:
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=failing)

    assert "SimulationError: of 40, rules, seed 1: cannot be: logs are under" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "100_1" in slurm.cancelled


def test_nothing_is_submitted_where_everything_is_kept(cells: list[Cell], tmp_path: Path, slurm: FakeSlurm) -> None:
    run_sweep(cells, store=tmp_path / "store", simulate=shifted)

    run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=failing)

    assert slurm.submitted == []


def test_slurm_needs_a_store_and_its_commands(
    cells: list[Cell], tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SimulationError, match="--engine slurm needs --store"):
        run_sweep(cells, store=None, engine="slurm", simulate=shifted)

    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SimulationError, match="needs sbatch and srun on PATH"):
        run_sweep(cells, store=tmp_path / "store", engine="slurm", simulate=shifted)
