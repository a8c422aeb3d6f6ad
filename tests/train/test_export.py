"""Exported policies: the same scores as their networks."""

from pathlib import Path

import numpy as np
import pytest
import torch

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.fit.publish import publish_graph
from advisor.predict.library import Library
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import open_policy
from advisor.predict.tryout import check_graph
from tests.predict.shelf import TODAY
from tools.train.networks import PerOption
from tools.train.policy_graph import (
    LEAST_ROWS,
    CardText,
    Rows,
    card_of,
    checked_parity,
    exported,
    to_onnx,
)

COLUMNS = ("a", "b", "c")


def network(seed: int = 1) -> PerOption:
    """A network of three columns with drawn weights."""
    torch.manual_seed(seed)
    made = PerOption(len(COLUMNS))
    made.mean.copy_(torch.tensor([1.0, -2.0, 0.5]))
    made.scale.copy_(torch.tensor([2.0, 0.5, 1.0]))
    return made


def decisions() -> list[Rows]:
    """Return decisions with as many options as a check needs."""
    rng = np.random.default_rng(1)
    return [rng.normal(size=(100, len(COLUMNS))).astype(np.float32) for _ in range(LEAST_ROWS // 100)]


def test_graph_scores_as_the_network_and_holds_what_sadvise_runs() -> None:
    made = network()
    graph = to_onnx(made)

    parity = checked_parity(made, graph, decisions())

    check_graph(graph, name="policy")
    assert parity.rows >= LEAST_ROWS and 0.0 < parity.max_error <= 1e-4
    served = TensorGraph(graph, name="policy")
    assert served.metadata["sadvise_lever"] == Lever.GPU_COUNT


def test_graph_of_another_network_is_found_out() -> None:
    with pytest.raises(ModelError, match=r"scores .* off its network, more than 0\.0001"):
        checked_parity(network(1), to_onnx(network(2)), decisions())


def test_few_options_are_no_check() -> None:
    few = [np.zeros((10, 3), dtype=np.float32)]

    with pytest.raises(ModelError, match="10 options are too few"):
        checked_parity(network(), to_onnx(network()), few)


def test_decisions_filled_up_to_a_common_length_score_the_same() -> None:
    made, rows = network(), torch.randn(5, 3)
    filled = torch.cat([rows, torch.full((4, 3), 7.0)])[None]
    is_there = torch.tensor([[True] * 5 + [False] * 4])

    scores = made(filled, is_there)[0, :5]

    assert torch.allclose(scores, made(rows), atol=1e-6)


def test_published_policy_is_served(tmp_path: Path) -> None:
    made = network()
    what = exported(made, kind="policy-own", columns=COLUMNS, decisions=decisions(), seed=3, parameters={"runs": 1})
    training = CardText(text="A test.", data={"cycles": "0"}, metrics={"return": 0.5}, limits=["none is known"])

    publish_graph(what, tmp_path, "site-1", today=TODAY, card=card_of(training))

    policy = open_policy(Library(tmp_path), "own@site-1")
    assert policy.levers == {Lever.GPU_COUNT}
    card = (tmp_path / "policy-own" / "site-1" / "card.md").read_text()
    assert "| return | 0.5 |" in card and "- none is known" in card and "seed 3" in card
