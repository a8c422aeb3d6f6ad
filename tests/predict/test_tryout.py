"""The first run of a graph, in a process of its own: one that does not end or grows harms no other process."""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from google.protobuf.internal.encoder import _VarintBytes as varint
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from advisor.errors import ModelError
from advisor.fit.fitted import OPSET
from advisor.predict.tryout import CONTROL_FLOW, OPERATORS, admit, check_graph, try_graph
from tests.predict.graphs import content_of, doubling, endless, folded, in_another_file, quadratic, unary, value

MODELS = Path(__file__).parent.parent.parent / "models"
# Started like this, the parent dies before its child, which tries a graph that does not end.
ORPHAN = """
import os, sys, threading
from advisor.predict.tryout import try_graph
threading.Timer(1.0, os.kill, (os.getpid(), 9)).start()
try_graph(sys.stdin.buffer.read(), name="endless", limit_s=3)
"""


def slow(steps: int) -> bytes:
    """A chain of large products without any control flow."""
    names = ["rows", *(f"step_{number}" for number in range(1, steps)), "outputs"]
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [1500, 1500], bytes(9_000_000), raw=True)
    return content_of(
        *(helper.make_node("MatMul", [source, "weights"], [result]) for source, result in pairwise(names)),
        inputs=[value("rows", [None, 1500])],
        outputs=[value("outputs", [None, 1500])],
        initializers=[weights],
    )


@pytest.mark.parametrize("path", sorted(MODELS.rglob("*.onnx")), ids=lambda path: path.parent.parent.name)
def test_every_model_that_ships_is_admitted(path: Path) -> None:
    admit(path.read_bytes(), name=path.name)


@pytest.mark.slow
@pytest.mark.parametrize("content", [endless(), slow(2000)], ids=["loop", "products"])
def test_graph_that_does_not_end_is_ended(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"^model endless: it fails .* 2 s .*: it did not end in time: "):
        try_graph(content, name="endless", limit_s=2)


@pytest.mark.parametrize("content", [doubling(40), folded()], ids=["run", "opening"])
def test_memory_bomb_goes_off_in_the_child(content: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(ModelError, match=r"^model bomb: it fails .* 512 MiB: .*it needs more than 256 MiB") as caught:
        admit(content, name="bomb")

    assert str(caught.value).isprintable()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 * 1024**2


def test_weights_that_do_not_fit_are_refused() -> None:
    weights = helper.make_tensor("weights", TensorProto.FLOAT, [4_000_000, 2], bytes(32_000_000), raw=True)
    content = content_of(
        helper.make_node("ReduceSum", ["weights"], ["total"], keepdims=0),
        helper.make_node("Add", ["rows", "total"], ["outputs"]),
        initializers=[weights],
    )

    admit(content, name="heavy")

    with pytest.raises(ModelError, match="model heavy: it fails its first run, for which it has 15 s and 16 MiB"):
        try_graph(content, name="heavy", room_bytes=16 * 2**20)


def test_cost_that_grows_with_the_square_of_the_rows_is_measured_at_the_most_rows() -> None:
    try_graph(quadratic(), name="square")

    with pytest.raises(ModelError, match="fails its first run"):
        try_graph(quadratic(), name="square", room_bytes=48 * 2**20)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no graph", "ONNX Runtime cannot open it"),
        (b"", "ONNX Runtime cannot open it"),
        (unary("Steal"), "ONNX Runtime cannot open it"),
        (content_of(inputs=[value("rows", kind=TensorProto.STRING)], outputs=[]), "ONNX Runtime cannot open it"),
        (
            content_of(
                helper.make_node("Identity", ["rows"], ["outputs"]),
                inputs=[value("rows", kind=TensorProto.STRING)],
                outputs=[value("outputs", kind=TensorProto.STRING)],
            ),
            r"it takes a tensor\(string\)",
        ),
    ],
    ids=["damage", "empty", "operator", "no outputs", "texts"],
)
def test_graph_that_cannot_be_run_gives_its_reason_in_one_line(content: bytes, reason: str) -> None:
    with pytest.raises(ModelError, match=f"^model bad: it fails its first run, .*: {reason}") as caught:
        try_graph(content, name="bad")

    assert str(caught.value).isprintable()


def test_answer_on_zeros_need_not_be_a_number() -> None:
    admit(unary("Log"), name="logarithm")


def test_child_ends_by_itself_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        stdin=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    parent.communicate(endless(), timeout=60)
    left = of_session(parent.pid)
    deadline = time.monotonic() + 60
    while of_session(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.1)

    assert parent.returncode == -signal.SIGKILL and left
    assert of_session(parent.pid) == []


