"""The users whose jobs take longer under another policy, and those whose loss chance does not explain.

Both policies run the same perturbed copies of a trace (`perturbed`). A user loses if the mean JCT of the user's jobs
is higher by more than an allowance, and loses beyond chance if the part above the allowance exceeds its standard error
at least twice, and by so much that a policy without any effect has one such user in at most one of twenty traces
(Bonferroni). The standard error is Welch's, from the variances between the copies under each policy, for a policy can
make the waits of a user vary more than they did. A few copies can agree by chance: in percent of the JCT, a standard
error counts at least as much as that of the median user.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

LEAST_JOBS: Final = 20
ALLOWED_RATIO: Final = 0.05
ALLOWED_S: Final = 1800.0
_LEAST_ERRORS: Final = 2.0
# The probability that users lose beyond chance under a policy without any effect.
_FALSE_ALARMS: Final = 0.05

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLoss:
    """The mean JCT of the jobs of a user before and after, over all copies; a loss below 0 is a gain.

    `user` is the code in the trace, `error_s` the standard error of the part of the loss above the allowance.
    """

    user: int
    jobs: int
    before_s: float
    after_s: float
    error_s: float
    is_beyond_chance: bool

    @property
    def loss_s(self) -> float:
        """How much longer the jobs take on average."""
        return self.after_s - self.before_s

    @property
    def percent(self) -> float:
        """The loss in percent of what the jobs took before."""
        return 100.0 * self.loss_s / self.before_s if self.before_s > 0.0 else 0.0

    @property
    def allowed_s(self) -> float:
        """The loss up to which a user is not called worse off."""
        return max(ALLOWED_RATIO * self.before_s, ALLOWED_S)

    @property
    def is_worse(self) -> bool:
        """Whether the loss is above the allowance."""
        return self.loss_s > self.allowed_s


class UserTally(NamedTuple):
    """The users with enough jobs, and how many of them gain or lose more than the allowance."""

    worse: int
    better: int
    users: int


def tally_users(before_s: Floats, after_s: Floats, user: NDArray[Any], *, least_jobs: int = LEAST_JOBS) -> UserTally:
    """Count the users by whether the mean JCT of their jobs changes in one run; all arrays `(n_jobs,)`.

    Only jobs with a JCT under both count. One run does not tell what chance does.
    """
    _, _, before, after = _by_user(before_s[None], after_s[None], user, least_jobs)
    loss_s, allowed_s = after - before, np.maximum(ALLOWED_RATIO * before, ALLOWED_S)
    return UserTally(
        worse=int((loss_s > allowed_s).sum()), better=int((-loss_s > allowed_s).sum()), users=before.shape[1]
    )


def user_losses(
    before_s: Floats, after_s: Floats, user: NDArray[Any], *, least_jobs: int = LEAST_JOBS
) -> list[UserLoss]:
    """Compare the JCT of the users with `least_jobs` jobs or more, worst first.

    `before_s` and `after_s` are `(n_copies, n_jobs)` with two copies or more, NaN where a job has no JCT; `user` is
    `(n_jobs,)`. Only jobs with a JCT in all copies under both count.
    """
    codes, jobs, before, after = _by_user(before_s, after_s, user, least_jobs)
    if not len(codes):
        return []
    mean_before_s, mean_after_s = before.mean(axis=0), after.mean(axis=0)
    error_s = _errors_s(before, after)
    allowed_s = np.maximum(ALLOWED_RATIO * mean_before_s, ALLOWED_S)
    errors = max(_LEAST_ERRORS, NormalDist().inv_cdf(1.0 - _FALSE_ALARMS / len(error_s)))
    beyond = mean_after_s - mean_before_s - allowed_s > errors * error_s
    losses = [
        UserLoss(
            user=int(code),
            jobs=int(count),
            before_s=float(mean_before_s[row]),
            after_s=float(mean_after_s[row]),
            error_s=float(error_s[row]),
            is_beyond_chance=bool(beyond[row]),
        )
        for row, (code, count) in enumerate(zip(codes, jobs, strict=True))
    ]
    # By the loss in allowances: percent for long jobs, and half hours for short ones.
    return sorted(losses, key=lambda loss: (-loss.loss_s / loss.allowed_s, loss.user))


def _by_user(
    before_s: Floats, after_s: Floats, user: NDArray[Any], least_jobs: int
) -> tuple[NDArray[Any], NDArray[np.intp], Floats, Floats]:
    """Return the users with enough jobs, how many they have, and their means before and after `(n_copies, n_users)`."""
    known = np.isfinite(before_s).all(axis=0) & np.isfinite(after_s).all(axis=0)
    codes, place = np.unique(user[known], return_inverse=True)
    jobs = np.bincount(place, minlength=len(codes))
    compared = jobs >= least_jobs
    before, after = (_means(values[:, known], place, jobs)[:, compared] for values in (before_s, after_s))
    return codes[compared], jobs[compared], before, after


def _means(values: Floats, place: NDArray[np.intp], jobs: NDArray[np.intp]) -> Floats:
    """Return the mean of the jobs of each user in each copy, `(n_copies, n_users)`."""
    return np.stack([np.bincount(place, weights=copy, minlength=len(jobs)) for copy in values]) / jobs


def _errors_s(before: Floats, after: Floats) -> Floats:
    """Return the standard errors of the losses above the allowance, `(n_users,)`; the allowance varies as well."""
    jct_s = before.mean(axis=0)
    weight = np.where(ALLOWED_RATIO * jct_s > ALLOWED_S, 1.0 + ALLOWED_RATIO, 1.0)
    variance = after.var(axis=0, ddof=1) / len(after) + weight**2 * before.var(axis=0, ddof=1) / len(before)
    ratio = np.sqrt(variance) / jct_s
    return np.asarray(np.maximum(ratio, np.median(ratio)) * jct_s)
