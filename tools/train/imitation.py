"""What a recipe says, the agent and its episodes, and the warm-up: imitation of a teacher, as in DL2.

A state is everything that a run needs to go on, so a run that was killed and resumed ends as one that was not. All of
it is deterministic for a seed on one thread of a CPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from tools.train.networks import Choosing, Flat, PerOption, SharedEncoder
from tools.train.slots import Bools, Floats32, Integers, SlotEnv, SlotStep


class Replay:
    """A ring of `size` samples of `n` episodes, and one of the slots to which they belong.

    Each sample keeps its slot, and each slot its reward, the rewards by job, the first observation of the slot after it
    and whether the episode ended there. A sample can be drawn when its slot has ended.
    """

    def __init__(self, env: SlotEnv, n_jobs: int, size: int) -> None:
        """Make empty rings for an environment."""
        slots = size + env.n
        self.observation = np.zeros((size, *env.shape), np.float32)
        self.mask = np.zeros((size, env.n_actions), np.bool_)
        self.action, self.touched = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.slot = np.zeros(size, np.int64)
        self.ended = np.zeros(slots, np.bool_)
        self.reward = np.zeros(slots, np.float32)
        self.gained = np.zeros((slots, n_jobs + 1), np.float32)
        self.next_observation = np.zeros((slots, *env.shape), np.float32)
        self.last = np.zeros(slots, np.bool_)
        self.size, self.added, self.slots_begun = size, 0, env.n
        self.slot_of_row = np.arange(env.n)

    @property
    def is_full(self) -> bool:
        """Whether every place holds a sample."""
        return self.added >= self.size

    def add(self, observation: Floats32, mask: Bools, action: Integers) -> None:
        """Add one sample of each episode, in the slot that is open there."""
        places = (self.added + np.arange(len(action))) % self.size
        self.observation[places], self.mask[places], self.action[places] = observation, mask, action
        self.slot[places] = self.slot_of_row
        self.places = places
        self.added += len(action)

    def close(self, step: SlotStep, observation: Floats32) -> None:
        """Note what the last action did, and the slots that it ended; `observation` is that of the slots after."""
        self.touched[self.places] = step.touched
        rows = np.flatnonzero(step.slot_ended)
        slots = self.slot_of_row[rows]
        self.ended[slots], self.last[slots] = True, step.done[rows]
        self.reward[slots], self.gained[slots] = step.reward[rows], step.gained[rows]
        self.next_observation[slots] = observation[rows]
        new = (self.slots_begun + np.arange(len(rows))) % len(self.ended)
        self.slots_begun += len(rows)
        self.slot_of_row[rows] = new
        self.ended[new] = False

    def drawn(self, rng: np.random.Generator, count: int) -> Integers:
        """Return the places of `count` samples of slots that have ended, with replacement; fewer than that at first."""
        places = rng.integers(min(self.added, self.size), size=2 * count)
        return places[self.ended[self.slot[places]]][:count]

    def of_slots(self, slots: Integers) -> Integers:
        """Return the places of all samples of some slots."""
        return np.flatnonzero(np.isin(self.slot[: self.added], slots))


# Legal actions keep their logits, others get this: exp of it is 0 in float32.
_NEVER: Final = -1e9
_MOST_NORM: Final = 10.0
_SEEDS: Final = 1_000_000


class Architecture(StrEnum):
    """DL2's network, one encoder shared by all jobs, or one shared by all options, as served."""

    FLAT = "flat"
    SHARED = "shared"
    OPTIONS = "options"


class Method(StrEnum):
    """DL2's actor-critic with replay, or clipped updates on the slots just played (PPO)."""

    ACTOR_CRITIC = "actor-critic"
    CLIPPED = "clipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a policy is learnt; the defaults are the paper's, with what it leaves open as measured best.

    `entropy_by_action` divides the weight of the entropy by the number of actions, as the code does. `rewards_by_step`
    gives each action what it adds to the reward of its slot, with the same sum; only `Method.CLIPPED` can.
    """

    method: Method = Method.ACTOR_CRITIC
    network: Architecture = Architecture.FLAT
    hidden: tuple[int, ...] = (256, 256)
    episodes: int = 32

    warm_updates: int = 1000
    warm_lr: float = 5e-3
    warm_decay: bool = False
    permute: bool = True

    updates: int = 3000
    lr: float = 1e-4
    batch: int = 256
    replay: int = 8192
    discount: float = 0.9
    entropy: float = 0.1
    entropy_by_action: bool = True
    explore: float = 0.4
    has_value: bool = True
    has_replay: bool = True
    reward_by_job: bool = False

    rewards_by_step: bool = False
    steps: int = 256
    passes: int = 2
    clip: float = 0.2
    gae: float = 0.97
    gae_slot: float = 0.95
    value_first: int = 0


def recipe_of(described: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the description of a run."""
    method, network = Method(described["method"]), Architecture(described["network"])
    hidden = tuple(described["hidden"])
    return replace(Recipe(), **{**described, "method": method, "network": network, "hidden": hidden})


def deterministic() -> None:
    """Let the same seed give the same weights: one thread, no algorithm that depends on timing."""
    torch.set_num_threads(1)
    threadpool_limits(limits=1)
    torch.use_deterministic_algorithms(mode=True)


Explorer = Callable[[SlotEnv, Integers, np.random.Generator], Integers]
Rule = Callable[[SlotEnv], Integers]


