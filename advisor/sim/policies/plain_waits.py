"""Compares the waits of the users of a simulation with those of plain Slurm on the same submissions."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import DAY_S
from advisor.planning.objective import Floats, is_overdue, owed
from advisor.settings import Limits
from advisor.sim.simulated_policy import Problem
from advisor.sim.state import State

# The jobs submitted within this time count.
WINDOW_S: Final = 7 * DAY_S


class PlainWaits:
    """What users are owed: by how much their jobs have waited longer than under plain Slurm, which ran before.

    Only what plain Slurm has done up to the present instant counts.
    """

    def __init__(
        self, submit_time: Floats, user: NDArray[np.integer], start_time: Floats, limits: Limits, *, every_s: float
    ) -> None:
        """Take the jobs, `(n_jobs,)` by submission, and their starts under plain Slurm, NaN for none.

        The waits are added up every `every_s`.
        """
        self._submit_time = submit_time
        self._user = user
        self._users = int(user.max(initial=0)) + 1
        self._start_time = np.where(np.isfinite(start_time), start_time, np.inf)
        self._limits = limits
        self._every_s = every_s
        self._counted_time = -np.inf
        self._owed = np.zeros(self._users)

    @classmethod
    def of(cls, problem: Problem) -> "PlainWaits":
        """Run plain Slurm on a problem."""
        asked, options = problem.trace.jobs, problem.options
        return cls(
            asked["submit_time"],
            asked["user"],
            problem.plain_outcomes()["start_time"],
            options.limits,
            every_s=options.twin_every_s,
        )

    def owed(self, state: State, rows: NDArray[np.intp], now: float) -> Floats:
        """Return what the users of some rows are owed, as the objective takes it."""
        if now - self._counted_time >= self._every_s:
            self._owed, self._counted_time = self._count(state, now), now
        return np.asarray(self._owed[self._user[rows]])

    def is_overdue(self, rows: NDArray[np.intp], now: float) -> NDArray[np.bool_]:
        """Return which rows have not started by their start under plain Slurm and the bound on lateness after it."""
        return is_overdue(now, self._start_time[rows], self._submit_time[rows], self._limits)

    def _count(self, state: State, now: float) -> Floats:
        first, last = np.searchsorted(self._submit_time, (now - WINDOW_S, now), side="right")
        seen = slice(int(first), int(last))
        started = state.jobs["start_time"][seen]
        waited_until = np.where(np.isfinite(started), np.minimum(started, now), now)
        start_time = self._start_time[seen]
        user = self._user[seen]
        given_s, plain_s, jobs = (
            np.bincount(user, weights, minlength=self._users).astype(np.float64)
            for weights in (
                waited_until - np.minimum(start_time, now),
                np.minimum(start_time, now) - self._submit_time[seen],
                np.ones(len(user)),
            )
        )
        return owed(given_s, plain_s, jobs, self._limits)
