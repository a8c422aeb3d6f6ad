"""The heap of job rows against sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.sim import heap

STEPS = st.lists(st.tuples(st.sampled_from(["push", "remove", "move"]), st.integers(0, 11), st.integers(0, 5)))


@given(steps=STEPS, base=st.integers(0, 3))
def test_the_first_of_a_heap_is_always_the_least(steps: list[tuple[str, int, int]], base: int) -> None:
    order, slots = np.full(16, -1, np.int32), np.full(12, -1, np.int32)
    keys = np.zeros(12)
    length = 0

    for step, row, key in steps:
        if step == "push" and slots[row] < 0:
            keys[row] = key
            length = heap.push(order, keys, slots, base, length, row)
        elif step == "remove" and slots[row] >= 0:
            length = heap.remove(order, keys, slots, base, length, row)
        elif step == "move" and slots[row] >= 0:
            keys[row] = key
            heap.moved(order, keys, slots, base, length, row)
        held = np.flatnonzero(slots >= 0)

        assert len(held) == length
        assert order[base + slots[held]].tolist() == held.tolist()
        if length:
            assert order[base] == min(held, key=lambda each: (keys[each], each))


def test_taking_the_first_again_and_again_sorts() -> None:
    keys = np.array([3.0, 1.0, 2.0, 1.0, 0.0])
    order, slots = np.full(5, -1, np.int32), np.full(5, -1, np.int32)
    length = 0
    for row in range(5):
        length = heap.push(order, keys, slots, 0, length, row)

    taken = []
    while length:
        taken.append(int(order[0]))
        length = heap.remove(order, keys, slots, 0, length, taken[-1])

    # Equal keys by the row.
    assert taken == [4, 1, 3, 2, 0]
