"""Defines the seam to a rollout: what would come of changes, simulated from a snapshot on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Action
from advisor.planning.case import Case


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
