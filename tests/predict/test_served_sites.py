"""Serves a policy that looks at a performance model: which versions it takes, and what it chooses on two GPU types."""

import json
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
from advisor.features.observe.least_loss import SEEN_COLUMNS
from advisor.features.observe.pointer import CHOICE_COLUMNS
from advisor.fit.performance_fit import adapted, no_samples
from advisor.fit.performance_graph import performance_exported
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.library import Library
from advisor.predict.manifest import Parity
from advisor.predict.served_policy import LEVER, OBSERVATION, OUTLOOK_FINGERPRINT, ServedPlaces, open_policy
from advisor.settings import PlanningSettings
from tests.builders import HOUR_S, make_gang, make_hints, make_holders, make_job, make_node, make_snapshot
from tools.measured_prior import measured_prior

TODAY = "2026-11-25"
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
    prior = measured_prior(("t4", "a100"))
    made = performance_exported(adapted(prior, no_samples(len(prior.models)), seed=seed), seed=seed)
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
