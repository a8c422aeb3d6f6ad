"""MARL: trains, exports and publishes the placement of gangs by several agents.

    python -m tools.train.marl train --seed 1 --out DIR

Our interpretation of Zhao and Wu, arXiv 2112.13354: a graph encoder in two levels, a pointer to servers, and a critic
that sees all parts. It imitates a rule, then learns by cooperative updates (MAPPO), for one agent and for several.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from advisor.features.observe.graph import LEAF_COLUMNS, SERVER_COLUMNS, SLOT_COLUMNS, Floats32, Neighbours
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.pointer import CHOICE_COLUMNS, FINGERPRINT, GANG_COLUMNS, REPORT_COLUMNS, best_fit
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.interference import InterferenceForecaster, models_known_to
from advisor.predict.manifest import POLICY, Entry, Parity
from advisor.predict.served_policy import SCORES
from advisor.sim.policies.learning import opened
from tools.train import training_commands
from tools.train.drawn_gangs import CURRICULUM, DrawnGangs, Scale, draw
from tools.train.gang_rules import Decide, action_of, by_work
from tools.train.gang_training import (
    Cooperative,
    GangAgent,
    GangEnv,
    GangRun,
    GangTeacher,
    RowLayout,
    best_actions,
    observations_of,
    trained,
)
from tools.train.imitation import Method, Recipe, WarmUp
from tools.train.judging import figures_of
from tools.train.parted_cluster import GangDecision, PartedCluster, model_rows_of
from tools.train.policy_graph import LEAST_ROWS, CardText, OneObservation, card_of, pointer_parity, pointer_to_onnx
from tools.train.runs import RecipeBook
from tools.train.training import CurvePoint, read_description

# What a part of a batch is filled up with: no leaf.
NO_LEAF: Final = -1.0
CODE: Final = 16
HIDDEN: Final = 32
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


class GangView(NamedTuple):
    """A batch of observations; the first axis of every tensor is the batch."""

    slots: Tensor  # (n, servers, slots, len(SLOT_COLUMNS))
    servers: Tensor  # (n, servers, len(SERVER_COLUMNS))
    leaf: Tensor  # (n, servers): the leaf of each server, -1 where there is no server
    leaves: Tensor  # (n, leaves, len(LEAF_COLUMNS))
    choice: Tensor  # (n, servers, len(CHOICE_COLUMNS))
    gang: Tensor  # (n, len(GANG_COLUMNS))
    own: Tensor  # (n, len(REPORT_COLUMNS))
    others: Tensor  # (n, agents, len(REPORT_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class GangLayout(RowLayout):
    """The sizes that observations are filled up to: servers, their slots, leaves, and agents to forward to."""

    VIEW: ClassVar = GangView
    FILL: ClassVar[Mapping[str, float]] = {"leaf": NO_LEAF}

    leaves: int
    slots: int = 8

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tensors of one observation, in the order of `GangView`."""
        return {
            "slots": (self.servers, self.slots, len(SLOT_COLUMNS)),
            "servers": (self.servers, len(SERVER_COLUMNS)),
            "leaf": (self.servers,),
            "leaves": (self.leaves, len(LEAF_COLUMNS)),
            "choice": (self.servers, len(CHOICE_COLUMNS)),
            "gang": (len(GANG_COLUMNS),),
            "own": (len(REPORT_COLUMNS),),
            "others": (self.agents, len(REPORT_COLUMNS)),
        }


class Encoder(nn.Module):
    """Codes of servers `(n, servers, HIDDEN)`: GPUs to servers, servers to leaves, leaves to the spine, and back."""

    def __init__(self, rounds: int = 2) -> None:
        """Make layers for some rounds of messages."""
        super().__init__()
        self.slot = nn.Linear(len(SLOT_COLUMNS), CODE)
        self.inside = nn.Linear(CODE, CODE)
        self.server = nn.Linear(len(SERVER_COLUMNS) + CODE, HIDDEN)
        self.up = nn.ModuleList([nn.Linear(len(LEAF_COLUMNS) + HIDDEN, HIDDEN) for _ in range(rounds)])
        self.spine = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(rounds)])
        self.down = nn.ModuleList([nn.Linear(2 * HIDDEN, HIDDEN) for _ in range(rounds)])

    def forward(self, slots: Tensor, servers: Tensor, member: Tensor, leaves: Tensor) -> Tensor:
        """Return the codes of the servers; `member` `(n, leaves, servers)` is 1 where a leaf has a server, else 0."""
        inside = torch.relu(self.inside(torch.relu(self.slot(slots)).sum(dim=2) * 0.125))
        codes = torch.relu(self.server(torch.cat([servers, inside], dim=2)))
        count = member.sum(dim=2, keepdim=True)
        mean = member / count.clamp(min=1.0)
        is_leaf = (count > 0.0).to(codes.dtype)
        over = is_leaf / is_leaf.sum(dim=1, keepdim=True).clamp(min=1.0)
        back = member.transpose(1, 2)
        for up, spine, down in zip(self.up, self.spine, self.down, strict=True):
            of_leaf = torch.relu(up(torch.cat([leaves, torch.bmm(mean, codes)], dim=2)))
            of_leaf = of_leaf + torch.relu(spine((of_leaf * over).sum(dim=1, keepdim=True)))
            codes = codes + torch.relu(down(torch.cat([codes, torch.bmm(back, of_leaf)], dim=2)))
        return codes


