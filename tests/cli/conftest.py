"""Run the command line in this process, as a user would type it; simulations over runs that follow from a rule."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cli.main import main
from advisor.sim.cluster import Cluster
from advisor.sim.run_outcome import End, Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import write_trace
from tests.sim.runs import random_trace, shifted_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command line left behind."""

    exit_code: int
    out: str
    err: str


Sadvise = Callable[..., Outcome]


@pytest.fixture
def sadvise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sadvise:
    """Return a function that runs `sadvise` with arguments."""
    for variable in ("SADVISE_CONFIG", "SADVISE_SNAPSHOT", "SLURM_CONF", "SLURM_CLUSTERS"):
        monkeypatch.delenv(variable, raising=False)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["sadvise", *arguments])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as err:
            code = err.code if isinstance(err.code, int) else 0
        said = capsys.readouterr()
        return Outcome(exit_code=code, out=said.out, err=said.err)

    return run


class Simulator:
    """Stands in for the simulator; remembers the options it got, and is interrupted or kills a job where told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int]] = []
        self.options: list[SimulationOptions] = []
        self.interrupt_at: int | None = None
        self.kill_first_under: str | None = None

    def __call__(
        self, trace: Trace, _cluster: Cluster, policy: str, *, seed: int, options: SimulationOptions, **_: object
    ) -> Run:
        if self.interrupt_at == len(self.asked):
            raise KeyboardInterrupt
        self.asked.append((trace.name, policy, seed))
        self.options.append(options)
        run = shifted_run(trace, policy, seed)
        if policy == self.kill_first_under:
            run.outcomes["end"][0] = End.TIME_LIMIT
        return run


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Simulator:
    """Put the rule in place of the simulator."""
    stand_in = Simulator()
    monkeypatch.setattr("advisor.sim.runner.simulate", stand_in)
    return stand_in


def write_typed(folder: Path, *, jobs: int = 40) -> str:
    """Write a trace whose jobs ask for v100 and a100 GPUs in turn, and return its path."""
    trace = random_trace(jobs, name="typed")
    trace.jobs["gpu_type"] = np.arange(jobs) % 2
    path = folder / "typed.csv"
    write_trace(replace(trace, gpu_types=("v100", "a100")), path)
    return str(path)


def write(folder: Path, name: str = "week", *, jobs: int = 200, seed: int = 0) -> str:
    """Write a trace and return its path."""
    path = folder / f"{name}.csv"
    write_trace(random_trace(jobs, name=name, seed=seed), path)
    return str(path)
