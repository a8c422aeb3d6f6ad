"""Run the cells of a sweep, traces times policies times seeds: each once, with its result stored at once."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.errors import SimulationError
from advisor.sim.study.cell import Cell, Progress, Simulate, digest_of, keys_of, run_cell, simulate_cell
from advisor.sim.study.engines import Engine, Finished, run_tasks
from advisor.sim.study.result import RunResult, Store


class SweepInterrupted(KeyboardInterrupt):
    """The sweep was interrupted; `kept` of its `cells` are in the store."""

    def __init__(self, *, kept: int, cells: int) -> None:
        super().__init__(f"{kept} of {cells} cells are kept")
        self.kept = kept
        self.cells = cells


def run_sweep(
    cells: Sequence[Cell],
    *,
    store: Path | None,
    engine: Engine = "local",
    workers: int = 1,
    simulate: Simulate = simulate_cell,
    progress: Progress | None = None,
) -> list[RunResult]:
    """Run the cells that `store` does not hold yet, and return all results in the order of `cells`.

    `progress` receives the number of cells done; with one worker, plus the share done of the next. Raises
    `SweepInterrupted` on Ctrl-C, and `SimulationError` where a cell fails; what was finished by then is kept.
    """
    # Reading the sources takes a quarter of a second, and only what is kept outlives this program.
    keys = keys_of(cells, program="" if store is None else None)
    keeper = None if store is None else Store(store)
    kept = {} if keeper is None else keeper.load()
    results = {key: kept[key] for key in keys if key in kept}
    todo = {key: cell for key, cell in zip(keys, cells, strict=True) if key not in results}

    def report(share: float = 0.0) -> None:
        if progress is not None:
            progress(len(results) + share)

    report()
    try:
        with closing(_finished(todo, engine, workers, store, simulate, report)) as finished:
            for key, result in finished:
                results[key] = result if keeper is None else keeper.keep(key, result)
                report()
    except KeyboardInterrupt as err:
        # A cell can be in the store before it is among the results.
        stored = 0 if keeper is None else len(keeper.load().keys() & set(keys))
        raise SweepInterrupted(kept=stored, cells=len(set(keys))) from err
    return [_renamed(results[key], cell) for key, cell in zip(keys, cells, strict=True)]


def _finished(
    todo: Mapping[str, Cell],
    engine: Engine,
    workers: int,
    store: Path | None,
    simulate: Simulate,
    progress: Progress,
) -> Finished[RunResult]:
    """Yield the keys and results of cells as they finish; alone in this process, `progress` follows each cell."""
    if not todo or (engine == "local" and min(workers, len(todo)) == 1):
        for key, cell in todo.items():
            yield key, run_cell(cell, simulate, progress)
        return
    if engine == "slurm" and store is None:
        raise SimulationError("--engine slurm needs --store FOLDER, one that every node sees under the same path")
    with tempfile.TemporaryDirectory(prefix="sadvise-") as own:
        folder = store.resolve() if store and engine == "slurm" else Path(own)
        with _tasks(todo, folder / "traces") as tasks:
            yield from run_tasks(tasks, partial(_run_task, simulate=simulate), engine, workers, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A cell for another process; the rows of its trace are in `jobs_file`."""

    cell: Cell
    jobs_file: Path


def _run_task(task: _Task, simulate: Simulate) -> RunResult:
    """Run a cell in another process."""
    trace = replace(task.cell.trace, jobs=np.load(task.jobs_file))
    return run_cell(replace(task.cell, trace=trace), simulate)


@contextmanager
def _tasks(cells: Mapping[str, Cell], folder: Path) -> Iterator[dict[str, _Task]]:
    """Write each trace into `folder` once for the other processes; remove the files when the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[int, Path] = {}
    tasks = {}
    try:
        for key, cell in cells.items():
            trace = cell.trace
            if id(trace) not in files:
                files[id(trace)] = folder / f"{digest_of(trace.jobs)}-{os.getpid()}.npy"
                np.save(files[id(trace)], trace.jobs)
            rowless = replace(cell, trace=replace(trace, jobs=trace.jobs[:0]))
            tasks[key] = _Task(cell=rowless, jobs_file=files[id(trace)])
        yield tasks
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)


def _renamed(result: RunResult, cell: Cell) -> RunResult:
    """Return a result under the current name of its trace."""
    return replace(result, summary=replace(result.summary, trace=cell.trace.name))
