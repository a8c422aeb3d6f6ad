"""What sdiag prints, of every recorded release and damaged."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.diagnostics import decode_load, read_load
from advisor.domain.load import ControllerLoad
from advisor.errors import DecodeError
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
