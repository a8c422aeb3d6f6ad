"""The mark of our nice values: always there, close to the value, in the same order, and rarely a person's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.mark import is_marked, marked

NICES = st.integers(-2_147_483_000, 2_147_483_000)


@pytest.mark.parametrize(
    ("nice", "after"), [(0, 0), (1, 7), (7, 7), (8, 17), (50, 57), (547, 547), (-1, -7), (-20, -27), (-27, -27)]
)
def test_mark_is_the_last_digit(nice: int, after: int) -> None:
    assert marked(nice) == after


@given(NICES.filter(bool))
def test_marked_value_is_marked_near_and_on_the_same_side(nice: int) -> None:
    assert is_marked(marked(nice)) and marked(marked(nice)) == marked(nice)
    assert 0 <= abs(marked(nice)) - abs(nice) <= 9 and (marked(nice) > 0) is (nice > 0)


@given(NICES, NICES)
def test_marks_keep_the_order_of_nice_values(one: int, other: int) -> None:
    low, high = sorted((one, other))

    assert marked(low) <= marked(high)


@pytest.mark.parametrize("nice", [0, 1, 5, 10, 19, 20, 50, 100, 500, 1000, 10_000, -10, -100, -1000, 2_147_483_645])
def test_values_that_people_choose_carry_no_mark(nice: int) -> None:
    assert not is_marked(nice)
