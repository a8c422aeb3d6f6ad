"""What sdiag prints, of every recorded release and damaged."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.diagnostics import decode_load, next_interval_s, read_load, strained
from advisor.domain.load import ControllerLoad
from advisor.errors import DecodeError
from advisor.settings import BudgetSettings, DaemonSettings
from tests.backends.fake_slurm import FakeSlurm

RECORDED = Path(__file__).parent.parent / "recorded"
SHORT = """*******************************************************
sdiag output at Sat Nov 21 02:49:45 2026 (1795229385)
Data since      Sat Nov 21 02:49:22 2026 (1795229362)
*******************************************************
Server thread count:  70
Agent queue size:     12
DBD Agent queue size: N/A

Main schedule statistics (microseconds):
\tLast cycle:   2500000
\tMax cycle:    9000000

Backfilling stats (WARNING: data obtained in the middle of backfilling execution.)
\tLast cycle: 31000000
\tLast cycle: 1

Remote Procedure Call statistics by message type
\tREQUEST_PARTITION_INFO                  ( 2009) count:106    ave_time:66     total_time:7069

Remote Procedure Call statistics by user
\tREQUEST_JOB_INFO                        (       0) count:377    ave_time:258    total_time:97381
\tServer thread count: 1 (       0) count:377    ave_time:258    total_time:97381
"""


@pytest.mark.parametrize(
    ("release", "load"),
    [
        (
            "22.05",
            ControllerLoad(
                server_threads=3, agent_queue=0, database_queue=0, cycle_s=0.000208, backfill_cycle_s=0.005215
            ),
        ),
        (
            "24.11",
            ControllerLoad(
                server_threads=1, agent_queue=0, database_queue=0, cycle_s=0.000122, backfill_cycle_s=0.006546
            ),
        ),
        (
            "26.05",
            ControllerLoad(
                server_threads=1, agent_queue=0, database_queue=0, cycle_s=0.00018, backfill_cycle_s=0.004119
            ),
        ),
    ],
)
def test_recorded_answer_is_read(release: str, load: ControllerLoad) -> None:
    slurm = FakeSlurm(texts={"sdiag": (RECORDED / release / "sdiag.txt").read_text()})

    read = read_load(slurm)

    assert replace(read, request_times_s={}) == load
    assert 50e-6 < read.request_times_s["REQUEST_PARTITION_INFO"] < 500e-6
    assert all(name.isupper() and 0 < mean_s < 1 for name, mean_s in read.request_times_s.items())
    assert slurm.asked == [("sdiag",)]


def test_busy_controller_is_read_and_names_of_users_are_not() -> None:
    assert decode_load(SHORT) == ControllerLoad(
        server_threads=70,
        agent_queue=12,
        database_queue=None,
        cycle_s=2.5,
        backfill_cycle_s=31.0,
        request_times_s={"REQUEST_PARTITION_INFO": 66e-6},
    )


def test_line_that_is_not_there_is_unknown() -> None:
    load = decode_load(SHORT.replace("Server thread count:  70\n", "").replace("\tLast cycle:   2500000\n", ""))

    assert (load.server_threads, load.cycle_s, load.agent_queue) == (None, None, 12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SHORT.partition("Remote")[0],
        SHORT.replace("sdiag output at", "something at"),
        SHORT.replace("70", "many"),
        SHORT.replace("70", "-1"),
        SHORT.replace("70", "9" * 40),
        SHORT.replace("70", "\x1b[31m70"),
    ],
    ids=["empty", "torn", "another program", "no number", "negative", "endless", "terminal codes"],
)
def test_damaged_answer_is_no_load(text: str) -> None:
    with pytest.raises(DecodeError, match="sdiag"):
        decode_load(text)


@given(st.text(), st.integers(0, len(SHORT)))
def test_hostile_answer_is_a_load_or_a_decode_error(noise: str, at: int) -> None:
    try:
        load = decode_load(SHORT[:at] + noise + SHORT[at:])
    except DecodeError:
        return

    assert (load.server_threads or 0) >= 0


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
