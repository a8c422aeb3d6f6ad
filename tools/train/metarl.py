"""MetaRL: trains, exports and publishes the placement of gangs on sites that differ in GPU types, network and models.

    python -m tools.train.metarl train --seed 1 --out DIR

Our interpretation of Yang et al., IEEE TCC 2023. The policy points to servers by what a performance model says of each.
It begins as the rule `least_loss` and learns by how much its scores are to differ from those of the rule: residual
policy learning (Silver, Allen, Tenenbaum and Kaelbling, arXiv 1812.06298). There is no graph encoder: without it the
policy `marl` was as good (docs/marl.md), and this one decides faster.

Tasks are sites with workloads of their own. One set of weights serves all; it sees what the performance model has
learnt of the site.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
import typer
from torch import Tensor, nn

from advisor.features.observe.graph import Floats, Floats32
from advisor.features.observe.least_loss import SEEN_COLUMNS, seen_columns
from advisor.features.observe.pointer import CHOICE_COLUMNS, GANG_COLUMNS, REPORT_COLUMNS
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.manifest import POLICY, Entry, Parity
from advisor.predict.performance import KIND as PERFORMANCE
from advisor.predict.served_policy import OUTLOOK_FINGERPRINT, SCORES
from advisor.sim.study.engines import run_on_cores
from tools.measured_prior import measured_prior
from tools.train import training_commands
from tools.train.drawn_gangs import BELIEF_SPREAD
from tools.train.drawn_sites import HELD_OUT, TRAINING, Change, DrawnSite, SiteFamily, draw_site
from tools.train.gang_rules import Decide, cheapest_action, play
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
from tools.train.learnt_site import LearntSite, prior_of, true_speeds
from tools.train.parted_cluster import GangDecision, PartedCluster
from tools.train.performance_fit import Samples, SitePrior, Spreads, adapted, learnt_spreads, no_samples
from tools.train.performance_graph import performance_exported
from tools.train.policy_graph import LEAST_ROWS, CardText, OneObservation, card_of, pointer_parity, pointer_to_onnx
from tools.train.runs import RecipeBook
from tools.train.training import read_description

HIDDEN: Final = 48
# What the action of the rule scores before anything is learnt, twice as much to wait; all others score 0.
RULE_SCORE: Final = 5.0
_IS_PLANNED, _OVERDUE = (SEEN_COLUMNS.index(name) for name in ("is_planned", "overdue"))
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
# Sites of the training on which spreads are learnt.
SPREAD_SITES: Final = 24
SEED: Final = 500_000
# How many jobs of a site may have ended before the policy decides there.
ENDED: Final = (0, 100, 300, 1000)


class SiteView(NamedTuple):
    """A batch of observations; the first axis of every tensor is the batch."""

    choice: Tensor  # (n, servers, len(CHOICE_COLUMNS))
    outlook: Tensor  # (n, servers, len(SEEN_COLUMNS))
    gang: Tensor  # (n, len(GANG_COLUMNS))
    own: Tensor  # (n, len(REPORT_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLayout(RowLayout):
    """The number of servers that observations are filled up to."""

    VIEW: ClassVar = SiteView

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tensors of one observation, in the order of `SiteView`."""
        return {
            "choice": (self.servers, len(CHOICE_COLUMNS)),
            "outlook": (self.servers, len(SEEN_COLUMNS)),
            "gang": (len(GANG_COLUMNS),),
            "own": (len(REPORT_COLUMNS),),
        }


