"""Run the cells of a sweep, traces times policies times seeds: each once, with its result stored at once."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

from advisor.sim.cell import Cell, Progress, Simulate, keys_of, simulate_cell
from advisor.sim.engines import KeyedResults, run_here, run_on_cores, run_on_slurm
from advisor.sim.result import RunResult
from advisor.sim.result_store import Store

Engine = Literal["local", "slurm"]


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
        raise SweepInterrupted(kept=0 if keeper is None else len(results), cells=len(set(keys))) from err
    return [_renamed(results[key], cell) for key, cell in zip(keys, cells, strict=True)]


def _finished(
    todo: Mapping[str, Cell],
    engine: Engine,
    workers: int,
    store: Path | None,
    simulate: Simulate,
    progress: Progress,
) -> KeyedResults:
    """Yield cells as they finish."""
    if not todo or (engine == "local" and min(workers, len(todo)) == 1):
        return run_here(todo, simulate, progress)
    if engine == "slurm":
        return run_on_slurm(todo, simulate, workers, store)
    return run_on_cores(todo, simulate, min(workers, len(todo)))


def _renamed(result: RunResult, cell: Cell) -> RunResult:
    """Return a result under the current name of its trace."""
    return replace(result, summary=replace(result.summary, trace=cell.trace.name))
