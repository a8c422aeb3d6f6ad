"""Which jobs get the GPUs that are left."""

from collections.abc import Callable

import pytest

from advisor.planning.growth import GrowthStep, grown


def halving(*worth: float, most: int = 8) -> Callable[[int, int], GrowthStep | None]:
    """Return the steps of jobs that double, each step worth half of the one before."""
    return lambda place, size: GrowthStep(2 * size, worth[place] / size) if 2 * size <= most else None


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param(0, [1, 1], id="nothing is left"),
        pytest.param(1, [1, 2], id="the first step goes to the job that values it most"),
        pytest.param(3, [1, 4], id="and the second, for the half is still more"),
        pytest.param(4, [2, 4], id="the rest goes to the other"),
        pytest.param(6, [4, 4], id="a step that is not left for does not stop the others"),
    ],
)
def test_each_step_goes_to_the_job_that_values_it_most(gpus: int, expected: list[int]) -> None:
    assert grown([1, 1], gpus, halving(1.0, 3.0)) == expected


def test_ties_go_to_the_first() -> None:
    assert grown([1, 1], 1, halving(1.0, 1.0)) == [2, 1]


def test_job_whose_step_cannot_be_taken_grows_no_further() -> None:
    assert grown([1, 1], 20, halving(1.0, 3.0), lambda place, _gpus: place == 0) == [8, 1]
