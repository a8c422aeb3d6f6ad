"""Publishes a policy by hand that stands in for policy-metarl: a gang gets the fastest GPU type for its model, at once.

It has the inputs of the trained policy, looks at a performance model of its own, and never waits.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from onnx import TensorProto, helper

from advisor.features.observe.least_loss import SEEN_COLUMNS
from advisor.features.observe.pointer import CHOICE_COLUMNS, GANG_COLUMNS, REPORT_COLUMNS
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.library import PERFORMANCE, Library
from advisor.predict.manifest import POLICY, Parity
from advisor.predict.served_policy import OBSERVATION, OUTLOOK_FINGERPRINT, SCORES
from tools.measured_prior import measured_prior
from tools.train.performance_fit import SitePrior
from tools.train.performance_graph import performance_exported

NAME: Final = "metarl"
KIND: Final = f"{POLICY}{NAME}"
VERSION: Final = "stand-in"
# Of two GPU types the first is about twice as fast for every model.
GPU_TYPES: Final = ("a100", "v100")
TODAY: Final = "2026-11-22"
_INPUTS: Final[dict[str, list[int | None]]] = {
    "choice": [None, len(CHOICE_COLUMNS)],
    "outlook": [None, len(SEEN_COLUMNS)],
    "gang": [len(GANG_COLUMNS)],
    "own": [len(REPORT_COLUMNS)],
}
# Above the score of waiting, whatever a server lacks.
_ABOVE: Final = 10.0


def stand_in_graph() -> bytes:
    """Return a graph that scores a server by the speed of its GPU type, and waiting by 0."""
    nodes = [
        helper.make_node("Slice", ["outlook", "first", "second", "columns"], ["behind_best"]),
        helper.make_node("Squeeze", ["behind_best", "columns"], ["behind"]),
        helper.make_node("Add", ["behind", "above"], ["of_servers"]),
        # One agent to forward to, and waiting.
        helper.make_node("Concat", ["of_servers", "of_others"], ["scored"], axis=0),
        *(helper.make_node("ReduceSum", [name], [f"{name}_sum"], keepdims=0) for name in _INPUTS),
        helper.make_node("Sum", [f"{name}_sum" for name in _INPUTS], ["all"]),
        helper.make_node("Mul", ["all", "nothing"], ["none"]),
        helper.make_node("Add", ["scored", "none"], [SCORES]),
    ]
    place = SEEN_COLUMNS.index("behind_best")
    constants = [
        helper.make_tensor("first", TensorProto.INT64, [1], [place]),
        helper.make_tensor("second", TensorProto.INT64, [1], [place + 1]),
        helper.make_tensor("columns", TensorProto.INT64, [1], [1]),
        helper.make_tensor("above", TensorProto.FLOAT, [], [_ABOVE]),
        helper.make_tensor("of_others", TensorProto.FLOAT, [2], [-1.0, 0.0]),
        helper.make_tensor("nothing", TensorProto.FLOAT, [], [0.0]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in _INPUTS.items()]
    outputs = [helper.make_tensor_value_info(SCORES, TensorProto.FLOAT, [None])]
    graph = helper.make_graph(nodes, "stand_in", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {OBSERVATION: OUTLOOK_FINGERPRINT})
    content: bytes = model.SerializeToString()
    return content


def prior_of_types(gpu_types: Sequence[str]) -> SitePrior:
    """Return the prior of the shipped models for some of the GPU types, and for one that is not known."""
    prior = measured_prior()
    columns = [*map(prior.gpu_types.index, gpu_types), len(prior.gpu_types)]
    return replace(prior, gpu_types=tuple(gpu_types), log_speed=prior.log_speed[:, columns])


def publish_stand_in(folder: Path, gpu_types: Sequence[str] = GPU_TYPES) -> Library:
    """Publish the policy and its performance model in a folder, the policy in use, and return the library."""
    performance = performance_exported(prior_of_types(gpu_types), seed=1)
    policy = Exported(
        graph=stand_in_graph(),
        kind=KIND,
        columns=CHOICE_COLUMNS + SEEN_COLUMNS,
        outputs=(SCORES,),
        parameters=json.dumps({PERFORMANCE: VERSION}),
        parity=Parity(rows=1, max_error=0.0, tolerance=1.0),
        seed=1,
    )
    for exported in (performance, policy):
        publish_graph(exported, folder, VERSION, today=TODAY, card=lambda entry: f"# {entry.kind} {entry.version}\n")
    library = Library(folder)
    library.use(KIND, VERSION)
    return library
