"""Policies that place gangs server by server: their episodes, and how they learn by cooperative updates (MAPPO).

`marl` and `metarl` differ in what they see, in their networks, and in what their episodes are drawn from.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from advisor.features.observe.graph import Floats, Floats32
from tools.train.gang_rules import Decide, play
from tools.train.imitation import Agent, Recipe
from tools.train.improvement import Clipped, on_policy
from tools.train.parted_cluster import GangDecision, PartedCluster
from tools.train.slots import Bools, Integers
from tools.train.training import TrainingRun, read_weights

# More jobs than any episode has.
JOBS_MOST: Final = 1_000_000
# The step of the critic over that of the actor.
CRITIC_SPEED: Final = 5.0
Actor = TypeVar("Actor", bound=nn.Module)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout(ABC):
    """How an observation is laid out as a row of numbers, filled up to some servers and agents to forward to.

    `VIEW` takes the tensors by name. The actions are the servers, the agents, and to wait, which is the last.
    """

    VIEW: ClassVar[Callable[..., tuple[Tensor, ...]]]
    FILL: ClassVar[Mapping[str, float]] = {}

    servers: int
    agents: int = 0

    @property
    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the tensors of one observation by name, in their order."""

    @property
    def actions(self) -> int:
        """All actions."""
        return self.servers + self.agents + 1

    def action(self, index: int, servers: int) -> int | None:
        """Return what an index means to a part of some servers, as `PartedCluster.take` takes it."""
        if index < self.servers:
            return index
        return None if index == self.actions - 1 else index - self.servers + servers

    def index(self, action: int | None, servers: int) -> int:
        """Return the index of an action in a part of some servers."""
        if action is None:
            return self.actions - 1
        return action if action < servers else action - servers + self.servers

    @property
    def numbers(self) -> int:
        """The length of a row."""
        return sum(prod(shape) for shape in self.shapes.values())

    def unpacked(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of rows `(n, numbers)`."""
        first, tensors = 0, {}
        for name, shape in self.shapes.items():
            tensors[name] = rows[:, first : first + prod(shape)].reshape(len(rows), *shape)
            first += prod(shape)
        return type(self).VIEW(**tensors)

    def packed(self, out: Floats32, **tensors: Floats32) -> None:
        """Write the arrays of one observation into a row of zeros; arrays may be smaller than the layout."""
        first = 0
        for name, shape in self.shapes.items():
            view = out[first : first + prod(shape)].reshape(shape)
            if name in self.FILL:
                view[:] = self.FILL[name]
            view[tuple(slice(0, length) for length in tensors[name].shape)] = tensors[name]
            first += prod(shape)


class GangOutcome(NamedTuple):
    """What one action did in each of `n` clusters, `(n,)` each.

    `cost` is that of a gang that it started, `is_over` whether it did, in units of `PartedCluster.cost`.
    """

    cost: Floats32
    is_over: Bools
    done: Bools


class GangEnv(ABC):
    """`n` clusters side by side, one decision of one agent in each; the actions are those of the layout.

    What an action costs is the time that its gang loses, waiting and on its place, and what it costs others
    (`PartedCluster.cost`). A pickle holds what describes the episodes alone, named by `KEPT`: a run begins them again
    where it goes on.
    """

    KEPT: ClassVar[tuple[str, ...]]

    def __init__(self, n: int, layout: RowLayout) -> None:
        """Make the arrays; `reset` begins the episodes."""
        self.n, self.layout, self.n_actions = n, layout, layout.actions
        self.clusters: list[PartedCluster | None] = [None] * n
        self.decisions: list[GangDecision | None] = [None] * n
        self._seen = np.zeros((n, layout.numbers), np.float32)
        self._mask = np.zeros((n, self.n_actions), np.bool_)
        self._mask[:, -1] = True
        self.job = np.zeros(n, np.int64)
        self.time = np.zeros(n)
        self.begun = np.zeros(n, np.int64)

    @abstractmethod
    def cluster_of(self, seed: int) -> PartedCluster:
        """Return the cluster of a seed before its first decision."""

    @abstractmethod
    def tensors(self, decision: GangDecision, cluster: PartedCluster) -> dict[str, Floats32]:
        """Return the arrays of one observation by the names of the layout."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of one observation."""
        return (self.layout.numbers,)

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return partial(type(self), **{name: getattr(self, name) for name in self.KEPT}), ()

    def reset(self, seeds: Sequence[int], rows: Integers | None = None) -> None:
        """Begin the episodes of some seeds, in these rows or in all."""
        for row, seed in zip(range(self.n) if rows is None else rows.tolist(), seeds, strict=True):
            cluster = self.cluster_of(seed)
            self.clusters[row], self.decisions[row] = cluster, cluster.next_decision()
            self.begun[row] += 1
            self._look(row)

    def observe(self) -> Floats32:
        """Return the observations `(n, numbers)`."""
        return self._seen.copy()

    def mask(self) -> Bools:
        """Return the legal actions `(n, n_actions)`."""
        return self._mask.copy()

    def step(self, action: Integers) -> GangOutcome:
        """Take one action in each cluster."""
        cost, is_over, done = np.zeros(self.n, np.float32), np.zeros(self.n, np.bool_), np.zeros(self.n, np.bool_)
        for row, taken in enumerate(action.tolist()):
            cluster, decision = self.clusters[row], self.decisions[row]
            if cluster is None or decision is None:
                done[row] = True
                continue
            before_s = float(cluster.losses().sum()) if taken < self.layout.servers else 0.0
            if cluster.take(decision, self.layout.action(taken, cluster.size)):
                if taken < self.layout.servers:
                    cost[row], is_over[row] = cluster.cost(decision, before_s), True
                self.decisions[row] = cluster.next_decision()
                done[row] = self.decisions[row] is None
            self._look(row)
        return GangOutcome(cost=cost, is_over=is_over, done=done)

    def _look(self, row: int) -> None:
        """Write the observation and the mask of a row."""
        decision, cluster = self.decisions[row], self.clusters[row]
        self._seen[row], self._mask[row] = 0.0, False
        if decision is None or cluster is None:
            self._mask[row, -1] = True
            return
        # The same job of two episodes in a row has two numbers.
        self.job[row], self.time[row] = decision.row + self.begun[row] * JOBS_MOST, cluster.now / cluster.unit_s
        self.layout.packed(self._seen[row], **self.tensors(decision, cluster))
        self._mask[row] = mask_of(decision, self.layout)


def mask_of(decision: GangDecision, layout: RowLayout) -> Bools:
    """Return the legal actions of a decision, `(n_actions,)`; a gang that has a server gets all that it needs."""
    mask = np.zeros(layout.actions, np.bool_)
    legal = decision.choice.legal
    mask[: len(legal)] = legal
    if not decision.choice.chosen:
        mask[layout.servers : layout.servers + len(decision.forwards)] = decision.forwards
        mask[-1] = decision.can_wait
    return mask


class GangTeacher:
    """Gives the action of a rule in each cluster; the rule counts agents after the servers of its part.

    In a share of the decisions about gangs, `waits`, it waits at random, so that the policy begins to explore.
    """

    def __init__(self, rule: Decide, waits: float, seed: int) -> None:
        """Take the rule, and the seed of its waits."""
        self._rule, self._waits, self._rng = rule, waits, np.random.default_rng([seed, 3])

    def __call__(self, env: GangEnv) -> Integers:
        """Return one action for each cluster."""
        actions = np.full(env.n, env.n_actions - 1, np.int64)
        idles = self._rng.random(env.n) < self._waits
        for row, decision in enumerate(env.decisions):
            action = None if decision is None else self._rule(decision)
            if decision is not None and not (idles[row] and decision.is_about_gang and decision.can_wait):
                actions[row] = env.layout.index(action, len(decision.choice.usable))
        return actions


class OfRows(nn.Module):
    """A network that takes observations as rows of numbers."""

    def __init__(self, network: nn.Module, layout: RowLayout) -> None:
        """Take the network and the layout of the rows."""
        super().__init__()
        self.network, self.layout = network, layout

    def forward(self, rows: Tensor) -> Tensor:
        """Return what the network gives; values stand in a column."""
        out: Tensor = self.network(self.layout.unpacked(rows))
        return out if out.dim() == 2 else out.unsqueeze(1)


class GangAgent(Agent):
    """The networks that all agents share."""

    def __init__(self, layout: RowLayout, seed: int, make: Callable[[], tuple[nn.Module, nn.Module]]) -> None:
        """Make an actor and a critic with weights of a seed."""
        torch.manual_seed(seed)
        actor, critic = make()
        self.policy, self.value = OfRows(actor, layout), OfRows(critic, layout)


class Cooperative(Clipped):
    """Clipped updates on the decisions of many agents, which learn from what comes of each job."""

    env: GangEnv  # type: ignore[assignment]

    def __init__(self, agent: Agent, env: GangEnv, recipe: Recipe, seed: int) -> None:
        """Train both networks of an agent, the critic faster: imitation has taught it nothing."""
        super().__init__(agent, env, recipe, seed, on_policy)  # type: ignore[arg-type]
        self.optimiser = torch.optim.Adam(
            [
                {"params": list(agent.policy.parameters()), "lr": recipe.lr},
                {"params": list(agent.value.parameters()), "lr": CRITIC_SPEED * recipe.lr},
            ]
        )

    def _round(self) -> None:
        recipe, env, n = self.recipe, self.env, self.env.n
        observations = np.zeros((recipe.steps, n, *env.shape), np.float32)
        masks = np.zeros((recipe.steps, n, env.n_actions), np.bool_)
        actions, jobs = np.zeros((2, recipe.steps, n), np.int64)
        times, costs = np.zeros((2, recipe.steps, n), np.float32)
        is_over = np.zeros((recipe.steps, n), np.bool_)
        for step in range(recipe.steps):
            observations[step], masks[step] = env.observe(), env.mask()
            jobs[step], times[step] = env.job, env.time
            actions[step] = self.agent.choose(observations[step], masks[step], self.rng)
            outcome = env.step(actions[step])
            costs[step], is_over[step] = outcome.cost, outcome.is_over
            self.episodes.begin(np.flatnonzero(outcome.done))
        with torch.no_grad():
            values = np.stack([self.agent.values(torch.from_numpy(row)).numpy() for row in observations])
        advantages = advantages_by_job(values, times, costs, is_over, jobs, recipe.gae)
        self._learn(
            torch.from_numpy(observations).flatten(0, 1),
            torch.from_numpy(masks).flatten(0, 1),
            torch.from_numpy(actions).flatten(),
            torch.from_numpy(advantages).flatten(),
            torch.from_numpy(advantages + values).flatten(),
        )


def advantages_by_job(
    values: Floats32, times: Floats32, costs: Floats32, is_over: Bools, jobs: Integers, gae: float
) -> Floats32:
    """Return generalised advantages over the actions that concern the same job; all arrays are `(steps, n)`.

    An action costs the time up to the next one about the job, and one that starts the job, `is_over`, what the start
    costs. Of a job that is not looked at again nothing is known: its last action has no advantage.
    """
    advantages = np.zeros_like(values)
    following: list[dict[int, int]] = [{} for _ in range(values.shape[1])]
    for step in reversed(range(len(values))):
        for row, job in enumerate(jobs[step].tolist()):
            after = following[row].get(job)
            if is_over[step, row]:
                advantages[step, row] = -costs[step, row] - values[step, row]
            elif after is not None:
                waited = times[after, row] - times[step, row]
                error = values[after, row] - waited - values[step, row]
                advantages[step, row] = error + gae * advantages[after, row]
            following[row][job] = step
    return advantages


class GangRun(TrainingRun):
    """A run that is validated by the mean completion time against that of the rule which taught it."""

    begins_again = True

    @abstractmethod
    def validation_clusters(self) -> Iterator[PartedCluster]:
        """Yield the clusters of the validation before their first decisions."""

    @abstractmethod
    def deciding(self, cluster: PartedCluster) -> Decide:
        """Return what takes the best action of the policy in a cluster."""

    def mean_jct(self, make: Callable[[PartedCluster], Decide]) -> Floats:
        """Return the mean completion times of the clusters of the validation, `(n_clusters,)`."""
        return np.array([float(play(cluster, make(cluster)).mean()) for cluster in self.validation_clusters()])

    def validate_rule(self, rule: Decide) -> None:
        """Note the completion times of the rule."""
        self.by_rule = self.mean_jct(lambda _: rule)

    def figure(self) -> float:
        """Return the mean change of the mean JCT against the rule, in percent."""
        return 100.0 * float(np.exp(np.log(self.mean_jct(self.deciding) / self.by_rule).mean()) - 1.0)


def best_actions(
    actor: nn.Module, layout: RowLayout, tensors: Callable[[GangDecision], Mapping[str, Floats32]]
) -> Decide:
    """Return what takes the best action of a network, which sees some tensors of each decision."""

    def decide(decision: GangDecision) -> int | None:
        seen = {name: torch.from_numpy(value).unsqueeze(0) for name, value in tensors(decision).items()}
        with torch.no_grad():
            logits: Floats32 = actor(type(layout).VIEW(**seen))[0].numpy()
        return layout.action(int(np.where(mask_of(decision, layout), logits, -np.inf).argmax()), layout.servers)

    return decide


def observations_of(
    cluster: PartedCluster, decide: Decide, tensors: Callable[[GangDecision], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield what a policy sees while it plays a workload, once for each server that it points to."""
    while (decision := cluster.next_decision()) is not None:
        is_over = False
        while not is_over:
            yield tensors(decision)
            is_over = cluster.take(decision, decide(decision))


def trained(actor: Actor, run: Path) -> Actor:
    """Give a network the weights that a run trained, and return it."""
    weights = read_weights(run / "policy.pt")
    actor.load_state_dict({name.removeprefix("network."): value for name, value in weights.items()})
    return actor
