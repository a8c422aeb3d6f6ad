"""What counts as a wait, and which gangs are alike."""

import pytest

from advisor.domain.memory import Wait, gang_class
from advisor.domain.topology import LocalityTier


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (33, 64), (64, 64), (65, 64), (4096, 64)],
)
def test_a_gang_is_counted_with_those_up_to_the_next_power_of_two(gpus: int, expected: int) -> None:
    assert gang_class(gpus) == expected


@pytest.mark.parametrize(("gpus", "waited_s"), [(0, 1.0), (8, -1.0)])
def test_a_wait_of_nobody_or_into_the_past_is_none(gpus: int, waited_s: float) -> None:
    with pytest.raises(ValueError, match="are no wait"):
        Wait(gpus=gpus, tier=LocalityTier.LEAF, waited_s=waited_s, got=True, ended_time=0.0)
