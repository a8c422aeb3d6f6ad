"""Runs that learn to place gangs on any site: imitation of a rule, then clipped updates over many sites.

Three ways to learn over tasks, each a site with its own workloads. `context`: one set of weights for all, which sees
what the performance model has learnt of the site. `reptile`: after some updates on one site, the weights move a part of
the way there. `fomaml`: the update after an update on a site is applied to the weights before both (first-order MAML).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from advisor.features.observe.graph import Floats
from advisor.features.observe.least_loss import SEEN_COLUMNS
from advisor.features.observe.pointer import CHOICE_COLUMNS, GANG_COLUMNS
from advisor.fit.performance_fit import Spreads
from tools.train.learning import Agent, Method, Recipe, WarmUp
from tools.train.places.env import Teacher, mask_of
from tools.train.places.parts import Decision
from tools.train.places.rules import Decide, play
from tools.train.places.training import Cooperative
from tools.train.sites.cluster import SiteCluster
from tools.train.sites.drawn import TRAINING, Change, Family, draw_site
from tools.train.sites.env import Shown, ShownAfterSome, SitesEnv, site_tensors
from tools.train.sites.network import SiteActor, SiteCritic, SiteLayout, SiteView
from tools.train.sites.rules import cheapest_action
from tools.train.training import Run

VALIDATION_SEEDS: Final = range(1_000_000, 1_000_010)
# What changes at the sites of the training and of the validation: at every other one nothing.
CHANGES: Final = tuple(
    change
    for something in (Change.MODELS, Change.LOAD, Change.TYPES, Change.NETWORK, Change.GRADUAL)
    for change in (Change.NONE, something)
)
# The share of the decisions about gangs in which the teacher waits at random, so that the policy begins to explore.
WAITS: Final = 0.05
LAYOUT: Final = SiteLayout(servers=TRAINING.servers)
# Tasks of meta-learning are sites with seeds below this.
SITES: Final = 10_000
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
# What can be left out: what has ended at a site, the performance model as a whole, other sites.
ABLATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "adaptation": {"left_out": ("adaptation",)},
    # Without what the rule looks at the policy does not begin as the rule.
    "outlook": {"left_out": ("outlook",), "warm_updates": 300, "warm_lr": 2e-3, "warm_decay": True},
}


def learnt() -> Spreads:
    """Return the spreads that were learnt over the sites of the training."""
    return Spreads(**json.loads(SPREADS_FILE.read_text(encoding="utf-8")))


class OfSiteRows(nn.Module):
    """A network that takes observations as rows of numbers."""

    def __init__(self, network: SiteActor | SiteCritic, layout: SiteLayout) -> None:
        """Take the network and the layout of the rows."""
        super().__init__()
        self.network, self.layout = network, layout

    def forward(self, rows: Tensor) -> Tensor:
        """Return what the network gives; values stand in a column."""
        out: Tensor = self.network(self.layout.unpacked(rows))
        return out if out.dim() == 2 else out.unsqueeze(1)


class SiteAgent(Agent):
    """The networks."""

    def __init__(self, layout: SiteLayout, seed: int) -> None:
        """Make networks with weights of a seed."""
        torch.manual_seed(seed)
        self.policy = OfSiteRows(SiteActor(), layout)
        self.value = OfSiteRows(SiteCritic(), layout)


class OverSites(Cooperative):
    """Clipped updates over tasks; how depends on `Recipe.meta`."""

    def advance(self, updates: int) -> None:
        """Play and learn for some rounds; those of a task count one by one."""
        recipe = self.recipe
        if recipe.meta == "context":
            super().advance(updates)
            return
        target = self.updates + updates
        while self.updates < target:
            self._begin_task(int(self.rng.integers(SITES)))
            before = self._weights()
            for step in range(recipe.inner):
                if step == recipe.inner - 1 and recipe.meta == "fomaml":
                    adapted = self._weights()
                self._round()
                self.updates += 1
            after = self._weights()
            if recipe.meta == "fomaml":
                self._load([old + new - near for old, new, near in zip(before, after, adapted, strict=True)])
            else:
                share = recipe.outer
                self._load([old + share * (new - old) for old, new in zip(before, after, strict=True)])

    def _begin_task(self, site: int) -> None:
        env: SitesEnv = self.env  # type: ignore[assignment]
        env.of_site = site
        self.episodes.begin(np.arange(env.n))

    def _weights(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in self._parameters()]

    def _load(self, weights: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for mine, value in zip(self._parameters(), weights, strict=True):
                mine.copy_(value)

    def _parameters(self) -> list[nn.Parameter]:
        return [*self.agent.policy.parameters(), *self.agent.value.parameters()]


class SiteTraining(Run):
    """A run over drawn sites."""

    begins_again = True

    def __init__(
        self,
        recipe: Recipe,
        teacher_name: str,
        seed: int,
        every: tuple[int, int] = (300, 8),
        family: Family = TRAINING,
        seeds: Sequence[int] = VALIDATION_SEEDS,
    ) -> None:
        """Begin a run of a seed; `every` as in `Run`, `seeds` are the sites of the validation."""
        layout = LAYOUT if family is TRAINING else SiteLayout(servers=family.servers)
        agent = SiteAgent(layout, seed)
        self.family, self.seeds = family, seeds
        self.sees_speeds = "outlook" not in recipe.left_out
        spreads = learnt()
        self.shown: Shown = (
            ShownAfterSome(spreads=spreads, ended=(0,))
            if "adaptation" in recipe.left_out
            else ShownAfterSome(spreads=spreads)
        )
        env = SitesEnv(recipe.episodes, family, layout, self.shown, changes=CHANGES, sees_speeds=self.sees_speeds)
        warm_up = WarmUp(agent, env, Teacher(_rule, WAITS, seed), recipe, seed)  # type: ignore[arg-type]
        online = OverSites(agent, env, recipe, seed)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher_name, seed=seed, every=every)
        self.by_rule = self.mean_jct(lambda _: _rule)

    def figure(self) -> float:
        """Return the mean change of the mean JCT against the teacher, in percent, over the sites of the validation."""
        actor: SiteActor = self.agent.policy.network  # type: ignore[assignment]
        jct = self.mean_jct(partial(greedy, actor, sees_speeds=self.sees_speeds))
        return 100.0 * float(np.exp(np.log(jct / self.by_rule).mean()) - 1.0)

    def mean_jct(self, make: Callable[[SiteCluster], Decide]) -> Floats:
        """Return the mean completion times at the sites of the validation, `(n_seeds,)`."""
        found = []
        for seed in self.seeds:
            site = draw_site(seed, self.family, CHANGES[seed % len(CHANGES)])
            cluster = SiteCluster(site, self.shown(site, seed))
            found.append(float(play(cluster, make(cluster)).mean()))
        return np.array(found)

    def described(self) -> Mapping[str, Any]:
        """Return what the policy sees."""
        return {"columns": GANG_COLUMNS + CHOICE_COLUMNS + SEEN_COLUMNS}


def greedy(actor: SiteActor, cluster: SiteCluster, *, sees_speeds: bool = True) -> Decide:
    """Return what takes the best action of a network at a site."""
    layout = SiteLayout(servers=cluster.size)

    def decide(decision: Decision) -> int | None:
        tensors = site_tensors(decision, cluster, sees_speeds=sees_speeds)
        seen = SiteView(**{name: torch.from_numpy(value).unsqueeze(0) for name, value in tensors.items()})
        with torch.no_grad():
            logits = actor(seen)[0].numpy()
        return layout.action(int(np.where(mask_of(decision, layout), logits, -np.inf).argmax()), layout.servers)

    return decide


def _rule(decision: Decision) -> int | None:
    """Return the action of the teacher."""
    return cheapest_action(decision)
