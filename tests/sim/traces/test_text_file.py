"""Files that unpack to more than memory holds: refused while they are read."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from advisor.errors import TraceError
from advisor.sim.traces import text_file
from advisor.sim.traces.text_file import opened_text
from advisor.sim.traces.trace_file import read_trace

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
