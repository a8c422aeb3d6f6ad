"""Runs that learn places: imitation of a rule, then cooperative updates (MAPPO), for one agent and for several."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from advisor.features.observe.graph import Floats, Floats32
from advisor.features.observe.pointer import CHOICE_COLUMNS, GANG_COLUMNS, best_fit
from tools.train.clipped import Clipped, on_policy
from tools.train.learning import Agent, Method, Recipe, WarmUp
from tools.train.places.env import PlacesEnv, Teacher, begun, mask_of, tensors_of
from tools.train.places.network import Actor, Critic, Layout, Parts, Seen
from tools.train.places.parts import Decision, PartedCluster
from tools.train.places.rules import Decide, action_of, play
from tools.train.places.workload import CURRICULUM, Scale
from tools.train.slots import Bools, Integers
from tools.train.training import Run

VALIDATION_SEEDS: Final = range(1_000_000, 1_000_012)
VALIDATION: Final = Scale(agents=(1, 2), servers_each=(32,), jobs_per_gpu=1.5)
# The share of the decisions about gangs in which the teacher waits, at random, so that the policy begins to explore.
WAITS: Final = 0.1
# The step of the critic over that of the actor.
CRITIC_SPEED: Final = 5.0
LAYOUT: Final = Layout(servers=32, leaves=8, agents=4)
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


# Parts of the networks that can be left out.
ABLATIONS: Final[Mapping[str, Mapping[str, Any]]] = {name: {"left_out": (name,)} for name in Parts.names()}


class OfRows(nn.Module):
    """A network that takes observations as rows of numbers."""

    def __init__(self, network: Actor | Critic, layout: Layout) -> None:
        """Take the network and the layout of the rows."""
        super().__init__()
        self.network, self.layout = network, layout

    def forward(self, rows: Tensor) -> Tensor:
        """Return what the network gives; values stand in a column."""
        out: Tensor = self.network(self.layout.unpacked(rows))
        return out if out.dim() == 2 else out.unsqueeze(1)


class PlacesAgent(Agent):
    """The networks that all agents share."""

    def __init__(self, layout: Layout, parts: Parts, seed: int) -> None:
        """Make networks with weights of a seed."""
        torch.manual_seed(seed)
        self.policy = OfRows(Actor(parts), layout)
        self.value = OfRows(Critic(parts), layout)


class Cooperative(Clipped):
    """Clipped updates on the decisions of many agents, which learn from what comes of each job."""

    env: PlacesEnv  # type: ignore[assignment]

    def __init__(self, agent: Agent, env: PlacesEnv, recipe: Recipe, seed: int) -> None:
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


class Training(Run):
    """A run on drawn clusters and workloads, first with one agent, then with several."""

    begins_again = True

    def __init__(
        self,
        recipe: Recipe,
        teacher_name: str,
        seed: int,
        every: tuple[int, int] = (250, 8),
        validation: tuple[Sequence[int], Scale] = (VALIDATION_SEEDS, VALIDATION),
    ) -> None:
        """Begin a run of a seed; `every` as in `Run`, `validation` seeds and where their workloads are drawn from."""
        parts = Parts.without(recipe.left_out)
        agent = PlacesAgent(LAYOUT, parts, seed)
        self.parts, self.validation = parts, validation
        self.envs = [PlacesEnv(recipe.episodes, scale, LAYOUT, parts) for scale in CURRICULUM]
        warm_up = WarmUp(agent, self.envs[-1], Teacher(_rule, WAITS, seed), recipe, seed)  # type: ignore[arg-type]
        online = Cooperative(agent, self.envs[0], recipe, seed)
        super().__init__(agent, warm_up, online, recipe=recipe, teacher=teacher_name, seed=seed, every=every)
        self.by_rule = mean_jct(lambda _: _rule, *validation)

    def advance(self) -> Any:
        """Learn until the next validation; the first third of the updates has one agent in each cluster."""
        if self.is_warm:
            stage = 0 if self.online.updates < self.recipe.updates // 3 else -1
            self.online.env = self.online.episodes.env = self.envs[stage]  # type: ignore[assignment]
        return super().advance()

    def figure(self) -> float:
        """Return the mean change of the mean JCT against the teacher, in percent, over the validation workloads."""
        actor = self.agent.policy.network
        jct = mean_jct(partial(greedy, actor), *self.validation)  # type: ignore[arg-type]
        return 100.0 * float(np.exp(np.log(jct / self.by_rule).mean()) - 1.0)

    def described(self) -> Mapping[str, Any]:
        """Return what the policy sees."""
        return {"columns": GANG_COLUMNS + CHOICE_COLUMNS}


def layout_of(cluster: PartedCluster) -> Layout:
    """Return the layout that just holds the observations of a cluster."""
    return Layout(servers=cluster.size, leaves=max(1, int(cluster.servers.leaf.max()) + 1), agents=cluster.agents)


def greedy(actor: Actor, cluster: PartedCluster) -> Decide:
    """Return what takes the best action of a network in a cluster."""
    layout = layout_of(cluster)

    def decide(decision: Decision) -> int | None:
        tensors = tensors_of(decision, cluster.neighbours, actor.parts)
        seen = Seen(**{name: torch.from_numpy(value).unsqueeze(0) for name, value in tensors.items()})
        with torch.no_grad():
            logits = actor(seen)[0].numpy()
        return layout.action(int(np.where(mask_of(decision, layout), logits, -np.inf).argmax()), layout.servers)

    return decide


def mean_jct(make: Callable[[PartedCluster], Decide], seeds: Sequence[int], scale: Scale) -> Floats:
    """Return the mean completion times of the workloads of some seeds, `(n_seeds,)`."""
    clusters = (begun(seed, scale) for seed in seeds)
    return np.array([float(play(cluster, make(cluster)).mean()) for cluster in clusters])


def _rule(decision: Decision) -> int | None:
    """Return the action of the teacher, best fit with least interference."""
    return action_of(decision, best_fit)
