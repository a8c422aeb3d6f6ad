"""A policy of the cluster graph points to servers; where it fails, the rule does."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.observe.graph import LEAF_COLUMNS, SERVER_COLUMNS, SLOT_COLUMNS, ClusterGraph, Neighbours
from advisor.features.observe.least_loss import ScoredChooser
from advisor.features.observe.pointer import (
    CHOICE_COLUMNS,
    FINGERPRINT,
    GANG_COLUMNS,
    REPORT_COLUMNS,
    AgentView,
    Choice,
    Gang,
    Interference,
    choose_all,
)
from advisor.features.policy import Decider, Options, Policy, RefusedPolicy
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import OBSERVATION, ServedPlaces

SERVERS, SLOTS = 4, 8
WIDTHS: dict[str, list[int | None]] = {
    "slots": [None, None, len(SLOT_COLUMNS)],
    "servers": [None, len(SERVER_COLUMNS)],
    "member": [None, None],
    "leaves": [None, len(LEAF_COLUMNS)],
    "choice": [None, len(CHOICE_COLUMNS)],
    "gang": [len(GANG_COLUMNS)],
    "own": [len(REPORT_COLUMNS)],
    "others": [None, len(REPORT_COLUMNS)],
}


def graph(wait: float, *, fingerprint: str = FINGERPRINT, without: str = "") -> TensorGraph:
    """Return a graph that scores a server by its free share, and waiting by a constant."""
    names = [name for name in WIDTHS if name != without]
    nodes = [
        helper.make_node("Slice", ["servers", "zero", "one", "columns"], ["free"]),
        helper.make_node("Squeeze", ["free", "columns"], ["of_servers"]),
        helper.make_node("Slice", ["others", "zero", "one", "columns"], ["shares"]),
        helper.make_node("Squeeze", ["shares", "columns"], ["of_agents"]),
        helper.make_node("Concat", ["of_servers", "of_agents", "wait"], ["scored"], axis=0),
        *(helper.make_node("ReduceSum", [name], [f"{name}_sum"], keepdims=0) for name in names),
        helper.make_node("Sum", [f"{name}_sum" for name in names], ["all"]),
        helper.make_node("Mul", ["all", "nothing"], ["none"]),
        helper.make_node("Add", ["scored", "none"], ["scores"]),
    ]
    constants = [
        helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        helper.make_tensor("columns", TensorProto.INT64, [1], [1]),
        helper.make_tensor("wait", TensorProto.FLOAT, [1], [wait]),
        helper.make_tensor("nothing", TensorProto.FLOAT, [], [0.0]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, WIDTHS[name]) for name in names]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None])]
    made = helper.make_graph(nodes, "places", inputs, outputs, constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {OBSERVATION: fingerprint})
    return TensorGraph(model.SerializeToString(), name="places")


def served(wait: float) -> ServedPlaces:
    return ServedPlaces(graph(wait), name="places", columns=CHOICE_COLUMNS)


def view() -> AgentView:
    servers = np.zeros((SERVERS, len(SERVER_COLUMNS)), np.float32)
    servers[:, 0] = [0.25, 1.0, 0.75, 0.5]
    return AgentView(
        graph=ClusterGraph(
            slots=np.zeros((SERVERS, SLOTS, len(SLOT_COLUMNS)), np.float32),
            servers=servers,
            leaf=np.array([0, 0, 1, 1]),
            leaves=np.zeros((2, len(LEAF_COLUMNS)), np.float32),
        ),
        report=np.zeros(len(REPORT_COLUMNS), np.float32),
        neighbours=Neighbours.of(np.zeros((1, 1))),
    )


def choice(gpus: int) -> Choice:
    none = np.zeros(SERVERS)
    return Choice(
        gang=Gang(
            gpus=gpus,
            fewest_nodes=-(-gpus // 8),
            model=0,
            leaf_inflation=1.0,
            spine_inflation=1.0,
            run_s=60.0,
            wait_s=0.0,
        ),
        usable=np.array([2, 8, 6, 4]),
        leaf=np.array([0, 0, 1, 1]),
        leaf_crossing=np.zeros(2, np.intp),
        interference=Interference(slows_me=none, slows_others=none),
        chosen=[],
        taken=[],
    )


def chosen_by(policy: Policy, gpus: int) -> tuple[bool, list[int], Decider]:
    decider, of = Decider(policy=policy), choice(gpus)
    return choose_all(of, ScoredChooser(decider, view)), of.chosen, decider


def test_gang_gets_the_servers_with_the_highest_scores_until_it_has_its_gpus() -> None:
    fits, chosen, decider = chosen_by(served(wait=0.1), 16)

    assert fits
    assert chosen == [1, 2, 3]
    assert len(decider.decisions) == 3
    assert decider.decisions[0].lever is Lever.NODE_LIST


def test_gang_is_left_alone_where_waiting_scores_highest() -> None:
    fits, chosen, decider = chosen_by(served(wait=2.0), 16)

    assert not fits
    assert chosen == []
    assert decider.fault == ""
    assert decider.decisions[0].chosen is None


def test_gang_that_has_begun_gets_all_servers_even_if_waiting_scores_higher() -> None:
    fits, chosen, _ = chosen_by(served(wait=0.9), 12)

    assert fits
    assert chosen == [1, 2]


@pytest.mark.parametrize("policy", [RefusedPolicy("places", "it is damaged")])
def test_rule_chooses_where_the_policy_fails(policy: Policy) -> None:
    fits, chosen, decider = chosen_by(policy, 4)

    assert fits
    assert chosen == [3]
    assert decider.fault == "it is damaged"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: graph(0.0, fingerprint="other"), "trained on another observation"),
        (lambda: graph(0.0, without="gang"), "not a graph that points to servers"),
    ],
)
def test_graph_of_another_observation_is_refused(made: Callable[[], TensorGraph], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        ServedPlaces(made(), name="places", columns=CHOICE_COLUMNS)


def test_options_of_another_lever_are_refused() -> None:
    options = Options(lever=Lever.GPU_COUNT, job_id=np.zeros(1, np.int64), columns={"gpus": np.zeros(1)})

    with pytest.raises(ModelError, match="does not score options of gpu_count"):
        served(0.0).act(options)
    with pytest.raises(ModelError, match="does not score options"):
        served(0.0).act(replace(options, place=np.zeros(1, np.intp)))
