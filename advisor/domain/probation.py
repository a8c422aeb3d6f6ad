"""Defines how a run-time model proves itself on jobs of this site: its intervals cover what they claim."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

# The share of outcomes that an interval claims to contain.
CLAIMED_RATIO: Final = 0.8
# The chance that a model which covers exactly what it claims is refused at one look.
CHANCE_REFUSED: Final = 0.05
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
