"""The interval between rounds widens under strain and comes back, and the budget's settings fit a round."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.diagnostics import next_interval_s, strained
from advisor.domain.load import ControllerLoad
from advisor.settings import BudgetSettings, DaemonSettings

SETTINGS = DaemonSettings(
    interval_s=60.0, interval_max_s=600.0, strain_threads=64, strain_queue=200, strain_cycle_s=5.0
)
QUIET = ControllerLoad(server_threads=3, agent_queue=0, database_queue=0, cycle_s=0.1, backfill_cycle_s=25.0)

intervals = st.floats(0.0, 1e6)
settings = st.builds(
    lambda base, times: DaemonSettings(interval_s=base, interval_max_s=base * times, jitter_s=0.0),
    st.floats(1.0, 3600.0),
    st.floats(1.0, 20.0),
)


@given(current_s=intervals, pacing=settings, trouble=st.booleans())
def test_interval_stays_within_its_bounds(current_s: float, pacing: DaemonSettings, trouble: bool) -> None:
    found_s = next_interval_s(current_s, pacing, trouble=trouble)

    assert pacing.interval_s <= found_s <= pacing.interval_max_s


@given(current_s=intervals, pacing=settings)
def test_interval_never_narrows_in_trouble_nor_widens_without(current_s: float, pacing: DaemonSettings) -> None:
    bounded_s = min(max(current_s, pacing.interval_s), pacing.interval_max_s)

    assert next_interval_s(bounded_s, pacing, trouble=True) >= bounded_s
    assert next_interval_s(bounded_s, pacing, trouble=False) <= bounded_s


@given(one_s=intervals, other_s=intervals, trouble=st.booleans())
def test_longer_interval_stays_the_longer_one(one_s: float, other_s: float, trouble: bool) -> None:
    low_s, high_s = sorted((one_s, other_s))

    assert next_interval_s(low_s, SETTINGS, trouble=trouble) <= next_interval_s(high_s, SETTINGS, trouble=trouble)


def test_interval_doubles_up_to_its_maximum_and_comes_back_slowly() -> None:
    widened, narrowed = [60.0], []
    while widened[-1] < 600.0:
        widened.append(next_interval_s(widened[-1], SETTINGS, trouble=True))
    narrowed = [widened[-1]]
    while narrowed[-1] > 60.0:
        narrowed.append(next_interval_s(narrowed[-1], SETTINGS, trouble=False))

    assert widened == [60.0, 120.0, 240.0, 480.0, 600.0]
    assert len(narrowed) > 2 * len(widened)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (replace(QUIET, server_threads=64), "64 server threads (strained from 64)"),
        (replace(QUIET, agent_queue=250), "250 messages in the agent queue (strained from 200)"),
        (replace(QUIET, cycle_s=7.25), "a scheduling pass of 7.2 s (strained from 5 s)"),
        (replace(QUIET, server_threads=99, cycle_s=9.0), "99 server threads (strained from 64) and a scheduling pass"),
    ],
    ids=["threads", "agent queue", "cycle", "two at once"],
)
def test_strain_is_said_in_plain_words(load: ControllerLoad, said: str) -> None:
    assert strained(load, SETTINGS).startswith(said)


@pytest.mark.parametrize("load", [QUIET, ControllerLoad(), replace(QUIET, server_threads=63, cycle_s=4.9)])
def test_quiet_or_unknown_load_is_no_strain(load: ControllerLoad) -> None:
    assert strained(load, SETTINGS) == ""


@pytest.mark.parametrize(
    ("interval_s", "threads", "queue", "cycle_s"),
    [(0.0, 64, 200, 5.0), (900.0, 64, 200, 5.0), (60.0, 0, 200, 5.0), (60.0, 64, -1, 5.0), (60.0, 64, 200, 0.0)],
)
def test_wrong_pacing_is_refused(interval_s: float, threads: int, queue: int, cycle_s: float) -> None:
    with pytest.raises(ValueError, match=r"interval_s must be|must be above 0"):
        DaemonSettings(interval_s=interval_s, strain_threads=threads, strain_queue=queue, strain_cycle_s=cycle_s)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"time_ratio": 0.0}, "time_ratio must be above 0"),
        ({"time_ratio": 1.01}, "at most 1"),
    ],
)
def test_budget_that_no_change_would_ever_fit_is_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(BudgetSettings(), **wrong)
