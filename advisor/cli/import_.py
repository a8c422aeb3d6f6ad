"""`sadvise import`: convert the workloads of other programs and data sets into traces."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.options import LIVE, RECENT, Cluster, Since, Timeout, option
from advisor.cli.simulation_options import RequestsMade
from advisor.cli.site_history import accounting_commands
from advisor.domain.units import plural
from advisor.errors import OptionsError
from advisor.files import STANDARD_STREAM
from advisor.sim.profiles import NEUTRAL, load_profiles
from advisor.sim.traces.importing.formats import Imported, Reader, import_trace
from advisor.sim.traces.importing.sacct import asked_rows
from advisor.sim.traces.importing.workload_rows import ImportOptions
from advisor.sim.traces.sampling import REQUESTS, fill
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import write_trace
from advisor.text import one_line


class TraceFormat(StrEnum):
    """The formats that can be imported."""

    SACCT = "sacct"
    SWF = "swf"
    ITP = "itp"
    PHILLY = "philly"
    DRAC = "drac"
    POLLUX = "pollux"
    MURI = "muri"


def import_(
    format_: Annotated[TraceFormat, typer.Argument(metavar="FORMAT", help="What wrote IN.")],
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="Input file, plain or gzip; - is standard input; sacct: live runs it."),
    ],
    output: Annotated[Path, option("-o --output OUT", "Output file; - is standard output, .gz compresses.")],
    skip_bad: Annotated[bool, option("--skip-bad", "Skip bad rows instead of refusing the file.")] = False,
    seed: Annotated[
        int | None, option("--seed N", "Draw columns that the source lacks at random, from this seed.", min=0)
    ] = None,
    name: Annotated[str, option("--name TEXT", "Name of the trace instead of the file's.")] = "",
    gpus_per_node: Annotated[
        int, option("--gpus-per-node N", "With --seed: node counts of jobs with a fixed node count.", min=1)
    ] = 8,
    requests: Annotated[
        RequestsMade,
        option(
            "--requests",
            "With --seed: how requests are drawn. usual: as in public job scripts; open: more gangs leave node counts "
            "and sizes open.",
        ),
    ] = RequestsMade.USUAL,
    cpu_jobs: Annotated[
        bool, option("--cpu-jobs", "sacct: keep jobs without GPUs, which are left out otherwise.")
    ] = False,
    virtual_cluster: Annotated[str | None, option("--vc NAME", "philly: only this virtual cluster.")] = None,
    since: Since = RECENT,
    cluster: Cluster = None,
    timeout: Timeout = None,
) -> None:
    """Convert accounting or a published workload into a trace that sadvise can replay, starting at 0.

    sadvise import sacct live -o history.csv asks this site's own accounting. Bad rows are named by their lines.
    docs/traces.md has the command that writes a file of each format.
    """
    is_live = str(source) == LIVE and format_ is TraceFormat.SACCT
    if since != RECENT and not is_live:
        raise OptionsError("--since is for `sadvise import sacct live`: leave it out")
    read = _asked(since, cluster, timeout) if is_live else None
    options = ImportOptions(virtual_cluster=virtual_cluster, cpu_jobs=cpu_jobs)
    imported = import_trace(format_.value, source, options=options, name=name, skip_bad=skip_bad, read=read)
    trace = imported.trace
    if seed is not None:
        models = [model for model in load_profiles().names if model != NEUTRAL]
        trace = fill(trace, models, seed, gpus_per_node=gpus_per_node, requests=REQUESTS[requests.value])
    write_trace(trace, output)
    if output != STANDARD_STREAM:
        typer.echo(one_line(f"{output}: {_summary(imported, trace)}"), err=True)
        if is_live:
            ready = f"{shlex.quote(str(output))} --cluster live"
            typer.echo(f"next: sadvise simulate {ready}; sadvise tune {ready}", err=True)


def _asked(since: str, cluster: str | None, timeout_s: float | None) -> Reader:
    """Return what asks the accounting of this site, or of another cluster, for all jobs since a time."""
    return asked_rows(accounting_commands(cluster, timeout_s), since=since)


def _summary(imported: Imported, trace: Trace) -> str:
    """Say what became of the rows."""
    parts = [plural(len(trace), "job")]
    if imported.left_out:
        parts.append("left out " + ", ".join(f"{count} {why}" for why, count in imported.left_out.items()))
    if imported.bad.count:
        parts.append(imported.bad.in_words())
    if trace.sampled:
        drawn = "" if trace.seed is None else f" (seed {trace.seed})"
        parts.append(f"not from the source: {', '.join(trace.sampled)}{drawn}")
    return "; ".join(parts)
