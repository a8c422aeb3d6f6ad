"""Samples of the last slots, first in, first out; the reward of a slot is filled in when it ends."""

import numpy as np

from tools.train.slots import Bools, Floats32, Integers, SlotEnv, Step


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

    def add(self, observation: Floats32, mask: Bools, action: Integers, rows: Integers | None = None) -> None:
        """Add one sample of each episode, or of those in some rows, in the slot that is open there."""
        places = (self.added + np.arange(len(action))) % self.size
        self.observation[places], self.mask[places], self.action[places] = observation, mask, action
        self.slot[places] = self.slot_of_row if rows is None else self.slot_of_row[rows]
        self.places = places
        self.added += len(action)

    def close(self, step: Step, observation: Floats32) -> None:
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
