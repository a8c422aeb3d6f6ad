"""Defines what a simulated policy is, the options of a run, and the loop that drives it on the common engine."""

import time
from collections.abc import Callable
from dataclasses import field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import SimulationError
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster
from advisor.sim.queueing import DONE, FULL
from advisor.sim.run_outcome import End
from advisor.sim.state import ENDED, FUTURE, State, with_room
from advisor.sim.traces.trace import Trace

# How many times a run reports its progress.
_REPORTS = 200

EXECUTIONS = ("measured", "ideal")
SPEEDS = "oracle, estimated, noisy=PERCENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Options of a run; `speeds` selects the run times and speeds that policies believe.

    Plain Slurm is run beside an advised run every `twin_every_s`. `models` is the folder of the run-time model that the
    site fitted; without it the shipped one is used. `begins_at` is when the simulation begins by the clock of the
    site, in POSIX seconds, from which the ages of its history count.

    oracle: the truth. estimated: run times are the time limits that users asked, speeds grow with the GPUs.
    noisy=X: the truth made X percent longer or shorter, by a fair coin per job.
    """

    execution: str = "measured"
    speeds: str = "oracle"
    planning: PlanningSettings = field(default_factory=PlanningSettings)
    limits: Limits = field(default_factory=Limits)
    advise_every_s: float = 300.0
    twin_every_s: float = 600.0
    models: str = ""
    begins_at: float = 0.0

    def __post_init__(self) -> None:
        if self.execution not in EXECUTIONS:
            raise SimulationError(f"execution {self.execution!r} is not known: known are {', '.join(EXECUTIONS)}")
        if self.advise_every_s <= 0.0:
            raise SimulationError(f"advice every {self.advise_every_s} s: give a number above 0")
        _ = self.noise

    @property
    def noise(self) -> float | None:
        """The share by which beliefs are off; None where they are the users' estimates."""
        kind, _, percent = self.speeds.partition("=")
        if self.speeds == "oracle":
            return 0.0
        if self.speeds == "estimated":
            return None
        try:
            share = float(percent) / 100.0 if kind == "noisy" else -1.0
        except ValueError:
            share = -1.0
        if not 0.0 <= share < 1.0:
            raise SimulationError(f"speeds {self.speeds!r} are not known: known are {SPEEDS}, from 0 to below 100")
        return share


class Stopwatch:
    """Measure the time of a run from the moment its loop is ready."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def start(self) -> None:
        """Set the elapsed time to zero."""
        self._began = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A trace on a cluster, ready to run; `tell` receives the share of jobs that ended.

    `plain_outcomes` runs plain Slurm on the same problem, and returns how each job ended, `(n_jobs,)` of
    `OUTCOME_DTYPE`.
    """

    trace: Trace
    cluster: Cluster
    state: State
    options: SimulationOptions
    rng: np.random.Generator
    tell: Callable[[float], None]
    watch: Stopwatch
    plain_outcomes: Callable[[], NDArray[np.void]]


class SimulatedPolicy(Protocol):
    """A way to run the jobs of a trace."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def summary(self) -> str:
        """One line for people."""

    def run(self, problem: Problem) -> State:
        """Run all jobs and return the final state."""


def leave_out(state: State, fits: Callable[[int], bool]) -> None:
    """Mark the jobs that do not fit on the idle cluster as impossible: they would never start.

    `fits` takes a row, and is called for one job of each shape.
    """
    jobs = state.jobs
    for row in np.unique(jobs["shape"], return_index=True)[1].tolist():
        if jobs["phase"][row] == FUTURE and not fits(row):
            alike = jobs["shape"] == jobs["shape"][row]
            jobs["phase"][alike] = ENDED
            jobs["end"][alike] = End.IMPOSSIBLE


def drive(problem: Problem, state: State, step: Callable[[State, float], int]) -> State:
    """Call a compiled loop until all jobs have ended; it pauses at the given instants and when segments are full."""
    submitted = state.jobs["submit_time"]
    length = float(submitted[-1] - submitted[0]) or 1.0
    # Loads the loop and sets its clock; no event is that early.
    step(state, -1.0)
    problem.watch.start()
    until = float(submitted[0])
    while True:
        stopped = step(state, until)
        if stopped == DONE:
            break
        if stopped == FULL:
            state = with_room(state)
            continue
        problem.tell(float(state.tally["ended"][0]) / len(submitted))
        # Once all are submitted, what is left is one stretch.
        until = until + length / _REPORTS if until < submitted[-1] else np.inf
    problem.tell(1.0)
    return state
