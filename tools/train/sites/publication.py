"""Exports and publishes a trained policy for sites, and the performance model that it starts from."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from advisor.features.observe.least_loss import SEEN_COLUMNS
from advisor.features.observe.pointer import CHOICE_COLUMNS
from advisor.fit.performance_fit import adapted, no_samples
from advisor.fit.performance_graph import performance_exported
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.manifest import POLICY, Entry, Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.performance import KIND as PERFORMANCE
from advisor.predict.served_places import GRAPH, OUTLOOK_FINGERPRINT, SCORES
from advisor.predict.served_policy import LEVER
from tools.measured_prior import measured_prior
from tools.train.export import LEAST_ROWS, TOLERANCE, Training, card_of
from tools.train.sites.cluster import SiteCluster
from tools.train.sites.drawn import HELD_OUT, draw_site
from tools.train.sites.env import ShownAfterSome, site_tensors
from tools.train.sites.judging import METARL, actor_of
from tools.train.sites.network import SiteActor, SiteView
from tools.train.sites.training import VALIDATION_SEEDS, greedy, learnt
from tools.train.verdicts import read_description

# The inputs of the graph, in order.
NAMES: Final = ("choice", "outlook", "gang", "own")
KIND: Final = f"{POLICY}metarl"
# Servers of the sites on which a graph is compared with its network.
SIZES: Final = (16, 128, 512)
PARITY_SEED: Final = 3_100_000
_LIMITS: Final = (
    "Trained on drawn sites and workloads; docs/metarl.md says what is left of it on plain Slurm.",
    "Places pending gangs that span nodes; where it would wait, the gang is left to Slurm and to the delay timers.",
    "Knows the models of jobs only where users declare them, and GPU types by the names in the profiles.",
)


class _OneSite(nn.Module):
    """The actor for one observation, without the axis of the batch."""

    def __init__(self, actor: SiteActor) -> None:
        super().__init__()
        self.actor = actor

    def forward(self, choice: Tensor, outlook: Tensor, gang: Tensor, own: Tensor) -> Tensor:
        seen = SiteView(*(tensor.unsqueeze(0) for tensor in (choice, outlook, gang, own)))
        logits: Tensor = self.actor(seen)
        return logits.squeeze(0)


def site_policy_to_onnx(actor: SiteActor) -> bytes:
    """Return the graph of a network, for any number of servers."""
    tensors = next(_observations(actor, SIZES[0]))
    axes = {"choice": {0: "servers"}, "outlook": {0: "servers"}, SCORES: {0: "actions"}}
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        file = Path(folder) / "policy.onnx"
        # The newer exporter needs a package that nothing else here needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            _OneSite(actor),
            tuple(torch.from_numpy(tensors[name]) for name in NAMES),
            file,
            input_names=list(NAMES),
            output_names=[SCORES],
            dynamic_axes=axes,
            opset_version=18,
            dynamo=False,
        )
        model = onnx.load(file)
    helper.set_model_props(model, {LEVER: str(Lever.NODE_LIST), GRAPH: OUTLOOK_FINGERPRINT})
    content: bytes = model.SerializeToString()
    return content


def checked_parity(
    actor: SiteActor, graph: bytes, sizes: Sequence[int] = SIZES, least_rows: int = LEAST_ROWS
) -> Parity:
    """Compare the scores of a graph with those of its network on sites of all sizes; raises `ModelError`."""
    served = TensorGraph(graph, name="policy")
    error, rows = 0.0, 0
    for size in sizes:
        of_size = 0
        for tensors in _observations(actor, size):
            with torch.no_grad():
                expected = _OneSite(actor)(*(torch.from_numpy(tensors[name]) for name in NAMES)).numpy()
            error = max(error, float(np.abs(served.run(tensors)[SCORES] - expected).max()))
            of_size += len(expected)
            if of_size >= least_rows:
                break
        rows += of_size
    if not error <= TOLERANCE:
        raise ModelError(f"the exported policy scores {error:.2g} off its network, more than {TOLERANCE:g}")
    return Parity(rows=rows, max_error=error, tolerance=TOLERANCE)


def publish_performance(folder: Path, version: str, *, today: str) -> Entry:
    """Publish the performance model before any site has shown anything, without putting it in use."""
    prior = replace(measured_prior(), spreads=learnt())
    made = performance_exported(adapted(prior, no_samples(len(prior.models)), seed=0), seed=0)
    text = (
        "How fast a job runs on a GPU type, on a place and beside others, with the variance: an ensemble of five over "
        "effects with priors, which a site adapts. Our interpretation of the performance model of Yang et al., IEEE "
        "TCC 2023, of which the abstract alone is public."
    )
    card = card_of(
        Training(
            text=text,
            data={
                "speeds by GPU type": "advisor/sim/profiles.csv",
                "what neighbours add": "the shipped interference model, fitted on measured pairs; else the profiles",
                "spreads of the effects": "drawn sites of the training (tools/train/sites/spreads.json)",
            },
            metrics={f"spread: {name}": value for name, value in json.loads(made.parameters)["spreads"].items()},
            limits=(
                "docs/performance.md says how it fares on measured rows.",
                "Jobs whose models users do not declare share one row.",
            ),
        )
    )
    return publish_graph(made, folder, version, today=today, card=card)


def publish_policy(run: Path, results: Mapping[str, Any], folder: Path, version: str, *, today: str) -> Entry:
    """Publish the policy of a run, with what a judge found, without putting it in use; raises `ModelError`."""
    described, actor = read_description(run), actor_of(run)
    graph = site_policy_to_onnx(actor)
    made = Exported(
        graph=graph,
        kind=KIND,
        columns=CHOICE_COLUMNS + SEEN_COLUMNS,
        outputs=(SCORES,),
        parameters=json.dumps({"performance": "default-1", "teacher": described["teacher"]}, sort_keys=True),
        parity=checked_parity(actor, graph),
        seed=described["seed"],
    )
    text = (
        "Places gangs server by server by what the performance model says of each: our interpretation of Yang et al., "
        "IEEE TCC 2023, of which the abstract alone is public. Begins as a rule that weighs GPU types, places and "
        "neighbours, and learns by clipped updates over drawn sites by how much it is to differ."
    )
    card = card_of(
        Training(
            text=text,
            data={
                "training": "drawn sites and workloads, seeds below 1,000,000 (tools/train/sites/drawn.py)",
                "choice of the checkpoint": f"{len(VALIDATION_SEEDS)} drawn sites from seed 1,000,000 on",
                "figures": "those of the judge, families of sites that were held out (docs/metarl.md)",
                "performance model": f"{PERFORMANCE} default-1",
            },
            metrics=dict(_figures(results)),
            limits=_LIMITS,
            settings={name: str(value) for name, value in described["recipe"].items()},
        )
    )
    return publish_graph(made, folder, version, today=today, card=card)


def _figures(results: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the changes of the mean completion time against the best of the rivals, set by set."""
    for name, of_set in results["sets"].items():
        for row in of_set["rows"]:
            if row["name"] == METARL:
                change = row["against_rival"]["mean_jct_s"]
                for part in ("percent", "low", "high"):
                    yield f"mean JCT against {of_set['rival']}, {name}, {part}", change[part]


def _observations(actor: SiteActor, servers: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the observations that a policy meets at a drawn site of some servers, one for each it points to."""
    family = replace(HELD_OUT, servers=servers, jobs_per_gpu=0.5)
    site = draw_site(PARITY_SEED + servers, family)
    cluster = SiteCluster(site, ShownAfterSome(spreads=learnt())(site, PARITY_SEED))
    decide = greedy(actor, cluster)
    while (decision := cluster.next_decision()) is not None:
        is_over = False
        while not is_over:
            yield site_tensors(decision, cluster)
            is_over = cluster.take(decision, decide(decision))
