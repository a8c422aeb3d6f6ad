"""Defines the test by which a model proves itself on jobs of this site: its intervals cover what they claim."""

import math
from dataclasses import dataclass
from typing import Final

# The share of outcomes that an interval claims to contain.
CLAIMED_RATIO: Final = 0.8
# The chance that a model which covers exactly what it claims is refused at one look.
CHANCE_REFUSED: Final = 0.05


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
