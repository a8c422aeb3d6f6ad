"""Serves policies that place gangs: ONNX graphs that point to a server of a cluster graph, or wait."""

import hashlib
import json
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.least_loss import SEEN_COLUMNS
from advisor.features.observe.report import FINGERPRINT
from advisor.features.policy import Options, Scores
from advisor.predict.onnx_model import TensorGraph

# A policy that takes longer to point to one server is late, and the rule chooses.
DEADLINE_S: Final = 0.25
GRAPH: Final = "sadvise_graph"
INPUTS: Final = frozenset({"slots", "servers", "member", "leaves", "choice", "gang", "own", "others"})
# What a performance model says of each server, beside the above.
OUTLOOK: Final = "outlook"
# Names the observation of policies that look at it.
OUTLOOK_FINGERPRINT: Final = hashlib.sha256(json.dumps((FINGERPRINT, SEEN_COLUMNS)).encode()).hexdigest()
# Without these a graph cannot point to a server.
_NEEDED: Final = frozenset({"choice", "gang"})
SCORES: Final = "scores"


def points_to_servers(graph: TensorGraph) -> bool:
    """Return whether the inputs of a graph are those of a policy for places."""
    return _NEEDED <= graph.inputs.keys() <= INPUTS | {OUTLOOK}


class ServedPlaces:
    """The policy of a graph that scores each server, each agent to forward to, and waiting, `(n + agents + 1,)`.

    With `models` it looks at what they say of the site, and not at the models in use.
    """

    levers = frozenset({Lever.NODE_LIST})

    def __init__(
        self,
        graph: TensorGraph,
        *,
        name: str,
        columns: tuple[str, ...],
        digest: str = "",
        models: KnownModels | None = None,
    ) -> None:
        """Take a checked graph; raises `ModelError` where it was made for another observation."""
        if not points_to_servers(graph) or SCORES not in graph.outputs:
            raise ModelError(f"policy {name}: it is not a graph that points to servers")
        if graph.metadata.get(GRAPH) != (OUTLOOK_FINGERPRINT if OUTLOOK in graph.inputs else FINGERPRINT):
            raise ModelError(f"policy {name}: it was trained on another observation: train it again, or roll back")
        if OUTLOOK in graph.inputs and (models is None or models.speeds is None):
            raise ModelError(f"policy {name}: it looks at a performance model, and none is named in its parameters")
        self.name = name
        self.digest = digest
        self.models = models
        self._graph = graph
        self._columns = columns

    def act(self, options: Options) -> Scores:
        """Return a score for each option, above 0 where it is better than to wait; raises `ModelError`."""
        is_shown = self._graph.inputs.keys() <= options.tensors.keys() and set(self._columns) <= options.columns.keys()
        if options.place is None or not is_shown:
            raise ModelError(f"policy {self.name}: it does not score options of {options.lever}")
        tensors = {name: options.tensors[name] for name in self._graph.inputs}
        given: NDArray[np.float64] = self._graph.run(tensors, limit_s=DEADLINE_S)[SCORES].astype(np.float64)
        scores = given[options.place]
        # Where one has to be chosen, the scores only order the options.
        return np.asarray(scores - (scores.min() - 1.0 if options.must_choose else given[-1]))
