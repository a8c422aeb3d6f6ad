"""Defines the waits of gangs for closer places."""

from dataclasses import dataclass

from advisor.domain.topology import LocalityTier

# Gangs of this many GPUs and more are one class.
LARGEST_CLASS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One gang's wait for a tier, from its first chance to start on a worse one.

    `got` is whether it started at the tier or closer; if not, it gave up after `waited_s`, so that a place would have
    taken longer. `ended_time` is when it started.
    """

    gpus: int
    tier: LocalityTier
    waited_s: float
    got: bool
    ended_time: float

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.waited_s < 0.0:
            raise ValueError(f"{self.gpus} GPUs that wait {self.waited_s} s are no wait")


def gang_class(gpus: int) -> int:
    """Return the size class of a gang's waits: its GPUs rounded up to a power of two, at most 64."""
    return min(LARGEST_CLASS, 1 << max(0, gpus - 1).bit_length())
