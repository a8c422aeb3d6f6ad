"""Admits a graph: holds it to the rules, then runs it in a child with limits of time and memory (decision 0017)."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any, Final

from advisor.errors import ModelError
from advisor.text import escaped, named

# CPU time; where the machine is busy, the run may take several times as long by the clock.
TIME_LIMIT_S: Final = 15
_CLOCK_PER_CPU: Final = 4
# Address space beyond that of the libraries. With the daemon's own memory it stays below MemoryMax= of the unit.
ROOM_BYTES: Final = 512 * 2**20

_REASON_LENGTH: Final = 200
# The child finds the modules where this process does, whatever the user's variables say.
_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[3:]; from advisor.predict.tryout_child import main; main()"
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_ALIASES: Final = {"ai.onnx": ""}
_NONE: Final[frozenset[str]] = frozenset()
# The tensors of the cluster graph that are open beyond their rows: GPUs of servers, and servers of leaves.
OPEN_AXES: Final[Mapping[str, int]] = {"slots": 2, "member": 2}
CONTROL_FLOW: Final = frozenset({"If", "Loop", "Scan", "SequenceMap"})
# The fields of onnx.proto that the rules read, by message: the number, and the message inside if the rules look there.
_FIELDS: Final[Mapping[str, Mapping[str, tuple[int, str | None]]]] = {
    "Model": {"graph": (7, "Graph"), "training_info": (20, None), "functions": (25, None)},
    "Graph": {
        "node": (1, "Node"),
        "initializer": (5, "Tensor"),
        "input": (11, "ValueInfo"),
        "output": (12, "ValueInfo"),
        "sparse_initializer": (15, None),
    },
    "Node": {"op_type": (4, None), "attribute": (5, "Attribute"), "domain": (7, None)},
    "Attribute": {
        "t": (5, "Tensor"),
        "g": (6, None),
        "tensors": (10, "Tensor"),
        "graphs": (11, None),
        "sparse_tensor": (22, None),
        "sparse_tensors": (23, None),
    },
    "Tensor": {"external_data": (13, None)},
    "ValueInfo": {"name": (1, None), "type": (2, "Type")},
    "Type": {"tensor_type": (1, "TensorType")},
    "TensorType": {"shape": (2, "Shape")},
    "Shape": {"dim": (1, "Dimension")},
    "Dimension": {"dim_value": (1, None)},
}
# A message of the classes that `_model_type` makes when it is first asked.
Message = Any


def admit(content: bytes, *, name: str) -> None:
    """Raise `ModelError` unless a graph holds only what sadvise runs and passes its first run."""
    check_graph(content, name=name)
    try_graph(content, name=name)


def try_graph(content: bytes, *, name: str, limit_s: int = TIME_LIMIT_S, room_bytes: int = ROOM_BYTES) -> None:
    """Open and run a graph in a child process; raises `ModelError` with the reason where it fails."""
    reason = _fault(content, limit_s, room_bytes)
    if reason is not None:
        raise ModelError(
            f"model {name}: it fails its first run, for which it has {limit_s} s and {room_bytes // 2**20} MiB: "
            f"{reason}: restore it, or roll back"
        )


def _fault(content: bytes, limit_s: int, room_bytes: int) -> str | None:
    """Return what went wrong in the child process; None if nothing did."""
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-c", _PROGRAM, str(limit_s), str(room_bytes), *sys.path],
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | _ONE_THREAD,
            timeout=_CLOCK_PER_CPU * limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it did not end in time"
    except OSError as err:
        return f"no process can be started: {err.strerror}"
    if child.returncode == 0:
        return None
    if child.returncode == -signal.SIGXCPU:
        return "it did not end in time"
    if child.returncode < 0:
        return f"it was ended by signal {-child.returncode}"
    return escaped(child.stdout.decode(errors="replace"))[:_REASON_LENGTH] or "it gave no reason"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# None of these makes a tensor whose size follows from the values in another one.
OPERATORS: Final[Mapping[str, frozenset[str]]] = {
    "": _words(
        """
        Abs Add And ArgMax ArgMin Cast Ceil Clip Concat Constant Cos Div Elu Equal Erf Exp Flatten Floor Gather
        GatherElements GatherND Gemm Greater GreaterOrEqual Identity IsInf IsNaN LayerNormalization LeakyRelu Less
        LessOrEqual Log LogSoftmax MatMul Max Mean Min Mul Neg Not Or Pow Reciprocal ReduceLogSumExp ReduceMax
        ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Round Selu Shape Sigmoid Sign Sin Slice Softmax
        Softplus Softsign Split Sqrt Squeeze Sub Sum Tanh Transpose Unsqueeze Where Xor
        """
    ),
    "ai.onnx.ml": _words("LinearRegressor Normalizer Scaler TreeEnsembleRegressor"),
}


def check_graph(content: bytes, *, name: str) -> None:
    """Raise `ModelError` unless a graph holds only what sadvise runs; opens nothing."""
    from google.protobuf.message import DecodeError

    try:
        model = _model_type().FromString(content)
    except DecodeError as err:
        raise ModelError(f"model {name}: it is damaged, or no ONNX graph: restore it, or roll back") from err
    fault = next(chain.from_iterable(rule(model) for rule in RULES), None)
    if fault is not None:
        raise ModelError(f"model {name}: {fault}, which sadvise does not run: export it without, or roll back")


def _control_flow(model: Message) -> Iterator[str]:
    for node in _nodes(model):
        if not CONTROL_FLOW.isdisjoint(_texts(node.op_type)) or any(a.g or a.graphs for a in node.attribute):
            yield f"it holds control flow ({_spelled(node.op_type)})"


def _functions(model: Message) -> Iterator[str]:
    if model.functions or model.training_info:
        yield "it holds functions or training steps"


def _operators(model: Message) -> Iterator[str]:
    for node in _nodes(model):
        permitted = [OPERATORS.get(_ALIASES.get(domain, domain), _NONE) for domain in _texts(node.domain) or [""]]
        if not all(names.issuperset(_texts(node.op_type)) for names in permitted):
            yield f"it holds the operator {_spelled([*node.domain, *node.op_type])}"


def _one_file(model: Message) -> Iterator[str]:
    for tensor in _tensors(model):
        if tensor.external_data:
            yield "it keeps data in another file"


def _dense(model: Message) -> Iterator[str]:
    attributes = (attribute for node in _nodes(model) for attribute in node.attribute)
    if any(graph.sparse_initializer for graph in model.graph) or any(
        attribute.sparse_tensor or attribute.sparse_tensors for attribute in attributes
    ):
        yield "it holds sparse tensors"


def _shapes(model: Message) -> Iterator[str]:
    for graph in model.graph:
        for value in chain(graph.input, graph.output):
            shapes = [shape for kind in value.type for tensor in kind.tensor_type for shape in tensor.shape]
            open_axes = OPEN_AXES.get(" ".join(_texts(value.name)), 1)
            if len(shapes) != 1 or not all(_fixed(dimension) for dimension in shapes[0].dim[open_axes:]):
                yield f"the shape of {_spelled(value.name)} is open beyond its rows"


# Control flow and functions go first: their message says more than that of an operator.
RULES: Final[tuple[Callable[[Message], Iterator[str]], ...]] = (
    _control_flow,
    _functions,
    _operators,
    _one_file,
    _dense,
    _shapes,
)


def _nodes(model: Message) -> Iterator[Message]:
    return (node for graph in model.graph for node in graph.node)


def _tensors(model: Message) -> Iterator[Message]:
    yield from (tensor for graph in model.graph for tensor in graph.initializer)
    for node in _nodes(model):
        for attribute in node.attribute:
            yield from chain(attribute.t, attribute.tensors)


def _fixed(dimension: Message) -> bool:
    return bool(dimension.dim_value) and all(value > 0 for value in dimension.dim_value)


def _texts(values: Message) -> list[str]:
    return [value.decode(errors="replace") for value in values]


def _spelled(values: Message) -> str:
    return named(".".join(text for text in _texts(values) if text), longest=80)


@cache
def _model_type() -> Message:
    """Return the type of a model's message, with the fields that the rules read.

    Every field is repeated, so that one that stands twice, which ONNX Runtime merges, is seen each time.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="sadvise_graph.proto", package="sadvise_graph", syntax="proto2")
    for message, numbers in _FIELDS.items():
        described = file.message_type.add(name=message)
        for field, (number, inside) in numbers.items():
            kind = kinds.TYPE_MESSAGE if inside else kinds.TYPE_INT64 if field == "dim_value" else kinds.TYPE_BYTES
            described.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED,
                type=kind,
                type_name=f".sadvise_graph.{inside}" if inside else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sadvise_graph.Model"))