class Agent:
    """A policy network and a value network; acts by sampling from the legal actions, as published, or by the best."""

    def __init__(self, env: SlotEnv, recipe: Recipe, seed: int) -> None:
        """Make networks with weights of a seed."""
        torch.manual_seed(seed)
        self.policy: nn.Module
        self.value: nn.Module
        if recipe.network is Architecture.FLAT:
            self.policy = Flat(env.shape, env.n_actions, recipe.hidden)
            self.value = Flat(env.shape, 1, recipe.hidden)
        elif recipe.network is Architecture.OPTIONS:
            self.policy = Choosing(PerOption(env.shape[1], recipe.hidden[0]))
            self.value = SharedEncoder(env.shape, 0, recipe.hidden[0])
        else:
            self.policy = SharedEncoder(env.shape, (env.n_actions - 1) // env.shape[0], recipe.hidden[0])
            self.value = SharedEncoder(env.shape, 0, recipe.hidden[0])

    def act(self, env: SlotEnv, rng: np.random.Generator, *, greedy: bool = False) -> Integers:
        """Return one action for each episode."""
        return self.choose(env.observe(), env.mask(), rng, greedy=greedy)

    def choose(self, observation: Floats32, mask: Bools, rng: np.random.Generator, *, greedy: bool = False) -> Integers:
        """Return legal actions `(n,)`; a draw from a softmax is the greatest logit plus Gumbel noise."""
        with torch.no_grad():
            logits = self.policy(torch.from_numpy(observation)).numpy()
        if not greedy:
            logits = logits + rng.gumbel(size=logits.shape)
        return np.asarray(np.where(mask, logits, -np.inf).argmax(axis=1))

    def log_chances(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Return the logarithms of the probabilities of all actions `(n, n_actions)`."""
        return log_softmax(self.policy(observation).masked_fill(~mask, _NEVER), dim=1)

    def values(self, observation: Tensor) -> Tensor:
        """Return the values `(n,)`."""
        values: Tensor = self.value(observation)[:, 0]
        return values


class Episodes:
    """Endless training episodes on one environment: one that is over is followed by the next seed."""

    def __init__(self, env: SlotEnv, rng: np.random.Generator) -> None:
        """Begin with seeds drawn from below `_SEEDS`, which validation and judging never use."""
        self.env, self.rng = env, rng
        self.begun = 0
        self.begin(np.arange(env.n))

    def begin(self, rows: Integers) -> None:
        """Begin new episodes in some rows."""
        self.begun += len(rows)
        self.env.reset([int(seed) for seed in self.rng.integers(_SEEDS, size=len(rows))], rows)


class WarmUp:
    """Cross-entropy on the labels of a teacher that plays its own episodes, from a FIFO buffer, once that is full."""

    def __init__(self, agent: Agent, env: SlotEnv, teacher: Rule, recipe: Recipe, seed: int) -> None:
        """Train the policy of an agent."""
        self.agent, self.env, self.teacher, self.recipe = agent, env, teacher, recipe
        self.rng = np.random.default_rng([seed, 1])
        self.episodes = Episodes(env, self.rng)
        self.optimiser = torch.optim.Adam(agent.policy.parameters(), lr=recipe.warm_lr)
        self.buffer = Replay(env, 0, recipe.replay)
        self.updates = 0
        self.loss = float("nan")

    def advance(self, updates: int) -> None:
        """Make some updates; between two of them the teacher takes one action in each episode."""
        for _ in range(updates):
            self._play()
            while not self.buffer.is_full:
                self._play()
            if self.recipe.warm_decay:
                left = 1.0 - self.updates / self.recipe.warm_updates
                for group in self.optimiser.param_groups:
                    group["lr"] = self.recipe.warm_lr * max(left, 0.01)
            places = self.rng.integers(self.buffer.size, size=self.recipe.batch)
            observation, mask, action = (
                self.buffer.observation[places],
                self.buffer.mask[places],
                self.buffer.action[places],
            )
            if self.recipe.permute:
                observation, mask, action = permuted(observation, mask, action, self.rng)
            logits = self.agent.policy(torch.from_numpy(observation)).masked_fill(~torch.from_numpy(mask), _NEVER)
            loss = cross_entropy(logits, torch.from_numpy(action))
            descend(self.optimiser, loss)
            self.loss = float(loss.detach())
            self.updates += 1

    def _play(self) -> None:
        observation, mask, action = self.env.observe(), self.env.mask(), self.teacher(self.env)
        self.buffer.add(observation, mask, action)
        self.episodes.begin(np.flatnonzero(self.env.step(action).done))


def permuted(
    observation: Floats32, mask: Bools, action: Integers, rng: np.random.Generator
) -> tuple[Floats32, Bools, Integers]:
    """Return samples whose jobs are in a random order, as published for the warm-up."""
    n, window = observation.shape[:2]
    order = rng.permuted(np.broadcast_to(np.arange(window), (n, window)), axis=1)
    per_job = (mask.shape[1] - 1) // window
    jobs = np.take_along_axis(mask[:, :-1].reshape(n, window, per_job), order[:, :, None], axis=1)
    place = np.argsort(order, axis=1)[np.arange(n), np.minimum(action // per_job, window - 1)]
    stop = action == mask.shape[1] - 1
    return (
        np.take_along_axis(observation, order[:, :, None], axis=1),
        np.concatenate([jobs.reshape(n, -1), mask[:, -1:]], axis=1),
        np.where(stop, action, per_job * place + action % per_job),
    )


def descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take one step down a loss, with the gradient clipped."""
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    for group in optimiser.param_groups:
        nn.utils.clip_grad_norm_(group["params"], _MOST_NORM)
    optimiser.step()
