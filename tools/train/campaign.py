"""Campaigns: many training runs at once, over cores or over machines, each in its own folder."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from advisor.sim.study.engines import require_slurm, run_on_cores, run_on_slurm
from advisor.sim.study.sweep import Engine
from advisor.text import escaped
from tools.train.planned import PlannedRun, begun, complete


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended: with its least figure in validation, or with an error in one line."""

    figure: float
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    planned: PlannedRun
    folder: Path


def unfinished(runs: Mapping[str, PlannedRun], out: Path) -> dict[str, PlannedRun]:
    """Return the runs which are not over in their folders; raises `ConfigError` where a folder holds another run."""
    return {
        name: planned
        for name, planned in runs.items()
        if not (out / name / "run.ckpt").exists() or not begun(planned, out / name).is_over
    }


def run_campaign(
    runs: Mapping[str, PlannedRun], out: Path, *, engine: Engine = "local", workers: int = 1
) -> Iterator[tuple[str, RunEnd]]:
    """Train runs, `workers` at a time, each in its folder in `out`; yield the name and the end of each as it ends.

    A run that fails does not stop the others. All of them go on from their checkpoints when they are run again. Raises
    `SimulationError` where the engine fails.
    """
    jobs = {name: _Job(planned=planned, folder=out.resolve() / name) for name, planned in runs.items()}
    if not jobs:
        return
    if engine == "slurm":
        require_slurm()
        finished = run_on_slurm(jobs, _run, workers, out)
    else:
        finished = run_on_cores(jobs, _run, min(workers, len(jobs)))
    with closing(finished):
        yield from finished


def _run(job: _Job) -> RunEnd:
    """Train a run to its end in another process."""
    try:
        run = complete(job.planned, job.folder, lambda *_: None)
    except Exception as err:
        return RunEnd(figure=float("nan"), error=f"{type(err).__name__}: {escaped(str(err))}")
    return RunEnd(figure=run.best)
