"""Improves what imitation left: DL2's actor-critic with replay, or clipped updates on the slots just played (PPO)."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tools.train.imitation import Agent, Episodes, Explorer, Recipe, Replay, descend
from tools.train.slots import Floats32, Integers, SlotEnv


class ActorCritic:
    """DL2's online learning: one update for each slot that ended, from a replay of the last samples.

    All actions of a slot get the slot's reward, and the value that follows is that of the first state of the next slot,
    so that the discount counts once for each slot.
    """

    def __init__(self, agent: Agent, env: SlotEnv, n_jobs: int, recipe: Recipe, seed: int, explorer: Explorer) -> None:
        """Train both networks of an agent."""
        self.agent, self.env, self.recipe, self.explorer = agent, env, recipe, explorer
        self.rng = np.random.default_rng([seed, 2])
        self.episodes = Episodes(env, self.rng)
        self.actor = torch.optim.Adam(agent.policy.parameters(), lr=recipe.lr)
        self.critic = torch.optim.Adam(agent.value.parameters(), lr=recipe.lr)
        self.replay = Replay(env, n_jobs, recipe.replay)
        self.mean_reward = 0.0
        self.updates = 0
        self.loss = float("nan")

    def advance(self, updates: int) -> None:
        """Play until this number of updates is made."""
        target = self.updates + updates
        while self.updates < target:
            for places in self._play():
                if len(places):
                    self._update(places)
                self.updates += 1

    def _play(self) -> Iterator[Integers]:
        """Take one action in each episode; yield the places to learn from, once for each slot that ended."""
        observation, mask = self.env.observe(), self.env.mask()
        action = self.agent.choose(observation, mask, self.rng)
        action = self.explorer(self.env, action, self.rng)
        self.replay.add(observation, mask, action)
        step = self.env.step(action)
        self.episodes.begin(np.flatnonzero(step.done))
        ended = self.replay.slot_of_row[step.slot_ended]
        self.replay.close(step, self.env.observe())
        for slot in ended:
            self.mean_reward += 0.01 * (float(self.replay.reward[slot]) - self.mean_reward)
            if not self.recipe.has_replay:
                yield self.replay.of_slots(np.array([slot]))
            elif self.replay.is_full:
                yield self.replay.drawn(self.rng, self.recipe.batch)

    def _update(self, places: Integers) -> None:
        recipe, replay = self.recipe, self.replay
        slot = replay.slot[places]
        reward = replay.gained[slot, replay.touched[places]] if recipe.reward_by_job else replay.reward[slot]
        rewards = torch.from_numpy(reward)
        observation = torch.from_numpy(replay.observation[places])
        if recipe.has_value:
            if recipe.discount:
                with torch.no_grad():
                    following = self.agent.values(torch.from_numpy(replay.next_observation[slot]))
                rewards = rewards + recipe.discount * (following * torch.from_numpy(~replay.last[slot]))
            errors = rewards - self.agent.values(observation)
            descend(self.critic, errors.square().mean())
            advantages = errors.detach()
        else:
            advantages = rewards - self.mean_reward
        chances = self.agent.log_chances(observation, torch.from_numpy(replay.mask[places]))
        taken = chances.gather(1, torch.from_numpy(replay.action[places])[:, None])[:, 0]
        entropy = -(chances.exp() * chances).sum(dim=1).mean()
        weight = recipe.entropy / (self.env.n_actions if recipe.entropy_by_action else 1)
        loss = -(taken * advantages).mean() - weight * entropy
        descend(self.actor, loss)
        self.loss = float(loss.detach())


class Counting(SlotEnv, Protocol):
    """An environment that knows what its open slots would earn."""

    def reward_now(self) -> NDArray[np.float64]:
        """Return the reward of the open slots if they ended now `(n,)`."""
        ...


class Clipped:
    """Plays `steps` actions in each episode, then makes `passes` over them in batches, with clipped ratios.

    The discount counts once for each slot. With `rewards_by_step` an action earns what it adds to the reward of its
    slot, so that within a slot credit goes to the action that earned it; the sum over the slot is the published reward.
    For the first `value_first` rounds only the value is trained, as the warm-up gives none. Without a value the
    advantages are what an action and those after it earn, normalised over the round.
    """

    def __init__(self, agent: Agent, env: Counting, recipe: Recipe, seed: int, explorer: Explorer) -> None:
        """Train both networks of an agent."""
        self.agent, self.env, self.recipe, self.explorer = agent, env, recipe, explorer
        self.rng = np.random.default_rng([seed, 2])
        self.episodes = Episodes(env, self.rng)
        self.optimiser = torch.optim.Adam([*agent.policy.parameters(), *agent.value.parameters()], lr=recipe.lr)
        self.earned = np.zeros(env.n)
        self.updates = 0
        self.loss = float("nan")

    def advance(self, updates: int) -> None:
        """Play and learn for some rounds."""
        for _ in range(updates):
            self._round()
            self.updates += 1

    def _round(self) -> None:
        recipe, env, n = self.recipe, self.env, self.env.n
        observations = np.zeros((recipe.steps + 1, n, *env.shape), np.float32)
        masks = np.zeros((recipe.steps, n, env.n_actions), np.bool_)
        actions = np.zeros((recipe.steps, n), np.int64)
        rewards = np.zeros((recipe.steps, n), np.float32)
        ended, done = np.zeros((2, recipe.steps, n), np.bool_)
        for at in range(recipe.steps):
            observations[at], masks[at] = env.observe(), env.mask()
            action = self.agent.choose(observations[at], masks[at], self.rng)
            actions[at] = self.explorer(env, action, self.rng)
            step = env.step(actions[at])
            rewards[at], ended[at], done[at] = self._reward(step.reward, step.slot_ended), step.slot_ended, step.done
            self.episodes.begin(np.flatnonzero(step.done))
        observations[-1] = env.observe()
        advantages, targets = self._advantages(observations, rewards, ended, done)
        self._learn(
            torch.from_numpy(observations[:-1]).flatten(0, 1),
            torch.from_numpy(masks).flatten(0, 1),
            torch.from_numpy(actions).flatten(),
            torch.from_numpy(advantages).flatten(),
            torch.from_numpy(targets).flatten(),
        )

    def _reward(self, reward: Floats32, ended: NDArray[np.bool_]) -> Floats32:
        if not self.recipe.rewards_by_step:
            return reward
        now = np.where(ended, reward, self.env.reward_now())
        added = now - self.earned
        self.earned = np.where(ended, 0.0, now)
        return added.astype(np.float32)

    def _advantages(
        self, observations: Floats32, rewards: Floats32, ended: NDArray[np.bool_], done: NDArray[np.bool_]
    ) -> tuple[Floats32, Floats32]:
        """Return advantages and targets of the values, both `(steps, n)`."""
        recipe = self.recipe
        values = np.zeros(observations.shape[:2], np.float32)
        if recipe.has_value:
            with torch.no_grad():
                values = np.stack([self.agent.values(torch.from_numpy(row)).numpy() for row in observations])
        discount = np.where(done, 0.0, np.where(ended, recipe.discount, 1.0)).astype(np.float32)
        decay = discount * np.where(ended, recipe.gae_slot, recipe.gae).astype(np.float32)
        errors = rewards + discount * values[1:] - values[:-1]
        advantages = np.zeros_like(rewards)
        ahead = np.zeros(rewards.shape[1], np.float32)
        for at in reversed(range(len(rewards))):
            ahead = errors[at] + decay[at] * ahead
            advantages[at] = ahead
        return advantages, advantages + values[:-1]

    def _learn(
        self,
        observations: torch.Tensor,
        masks: torch.Tensor,
        actions: torch.Tensor,
        advantages: torch.Tensor,
        targets: torch.Tensor,
    ) -> None:
        recipe, agent = self.recipe, self.agent
        with torch.no_grad():
            before = torch.cat(
                [
                    agent.log_chances(seen, mask).gather(1, action[:, None])[:, 0]
                    for seen, mask, action in zip(observations.chunk(8), masks.chunk(8), actions.chunk(8), strict=True)
                ]
            )
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        weight = recipe.entropy / (self.env.n_actions if recipe.entropy_by_action else 1)
        for _ in range(recipe.passes):
            for places in self._batches(len(actions)):
                seen = observations[places]
                loss = torch.zeros(())
                if recipe.has_value:
                    loss = 0.5 * (agent.values(seen) - targets[places]).square().mean()
                if self.updates >= recipe.value_first or not recipe.has_value:
                    chances = agent.log_chances(seen, masks[places])
                    taken = chances.gather(1, actions[places][:, None])[:, 0]
                    ratio = (taken - before[places]).exp()
                    gain = advantages[places]
                    clipped = ratio.clamp(1.0 - recipe.clip, 1.0 + recipe.clip)
                    entropy = -(chances.exp() * chances).sum(dim=1).mean()
                    loss = loss - torch.minimum(ratio * gain, clipped * gain).mean() - weight * entropy
                descend(self.optimiser, loss)
                self.loss = float(loss.detach())

    def _batches(self, count: int) -> Iterator[torch.Tensor]:
        order = torch.from_numpy(self.rng.permutation(count))
        for begin in range(0, count, self.recipe.batch):
            yield order[begin : begin + self.recipe.batch]


def on_policy(_: SlotEnv, action: Integers, __: np.random.Generator) -> Integers:
    """Explore no further than the policy does."""
    return action
