"""Bounds what one user can teach: outcomes that contradict themselves do not count, and no user has most samples."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import numpy as np

from advisor.domain.outcome import JobOutcome
from advisor.errors import ModelError

# The largest share of the samples that one user, and one account, can have.
USER_SHARE: Final = 0.1
ACCOUNT_SHARE: Final = 0.3
# Slurm ends a job some time after its limit.
_LIMIT_GRACE_S: Final = 3600.0


class OfUser(Protocol):
    """A sample that a job of a user gave."""

    @property
    def user(self) -> str:
        """The user of the job."""

    @property
    def account(self) -> str:
        """The account of the job."""


Sample = TypeVar("Sample", bound=OfUser)


def contradiction(outcome: JobOutcome) -> str | None:
    """Return how an outcome contradicts what a job can do; None if it does not."""
    times = {
        "was submitted": outcome.submit_time,
        "started": outcome.start_time,
        "started last": outcome.last_start_time,
        "was seen": outcome.last_seen_time,
        "ended": outcome.end_time,
    }
    known = {name: time for name, time in times.items() if time is not None}
    if not all(math.isfinite(time) and time >= 0.0 for time in known.values()):
        return "has a time that is none"
    if outcome.requeues < 0 or outcome.gpus < 0:
        return "has a negative count"
    # In the order of a job's life; it was seen between its last start and its end.
    for earlier, later in pairwise(known):
        if known[earlier] > known[later]:
            return f"{later} before it {earlier}"
    limit_s, run_time_s = outcome.time_limit_s, outcome.run_time_s
    if limit_s is not None and run_time_s is not None and not run_time_s <= limit_s + _LIMIT_GRACE_S:
        return "ran longer than its limit"
    return None


def capped(
    samples: Sequence[Sample],
    *,
    seed: int,
    user_share: float = USER_SHARE,
    account_share: float = ACCOUNT_SHARE,
) -> list[Sample]:
    """Return samples of which no user and no account has more than its share; drops by chance, keeps the order.

    Raises `ModelError` if there are too few users or accounts for that.
    """
    kept = list(samples)
    rng = np.random.default_rng(seed)
    parts: tuple[tuple[str, Callable[[Sample], str], float], ...] = (
        ("users", lambda sample: sample.user, user_share),
        ("accounts", lambda sample: sample.account, account_share),
    )
    # What a cap drops lowers the total, so that another holder can be above the share again.
    while True:
        before = len(kept)
        for holders, holder_of, share in parts:
            most = _most_of_each(Counter(map(holder_of, kept)), share)
            if not most:
                there = len(set(map(holder_of, samples)))
                raise ModelError(
                    f"{len(samples)} samples of {there} {holders} are too few to learn from: no more than {share:.0%} "
                    f"may be of one of the {holders}"
                )
            kept = _thinned(kept, holder_of, most, rng)
        if len(kept) == before:
            return kept


def _most_of_each(counts: Counter[str], share: float) -> int:
    """Return the largest cap with which each holder has at most a share of what is left; 0 if there is none."""
    # What a holder has of all grows with the cap.
    low, high = 0, max(counts.values(), default=0)
    while low < high:
        cap = (low + high + 1) // 2
        if cap <= share * sum(min(count, cap) for count in counts.values()):
            low = cap
        else:
            high = cap - 1
    return low


def _thinned(
    samples: Sequence[Sample], holder_of: Callable[[Sample], str], most: int, rng: np.random.Generator
) -> list[Sample]:
    places: dict[str, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(holder_of(sample), []).append(place)
    kept: set[int] = set()
    for name in sorted(places):
        held = places[name]
        kept.update(held if len(held) <= most else rng.choice(held, size=most, replace=False).tolist())
    return [sample for place, sample in enumerate(samples) if place in kept]
