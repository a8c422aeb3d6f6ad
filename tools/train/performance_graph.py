"""Exports the prior of the performance model as one ONNX graph of tables, by which it is served."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from advisor.errors import ModelError
from advisor.features.observe.graph import Floats
from advisor.fit.publish import Exported
from advisor.predict.manifest import Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.performance import INPUTS, KIND, LOG_VARIANCE, MEAN, MEMBERS, MOST_OTHERS
from tools.train.performance_fit import SitePrior

TOLERANCE = 1e-4
PROBES = 4096


def performance_to_onnx(prior: SitePrior) -> bytes:
    """Return the graph: `model`, `gpu_type`, `place`, `others` in, `mean` and `log_variance` `(n, 5)` out.

    The five members of its ensemble are alike, as no job of a site has ended yet.
    """
    rows, types = prior.log_speed.shape
    spreads = prior.spreads
    # One more column, for no neighbour.
    added, is_one = (np.pad(table, ((0, 0), (0, 1))) for table in (prior.floored, np.ones((rows, rows))))
    tables: dict[str, NDArray[Any]] = {
        "speed": _of_members(prior.log_speed),
        "speed_variance": _of_members(np.full((rows, types), spreads.type_effect**2 + spreads.speed**2)),
        "weight": _of_members(np.ones(rows)),
        "weight_variance": _of_members(np.full(rows, spreads.place_scale**2 + spreads.place**2)),
        "added": _of_members(added),
        "added_variance": _of_members(is_one * (spreads.scale**2 + spreads.own**2 + spreads.other**2)),
        "types": np.array(types, np.int64),
        "others_of_row": np.array(rows + 1, np.int64),
        "one": np.array(1.0, np.float32),
        "misfit": np.array(spreads.misfit**2, np.float32),
        "last": np.array([2], np.int64),
        "column": np.array([1], np.int64),
    }
    nodes = [
        helper.make_node("Mul", ["model", "types"], ["row_of_speed"]),
        helper.make_node("Add", ["row_of_speed", "gpu_type"], ["at_speed"]),
        helper.make_node("Gather", ["speed", "at_speed"], ["alone"], axis=1),  # (5, n)
        helper.make_node("Gather", ["speed_variance", "at_speed"], ["of_speed"], axis=1),
        helper.make_node("Gather", ["weight", "model"], ["weights"], axis=1),
        helper.make_node("Gather", ["weight_variance", "model"], ["of_weight"], axis=1),
        helper.make_node("Mul", ["weights", "place"], ["placed"]),
        helper.make_node("Mul", ["model", "others_of_row"], ["row_of_pair"]),
        helper.make_node("Unsqueeze", ["row_of_pair", "column"], ["row_of_pairs"]),
        helper.make_node("Add", ["row_of_pairs", "others"], ["at_pair"]),  # (n, 8)
        helper.make_node("Gather", ["added", "at_pair"], ["each_added"], axis=1),  # (5, n, 8)
        helper.make_node("Gather", ["added_variance", "at_pair"], ["of_each"], axis=1),
        helper.make_node("ReduceSum", ["each_added", "last"], ["all_added"], keepdims=0),
        helper.make_node("Add", ["all_added", "one"], ["inflation"]),
        helper.make_node("Log", ["inflation"], ["beside"]),
        helper.make_node("Sub", ["alone", "placed"], ["on_place"]),
        helper.make_node("Sub", ["on_place", "beside"], ["mean_by_member"]),
        helper.make_node("Transpose", ["mean_by_member"], [MEAN], perm=[1, 0]),
        # Variances by the derivatives of the mean.
        helper.make_node("Mul", ["placed", "placed"], ["placed_squared"]),
        helper.make_node("Mul", ["placed_squared", "of_weight"], ["of_place"]),
        helper.make_node("Unsqueeze", ["inflation", "last"], ["inflations"]),
        helper.make_node("Div", ["each_added", "inflations"], ["share"]),
        helper.make_node("Mul", ["share", "share"], ["share_squared"]),
        helper.make_node("Mul", ["share_squared", "of_each"], ["of_pairs"]),
        helper.make_node("ReduceSum", ["of_pairs", "last"], ["of_others"], keepdims=0),
        helper.make_node("Sum", ["of_speed", "of_place", "of_others", "misfit"], ["variance"]),
        helper.make_node("Log", ["variance"], ["log_variance_by_member"]),
        helper.make_node("Transpose", ["log_variance_by_member"], [LOG_VARIANCE], perm=[1, 0]),
    ]
    integers, floats = TensorProto.INT64, TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "performance",
        [
            helper.make_tensor_value_info("model", integers, [None]),
            helper.make_tensor_value_info("gpu_type", integers, [None]),
            helper.make_tensor_value_info("place", floats, [None]),
            helper.make_tensor_value_info("others", integers, [None, MOST_OTHERS]),
        ],
        [helper.make_tensor_value_info(name, floats, [None, MEMBERS]) for name in (MEAN, LOG_VARIANCE)],
        [numpy_helper.from_array(value, name) for name, value in tables.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = made.SerializeToString()
    return content


def performance_exported(prior: SitePrior, *, seed: int) -> Exported:
    """Export a prior with its parity; raises `ModelError` if the graph does not agree with it."""
    graph = performance_to_onnx(prior)
    parameters = {
        "models": list(prior.models),
        "gpu_types": list(prior.gpu_types),
        "samples": 0,
        "residual": 0.0,
        "spreads": asdict(prior.spreads),
    }
    return Exported(
        graph=graph,
        kind=KIND,
        columns=INPUTS,
        outputs=(MEAN, LOG_VARIANCE),
        parameters=json.dumps(parameters, sort_keys=True),
        parity=_checked_parity(prior, graph, seed),
        seed=seed,
    )


def _checked_parity(prior: SitePrior, graph: bytes, seed: int) -> Parity:
    served, rng = TensorGraph(graph, name=KIND), np.random.default_rng(seed)
    rows, types = prior.log_speed.shape
    model, gpu_type = rng.integers(rows, size=PROBES), rng.integers(types, size=PROBES)
    place = rng.uniform(0.0, 1.5, PROBES).astype(np.float32)
    others = rng.integers(rows + 1, size=(PROBES, MOST_OTHERS))
    given = served.run({"model": model, "gpu_type": gpu_type, "place": place, "others": others})
    added = np.pad(prior.floored, ((0, 0), (0, 1)))[model[:, None], others].sum(axis=1)
    expected = prior.log_speed[model, gpu_type] - place - np.log1p(added)
    error = float(np.abs(given[MEAN] - expected[:, None]).max())
    if not error <= TOLERANCE:
        raise ModelError(f"{KIND}: the exported model is {error:.2g} off, more than {TOLERANCE:g}: not published")
    return Parity(rows=PROBES, max_error=error, tolerance=TOLERANCE)


def _of_members(table: Floats) -> NDArray[np.float32]:
    """Return a table for each member of the ensemble, all alike, `(5, n)`."""
    return np.tile(table.ravel(), (MEMBERS, 1)).astype(np.float32)
