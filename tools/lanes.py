"""Runs the tests in lanes, reports every minute which lanes still run, and ends a lane that exceeds its time limit.

    python -m tools.lanes [--fast] [--logs .venv]

Lanes run at once, each with a log in NAME.log, which is printed when the lane ends; those marked `alone` follow one by
one if the others have passed. A lane that exceeds its limit is interrupted; if that does not end it, it prints the
stacks of its threads and is killed. A lane whose coverage is measured leaves it in .coverage.NAME. Exits with 1 unless
all passed.
With --fast, only the tests that need no Slurm run, and no coverage is measured.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

# Several times the time of the slowest lane; longer for lanes that can have to install releases of Slurm first.
LIMIT_S: Final = 3600.0
INSTALLING_LIMIT_S: Final = 4800.0
REPORT_S = 60.0
# The time for a lane to end after each signal.
GRACE_S = 60.0
LOOK_S: Final = 0.1
COMPUTING_NICE: Final = 5
# How many of the slowest tests the log of a lane names.
SLOWEST: Final = 12
PASSED: Final = "passed"
# Lanes share the cores: with one thread per core and lane, the threads would wait for each other.
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# The first lets fixtures clean up, the second prints the stacks of all threads.
SIGNALS: Final = (signal.SIGINT, signal.SIGABRT, signal.SIGKILL)

COVERAGE: Final = ("--cov", "--cov-report=", "--cov-fail-under=0")
# Training is in tools/, and the others repeat whole commands and plans, whose code has tests of its own.
UNCOVERED: Final = ("tests/train", "tests/golden", "tests/cli/test_tune.py")
# These play whole simulations many times over, on lines that the other tests of the simulator reach.
_PLAYING_NAMES: Final = (
    "advised carried_jobs delay_bound engine gaming_lifts lateness_bound plain_twin properties slurm_dally wait_sums"
)
PLAYING: Final = tuple(f"tests/sim/test_{name}.py" for name in _PLAYING_NAMES.split())
# The tests of the modules in the root of the package; the other files beside them test tools/ and what is installed.
_ROOT_NAMES: Final = "config files hostile_values package text toml"
ROOT: Final = tuple(f"tests/test_{name}.py" for name in _ROOT_NAMES.split())
# The tests of what touches files, Slurm and the terminal: nearly half of the time of those outside the simulator.
EDGES: Final = ("tests/backends", "tests/cli", "tests/daemon", "tests/journal")
# Both build the packages, which takes a minute, and boot a machine.
PACKAGES: Final = ("tests/test_packages.py", "tests/test_first_day.py")
FIDELITY: Final = "tests/live/test_fidelity.py"
_CHANGING_NAMES: Final = "apply daemon_faults daemon_site evening hour kills lost_journal"
CHANGING: Final = tuple(f"tests/live/test_{name}.py" for name in _CHANGING_NAMES.split())
# These wait for jobs that run, and compute little.
_WAITING_NAMES: Final = "delay live_arms metarl preempt restarts soft_limit"
WAITING: Final = tuple(f"tests/live/test_{name}.py" for name in _WAITING_NAMES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Tests that run in a process of their own; with `alone`, after the other lanes, because they measure time.

    Measuring coverage makes Python two to four times as slow; tests of what others cover go without (`covered`).
    """

    name: str
    argv: tuple[str, ...]
    limit_s: float = LIMIT_S
    alone: bool = False
    needs_slurm: bool = False

    @property
    def covered(self) -> bool:
        """Whether the coverage of the lane is measured."""
        return any(word in COVERAGE for word in self.argv)


def all_lanes() -> tuple[Lane, ...]:
    """Return the lanes of `make test`, from the root of the checkout; every test file belongs to one of them."""
    loose = sorted(str(path) for path in Path("tests").glob("test_*.py") if str(path) not in PACKAGES)
    tools = tuple(path for path in loose if path not in ROOT)
    apart = ("tests/live", "tests/sim", *EDGES, *loose, *UNCOVERED, *PACKAGES)
    return (
        Lane(name="others", argv=pytest_argv("tests", ignored=apart)),
        Lane(name="edges", argv=pytest_argv(*EDGES, ignored=UNCOVERED)),
        Lane(name="simulator", argv=pytest_argv("tests/sim", *ROOT, ignored=PLAYING)),
        Lane(name="uncovered", argv=without_coverage(pytest_argv(*UNCOVERED))),
        Lane(name="tools", argv=without_coverage(pytest_argv(*tools, *PLAYING))),
        # These three mostly wait for Slurm and for package managers; the first installs two releases of Slurm. They
        # add less than one per cent to the coverage.
        Lane(
            name="live",
            argv=without_coverage(pytest_argv("tests/live", *PACKAGES, ignored=(*CHANGING, *WAITING, FIDELITY))),
            limit_s=INSTALLING_LIMIT_S,
            needs_slurm=True,
        ),
        Lane(
            name="changing",
            argv=without_coverage(pytest_argv(*CHANGING)),
            limit_s=INSTALLING_LIMIT_S,
            needs_slurm=True,
        ),
        Lane(
            name="waiting", argv=without_coverage(pytest_argv(*WAITING)), limit_s=INSTALLING_LIMIT_S, needs_slurm=True
        ),
        Lane(name="alone", argv=without_coverage(pytest_argv(FIDELITY)), alone=True, needs_slurm=True),
    )


def fast_lanes() -> tuple[Lane, ...]:
    """Return the lanes of `make test-fast`: those that need no Slurm, without coverage."""
    return tuple(replace(lane, argv=without_coverage(lane.argv)) for lane in all_lanes() if not lane.needs_slurm)


