"""Walks through the first evening of a site, from the package to the report, and writes what was typed and printed.

    python -m tools.live.evening --out docs/first-evening.md

Builds the Debian packages, starts a live cluster with accounting, gives it a past of several users, boots a machine
that installs the packages, and types the commands of `tools.live.walk` there while jobs go on arriving. Needs what the
live tests and `python -m tools.build_packages` need, and root.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Final

from advisor.domain.units import HOUR_S
from advisor.errors import AdvisorError
from advisor.sim.traces.trace_file import read_trace
from tools.live.controller import Prompt, Typed, controller
from tools.live.evening_page import page
from tools.live.past import Past, make_past
from tools.live.present import Present
from tools.live.site import Site
from tools.live.walk import DAEMON, HISTORY, LOOK, QUEUE, SERVICE, WITHOUT_SLURMDBD, WRONG, Step, faults, walk
from tools.live.window import Cut
from tools.live_slurm import LiveCluster, LiveSlurmError
from tools.throwaway_machine import MachineError

NODES: Final = 4
SPEEDUP: Final = 1200.0
JOBS: Final = 220
SITE: Final = Site(release="22.05", nodes=NODES, leaf_nodes=2, speedup=SPEEDUP, nic_gbps=100.0, oversubscription=1.0)
CUT: Final = Cut(seed=1, load=1.3, span_s=0.0, longest_s=48 * HOUR_S, speedup=SPEEDUP, jobs=JOBS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, walk and write the page; return 1 if a command did not do what it should."""
    args = _parser().parse_args(arguments)
    if not os.access(args.out.parent, os.W_OK):
        print(f"evening: --out {args.out}: cannot be written: choose a folder that exists", file=sys.stderr)
        return 1
    try:
        with tempfile.TemporaryDirectory(prefix="sadvise-evening-") as scratch:
            packages = args.packages or _built(Path(scratch) / "packages")
            past, answers = _evening(packages, Path(scratch))
    except (AdvisorError, LiveSlurmError, MachineError) as err:
        print(f"evening: {err}", file=sys.stderr)
        return 1
    args.out.write_text(page(past, CUT, answers), encoding="utf-8")
    found = [*past.faults, *(fault for step, typed in answers for fault in faults(step, typed))]
    for fault in found:
        print(f"FAULT: {fault}")
    return 1 if found else 0


def _built(folder: Path) -> Path:
    """Build the Debian packages of this checkout."""
    argv = [sys.executable, "-m", "tools.build_packages", "--format", "deb", "--out", str(folder)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise MachineError(f"the packages are not built: {answer.stderr.strip()}")
    return folder


def _evening(packages: Path, scratch: Path) -> tuple[Past, list[tuple[Step, Typed]]]:
    """Give a new cluster a past, then type the commands."""
    trace = read_trace(Path(str(files("advisor") / "demo" / "trace.csv")))
    with ExitStack() as stack:
        live = stack.enter_context(SITE.cluster())
        past = make_past(live, SITE, trace, CUT, weeks=1, tell=None)
        print(f"{len(past.trace)} jobs of the past took {past.wall_s:.0f} s", flush=True)
        folder = scratch / "controller"
        folder.mkdir()
        prompt = stack.enter_context(controller(live, packages, folder))
        present = Present(live, past.trace, at_once=30, every_s=5.0)
        answers = []
        for step, typed in _typed(live, prompt, present):
            print(f"{typed.wall_s:6.1f} s  {typed.line}", flush=True)
            answers.append((step, typed))
    return replace(past, faults=(*past.faults, *present.faults)), answers


def _typed(live: LiveCluster, prompt: Prompt, present: Present) -> Iterator[tuple[Step, Typed]]:
    yield from walk(prompt, [*LOOK, *HISTORY])
    with present:
        yield from walk(prompt, [*QUEUE, *SERVICE, *DAEMON])
    yield from walk(prompt, WRONG)
    live.stop_accounting()
    yield from walk(prompt, WITHOUT_SLURMDBD)


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.live.evening", description=description)
    parser.add_argument("--out", type=Path, required=True, help="the page to write")
    parser.add_argument("--packages", type=Path, help="folder of built packages, in place of building them")
    return parser


if __name__ == "__main__":
    sys.exit(main())
