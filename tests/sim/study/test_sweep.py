"""Sweeps: what is kept, what runs again, and what an interruption leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.run_outcome import Run
from advisor.sim.study.cell import Cell, Progress, digest_of, keys_of
from advisor.sim.study.result import RESULTS, Store, result_of
from advisor.sim.study.sweep import SweepInterrupted, run_sweep
from tests.programs import killed_after
from tests.sim.building import make_trace
from tests.sim.runs import dying, eight_cells, expected, failing, make_cell, random_trace, same, shifted, shifted_run

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cells() -> list[Cell]:
    """Eight cells of two traces."""
    return eight_cells()


class Counting:
    """Simulates by a rule and remembers what it was asked for; fails or is interrupted where told."""

    def __init__(self, *, stop_at: int | None = None, stop_with: BaseException | None = None) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self._stop_at = stop_at
        self._stop_with = stop_with

    def __call__(self, cell: Cell, progress: Progress | None) -> Run:
        if self._stop_with is not None and len(self.asked) == self._stop_at:
            raise self._stop_with
        self.asked.append((cell.trace.name, cell.policy, cell.seed))
        return shifted(cell, progress)


def test_results_come_in_the_order_of_the_cells(cells: list[Cell]) -> None:
    results = run_sweep(cells, store=None, simulate=shifted)

    assert same(results, expected(cells))


def test_what_is_kept_reads_back_equal_and_is_not_run_again(cells: list[Cell], tmp_path: Path) -> None:
    first, second = Counting(), Counting()

    run_sweep(cells, store=tmp_path, simulate=first)
    again = run_sweep(cells, store=tmp_path, simulate=second)

    assert len(first.asked) == len(cells)
    assert second.asked == []
    assert same(again, expected(cells))


def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on_from_there(cells: list[Cell], tmp_path: Path) -> None:
    stopped = Counting(stop_at=3, stop_with=KeyboardInterrupt())
    rest = Counting()

    with pytest.raises(SweepInterrupted) as caught:
        run_sweep(cells, store=tmp_path, simulate=stopped)
    results = run_sweep(cells, store=tmp_path, simulate=rest)

    assert (caught.value.kept, caught.value.cells) == (3, 8)
    assert len(rest.asked) == 5
    assert not set(stopped.asked) & set(rest.asked)
    assert same(results, expected(cells))


def test_without_a_store_an_interrupted_sweep_keeps_nothing(cells: list[Cell]) -> None:
    with pytest.raises(SweepInterrupted) as caught:
        run_sweep(cells, store=None, simulate=Counting(stop_at=3, stop_with=KeyboardInterrupt()))

    assert caught.value.kept == 0


def test_a_failing_cell_is_named_and_the_others_stay(cells: list[Cell], tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=r"of 30, rules, seed 0: no such thing"):
        run_sweep(cells, store=tmp_path, simulate=Counting(stop_at=2, stop_with=SimulationError("no such thing")))

    assert len(Store(tmp_path).load()) == 2


@pytest.mark.parametrize("cut", [1, 40, -2], ids=["one byte", "the start", "all but the end"])
def test_a_half_written_line_costs_its_own_cell_only(cells: list[Cell], tmp_path: Path, cut: int) -> None:
    run_sweep(cells[:3], store=tmp_path, simulate=shifted)
    lines = (tmp_path / RESULTS).read_bytes().splitlines(keepends=True)
    (tmp_path / RESULTS).write_bytes(b"".join(lines[:2]) + lines[2][:cut])
    again, after = Counting(), Counting()

    results = run_sweep(cells[:4], store=tmp_path, simulate=again)
    run_sweep(cells[:4], store=tmp_path, simulate=after)

    assert len(again.asked) == 2
    assert after.asked == []
    assert same(results, expected(cells[:4]))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:200]),
    "empty": lambda path: path.write_bytes(b""),
    "of other jobs": lambda path: np.save(path, np.zeros((3, 7))),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=list(DAMAGE))
def test_a_cell_whose_numbers_are_damaged_runs_again(
    cells: list[Cell], tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    run_sweep(cells[:2], store=tmp_path, simulate=shifted)
    damage(tmp_path / "jobs" / f"{keys_of(cells)[0]}.npy")
    again = Counting()

    results = run_sweep(cells[:2], store=tmp_path, simulate=again)

    assert len(again.asked) == 1
    assert same(results, expected(cells[:2]))


def test_a_kept_metric_that_is_no_number_reads_back_as_none(tmp_path: Path) -> None:
    cell = make_cell(make_trace([{}]))
    result = result_of(shifted(cell))
    unknown = replace(result, summary=replace(result.summary, mean_jct_s=float("nan")))

    Store(tmp_path).keep("a" * 64, unknown)

    assert np.isnan(Store(tmp_path).load()["a" * 64].summary.mean_jct_s)
    assert json.loads((tmp_path / RESULTS).read_text())["summary"]["mean_jct_s"] is None


def test_a_folder_that_cannot_be_written_is_named(cells: list[Cell], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SimulationError, match=r"file: nothing can be kept there: .*--store"):
        run_sweep(cells, store=tmp_path / "file", simulate=shifted)


def test_a_store_that_goes_away_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (tmp_path / "jobs").rmdir()
    (tmp_path / RESULTS).unlink()

    with pytest.raises(SimulationError, match="a result cannot be written: No such file"):
        store.keep("a" * 64, result_of(shifted(make_cell(make_trace([{}])))))
    with pytest.raises(SimulationError, match="cannot be read: No such file"):
        store.load()


def test_a_trace_under_another_name_is_not_run_again_and_has_the_new_name(tmp_path: Path) -> None:
    trace = random_trace(20, name="before")
    counting = Counting()
    run_sweep([make_cell(trace)], store=tmp_path, simulate=shifted)

    results = run_sweep([make_cell(replace(trace, name="after", note="moved"))], store=tmp_path, simulate=counting)

    assert counting.asked == []
    assert results[0].summary.trace == "after"


def other_jobs(cell: Cell) -> Cell:
    """Change one job of the trace."""
    jobs = cell.trace.jobs.copy()
    jobs["gpus"][3] += 1
    return replace(cell, trace=replace(cell.trace, jobs=jobs))


CHANGES: dict[str, Callable[[Cell], Cell]] = {
    "policy": lambda cell: replace(cell, policy="rules"),
    "seed": lambda cell: replace(cell, seed=1),
    "cluster": lambda cell: replace(cell, cluster=make_cell(cell.trace, cluster="nodes=3,gpus=8").cluster),
    "options": lambda cell: replace(cell, options=replace(cell.options, speeds="noisy=10")),
    "nested options": lambda cell: replace(
        cell, options=replace(cell.options, planning=replace(cell.options.planning, depth=7))
    ),
    "a job": other_jobs,
    "users": lambda cell: replace(cell, trace=replace(cell.trace, users=("ann", "bob", "dee"))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_whatever_decides_an_outcome_changes_the_key(change: Callable[[Cell], Cell]) -> None:
    cell = make_cell(random_trace(10))

    before, after, again = keys_of([cell, change(cell), make_cell(random_trace(10))])

    assert before != after
    assert before == again


def test_digests_tell_values_of_different_shape_apart() -> None:
    values = [
        "1", 1, 1.0, ("1",), (1,), ((1,), ()), ((), (1,)), {"1": 1}, {1: "1"}, "", (), None, b"1",
        np.array([1]), np.array([[1]]), np.array([1.0]), np.array([1], dtype=np.int8), ("a", "b"), ("ab",),
    ]  # fmt: skip

    assert len({digest_of(value) for value in values}) == len(values)


def test_progress_counts_cells_and_the_share_of_the_one_in_hand(cells: list[Cell]) -> None:
    told: list[float] = []

    run_sweep(cells[:2], store=None, simulate=shifted, progress=told.append)

    assert told == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_cell_given_twice_runs_once(cells: list[Cell]) -> None:
    counting = Counting()

    results = run_sweep([cells[0], cells[0]], store=None, simulate=counting)

    assert len(counting.asked) == 1
    assert len(results) == 2


def test_two_processes_find_what_one_finds(cells: list[Cell], tmp_path: Path) -> None:
    results = run_sweep(cells, store=tmp_path, workers=2, simulate=shifted)

    assert same(results, expected(cells))
    assert len(Store(tmp_path).load()) == len(cells)


def test_an_error_in_another_process_names_the_cell(cells: list[Cell]) -> None:
    with pytest.raises(SimulationError, match=r"of 30, slurm, seed [01]: cannot be"):
        run_sweep(cells, store=None, workers=2, simulate=failing)


@pytest.mark.filterwarnings("ignore:A worker stopped")
def test_a_worker_that_dies_gets_one_line(cells: list[Cell]) -> None:
    with pytest.raises(SimulationError, match=r"a worker died.*--workers"):
        run_sweep(cells, store=None, workers=2, simulate=dying)


SLOW = """
import signal, sys, time
from pathlib import Path
# A job in the background of a shell is started deaf to Ctrl-C, and so are its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
from advisor.sim.study.sweep import SweepInterrupted, run_sweep
from tests.sim.runs import make_cell, random_trace, shifted

