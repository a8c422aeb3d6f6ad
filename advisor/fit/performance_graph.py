"""Exports a performance model as one ONNX graph of tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ModelError
from advisor.fit.performance_fit import Adapted, Effects, Floats
from advisor.fit.publish import Exported
from advisor.predict.manifest import Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.performance import INPUTS, KIND, LOG_VARIANCE, MEAN, MOST_OTHERS

TOLERANCE = 1e-4
PROBES = 4096


def performance_to_onnx(model: Adapted) -> bytes:
    """Return the graph: `model`, `gpu_type`, `place`, `others` in, `mean` and `log_variance` `(n, 5)` out."""
    from onnx import TensorProto, helper, numpy_helper

    members = model.members
    rows, types = model.prior.log_speed.shape
    tables: dict[str, NDArray[Any]] = {
        "speed": _stacked([one.speed.ravel() for one in members]),
        "speed_variance": _stacked([one.speed_variance.ravel() for one in members]),
        "weight": _stacked([one.place for one in members]),
        "weight_variance": _stacked([one.place_variance for one in members]),
        # One more column, for no neighbour.
        "added": _stacked([np.pad(one.added, ((0, 0), (0, 1))).ravel() for one in members]),
        "added_variance": _stacked([np.pad(one.added_variance, ((0, 0), (0, 1))).ravel() for one in members]),
        "types": np.array(types, np.int64),
        "others_of_row": np.array(rows + 1, np.int64),
        "one": np.array(1.0, np.float32),
        "misfit": np.array(model.prior.spreads.misfit**2, np.float32),
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
        [helper.make_tensor_value_info(name, floats, [None, len(members)]) for name in (MEAN, LOG_VARIANCE)],
        [numpy_helper.from_array(value, name) for name, value in tables.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = made.SerializeToString()
    return content


def performance_exported(
    model: Adapted, *, seed: int, private: bool = False, origin: Mapping[str, Any] | None = None
) -> Exported:
    """Export a performance model with its parity; raises `ModelError` if the graph does not agree with it.

    `origin` holds further parameters, which say where a model of a site comes from.
    """
    graph = performance_to_onnx(model)
    prior = model.prior
    parameters = {
        "models": list(prior.models),
        "gpu_types": list(prior.gpu_types),
        "samples": model.samples,
        "residual": model.residual,
        "spreads": asdict(prior.spreads),
        **(origin or {}),
    }
    return Exported(
        graph=graph,
        kind=KIND,
        columns=INPUTS,
        outputs=(MEAN, LOG_VARIANCE),
        parameters=json.dumps(parameters, sort_keys=True),
        parity=_checked_parity(model, graph, seed),
        seed=seed,
        private=private,
    )


def _checked_parity(model: Adapted, graph: bytes, seed: int) -> Parity:
    served, rng = TensorGraph(graph, name=KIND), np.random.default_rng(seed)
    rows, types = model.prior.log_speed.shape
    asked: dict[str, NDArray[Any]] = {
        "model": rng.integers(rows, size=PROBES),
        "gpu_type": rng.integers(types, size=PROBES),
        "place": rng.uniform(0.0, 1.5, PROBES).astype(np.float32),
        "others": rng.integers(rows + 1, size=(PROBES, MOST_OTHERS)),
    }
    given = served.run(asked)
    expected = np.stack([_mean(one, **asked) for one in model.members], axis=1)
    error = float(np.abs(given[MEAN] - expected).max())
    if not error <= TOLERANCE:
        raise ModelError(f"{KIND}: the exported model is {error:.2g} off, more than {TOLERANCE:g}: not published")
    return Parity(rows=PROBES, max_error=error, tolerance=TOLERANCE)


def _mean(
    effects: Effects, *, model: NDArray[Any], gpu_type: NDArray[Any], place: NDArray[Any], others: NDArray[Any]
) -> Floats:
    added = np.pad(effects.added, ((0, 0), (0, 1)))[model[:, None], others].sum(axis=1)
    return np.asarray(effects.speed[model, gpu_type] - effects.place[model] * place - np.log1p(added))


def _stacked(tables: Sequence[Floats]) -> NDArray[np.float32]:
    return np.stack(tables).astype(np.float32)