def member_of(seen: GangView) -> Tensor:
    """Return which servers each leaf has, `(n, leaves, servers)`."""
    numbers = torch.arange(seen.leaves.shape[1], dtype=seen.leaf.dtype)
    return (seen.leaf.unsqueeze(1) == numbers.reshape(1, -1, 1)).to(seen.servers.dtype)


class GangActor(nn.Module):
    """The logits of an agent's actions: each server as the next, each agent to forward to, and wait."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.encoder = Encoder()
        self.of_code = nn.Linear(HIDDEN, HIDDEN)
        self.of_choice = nn.Linear(len(CHOICE_COLUMNS), HIDDEN, bias=False)
        self.of_gang = nn.Linear(len(GANG_COLUMNS), HIDDEN, bias=False)
        self.point = nn.Linear(HIDDEN, HIDDEN)
        self.score = nn.Linear(HIDDEN, 1)
        self.wait = nn.Sequential(
            nn.Linear(HIDDEN + len(GANG_COLUMNS) + len(REPORT_COLUMNS), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )
        self.pass_on = nn.Sequential(
            nn.Linear(len(GANG_COLUMNS) + 2 * len(REPORT_COLUMNS), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, seen: GangView) -> Tensor:
        """Return the logits `(n, servers + agents + 1)`."""
        codes = self.encoder(seen.slots, seen.servers, member_of(seen), seen.leaves)
        return self.decide(codes, seen.choice, seen.gang, seen.own, seen.others)

    def decide(self, codes: Tensor, choice: Tensor, gang: Tensor, own: Tensor, others: Tensor) -> Tensor:
        """Return the logits from the codes of the servers; servers without any usable GPU cannot be the best."""
        usable = (choice[:, :, :1] > 0.0).to(codes.dtype)
        joined = torch.relu(self.of_code(codes) + self.of_choice(choice) + self.of_gang(gang).unsqueeze(1))
        pointed = torch.relu(self.point(joined))
        servers = self.score(pointed).squeeze(2)
        best = (pointed * usable).amax(dim=1)
        wait = self.wait(torch.cat([best, gang, own], dim=1))
        beside = torch.cat([gang, own], dim=1).unsqueeze(1) + 0.0 * others[:, :, :1]
        forwards = self.pass_on(torch.cat([beside, others], dim=2)).squeeze(2)
        return torch.cat([servers, forwards, wait], dim=1)


class GangCritic(nn.Module):
    """The value of an agent's decision from its own part and from the present reports of all parts."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.encoder = Encoder()
        width = 2 * HIDDEN + len(GANG_COLUMNS) + 2 * len(REPORT_COLUMNS)
        self.value = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, seen: GangView) -> Tensor:
        """Return the values `(n,)`."""
        codes = self.encoder(seen.slots, seen.servers, member_of(seen), seen.leaves)
        is_there = (seen.leaf >= 0.0).unsqueeze(2).to(codes.dtype)
        mean = (codes * is_there).sum(dim=1) / is_there.sum(dim=1).clamp(min=1.0)
        # An agent that does not exist reports zeros; the size of a part is never 0.
        is_agent = (seen.others[:, :, -2:-1] != 0.0).to(codes.dtype)
        everyone = (seen.others * is_agent).sum(dim=1) / is_agent.sum(dim=1).clamp(min=1.0)
        pooled = [mean, (codes * is_there).amax(dim=1), seen.gang, seen.own, everyone]
        value: Tensor = self.value(torch.cat(pooled, dim=1)).squeeze(1)
        return value


@cache
def interference() -> KnownModels:
    """Return what the shipped model of interference knows."""
    return models_known_to(InterferenceForecaster.from_bundle(opened("interference")))


def parted(drawn: DrawnGangs) -> PartedCluster:
    """Return the parted cluster of a workload before its first decision."""
    models = interference()
    return PartedCluster(drawn, models.neighbours, model_rows_of(drawn.trace, models))


