"""Graphs for tests, most of them hostile: they do not end, grow without bound or reach beyond their file."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, load_model_from_string, numpy_helper

from advisor.features.steps import OPTION_COLUMNS
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.library import Library
from advisor.predict.manifest import POLICY, Parity

ROWS: Sequence[int | None] = (None, 2)


def value(name: str, shape: Sequence[int | str | None] | None = ROWS, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    """A named tensor: two columns of float32 by default."""
    return helper.make_tensor_value_info(name, kind, shape)


def content_of(*nodes: Any, **parts: Any) -> bytes:
    """A model from `rows` to `outputs`; `parts` names what differs: `inputs`, `outputs`, `initializers`."""
    graph = helper.make_graph(
        nodes,
        "test",
        parts.pop("inputs", [value("rows")]),
        parts.pop("outputs", [value("outputs")]),
        parts.pop("initializers", []),
        **{key: parts.pop(key) for key in ("sparse_initializer",) if key in parts},
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9, **parts)
    content: bytes = model.SerializeToString()
    return content


def unary(operator: str = "Identity", domain: str = "") -> bytes:
    """A graph of one operator over all rows."""
    return content_of(helper.make_node(operator, ["rows"], ["outputs"], domain=domain))


def endless() -> bytes:
    """A loop whose condition stays true."""
    flag = value("on", [], TensorProto.BOOL), value("still_on", [], TensorProto.BOOL)
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still_on"]), helper.make_node("Identity", ["kept"], ["given"])],
        "body",
        [value("turn", [], TensorProto.INT64), flag[0], value("kept")],
        [flag[1], value("given")],
    )
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    return content_of(helper.make_node("Loop", ["", "yes", "rows"], ["outputs"], body=body), initializers=[yes])


def doubling(times: int) -> bytes:
    """Rows put below themselves, again and again: small to look at, and `2 ** times` as large when run."""
    names = ["rows", *(f"twice_{turn}" for turn in range(1, times)), "outputs"]
    return content_of(
        *(helper.make_node("Concat", [source] * 2, [result], axis=0) for source, result in pairwise(names))
    )


def folded() -> bytes:
    """Two constants of 400 kB whose sum has 40 GB, made when the graph is opened."""
    tall = helper.make_tensor("tall", TensorProto.FLOAT, [100_000, 1], bytes(400_000), raw=True)
    wide = helper.make_tensor("wide", TensorProto.FLOAT, [1, 100_000], bytes(400_000), raw=True)
    return content_of(
        helper.make_node("Add", ["tall", "wide"], ["sum"]),
        helper.make_node("ReduceSum", ["sum"], ["number"], keepdims=0),
        helper.make_node("Add", ["rows", "number"], ["outputs"]),
        initializers=[tall, wide],
    )


def quadratic() -> bytes:
    """The sum of the products of every row with every other: the square of the rows is in memory."""
    return content_of(
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["rows", "turned"], ["products"]),
        helper.make_node("ReduceSum", ["products"], ["outputs"], keepdims=0),
        outputs=[value("outputs", [])],
    )


def in_another_file() -> bytes:
    """Rows and a constant that lies in /etc/passwd."""
    passwords = TensorProto(name="passwords", data_type=TensorProto.FLOAT, dims=[1, 2])
    passwords.data_location = TensorProto.EXTERNAL
    passwords.external_data.add(key="location", value="/etc/passwd")
    passwords.external_data.add(key="length", value="8")
    return content_of(helper.make_node("Add", ["rows", "passwords"], ["outputs"]), initializers=[passwords])


def scoring(weights: Sequence[float], **metadata: str) -> bytes:
    """A policy that weighs the logarithms of one more than its columns, and adds the last weight."""
    constants = {"one": 1.0, "weights": weights[:-1], "constant": weights[-1]}
    model = content_of(
        helper.make_node("Add", ["options", "one"], ["more"]),
        helper.make_node("Log", ["more"], ["logarithms"]),
        helper.make_node("MatMul", ["logarithms", "weights"], ["weighted"]),
        helper.make_node("Add", ["weighted", "constant"], ["scores"]),
        inputs=[value("options", [None, len(weights) - 1])],
        outputs=[value("scores", [None])],
        initializers=[
            numpy_helper.from_array(np.asarray(given, dtype=np.float32), name) for name, given in constants.items()
        ],
    )
    graph = load_model_from_string(model)
    helper.set_model_props(graph, metadata)
    content: bytes = graph.SerializeToString()
    return content


def linear(weights: Sequence[float], constant: float = 0.0) -> bytes:
    """A policy that weighs its columns, and adds a constant."""
    return content_of(
        helper.make_node("MatMul", ["options", "weights"], ["weighted"]),
        helper.make_node("Add", ["weighted", "constant"], ["scores"]),
        inputs=[value("options", [None, len(weights)])],
        outputs=[value("scores", [None])],
        initializers=[
            numpy_helper.from_array(np.asarray(given, dtype=np.float32), name)
            for name, given in (("weights", weights), ("constant", constant))
        ],
    )


def publish_sizes(
    folder: Path, name: str = "own", version: str = "1", *, constant: float = 0.0, in_use: bool = True
) -> None:
    """Publish a policy, and put it in use, that scores larger sizes by the speed of each GPU added."""
    exported = Exported(
        graph=linear([float(name == "gain_per_gpu") for name in OPTION_COLUMNS], constant),
        kind=f"{POLICY}{name}",
        columns=OPTION_COLUMNS,
        outputs=("scores",),
        parameters="{}",
        parity=Parity(rows=1, max_error=0.0, tolerance=1.0),
        seed=0,
    )
    publish_graph(exported, folder, version, today="2026-11-22", card=lambda _: "")
    if in_use:
        Library(folder).use(exported.kind, version)
