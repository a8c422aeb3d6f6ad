"""Trace files: what they mean, what is wrong is named by line and column, and what is written reads back the same."""

import gzip
import io
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import advisor
from advisor.errors import TraceError
from advisor.sim.profiles import load_profiles
from advisor.sim.traces import text_file
from advisor.sim.traces.importing.formats import FORMATS
from advisor.sim.traces.importing.sacct import COMMAND, FILLED_IN
from advisor.sim.traces.sampling import LIMIT_RATIOS, MODEL_WEIGHTS
from advisor.sim.traces.text_file import opened_text
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from advisor.sim.traces.trace_columns import COLUMNS, NAMES_FIELD
from advisor.sim.traces.trace_file import read_trace, write_trace
from tests.strategies import HOSTILE
from tools.demo_trace import demo_trace

HEADER = "job_id,submit_time,run_time_s,gpus"

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Return a function that writes lines to a file."""

    def write(*lines: str, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


def names_of(trace: Trace, column: str) -> list[str | None]:
    """Return the name in a column of every job; None for the code -1."""
    table = getattr(trace, NAMES_FIELD[column])
    return [table[code] if code >= 0 else None for code in trace.jobs[column].tolist()]


def test_every_column_of_a_trace_is_described() -> None:
    described = tuple(COLUMNS)

    assert described == TRACE_DTYPE.names


def test_four_columns_are_enough(written: Write) -> None:
    trace = read_trace(written(HEADER, "7,0,60.5,8", name="small.csv"))

    job = trace.jobs[0]
    assert trace.name == "small"
    assert (job["job_id"], job["submit_time"], job["run_time_s"], job["gpus"]) == (7, 0.0, 60.5, 8)
    assert (job["gpus_min"], job["gpus_max"], job["nodes_min"], job["nodes_max"]) == (8, 8, 0, 0)
    assert (job["cpus_per_gpu"], job["memory_mib_per_gpu"], job["nice"], job["switches"]) == (0, 0, 0, 0)
    assert np.isinf(job["time_limit_s"])
    assert np.isnan(job["recorded_start_time"])
    assert (job["time_min_s"], job["switches_wait_s"], job["checkpoint_interval_s"]) == (0.0, 0.0, 0.0)
    assert (job["gpu_type"], job["model"]) == (-1, -1)
    assert (names_of(trace, "user"), names_of(trace, "account"), names_of(trace, "qos")) == ([""], [""], ["normal"])
    assert (names_of(trace, "partition"), job["array_id"], names_of(trace, "dependency")) == ([""], 0, [""])
    assert (trace.sampled, trace.seed, trace.note) == ((), None, "")


def test_an_empty_cell_is_the_default(written: Write) -> None:
    full = written(
        f"{HEADER},gpus_min,gpus_max,time_limit_s,user,model,qos,nice",
        "1,0,60,4,,,,,,,",
        "2,0,60,4,2,8,3600,ann,bert,high,-5",
    )

    trace = read_trace(full)

    assert trace.jobs["gpus_min"].tolist() == [4, 2]
    assert trace.jobs["gpus_max"].tolist() == [4, 8]
    assert trace.jobs["time_limit_s"].tolist() == [float("inf"), 3600.0]
    assert trace.jobs["nice"].tolist() == [0, -5]
    assert names_of(trace, "user") == ["", "ann"]
    assert names_of(trace, "model") == [None, "bert"]
    assert names_of(trace, "qos") == ["normal", "high"]


def test_rows_are_sorted_by_submission_and_id_and_names_by_name(written: Write) -> None:
    trace = read_trace(written(f"{HEADER},user", "3,5,1,1,zoe", "9,0,1,1,bob", "2,5,1,1,ann"))

    assert trace.jobs["job_id"].tolist() == [9, 2, 3]
    assert trace.users == ("ann", "bob", "zoe")
    assert names_of(trace, "user") == ["bob", "ann", "zoe"]


def test_columns_may_come_in_any_order_with_spaces_blank_rows_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"\xef\xbb\xbf# by hand\r\n\r\ngpus, run_time_s ,submit_time,job_id\r\n 8.0 ,60,0,1\r\n\r\n4,5,1,2\r\n"
    )

    trace = read_trace(path)

    assert trace.jobs["gpus"].tolist() == [8, 4]
    assert trace.jobs["job_id"].tolist() == [1, 2]


def test_comments_say_where_a_trace_comes_from(written: Write) -> None:
    path = written(
        "# sadvise trace 1", "# name: week 12", "# source: sacct: of May", "# sampled: model gpus_min seed 7", HEADER,
        "1,0,1,1",
    )  # fmt: skip

    trace = read_trace(path)

    assert trace.name == "week 12"
    assert trace.note == "sacct: of May"
    assert trace.sampled == ("model", "gpus_min")
    assert trace.seed == 7


WRONG_FILES = {
    "missing column": (["job_id,submit_time,gpus", "1,0,1"], "column run_time_s is missing: a trace needs job_id"),
    "unknown column": ([f"{HEADER},usr", "1,0,1,1,x"], "column 'usr' is not known: did you mean user?"),
    "hopeless column": ([f"{HEADER},zzzzzz", "1,0,1,1,x"], "column 'zzzzzz' is not known: known are job_id, submit"),
    "column twice": ([f"{HEADER},gpus", "1,0,1,1,1"], "column gpus stands twice in the header"),
    "empty": ([], "is empty: write a header with job_id, submit_time, run_time_s, gpus"),
    "comments only": (["# sadvise trace 1"], "is empty"),
    "no rows": ([HEADER], "holds no job"),
    "newer version": (
        ["# sadvise trace 2", HEADER, "1,0,1,1"],
        "is a trace of version 2; this sadvise reads 1: upgrade",
    ),
    "one id twice": ([HEADER, "1,50,60,8", "1,0,60,8"], "line 3: column job_id: 1 stands in an earlier line"),
    "open quote": ([f"{HEADER},user", '1,0,1,1,"ann', "2,0,1,1,bob"], "not CSV"),
}


@pytest.mark.parametrize(("lines", "words"), WRONG_FILES.values(), ids=list(WRONG_FILES))
def test_a_wrong_file_is_refused_with_its_name(written: Write, lines: list[str], words: str) -> None:
    path = written(*lines)

    with pytest.raises(TraceError, match=re.escape(f"{path}: ") + ".*" + re.escape(words)):
        read_trace(path)


WRONG_CELLS = {
    "no number": ("run_time_s", "1,0,soon,1", "'soon' is not a number of seconds above 0"),
    "nan": ("run_time_s", "1,0,nan,1", "'nan' is not"),
    "inf": ("run_time_s", "1,0,inf,1", "'inf' is not"),
    "zero run time": ("run_time_s", "1,0,0,1", "'0' is not a number of seconds above 0"),
    "negative run time": ("run_time_s", "1,0,-3,1", "'-3' is not"),
    "underscore": ("run_time_s", "1,0,1_000,1", "'1_000' is not"),
    "other digits": ("run_time_s", "1,0,١٢,1", "'١٢' is not"),
    "control character": ("run_time_s", "1,0,\x1b[2J,1", r"'\x1b[2J' is not"),
    "empty run time": ("run_time_s", "1,0,,1", "is empty: it wants a number of seconds above 0"),
    "negative submission": ("submit_time", "1,-1,1,1", "'-1' is not a number of seconds of at least 0"),
    "fewer than no GPU": ("gpus", "1,0,1,-1", "'-1' is not a whole number from 0 to"),
    "half a GPU": ("gpus", "1,0,1,0.5", "'0.5' is not a whole number"),
    "too many GPUs": ("gpus", "1,0,1,5000000000", "'5000000000' is not a whole number"),
    "id too large": ("job_id", "99999999999999999999,0,1,1", "is not a whole number"),
    "id of thousands of digits": ("job_id", f"{'9' * 5000},0,1,1", "is not a whole number"),
    "id no number": ("job_id", "1_2,0,1,1", "'1_2' is not a whole number"),
}


@pytest.mark.parametrize(("column", "row", "words"), WRONG_CELLS.values(), ids=list(WRONG_CELLS))
def test_a_wrong_cell_is_named_by_line_and_column(written: Write, column: str, row: str, words: str) -> None:
    path = written("# sadvise trace 1", HEADER, "8,0,1,1", row)

    with pytest.raises(TraceError, match=re.escape(f"{path}: line 4: column {column}") + ".*" + re.escape(words)):
        read_trace(path)


WRONG_ROWS = {
    "gpus_min above gpus": ("gpus_min", "4", "column gpus_min: 4 is above gpus"),
    "gpus_min of 0": ("gpus_min", "0", "column gpus_min: 0 is below 1, but the job asks for GPUs"),
    "gpus_max below gpus": ("gpus_max", "1", "column gpus_max: 1 is below gpus"),
    "more nodes than GPUs": ("nodes_min", "3", "column nodes_min: 3 is above gpus"),
    "nodes_max below nodes_min": ("nodes_min,nodes_max", "2,1", "column nodes_max: 1 is below nodes_min"),
    "time_min above the limit": ("time_limit_s,time_min_s", "60,61", "column time_min_s: 61 is above time_limit_s"),
    "limit of 0": ("time_limit_s", "0", "column time_limit_s: '0' is not a number of seconds above 0, or inf"),
    "limit nan": ("time_limit_s", "nan", "column time_limit_s: 'nan' is not"),
    "start before submission": ("recorded_start_time", "5", "column recorded_start_time: 5 is before submit_time"),
    "negative switches": ("switches", "-1", "column switches: '-1' is not"),
    "endless checkpoints": ("checkpoint_interval_s", "inf", "column checkpoint_interval_s: 'inf' is not"),
    "too few cells": ("user,account", "ann", "5 cells where the header has 6"),
    "too many cells": ("user", "ann,b", "6 cells where the header has 5"),
}


@pytest.mark.parametrize(("columns", "cells", "words"), WRONG_ROWS.values(), ids=list(WRONG_ROWS))
def test_a_row_that_contradicts_itself_is_named(written: Write, columns: str, cells: str, words: str) -> None:
    path = written(f"{HEADER},{columns}", f"1,10,60,2,{cells}")

    with pytest.raises(TraceError, match=re.escape(f"line 2: {words}")):
        read_trace(path)


def test_bad_rows_are_counted_and_the_first_ten_lines_shown(written: Write) -> None:
    path = written(HEADER, "1,0,1,1", *(f"{job},0,-1,1" for job in range(2, 14)), "1,0,1,1")

    with pytest.raises(TraceError) as caught:
        read_trace(path)

    said = str(caught.value)
    assert "13 bad rows in all: lines 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ..." in said
    assert said.endswith("or leave bad rows out with --skip-bad")
    assert "\n" not in said


def test_bad_rows_can_be_skipped_and_the_note_says_so(written: Write) -> None:
    path = written("# source: here", HEADER, "1,0,x,1", "2,0,60,1", "3,0,60,-1", "2,0,1,1", "4,0,1")

    trace = read_trace(path, skip_bad=True)

    assert trace.jobs["job_id"].tolist() == [2]
    assert trace.note == "here; 4 bad rows skipped (lines 3, 5, 6, 7)"


def test_a_file_of_nothing_but_bad_rows_holds_no_job(written: Write) -> None:
    path = written(HEADER, "1,0,x,1")

    with pytest.raises(TraceError, match="holds no job"):
        read_trace(path, skip_bad=True)


def test_lines_are_right_beyond_the_first_portion_and_after_names_of_two_lines(written: Write) -> None:
    rows = [f"{job},{job},60,1,u" for job in range(30_000)]
    rows[1] = '1,1,60,1,"two\nlines"'
    path = written(f"{HEADER},user", *rows, "30000,0,60,none,u")

    with pytest.raises(TraceError, match="line 30003: column gpus: 'none'"):
        read_trace(path)


UNREADABLE = {
    "binary": (b"\x89PNG\r\n\x1a\n\x00\x00", "holds binary data"),
    "zeros": (bytes(1 << 17), "holds binary data"),
    "cut gzip": (gzip.compress(f"{HEADER}\n1,0,1,1\n".encode())[:-9], "damaged gzip file"),
    "no rows that are CSV": (f'{HEADER}\n1,0,1,"{"9" * 200_000}"\n'.encode(), "line 2: not CSV (field larger than"),
    "no gzip after all": (b"\x1f\x8bhello", "damaged gzip file"),
}


@pytest.mark.parametrize(("content", "words"), UNREADABLE.values(), ids=list(UNREADABLE))
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)

    with pytest.raises(TraceError, match=re.escape(f"{path}: {words}")):
        read_trace(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)


def test_standard_input_gives_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.BufferedReader(io.BytesIO(gzip.compress(f"{HEADER}\n5,0,60,1\n".encode())))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(piped))

    trace = read_trace(Path("-"))

    assert trace.jobs["job_id"].tolist() == [5]


COMPLAINT = "cannot be read: it unpacks to more than a trace has, in one line or in all"


def bomb(path: Path, piece: bytes) -> Path:
    """Write 256 MiB of one piece again and again, which need less than one MiB packed."""
    # A file can be several that were packed by themselves.
    path.write_bytes(gzip.compress(piece * (2**20 // len(piece))) * 256)
    assert path.stat().st_size < 2**20
    return path


def test_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.gz", b" ")

    tracemalloc.start()
    with pytest.raises(TraceError, match=COMPLAINT), opened_text(path) as stream:
        list(stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 32 * 2**20


def test_trace_whose_row_has_no_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(b"job_id,submit_time,run_time_s,gpus\n1,0,1," + bytes(b"1" * 2**23))

    with pytest.raises(TraceError, match=COMPLAINT):
        read_trace(path)


def test_lines_without_an_end_are_bounded_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "MOST_TEXT", 2**20)
    path = bomb(tmp_path / "bomb.gz", b"1,2\n")
    lines: list[str] = []

    with pytest.raises(TraceError, match=COMPLAINT), opened_text(path) as stream:
        lines.extend(stream)

    assert len(lines) == 2**18


def test_text_that_is_read_at_once_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_file, "MOST_AT_ONCE", 2**20)
    path = bomb(tmp_path / "bomb.gz", b"[")

    tracemalloc.start()
    with pytest.raises(TraceError, match=COMPLAINT), opened_text(path) as stream:
        stream.read()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 32 * 2**20


SHIPPED = Path(advisor.__file__).parent / "demo" / "trace.csv"
PAGE = Path(__file__).parents[3] / "docs" / "traces.md"


@pytest.fixture(scope="module")
def shipped() -> Trace:
    """The shipped trace."""
    return read_trace(SHIPPED)


def test_the_shipped_trace_is_what_the_tool_makes(tmp_path: Path) -> None:
    write_trace(demo_trace(), tmp_path / "trace.csv")

    assert (tmp_path / "trace.csv").read_bytes() == SHIPPED.read_bytes()


def test_the_shipped_trace_fills_16_nodes_of_8_gpus_for_less_than_two_days_but_more_than_submissions_last(
    shipped: Trace,
) -> None:
    jobs = shipped.jobs

    work_s = float(jobs["gpus"] @ jobs["run_time_s"]) / (16 * 8)
    assert 200 <= len(shipped) <= 300
    assert jobs["gpus"].max() <= 16 * 8
    assert jobs["submit_time"].max() < work_s < 2 * 86400


def test_the_shipped_trace_has_something_for_every_lever(shipped: Trace) -> None:
    jobs = shipped.jobs

    assert np.all(jobs["model"] >= 0)
    assert set(shipped.models) <= set(load_profiles().names)
    assert len(shipped.users) > 10
    assert np.any((jobs["gpus"] > 8) & (jobs["nodes_max"] == 0))
    assert np.any(jobs["nodes_max"] > 0)
    assert np.any(jobs["switches"] > 0)
    assert np.any(jobs["gpus_min"] < jobs["gpus_max"])
    assert np.any(jobs["checkpoint_interval_s"] > 0)
    assert np.all(jobs["time_limit_s"] >= jobs["run_time_s"])


def test_the_page_has_every_column_format_model_and_ratio() -> None:
    page = PAGE.read_text(encoding="utf-8")

    words = [
        *(f"| `{name}` |" for name in COLUMNS),
        *(f"`{name}`" for name in FORMATS),
        *MODEL_WEIGHTS,
        *(f"{ratio:.2f}" for row in LIMIT_RATIOS for ratio in row),
        COMMAND.replace("START", "2026-01-01"),
        ",".join(FILLED_IN),
    ]
    assert [word for word in words if word not in page] == []


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
