"""Chooses the nodes of every gang at its start, as a plugin of slurmctld could: the most that nodes alone can gain."""

import ctypes
from typing import Final

import numpy as np

from advisor.features.observe.pointer import choose_all
from advisor.sim.policies.placer import Placer
from advisor.sim.policies.placing import write_pick
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import State

_SIGNATURE: Final = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_double)


class GangStarts:
    """Runs the compiled loop, which calls back before a gang starts on several nodes.

    What it calls sees the nodes that are open to the gang in `share`, and replaces the pick; where it chooses none,
    slurmctld's own pick stays.
    """

    def __init__(self, placer: Placer) -> None:
        """Begin a run."""
        self._placer = placer
        self._state = placer.cluster.state
        self._failure: Exception | None = None
        self.chosen = 0
        # Kept for as long as the loop has its address.
        self._callback = _SIGNATURE(self._called)

    def run(self, state: State, slurm: Slurm, until: float) -> int:
        """Run the compiled loop up to an instant."""
        self._state = self._placer.cluster.state = state
        slurm.control["chooser"] = ctypes.cast(self._callback, ctypes.c_void_p).value
        try:
            stopped = run_slurm(state, slurm, until)
        finally:
            slurm.control["chooser"] = 0
        if self._failure is not None:
            raise self._failure
        return stopped

    def _called(self, row: int, now: float) -> None:
        """Choose the nodes of a gang; a failure is kept, as no exception passes through compiled code."""
        try:
            self._choose(row, now)
        except Exception as err:
            self._failure = self._failure or err

    def _choose(self, row: int, now: float) -> None:
        state, placer = self._state, self._placer
        if not placer.leaves_open(state, row):
            return
        facts = placer.facts(state)
        usable = placer.mover.slurm.share[: len(state.nodes)].astype(np.intp)
        choice = placer.choice(state, row, now, usable, facts)
        if choose_all(choice, facts.chooser) and placer.suits(state, row, len(choice.chosen)):
            write_pick(state, choice.chosen, choice.taken)
            self.chosen += 1
