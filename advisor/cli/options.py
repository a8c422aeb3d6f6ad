"""Defines the options that commands share, spelled as in squeue; each is also an environment variable."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from advisor.cli.option_groups import OptionGroup
from advisor.errors import OptionsError
from advisor.view.terminal import Output


class Reader(StrEnum):
    """The readers that a user can select."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    PYSLURM = "pyslurm"


READING: Final = "Source"
# In place of a file of sacct: run it, by default for the jobs of three months.
LIVE: Final = "live"
RECENT: Final = "now-90days"
FILTERS: Final = "Filters"
OUTPUT: Final = "Output"


def option(usage: str, text: str, panel: str | None = None, **settings: Any) -> Any:
    """Return an option that is used as `-u --user LIST` states, with its help, below a heading of that."""
    names = [word for word in usage.split() if word.startswith("-")]
    metavar = next((word for word in usage.split() if not word.startswith("-")), None)
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **settings)


def shared(usage: str, text: str, panel: str | None = None, *, prefix: str = "SADVISE", **settings: Any) -> Any:
    """Return an option that is also the environment variable of its long name."""
    long = next(word for word in usage.split() if word.startswith("--"))
    return option(usage, text, panel, envvar=f"{prefix}_{long[2:].upper()}", **settings)


_CLUSTER_VARIABLES: Final = ["SADVISE_CLUSTERS", "SLURM_CLUSTERS"]

SnapshotFile = Annotated[
    Path | None,
    shared("--snapshot FILE", "Read a snapshot file instead of the live queue; - reads standard input.", READING),
]
JournalFile = Annotated[
    Path | None, shared("--journal FILE", "Journal file, instead of the configuration's journal.file.", READING)
]
Demo = Annotated[bool, option("--demo", "Use the queue that ships with sadvise; needs no Slurm.", READING)]
Source = Annotated[Reader | None, shared("--source", "Select the reader of the live queue.", READING)]
Cluster = Annotated[
    str | None,
    option(
        "-M --clusters NAME",
        "Another cluster known to slurmdbd; one at a time.",
        READING,
        envvar=_CLUSTER_VARIABLES,
    ),
]
Clusters = Annotated[
    str | None,
    option(
        "-M --clusters NAMES",
        "Read other clusters known to slurmdbd: NAME, a list, or all that have a file in /etc/sadvise/clusters.",
        READING,
        envvar=_CLUSTER_VARIABLES,
    ),
]
Timeout = Annotated[float | None, shared("--timeout SECONDS", "Time limit of a Slurm command.", READING, min=0.1)]
Since = Annotated[
    str, option("--since TIME", "With live: start time, as for sacct -S: 2026-01-31, now-90days or now-12hours.")
]
ConfigFile = Annotated[
    Path | None, shared("--config FILE", "Configuration file, instead of /etc/sadvise/sadvise.toml.")
]


def _one_format(context: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    """Return the value of --json or -P; raises `OptionsError` where both are given."""
    other = "parsable" if param.name == "json" else "json"
    if value and context.params.get(other):
        raise OptionsError("--json excludes -P: give one")
    return value


Json = Annotated[bool, option("--json", "Print JSON, versioned in meta.schema.", OUTPUT, callback=_one_format)]
Parsable = Annotated[
    bool, option("-P --parsable2", "Print fields separated by |, without a trailing one.", OUTPUT, callback=_one_format)
]
NoHeader = Annotated[bool, option("-h --noheader", "Omit the header.", OUTPUT)]


def _output(json: Json = False, parsable: Parsable = False, noheader: NoHeader = False) -> Output:
    return Output(json=json, parsable=parsable, noheader=noheader)


# The form in which a command prints a document and its rows.
Form = Annotated[Output, OptionGroup(_output)]
