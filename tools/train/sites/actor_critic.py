"""The rival that learns while it works: an actor-critic without a performance model, which explores at random.

It is what the publication compares with, after Harmony (INFOCOM 2019); its sizes and steps are ours.
"""

from typing import Final

import numpy as np
import torch
from torch.nn.functional import log_softmax

from tools.train.learning import descend
from tools.train.places.env import mask_of
from tools.train.places.parts import Decision
from tools.train.places.rules import Decide
from tools.train.sites.cluster import SiteCluster
from tools.train.sites.env import site_tensors
from tools.train.sites.loop import RANDOM_SHARE
from tools.train.sites.network import SiteActor, SiteLayout, SiteView

EVERY: Final = 256
STEP: Final = 1e-4
PASSES: Final = 2


class LearningActor:
    """A policy that takes a step up the gradient of its own costs after every `EVERY` placements."""

    def __init__(self, actor: SiteActor, cluster: SiteCluster, seed: int) -> None:
        """Begin with the weights of a trained actor, which is changed."""
        self.actor, self.cluster = actor, cluster
        self.layout = SiteLayout(servers=cluster.size)
        self.rng = np.random.default_rng([seed, 25])
        self.optimiser = torch.optim.Adam(actor.parameters(), lr=STEP)
        self.rows: list[tuple[dict[str, np.ndarray], np.ndarray, int]] = []
        self.costs: list[float] = []
        self._open: list[tuple[dict[str, np.ndarray], np.ndarray, int]] = []
        self._before_s = 0.0

    def decide(self) -> Decide:
        """Return what decides, and learns on the way."""
        return self._decide

    def _decide(self, decision: Decision) -> int | None:
        tensors = site_tensors(decision, self.cluster, sees_speeds=False)
        mask = mask_of(decision, self.layout)
        with torch.no_grad():
            logits = self.actor(_batch([tensors]))[0].numpy()
        legal = np.flatnonzero(mask[:-1])
        index = int(np.where(mask, logits, -np.inf).argmax())
        if index < self.layout.servers and len(legal) and self.rng.random() < RANDOM_SHARE:
            index = int(self.rng.choice(legal))
        if index < self.layout.servers:
            self._note(decision, tensors, mask, index)
        return self.layout.action(index, self.layout.servers)

    def _note(self, decision: Decision, tensors: dict[str, np.ndarray], mask: np.ndarray, index: int) -> None:
        """Keep a choice of a server; what it costs is known once the gang has started, at the next choice."""
        if not decision.choice.chosen:
            self._close()
            self._before_s = float(self.cluster.losses().sum())
        self._open.append((tensors, mask, index))

    def _close(self) -> None:
        if not self._open:
            return
        cost = (float(self.cluster.losses().sum()) - self._before_s) / self.cluster.unit_s
        self.rows += self._open
        self.costs += [cost] * len(self._open)
        self._open = []
        if len(self.rows) >= EVERY:
            self._learn()

    def _learn(self) -> None:
        costs = np.array(self.costs)
        gain = torch.from_numpy(-(costs - costs.mean()) / (costs.std() + 1e-6)).float()
        seen = _batch([tensors for tensors, _, _ in self.rows])
        mask = torch.from_numpy(np.stack([mask for _, mask, _ in self.rows]))
        taken = torch.tensor([index for _, _, index in self.rows])
        for _ in range(PASSES):
            chances = log_softmax(self.actor(seen).masked_fill(~mask, -1e9), dim=1)
            descend(self.optimiser, -(gain * chances.gather(1, taken[:, None])[:, 0]).mean())
        self.rows, self.costs = [], []


def _batch(rows: list[dict[str, np.ndarray]]) -> SiteView:
    return SiteView(**{name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]})
