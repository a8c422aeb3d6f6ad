"""Runs the live clusters that a TOML file names, some at a time, and reports on all of them.

    python -m tools.live.campaign tools/live/campaign.toml --out runs --report

Each run is one of `python -m tools.live.twins` and leaves a folder `NAME-SEED`, with what it printed beside it. Runs
that are there are not made again. `--report` writes `tools/live/results.json` from those that are there, and the
documents that show it.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final, Protocol

from advisor.cli.progress import progress_bar, terminated_as_interrupted
from advisor.errors import AdvisorError, SimulationError
from tools import generate_docs
from tools.data.simulated_traces import add_data_option
from tools.live.arms_report import main as report_main
from tools.live.campaign_plan import LiveRun, read_plan, runs_of
from tools.live.reported import RESULTS

INTERRUPTED: Final = 130
_TWINS: Final = (sys.executable, "-m", "tools.live.twins")


class Starter(Protocol):
    """Runs programs."""

    def run(self, command: Sequence[str], log: Path) -> int:
        """Return the exit code of a program; what it prints goes to a file."""

    def stop(self) -> None:
        """Ask all programs that run to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs that are missing, and the report; return the exit code."""
    args = _parser().parse_args(arguments)
    try:
        if args.parallel < 0:
            raise SimulationError(f"--parallel {args.parallel}: give 1 or more, or 0 to make no run")
        planned = list(runs_of(read_plan(args.file), args.out))
        data = () if args.data is None else ("--data", str(args.data))
        with terminated_as_interrupted():
            failed = make(planned, Processes(), parallel=args.parallel, more=data)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return INTERRUPTED
    except AdvisorError as err:
        print(f"live campaign: {err}", file=sys.stderr)
        return err.exit_code
    for message in failed:
        print(f"FAILED: {message}", file=sys.stderr)
    if args.report:
        return report(planned) or int(bool(failed))
    return int(bool(failed))


def make(runs: Sequence[LiveRun], starter: Starter, *, parallel: int, more: Sequence[str] = ()) -> list[str]:
    """Make the runs that are missing, and return a sentence for each that fails; `more` are options of all.

    With `parallel` 0 none is made.
    """
    if not parallel:
        return []
    missing = [run for run in runs if not run.is_there]
    failed: list[str] = []
    with progress_bar(len(runs), "runs") as tell, ThreadPoolExecutor(parallel) as pool:
        jobs = {pool.submit(_made, run, starter, more): run for run in missing}
        try:
            for done, job in enumerate(as_completed(jobs), start=1):
                failed += job.result()
                if tell is not None:
                    tell(len(runs) - len(missing) + done)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            starter.stop()
            raise
    return sorted(failed)


def _made(run: LiveRun, starter: Starter, more: Sequence[str]) -> list[str]:
    """Make a run; one that ended with faults is there all the same, for its jobs were kept."""
    log = run.folder.with_name(f"{run.folder.name}.log")
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    if run.folder.exists():
        return [f"{run.folder}: left by a run that was killed, or that still goes on: remove it, then run again"]
    code = starter.run([*_TWINS, *run.options, *more, f"--out={run.folder}"], log)
    if not run.is_there:
        shutil.rmtree(run.folder, ignore_errors=True)
        code = code or 1
    return [f"{run.folder.name}: exit code {code}: see {log}"] if code else []


class Processes:
    """Programs as processes, each in a session of its own: Ctrl-C reaches it once, from here."""

    def __init__(self) -> None:
        """Begin with none."""
        # A shell without job control starts what runs in the background with SIGINT ignored, and programs inherit that.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._running: list[subprocess.Popen[bytes]] = []
        self._is_stopped = False
        # Held while a program starts: a stop in between would not reach it.
        self._lock = threading.Lock()

    def run(self, command: Sequence[str], log: Path) -> int:
        """Return the exit code of a program; what it prints goes to a file. After a stop none is started."""
        with self._lock, log.open("wb") as stream:
            if self._is_stopped:
                return INTERRUPTED
            process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
            self._running.append(process)
        return process.wait()

    def stop(self) -> None:
        """Ask all programs that run to end, as Ctrl-C does, so that they end their clusters."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.send_signal(signal.SIGINT)


def report(runs: Sequence[LiveRun]) -> int:
    """Write the results of the runs that are there, and the documents that show them; return the exit code."""
    for run in runs:
        if not run.is_there:
            print(f"left out of the report: {run.folder} is not there", file=sys.stderr)
    folders = [str(run.folder) for run in runs if run.is_there]
    if not folders:
        print("live campaign: there is no run to report on", file=sys.stderr)
        return 1
    store = str(runs[0].folder.parent / "simulated")
    code = report_main([*folders, "--json", str(RESULTS), "--store", store])
    if code == 0:
        generate_docs.main([])
    return code


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.live.campaign", description=description)
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="the runs, as TOML: see tools/live/campaign.toml")
    add("--out", type=Path, required=True, metavar="DIR", help="folder for what the runs leave")
    add("--parallel", type=int, default=1, metavar="N", help="runs at a time, 0 to make none, default: %(default)s")
    add("--report", action="store_true", help="write the results and the documents that show them")
    add_data_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