def scores_of_rule(outlook: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `least_loss` would score of the servers `(n, servers)`, and of waiting `(n, 1)`."""
    waits = (outlook[:, :1, _OVERDUE] < 0.0).to(outlook.dtype)
    return RULE_SCORE * outlook[:, :, _IS_PLANNED], 2.0 * RULE_SCORE * waits


class SiteActor(nn.Module):
    """Points to a server, or waits: the scores of the rule, and what is learnt on top of them."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        beside = len(GANG_COLUMNS) + len(REPORT_COLUMNS)
        self.of_choice = nn.Linear(len(CHOICE_COLUMNS) + len(SEEN_COLUMNS), HIDDEN)
        self.of_beside = nn.Linear(beside, HIDDEN, bias=False)
        self.inside = nn.Linear(HIDDEN, HIDDEN)
        self.of_best = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.score = nn.Linear(HIDDEN, 1)
        last = nn.Linear(HIDDEN, 1)
        self.wait = nn.Sequential(nn.Linear(HIDDEN + beside, HIDDEN), nn.ReLU(), last)
        # Nothing is learnt yet: the policy is the rule.
        for layer in (self.score, last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, seen: SiteView) -> Tensor:
        """Return the logits of the actions `(n, servers + 1)`."""
        usable = (seen.choice[:, :, :1] > 0.0).to(seen.choice.dtype)
        beside = torch.cat([seen.gang, seen.own], dim=1)
        own = self.of_choice(torch.cat([seen.choice, seen.outlook], dim=2)) + self.of_beside(beside).unsqueeze(1)
        codes = torch.relu(own)
        best = (codes * usable).amax(dim=1)
        pointed = torch.relu(self.inside(codes) + self.of_best(best).unsqueeze(1))
        servers = self.score(pointed).squeeze(2)
        wait = self.wait(torch.cat([(pointed * usable).amax(dim=1), beside], dim=1))
        of_servers, of_wait = scores_of_rule(seen.outlook)
        return torch.cat([of_servers + servers, of_wait + wait], dim=1)


class SiteCritic(nn.Module):
    """The value of a decision."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        beside = len(GANG_COLUMNS) + len(REPORT_COLUMNS)
        self.of_choice = nn.Linear(len(CHOICE_COLUMNS) + len(SEEN_COLUMNS), HIDDEN)
        self.value = nn.Sequential(
            nn.Linear(2 * HIDDEN + beside, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )

    def forward(self, seen: SiteView) -> Tensor:
        """Return the values `(n,)`."""
        codes = torch.relu(self.of_choice(torch.cat([seen.choice, seen.outlook], dim=2)))
        pooled = [codes.mean(dim=1), codes.amax(dim=1), seen.gang, seen.own]
        value: Tensor = self.value(torch.cat(pooled, dim=1)).squeeze(1)
        return value


def begun(site: DrawnSite, seed: int) -> LearntSite:
    """Return a site before its first decision; how many jobs have ended there that the tables show is drawn."""
    rng, prior = np.random.default_rng([seed, 23]), prior_of(site, learnt())
    samples = imagined_samples(site, prior, int(rng.choice(ENDED)), rng)
    return LearntSite(site, adapted(prior, samples, seed=seed))


def training_site(seed: int, family: SiteFamily) -> LearntSite:
    """Return the site of a seed of the training or the validation, before its first decision."""
    return begun(draw_site(seed, family, CHANGES[seed % len(CHANGES)]), seed)


def imagined_samples(site: DrawnSite, prior: SitePrior, count: int, rng: np.random.Generator) -> Samples:
    """Return samples as `count` jobs of a site would leave them, drawn from its true tables without running them."""
    log_speed, added = true_speeds(site, site.before)
    model = rng.choice(site.trace.jobs["model"], count).astype(np.intp)
    gpu_type = rng.integers(len(prior.gpu_types), size=count)
    place = np.where(rng.random(count) < 0.7, 0.0, rng.exponential(0.4, count))
    others: Floats = np.zeros((count, len(prior.models) + 1))
    for _ in range(3):
        beside = rng.choice(site.trace.jobs["model"], count)
        others[np.arange(count), beside] += rng.random(count) * (rng.random(count) < 0.3)
    speed = log_speed[model, gpu_type] - place - np.log1p((others * added[model]).sum(axis=1))
    return Samples(
        model=model,
        gpu_type=gpu_type,
        place=place,
        others=others,
        log_speed=speed + rng.normal(0.0, BELIEF_SPREAD, count),
        noise=np.full(count, BELIEF_SPREAD),
    )


class SitesEnv(GangEnv):
    """Drawn sites; actions are the next server, or wait, which is the last."""

    KEPT: ClassVar = ("n", "family", "layout")

    def __init__(self, n: int, family: SiteFamily, layout: RowLayout) -> None:
        """Make the arrays; `reset` begins the episodes."""
        self.family = family
        super().__init__(n, layout)

    def cluster_of(self, seed: int) -> LearntSite:
        """Return the site of a seed before its first decision."""
        return training_site(seed, self.family)

    def tensors(self, decision: GangDecision, cluster: PartedCluster) -> dict[str, Floats32]:
        """Return the arrays of one observation."""
        return site_tensors(decision, cluster)


def site_tensors(decision: GangDecision, cluster: PartedCluster) -> dict[str, Floats32]:
    """Return the arrays of one observation by the names of `SiteView`."""
    choice = decision.choice
    return {
        "choice": choice.columns(),
        "outlook": seen_columns(choice),
        "gang": choice.gang_columns(cluster.neighbours),
        "own": decision.reports[decision.agent],
    }


VALIDATION_SEEDS: Final = range(1_000_000, 1_000_010)
# What changes at the sites of the training and of the validation: at every other one nothing.
CHANGES: Final = tuple(
    change
    for something in (Change.MODELS, Change.LOAD, Change.TYPES, Change.NETWORK, Change.GRADUAL)
    for change in (Change.NONE, something)
)
# The share of the decisions about gangs in which the teacher waits at random, so that the policy begins to explore.
WAITS: Final = 0.05
SPREADS_FILE: Final = Path(__file__).with_name("spreads.json")
RECIPE: Final = Recipe(
    method=Method.CLIPPED,
    episodes=32,
    # The policy begins as the rule: there is nothing to imitate.
    warm_updates=1,
    warm_lr=1e-6,
    permute=False,
    updates=16,
    lr=5e-4,
    batch=1024,
    replay=8192,
    entropy=0.003,
    entropy_by_action=False,
    explore=0.0,
    steps=96,
    passes=3,
    value_first=3,
    gae=0.95,
)


def learnt() -> Spreads:
    """Return the spreads that were learnt over the sites of the training."""
    return Spreads(**json.loads(SPREADS_FILE.read_text(encoding="utf-8")))


class MetarlRun(GangRun):
    """A run over drawn sites."""

    def __init__(
        self,
        recipe: Recipe,
        teacher_name: str,
        seed: int,
        every: tuple[int, int] = (300, 8),
        family: SiteFamily = TRAINING,
        seeds: Sequence[int] = VALIDATION_SEEDS,
    ) -> None:
        """Begin a run of a seed; `every` as in `TrainingRun`, `seeds` are the sites of the validation."""
        layout = SiteLayout(servers=family.servers)
        agent = GangAgent(layout, seed, lambda: (SiteActor(), SiteCritic()))
        self.family, self.seeds = family, seeds
        env = SitesEnv(recipe.episodes, family, layout)
        warm_up = WarmUp(agent, env, GangTeacher(cheapest_action, WAITS, seed), recipe, seed)  # type: ignore[arg-type]
        online = Cooperative(agent, env, recipe, seed)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher_name, seed=seed, every=every)
        self.validate_rule(cheapest_action)

    def validation_clusters(self) -> Iterator[PartedCluster]:
        """Yield the sites of the validation before their first decisions."""
        return (training_site(seed, self.family) for seed in self.seeds)

    def deciding(self, cluster: PartedCluster) -> Decide:
        """Return what takes the best action of the policy at a site."""
        actor: SiteActor = self.agent.policy.network  # type: ignore[assignment]
        return greedy(actor, cluster)

    def described(self) -> Mapping[str, Any]:
        """Return what the policy sees."""
        return {"columns": GANG_COLUMNS + CHOICE_COLUMNS + SEEN_COLUMNS}


BOOK: Final = RecipeBook(
    recipes={"metarl": RECIPE},
    teachers=("cheapest",),
    figure="mean JCT against the rule, %",
    begin=MetarlRun,
)


def greedy(actor: nn.Module, cluster: PartedCluster) -> Decide:
    """Return what takes the best action of a network at a site, whatever its size."""
    layout = SiteLayout(servers=cluster.size)
    return best_actions(actor, layout, lambda decision: site_tensors(decision, cluster))


def actor_of(run: Path) -> SiteActor:
    """Return the network that a run trained."""
    return trained(SiteActor(), run)


def samples_of(seed: int) -> Samples:
    """Return what the jobs of a site leave under the rule that teaches, with the prior as it ships."""
    site = draw_site(seed, TRAINING)
    prior = prior_of(site, Spreads())
    cluster = LearntSite(site, adapted(prior, no_samples(len(prior.models)), seed=seed))
    play(cluster, cheapest_action)
    return cluster.samples


def learn_spreads(workers: int, show: Callable[[str], None], sites: int = SPREAD_SITES) -> dict[str, float]:
    """Return the spreads under which the jobs of many sites are most probable.

    Each site has models and types of its own, so that the spreads are learnt for each, and averaged by squares.
    """
    samples = dict(run_on_cores({str(seed): seed for seed in range(SEED, SEED + sites)}, samples_of, workers))
    show(f"{len(samples)} sites, {sum(map(len, samples.values()))} jobs")
    spreads = Spreads()
    for turn in range(8):
        found = [
            learnt_spreads(prior_of(draw_site(int(seed), TRAINING), spreads), of_site)
            for seed, of_site in samples.items()
        ]
        fields = asdict(found[0])
        mean = {name: (sum(asdict(one)[name] ** 2 for one in found) / len(found)) ** 0.5 for name in fields}
        spreads = replace(spreads, **{name: round(value, 4) for name, value in mean.items()})
        show(f"{turn + 1} of 8: {spreads}")
    return asdict(spreads)


def _one(actor: SiteActor) -> OneObservation:
    return OneObservation(actor, lambda tensors: actor(SiteView(*tensors)))


def site_policy_to_onnx(actor: SiteActor) -> bytes:
    """Return the graph of a network, for any number of servers."""
    axes = {"choice": {0: "servers"}, "outlook": {0: "servers"}}
    return pointer_to_onnx(_one(actor), NAMES, axes, OUTLOOK_FINGERPRINT, next(_observations(actor, SIZES[0])))


def checked_parity(
    actor: SiteActor, graph: bytes, sizes: Sequence[int] = SIZES, least_rows: int = LEAST_ROWS
) -> Parity:
    """Compare the scores of a graph with those of its network on sites of all sizes; raises `ModelError`."""
    return pointer_parity(_one(actor), NAMES, graph, (_observations(actor, size) for size in sizes), least_rows)


def publish_performance(folder: Path, version: str, *, today: str) -> Entry:
    """Publish the performance model before any site has shown anything, without putting it in use."""
    prior = replace(measured_prior(), spreads=learnt())
    made = performance_exported(prior, seed=0)
    text = (
        "How fast a job runs on a GPU type, on a place and beside others, with the variance: an ensemble of five over "
        "effects with priors. Our interpretation of the performance model of Yang et al., IEEE TCC 2023, of which the "
        "abstract alone is public."
    )
    card = card_of(
        CardText(
            text=text,
            data={
                "speeds by GPU type": "advisor/sim/profiles.csv",
                "what neighbours add": "the shipped interference model, fitted on measured pairs; else the profiles",
                "spreads of the effects": "drawn sites of the training (tools/train/spreads.json)",
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
        CardText(
            text=text,
            data={
                "training": "drawn sites and workloads, seeds below 1,000,000 (tools/train/drawn_sites.py)",
                "choice of the checkpoint": f"{len(VALIDATION_SEEDS)} drawn sites from seed 1,000,000 on",
                "figures": "those of the judge, families of sites that were held out (docs/metarl.md)",
                "performance model": f"{PERFORMANCE} default-1",
            },
            metrics=dict(figures_of("metarl", results["sets"])),
            limits=_LIMITS,
            settings={name: str(value) for name, value in described["recipe"].items()},
        )
    )
    return publish_graph(made, folder, version, today=today, card=card)


def _observations(actor: SiteActor, servers: int) -> Iterator[dict[str, Any]]:
    """Yield the observations that a policy meets at a drawn site of some servers, one for each it points to."""
    site = draw_site(PARITY_SEED + servers, replace(HELD_OUT, servers=servers, jobs_per_gpu=0.5))
    cluster = begun(site, PARITY_SEED)
    return observations_of(cluster, greedy(actor, cluster), lambda decision: dict(site_tensors(decision, cluster)))


app = training_commands.program("Train the placement of gangs on sites that differ.")


@app.command()
def spreads(
    out: Annotated[Path, typer.Option(help="File for the spreads.")] = SPREADS_FILE,
    workers: Annotated[int, typer.Option(help="Sites at once.", min=1)] = len(os.sched_getaffinity(0)),
) -> None:
    """Learn how far sites depart from what was measured, over the sites of the training."""
    with training_commands.one_line():
        learned = learn_spreads(workers, partial(typer.echo, err=True))
        out.write_text(json.dumps(learned, indent=1) + "\n", encoding="utf-8")


training_commands.add_train(
    app, "sites", "{:+6.2f} % of the rule", "Train a policy on drawn sites, and validate it on others."
)
app.command()(training_commands.sweep)


@app.command("publish-prior")
def publish_prior(
    models: training_commands.Models,
    version: training_commands.Version = "default-1",
    use: training_commands.Use = False,
) -> None:
    """Publish the prior of the performance model, which every site has."""
    training_commands.publish_as(publish_performance, models, version, use=use)


training_commands.add_publish(app, publish_policy, KIND)

if __name__ == "__main__":
    training_commands.start("tools.train.metarl")
