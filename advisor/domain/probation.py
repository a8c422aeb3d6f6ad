"""Defines how a run-time model proves itself on jobs of this site: it covers what it claims, and orders them better.

Better, that is, than the time limits order them.
"""

import math
from collections.abc import Mapping
from dataclasses import field
from statistics import NormalDist
from typing import Final

from advisor.domain.dataclass import dataclass

# The share of outcomes that an interval claims to contain.
CLAIMED_RATIO: Final = 0.8
# The chance that a model which covers exactly what it claims is refused at one look.
CHANCE_REFUSED: Final = 0.05
# Once a week the jobs of so many weeks show whether a model orders better than the limits do. The chance that one which
# does not passes in any of as many looks, and that one which orders as well as they do is set aside at one look.
ORDER_WEEKS: Final = 4
CHANCE_PASSED: Final = 0.05
CHANCE_SET_ASIDE: Final = 0.05
# The name under which a person acknowledges that a model drifted, after which it is trusted again.
DRIFT: Final = "forecast_drift"
# What the versions of models begin with that were fitted on this site.
FITTED_HERE: Final = "site-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many of `jobs` outcomes lay `inside` their 80 % intervals."""

    jobs: int = 0
    inside: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.inside <= self.jobs:
            raise ValueError(f"{self.inside} of {self.jobs} jobs are no coverage")

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(jobs=self.jobs + other.jobs, inside=self.inside + other.inside)

    def proves(self, least_jobs: int) -> bool:
        """Return whether there are enough jobs, and no fewer inside than the claim allows.

        No fewer, that is, than the lowest 5 % of what a binomial distribution of the claimed 80 % gives.
        """
        return self.jobs >= max(1, least_jobs) and _at_most(self.inside, self.jobs) > CHANCE_REFUSED


NOTHING_ENDED: Final = Coverage()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderProof:
    """How a model and the time limits order `jobs` that waited together and ended, of `users` that have pairs.

    Both are shares of the GPU-time by which pairs of jobs differ, put in the right order. `gain_ratio` is by how much
    larger the model's is in the pairs of each user, the mean over users, and `error_ratio` the standard error of that.
    """

    jobs: int = 0
    users: int = 0
    ordered_ratio: float = 0.0
    limit_ratio: float = 0.0
    gain_ratio: float = 0.0
    error_ratio: float = 0.0

    def __post_init__(self) -> None:
        # What is not a number compares False.
        shares_hold = all(0.0 <= share <= 1.0 for share in (self.ordered_ratio, self.limit_ratio, abs(self.gain_ratio)))
        if min(self.jobs, self.users) < 0 or not (shares_hold and 0.0 <= self.error_ratio < math.inf):
            raise ValueError(f"{self.ordered_ratio} and {self.limit_ratio} of {self.jobs} jobs are no order")

    @property
    def proves(self) -> bool:
        """Whether the model orders better than the limits do, by users at a weekly look, and no worse in all."""
        is_no_worse = self.ordered_ratio >= self.limit_ratio
        return is_no_worse and self._chance(self.gain_ratio) <= CHANCE_PASSED / ORDER_WEEKS

    @property
    def is_worse(self) -> bool:
        """Whether the model orders worse than the limits do, by users at one look."""
        return self._chance(-self.gain_ratio) <= CHANCE_SET_ASIDE

    @property
    def words(self) -> str:
        """How the model and the limits order jobs, in words that follow the name of the model."""
        if not self.users:
            return "has too few jobs that waited together to be held against time limits in their order"
        gain = f"{100.0 * self.gain_ratio:+.1f} points by user, standard error {100.0 * self.error_ratio:.1f}"
        return (
            f"orders {100.0 * self.ordered_ratio:.1f} % of the GPU-time in question right, time limits "
            f"{100.0 * self.limit_ratio:.1f} % ({gain}, {self.users} users)"
        )

    def _chance(self, gain: float) -> float:
        """Return the chance of such a gain, or a larger one, where both order alike: of Student's t distribution.

        It is never less than if each user tossed a coin, so that a few users prove nothing. The tail of t is taken
        from that of a normal distribution (Wallace 1959).
        """
        if gain <= 0.0 or self.users < 2:
            return 1.0
        freedom, t = self.users - 1.0, gain / max(self.error_ratio, 1e-9)
        z = (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0) * math.sqrt(freedom * math.log1p(t * t / freedom))
        return max(NormalDist().cdf(-z), 0.5**self.users)


NO_ORDER: Final = OrderProof()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLook:
    """How a run-time model ordered the jobs of this site when the daemon looked last."""

    model: str
    looked_time: float
    order: OrderProof


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What jobs of this site show of a run-time model; `order` is None where nobody looked yet."""

    coverage: Coverage = NOTHING_ENDED
    order: OrderProof | None = None

    def holds(self, least_jobs: int) -> bool:
        """Return whether the model covers what it claims, and orders better than the limits do."""
        return self.order is not None and self.order.proves and self.coverage.proves(least_jobs)


NO_PROOF: Final = Proof()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The run-time models that jobs of this site have proven, and those that were proven and then drifted.

    `since_by_model` maps them to when; jobs that ended up to then say nothing of what the models are now.
    """

    proven: frozenset[str] = frozenset()
    drifted: frozenset[str] = frozenset()
    since_by_model: Mapping[str, float] = field(default_factory=dict)

    def since(self, model: str) -> float:
        """Return the instant from which ended jobs count for a model."""
        return self.since_by_model.get(model, -math.inf)


NOTHING_PROVEN: Final = Trust()


def _at_most(inside: int, jobs: int) -> float:
    """Return the chance of at most `inside` of `jobs` outcomes where each is inside with the claimed chance."""
    log_in, log_out = math.log(CLAIMED_RATIO), math.log(1 - CLAIMED_RATIO)
    return math.fsum(
        math.exp(
            math.lgamma(jobs + 1)
            - math.lgamma(count + 1)
            - math.lgamma(jobs - count + 1)
            + count * log_in
            + (jobs - count) * log_out
        )
        for count in range(inside + 1)
    )
