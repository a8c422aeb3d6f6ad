"""`sadvise import`: convert the workloads of other programs and data sets into traces."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from advisor.sim.importing.collect import Imported
    from advisor.sim.trace import Trace


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
    source: Annotated[Path, typer.Argument(metavar="IN", help="Input file, plain or gzip; - is standard input.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="OUT", help="Output file; - is standard output, .gz compresses."),
    ],
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows instead of refusing the file.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", min=0, help="Draw columns that the source lacks at random, from this seed."
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Name of the trace instead of the file's.")] = "",
    gpus_per_node: Annotated[
        int,
        typer.Option(
            "--gpus-per-node", metavar="N", min=1, help="With --seed: node counts of jobs with a fixed node count."
        ),
    ] = 8,
    cpu_jobs: Annotated[
        bool, typer.Option("--cpu-jobs", help="sacct: keep jobs without GPUs, which are left out otherwise.")
    ] = False,
    virtual_cluster: Annotated[
        str | None, typer.Option("--vc", metavar="NAME", help="philly: only this virtual cluster.")
    ] = None,
) -> None:
    """Convert accounting or a published workload into a trace that sadvise can replay, starting at 0.

    Bad rows are named by their lines. docs/traces.md has the command that writes each format.
    """
    from advisor.files import STANDARD_STREAM
    from advisor.sim.importing.formats import import_trace
    from advisor.sim.importing.workload_rows import ImportOptions
    from advisor.sim.trace_file import write_trace
    from advisor.view.lines import one_line

    options = ImportOptions(virtual_cluster=virtual_cluster, cpu_jobs=cpu_jobs)
    imported = import_trace(format_.value, source, options=options, name=name, skip_bad=skip_bad)
    trace = imported.trace
    if seed is not None:
        from advisor.sim.profiles import NEUTRAL, load_profiles
        from advisor.sim.sampling import fill

        models = [model for model in load_profiles().names if model != NEUTRAL]
        trace = fill(trace, models, seed, gpus_per_node=gpus_per_node)
    write_trace(trace, output)
    if output != STANDARD_STREAM:
        typer.echo(one_line(f"{output}: {_summary(imported, trace)}"), err=True)


def _summary(imported: "Imported", trace: "Trace") -> str:
    """Say what became of the rows."""
    from advisor.domain.units import plural

    parts = [plural(len(trace), "job")]
    if imported.left_out:
        parts.append("left out " + ", ".join(f"{count} {why}" for why, count in imported.left_out.items()))
    if imported.bad.count:
        parts.append(imported.bad.in_words())
    if trace.sampled:
        drawn = "" if trace.seed is None else f" (seed {trace.seed})"
        parts.append(f"not from the source: {', '.join(trace.sampled)}{drawn}")
    return "; ".join(parts)
