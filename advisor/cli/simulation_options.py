"""Defines the options of `simulate`, `compare` and `tune`."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from advisor.cli.options import OUTPUT

RUNS = "What is simulated"
SWEEP = "Parallel runs"
_MOST_SLURM_JOBS: Final = 64


class Execution(StrEnum):
    """The models of true run times."""

    MEASURED = "measured"
    IDEAL = "ideal"


class Spread(StrEnum):
    """The engines that execute the runs of a comparison or of a search."""

    LOCAL = "local"
    SLURM = "slurm"

    def at_once(self, asked: int | None) -> int:
        """Return how many runs go at once: as many as asked, else one per core, or 64 jobs."""
        return asked or (_MOST_SLURM_JOBS if self is Spread.SLURM else len(os.sched_getaffinity(0)))


TraceFile = Annotated[Path | None, typer.Argument(metavar="TRACE", help="A trace, CSV as written by `sadvise import`.")]
TraceFiles = Annotated[list[Path], typer.Argument(metavar="TRACE", help="Traces, CSV as written by `sadvise import`.")]
DemoTrace = Annotated[
    bool, typer.Option("--demo", help="Use the trace and the cluster that ship with sadvise.", rich_help_panel=RUNS)
]
ClusterText = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="live|FILE|SHORT",
        envvar="SADVISE_SIM_CLUSTER",
        help="live, a cluster or snapshot file, or a short form such as nodes=64,gpus=8,leaf=8.",
        rich_help_panel=RUNS,
    ),
]
ClusterTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="live|FILE|SHORT",
        envvar="SADVISE_SIM_CLUSTER",
        help="live, a cluster or snapshot file, or a short form such as nodes=64,gpus=8,leaf=8; one for all, or each.",
        rich_help_panel=RUNS,
    ),
]
PolicyNames = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        envvar="SADVISE_SIM_POLICY",
        help="A policy to simulate; repeat it for more. The others are compared with the first. Default: slurm, rules.",
        rich_help_panel=RUNS,
    ),
]
SimulationSeed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        envvar="SADVISE_SIM_SEED",
        help="Seed of the random draws.",
        rich_help_panel=RUNS,
    ),
]
Seeds = Annotated[
    str,
    typer.Option(
        "--seeds",
        metavar="N|LIST",
        envvar="SADVISE_SIM_SEEDS",
        help="N for the seeds 0 to N-1, or a list such as 3,5 or 10-19.",
        rich_help_panel=RUNS,
    ),
]
FirstJobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        envvar="SADVISE_SIM_JOBS",
        help="Only the first N jobs of a trace.",
        rich_help_panel=RUNS,
    ),
]
ExecutionOf = Annotated[
    Execution,
    typer.Option(
        "--execution",
        envvar="SADVISE_SIM_EXECUTION",
        help="measured: placement and neighbours slow jobs down as measured; ideal: they do not.",
        rich_help_panel=RUNS,
    ),
]
SpeedSource = Annotated[
    str,
    typer.Option(
        "--speeds",
        metavar="SOURCE",
        envvar="SADVISE_SIM_SPEEDS",
        help="Source of the speeds that policies see: oracle, estimated, or noisy=X for X percent of error.",
        rich_help_panel=RUNS,
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Skip bad rows of a trace, with a warning.", rich_help_panel=RUNS)
]
Repeats = Annotated[
    int,
    typer.Option(
        "--repeats",
        metavar="N",
        min=2,
        max=100,
        envvar="SADVISE_SIM_REPEATS",
        help="Number of copies of the trace, each with jobs submitted up to 5 minutes later, that show what is chance.",
        rich_help_panel=RUNS,
    ),
]
VariesSlurm = Annotated[
    bool,
    typer.Option(
        "--slurm/--no-slurm",
        help="Also vary the parameters of slurm.conf, one at a time, without lifts and under the chosen lift.",
        rich_help_panel=RUNS,
    ),
]
ShowsAll = Annotated[
    bool,
    typer.Option("--all", help="Also show what another setting beats in every column.", rich_help_panel=OUTPUT),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        envvar="SADVISE_SIM_WORKERS",
        help="Number of concurrent runs. Default: one per core; with --engine slurm 64.",
        rich_help_panel=SWEEP,
    ),
]
CoreWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        envvar="SADVISE_SIM_WORKERS",
        help="Number of concurrent runs. Default: one per core.",
        rich_help_panel=SWEEP,
    ),
]
SpreadOver = Annotated[
    Spread,
    typer.Option(
        "--engine",
        envvar="SADVISE_SIM_ENGINE",
        help="local: the cores of this machine; slurm: a job array, with partition, account, memory and "
        "time limit from sbatch's variables such as SBATCH_PARTITION.",
        rich_help_panel=SWEEP,
    ),
]
StoreFolder = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        envvar="SADVISE_SIM_STORE",
        help="Folder of finished runs; the same command then resumes after an interruption.",
        rich_help_panel=SWEEP,
    ),
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write a report, one self-contained HTML page.")
]
