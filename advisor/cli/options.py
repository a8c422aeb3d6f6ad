"""Defines the options that commands share, spelled as in squeue; each is also an environment variable."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import OptionsError


class Reader(StrEnum):
    """The readers that a user can select."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    PYSLURM = "pyslurm"


READING = "Source"
# In place of a file of sacct: run it, by default for the jobs of three months.
LIVE = "live"
RECENT = "now-90days"
FILTERS = "Filters"
OUTPUT = "Output"

SnapshotFile = Annotated[
    Path | None,
    typer.Option(
        "--snapshot",
        metavar="FILE",
        envvar="SADVISE_SNAPSHOT",
        help="Read a snapshot file instead of the live queue; - reads standard input.",
        rich_help_panel=READING,
    ),
]
JournalFile = Annotated[
    Path | None,
    typer.Option(
        "--journal",
        metavar="FILE",
        envvar="SADVISE_JOURNAL",
        help="Journal file, instead of the configuration's journal.file.",
        rich_help_panel=READING,
    ),
]
Demo = Annotated[
    bool,
    typer.Option("--demo", help="Use the queue that ships with sadvise; needs no Slurm.", rich_help_panel=READING),
]
Source = Annotated[
    Reader | None,
    typer.Option(
        "--source", envvar="SADVISE_SOURCE", help="Select the reader of the live queue.", rich_help_panel=READING
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "-M",
        "--clusters",
        metavar="NAME",
        envvar=["SADVISE_CLUSTERS", "SLURM_CLUSTERS"],
        help="Another cluster known to slurmdbd; one at a time.",
        rich_help_panel=READING,
    ),
]
Clusters = Annotated[
    str | None,
    typer.Option(
        "-M",
        "--clusters",
        metavar="NAMES",
        envvar=["SADVISE_CLUSTERS", "SLURM_CLUSTERS"],
        help="Read other clusters known to slurmdbd: NAME, a list, or all that have a file in /etc/sadvise/clusters.",
        rich_help_panel=READING,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        envvar="SADVISE_TIMEOUT",
        help="Time limit of a Slurm command.",
        rich_help_panel=READING,
    ),
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="TIME", help="With live: start time, as for sacct -S: 2026-01-31, now-90days or now-12hours."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        envvar="SADVISE_CONFIG",
        help="Configuration file, instead of /etc/sadvise/sadvise.toml.",
    ),
]

Partitions = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--partition",
        metavar="LIST",
        envvar="SADVISE_PARTITION",
        help="Only jobs of these partitions.",
        rich_help_panel=FILTERS,
    ),
]
Users = Annotated[
    str | None,
    typer.Option(
        "-u", "--user", metavar="LIST", envvar="SADVISE_USER", help="Only jobs of these users.", rich_help_panel=FILTERS
    ),
]
Accounts = Annotated[
    str | None,
    typer.Option(
        "-A",
        "--account",
        metavar="LIST",
        envvar="SADVISE_ACCOUNT",
        help="Only jobs of these accounts.",
        rich_help_panel=FILTERS,
    ),
]
Jobs = Annotated[
    str | None,
    typer.Option(
        "-j",
        "--jobs",
        metavar="LIST",
        envvar="SADVISE_JOBS",
        help="Only these jobs: 123, 123_4, 123_[1-9] or 123+1.",
        rich_help_panel=FILTERS,
    ),
]
Nodes = Annotated[
    str | None,
    typer.Option(
        "-w",
        "--nodelist",
        metavar="HOSTLIST",
        envvar="SADVISE_NODELIST",
        help="Only jobs whose partitions contain one of these nodes.",
        rich_help_panel=FILTERS,
    ),
]


def _one_format(context: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    """Return the value of --json or -P; raises `OptionsError` where both are given."""
    other = "parsable" if param.name == "json" else "json"
    if value and context.params.get(other):
        raise OptionsError("--json excludes -P: give one")
    return value


Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, versioned in meta.schema.", rich_help_panel=OUTPUT, callback=_one_format),
]
Parsable = Annotated[
    bool,
    typer.Option(
        "-P",
        "--parsable2",
        help="Print fields separated by |, without a trailing one.",
        rich_help_panel=OUTPUT,
        callback=_one_format,
    ),
]
NoHeader = Annotated[bool, typer.Option("-h", "--noheader", help="Omit the header.", rich_help_panel=OUTPUT)]
Format = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--format",
        metavar="FIELDS",
        help="Fields as a comma separated list, each with an optional width: job_id,kind:12,text.",
        rich_help_panel=OUTPUT,
    ),
]
