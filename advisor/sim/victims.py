"""The choice of running jobs to preempt; `engine/victims.c` makes it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.sim.state import State


class Victims(NamedTuple):
    """The jobs chosen last, and space for the choice; shapes in brackets."""

    rows: NDArray[np.int32]  # (most_running,)
    costs: NDArray[np.float64]  # (n_nodes,): of emptying a node


def build_victims(state: State) -> Victims:
    """Build the arrays of a run."""
    return Victims(rows=np.zeros(len(state.running), np.int32), costs=np.zeros(len(state.nodes)))
