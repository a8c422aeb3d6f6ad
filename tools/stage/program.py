"""Holds what programs that play on live clusters share: options, folders, the passing of time, tables and faults."""

import argparse
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
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


class Every:
    """Says when something that is done every few seconds is due."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due_s = float("-inf")

    def is_due(self, passed_s: float) -> bool:
        """Return whether it is due, and if so begin to wait for the next time."""
        if passed_s < self._due_s:
            return False
        self._due_s = passed_s + self._seconds
        return True


def passing(length_s: float, poll_s: float, process: "subprocess.Popen[bytes] | None" = None) -> Iterator[float]:
    """Yield the seconds passed so far, with a pause after each, until a time is over or a process has ended."""
    began = time.monotonic()
    while (passed_s := time.monotonic() - began) < length_s:
        if process is not None and process.poll() is not None:
            return
        yield passed_s
        time.sleep(poll_s)
