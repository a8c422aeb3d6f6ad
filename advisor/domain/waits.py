"""How long gangs waited for a place close together, and whether they got one."""

from dataclasses import dataclass

from advisor.domain.topology import LocalityTier

# Gangs of this many GPUs and more are one class.
LARGEST_CLASS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One gang's wait for a tier, from its first chance to start on a worse one.

    `got` tells whether it started at the tier or closer; if not, it gave up after `waited_s`, and all that is known
    is that a place would have taken longer. `ended_time` is when it started.
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
    """Return the class that a gang's waits are counted in: its GPUs rounded up to a power of two, 64 at most."""
    return min(LARGEST_CLASS, 1 << max(0, gpus - 1).bit_length())
