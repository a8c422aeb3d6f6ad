"""Fit the policy `linear`, which imitates the rule for reordering, and export it.

    python -m tools.train.linear [--output FOLDER]

The simulator runs the demo trace with the rules on clusters of several sizes, and they score every option of every
decision. The logarithm of the score is fitted by least squares from the logarithms of one more than the columns. The
policy shows that a trained one can be plugged in; it is not meant to be better than the rules. Equal versions give
equal models.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

import numpy as np
from advisor.planning.ordering import OPTION_COLUMNS
from numpy.typing import NDArray

from advisor.clock import SystemClock
from advisor.domain.actions import Lever
from advisor.errors import AdvisorError
from advisor.features.board import Board
from advisor.features.policy import Options, Scores
from advisor.fit.publish import Exported, publish_graph
from advisor.planning.scorers import by_rule
from advisor.predict.manifest import POLICY, Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import SCORES
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.advised import AdvisedSlurm, no_forecasts
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.view.terminal import instant
from tools.demo_trace import demo_trace
from tools.fit_models import MODELS, VERSION, put_in_place

# From few GPUs, which leave many jobs to choose among, to those of the demo.
CLUSTERS: Final = tuple(f"nodes={nodes},gpus=8,leaf=4" for nodes in (4, 6, 8, 10, 12, 16))
# Columns that nearly follow from others would get huge weights, which float32 does not add up.
SMALLEST_SHARE: Final = 1e-3
# Rows kept for the check that the exported graph agrees with the fit.
PROBE_ROWS: Final = 1000
TOLERANCE: Final = 1e-4
OPSET: Final = 18


class Recorder:
    """The rules, with the options and the scores of every decision kept."""

    name = "recorder"
    digest = ""
    levers = frozenset({Lever.NICE})

    def __init__(self) -> None:
        self.rows: list[NDArray[np.float32]] = []
        self.scores: list[Scores] = []

    def act(self, _board: Board, options: Options, state: bytes) -> tuple[Scores, bytes]:
        """Return the scores of the rules."""
        scores = by_rule(options)
        self.rows.append(options.features())
        self.scores.append(scores)
        return scores, state


def recorded() -> Recorder:
    """Run the demo trace with the rules on each cluster; return what they scored, one array for each decision."""
    recorder = Recorder()
    advised = AdvisedSlurm(name="recorder", summary="", forecaster=no_forecasts, policy=lambda: recorder)
    for cluster in CLUSTERS:
        simulate(demo_trace(), parse_cluster(cluster), advised, seed=0, options=SimulationOptions())
    return recorder


def fit(rows: NDArray[np.float32], scores: Scores) -> NDArray[np.float64]:
    """Return the weights of the logarithms, and the constant last `(n_columns + 1,)`; every score is above 0."""
    known = np.column_stack([logarithms(rows), np.ones(len(rows))])
    spread = np.abs(known).max(axis=0)
    weights: NDArray[np.float64] = np.linalg.lstsq(known / spread, np.log(scores), rcond=SMALLEST_SHARE)[0] / spread
    return weights


def logarithms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the logarithm of one more than each column, of 1 where it is negative."""
    return np.log(np.maximum(rows.astype(np.float64), 0.0) + 1.0)


def agreement(rows: list[NDArray[np.float32]], scores: list[Scores], weights: NDArray[np.float64]) -> tuple[int, float]:
    """Return how many decisions had more than one option, and in which share of them the fit chooses the same."""
    pairs = [
        (logarithms(options) @ weights[:-1], by_rules)
        for options, by_rules in zip(rows, scores, strict=True)
        if len(by_rules) > 1
    ]
    return len(pairs), float(np.mean([fitted.argmax() == by_rules.argmax() for fitted, by_rules in pairs]))


def to_onnx(weights: NDArray[np.float64]) -> bytes:
    """Return the graph from `options` `(n, n_columns)` to `scores` `(n,)`."""
    from onnx import TensorProto, checker, helper, numpy_helper

    constants = {"zero": 0.0, "one": 1.0, "weights": weights[:-1], "constant": weights[-1]}
    graph = helper.make_graph(
        [
            helper.make_node("Max", ["options", "zero"], ["positive"]),
            helper.make_node("Add", ["positive", "one"], ["more"]),
            helper.make_node("Log", ["more"], ["logarithms"]),
            helper.make_node("MatMul", ["logarithms", "weights"], ["weighted"]),
            helper.make_node("Add", ["weighted", "constant"], [SCORES]),
        ],
        "linear",
        [helper.make_tensor_value_info("options", TensorProto.FLOAT, [None, len(weights) - 1])],
        [helper.make_tensor_value_info(SCORES, TensorProto.FLOAT, [None])],
        [numpy_helper.from_array(np.asarray(value, dtype=np.float32), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def parity(graph: bytes, rows: NDArray[np.float32], weights: NDArray[np.float64]) -> Parity:
    """Compare the graph with the fit; raises `AdvisorError` where they part."""
    expected = logarithms(rows) @ weights[:-1] + weights[-1]
    error = float(np.max(np.abs(TensorGraph(graph, name="linear").run({"options": rows})[SCORES] - expected)))
    error /= float(expected.std())
    if not error <= TOLERANCE:
        raise AdvisorError(f"linear: the exported policy is off by {error:.2g} of the spread of its scores")
    return Parity(rows=len(rows), max_error=error, tolerance=TOLERANCE)


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="FOLDER", type=Path, default=MODELS, help="where the policy goes")
    folder = parser.parse_args(argv).output
    try:
        recorder = recorded()
        # Every other decision is held out.
        weights = fit(np.concatenate(recorder.rows[::2]), np.concatenate(recorder.scores[::2]))
        held_out = np.concatenate(recorder.rows[1::2])
        count, share = agreement(recorder.rows[1::2], recorder.scores[1::2], weights)
        graph = to_onnx(weights)
        card = (
            f"# policy-linear {VERSION}\n\nScores the options for reordering by a linear model of the logarithms of "
            "their columns, fitted to the scores of the rules on the demo trace. It shows that a trained policy can "
            "be plugged in; it imitates the rules and is not meant to be better. Written by "
            "`python -m tools.train.linear`; do not edit.\n\n| figure | value |\n|---|--:|\n"
            f"| decisions recorded | {len(recorder.rows):,} |\n"
            f"| of these held out, with more than one option | {count:,} |\n"
            f"| share of those in which it chooses as the rules do | {share:.4f} |\n"
        )
        exported = Exported(
            graph=graph,
            kind=f"{POLICY}linear",
            columns=OPTION_COLUMNS,
            outputs=(SCORES,),
            parameters="{}\n",
            parity=parity(graph, held_out[:PROBE_ROWS], weights),
            seed=0,
        )
        today = instant(SystemClock().now())[:10]
        put_in_place(
            exported.kind, folder, lambda: publish_graph(exported, folder, VERSION, today=today, card=lambda _: card)
        )
    except AdvisorError as err:
        sys.stderr.write(f"linear: error: {err}\n")
        return err.exit_code
    print(f"policy-linear: chooses as the rules do in {share:.1%} of {count} decisions that were held out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
