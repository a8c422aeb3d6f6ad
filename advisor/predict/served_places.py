"""Serves policies that place gangs: ONNX graphs that point to a server of a cluster graph, or wait."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.board import Board
from advisor.features.observe.report import FINGERPRINT
from advisor.features.policy import Options, Scores
from advisor.predict.onnx_model import TensorGraph

# A policy that takes longer to point to one server is late, and the rule chooses.
DEADLINE_S: Final = 0.25
GRAPH: Final = "sadvise_graph"
INPUTS: Final = frozenset({"slots", "servers", "member", "leaves", "choice", "gang", "own", "others"})
SCORES: Final = "scores"


class ServedPlaces:
    """The policy of a graph that scores each server, each agent to forward to, and waiting, `(n + agents + 1,)`."""

    levers = frozenset({Lever.NODE_LIST})

    def __init__(self, graph: TensorGraph, *, name: str, columns: tuple[str, ...], digest: str = "") -> None:
        """Take a checked graph; raises `ModelError` where it was made for another observation."""
        if frozenset(graph.inputs) != INPUTS or SCORES not in graph.outputs:
            raise ModelError(f"policy {name}: it is not a graph that points to servers")
        if graph.metadata.get(GRAPH) != FINGERPRINT:
            raise ModelError(f"policy {name}: it was trained on another observation: train it again, or roll back")
        self.name = name
        self.digest = digest
        self._graph = graph
        self._columns = columns

    def act(self, _board: Board, options: Options, state: bytes) -> tuple[Scores, bytes]:
        """Return a score for each option, above 0 where it is better than to wait; raises `ModelError`."""
        if options.place is None or options.tensors.keys() != INPUTS or tuple(options.columns) != self._columns:
            raise ModelError(f"policy {self.name}: it does not score options of {options.lever}")
        given: NDArray[np.float64] = self._graph.run(options.tensors, limit_s=DEADLINE_S)[SCORES].astype(np.float64)
        scores = given[options.place]
        # Where one has to be chosen, the scores only order the options.
        return scores - (scores.min() - 1.0 if options.must_choose else given[-1]), state