def of_session(session: int) -> list[str]:
    """Return the processes of a session that still run."""
    stats = (fields(path) for path in Path("/proc").glob("[0-9]*/stat"))
    return [pid for pid, state, _parent, _group, of in stats if of == str(session) and state != "Z"]


def fields(path: Path) -> tuple[str, str, str, str, str]:
    """Return number, state, parent, group and session of a process, nothing of one that is gone."""
    try:
        pid, _, rest = path.read_text().partition(" ")
    except OSError:
        return ("", "", "", "", "")
    state, parent, group, session = rest.rpartition(")")[2].split()[:4]
    return (pid, state, parent, group, session)


def choice() -> bytes:
    """One of two graphs, by a constant."""
    branch = helper.make_graph([helper.make_node("Identity", ["rows"], ["given"])], "branch", [], [value("given")])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    node = helper.make_node("If", ["yes"], ["outputs"], then_branch=branch, else_branch=branch)
    return content_of(node, initializers=[yes])


def scan() -> bytes:
    """The rows, one by one."""
    row = [value("row", [2])], [value("same", [2])]
    body = helper.make_graph([helper.make_node("Identity", ["row"], ["same"])], "body", *row)
    return content_of(helper.make_node("Scan", ["rows"], ["outputs"], body=body, num_scan_inputs=1))


def subgraph_of_another_operator() -> bytes:
    """An operator that takes no graph, with one."""
    inner = helper.make_graph([], "inner", [], [])
    return content_of(helper.make_node("Identity", ["rows"], ["outputs"], body=inner))


def with_function() -> bytes:
    """A function of the model's own, under the name of an operator."""
    node = helper.make_node("Identity", ["x"], ["y"])
    function = helper.make_function("own", "Relu", ["x"], ["y"], [node], [helper.make_opsetid("", 18)])
    return content_of(helper.make_node("Identity", ["rows"], ["outputs"]), functions=[function])


def with_training() -> bytes:
    """A model that brings how it was trained."""
    model = ModelProto.FromString(unary())
    model.training_info.add()
    content: bytes = model.SerializeToString()
    return content


def sparse() -> bytes:
    """A sparse constant of ten thousand million numbers in a hundred bytes."""
    values = helper.make_tensor("large", TensorProto.FLOAT, [1], [1.0])
    place = helper.make_tensor("place", TensorProto.INT64, [1], [0])
    tensor = helper.make_sparse_tensor(values, place, [100_000, 100_000])
    return content_of(helper.make_node("Identity", ["rows"], ["outputs"]), sparse_initializer=[tensor])


def sparse_constant(*, several: bool = False) -> bytes:
    """The same as an attribute of a node, by itself or in a list."""
    tensor = ModelProto.FromString(sparse()).graph.sparse_initializer[0]
    node = helper.make_node("Identity", ["rows"], ["outputs"], value=[tensor] if several else tensor)
    return content_of(node)


def constant_in_another_file() -> bytes:
    """The same as an attribute of a node."""
    tensor = ModelProto.FromString(in_another_file()).graph.initializer[0]
    return content_of(
        helper.make_node("Constant", [], ["number"], value=tensor),
        helper.make_node("Add", ["rows", "number"], ["outputs"]),
    )


def sequence() -> bytes:
    """A list of tensors, whose number is open."""
    tensors = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [None, 2]))
    node = helper.make_node("Identity", ["rows"], ["outputs"])
    return content_of(node, inputs=[helper.make_value_info("rows", tensors)])


