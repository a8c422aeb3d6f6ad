"""Measures how well forecasts of run times order jobs that wait together, and whether better than time limits do."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.probation import NO_ORDER, OrderProof
from advisor.features.columns import Columns

Floats = NDArray[np.float64]
# Pairs that are compared at once: rows of one block times all.
_BLOCK_ROWS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedJobs(Columns):
    """Jobs that waited, `(n_jobs,)`: when from and until when, their GPUs, their bursts and their users."""

    submit_time: Floats
    start_time: Floats
    gpus: Floats
    burst: NDArray[np.int64]
    user: NDArray[np.int64]


class _Pairs(NamedTuple):
    """Pairs of jobs of different bursts that waited at the same time, `(n_pairs,)`: rows, and what is at stake.

    `gap_s` is by how much the GPU-time of the first is larger.
    """

    one: NDArray[np.int64]
    other: NDArray[np.int64]
    gap_s: Floats

    def right(self, said_work_s: Floats) -> Floats:
        """Return how many GPU-seconds of each pair are put in the right order; a tie counts half."""
        agrees = np.sign(said_work_s[self.one] - said_work_s[self.other]) * np.sign(self.gap_s)
        half: Floats = np.abs(self.gap_s) * (1.0 + agrees) / 2.0
        return half


def ordered(jobs: WaitedJobs, run_s: Floats, said_s: Sequence[Floats]) -> list[float]:
    """Return for each forecast `(n_jobs,)` which share of the GPU-time at stake it orders right, from 0 to 1.

    At stake is by how much the GPU-times of two jobs of different bursts differ that waited at the same time: what the
    wrong order of the two costs, if one machine runs the shortest first. A tie counts half. NaN where no jobs differ.
    """
    said_work_s = [said * jobs.gpus for said in said_s]
    at_stake, right = 0.0, np.zeros(len(said_s))
    for pairs in _pairs(jobs, run_s):
        at_stake += float(np.abs(pairs.gap_s).sum())
        right += [pairs.right(said).sum() for said in said_work_s]
    return (right / at_stake).tolist() if at_stake else [np.nan] * len(said_s)


def order_proof(jobs: WaitedJobs, run_s: Floats, said_s: Floats, limit_s: Floats) -> OrderProof:
    """Compare how a forecast and the time limits, `(n_jobs,)`, order jobs: in all, and in the pairs of each user.

    Each user counts once, whatever is at stake for them. The error is that of a jackknife over users: each of them is
    left out in turn, with all pairs of theirs. `NO_ORDER` where nobody else has anything at stake then.
    """
    codes, user = np.unique(jobs.user, return_inverse=True)
    count, said_work_s = len(codes), (said_s * jobs.gpus, limit_s * jobs.gpus)
    # `(3, n_users, n_users)`: at stake, right by the forecast, and right by the limit, in the pairs of each two users.
    held, total = np.zeros((3, count * count)), np.zeros(3)
    for pairs in _pairs(jobs, run_s):
        one, other = user[pairs.one], user[pairs.other]
        for row, weight in enumerate((np.abs(pairs.gap_s), *(pairs.right(said) for said in said_work_s))):
            total[row] += weight.sum()
            held[row] += np.bincount(one * count + other, weight, count * count)
            # A pair of one user is that user's once.
            held[row] += np.bincount(other * count + one, weight * (one != other), count * count)
    by_users = held.reshape(3, count, count)
    by_user = by_users.sum(axis=2)
    gains = _gains(by_user)
    left_out = [_gains(np.delete(by_user - by_users[:, :, left], left, axis=1)) for left in np.flatnonzero(by_user[0])]
    # Of one user, or of two without pairs of their own, there is no error.
    if not left_out or not all(map(len, left_out)):
        return NO_ORDER
    without, users = np.array([gain.mean() for gain in left_out]), len(left_out)
    return OrderProof(
        jobs=len(jobs),
        users=users,
        ordered_ratio=min(1.0, float(total[1] / total[0])),
        limit_ratio=min(1.0, float(total[2] / total[0])),
        gain_ratio=float(gains.mean()),
        error_ratio=float(np.sqrt((users - 1) / users * ((without - without.mean()) ** 2).sum())),
    )


def _gains(by_user: Floats) -> Floats:
    """Return by how much more the forecast orders right for users with a stake, from sums `(3, n_users)`."""
    # Sums less all their terms are not exactly 0.
    at_stake, right, by_limit = by_user[:, by_user[0] > 1e-9 * by_user[0].sum()]
    gains: Floats = (right - by_limit) / at_stake
    return gains


def _pairs(jobs: WaitedJobs, run_s: Floats) -> Iterator[_Pairs]:
    """Yield the pairs in blocks, each pair once."""
    work_s = run_s * jobs.gpus
    for first in range(0, len(run_s), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        # The later row of the two is in the block.
        earlier = np.arange(len(run_s)) < np.arange(first, first + len(run_s[rows]))[:, None]
        together = (jobs.submit_time < jobs.start_time[rows, None]) & (jobs.submit_time[rows, None] < jobs.start_time)
        one, other = np.nonzero(earlier & together & (jobs.burst != jobs.burst[rows, None]))
        one += first
        yield _Pairs(one, other, work_s[one] - work_s[other])
