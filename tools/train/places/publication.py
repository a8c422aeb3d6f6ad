"""Exports and publishes a trained policy that places gangs, with what the judge found of it."""

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
import torch
from onnx import helper
from torch import Tensor, nn

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.observe.pointer import CHOICE_COLUMNS
from advisor.features.observe.report import FINGERPRINT
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.manifest import POLICY, Entry, Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_places import GRAPH, SCORES
from advisor.predict.served_policy import LEVER
from tools.train.export import LEAST_ROWS, TOLERANCE, Training, card_of
from tools.train.places.env import begun, tensors_of
from tools.train.places.judging import actor_of
from tools.train.places.network import Actor
from tools.train.places.training import greedy
from tools.train.places.workload import Scale
from tools.train.verdicts import read_description

# The inputs of the graph, in order.
NAMES: Final = ("slots", "servers", "member", "leaves", "choice", "gang", "own", "others")
KIND: Final = f"{POLICY}marl"
# Servers of the clusters on which a graph is compared with its network.
SIZES: Final = (32, 128, 512)
PARITY_SEED: Final = 3_000_000
_LIMITS: Final = (
    "Trained on drawn clusters and workloads; docs/marl.md says what is left of it on plain Slurm.",
    "Places pending gangs that span nodes; where it would wait, the gang is left to Slurm and to the delay timers.",
    "Knows the models of jobs only where users declare them.",
)


class _One(nn.Module):
    """The actor for one observation, without the axis of the batch."""

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self.actor = actor

    def forward(
        self,
        slots: Tensor,
        servers: Tensor,
        member: Tensor,
        leaves: Tensor,
        choice: Tensor,
        gang: Tensor,
        own: Tensor,
        others: Tensor,
    ) -> Tensor:
        codes = self.actor.encoder(*(tensor.unsqueeze(0) for tensor in (slots, servers, member, leaves)))
        logits: Tensor = self.actor.decide(codes, *(tensor.unsqueeze(0) for tensor in (choice, gang, own, others)))
        return logits.squeeze(0)


def to_onnx(actor: Actor) -> bytes:
    """Return the graph of a network, for any number of servers, GPUs of a server, leaves and agents."""
    decision = next(_observations(actor, SIZES[0]))
    axes = {
        "slots": {0: "servers", 1: "slots"},
        "servers": {0: "servers"},
        "member": {0: "leaves", 1: "servers"},
        "leaves": {0: "leaves"},
        "choice": {0: "servers"},
        "others": {0: "agents"},
        SCORES: {0: "actions"},
    }
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        file = Path(folder) / "policy.onnx"
        # The newer exporter needs a package that nothing else here needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            _One(actor),
            tuple(torch.from_numpy(decision[name]) for name in NAMES),
            file,
            input_names=list(NAMES),
            output_names=[SCORES],
            dynamic_axes=axes,
            opset_version=18,
            dynamo=False,
        )
        model = onnx.load(file)
    helper.set_model_props(model, {LEVER: str(Lever.NODE_LIST), GRAPH: FINGERPRINT})
    content: bytes = model.SerializeToString()
    return content


def checked_parity(actor: Actor, graph: bytes) -> Parity:
    """Compare the scores of a graph with those of its network on clusters of all sizes; raises `ModelError`."""
    served = TensorGraph(graph, name="policy")
    error, rows = 0.0, 0
    for size in SIZES:
        of_size = 0
        for tensors in _observations(actor, size):
            expected = _scores(actor, tensors)
            error = max(error, float(np.abs(served.run(tensors)[SCORES] - expected).max()))
            of_size += len(expected)
            if of_size >= LEAST_ROWS:
                break
        rows += of_size
    if not error <= TOLERANCE:
        raise ModelError(f"the exported policy scores {error:.2g} off its network, more than {TOLERANCE:g}")
    return Parity(rows=rows, max_error=error, tolerance=TOLERANCE)


def publish_policy(run: Path, results: Mapping[str, Any], folder: Path, version: str, *, today: str) -> Entry:
    """Publish the policy of a run, with what a judge found, without putting it in use; raises `ModelError`."""
    described, actor = read_description(run), actor_of(run)
    graph = to_onnx(actor)
    made = Exported(
        graph=graph,
        kind=KIND,
        columns=CHOICE_COLUMNS,
        outputs=(SCORES,),
        parameters=json.dumps({"teacher": described["teacher"]}, sort_keys=True),
        parity=checked_parity(actor, graph),
        seed=described["seed"],
    )
    text = (
        "Places gangs server by server with a graph network in two levels, for any number of agents: our "
        "interpretation of Zhao and Wu, arXiv 2112.13354. Imitates best fit with least interference, then learns by "
        "cooperative clipped updates (MAPPO)."
    )
    card = card_of(
        Training(
            text=text,
            data={
                "training": "drawn clusters and workloads, seeds below 1,000,000 (tools/train/places/workload.py)",
                "choice of the checkpoint": "12 drawn workloads from seed 1,000,000 on",
                "figures": "those of the judge, seeds from 6,000,000 on (docs/marl.md)",
            },
            metrics=dict(_figures(results)),
            limits=_LIMITS,
            settings={name: str(value) for name, value in described["recipe"].items()},
        )
    )
    return publish_graph(made, folder, version, today=today, card=card)


def _figures(results: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the changes of the mean completion time against the best of the rivals, set by set."""
    for name, of_set in results.items():
        for row in of_set["rows"]:
            if row["name"] == "marl":
                change = row["against_rival"]["mean_jct_s"]
                for part in ("percent", "low", "high"):
                    yield f"mean JCT against {of_set['rival']}, {name}, {part}", change[part]


def _observations(actor: Actor, servers: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the observations that a policy meets on a drawn cluster of some servers, one for each it points to."""
    cluster = begun(PARITY_SEED + servers, Scale(agents=(1,), servers_each=(servers,), jobs_per_gpu=1.0))
    decide = greedy(actor, cluster)
    while (decision := cluster.next_decision()) is not None:
        is_over = False
        while not is_over:
            tensors = tensors_of(decision, cluster.neighbours, actor.parts)
            del tensors["leaf"]
            yield tensors | {"member": decision.graph.member}
            is_over = cluster.take(decision, decide(decision))


def _scores(actor: Actor, tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        scores: np.ndarray = _One(actor)(*(torch.from_numpy(tensors[name]) for name in NAMES)).numpy()
    return scores
