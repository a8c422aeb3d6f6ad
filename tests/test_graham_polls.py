"""Tables of polls: what is read, what is repaired, what is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import TraceError
from tests.fit.start_time_journal import poll_row, write
from tools.data.graham_polls import COLUMNS, read_polls


def test_row_becomes_a_job_and_what_stands_before_it(tmp_path: Path) -> None:
    row = poll_row(ahead_hours=50.0, q_p_gpu_hours_above=20, q_a_gpus_above=3, time_limit_sec=7200)

    polls, (source,) = read_polls([write(tmp_path / "polls.csv", [row])])

    assert polls.table.gpus.tolist() == [1.0]
    assert polls.table.limit_s.tolist() == [7200.0]
    assert polls.table.ahead.gpu_s.tolist() == [50.0 * 3600]
    assert polls.table.ahead_in_partition.gpu_s.tolist() == [20.0 * 3600]
    assert polls.table.ahead_in_account.gpus.tolist() == [3.0]
    assert polls.table.running.gpus.tolist() == [100.0]
    assert polls.wait_s.tolist() == [1800.0]
    assert polls.start_time.tolist() == [polls.poll_time[0] + 1800.0]
    assert (source.name, source.rows) == ("polls.csv", 1)


def test_packed_shuffled_and_wider_table_says_the_same(tmp_path: Path) -> None:
    rows = [poll_row(job=job, ahead_hours=10.0 * job) for job in range(1, 5)]
    plain = write(tmp_path / "plain.csv", rows)
    shuffled = [{"extra": "x", **dict(reversed(row.items()))} for row in reversed(rows)]
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(write(tmp_path / "shuffled.csv", shuffled).read_bytes()))

    expected, found = (read_polls([path])[0] for path in (plain, packed))

    assert found.wait_s[::-1].tolist() == expected.wait_s.tolist()
    assert found.table.ahead.gpu_s[::-1].tolist() == expected.table.ahead.gpu_s.tolist()


def test_outcomes_other_than_the_wait_are_not_read() -> None:
    outcomes = {"start_time", "end_time", "elapsed_time", "state", "run_time_sec", "priority_x", "alloc_nodes"}

    assert not outcomes & set(COLUMNS)
    assert not [name for name in COLUMNS if "run_hours" in name or "submit_wait" in name]


def test_job_not_yet_eligible_does_not_tell_when_it_will_be(tmp_path: Path) -> None:
    rows = [poll_row(eligible_time="2021-05-02 00:00:00"), poll_row(eligible_time="2021-05-09 00:00:00")]

    polls, _ = read_polls([write(tmp_path / "polls.csv", rows)])

    assert polls.table.eligible.tolist() == [0.0, 0.0]
    assert polls.table.since_eligible_s.tolist() == [0.0, 0.0]


def test_what_runs_is_told_by_the_other_rows_of_a_poll(tmp_path: Path) -> None:
    rows = [poll_row(job=1), poll_row(job=2, r_gpus_above=0, r_gpu_hours_above=0, r_a_gpus_above=0)]

    polls, _ = read_polls([write(tmp_path / "polls.csv", rows)])

    assert polls.table.running.gpus.tolist() == [100.0, 100.0]
    assert np.isnan(polls.table.running_in_account.gpus).tolist() == [False, True]


def test_job_that_never_started_has_no_wait(tmp_path: Path) -> None:
    polls, _ = read_polls([write(tmp_path / "polls.csv", [poll_row(poll_wait_sec=""), poll_row(job=2)])])

    assert np.isnan(polls.wait_s).tolist() == [True, False]
    assert polls.started_by(polls.seen_until + 1.0).tolist() == [False, True]


def test_job_without_gpus_is_left_out(tmp_path: Path) -> None:
    rows = [poll_row(job=1), poll_row(job=2, req_tres="cpu=4,mem=4000M,node=1")]

    polls, (source,) = read_polls([write(tmp_path / "polls.csv", rows)])

    assert (len(polls), source.rows) == (1, 1)


def test_jobs_alike_submitted_together_are_one_burst(tmp_path: Path) -> None:
    rows = [poll_row(job=1), poll_row(job=61), poll_row(job=2), poll_row(day=1, job=1)]

    burst = read_polls([write(tmp_path / "polls.csv", rows)])[0].burst.tolist()

    assert burst[0] == burst[1]
    assert len(set(burst)) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"poll_wait_sec": "soon"}, r"line 2: poll_wait_sec 'soon': it is no number", id="text"),
        pytest.param({"poll_wait_sec": "-5"}, "it is negative", id="negative"),
        pytest.param({"q_gpu_hours_above": "inf"}, "it is beyond any queue", id="infinite"),
        pytest.param({"r_gpu_hours_above": "nan"}, "it is beyond any queue", id="no number"),
        pytest.param({"poll_time": "noon"}, "poll_time 'noon': it is no time", id="time"),
        pytest.param({"req_tres": "gres/gpu"}, "line 2: req_tres", id="resources"),
    ],
)
def test_wrong_cell_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = write(tmp_path / "polls.csv", [poll_row() | changes])

    with pytest.raises(TraceError, match=message):
        read_polls([path])


def test_cell_of_absurd_length_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", [poll_row()])
    path.write_text(path.read_text() + "1," + "2" * 200_000 + "\n")

    with pytest.raises(TraceError, match="is no CSV: field larger"):
        read_polls([path])


def test_short_line_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "polls.csv", [poll_row()])
    path.write_text(path.read_text() + "1,2\n")

    with pytest.raises(TraceError, match="line 3: it ends before"):
        read_polls([path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "column job_unique_id is missing", id="empty"),
        pytest.param("job_unique_id,poll_time\n1,2\n", "column account_id is missing", id="column"),
        pytest.param(",".join(COLUMNS) + "\n", "there is no row", id="no rows"),
    ],
)
def test_table_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "polls.csv"
    path.write_text(content)

    with pytest.raises(TraceError, match=message):
        read_polls([path])


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv"):
        read_polls([tmp_path / "none.csv"])