def begun(seed: int, scale: Scale, *, agents: int | None = None) -> PartedCluster:
    """Return the parted cluster of a seed before its first decision; agents take short work first.

    With `agents`, the same workload is divided among that many.
    """
    drawn = draw(seed, scale)
    cluster = parted(drawn if agents is None else replace(drawn, agents=agents))
    cluster.order = by_work
    return cluster


class PlacesEnv(GangEnv):
    """Drawn clusters; actions are the next server, an agent to forward to, or wait, which is the last."""

    KEPT: ClassVar = ("n", "scale", "layout")

    def __init__(self, n: int, scale: Scale, layout: RowLayout) -> None:
        """Make the arrays; `reset` begins the episodes."""
        self.scale = scale
        super().__init__(n, layout)

    def cluster_of(self, seed: int) -> PartedCluster:
        """Return the cluster of a seed before its first decision."""
        return begun(seed, self.scale)

    def tensors(self, decision: GangDecision, cluster: PartedCluster) -> dict[str, Floats32]:
        """Return the arrays of one observation."""
        return tensors_of(decision, cluster.neighbours)


def tensors_of(decision: GangDecision, neighbours: Neighbours) -> dict[str, Floats32]:
    """Return the arrays of one observation by the names of `Seen`."""
    graph = decision.graph
    return {
        "slots": graph.slots,
        "servers": graph.servers,
        "leaf": graph.leaf.astype(np.float32),
        "leaves": graph.leaves,
        "choice": decision.choice.columns(),
        "gang": decision.choice.gang_columns(neighbours),
        "own": decision.reports[decision.agent],
        "others": decision.reports,
    }


def tensors_of_graph(decision: GangDecision, neighbours: Neighbours) -> dict[str, Floats32]:
    """Return the inputs of the graph by name."""
    tensors = tensors_of(decision, neighbours) | {"member": decision.graph.member}
    return {name: tensors[name] for name in NAMES}


VALIDATION_SEEDS: Final = range(1_000_000, 1_000_012)
VALIDATION: Final = Scale(agents=(1, 2), servers_each=(32,), jobs_per_gpu=1.5)
# The share of the decisions about gangs in which the teacher waits, at random, so that the policy begins to explore.
WAITS: Final = 0.1
LAYOUT: Final = GangLayout(servers=32, leaves=8, agents=4)
RECIPE: Final = Recipe(
    method=Method.CLIPPED,
    episodes=32,
    warm_updates=500,
    warm_lr=2e-3,
    warm_decay=True,
    permute=False,
    updates=40,
    lr=5e-4,
    batch=1024,
    replay=16384,
    entropy=0.003,
    entropy_by_action=False,
    explore=0.0,
    steps=128,
    passes=3,
    value_first=4,
    gae=0.95,
)


class MarlRun(GangRun):
    """A run on drawn clusters and workloads, first with one agent, then with several."""

    def __init__(
        self,
        recipe: Recipe,
        teacher_name: str,
        seed: int,
        every: tuple[int, int] = (250, 8),
        validation: tuple[Sequence[int], Scale] = (VALIDATION_SEEDS, VALIDATION),
    ) -> None:
        """Begin a run of a seed; `every` as in `TrainingRun`, `validation` seeds and where workloads are drawn from."""
        agent = GangAgent(LAYOUT, seed, lambda: (GangActor(), GangCritic()))
        self.validation = validation
        self.envs = [PlacesEnv(recipe.episodes, scale, LAYOUT) for scale in CURRICULUM]
        warm_up = WarmUp(agent, self.envs[-1], GangTeacher(best_fit_action, WAITS, seed), recipe, seed)  # type: ignore[arg-type]
        online = Cooperative(agent, self.envs[0], recipe, seed)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher_name, seed=seed, every=every)
        self.validate_rule(best_fit_action)

    def advance(self) -> CurvePoint:
        """Learn until the next validation; the first third of the updates has one agent in each cluster."""
        if self.is_warm:
            stage = 0 if self.online.updates < self.recipe.updates // 3 else -1
            self.online.env = self.online.episodes.env = self.envs[stage]  # type: ignore[assignment]
        return super().advance()

    def validation_clusters(self) -> Iterator[PartedCluster]:
        """Yield the clusters of the validation before their first decisions."""
        seeds, scale = self.validation
        return (begun(seed, scale) for seed in seeds)

    def deciding(self, cluster: PartedCluster) -> Decide:
        """Return what takes the best action of the policy in a cluster."""
        return greedy(self.agent.policy.network, cluster)  # type: ignore[arg-type]

    def described(self) -> Mapping[str, Any]:
        """Return what the policy sees."""
        return {"columns": GANG_COLUMNS + CHOICE_COLUMNS}


