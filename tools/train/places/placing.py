"""Starts a job on nodes that were picked outside of the engine; see `engine/execution.c`."""

from collections.abc import Sequence

import numpy as np

from advisor.sim.engine.native import native
from advisor.sim.state import State


@native
def start(s: State, row: int, now: float) -> None:
    """Start a pending job on the first `picked` of `pick_nodes`, with `pick_gpus` on each; a leaf's nodes are adjacent.

    The pick must fit: the engine does not check it.
    """


def write_pick(state: State, nodes: Sequence[int], gpus: Sequence[int]) -> None:
    """Write nodes and the GPUs on each as the pick, in the order of the nodes."""
    order = np.argsort(nodes)
    state.pick_nodes[: len(order)] = np.array(nodes)[order]
    state.pick_gpus[: len(order)] = np.array(gpus)[order]
    state.tally["picked"] = len(order)
