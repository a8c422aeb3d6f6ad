"""Trace files: what they mean, and what is wrong is named by file, line and column."""

import gzip
import io
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import advisor
from advisor.errors import TraceError
from advisor.sim.profiles import load_profiles
from advisor.sim.traces import text_file
from advisor.sim.traces.importing.formats import FORMATS
from advisor.sim.traces.importing.sacct import COMMAND, FILLED_IN
from advisor.sim.traces.sampling import LIMIT_RATIOS, MODEL_WEIGHTS
from advisor.sim.traces.text_file import opened_text
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from advisor.sim.traces.trace_columns import COLUMNS
from advisor.sim.traces.trace_file import read_trace, write_trace
from tests.sim.building import names_of
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
