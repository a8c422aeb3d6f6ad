"""Policies as they are served: what a graph must be, and what it may answer."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from advisor.cycle import Cycle
from advisor.domain.actions import Lever, SetNodeList
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.observe.graph import LEAF_COLUMNS, SERVER_COLUMNS, SLOT_COLUMNS, ClusterGraph, Neighbours
from advisor.features.observe.least_loss import SEEN_COLUMNS, ScoredChooser
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
from advisor.features.steps import (
    OPTION_COLUMNS,
    Scaling,
    elastic_jobs,
    next_steps,
    rungs,
    step_options,
    supply_of,
)
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.library import Library
from advisor.predict.manifest import FILE_NAME, GRAPH, POLICY, Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import (
    LEVER,
    OBSERVATION,
    OUTLOOK_FINGERPRINT,
    OpenedPolicy,
    ServedPlaces,
    ServedPolicy,
    open_policy,
    policies,
)
from advisor.settings import PlanningSettings
from tests.builders import HOUR_S, make_gang, make_hints, make_holders, make_job, make_node, make_snapshot
from tests.predict.graphs import doubling, endless, publish_sizes, scoring, unary
from tests.predict.shelf import TODAY
from tests.predict.test_onnx_model import line
from tests.stand_in_policy import prior_of_types
from tools.train.performance_graph import performance_exported
from tools.train.sizer import by_price


def options(*names: str, rows: int = 3) -> Options:
    """Options with the numbers 0 to `rows` in each column."""
    return Options(
        lever=Lever.GPU_COUNT,
        job_id=np.zeros(rows, dtype=np.int64),
        columns={name: np.arange(rows, dtype=np.float64) for name in names},
    )


def two_columns(weights: list[float]) -> ServedPolicy:
    """A policy that weighs the logarithms of two columns, and adds the last weight."""
    graph = TensorGraph(scoring(weights), name="test")
    return ServedPolicy(graph, name="test", columns=("first", "second"))


def test_scores_are_those_of_the_graph() -> None:
    scores = two_columns([2.0, 1.0, 0.5]).act(options("first", "second"))

    assert scores == pytest.approx(3.0 * np.log([1.0, 2.0, 3.0]) + 0.5)


def test_options_of_other_columns_are_refused() -> None:
    with pytest.raises(ModelError, match="does not score options of gpu_count"):
        two_columns([1.0, 1.0, 0.0]).act(options("second", "first"))


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
        two_columns([1.0, 1.0, 0.0]).act(options("first", "second"))


def test_policy_of_a_site_scores_what_the_planner_offers(tmp_path: Path) -> None:
    publish_sizes(tmp_path)
    site = Library(tmp_path)

    scores = open_policy(site, "own").act(options(*OPTION_COLUMNS))

    assert policies(site) == ("dl2", "marl", "metarl", "own", "price") and scores == pytest.approx([0.0, 1.0, 2.0])


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


def highest(policy: Policy) -> float:
    """The highest score among three options."""
    scores = policy.act(options(*OPTION_COLUMNS))
    return float(scores.max())


def test_version_is_opened_beside_the_one_in_use(tmp_path: Path) -> None:
    publish_sizes(tmp_path)
    publish_sizes(tmp_path, version="site-2", constant=5.0, in_use=False)
    site = Library(tmp_path)

    in_use, named, other = (open_policy(site, name) for name in ("own", "own@1", "own@site-2"))

    assert highest(other) == pytest.approx(highest(in_use) + 5.0)
    assert in_use.digest == named.digest != other.digest
    assert {policy.name for policy in (in_use, named, other)} == {"own"}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("own@9", "no version '9' of policy-own: there are 1"),
        ("own@", "no version '' of policy-own: there are 1"),
        ("won@1", "no policy 'won': there are dl2, marl, metarl, own, price"),
        ("own", "no version of policy-own is in use: there are 1; sadvise models use policy-own VERSION"),
    ],
)
def test_unknown_version_is_an_error_that_names_those_there_are(tmp_path: Path, name: str, complaint: str) -> None:
    publish_sizes(tmp_path, in_use=False)

    with pytest.raises(ModelError, match=complaint):
        open_policy(Library(tmp_path), name)


def test_damaged_version_is_not_opened(tmp_path: Path) -> None:
    publish_sizes(tmp_path)
    publish_sizes(tmp_path, version="2", constant=5.0, in_use=False)
    (tmp_path / f"{POLICY}own" / "2" / GRAPH).write_bytes(b"damaged")

    with pytest.raises(ModelError, match="not the file of its digest"):
        open_policy(Library(tmp_path), "own@2")
    assert highest(open_policy(Library(tmp_path), "own")) > 0.0


def test_promoted_version_is_used_from_the_next_cycle_on_until_it_is_taken_back(tmp_path: Path) -> None:
    site = Library(tmp_path)
    publish_sizes(tmp_path)
    publish_sizes(tmp_path, version="2", constant=5.0, in_use=False)
    in_use, pinned = OpenedPolicy(site, "own"), OpenedPolicy(site, "own@2")

    before, pinned_before = in_use(), pinned()
    site.use(f"{POLICY}own", "2")
    promoted, pinned_after = in_use(), pinned()
    site.rollback(f"{POLICY}own")

    assert promoted.digest == pinned_before.digest != before.digest
    assert in_use().digest == before.digest
    assert pinned_after is pinned_before
    assert in_use() is in_use()


def test_refused_version_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_sizes(tmp_path)
    publish_sizes(tmp_path, version="2", constant=5.0, in_use=True)
    policy = OpenedPolicy(Library(tmp_path), "own")
    Library(tmp_path).use(f"{POLICY}own", "1")
    (tmp_path / f"{POLICY}own" / "1" / GRAPH).write_bytes(b"damaged")

    for _ in range(2):
        with pytest.raises(ModelError, match="not the file of its digest"):
            policy()
        monkeypatch.setattr("advisor.predict.served_policy.served", None)


def test_rule_price_is_served_by_name_with_the_scores_of_its_formula(tmp_path: Path) -> None:
    asked = np.array([2.0, 4.0])
    jobs = elastic_jobs(
        [Scaling(sizes=rungs([1, 2, 4, 8]), speed=np.sqrt(rungs([1, 2, 4, 8])), is_forecast=True)] * 2,
        asked=asked,
        run_s=np.array([7200.0, 600.0]),
        run_is_forecast=np.ones(2, np.bool_),
        limit_s=np.full(2, np.inf),
        wait_s=np.zeros(2),
        limit_ratio=1.0,
    )
    supply = supply_of(capacity=64.0, idle=16.0, wanted=6.0, waiting=3.0, node_gpus=8.0)
    steps = next_steps(jobs, supply, jobs.first)
    legal, offered = step_options(steps, np.arange(2))
    policy = open_policy(Library(tmp_path), "price")

    scores = policy.act(offered)

    assert OpenedPolicy(Library(tmp_path), "price")() is policy
    assert (policy.name, policy.digest) == ("price", "")
    assert policy.levers == {Lever.GPU_COUNT}
    assert scores == pytest.approx(by_price(steps, supply).ravel()[legal])


def test_rule_has_no_versions_and_scores_no_other_options(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="policy price is a rule, which has no versions: give price alone"):
        open_policy(Library(tmp_path), "price@default-1")
    with pytest.raises(ModelError, match="policy price: it does not score options of gpu_count"):
        open_policy(Library(tmp_path), "price").act(options("first"))


def test_library_in_which_the_rule_was_in_use_as_a_graph_is_read(tmp_path: Path) -> None:
    publish_sizes(tmp_path)
    manifest = tmp_path / FILE_NAME
    manifest.write_text(manifest.read_text().replace("[in_use]", '[in_use]\npolicy-price = "default-1"'))
    site = Library(tmp_path)

    assert open_policy(site, "price").name == "price"
    assert "policy-price" not in {held.entry.kind for held in site.held()}


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
    return choose_all(of, ScoredChooser(decider, view).next_server), of.chosen, decider


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


FASTEST = SEEN_COLUMNS.index("behind_best")


def graph_of_the_fastest() -> bytes:
    """Return a graph that scores servers by how near their GPU type is to the best one, and never waits."""
    nodes = [
        helper.make_node("Gather", ["outlook", "column"], ["behind"], axis=1),
        helper.make_node("Concat", ["behind", "never"], ["scores"], axis=0),
    ]
    constants: dict[str, NDArray[Any]] = {"column": np.array(FASTEST, np.int64), "never": np.array([-9.0], np.float32)}
    graph = helper.make_graph(
        nodes,
        "policy",
        [
            helper.make_tensor_value_info("choice", TensorProto.FLOAT, [None, len(CHOICE_COLUMNS)]),
            helper.make_tensor_value_info("outlook", TensorProto.FLOAT, [None, len(SEEN_COLUMNS)]),
            helper.make_tensor_value_info("gang", TensorProto.FLOAT, [10]),
        ],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {LEVER: str(Lever.NODE_LIST), OBSERVATION: OUTLOOK_FINGERPRINT})
    content: bytes = model.SerializeToString()
    return content


def publish_tables(folder: Path, version: str, *, seed: int) -> None:
    """Publish a version of the performance model for two GPU types."""
    made = performance_exported(prior_of_types(("t4", "a100")), seed=seed)
    publish_graph(made, folder, version, today=TODAY, card=lambda _: "a card")


def publish_policy(folder: Path, version: str, performance: str | None) -> None:
    """Publish a version of the policy, which names a version of the performance model where one is given."""
    made = Exported(
        graph=graph_of_the_fastest(),
        kind="policy-sites",
        columns=CHOICE_COLUMNS + SEEN_COLUMNS,
        outputs=("scores",),
        parameters=json.dumps({} if performance is None else {"performance": performance}),
        parity=Parity(rows=1, max_error=0.0, tolerance=1.0),
        seed=0,
    )
    publish_graph(made, folder, version, today=TODAY, card=lambda _: "a card")


def published(folder: Path, *, performance: str | None) -> Library:
    """Return a library with a policy that names a version of the performance model, and with version one of that."""
    publish_tables(folder, "one", seed=0)
    publish_policy(folder, "default-1", performance)
    library = Library(folder, folder / "none")
    library.use("policy-sites", "default-1")
    return library


def site() -> Snapshot:
    """Return two nodes of each of two GPU types, and a gang that wants two whole nodes of any."""
    nodes = [
        make_node(f"n0{number}", gpu_type=name) for number, name in enumerate(("t4", "t4", "a100", "a100"), start=1)
    ]
    gang = make_job(
        1, gang=make_gang(16, nodes_min=2, nodes_max=2), time_limit_s=2 * HOUR_S, hints=make_hints(model="bert")
    )
    return make_snapshot([gang, *make_holders(nodes)], nodes)


def named(policy: object) -> tuple[str, ...]:
    """Return the nodes that a policy names for the gang."""
    record = Cycle(planning=PlanningSettings(name_nodes=True), policy=policy).judge(site())  # type: ignore[arg-type]
    assert record.policy_fault == ""
    return next((change.action.after for change in record.judged if isinstance(change.action, SetNodeList)), ())


def test_policy_brings_the_performance_model_that_it_names(tmp_path: Path) -> None:
    policy = open_policy(published(tmp_path, performance="one"), "sites")

    assert isinstance(policy, ServedPlaces)
    assert policy.models is not None
    assert policy.models.speeds is not None
    assert policy.models.speeds.gpu_types == ("t4", "a100")


def test_performance_model_that_an_earlier_release_adapted_to_a_site_is_opened(tmp_path: Path) -> None:
    library = published(tmp_path, performance="one")
    made = performance_exported(prior_of_types(("t4", "a100")), seed=0)
    adapted = {
        "samples": 300, "residual": 0.9, "prior": "default-1", "until": 1.8e9, "gate": {"gain": 0.1},
        "subspaces": {"total": 3, "seen": {"bert|one leaf": [3, 1.0]}},
    }  # fmt: skip
    made = replace(made, parameters=json.dumps({**json.loads(made.parameters), **adapted}))
    publish_graph(made, tmp_path, "site-1", today=TODAY, card=lambda _: "a card")
    publish_policy(tmp_path, "site-1", "site-1")

    library.use("policy-sites", "site-1")

    assert named(open_policy(library, "sites")) == ("n03", "n04")


def test_gang_gets_the_gpu_type_on_which_its_model_is_fastest(tmp_path: Path) -> None:
    assert named(open_policy(published(tmp_path, performance="one"), "sites")) == ("n03", "n04")


def test_shipped_policy_gives_a_gang_the_faster_gpu_type(tmp_path: Path) -> None:
    assert named(open_policy(Library(tmp_path), "metarl")) == ("n03", "n04")


def test_policy_without_the_performance_model_that_it_looks_at_is_refused(tmp_path: Path) -> None:
    library = published(tmp_path, performance=None)

    with pytest.raises(ModelError, match="it looks at a performance model, and none is named"):
        open_policy(library, "sites")


@pytest.mark.slow
def test_two_versions_with_one_graph_and_other_tables_have_other_digests(tmp_path: Path) -> None:
    library = published(tmp_path, performance="one")
    publish_tables(tmp_path, "two", seed=1)
    publish_policy(tmp_path, "default-2", "two")

    one, two = open_policy(library, "sites"), open_policy(library, "sites@default-2")

    assert one.digest != two.digest