def slow(cell, progress):
    time.sleep(0.2 if cell.seed < 3 else 60.0)
    return shifted(cell, progress)

cells = [make_cell(random_trace(20), seed=seed) for seed in range(6)]
try:
    run_sweep(cells, store=Path(sys.argv[1]), workers=int(sys.argv[2]), simulate=slow)
except SweepInterrupted as err:
    print(err.kept, err.cells)
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_a_sweep_that_is_ended_from_outside_keeps_every_finished_cell(
    tmp_path: Path, workers: int, number: signal.Signals
) -> None:
    argv = [sys.executable, "-c", SLOW, str(tmp_path), str(workers)]
    # What a killed process leaves in the folder for temporary files goes with this test's own.
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    sweep = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with killed_after(sweep) as process:
        deadline = time.monotonic() + 60
        while len(_kept_lines(tmp_path)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        # As a terminal does, to every process of the group; a plain kill reaches the first one only.
        (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
        said, _ = process.communicate(timeout=30)
    left = [make_cell(random_trace(20), seed=seed) for seed in range(6)]
    rest = Counting()

    run_sweep(left, store=tmp_path, simulate=rest)

    assert (process.returncode, said) == ((130, "3 6\n") if number is signal.SIGINT else (-signal.SIGKILL, ""))
    assert [seed for _, _, seed in rest.asked] == [3, 4, 5]


def _kept_lines(folder: Path) -> list[str]:
    path = folder / RESULTS
    return path.read_text().splitlines() if path.exists() else []


def test_the_curve_of_a_result_holds_every_gpu_second() -> None:
    run = shifted_run(random_trace(500), "slurm", 0)

    curve = result_of(run).curve

    assert len(curve.gpus) == 800
    assert sum(curve.gpus) * curve.step_s == pytest.approx(float(run.outcomes["held_gpu_s"].sum()), rel=1e-3)


@pytest.mark.parametrize(
    ("module", "path", "message"),
    [
        (None, "/usr/bin:/bin", r"^--engine slurm needs submitit: .* install .*, or take --engine local$"),
        (object(), "/nonexistent", r"^--engine slurm needs sbatch and srun on PATH: run it where jobs are submitted$"),
    ],
    ids=["without submitit", "without sbatch"],
)
def test_slurm_needs_submitit_its_commands_and_a_store_but_not_for_what_is_kept(
    cells: list[Cell],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    path: str,
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", module)
    monkeypatch.setenv("PATH", path)
    run_sweep(cells[:2], store=tmp_path, simulate=shifted)

    with pytest.raises(SimulationError, match=r"^--engine slurm needs --store FOLDER"):
        run_sweep(cells, store=None, engine="slurm", simulate=shifted)
    with pytest.raises(SimulationError, match=message):
        run_sweep(cells, store=tmp_path, engine="slurm", simulate=shifted)
    assert same(run_sweep(cells[:2], store=tmp_path, engine="slurm", simulate=failing), expected(cells[:2]))
