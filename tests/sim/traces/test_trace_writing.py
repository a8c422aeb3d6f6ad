"""Trace files: what is written reads back the same, and is there whole or not at all."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.errors import TraceError
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from advisor.sim.traces.trace_columns import COLUMNS, NAMES_FIELD
from advisor.sim.traces.trace_file import read_trace, write_trace
from tests.sim.building import names_of
from tests.strategies import HOSTILE

HEADER = "job_id,submit_time,run_time_s,gpus"


def make_trace(**columns: list[float] | list[int]) -> Trace:
    """Return a trace of one job or several, valid unless told otherwise."""
    count = max((len(values) for values in columns.values()), default=1)
    jobs = np.zeros(count, TRACE_DTYPE)
    jobs["job_id"] = np.arange(count)
    jobs["run_time_s"], jobs["time_limit_s"], jobs["recorded_start_time"] = 60.0, np.inf, np.nan
    jobs["gpus"] = jobs["gpus_min"] = jobs["gpus_max"] = 1
    jobs["gpu_type"] = jobs["model"] = -1
    for name, values in columns.items():
        jobs[name] = values
    return Trace(name="made", jobs=jobs)


def assert_same(found: Trace, expected: Trace) -> None:
    """Two traces describe the same jobs, whatever their codes."""
    for column in COLUMNS:
        if column in NAMES_FIELD:
            assert names_of(found, column) == names_of(expected, column)
        else:
            np.testing.assert_array_equal(found.jobs[column], expected.jobs[column])
    assert (found.name, found.sampled, found.seed, found.note) == (
        expected.name, expected.sampled, expected.seed, expected.note,
    )  # fmt: skip


NAMES = st.text(st.characters(codec="utf-8") | st.sampled_from(HOSTILE + ',"#'), max_size=8)
SECONDS = st.floats(0, 1e9)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw a valid trace, sorted as a trace is."""
    count = draw(st.integers(1, 6))
    rows = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "job_id": st.integers(0, 2**63 - 1),
                    "submit_time": SECONDS,
                    "run_time_s": st.floats(5e-324, 1e9),
                    "gpus": st.integers(4, 10**8),
                    "gpus_min": st.integers(1, 4),
                    "gpus_max": st.integers(10**8, 10**8),
                    "nodes_min": st.integers(0, 2),
                    "nodes_max": st.just(0) | st.integers(2, 9),
                    "cpus_per_gpu": st.integers(0, 100),
                    "memory_mib_per_gpu": st.integers(0, 10**12),
                    "time_limit_s": st.floats(1e9, 1e12) | st.just(float("inf")),
                    "time_min_s": SECONDS,
                    "switches": st.integers(0, 4),
                    "switches_wait_s": SECONDS,
                    "nice": st.integers(-(2**31) + 1, 2**31 - 1),
                    "checkpoint_interval_s": SECONDS,
                    "recorded_start_time": st.floats(1e9, 1e12) | st.just(float("nan")),
                    "gpu_type": st.integers(-1, 1),
                    "model": st.integers(-1, 1),
                    "user": st.integers(0, 1),
                    "account": st.integers(0, 1),
                    "qos": st.integers(0, 1),
                    "partition": st.integers(0, 1),
                    "array_id": st.integers(0, 2**63 - 1),
                    "dependency": st.integers(0, 1),
                }
            ),
            min_size=count,
            max_size=count,
            unique_by=lambda row: row["job_id"],
        )
    )
    jobs = np.zeros(count, TRACE_DTYPE)
    for place, row in enumerate(rows):
        for column, value in row.items():
            jobs[column][place] = value
    some = NAMES.filter(bool)
    pair = st.lists(NAMES, min_size=2, max_size=2, unique=True).map(tuple)
    full = st.lists(some, min_size=2, max_size=2, unique=True).map(tuple)
    return Trace(
        name="drawn",
        jobs=jobs[np.lexsort((jobs["job_id"], jobs["submit_time"]))],
        users=draw(pair),
        accounts=draw(pair),
        qos=draw(full),
        gpu_types=draw(full),
        models=draw(full),
        partitions=draw(pair),
        dependencies=draw(pair),
        sampled=draw(st.sampled_from([(), ("model",), ("model", "user")])),
        seed=draw(st.none() | st.integers(0, 2**63)),
        note=draw(st.sampled_from(["", "sacct: of May"])),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(trace=traces(), suffix=st.sampled_from([".csv", ".csv.gz"]))
def test_a_written_trace_reads_back_the_same_and_is_written_the_same_again(
    tmp_path: Path, trace: Trace, suffix: str
) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"

    write_trace(trace, first)
    found = read_trace(first)
    write_trace(found, second)

    assert_same(found, trace)
    assert first.read_bytes() == second.read_bytes()
    assert read_trace(second).jobs.tobytes() == found.jobs.tobytes()


def test_a_name_that_is_no_utf_8_survives(tmp_path: Path) -> None:
    trace = make_trace()
    odd = Trace(name="odd", jobs=trace.jobs, users=("jos\udce9",))

    write_trace(odd, tmp_path / "t.csv")

    assert read_trace(tmp_path / "t.csv").users == ("jos\udce9",)


def test_only_columns_that_say_something_are_written(tmp_path: Path) -> None:
    write_trace(make_trace(nice=[0, 3]), tmp_path / "t.csv")

    header = (tmp_path / "t.csv").read_text().splitlines()[2]
    assert header == f"{HEADER},nice"


def test_a_name_or_a_note_cannot_end_a_comment(tmp_path: Path) -> None:
    trace = make_trace()
    sly = Trace(name="a\n# seed", jobs=trace.jobs, note="x\r\njob_id,gpus\u2028y")

    write_trace(sly, tmp_path / "t.csv")

    found = read_trace(tmp_path / "t.csv")
    assert found.name == "a # seed"
    assert found.note == "x  job_id,gpus y"


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_trace(make_trace(), path)
    before = path.read_bytes()

    with pytest.raises(TraceError, match="cannot be written: a name is not Unicode"):
        write_trace(Trace(name="bad", jobs=make_trace().jobs, users=("\ud800",)), path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_in_no_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none" / "t.csv"

    with pytest.raises(TraceError, match=re.escape(f"{path}: cannot be written: No such file")):
        write_trace(make_trace(), path)


def test_a_link_is_written_through_and_a_new_file_is_its_owners(tmp_path: Path) -> None:
    link, target = tmp_path / "link.csv", tmp_path / "target.csv"
    link.symlink_to(target)
    target.touch()

    write_trace(make_trace(), link)
    write_trace(make_trace(), tmp_path / "own.csv")

    assert link.is_symlink()
    assert len(read_trace(target)) == 1
    assert (tmp_path / "own.csv").stat().st_mode & 0o777 == 0o600


def test_a_reader_that_goes_away_is_no_fault_of_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    monkeypatch.setattr("sys.stdout", stream)

    with pytest.raises(BrokenPipeError):
        write_trace(make_trace(), Path("-"))

    # What it still holds cannot be written.
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_standard_output_takes_a_trace(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    write_trace(make_trace(), Path("-"))

    assert capfdbinary.readouterr().out.decode().splitlines() == [
        "# sadvise trace 1",
        "# name: made",
        HEADER,
        "0,0,60,1",
    ]