BOOK: Final = RecipeBook(
    recipes={"marl": RECIPE}, teachers=("best-fit",), figure="mean JCT against best fit, %", begin=MarlRun
)


def greedy(actor: GangActor, cluster: PartedCluster) -> Decide:
    """Return what takes the best action of a network in a cluster, whatever its size."""
    leaves = max(1, int(cluster.servers.leaf.max()) + 1)
    layout = GangLayout(servers=cluster.size, leaves=leaves, agents=cluster.agents)
    return best_actions(actor, layout, lambda decision: tensors_of(decision, cluster.neighbours))


def best_fit_action(decision: GangDecision) -> int | None:
    """Return the action of the teacher, best fit with least interference."""
    return action_of(decision, best_fit)


def actor_of(run: Path) -> GangActor:
    """Return the network that a run trained."""
    return trained(GangActor(), run)


def _one(actor: GangActor) -> OneObservation:
    return OneObservation(actor, lambda tensors: actor.decide(actor.encoder(*islice(tensors, 4)), *tensors))


def to_onnx(actor: GangActor) -> bytes:
    """Return the graph of a network, for any number of servers, GPUs of a server, leaves and agents."""
    axes = {
        "slots": {0: "servers", 1: "slots"},
        "servers": {0: "servers"},
        "member": {0: "leaves", 1: "servers"},
        "leaves": {0: "leaves"},
        "choice": {0: "servers"},
        "others": {0: "agents"},
    }
    return pointer_to_onnx(_one(actor), NAMES, axes, FINGERPRINT, next(_observations(actor, SIZES[0])))


def checked_parity(
    actor: GangActor, graph: bytes, sizes: Sequence[int] = SIZES, least_rows: int = LEAST_ROWS
) -> Parity:
    """Compare the scores of a graph with those of its network on clusters of all sizes; raises `ModelError`."""
    of_sizes = (_observations(actor, size) for size in sizes)
    return pointer_parity(_one(actor), NAMES, graph, of_sizes, least_rows)


def publish_policy(
    run: Path,
    results: Mapping[str, Any],
    folder: Path,
    version: str,
    *,
    today: str,
    sizes: Sequence[int] = SIZES,
    least_rows: int = LEAST_ROWS,
) -> Entry:
    """Publish the policy of a run, with what a judge found, without putting it in use; raises `ModelError`."""
    described, actor = read_description(run), actor_of(run)
    graph = to_onnx(actor)
    made = Exported(
        graph=graph,
        kind=KIND,
        columns=CHOICE_COLUMNS,
        outputs=(SCORES,),
        parameters=json.dumps({"teacher": described["teacher"]}, sort_keys=True),
        parity=checked_parity(actor, graph, sizes, least_rows),
        seed=described["seed"],
    )
    text = (
        "Places gangs server by server with a graph network in two levels, for any number of agents: our "
        "interpretation of Zhao and Wu, arXiv 2112.13354. Imitates best fit with least interference, then learns by "
        "cooperative clipped updates (MAPPO)."
    )
    card = card_of(
        CardText(
            text=text,
            data={
                "training": "drawn clusters and workloads, seeds below 1,000,000 (tools/train/drawn_gangs.py)",
                "choice of the checkpoint": "12 drawn workloads from seed 1,000,000 on",
                "figures": "those of the judge, seeds from 6,000,000 on (docs/marl.md)",
            },
            metrics=dict(figures_of("marl", results)),
            limits=_LIMITS,
            settings={name: str(value) for name, value in described["recipe"].items()},
        )
    )
    return publish_graph(made, folder, version, today=today, card=card)


def _observations(actor: GangActor, servers: int) -> Iterator[dict[str, Any]]:
    """Yield the observations that a policy meets on a drawn cluster of some servers, one for each it points to."""
    cluster = begun(PARITY_SEED + servers, Scale(agents=(1,), servers_each=(servers,), jobs_per_gpu=1.0))
    policy = greedy(actor, cluster)
    return observations_of(cluster, policy, lambda decision: tensors_of_graph(decision, cluster.neighbours))


app = training_commands.program("Train the placement of gangs by several agents.")


training_commands.add_train(
    app,
    "places",
    "{:+6.2f} % of best fit",
    "Train a policy on drawn clusters, first with one agent, then with several, and validate it on others.",
)
app.command()(training_commands.sweep)


training_commands.add_publish(app, publish_policy, KIND)

if __name__ == "__main__":
    training_commands.start("tools.train.marl")
