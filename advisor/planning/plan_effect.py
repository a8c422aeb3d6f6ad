"""Sums up what a rollout says about a plan: how much sooner or later all jobs complete, together, with its changes."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.forecast import Interval
from advisor.planning.rollout import RolloutValues, mean_completion_s, mean_wait_s
from advisor.stats import mean_interval

# Starts that differ by less count as the same.
_NOTICED_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """How a plan changes the mean over all jobs of a snapshot, in seconds, with 80 % intervals of the expected change.

    Above 0 jobs end or wait longer. `jobs` were modelled, and `waiting` of them pend. `sooner` and `later` are
    how many of these start at least a minute sooner or later in most draws. `left_out` says what is not modelled.
    """

    jobs: int
    waiting: int
    draws: int
    horizon_s: float
    completion_s: Interval
    wait_s: Interval
    sooner: int
    later: int
    left_out: tuple[str, ...]

    @property
    def gains(self) -> bool:
        """Whether the plan gains also at the unfavourable end of the interval."""
        return self.completion_s.high < 0.0


def effect_of(values: RolloutValues, plan: int = 1, without: int = 0) -> PlanEffect:
    """Compare one plan of a rollout with another."""
    wait_s = mean_wait_s(values)
    start_s = np.where(np.isnan(values.start_s), values.horizon_s, values.start_s)[:, :, values.was_pending]
    difference_s = start_s[plan] - start_s[without]  # (n_draws, n_waiting)
    return PlanEffect(
        jobs=len(values.job_ids),
        waiting=int(values.was_pending.sum()),
        draws=wait_s.shape[1],
        horizon_s=values.horizon_s,
        completion_s=completion_change_s(values, plan, without),
        wait_s=interval_of_mean(wait_s[plan] - wait_s[without]),
        sooner=_in_most(difference_s <= -_NOTICED_S),
        later=_in_most(difference_s >= _NOTICED_S),
        left_out=values.left_out,
    )


def completion_change_s(values: RolloutValues, plan: int, without: int = 0) -> Interval:
    """Return how one plan changes the mean completion of all jobs against another; below 0 they complete sooner."""
    completion_s = mean_completion_s(values)
    return interval_of_mean(completion_s[plan] - completion_s[without])


def interval_of_mean(draws: NDArray[np.float64]) -> Interval:
    """Return the 80 % interval of the expectation of draws `(n_draws,)`, Student's; of one draw that draw."""
    mean, low, high = mean_interval(draws, coverage=0.8)
    return Interval(low=low, median=mean, high=high) if len(draws) > 1 else Interval(low=mean, median=mean, high=mean)


def _in_most(flags: NDArray[np.bool_]) -> int:
    """Count the jobs `(n_draws, n_jobs)` for which a flag is set in most draws."""
    return int((flags.mean(axis=0) > 0.5).sum()) if flags.size else 0
