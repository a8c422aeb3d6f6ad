"""Which jobs of a group change places, as a pure choice on arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from advisor.planning.exchange import exchanges
from advisor.planning.objective import bound_s
from advisor.settings import Limits

Line = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], int]


@st.composite
def lines(draw: st.DrawFn) -> Line:
    """Draw a line: keys, of which 0 is a late job, falling priorities, groups, what can rise and give, and places."""
    count = draw(st.integers(1, 30))

    def column(values: st.SearchStrategy[float | int | bool]) -> list[float | int | bool]:
        return draw(st.lists(values, min_size=count, max_size=count))

    priority = np.sort(np.array(column(st.integers(1, 40)), dtype=np.float64))[::-1]
    key = np.array(column(st.integers(0, 6)), dtype=np.float64)
    group = np.array(column(st.integers(0, 3)), dtype=np.int64)
    can_rise, can_give = (np.array(column(st.booleans()), dtype=np.bool_) for _ in range(2))
    return key, priority, group, can_rise, can_give & (key > 0.0), draw(st.integers(1, 30))


@given(line=lines())
def test_each_group_keeps_its_places_and_no_job_is_in_two_pairs(line: Line) -> None:
    key, priority, group, can_rise, can_give, places = line

    chosen = exchanges(key, priority, group, can_rise, can_give, places=places)

    after = priority.copy()
    after[chosen.up], after[chosen.down] = priority[chosen.down], priority[chosen.up]
    moved = np.r_[chosen.up, chosen.down]
    assert len(set(moved.tolist())) == len(moved)
    for name in np.unique(group):
        assert sorted(after[group == name]) == sorted(priority[group == name])
    assert can_rise[chosen.up].all() and can_give[chosen.down].all()
    assert (key[chosen.up] < key[chosen.down]).all() and (priority[chosen.up] < priority[chosen.down]).all()
    assert (chosen.down < places).all()


@given(line=lines())
def test_a_late_job_goes_to_the_first_place_that_its_group_can_give(line: Line) -> None:
    key, priority, group, _, can_give, places = line
    everybody = np.ones(len(key), dtype=np.bool_)

    chosen = exchanges(key, priority, group, everybody, can_give, places=places)

    for name in np.unique(group[key == 0.0]):
        given_first = [row for row in range(min(places, len(key))) if group[row] == name and can_give[row]][:1]
        late = [row for row in np.flatnonzero((group == name) & (key == 0.0)) if given_first and row > given_first[0]]
        if any(priority[row] < priority[given_first[0]] for row in late):
            place = chosen.down.tolist().index(given_first[0])
            assert key[chosen.up[place]] == 0.0


def test_of_equal_keys_the_last_goes_up_so_that_the_large_job_is_passed_by_all() -> None:
    key, priority = np.array([9.0, 1.0, 1.0, 1.0]), np.array([40.0, 30.0, 20.0, 10.0])
    everybody = np.ones(4, dtype=np.bool_)

    chosen = exchanges(key, priority, np.zeros(4, dtype=np.int64), everybody, everybody, places=4)

    assert (chosen.up.tolist(), chosen.down.tolist()) == ([3], [0])


def test_a_place_is_given_for_no_longer_than_the_bound_on_lateness() -> None:
    limits = Limits(max_lateness_s=100.0, max_lateness_ratio=0.5)

    assert bound_s(np.array([10.0, 400.0]), limits).tolist() == [100.0, 200.0]
