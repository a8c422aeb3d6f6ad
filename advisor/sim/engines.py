"""Engines that run the cells of a sweep: this process, worker processes on this machine, or jobs on Slurm."""

import logging
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from advisor.backends.installation import how_to_install
from advisor.errors import SimulationError
from advisor.sim.cell import Cell, Progress, Simulate, digest_of, run_cell
from advisor.sim.result import RunResult

if TYPE_CHECKING:
    from submitit import AutoExecutor

# Results with the keys of their cells, in the order in which they finish.
KeyedResults = Generator[tuple[str, RunResult], None, None]

# What a job asks Slurm for unless SBATCH_TIMELIMIT says otherwise.
_TIME_LIMIT_MIN = 24 * 60
# The largest array that slurmctld takes unless MaxArraySize says otherwise.
_MOST_IN_ARRAY = 1000
_POLL_S = 2.0
_ERROR_LINE = re.compile(r"(sbatch: error|[A-Za-z_][\w.]*(Error|Exception)): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A cell for another process; the rows of its trace are in `jobs_file`."""

    cell: Cell
    jobs_file: Path


def run_here(cells: Mapping[str, Cell], simulate: Simulate, progress: Progress | None) -> KeyedResults:
    """Run cells one after the other; `progress` receives the share of the current cell that is done."""
    for key, cell in cells.items():
        yield key, run_cell(cell, simulate, progress)


def run_on_cores(cells: Mapping[str, Cell], simulate: Simulate, workers: int) -> KeyedResults:
    """Run cells in worker processes on this machine; yield the key and the result of each when it is done."""
    from joblib.externals.loky import ProcessPoolExecutor

    with tempfile.TemporaryDirectory(prefix="sadvise-") as folder, _tasks(cells, Path(folder)) as tasks:
        pool = ProcessPoolExecutor(max_workers=workers, initializer=_become_worker)
        running: dict[Future[RunResult], str] = {}
        try:
            for key, task in tasks.items():
                if len(running) == workers:
                    yield from _done(running)
                running[pool.submit(_run_task, task, simulate)] = key
            while running:
                yield from _done(running)
        except BrokenExecutor as err:
            raise SimulationError("a worker died, most likely for want of memory: try fewer --workers") from err
        finally:
            pool.shutdown(wait=True, kill_workers=True)


def run_on_slurm(cells: Mapping[str, Cell], simulate: Simulate, workers: int, folder: Path | None) -> KeyedResults:
    """Run cells as a job array, `workers` at a time; traces and logs go into `folder`, which all nodes must share.

    Partition, account, memory and time limit come from the variables of sbatch, such as SBATCH_PARTITION.
    """
    try:
        import submitit
    except ModuleNotFoundError as err:
        raise SimulationError(
            f"--engine slurm needs submitit: {how_to_install('slurm')}, or take --engine local"
        ) from err
    if folder is None:
        raise SimulationError("--engine slurm needs --store FOLDER, one that every node sees under the same path")
    if not (shutil.which("sbatch") and shutil.which("srun")):
        raise SimulationError("--engine slurm needs sbatch and srun on PATH: run it where jobs are submitted")
    # It writes its warnings to standard output, which is for results.
    logging.getLogger("submitit").setLevel(logging.CRITICAL)
    logs = folder.resolve() / "slurm"
    executor = submitit.AutoExecutor(folder=logs / "%A", cluster="slurm")
    executor.update_parameters(
        name="sadvise", timeout_min=_TIME_LIMIT_MIN, cpus_per_task=1, slurm_array_parallelism=workers
    )
    failures = (submitit.core.utils.UncompletedJobError, submitit.core.utils.FailedSubmissionError)
    with _tasks(cells, folder.resolve() / "traces") as tasks:
        waiting = list(tasks.items())
        try:
            for start in range(0, len(waiting), _MOST_IN_ARRAY):
                yield from _array(executor, waiting[start : start + _MOST_IN_ARRAY], simulate)
        except failures as err:
            raise SimulationError(f"a job on Slurm failed: {_reason(str(err))}: logs are under {logs}") from err


def _array(executor: "AutoExecutor", tasks: Sequence[tuple[str, _Task]], simulate: Simulate) -> KeyedResults:
    """Submit one job array and yield the results of its jobs; cancel the jobs that still run on exit."""
    from submitit.helpers import as_completed

    jobs = executor.map_array(partial(_run_task, simulate=simulate), [task for _, task in tasks])
    keys = {job.job_id: key for job, (key, _) in zip(jobs, tasks, strict=True)}
    try:
        for job in as_completed(jobs, poll_frequency=_POLL_S):
            result = job.result()
            yield keys.pop(job.job_id), result
            # It is kept elsewhere by now, and large.
            job.paths.result_pickle.unlink(missing_ok=True)
    finally:
        for job in jobs:
            if job.job_id in keys:
                job.cancel(check=False)


def _reason(text: str) -> str:
    """Return the line of a submitit message that names the error: the last error in it, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    return errors[-1] if errors else lines[0]


def _done(running: dict[Future[RunResult], str]) -> KeyedResults:
    """Wait until at least one future is done, and remove the done ones from `running`."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()


def _run_task(task: _Task, simulate: Simulate) -> RunResult:
    """Run a cell in another process."""
    trace = replace(task.cell.trace, jobs=np.load(task.jobs_file))
    return run_cell(replace(task.cell, trace=trace), simulate)


def _become_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and exit when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


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
