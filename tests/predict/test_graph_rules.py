"""Which graphs are refused without being opened, and in which words."""

from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf.internal.encoder import _VarintBytes as varint
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from advisor.errors import ModelError
from advisor.fit.fitted import OPSET
from advisor.predict.tryout import CONTROL_FLOW, OPERATORS, check_graph
from tests.predict.graphs import content_of, endless, in_another_file, unary, value

MODELS = Path(__file__).parent.parent.parent / "models"


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
