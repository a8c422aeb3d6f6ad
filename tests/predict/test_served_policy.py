"""Policies as they are served: what a graph must be, and what it may answer."""

from pathlib import Path

import numpy as np
import pytest

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.board import JOB_COLUMNS, NODE_COLUMNS, Board
from advisor.features.policy import Options
from advisor.fit.publish import Exported, publish_graph
from advisor.planning.sizing import OPTION_COLUMNS
from advisor.predict.library import Library
from advisor.predict.manifest import GRAPH, POLICY, Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import LEVER, ServedPolicy, open_policy, policies
from tests.predict.graphs import doubling, endless, publish_sizes, scoring, unary
from tests.predict.shelf import TODAY
from tests.predict.test_library import pin
from tests.predict.test_onnx_model import line

EMPTY = Board(
    job_id=np.zeros(0, dtype=np.int64),
    jobs=np.zeros((0, len(JOB_COLUMNS)), dtype=np.float32),
    nodes=np.zeros((0, len(NODE_COLUMNS)), dtype=np.float32),
)


def options(*names: str, rows: int = 3) -> Options:
    """Options with the numbers 0 to `rows` in each column."""
    return Options(
        lever=Lever.GPU_COUNT,
        job=np.zeros(rows, dtype=np.intp),
        columns={name: np.arange(rows, dtype=np.float64) for name in names},
    )


def two_columns(weights: list[float]) -> ServedPolicy:
    """A policy that weighs the logarithms of two columns, and adds the last weight."""
    graph = TensorGraph(scoring(weights), name="test")
    return ServedPolicy(graph, name="test", columns=("first", "second"))


def test_scores_are_those_of_the_graph() -> None:
    scores, state = two_columns([2.0, 1.0, 0.5]).act(EMPTY, options("first", "second"), b"kept")

    assert scores == pytest.approx(3.0 * np.log([1.0, 2.0, 3.0]) + 0.5)
    assert state == b"kept"


def test_options_of_other_columns_are_refused() -> None:
    with pytest.raises(ModelError, match="does not score options of gpu_count"):
        two_columns([1.0, 1.0, 0.0]).act(EMPTY, options("second", "first"), b"")


def of_lever(lever: str) -> ServedPolicy:
    """A policy whose graph says which lever's options it scores."""
    graph = TensorGraph(scoring([1.0, 1.0, 0.0], **{LEVER: lever}), name="test")
    return ServedPolicy(graph, name="test", columns=("first", "second"))


def test_graph_says_which_levers_options_it_scores() -> None:
    assert of_lever("switches").levers == {Lever.SWITCHES}
    assert two_columns([1.0, 1.0, 0.0]).levers == {Lever.GPU_COUNT}


def test_graph_for_an_unknown_lever_is_refused() -> None:
    with pytest.raises(ModelError, match="'nise', which is no lever"):
        of_lever("nise")


def test_graph_that_scores_no_options_is_refused() -> None:
    with pytest.raises(ModelError, match="not a graph that scores options"):
        ServedPolicy(TensorGraph(line(), name="line"), name="line", columns=("first", "second"))


def test_policy_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.predict.served_policy.DEADLINE_S", 0.0)

    with pytest.raises(ModelError, match="longer than 0 s"):
        two_columns([1.0, 1.0, 0.0]).act(EMPTY, options("first", "second"), b"")


def test_policy_of_a_site_scores_what_the_planner_offers(tmp_path: Path) -> None:
    publish_sizes(tmp_path)
    site = Library(tmp_path)

    scores, _ = open_policy(site, "own").act(EMPTY, options(*OPTION_COLUMNS), b"")

    assert policies(site) == ("own",) and scores == pytest.approx(np.log([1.0, 2.0, 3.0]))


def exported(graph: bytes) -> Exported:
    """A policy, as a training program exports it."""
    parity = Parity(rows=1, max_error=0.0, tolerance=1.0)
    return Exported(
        graph=graph, kind=f"{POLICY}own", columns=("a", "b"), outputs=("s",), parameters="{}", parity=parity, seed=0
    )


HOSTILE = [
    pytest.param(endless(), r"it holds control flow \(Loop\)", id="loop"),
    pytest.param(unary("Steal", "com.example"), "it holds the operator com.example.Steal", id="custom operator"),
    pytest.param(doubling(40), "it fails its first run", id="memory bomb"),
]


@pytest.mark.parametrize(("graph", "fault"), HOSTILE)
def test_hostile_policy_is_not_published(tmp_path: Path, graph: bytes, fault: str) -> None:
    with pytest.raises(ModelError, match=f"^model policy-own 1: {fault}"):
        publish_graph(exported(graph), tmp_path, "1", today=TODAY, card=lambda _: "")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("graph", "fault"), HOSTILE)
def test_hostile_policy_is_not_opened(tmp_path: Path, graph: bytes, fault: str) -> None:
    publish_graph(exported(scoring([1.0, 1.0, 0.0])), tmp_path, "1", today=TODAY, card=lambda _: "")
    (tmp_path / f"{POLICY}own" / "1" / GRAPH).write_bytes(graph)
    pin(tmp_path, graph)
    site = Library(tmp_path, tmp_path / "none")

    with pytest.raises(ModelError, match=f"^model policy-own 1: {fault}"):
        site.use(f"{POLICY}own", "1")


def test_unknown_policy_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no policy 'won': there are none"):
        open_policy(Library(tmp_path), "won")
    publish_sizes(tmp_path)
    with pytest.raises(ModelError, match="no policy 'won': there are own"):
        open_policy(Library(tmp_path), "won")
