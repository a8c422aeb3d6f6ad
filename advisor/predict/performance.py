"""Serves the performance model: how fast a job runs on a GPU type, on a place, beside others, and how unsure that is.

The graph holds an ensemble of five. It is tabulated when it is opened, since a decision needs thousands of answers.
"""

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError

from advisor.errors import ModelError
from advisor.features.observe.graph import Floats, Neighbours, Rows
from advisor.features.observe.known_models import KnownModels, SiteSpeeds
from advisor.predict.interference_items import name_key
from advisor.predict.library import PERFORMANCE, Held, check_fingerprint, checked_content
from advisor.predict.manifest import GRAPH, PARAMETERS, CheckedModel
from advisor.predict.onnx_model import MOST_ROWS, TensorGraph

KIND: Final = PERFORMANCE
INPUTS: Final = ("model", "gpu_type", "place", "others")
MEAN, LOG_VARIANCE = "mean", "log_variance"
# Neighbours of one query at most.
MOST_OTHERS: Final = 8
MEMBERS: Final = 5


class Parameters(CheckedModel):
    """What the rows and columns of the graph stand for; what else a version has beside it says where it comes from."""

    model_config = ConfigDict(extra="ignore")

    models: tuple[str, ...] = Field(min_length=1)
    gpu_types: tuple[str, ...]


class PerformanceModel:
    """The ensemble, evaluated for many jobs at once."""

    def __init__(self, graph: TensorGraph, parameters: Parameters) -> None:
        """Take an opened graph; raises `ModelError` where it is another one."""
        if frozenset(graph.inputs) != frozenset(INPUTS) or not {MEAN, LOG_VARIANCE} <= graph.outputs.keys():
            raise ModelError(
                f"model {graph.name}: it is no performance model of this release: restore it, or roll back"
            )
        self._graph = graph
        self.parameters = parameters
        self._code = {name_key(name): code for code, name in enumerate(parameters.models)}

    @classmethod
    def opened(cls, held: Held) -> "PerformanceModel":
        """Check and open a version; raises `ModelError`."""
        content = checked_content(held)
        graph = TensorGraph(content[GRAPH], name=held.name)
        check_fingerprint(graph.fingerprint, held)
        return cls(graph, _checked(content[PARAMETERS], held.name))

    def codes(self, names: Sequence[str]) -> Rows:
        """Return the codes of models by name, -1 where not known; names are compared by letters and digits."""
        return np.array([self._code.get(name_key(name), -1) for name in names], np.intp)

    def log_speeds(
        self, model: Rows, gpu_type: Rows, place: Floats, others: Rows
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and variance of the logarithm of relative speed by each member, `(n, 5)` both.

        `others` `(n, 8)` codes the neighbours; `n_models + 1` is none. `place` is the logarithm of its inflation.
        """
        means, variances = [np.zeros((0, MEMBERS))], [np.zeros((0, MEMBERS))]
        for first in range(0, len(model), MOST_ROWS):
            part = slice(first, first + MOST_ROWS)
            answer = self._graph.run(
                {
                    "model": model[part].astype(np.int64),
                    "gpu_type": gpu_type[part].astype(np.int64),
                    "place": place[part].astype(np.float32),
                    "others": others[part].astype(np.int64),
                }
            )
            means.append(answer[MEAN].astype(np.float64))
            variances.append(np.exp(np.clip(answer[LOG_VARIANCE].astype(np.float64), -20.0, 5.0)))
        return np.concatenate(means), np.concatenate(variances)

    def tabulated(self) -> SiteSpeeds:
        """Return the tables that a decision looks up."""
        known, types = len(self.parameters.models), len(self.parameters.gpu_types)
        rows, columns = known + 1, types + 1
        no_neighbour = np.full((1, MOST_OTHERS), known + 1, np.intp)

        def asked(model: Rows, gpu_type: Rows, place: float, others: Rows) -> tuple[Floats, Floats]:
            means, variances = self.log_speeds(model, gpu_type, np.full(len(model), place), others)
            # Disagreement between the members counts with what each is unsure of.
            return means.mean(axis=1), variances.mean(axis=1) + means.var(axis=1)

        model, gpu_type = (axis.ravel() for axis in np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"))
        speed, speed_variance = asked(model, gpu_type, 0.0, no_neighbour.repeat(len(model), axis=0))
        each, unknown_type = np.arange(rows), np.full(rows, types)
        alone, _ = asked(each, unknown_type, 0.0, no_neighbour.repeat(rows, axis=0))
        placed, _ = asked(each, unknown_type, 1.0, no_neighbour.repeat(rows, axis=0))
        mine, other = (axis.ravel() for axis in np.meshgrid(each, each, indexing="ij"))
        beside = no_neighbour.repeat(len(mine), axis=0)
        beside[:, 0] = other
        paired, paired_variance = asked(mine, np.full(len(mine), types), 0.0, beside)
        added = np.exp(alone[mine] - paired) - 1.0
        of_type = speed_variance.reshape(rows, columns)[:, types]
        return SiteSpeeds(
            models=self.parameters.models,
            gpu_types=self.parameters.gpu_types,
            log_speed=speed.reshape(rows, columns),
            speed_variance=speed_variance.reshape(rows, columns),
            place_weight=np.maximum(alone - placed, 0.0),
            neighbours=Neighbours.of(np.maximum(added, 0.0).reshape(rows, rows)),
            added_variance=np.maximum(paired_variance - of_type[mine], 0.0).reshape(rows, rows),
        )

    def known_models(self) -> KnownModels:
        """Return the models that it knows by name, with its tables."""
        speeds = self.tabulated()
        return KnownModels(codes=self.codes, neighbours=speeds.neighbours, speeds=speeds)


def _checked(parameters: bytes, name: str) -> Parameters:
    try:
        return Parameters.model_validate(json.loads(parameters), strict=False)
    except (ValueError, ValidationError) as err:
        raise ModelError(f"model {name}: its parameters cannot be read: restore it, or roll back") from err
