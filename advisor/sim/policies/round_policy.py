"""Policies that decide about all jobs in every round."""

from collections.abc import Callable
from dataclasses import dataclass

from advisor.sim.policies.rounds import Decision, run_rounds
from advisor.sim.simulated_policy import Problem
from advisor.sim.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPolicy:
    """A decision every `every_s` seconds; `make` makes one for each run, with what it remembers."""

    name: str
    summary: str
    make: Callable[[], Decision]
    every_s: float = 300.0
    requeue_loses_work: bool = False

    def run(self, problem: Problem) -> State:
        """Run round after round."""
        return run_rounds(problem, self.make(), self.every_s)