def without_coverage(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command of pytest without the options that measure coverage."""
    return tuple(word for word in argv if word not in COVERAGE)


def pytest_argv(*paths: str, ignored: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command that runs the tests of some paths with coverage."""
    # With faulthandler, SIGABRT prints the stacks also before and after pytest's own session.
    command = (sys.executable, "-X", "faulthandler", "-m", "pytest", *COVERAGE)
    return (*command, f"--durations={SLOWEST}", *paths, *(f"--ignore={path}" for path in ignored))


@dataclass(slots=True)
class RunningLane:
    """The process of a lane, its log, and the signals to send after its limit."""

    lane: Lane
    log: Path
    process: subprocess.Popen[bytes]
    began: float
    unsent: list[signal.Signals] = field(default_factory=lambda: list(SIGNALS))

    @property
    def passed_s(self) -> float:
        """Return the time since the lane began."""
        return time.monotonic() - self.began

    @property
    def is_late(self) -> bool:
        """Return whether the lane has exceeded its limit."""
        return len(self.unsent) < len(SIGNALS)

    def has_ended(self) -> bool:
        """Return whether the process has ended or ignores every signal; otherwise send the signal that is due."""
        if self.process.poll() is not None:
            return True
        if self.passed_s < self.lane.limit_s + GRACE_S * (len(SIGNALS) - len(self.unsent)):
            return False
        if not self.unsent:
            return True
        number = self.unsent.pop(0)
        report(f"{self.lane.name} exceeded its limit of {self.lane.limit_s:g} s: sending {number.name}")
        if number is signal.SIGKILL:
            self.kill()
        else:
            self.process.send_signal(number)
        return False

    def kill(self) -> None:
        """Kill the process and everything in its process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def result(self) -> str:
        """Return `PASSED`, or the reason of the failure."""
        if self.is_late:
            return f"failed, exceeded its limit of {self.lane.limit_s:g} s"
        return f"failed, exit status {self.process.returncode}" if self.process.returncode else PASSED

    def last_line(self) -> str:
        """Return the end of the last line of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line.strip()[-60:] for line in reversed(lines) if line.strip()), "no output yet")


def run_all(lanes: Sequence[Lane], logs: Path) -> bool:
    """Run lanes at once, then those that run alone; report the results and return whether all passed."""
    logs.mkdir(parents=True, exist_ok=True)
    results = dict(run([lane for lane in lanes if not lane.alone], logs))
    for lane in lanes:
        if lane.alone and set(results.values()) <= {PASSED}:
            results |= run([lane], logs)
    report("; ".join(f"{lane.name} {results.get(lane.name, 'not started')}" for lane in lanes))
    return all(results.get(lane.name) == PASSED for lane in lanes)


def run(lanes: Sequence[Lane], logs: Path) -> Mapping[str, str]:
    """Run lanes at once, print the log of each when it ends, and return the results by lane."""
    running: list[RunningLane] = []
    results: dict[str, str] = {}
    next_report = time.monotonic() + REPORT_S
    try:
        running.extend(start(lane, logs) for lane in lanes)
        while running:
            time.sleep(LOOK_S)
            for ended in [candidate for candidate in running if candidate.has_ended()]:
                running.remove(ended)
                results[ended.lane.name] = ended.result()
                print(ended.log.read_text(errors="replace"), flush=True)
                report(f"{ended.lane.name} {ended.result()}, {ended.passed_s:.0f} s")
                # Processes left by tests must not outlive the lane.
                ended.kill()
            if running and time.monotonic() >= next_report:
                next_report += REPORT_S
                report("still running: " + "; ".join(progress(lane) for lane in running))
    finally:
        end(running)
    return results


def start(lane: Lane, logs: Path) -> RunningLane:
    """Start the process of a lane."""
    log = logs / f"{lane.name}.log"
    began = time.monotonic()
    env = {**os.environ, **ONE_THREAD, "COVERAGE_FILE": f".coverage.{lane.name}"}
    # Each command that a test starts would compile the package again.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    with log.open("wb") as output:
        process = subprocess.Popen(
            lane.argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    if not lane.needs_slurm:
        yield_cores(process.pid)
    report(f"{lane.name} started, log {log}")
    return RunningLane(lane=lane, log=log, process=process, began=began)


def yield_cores(pid: int) -> None:
    """Lower the priority of a lane that computes, so that Slurm answers in time in those that wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, COMPUTING_NICE)
    # Where the kernel groups processes by session, it weighs the groups; the priority counts within a group alone.
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(COMPUTING_NICE), encoding="ascii")


def end(running: Sequence[RunningLane]) -> None:
    """Interrupt running lanes, and kill them after a grace time."""
    for lane in running:
        lane.process.send_signal(signal.SIGINT)
    for lane in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            lane.process.wait(GRACE_S)
        lane.kill()


def progress(lane: RunningLane) -> str:
    """Return the minutes that a lane has run, and the last line of its log."""
    return f"{lane.lane.name} for {lane.passed_s / 60:.0f} min ({lane.last_line()})"


def report(text: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} lanes: {text}", flush=True)


def main() -> int:
    """Run the lanes of the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.lanes", description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="only the tests that need no Slurm, without coverage")
    parser.add_argument("--logs", type=Path, default=Path(".venv"), help="folder of the logs, default: %(default)s")
    args = parser.parse_args()
    # SIGTERM ends the lanes as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    # A shell starts background jobs with SIGINT ignored; lanes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return 0 if run_all(fast_lanes() if args.fast else all_lanes(), args.logs) else 1


if __name__ == "__main__":
    sys.exit(main())
