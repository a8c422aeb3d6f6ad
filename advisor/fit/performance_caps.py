"""Limits what one user can teach the performance model, as decision 0031 does for policies.

A user decides how fast the jobs of that user seem to run. Without a limit, one who submits many jobs and hides how much
they are slowed makes the model believe that nothing slows any job of these models.
"""

from bisect import bisect_left
from typing import Final

import numpy as np

from advisor.fit.performance_fit import Rows, Samples

SHARE_OF_USER: Final = 0.1


def capped_by_user(samples: Samples, users: Rows, *, seed: int, share: float = SHARE_OF_USER) -> Samples:
    """Return the samples of which no user, `users` `(n,)`, has more than a share; their order is kept.

    What is above is dropped by chance, not by time or speed, so that no user chooses what is kept. None is kept where
    there are fewer users than the share allows: such a site has to state a larger one.
    """
    if len(users) != len(samples):
        raise ValueError(f"{len(users)} users for {len(samples)} samples")
    if not 0.0 < share <= 1.0:
        raise ValueError(f"a share of {share:g} is not above 0 and at most 1")
    _, user, counts = np.unique(users, return_inverse=True, return_counts=True)
    drawn = np.random.default_rng([seed, 6]).permutation(len(samples))
    by_user = drawn[np.argsort(user.reshape(-1)[drawn], kind="stable")]
    rank = np.zeros(len(samples), np.intp)
    rank[by_user] = np.arange(len(samples)) - (counts.cumsum() - counts).repeat(counts)
    return samples.take(rank < _most_of_one(counts, share))


def _most_of_one(counts: Rows, share: float) -> int:
    """Return the largest number of samples of one user that is no more than a share of all that is then kept."""

    def is_above(most: int) -> bool:
        return bool(most > share * np.minimum(counts, most).sum() + 1e-9)

    # What is kept is concave in the number, so that no larger number fits above the first that does not.
    return bisect_left(range(1, int(counts.max(initial=0)) + 1), True, key=is_above)
