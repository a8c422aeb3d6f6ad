"""Defines what a fit passes on to publishing, and exports its scikit-learn regressors as one ONNX graph."""

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.probation import Proof
from advisor.predict.onnx_model import Bundle, OnnxModel

# A fitted model of scikit-learn, which has no types.
Regressor = Any
OPSET = {"": 18, "ai.onnx.ml": 3}
INPUT, OUTPUT = "rows", "outputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that a model was fitted on."""

    name: str
    sha256: str
    rows: int


def source_of(name: str, content: bytes, rows: int) -> Source:
    """Return the source that describes a file with this content."""
    return Source(name=name, sha256=hashlib.sha256(content).hexdigest(), rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted predictor: its regressors, the parameters beside them, and a record of the fit.

    `outputs` names the columns that all regressors give together, in order. The graph must agree with scikit-learn on
    `probe` `(n_rows, n_columns)` float32: real rows, held out from the fit where there are enough. `metrics` maps
    names of figures to their values on held-out rows. `text` describes uses and limits of the model. `tested` is
    what held-out jobs of this site show of it; None for data of another one, or if nothing was held out.
    `reason` says why this model is served in place of another, "" where there was no choice.
    """

    kind: str
    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    regressors: tuple[Regressor, ...]
    parameters: str
    probe: NDArray[np.float32]
    sources: tuple[Source, ...]
    metrics: Mapping[str, float]
    seed: int
    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    tested: Proof | None = None
    reason: str = ""


def bundled(fitted: Fitted) -> Bundle:
    """Export a fit without publishing it: the graph that the advisor would ask, not the regressors."""
    columns, outputs = len(fitted.columns), len(fitted.outputs)
    graph = to_onnx(fitted.regressors, columns)
    return Bundle(
        kind=fitted.kind,
        version="judged",
        columns=fitted.columns,
        outputs=fitted.outputs,
        model=OnnxModel(graph, name=fitted.kind, columns=columns, outputs=outputs),
        parameters=fitted.parameters,
    )


def to_onnx(regressors: Sequence[Regressor], columns: int) -> bytes:
    """Return one graph of all regressors: `(n_rows, columns)` in, a column out for each output of each regressor.

    The regressors must be fitted on float32: trees split on float64 give other answers for rows near a split.
    """
    from onnx import TensorProto, helper
    from onnx.compose import add_prefix
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType

    nodes, initializers, parts = [], [], []
    opsets: dict[str, int] = dict(OPSET)
    for number, regressor in enumerate(regressors):
        with warnings.catch_warnings():
            # skl2onnx passes numbers for truth values, of which protobuf 6 warns; protobuf 7 refuses them.
            warnings.filterwarnings("ignore", r"Field onnx\.AttributeProto\.ints", DeprecationWarning)
            converted = convert_sklearn(
                regressor, initial_types=[("x", FloatTensorType([None, columns]))], target_opset=OPSET
            )
        graph = add_prefix(converted, f"m{number}_").graph
        opsets |= {opset.domain: opset.version for opset in converted.opset_import}
        source, result = graph.input[0].name, graph.output[0].name
        nodes += [helper.make_node("Identity", [INPUT], [source]), *graph.node]
        initializers += list(graph.initializer)
        parts.append(result)
    nodes.append(helper.make_node("Concat", parts, [OUTPUT], axis=1))
    width = predictions(regressors, np.zeros((1, columns), dtype=np.float32)).shape[1]
    whole = helper.make_graph(
        nodes,
        "sadvise",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [None, columns])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [None, width])],
        initializers,
    )
    model = helper.make_model(
        whole, opset_imports=[helper.make_opsetid(domain, version) for domain, version in sorted(opsets.items())]
    )
    model.ir_version = 9
    content: bytes = model.SerializeToString()
    return content


def predictions(regressors: Sequence[Regressor], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the predictions of scikit-learn itself in the layout of the graph: `(n_rows, n_outputs)`."""
    return np.column_stack([np.asarray(regressor.predict(rows), dtype=np.float64) for regressor in regressors])