IDENTITY = helper.make_node("Identity", ["rows"], ["outputs"])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (endless(), r"it holds control flow \(Loop\)"),
        (choice(), r"it holds control flow \(If\)"),
        (scan(), r"it holds control flow \(Scan\)"),
        (subgraph_of_another_operator(), r"it holds control flow \(Identity\)"),
        (with_function(), "it holds functions or training steps"),
        (with_training(), "it holds functions or training steps"),
        (unary("Steal", "com.example"), "it holds the operator com.example.Steal"),
        (unary("Gelu", "com.microsoft"), "it holds the operator com.microsoft.Gelu"),
        (unary("Relu", "ai.onnx.ml"), "it holds the operator ai.onnx.ml.Relu"),
        (unary("NonZero"), "it holds the operator NonZero"),
        (unary("ConstantOfShape"), "it holds the operator ConstantOfShape"),
        (unary("\x1b[2J\n"), r"it holds the operator '\\x1b\[2J\\n'"),
        (unary("A" * 5000), "it holds the operator 'A{80}',"),
        (in_another_file(), "it keeps data in another file"),
        (constant_in_another_file(), "it keeps data in another file"),
        (sparse(), "it holds sparse tensors"),
        (sparse_constant(), "it holds sparse tensors"),
        (sparse_constant(several=True), "it holds sparse tensors"),
        (content_of(IDENTITY, inputs=[value("rows", [None, "any"])]), "the shape of rows is open beyond its rows"),
        (content_of(IDENTITY, outputs=[value("outputs", [2, None])]), "the shape of outputs is open beyond its rows"),
        (content_of(IDENTITY, outputs=[value("outputs", None)]), "the shape of outputs is open beyond its rows"),
        (content_of(IDENTITY, inputs=[value("rows", [None, 0])]), "the shape of rows is open beyond its rows"),
        (
            content_of(IDENTITY, inputs=[value("rows", [None, None])], outputs=[value("outputs", [2, None])]),
            "the shape of rows is open beyond its rows",
        ),
        (sequence(), "the shape of rows is open beyond its rows"),
    ],
    ids=[
        "loop",
        "if",
        "scan",
        "subgraph",
        "function",
        "training",
        "custom",
        "contributed",
        "wrong domain",
        "size from values",
        "size from values again",
        "terminal codes",
        "long name",
        "external",
        "external constant",
        "sparse",
        "sparse attribute",
        "sparse attributes",
        "open columns",
        "open result",
        "no shape",
        "no columns",
        "open columns before an open result",
        "sequence",
    ],
)
def test_what_sadvise_does_not_run_is_refused_in_one_line(content: bytes, fault: str) -> None:
    with pytest.raises(ModelError, match=f"^model bad: {fault}") as caught:
        check_graph(content, name="bad")

    assert str(caught.value).isprintable()


@pytest.mark.parametrize("content", [unary(), unary("Relu", "ai.onnx"), unary("Scaler", "ai.onnx.ml")])
def test_operators_whose_cost_follows_from_the_shapes_pass(content: bytes) -> None:
    check_graph(content, name="good")


@pytest.mark.parametrize("path", sorted(MODELS.rglob("*.onnx")), ids=lambda path: path.parent.parent.name)
def test_every_model_that_ships_passes(path: Path) -> None:
    check_graph(path.read_bytes(), name=path.name)


@pytest.mark.parametrize("content", [b"no graph", b"\x00" * 100, unary()[:-1], b"\x3a\x02\x0a\x00" * 3 + b"\x3a\x7f"])
def test_bytes_that_are_no_graph_are_refused(content: bytes) -> None:
    with pytest.raises(ModelError, match=r"^model bad: it is damaged, or no ONNX graph"):
        check_graph(content, name="bad")


def test_graphs_inside_of_graphs_are_refused_at_any_depth() -> None:
    inner = b""
    for _ in range(10_000):
        # The field of a graph, inside of an attribute, a node and a graph.
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            inner = tag + varint(len(inner)) + inner
    content = b"\x3a" + varint(len(inner)) + inner

    with pytest.raises(ModelError, match=r"^model bad: it holds control flow"):
        check_graph(content, name="bad")


@pytest.mark.parametrize("first", [True, False])
def test_second_graph_that_onnx_runtime_would_merge_is_read_too(first: bool) -> None:
    content = unary("Relu") + unary("NonZero") if first else unary("NonZero") + unary("Relu")

    with pytest.raises(ModelError, match="it holds the operator NonZero"):
        check_graph(content, name="bad")


def test_operators_that_pass_are_known_to_onnx_and_none_is_control_flow() -> None:
    from onnx import defs

    known = {(schema.domain, schema.name) for schema in defs.get_all_schemas_with_history()}
    passing = {(domain, name) for domain, names in OPERATORS.items() for name in names}

    assert passing <= known and OPERATORS.keys() == OPSET.keys()
    assert not CONTROL_FLOW & OPERATORS[""]


@given(st.binary(max_size=200), st.integers(0, 10_000))
def test_any_damage_is_refused_or_harmless(patch: bytes, place: int) -> None:
    whole = endless()
    start = place % len(whole)
    content = whole[:start] + patch + whole[start + len(patch) :]

    with suppress(ModelError, DecodeError):
        check_graph(content, name="bad")
        # What passes has no loop left, or ONNX would still find it.
        assert b"Loop" not in operators(content)


def operators(content: bytes) -> set[bytes]:
    """Return the operators that ONNX itself finds."""
    return {node.op_type.encode() for node in ModelProto.FromString(content).graph.node}
