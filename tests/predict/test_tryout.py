"""The first run of a graph, in a process of its own: one that does not end or grows harms no other process."""

import os
import resource
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from advisor.errors import ModelError
from advisor.predict.tryout import admit, try_graph
from tests.predict.graphs import content_of, doubling, endless, folded, quadratic, unary, value

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
