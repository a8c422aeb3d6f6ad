"""Publishes the rule `price` as a policy: a graph of its formula, served like a learned one."""

import json
from pathlib import Path
from typing import Final

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.steps import OPTION_COLUMNS
from advisor.fit.publish import Exported, publish_graph
from advisor.planning.scorers import PRICE, by_price
from advisor.predict.manifest import POLICY, Entry, Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import LEVER, SCORES
from tools.train.export import TOLERANCE, Training, card_of
from tools.train.slurm.env import ByRule, SlurmEnv

KIND: Final = f"{POLICY}price"
DECISIONS: Final = 10_000


def graph() -> bytes:
    """Return the graph of `by_price` over the option columns."""
    constants = {
        "one": 1.0,
        "price": PRICE,
        "log_two": np.log(2.0),
        "least": 1e-6,  # a run time of 0 has no cost to compare with
        **{f"at_{name}": OPTION_COLUMNS.index(name) for name in ("run_time", "run_time_saved", "crowd", "gpus_added")},
    }
    nodes: list[NodeProto] = []

    def node(operator: str, inputs: list[str], output: str) -> str:
        nodes.append(helper.make_node(operator, inputs, [output]))
        return output

    def column(name: str) -> str:
        nodes.append(helper.make_node("Gather", ["options", f"at_{name}"], [name], axis=1))
        return name

    def number(name: str) -> str:
        return node("Sub", [node("Exp", [column(name)], f"{name}_and_one"), "one"], f"{name}_itself")

    run, saved, crowd = (number(name) for name in ("run_time", "run_time_saved", "crowd"))
    ratio = node("Exp", [node("Mul", [column("gpus_added"), "log_two"], "log_ratio")], "ratio")
    weight = node("Mul", [crowd, "price"], "weight")
    factor = node("Add", [weight, "one"], "factor")
    factor_after = node("Add", [node("Mul", [weight, ratio], "weight_after"), "one"], "factor_after")
    cost = node("Add", [node("Mul", [run, factor], "cost_alone"), "least"], "cost")
    cost_after = node("Mul", [node("Sub", [run, saved], "run_after"), factor_after], "cost_after")
    node("Sub", ["one", node("Div", [cost_after, cost], "share")], SCORES)
    made = helper.make_graph(
        nodes,
        "price",
        [helper.make_tensor_value_info("options", TensorProto.FLOAT, [None, len(OPTION_COLUMNS)])],
        [helper.make_tensor_value_info(SCORES, TensorProto.FLOAT, [None])],
        [
            numpy_helper.from_array(np.array(value, np.int64 if name.startswith("at_") else np.float32), name)
            for name, value in constants.items()
        ],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {LEVER: str(Lever.GPU_COUNT)})
    content: bytes = model.SerializeToString()
    return content


def parity(content: bytes, decisions: int = DECISIONS) -> Parity:
    """Compare the scores above 0, those of steps that can be taken, with those of the rule on drawn workloads."""
    served, env = TensorGraph(content, name="price"), SlurmEnv(32)
    env.reset(range(3_000_000, 3_000_032))
    rows, error, met = 0, 0.0, 0
    while met < decisions:
        legal = np.swapaxes(env.steps.is_legal, 1, 2).reshape(env.n, -1)
        expected = np.swapaxes(by_price(env.steps, env.supply), 1, 2).reshape(env.n, -1)
        for row in np.flatnonzero(legal.any(axis=1)).tolist():
            scores = served.run({"options": np.ascontiguousarray(env.observe()[row][legal[row]])})[SCORES]
            wanted = expected[row][legal[row]]
            error = max(error, float(np.abs(np.maximum(scores, 0.0) - np.maximum(wanted, 0.0)).max()))
            rows, met = rows + len(scores), met + 1
        done = np.flatnonzero(env.step(ByRule(by_price)(env)).done)
        if len(done):
            env.reset([int(row) + 3_000_100 + met for row in done], done)
    if not error <= TOLERANCE:
        raise ModelError(f"the graph of the rule scores {error:.2g} off it, more than {TOLERANCE:g}")
    return Parity(rows=rows, max_error=error, tolerance=TOLERANCE)


def publish_rule(folder: Path, version: str, *, today: str) -> Entry:
    """Publish the rule without putting it in use."""
    content = graph()
    card = card_of(
        Training(
            text=(
                "A rule, not learned: a step is taken if it lowers run time x (1 + price x GPUs x pending jobs "
                "/ all GPUs), the step that lowers it by the largest share first. The teacher of `policy-dl2`."
            ),
            data={"training": "none; the price was chosen by trials on drawn workloads"},
            metrics={"price": PRICE},
            limits=(
                "Gains on whole traces: docs/sizes.md.",
                "Sizes pending jobs alone, once, as their turn comes near.",
            ),
        )
    )
    made = Exported(
        graph=content,
        kind=KIND,
        columns=OPTION_COLUMNS,
        outputs=(SCORES,),
        parameters=json.dumps({"price": PRICE}),
        parity=parity(content),
        seed=0,
    )
    return publish_graph(made, folder, version, today=today, card=card)
