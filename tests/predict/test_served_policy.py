"""Policies as they are served: what a graph must be, and what it may answer."""

from pathlib import Path

import numpy as np
import pytest

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.policy import Options, Policy
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
from advisor.predict.served_policy import LEVER, OpenedPolicy, ServedPolicy, open_policy, policies
from tests.predict.graphs import doubling, endless, publish_sizes, scoring, unary
from tests.predict.shelf import TODAY
from tests.predict.test_library import pin
from tests.predict.test_onnx_model import line
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


@pytest.mark.parametrize(("graph", "fault"), HOSTILE)
def test_hostile_policy_is_not_opened(tmp_path: Path, graph: bytes, fault: str) -> None:
    publish_graph(exported(scoring([1.0, 1.0, 0.0])), tmp_path, "1", today=TODAY, card=lambda _: "")
    (tmp_path / f"{POLICY}own" / "1" / GRAPH).write_bytes(graph)
    pin(tmp_path, graph)
    site = Library(tmp_path, tmp_path / "none")

    with pytest.raises(ModelError, match=f"^model policy-own 1: {fault}"):
        site.use(f"{POLICY}own", "1")


def test_unknown_policy_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no policy 'won': there are dl2, marl, metarl, price"):
        open_policy(Library(tmp_path), "won")
    publish_sizes(tmp_path)
    with pytest.raises(ModelError, match="no policy 'won': there are dl2, marl, metarl, own, price"):
        open_policy(Library(tmp_path), "won")


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
