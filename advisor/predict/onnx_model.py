"""One ONNX graph on one core of the controller; the only importer of onnxruntime."""

import os
import re
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.probation import Proof
from advisor.errors import ModelError

CORES = 1
FINGERPRINT_KEY = "sadvise_fingerprint"
# More rows are run in several parts. A model is tried with as many before it is opened (`tryout`).
MOST_ROWS: Final = 4096
WIDE_ROWS: Final = 512
# A run of up to this number of rows is not stopped, only refused if it was late.
FEW_ROWS: Final = 256
# What all graphs of this process can hold beside their inputs while they run, and how long one run can take.
MEMORY_LIMIT_BYTES: Final = 256 * 2**20
RUN_LIMIT_S: Final = 10.0

_OUT_OF_MEMORY: Final = re.compile(r"Available memory of|bad.?alloc", re.IGNORECASE)
_DTYPES: Final[Mapping[str, type[np.generic]]] = {
    "tensor(float)": np.float32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
}

# What goes into a graph, or comes out of it, by the names in the graph.
Tensors = Mapping[str, NDArray[Any]]


class TensorGraph:
    """A graph with named tensors in and out: rows, masks, edges, the state of a policy."""

    def __init__(self, content: bytes, *, name: str) -> None:
        """Open a graph; raises `ModelError` if it is damaged."""
        onnxruntime = runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = CORES
        options.inter_op_num_threads = CORES
        # A waiting thread that spins would take a core of the controller.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.use_env_allocators", "1")
        # Or bytes can be another format than the one that was checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        # Trees and small layers gain nothing from it, and it takes a third of the time that a graph takes to open.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4  # what goes wrong is raised, not printed
        self.name = name
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as err:  # onnxruntime raises a dozen kinds without a common base but this
            raise ModelError(f"model {name}: ONNX Runtime cannot open it: {_reason(err)}") from err
        self._run_options = _run_options()
        self._has_ended = False
        self.inputs = {tensor.name: tuple(tensor.shape) for tensor in self._session.get_inputs()}
        self.outputs = {tensor.name: tuple(tensor.shape) for tensor in self._session.get_outputs()}
        self._types = {tensor.name: tensor.type for tensor in self._session.get_inputs()}
        # The metadata of the graph, if it has any.
        self.metadata: Mapping[str, str] = self._session.get_modelmeta().custom_metadata_map
        self.fingerprint = self.metadata.get(FINGERPRINT_KEY, "")

    def run(self, tensors: Tensors, *, limit_s: float = RUN_LIMIT_S) -> Tensors:
        """Return the outputs by name; raises `ModelError` where it fails, is late, or an output is not finite."""
        outputs = self._outputs_of(tensors, limit_s)
        if not all(np.isfinite(output).all() for output in outputs.values() if output.dtype.kind == "f"):
            raise ModelError(f"model {self.name}: it returns a value that is not a finite number")
        return outputs

    def run_on_zeros(self) -> None:
        """Run the graph on many rows of zeros, whatever it returns; raises `ModelError` where it fails."""
        if unknown := set(self._types.values()) - _DTYPES.keys():
            raise ModelError(f"model {self.name}: it takes a {min(unknown)}, which nothing of sadvise gives it")
        # Where several axes of a tensor are open, as in the cluster graph, each has as many rows as a large cluster.
        is_wide = any(not isinstance(size, int) for shape in self.inputs.values() for size in shape[1:])
        rows = WIDE_ROWS if is_wide else MOST_ROWS
        tensors = {
            name: np.zeros([size if isinstance(size, int) else rows for size in shape], _DTYPES[self._types[name]])
            for name, shape in self.inputs.items()
        }
        self._outputs_of(tensors, RUN_LIMIT_S)

    def _outputs_of(self, tensors: Tensors, limit_s: float) -> Tensors:
        # A thread that stops a run costs more than the run of a few rows, which cannot take long once the graph has run
        # to its end: its cost follows from its shapes.
        if self._has_ended and all(len(tensor) <= FEW_ROWS for tensor in tensors.values() if tensor.ndim):
            return self._timed(tensors, self._run_options, limit_s)
        options = _run_options()
        deadline = threading.Timer(limit_s, setattr, (options, "terminate", True))
        deadline.daemon = True
        deadline.start()
        try:
            outputs = self._timed(tensors, options, limit_s)
        finally:
            deadline.cancel()
        self._has_ended = True
        return outputs

    def _timed(self, tensors: Tensors, options: Any, limit_s: float) -> Tensors:
        names = list(self.outputs)
        began = time.monotonic()
        late = ModelError(f"model {self.name}: it took longer than {limit_s:g} s for an answer")
        try:
            outputs = dict(zip(names, self._session.run(names, dict(tensors), options), strict=True))
        except Exception as err:  # as above
            # The timer began before this run did, and says for itself whether it ended the run.
            if options.terminate or time.monotonic() - began >= limit_s:
                raise late from err
            raise ModelError(f"model {self.name}: ONNX Runtime cannot run it: {_reason(err)}") from err
        if time.monotonic() - began >= limit_s:
            raise late
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
        parts = [rows[first : first + MOST_ROWS] for first in range(0, len(rows), MOST_ROWS)]
        return np.concatenate([self._graph.run({self._input: part})[self._result] for part in parts])


def _run_options() -> Any:
    options = runtime().RunOptions()
    options.log_severity_level = 4
    # Or what one run took would be kept, and be missing in the next.
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


@cache
def runtime() -> Any:
    """Return onnxruntime, which reports nothing and whose graphs share a bounded memory."""
    # Or recent releases write into the home folder and report to their maker; asking them not to comes too late.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    place = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    # The other strategy doubles what it asks the system for.
    bounds = onnxruntime.OrtArenaCfg({"max_mem": MEMORY_LIMIT_BYTES, "arena_extend_strategy": 1})
    onnxruntime.create_and_register_allocator(place, bounds)
    return onnxruntime


def _reason(err: Exception) -> str:
    text = str(err)
    if _OUT_OF_MEMORY.search(text):
        return f"it needs more than {MEMORY_LIMIT_BYTES // 2**20} MiB of memory"
    return (text.splitlines() or [type(err).__name__])[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A checked model: its digests and its fingerprint were right.

    `parameters` is the JSON text that the predictor of this kind wrote at the fit and reads itself: quantile
    corrections, supports, tables. It never holds code. `tested` is how the intervals held on jobs of this site
    that were kept aside from the fit; None where none were.
    """

    kind: str
    version: str
    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    model: OnnxModel
    parameters: str
    tested: Proof | None = None
