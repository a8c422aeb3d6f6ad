"""The interface between a learner and what it schedules: episodes of slots, several small actions in each slot."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Floats32 = NDArray[np.float32]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


class SlotStep(NamedTuple):
    """What one action in each of `n` episodes did; all arrays `(n,)`.

    `reward` is that of the slot which the action ended, 0 where the slot goes on. `touched` is the job to which the
    action gave a task, `n_jobs` if to none, and `gained` `(n, n_jobs + 1)` the reward of the ended slot by job.
    """

    slot_ended: Bools
    reward: Floats32
    done: Bools
    touched: Integers
    gained: Floats32


class SlotEnv(Protocol):
    """`n` independent episodes side by side; the last action, `stop`, ends the slot and is always legal."""

    n: int
    n_actions: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        ...

    def reset(self, seeds: Sequence[int], rows: Integers | None = None) -> None:
        """Begin new episodes, in the given rows or in all."""
        ...

    def observe(self) -> Floats32:
        """Return the observations `(n, *shape)`."""
        ...

    def mask(self) -> Bools:
        """Return the legal actions `(n, n_actions)`."""
        ...

    def step(self, action: Integers) -> SlotStep:
        """Take one action in each episode."""
        ...
