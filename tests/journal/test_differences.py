"""Differences between lists give back the later one, whatever changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.journal.differences import Difference, difference, mapped, restored

ITEMS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=8)


@given(earlier=ITEMS, later=ITEMS)
def test_later_list_comes_back(earlier: list[tuple[int, int]], later: list[tuple[int, int]]) -> None:
    found = difference(earlier, later, lambda item: item[0])

    assert restored(earlier, found) == tuple(later)


def test_only_what_changed_is_told() -> None:
    earlier = [[1, "a"], [2, "b"], [3, "c"], [4, "d"]]

    found = difference(earlier, [[1, "a"], [3, "C"], [4, "d"], [5, "e"]], lambda item: item[0])

    assert found == Difference(dropped=(1,), changed=((2, [3, "C"]),), added=([5, "e"],))
    assert mapped(found, lambda item: item[1]) == Difference(dropped=(1,), changed=((2, "C"),), added=("e",))


def test_another_order_is_told() -> None:
    found = difference(["a", "b"], ["c", "b", "a"], lambda item: item)

    assert found == Difference(added=("c",), order=(2, 1, 0))


@pytest.mark.parametrize("found", [Difference(changed=((3, "x"),)), Difference(order=(1, 9), added=("x",))])
def test_difference_to_another_list_is_refused(found: Difference[str]) -> None:
    with pytest.raises(ValueError, match="does not follow"):
        restored(["a", "b"], found)
