"""Environments of the library gymnasium, with the legal actions in `info["action_mask"]`."""

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from tools.train.slots import Bools, Floats32, Integers, SlotEnv

_SEEDS = 1 << 31


class Playable(SlotEnv, Protocol):
    """An environment that knows the bounds of its observations, and which episodes were cut short."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number of an observation."""
        ...

    def was_cut(self) -> Bools:
        """Return which episodes that are over were stopped before all jobs had ended, `(n,)`."""
        ...


def _observations(env: Playable) -> spaces.Space[Any]:
    return spaces.Box(*env.bounds, env.shape, np.float32)


class SlotGym(gymnasium.Env[Floats32, np.int64]):
    """One episode at a time. An action that is not legal counts as stop, so that any sampled action can be taken."""

    def __init__(self, inner: Playable) -> None:
        """Take an environment of one episode."""
        self.inner = inner
        self.observation_space = _observations(self.inner)
        self.action_space = spaces.Discrete(self.inner.n_actions)

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[Floats32, dict[str, Any]]:
        """Begin the episode of a seed, or a random one."""
        super().reset(seed=seed)
        self.inner.reset([int(self.np_random.integers(_SEEDS)) if seed is None else seed])
        return self.inner.observe()[0], {"action_mask": self.inner.mask()[0]}

    def step(self, action: np.int64 | int) -> tuple[Floats32, float, bool, bool, dict[str, Any]]:
        """Take one small action."""
        legal = _legal(self.inner, np.array([action]))
        result = self.inner.step(legal)
        over = bool(result.done[0])
        cut = over and bool(self.inner.was_cut()[0])
        info = {"action_mask": self.inner.mask()[0], "slot_ended": bool(result.slot_ended[0])}
        return self.inner.observe()[0], float(result.reward[0]), over and not cut, cut, info


class SlotVector(VectorEnv[Floats32, Integers, NDArray[Any]]):
    """Episodes side by side; one that is over begins a new one in the same step, of a seed drawn from the generator."""

    def __init__(self, inner: Playable) -> None:
        """Take an environment of `n` episodes."""
        self.inner = inner
        self.num_envs = n = inner.n
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = _observations(self.inner)
        self.single_action_space = spaces.Discrete(self.inner.n_actions)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, n)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, n)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[Floats32, dict[str, Any]]:
        """Begin new episodes: those of the given seeds, or of seeds drawn by one."""
        given = [seed] * self.num_envs if seed is None or isinstance(seed, int) else list(seed)
        self._np_random = np.random.default_rng(seed if isinstance(seed, int) else None)
        alike = seed is None or isinstance(seed, int)
        self.inner.reset([self._draw() if alike or one is None else one for one in given])
        return self.inner.observe(), {"action_mask": self.inner.mask()}

    def step(self, actions: Integers) -> tuple[Floats32, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one small action in each episode."""
        result = self.inner.step(_legal(self.inner, np.asarray(actions)))
        cut: Bools = result.done & self.inner.was_cut()
        info: dict[str, Any] = {"slot_ended": result.slot_ended}
        rows = np.flatnonzero(result.done)
        if len(rows):
            info["final_obs"] = self.inner.observe()
            self.inner.reset([self._draw() for _ in rows], rows)
        info["action_mask"] = self.inner.mask()
        return self.inner.observe(), result.reward, result.done & ~cut, cut, info

    def _draw(self) -> int:
        return int(self.np_random.integers(_SEEDS))


def _legal(env: Playable, actions: Integers) -> Integers:
    allowed = env.mask()[np.arange(env.n), actions]
    return np.asarray(np.where(allowed, actions, env.n_actions - 1))
