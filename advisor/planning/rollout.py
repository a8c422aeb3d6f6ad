"""Defines the seam to a rollout, what would come of changes simulated from a snapshot on, and sums up what it says."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Action
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.planning.case import Case
from advisor.stats import mean_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAction:
    """A change of a job, made `after_s` seconds after the snapshot."""

    action: Action
    after_s: float = 0.0


# The changes of one plan; none to leave everything as it is.
Scenario = Sequence[TimedAction]


class RolloutValues(NamedTuple):
    """What came of each plan in each draw; times are seconds from the snapshot.

    The jobs are those of the snapshot that the rollout models; the waiting tasks of an array have one id. `start_s` and
    `end_s` are NaN beyond the horizon.
    `completion_s` is never NaN: a job that still runs at the horizon ends when its run time is over, and one that still
    pends counts as if it started there.
    """

    job_ids: NDArray[np.int64]  # (n_jobs,)
    gpus: NDArray[np.int64]  # (n_jobs,): requested in the snapshot
    was_pending: NDArray[np.bool_]  # (n_jobs,)
    start_s: NDArray[np.float64]  # (n_plans, n_draws, n_jobs)
    end_s: NDArray[np.float64]  # (n_plans, n_draws, n_jobs)
    completion_s: NDArray[np.float64]  # (n_plans, n_draws, n_jobs)
    horizon_s: float
    left_out: tuple[str, ...]  # what the rollout does not model, in plain sentences


class Rollout(Protocol):
    """A way to compute what would come of plans."""

    def values(
        self, case: Case, plans: Sequence[Scenario], *, horizon_s: float, draws: int, first_draw: int = 0
    ) -> RolloutValues:
        """Simulate every plan under the same draws of run times, from the number `first_draw` on.

        A draw depends on its number alone, not on the plans or on how many draws there are.
        """


def mean_wait_s(values: RolloutValues) -> NDArray[np.float64]:
    """Return the mean wait of the pending jobs from the snapshot to the horizon at most: `(n_plans, n_draws)`."""
    waits_s = np.where(np.isnan(values.start_s), values.horizon_s, values.start_s)
    return _mean(waits_s[:, :, values.was_pending])


def mean_completion_s(values: RolloutValues) -> NDArray[np.float64]:
    """Return when all jobs complete in the mean: `(n_plans, n_draws)`."""
    return _mean(values.completion_s)


def _mean(of_jobs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means over the last axis, 0 where there are no jobs."""
    return np.asarray(of_jobs.sum(axis=2) / max(1, of_jobs.shape[2]))


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
