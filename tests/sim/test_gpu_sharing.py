"""Two jobs on the same GPUs, on cases small enough to compute by hand."""

import numpy as np
import pytest

from advisor.sim.profiles import gpu_share_inflation, load_profiles
from advisor.sim.state import NONE, PENDING, RUNNING, State
from tests.sim.building import make_state, make_trace, place, run_out, submit
from tests.sim.internals import preempt, start_as_guest

PROFILES = load_profiles()


def profile(name: str) -> np.void:
    row: np.void = PROFILES.rows[PROFILES.names.index(name)]
    return row


def ends(state: State) -> list[float]:
    return [float(at) for at in state.jobs["end_time"]]


def pair() -> State:
    """A host of two GPUs and a guest, running since 0 and 100, with 1000 s of work each."""
    trace = make_trace(
        [
            {"gpus": 2, "run_time_s": 1000, "model": "lm"},
            {"gpus": 2, "run_time_s": 1000, "model": "recommendation"},
        ]
    )
    state = make_state(trace, "nodes=1,gpus=4,restart_s=30")
    place(state, 0, {0: 2}, 0.0)
    submit(state, 1, 100.0)
    start_as_guest(state, 1, 0, 100.0)
    return state


def pair_inflations() -> tuple[float, float]:
    host, guest = profile("lm"), profile("recommendation")
    return gpu_share_inflation(host, guest), gpu_share_inflation(guest, host)


def test_host_and_guest_slow_each_other_until_the_first_ends() -> None:
    state = pair()

    run_out(state)

    of_host, of_guest = pair_inflations()
    host_ends = 100.0 + 900.0 * of_host
    guest_ends = host_ends + 1000.0 - (host_ends - 100.0) / of_guest
    assert ends(state) == pytest.approx([host_ends, guest_ends])
    assert state.jobs["held_gpu_s"] == pytest.approx([2 * host_ends, 2 * (guest_ends - 100.0)])


def test_a_guest_takes_no_gpus() -> None:
    state = pair()

    assert state.nodes["gpus_free"].tolist() == [2]
    assert state.tally["gpus_free"].tolist() == [2]
    assert state.node_jobs[0, :2].tolist() == [0, 1]
    assert state.jobs["is_guest"].tolist() == [0, 1]


def test_a_guest_inherits_the_gpus_of_a_host_that_is_stopped() -> None:
    state = pair()

    preempt(state, 0, 200.0)

    assert state.nodes["gpus_free"].tolist() == [2]
    assert state.jobs["is_guest"].tolist() == [0, 0]
    assert state.jobs["partner"].tolist() == [NONE, NONE]
    run_out(state)
    assert ends(state)[1] == pytest.approx(200.0 + 1000.0 - 100.0 / pair_inflations()[1])
    assert state.nodes["gpus_free"].tolist() == [4]


def test_a_host_runs_on_alone_when_its_guest_is_stopped() -> None:
    state = pair()

    preempt(state, 1, 200.0)

    assert state.nodes["gpus_free"].tolist() == [2]
    assert state.jobs["phase"].tolist() == [RUNNING, PENDING]
    run_out(state)
    assert ends(state)[0] == pytest.approx(200.0 + 900.0 - 100.0 / pair_inflations()[0])
    assert state.nodes["gpus_free"].tolist() == [4]
