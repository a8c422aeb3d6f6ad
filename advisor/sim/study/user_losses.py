"""The users whose jobs take longer under another policy, and those whose loss chance does not explain.

Both policies run the same perturbed copies of a trace (`perturbed`). A user loses if the mean JCT of the user's jobs
is higher by more than an allowance, and loses beyond chance if the part above the allowance exceeds its standard error
at least twice, and by so much that a policy without any effect has one such user in at most one of twenty traces
(Bonferroni). The standard error is Welch's, from the variances between the copies under each policy, for a policy can
make the waits of a user vary more than they did. A few copies can agree by chance: in percent of the JCT, a standard
error counts at least as much as that of the median user.

Finish-time fairness is rho of each user (Themis, Mahajan et al., NSDI 2020): the mean JCT over the one that the user's
jobs would have alone on an equal share of the GPUs.
"""

from heapq import heappop, heappush
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass

LEAST_JOBS: Final = 20
ALLOWED_RATIO: Final = 0.05
ALLOWED_S: Final = 1800.0
_LEAST_ERRORS: Final = 2.0
# Of sums of shares of GPUs.
_ROUNDING: Final = 1e-6
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


class FinishTimes(NamedTuple):
    """The users with enough jobs, the mean of their rho and the highest, and the code of the user who has it."""

    users: int
    mean_rho: float
    worst_rho: float
    worst_user: int


def finish_times(jct_s: Floats, alone_s: Floats, user: NDArray[Any]) -> FinishTimes | None:
    """Compare the mean JCT of the jobs of each user with that alone; all arrays `(n_jobs,)`. None without a user."""
    codes, _, alone, shared = _by_user(alone_s[None], jct_s[None], user, 1)
    if not len(codes):
        return None
    rho = shared[0] / alone[0]
    return FinishTimes(
        users=len(codes),
        mean_rho=float(rho.mean()),
        worst_rho=float(rho.max()),
        worst_user=int(codes[rho.argmax()]),
    )


def jct_alone_s(jobs: NDArray[Any], gpus: int, *, least_jobs: int = LEAST_JOBS) -> Floats:
    """Return the JCT of each job of a trace, `(n_jobs,)`, were its user alone on an equal share of the GPUs.

    The users with `least_jobs` jobs or more share them; NaN for the jobs of others. The jobs of a user start in the
    order of submission, none before the one ahead of it; one that asks for more than the share takes all of it, and as
    much longer. Nodes, networks and time limits do not count.
    """
    codes, counts = np.unique(jobs["user"], return_counts=True)
    codes = codes[counts >= least_jobs]
    share = gpus / max(1, len(codes))
    alone_s = np.full(len(jobs), np.nan)
    for code in codes:
        rows = np.flatnonzero(jobs["user"] == code)
        width = np.minimum(jobs["gpus"][rows], share)
        run_s = jobs["run_time_s"][rows] * np.maximum(1.0, jobs["gpus"][rows] / share)
        start = _starts(jobs["submit_time"][rows].tolist(), width.tolist(), run_s.tolist(), share)
        alone_s[rows] = start + run_s - jobs["submit_time"][rows]
    return alone_s


def _starts(submit: list[float], width: list[float], run_s: list[float], share: float) -> Floats:
    """Return when the jobs of one user start on a share, in the order of submission, `(n_jobs,)`."""
    now, free, starts = -np.inf, share, []
    running: list[tuple[float, float]] = []
    for submit_time, gpus, length_s in zip(submit, width, run_s, strict=True):
        now = max(now, submit_time)
        while running and (running[0][0] <= now or free < gpus - _ROUNDING):
            end, freed = heappop(running)
            now, free = max(now, end), free + freed
        heappush(running, (now + length_s, gpus))
        free -= gpus
        starts.append(now)
    return np.array(starts)


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
