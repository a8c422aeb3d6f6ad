"""Holds what programs that play on live clusters have in common: their options, folders, tables and faults."""

import argparse
import tempfile
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tools.stage.roots import RELEASES


def add_release(parser: argparse.ArgumentParser) -> None:
    """Declare the option for the release of Slurm."""
    parser.add_argument("--release", choices=list(RELEASES), default="22.05", help="default: %(default)s")


def add_play(parser: argparse.ArgumentParser, *, minutes: float, interval_s: float) -> None:
    """Declare the options for the length of a run, the time between rounds of the daemon, and the seed."""
    parser.add_argument("--minutes", type=float, default=minutes, help="default: %(default)s")
    parser.add_argument(
        "--interval", type=float, default=interval_s, help="seconds between rounds, default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")


def kept_folder(keep: Path | None) -> AbstractContextManager[str]:
    """Return a new folder that is kept, or one that is removed at the end of the block where none is named."""
    if keep is None:
        return tempfile.TemporaryDirectory()
    keep.mkdir(parents=True)
    return nullcontext(str(keep))


def print_figures(rows: Iterable[tuple[str, object]]) -> None:
    """Print one figure on a line, behind its name."""
    for name, value in rows:
        print(f"{name:<58}{value:>12}")


def print_faults(faults: Iterable[str]) -> None:
    """Print one fault on a line."""
    for fault in faults:
        print(f"FAULT: {fault}")


def summed_up(about: str, minutes: float, seed: int, faults: int) -> str:
    """Return the last line of a run: on what it was, for how long, from which seed, and its faults."""
    return f"{about}, {minutes:g} minutes, seed {seed}: {faults} faults"
