"""Compares how long jobs waited with how long they would have waited without advice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.sim.live.carried_jobs import PlainStay

# By how much a start in the model differs from the live one in the mean: the bound of docs/fidelity.md.
MODEL_ERROR_S: Final = 3.0
MODEL_ERROR_RATIO: Final = 0.03
# A normal error whose absolute value is 1 in the mean is below this in 95 % of cases.
_NORMAL_95: Final = 2.45
_PERCENT: Final = (2.5, 97.5)


class PlainStarts(NamedTuple):
    """When jobs would have started without advice, and when they did; the jobs waited at the anchor or came later.

    Jobs `in_doubt` could have waited without advice as long as they did. Starts after `until` are NaN in what was seen;
    in the model they can reach a horizon beyond it. `unknown_ratio` is the share of the jobs or the GPUs that the model
    does not know, `left_out` says in plain sentences why. `carried` are the jobs that stand elsewhere at `until`
    without advice, in a number of draws. `disputed` are the ids of jobs that are not compared, since their requests
    changed while they waited or they waited where they fit.
    """

    anchor_time: float
    until: float
    job_ids: NDArray[np.int64]  # (n_jobs,)
    users: tuple[str, ...]  # (n_jobs,)
    accounts: tuple[str, ...]  # (n_jobs,)
    was_submitted_later: NDArray[np.bool_]  # (n_jobs,)
    wait_begin_time: NDArray[np.float64]  # (n_jobs,): the submission, or later if the job was not eligible then
    plain_start_time: NDArray[np.float64]  # (n_draws, n_jobs)
    real_start_time: NDArray[np.float64]  # (n_jobs,)
    in_doubt: NDArray[np.bool_]  # (n_jobs,)
    unknown_ratio: float
    left_out: tuple[str, ...]
    carried: tuple[tuple[PlainStay, ...], ...] = ()
    disputed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitDifference:
    """How long jobs waited in the mean, with advice and without, and the difference with its 95 % interval.

    A job that has not started counts with its wait so far. Negative differences mean that advice shortened waits.
    """

    jobs: int
    advised_s: float
    plain_s: float
    mean_s: float
    low_s: float
    high_s: float

    @property
    def is_known(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        return self.low_s > 0.0 or self.high_s < 0.0


def wait_difference(starts: PlainStarts) -> WaitDifference | None:
    """Return the difference over all jobs, None without any."""
    return _difference(starts, np.ones(len(starts.job_ids), dtype=np.bool_))


def differences_by_user(starts: PlainStarts) -> Mapping[str, WaitDifference]:
    """Return the difference over the jobs of each user, by name."""
    users = np.array(starts.users, dtype=object)
    found = {user: _difference(starts, users == user) for user in sorted(set(starts.users))}
    return {user: difference for user, difference in found.items() if difference is not None}


def _difference(starts: PlainStarts, chosen: NDArray[np.bool_]) -> WaitDifference | None:
    """Return the difference over some jobs.

    The interval covers the draws, the error of the model, and that the jobs or GPUs which the model does not know could
    have made each wait as short or as long as can be.
    """
    count = int(chosen.sum())
    if not count:
        return None
    begin = starts.wait_begin_time[chosen]
    open_s = np.maximum(0.0, starts.until - begin)
    plain_s = waits_s(starts.plain_start_time[:, chosen], begin, open_s).mean(axis=1)
    advised_s = float(waits_s(starts.real_start_time[chosen], begin, open_s).mean())
    differences_s = advised_s - plain_s
    low_s, high_s = np.percentile(differences_s, _PERCENT)
    error_s = model_error_s(float(plain_s.mean()), count)
    mean_s, unknown = float(differences_s.mean()), starts.unknown_ratio
    # The plain waits that are unknown lie between nothing and all of the time.
    low_s, high_s = float(low_s) - error_s, float(high_s) + error_s
    least_s, most_s = advised_s - float(open_s.mean()), advised_s
    return WaitDifference(
        jobs=count,
        advised_s=advised_s,
        plain_s=float(plain_s.mean()),
        mean_s=mean_s,
        low_s=min(low_s, (1.0 - unknown) * low_s + unknown * least_s),
        high_s=max(high_s, (1.0 - unknown) * high_s + unknown * most_s),
    )


def model_error_s(mean_wait_s: float, jobs: int) -> float:
    """Return by how much the model can miss the mean wait of a number of jobs.

    The mean over many jobs errs by no more than the mean error of a job; a single job errs by more than that at times.
    """
    mean_error_s = MODEL_ERROR_S + MODEL_ERROR_RATIO * mean_wait_s
    return mean_error_s * (1.0 + (_NORMAL_95 - 1.0) / float(np.sqrt(jobs)))


def waits_s(
    start_time: NDArray[np.float64], begin: NDArray[np.float64], most_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how long jobs waited from `begin` on, no longer than `most_s`, which a start that is NaN stands for."""
    waited_s = np.where(np.isnan(start_time), most_s, start_time - begin)
    return np.asarray(np.clip(waited_s, 0.0, most_s))
