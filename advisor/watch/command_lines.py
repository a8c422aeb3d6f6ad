"""Spells the command that does what a person asks of a live view, with the options that select the same cluster."""

import shlex
from pathlib import Path

from advisor.watch.reading import Reading


def command_line(reading: Reading, journal: Path | None, name: str, *arguments: str) -> str:
    """Return a command line; `pause` and `resume` ask Slurm nothing, and name no journal."""
    asks_slurm = name in ("apply", "revert")
    options: list[str] = []
    if reading.cluster is not None:
        options += ["-M", reading.cluster]
    if reading.config is not None:
        options += ["--config", str(reading.config)]
    if asks_slurm and journal is not None:
        options += ["--journal", str(journal)]
    if asks_slurm and reading.source is not None:
        options += ["--source", str(reading.source)]
    if asks_slurm and reading.timeout_s is not None:
        options += ["--timeout", f"{reading.timeout_s:g}"]
    return shlex.join(["sadvise", name, *arguments, *options])
