"""The options of `simulate` and `compare`; those that they share are declared once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

RUNS = "What is simulated"
SWEEP = "How the runs are spread"


class Execution(StrEnum):
    """How true run times come about."""

    MEASURED = "measured"
    IDEAL = "ideal"


class Spread(StrEnum):
    """Where the runs of a comparison run."""

    LOCAL = "local"
    SLURM = "slurm"


TraceFile = Annotated[Path | None, typer.Argument(metavar="TRACE", help="A trace, CSV as written by `sadvise import`.")]
TraceFiles = Annotated[list[Path], typer.Argument(metavar="TRACE", help="Traces, CSV as written by `sadvise import`.")]
DemoTrace = Annotated[
    bool, typer.Option("--demo", help="Use the trace and the cluster that ship with sadvise.", rich_help_panel=RUNS)
]
ClusterText = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="FILE|SHORT",
        envvar="SADVISE_SIM_CLUSTER",
        help="A cluster file, or a short form such as nodes=64,gpus=8,leaf=8.",
        rich_help_panel=RUNS,
    ),
]
ClusterTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        metavar="FILE|SHORT",
        envvar="SADVISE_SIM_CLUSTER",
        help="A cluster file, or a short form such as nodes=64,gpus=8,leaf=8; one for all, or one for each trace.",
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
        help="What is drawn at random is drawn from it.",
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
        help="Where policies know speeds from: oracle, estimated, or noisy=X for X percent of error.",
        rich_help_panel=RUNS,
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad rows of a trace out, and say so.", rich_help_panel=RUNS)
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        envvar="SADVISE_SIM_WORKERS",
        help="Runs at once. Default: one per core; with --engine slurm 64.",
        rich_help_panel=SWEEP,
    ),
]
SpreadOver = Annotated[
    Spread,
    typer.Option(
        "--engine",
        envvar="SADVISE_SIM_ENGINE",
        help="local: the cores of this machine; slurm: a job array, which takes partition, account, memory and "
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
        help="Keep every finished run there; the same command then goes on where it was interrupted.",
        rich_help_panel=SWEEP,
    ),
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write a report, one self-contained HTML page.")
]
