"""Engines that run tasks: worker processes on this machine, or jobs on Slurm."""

import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from advisor.backends import process
from advisor.backends.installation import how_to_install
from advisor.errors import SimulationError, SlurmError

if TYPE_CHECKING:
    from submitit import AutoExecutor, Job

Engine = Literal["local", "slurm"]
Task = TypeVar("Task")
Result = TypeVar("Result")
# The keys and results of tasks, in the order in which they finish.
Finished = Generator[tuple[str, Result], None, None]

# What a job asks Slurm for unless SBATCH_TIMELIMIT says otherwise.
_TIME_LIMIT_MIN = 24 * 60
# The largest array that slurmctld takes unless MaxArraySize says otherwise.
_MOST_IN_ARRAY = 1000
_POLL_S = 2.0
# How often slurmctld is asked which jobs are left, and for how long a result can come after its job has left.
_LOOK_S = 30.0
_SETTLE_S = 5.0
_ERROR_LINE = re.compile(r"((sbatch|slurmstepd)[^:]*: error|[A-Za-z_][\w.]*(Error|Exception)): ")


def run_tasks(
    tasks: Mapping[str, Task], run: Callable[[Task], Result], engine: Engine, workers: int, folder: Path
) -> Finished[Result]:
    """Run tasks, `workers` at a time, on this machine or as a job array with its logs in `folder`."""
    if tasks and engine == "slurm":
        yield from run_on_slurm(tasks, run, workers, folder)
    elif tasks:
        yield from run_on_cores(tasks, run, min(workers, len(tasks)))


def run_on_cores(tasks: Mapping[str, Task], run: Callable[[Task], Result], workers: int) -> Finished[Result]:
    """Run tasks in worker processes on this machine; yield the key and the result of each when it is done."""
    from joblib.externals.loky import ProcessPoolExecutor

    pool = ProcessPoolExecutor(max_workers=workers, initializer=become_worker)
    running: dict[Future[Result], str] = {}
    try:
        for key, task in tasks.items():
            if len(running) == workers:
                yield from _done(running)
            running[pool.submit(run, task)] = key
        while running:
            yield from _done(running)
    except BrokenExecutor as err:
        raise SimulationError("a worker died, most likely for want of memory: try fewer --workers") from err
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def run_on_slurm(
    tasks: Mapping[str, Task], run: Callable[[Task], Result], workers: int, folder: Path
) -> Finished[Result]:
    """Run tasks as a job array, `workers` at a time; logs go into `folder`, which all nodes must share.

    Partition, account, memory and time limit come from the variables of sbatch, such as SBATCH_PARTITION. Raises
    `SimulationError` where a task fails, and at the end where jobs were killed.
    """
    _require_slurm()
    import submitit

    # It writes its warnings to standard output, which is for results.
    logging.getLogger("submitit").setLevel(logging.CRITICAL)
    logs = folder.resolve() / "slurm"
    executor = submitit.AutoExecutor(folder=logs / "%A", cluster="slurm")
    executor.update_parameters(
        name="sadvise", timeout_min=_TIME_LIMIT_MIN, cpus_per_task=1, slurm_array_parallelism=workers
    )
    failures = (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError)
    waiting, lost = list(tasks.items()), list["Job[Result]"]()
    try:
        for start in range(0, len(waiting), _MOST_IN_ARRAY):
            yield from _array(executor, waiting[start : start + _MOST_IN_ARRAY], run, lost)
    except failures as err:
        raise SimulationError(f"a job on Slurm failed: {_reason(str(err))}: logs are under {logs}") from err
    if lost:
        why = _reason(lost[0].stderr() or "no word of the reason")
        raise SimulationError(
            f"{len(lost)} of {len(waiting)} jobs on Slurm ended without a result, the first with: {why}: the same "
            f"command runs these again; logs are under {logs}"
        )


def _require_slurm() -> None:
    """Raise `SimulationError` where tasks cannot be submitted to Slurm."""
    try:
        import submitit  # noqa: F401
    except ModuleNotFoundError as err:
        raise SimulationError(
            f"--engine slurm needs submitit: {how_to_install('slurm')}, or take --engine local"
        ) from err
    if not (shutil.which("sbatch") and shutil.which("srun")):
        raise SimulationError("--engine slurm needs sbatch and srun on PATH: run it where jobs are submitted")


def _array(
    executor: "AutoExecutor",
    tasks: Sequence[tuple[str, Task]],
    run: Callable[[Task], Result],
    lost: "list[Job[Result]]",
) -> Finished[Result]:
    """Submit one job array and yield the results of its jobs; cancel what is left of it on exit.

    A job that leaves the queue without a result, as one that was killed, joins the `lost`; the others go on.
    """
    jobs = executor.map_array(partial(_run_in_job, run), [task for _, task in tasks])
    array, _, _ = jobs[0].job_id.partition("_")
    waiting = {job.job_id: (key, job) for job, (key, _) in zip(jobs, tasks, strict=True)}
    gone, looked_time = frozenset[str](), time.monotonic()
    try:
        while waiting:
            for job_id, (key, job) in list(waiting.items()):
                if job.paths.result_pickle.exists():
                    result = job.result()
                    del waiting[job_id]
                    yield key, result
                    # It is kept elsewhere by now, and large.
                    job.paths.result_pickle.unlink(missing_ok=True)
                elif job_id in gone:
                    lost.append(waiting.pop(job_id)[1])
            if waiting:
                time.sleep(_POLL_S)
            if waiting and time.monotonic() - looked_time >= _LOOK_S:
                gone, looked_time = _gone(waiting, array, jobs[0].paths.folder), time.monotonic()
    finally:
        # One whose node died can wait to run again although its result is there; others with a result are ending.
        with suppress(SlurmError):
            process.run(["scancel", *([] if waiting else ["--state=PENDING"]), array], timeout_s=_LOOK_S)


def _run_in_job(run: Callable[[Task], Result], task: Task) -> Result:
    """Run a task in a job, which Slurm kills at its time limit; submitit would have it begin again without end."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    return run(task)


def _gone(waiting: Collection[str], array: str, folder: Path) -> frozenset[str]:
    """Return which jobs of an array have left the queue; none where slurmctld does not answer."""
    argv = ["squeue", "--noheader", "--array", "--format=%i", "--jobs", array]
    try:
        queued = process.run(argv, timeout_s=_LOOK_S).output.decode().split()
    except SlurmError as err:
        # slurmctld forgets an array some minutes after its end.
        if "Invalid job id" not in str(err):
            return frozenset()
        queued = []
    gone = frozenset(waiting) - frozenset(queued)
    if gone:
        # Their last results can still be on the way from another machine; listing a shared folder reads it again.
        time.sleep(_SETTLE_S)
        list(folder.iterdir())
    return gone


def _reason(text: str) -> str:
    """Return the line of a submitit message that names the error: the last error in it, else its first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    return errors[-1] if errors else lines[0]


def _done(running: dict[Future[Result], str]) -> Finished[Result]:
    """Wait until at least one future is done, and remove the done ones from `running`."""
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()


def become_worker() -> None:
    """Ignore Ctrl-C, which the parent handles, and exit when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)
