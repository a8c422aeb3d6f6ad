"""One ONNX graph on one core of the controller; the only importer of onnxruntime."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ModelError

CORES = 1
FINGERPRINT = "sadvise_fingerprint"


class TensorGraph:
    """A graph with named tensors in and out: rows, masks, edges, the state of a policy."""

    def __init__(self, content: bytes, *, name: str) -> None:
        """Open a graph; raises `ModelError` if it is damaged."""
        # Or recent releases write into the home folder and report to their maker; asking them not to comes too late.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = CORES
        options.inter_op_num_threads = CORES
        # A waiting thread that spins would take a core of the controller.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 4  # what goes wrong is raised, not printed
        self.name = name
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as err:  # onnxruntime raises a dozen kinds without a common base but this
            raise ModelError(f"model {name}: ONNX Runtime cannot open it: {_first_line(err)}") from err
        self.inputs = {tensor.name: tuple(tensor.shape) for tensor in self._session.get_inputs()}
        self.outputs = {tensor.name: tuple(tensor.shape) for tensor in self._session.get_outputs()}
        # The metadata of the graph, if it has any.
        self.metadata: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.fingerprint = self.metadata.get(FINGERPRINT, "")

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return the outputs by name; raises `ModelError` where a tensor does not fit or an output is not finite."""
        names = list(self.outputs)
        try:
            outputs = dict(zip(names, self._session.run(names, dict(tensors)), strict=True))
        except Exception as err:  # as above
            raise ModelError(f"model {self.name}: ONNX Runtime cannot run it: {_first_line(err)}") from err
        if not all(np.isfinite(output).all() for output in outputs.values() if output.dtype.kind == "f"):
            raise ModelError(f"model {self.name}: it returns a value that is not a finite number")
        return outputs


class OnnxModel:
    """A graph with float32 rows in, `(n_rows, n_columns)`, and float32 rows out, `(n_rows, n_outputs)`."""

    def __init__(self, content: bytes, *, name: str, columns: int, outputs: int) -> None:
        """Open a graph; raises `ModelError` if it is damaged or not of this shape."""
        self._graph = graph = TensorGraph(content, name=name)
        self.name, self.fingerprint = name, graph.fingerprint
        self._columns, self._outputs = columns, outputs
        shapes = [list(shape[1:]) for shape in (*graph.inputs.values(), *graph.outputs.values())]
        if len(graph.inputs) != 1 or len(graph.outputs) != 1 or shapes != [[columns], [outputs]]:
            raise ModelError(f"model {name}: it is not a graph of {columns} columns in and {outputs} out")
        (self._input,), (self._result,) = graph.inputs, graph.outputs

    def run(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs for `rows` `(n_rows, n_columns)`; raises `ModelError` if one is not a finite number."""
        if rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[1] != self._columns:
            raise ModelError(f"model {self.name}: it takes {self._columns} columns of float32, not {rows.shape}")
        if not len(rows):
            return np.empty((0, self._outputs), dtype=np.float32)
        outputs: NDArray[np.float32] = self._graph.run({self._input: rows})[self._result]
        return outputs


def _first_line(err: Exception) -> str:
    return (str(err).splitlines() or [type(err).__name__])[0]
