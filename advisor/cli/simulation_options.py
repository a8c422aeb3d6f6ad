"""Defines the options of `simulate`, `compare` and `tune`."""

import os
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from advisor.cli.options import LIVE, OUTPUT, RECENT, OptionGroup, Since, option, shared
from advisor.domain.dataclass import dataclass
from advisor.errors import OptionsError

RUNS = "What is simulated"
SWEEP = "Parallel runs"
_MOST_SLURM_JOBS: Final = 64
_DEMO_CLUSTER: Final = "nodes=16,gpus=8,leaf=4"


class Execution(StrEnum):
    """The models of true run times."""

    MEASURED = "measured"
    IDEAL = "ideal"


class RequestsMade(StrEnum):
    """The ways to draw requests that a trace lacks."""

    USUAL = "usual"
    OPEN = "open"
    INTERACTIVE = "interactive"


class Spread(StrEnum):
    """The engines that execute the runs of a comparison or of a search."""

    LOCAL = "local"
    SLURM = "slurm"

    def at_once(self, asked: int | None) -> int:
        """Return how many runs go at once: as many as asked, else one per core, or 64 jobs."""
        return asked or (_MOST_SLURM_JOBS if self is Spread.SLURM else len(os.sched_getaffinity(0)))


_simulated = partial(shared, prefix="SADVISE_SIM")

TraceFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="TRACE", help="A trace, CSV as written by `sadvise import`; live: this site's accounting and cluster."
    ),
]
TraceFiles = Annotated[list[Path], typer.Argument(metavar="TRACE", help="Traces, CSV as written by `sadvise import`.")]
DemoTrace = Annotated[bool, option("--demo", "Use the trace and the cluster that ship with sadvise.", RUNS)]
ClusterText = Annotated[
    str | None,
    _simulated(
        "--cluster live|FILE|SHORT",
        "live, a cluster or snapshot file, or a short form such as nodes=64,gpus=8,leaf=8.",
        RUNS,
    ),
]
ClusterTexts = Annotated[
    list[str] | None,
    _simulated(
        "--cluster live|FILE|SHORT",
        "live, a cluster or snapshot file, or a short form such as nodes=64,gpus=8,leaf=8; one for all, or each.",
        RUNS,
    ),
]
PolicyNames = Annotated[
    list[str] | None,
    _simulated(
        "--policy NAME",
        "A policy to simulate; repeat it for more. The others are compared with the first. Default: slurm, rules.",
        RUNS,
    ),
]
SimulationSeed = Annotated[int, _simulated("--seed N", "Seed of the random draws.", RUNS, min=0)]
Seeds = Annotated[str, _simulated("--seeds N|LIST", "N for the seeds 0 to N-1, or a list such as 3,5 or 10-19.", RUNS)]
FirstJobs = Annotated[int | None, _simulated("--jobs N", "Only the first N jobs of a trace.", RUNS, min=1)]
ExecutionOf = Annotated[
    Execution,
    _simulated(
        "--execution", "measured: placement and neighbours slow jobs down as measured; ideal: they do not.", RUNS
    ),
]
DrawnRequests = Annotated[
    RequestsMade,
    _simulated(
        "--requests",
        "How requests that a trace lacks are drawn. usual: as in public job scripts; open: more gangs leave node "
        "counts and sizes open; interactive: as usual, and 5 % of the jobs are interactive.",
        RUNS,
    ),
]
SpeedSource = Annotated[
    str,
    _simulated(
        "--speeds SOURCE",
        "Source of the speeds that policies see: oracle, estimated, or noisy=X for X percent of error.",
        RUNS,
    ),
]
SkipBad = Annotated[bool, option("--skip-bad", "Skip bad rows of a trace, with a warning.", RUNS)]
Repeats = Annotated[
    int,
    _simulated(
        "--repeats N",
        "Number of copies of the trace, each with jobs submitted up to 5 minutes later, that show what is chance.",
        RUNS,
        min=2,
        max=100,
    ),
]
VariesSlurm = Annotated[
    bool,
    option(
        "--slurm/--no-slurm",
        "Also vary the parameters of slurm.conf, one at a time, without lifts and under the chosen lift.",
        RUNS,
    ),
]
ShowsAll = Annotated[bool, option("--all", "Also show what another setting beats in every column.", OUTPUT)]
Workers = Annotated[
    int | None,
    _simulated(
        "--workers N", "Number of concurrent runs. Default: one per core; with --engine slurm 64.", SWEEP, min=1
    ),
]
CoreWorkers = Annotated[
    int | None, _simulated("--workers N", "Number of concurrent runs. Default: one per core.", SWEEP, min=1)
]
SpreadOver = Annotated[
    Spread,
    _simulated(
        "--engine",
        "local: the cores of this machine; slurm: a job array, with partition, account, memory and "
        "time limit from sbatch's variables such as SBATCH_PARTITION.",
        SWEEP,
    ),
]
StoreFolder = Annotated[
    Path | None,
    _simulated(
        "--store FOLDER", "Folder of finished runs; the same command then resumes after an interruption.", SWEEP
    ),
]
Report = Annotated[Path | None, option("--report FILE", "Also write a report, one self-contained HTML page.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneTrace:
    """The trace to replay, and the text of its cluster; `words` name the trace on a command line.

    `since` is from when accounting is read, as for sacct -S; None for a file.
    """

    path: Path
    cluster: str
    words: Sequence[str]
    is_demo: bool
    since: str | None = None

    @property
    def pair(self) -> tuple[Path, str]:
        """The trace with its cluster."""
        return self.path, self.cluster


def _one_trace(
    trace: TraceFile = None, demo: DemoTrace = False, cluster: ClusterText = None, since: Since = RECENT
) -> OneTrace:
    """Raise `OptionsError` unless a trace with its cluster, the site, or the demo is given."""
    if demo == (trace is not None):
        raise OptionsError("give either a TRACE or --demo")
    if str(trace) == LIVE:
        words = [LIVE, *(["--since", since] if since != RECENT else [])]
        return OneTrace(path=Path(LIVE), cluster=cluster or LIVE, words=words, is_demo=False, since=since)
    if since != RECENT:
        raise OptionsError("--since is for the accounting of this site: give live in place of a trace, or leave it out")
    if cluster is None and not demo:
        raise OptionsError("--cluster is missing: give live, a file, or a short form such as nodes=64,gpus=8,leaf=8")
    path = Path(str(files("advisor") / "demo" / "trace.csv")) if trace is None else trace
    words = ["--demo"] if trace is None else [str(trace)]
    return OneTrace(path=path, cluster=cluster or _DEMO_CLUSTER, words=words, is_demo=demo)


Replayed = Annotated[OneTrace, OptionGroup(_one_trace)]
