"""The table of formats, and the import of a file in one of them."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from advisor.errors import TraceError
from advisor.files import STANDARD_STREAM
from advisor.sim.traces.importing import drac, itp, muri, philly, pollux, sacct, swf
from advisor.sim.traces.importing.collect import Imported, Reader, collect
from advisor.sim.traces.importing.workload_rows import ImportOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format; `filled` names the columns that our own tables fill in, so that they count as sampled."""

    read: Reader
    sentence: str
    filled: tuple[str, ...] = ()
    takes_virtual_cluster: bool = False
    takes_cpu_jobs: bool = False


FORMATS: Final[Mapping[str, Format]] = {
    "sacct": Format(read=sacct.rows, sentence="Slurm accounting, sacct -P or sacct --json", takes_cpu_jobs=True),
    "swf": Format(read=swf.rows, sentence="standard workload format, processors read as GPUs"),
    "itp": Format(read=itp.rows, sentence="Microsoft ITP clusters of 2021"),
    "philly": Format(read=philly.rows, sentence="Microsoft Philly clusters of 2017", takes_virtual_cluster=True),
    "drac": Format(read=drac.rows, sentence="Slurm jobs of the Digital Research Alliance of Canada"),
    "pollux": Format(read=pollux.rows, sentence="Pollux workloads, run times from a table", filled=("run_time_s",)),
    "muri": Format(read=muri.rows, sentence="Muri traces"),
}


def import_trace(
    format_name: str,
    path: Path,
    *,
    options: ImportOptions | None = None,
    name: str = "",
    skip_bad: bool = False,
    read: Reader | None = None,
) -> Imported:
    """Read a workload in a format of `FORMATS`; `name` names the trace, else the file does.

    With `read`, take the rows from that in place of the file; `path` then only names it.

    Raises `TraceError` where the file cannot be read in this format, or holds bad rows and `skip_bad` is not set.
    """
    wanted = FORMATS.get(format_name)
    if wanted is None:
        raise TraceError(f"format {format_name!a} is not known: choose one of {', '.join(FORMATS)}")
    options = options or ImportOptions()
    if options.virtual_cluster is not None and not wanted.takes_virtual_cluster:
        raise TraceError(f"{path}: {format_name} has no virtual clusters: leave --vc out")
    if options.cpu_jobs and not wanted.takes_cpu_jobs:
        raise TraceError(f"{path}: {format_name} has no jobs without GPUs: leave --cpu-jobs out")
    file_name = "standard input" if path == STANDARD_STREAM else path.name
    own_name = file_name.removesuffix(".gz").rpartition(".")[0] or file_name
    stream = None if read is None else io.StringIO()
    imported = collect(path, read or wanted.read, options, name=name or own_name, skip_bad=skip_bad, stream=stream)
    parts = [
        f"{format_name} {file_name}",
        f"zero is {imported.zero_time:.0f}",
        *([f"virtual cluster {options.virtual_cluster}"] if options.virtual_cluster else []),
        *([imported.bad.in_words()] if imported.bad.count else []),
    ]
    return replace(imported, trace=replace(imported.trace, sampled=wanted.filled, note="; ".join(parts)))
