"""How the tools that simulate and write a page begin and end: their command, the file, and what went wrong."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from advisor.errors import AdvisorError, SimulationError
from advisor.sim.sweep import SweepInterrupted

INTERRUPTED = 130


def check_counts(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise `SimulationError` for the first option that is below 1."""
    for name in names:
        if getattr(options, name) < 1:
            raise SimulationError(f"--{name} {getattr(options, name)}: give 1 or more")


def command_of(parser: argparse.ArgumentParser, options: argparse.Namespace, deciding: Sequence[str]) -> str:
    """Return the command that makes a page again, with those of the deciding options that are not at their defaults."""
    given = [
        f"--{name} {getattr(options, name)}" for name in deciding if getattr(options, name) != parser.get_default(name)
    ]
    return " ".join([parser.prog, *given])


def write_page(output: Path | None, text: str) -> None:
    """Write a page to a file, or to the standard output; raises `SimulationError` where that cannot be."""
    if output is None:
        print(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as err:
        raise SimulationError(f"{output}: cannot be written: {err.strerror}") from err


def exit_code_of(work: Callable[[], None]) -> int:
    """Do the work of a tool, say in one line what went wrong, and return the exit code."""
    try:
        work()
    except SweepInterrupted as err:
        print(f"interrupted: {err}", file=sys.stderr)
        return INTERRUPTED
    except AdvisorError as err:
        print(err, file=sys.stderr)
        return 1
    return 0
