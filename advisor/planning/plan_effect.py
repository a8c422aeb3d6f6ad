"""Sums up what a rollout says about a plan as a whole: what its changes bring together, to all jobs."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.forecast import Interval
from advisor.planning.rollout import RolloutValues, mean_completion_s, mean_wait_s

_PERCENT: Final = (10.0, 50.0, 90.0)
# Starts that differ by less count as the same.
_NOTICED_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """How a plan changes the mean over all jobs of a snapshot, in seconds, as 80 % intervals over the draws.

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


def effect_of(values: RolloutValues) -> PlanEffect:
    """Compare the second plan of a rollout with the first."""
    completion_s, wait_s = mean_completion_s(values), mean_wait_s(values)
    start_s = np.where(np.isnan(values.start_s), values.horizon_s, values.start_s)[:, :, values.was_pending]
    difference_s = start_s[1] - start_s[0]  # (n_draws, n_waiting)
    return PlanEffect(
        jobs=len(values.job_ids),
        waiting=int(values.was_pending.sum()),
        draws=completion_s.shape[1],
        horizon_s=values.horizon_s,
        completion_s=_interval(completion_s[1] - completion_s[0]),
        wait_s=_interval(wait_s[1] - wait_s[0]),
        sooner=_in_most(difference_s <= -_NOTICED_S),
        later=_in_most(difference_s >= _NOTICED_S),
        left_out=values.left_out,
    )


def _interval(draws: NDArray[np.float64]) -> Interval:
    low, median, high = np.percentile(draws, _PERCENT)
    return Interval(low=float(low), median=float(median), high=float(high))


def _in_most(flags: NDArray[np.bool_]) -> int:
    """Count the jobs `(n_draws, n_jobs)` for which a flag is set in most draws."""
    return int((flags.mean(axis=0) > 0.5).sum()) if flags.size else 0
