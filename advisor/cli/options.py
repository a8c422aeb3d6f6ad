"""Defines the options that commands share, alone and in groups, spelled as in squeue; each is also a variable."""

import inspect
import re
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S, WEEK_S
from advisor.errors import OptionsError
from advisor.view.terminal import Output
from advisor.watch.reading import Reading


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options that a command takes as one parameter, which is made of them; they are the parameters of `make`."""

    make: Callable[..., object]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which the options of a group stand in place of the parameter that is made of them."""
    groups: dict[str, tuple[OptionGroup, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        taken = [parameter]
        for mark in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(mark, OptionGroup):
                taken = list(inspect.signature(mark.make).parameters.values())
                groups[parameter.name] = mark, [each.name for each in taken]
        parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in taken]

    @wraps(command)
    def run(**values: Any) -> None:
        for parameter, (group, names) in groups.items():
            values[parameter] = group.make(**{name: values.pop(name) for name in names})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


class Reader(StrEnum):
    """The readers that a user can select."""

    AUTO = "auto"
    TEXT = "text"
    PYSLURM = "pyslurm"


def group(text: str) -> typer.Typer:
    """Return a group of commands with its help."""
    return typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, help=text)


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


_UNITS_S = {"s": 1.0, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S, "w": WEEK_S}
_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])", re.ASCII)


def instant_of(text: str, now: float) -> float:
    """Return the instant in POSIX seconds that `2h` (ago) or `2026-03-01T12:00` (local time) names.

    Raises `OptionsError` for anything else.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - float(ago[1]) * _UNITS_S[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as err:
        raise OptionsError(
            f"--since {text!a}: give a time ago such as 2h or 3d, or one such as 2026-03-01T12:00"
        ) from err


def _live(
    source: Source = None, cluster: Cluster = None, timeout: Timeout = None, config: ConfigFile = None
) -> Reading:
    return Reading(source=source, cluster=cluster, timeout_s=timeout, config=config)


def _any(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
) -> Reading:
    return Reading(snapshot=snapshot, demo=demo, source=source, cluster=cluster, timeout_s=timeout, config=config)


def _several(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Clusters = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
) -> Reading:
    return _any(snapshot, demo, source, cluster, timeout, config)


def _site(cluster: Cluster = None, config: ConfigFile = None) -> Reading:
    return Reading(cluster=cluster, config=config)


# Where a command reads the queue: the live one, also a file or the demo, also of several clusters.
LiveQueue = Annotated[Reading, OptionGroup(_live)]
AnyQueue = Annotated[Reading, OptionGroup(_any)]
SeveralQueues = Annotated[Reading, OptionGroup(_several)]
# Whose configuration and files a command uses that reads no queue.
Site = Annotated[Reading, OptionGroup(_site)]
