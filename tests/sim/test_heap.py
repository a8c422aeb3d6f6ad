"""The heap of timers against sorting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.sim.state import NONE
from tests.sim.building import make_state, make_trace
from tests.sim.internals import set_timer

JOBS = 12
# A row and its next timer; NaN stands for none.
STEPS = st.lists(st.tuples(st.integers(0, JOBS - 1), st.sampled_from([0.0, 1.0, 2.0, 3.0, np.inf])))


@given(steps=STEPS)
def test_the_first_of_the_timers_is_always_the_earliest(steps: list[tuple[int, float]]) -> None:
    state = make_state(make_trace([{}] * JOBS), "nodes=1,gpus=1")
    jobs = state.jobs

    for row, due in steps:
        jobs["watch_time"][row] = due
        set_timer(state, row)
        held = np.flatnonzero(jobs["timer"] < np.inf)

        assert np.flatnonzero(jobs["heap_slot"] != NONE).tolist() == held.tolist()
        assert state.tally["timers"][0] == len(held)
        assert state.timers[jobs["heap_slot"][held]].tolist() == held.tolist()
        if len(held):
            # Equal timers by the row.
            assert state.timers[0] == min(held, key=lambda each: (jobs["timer"][each], each))


def test_taking_the_first_again_and_again_sorts() -> None:
    state = make_state(make_trace([{}] * 5), "nodes=1,gpus=1")
    state.jobs["watch_time"] = [3.0, 1.0, 2.0, 1.0, 0.0]
    for row in range(5):
        set_timer(state, row)

    taken = []
    while state.tally["timers"][0]:
        taken.append(int(state.timers[0]))
        state.jobs["watch_time"][taken[-1]] = np.inf
        set_timer(state, taken[-1])

    assert taken == [4, 1, 3, 2, 0]
