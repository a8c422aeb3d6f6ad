"""Snapshot files: what is written is read back, and what cannot be read says what to do."""

import gzip
import io
import json
import resource
import stat
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from advisor import __version__
from advisor.backends.snapshot_file import SnapshotFileSource, read_snapshot, write_snapshot
from advisor.domain.snapshot import Snapshot
from advisor.errors import SnapshotFileError
from tests.builders import make_config, make_job, make_node, make_partition, make_snapshot
from tests.strategies import snapshots

ONE_JOB = make_snapshot([make_job(7)])


def content_of(snapshot: Snapshot, folder: Path) -> dict[str, Any]:
    """Return what a written file holds."""
    write_snapshot(snapshot, folder / "whole.json")
    content: dict[str, Any] = json.loads((folder / "whole.json").read_bytes())
    return content


def refused(path: Path, content: bytes | dict[str, Any]) -> str:
    """Write a file that holds this, and return why it is not read."""
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(SnapshotFileError) as caught:
        read_snapshot(path)
    return str(caught.value)


@settings(deadline=None)
@given(snapshot=snapshots(), suffix=st.sampled_from([".json", ".json.gz"]))
def test_a_file_read_back_equals_the_snapshot_written(
    snapshot: Snapshot, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"snapshot{suffix}"

    write_snapshot(snapshot, path)

    assert read_snapshot(path) == snapshot


def test_a_file_says_which_sadvise_wrote_it(tmp_path: Path) -> None:
    content = content_of(ONE_JOB, tmp_path)

    header = {key: content[key] for key in content if key != "snapshot"}

    assert header == {"format": "sadvise.snapshot", "version": 1, "tool_version": __version__}


@pytest.mark.parametrize("name", ["snapshot.json", "snapshot.json.gz"])
def test_equal_snapshots_give_equal_bytes(name: str, tmp_path: Path) -> None:
    one = make_snapshot(config=make_config(scheduler_parameters={"defer": "", "bf_window": "1"}), taken_at=5.0)
    other = make_snapshot(config=make_config(scheduler_parameters={"bf_window": "1", "defer": ""}), taken_at=5)

    write_snapshot(one, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    write_snapshot(other, tmp_path / name)
    second = (tmp_path / name).read_bytes()

    assert one == other
    assert first == second


def test_a_gzip_file_is_known_by_what_it_holds_not_by_its_name(tmp_path: Path) -> None:
    write_snapshot(ONE_JOB, tmp_path / "packed.gz")
    (tmp_path / "packed.gz").rename(tmp_path / "packed.json")

    snapshot = read_snapshot(tmp_path / "packed.json")

    assert snapshot == ONE_JOB


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(SnapshotFileError, match="cannot be written: File too large"):
            write_snapshot(ONE_JOB, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("snapshot.json", "old")]


def test_a_link_is_written_through_and_its_file_closed_to_others(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.touch(mode=0o644)
    link.symlink_to(target)

    write_snapshot(ONE_JOB, link)

    assert link.is_symlink()
    assert read_snapshot(target) == ONE_JOB
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (Path("/dev/full"), "/dev/full: cannot be written: No space left on device"),
        (Path("/"), "/: cannot be written: Is a directory"),
        (Path("/nowhere/snapshot.json"), "/nowhere/snapshot.json: cannot be written: No such file or directory"),
    ],
    ids=["full device", "folder", "missing folder"],
)
def test_a_place_that_takes_no_file_is_an_error_of_one_line(path: Path, complaint: str) -> None:
    with pytest.raises(SnapshotFileError) as caught:
        write_snapshot(ONE_JOB, path)

    assert str(caught.value) == complaint


def test_a_dash_is_standard_output_and_standard_input(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_snapshot(ONE_JOB, Path("-"))
    written = capfdbinary.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written)))

    snapshot = read_snapshot(Path("-"))

    assert snapshot == ONE_JOB


def test_a_closed_pipe_is_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    class ClosedPipe(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(ClosedPipe()))

    with pytest.raises(BrokenPipeError):
        write_snapshot(ONE_JOB, Path("-"))


@pytest.mark.parametrize(
    ("snapshot", "complaint"),
    [
        (make_snapshot(taken_at=float("nan")), "snapshot.taken_at: Input should be a finite number"),
        (make_snapshot(source="\ud800"), "a text is not Unicode"),
    ],
    ids=["not a number", "half a character"],
)
def test_a_snapshot_that_could_not_be_read_back_is_not_written(
    snapshot: Snapshot, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(SnapshotFileError, match=complaint):
        write_snapshot(snapshot, tmp_path / "snapshot.json")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty: write one with `sadvise snapshot`"),
        (b" \n\t ", "is empty"),
        (b"\x7fELF\x00\x01", "holds binary data, not a snapshot"),
        # The frame of `{}`.
        (bytes.fromhex("28b52ffd04021100007b7dda4c2c62"), "holds binary data, not a snapshot"),
        (b"JOBID PARTITION NAME", "is not JSON (expected value at line 1 column 1)"),
        (b'{"format": "\xff"}', "is not JSON (invalid unicode"),
        (b'{"format": NULL}', "is not JSON"),
        (b'{"format": "sadvise.snapshot", "version": 1', "is cut short (EOF while parsing an object at line 1"),
        (b"[]", "is JSON but not a snapshot of sadvise"),
        (b'{"meta": {}, "jobs": []}', "is JSON but not a snapshot of sadvise"),
        (b'{"format": "sadvise.journal", "version": 1}', "is JSON but not a snapshot of sadvise"),
        (gzip.compress(b"{}" * 1000)[:20], "damaged gzip file"),
        (b"\x1f\x8bnot gzip at all", "damaged gzip file"),
        (gzip.compress(b"{}")[:-8] + b"12345678", "damaged gzip file (CRC check failed"),
    ],
    ids=[
        "empty",
        "blank",
        "binary",
        "zstd",
        "text",
        "not utf-8",
        "almost json",
        "cut short",
        "another type",
        "slurm's answer",
        "another format",
        "cut gzip",
        "false gzip",
        "wrong checksum",
    ],
)
def test_what_is_no_snapshot_is_an_error_of_one_line(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"

    refusal = refused(path, content)

    assert refusal.startswith(f"{path}: {complaint}")
    assert "\n" not in refusal


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        (Path("/nowhere.json"), "no such file: check the path, or write one with `sadvise snapshot`"),
        (Path("/"), "cannot be read: Is a directory"),
    ],
    ids=["missing", "folder"],
)
def test_a_path_that_leads_to_no_file_is_an_error(path: Path, complaint: str) -> None:
    with pytest.raises(SnapshotFileError) as caught:
        read_snapshot(path)

    assert str(caught.value) == f"{path}: {complaint}"


@pytest.mark.needs("ordinary user")
def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.touch(mode=0o000)

    with pytest.raises(SnapshotFileError, match="cannot be read: Permission denied"):
        read_snapshot(path)


def test_a_newer_format_asks_for_a_newer_sadvise(tmp_path: Path) -> None:
    content = content_of(ONE_JOB, tmp_path) | {"version": 2, "tool_version": "9.1", "extra": True}
    path = tmp_path / "snapshot.json"

    assert refused(path, content) == (
        f"{path}: written by sadvise 9.1 with format version 2; this sadvise reads 1: upgrade sadvise"
    )


def test_a_field_that_another_sadvise_wrote_names_its_writer(tmp_path: Path) -> None:
    content = content_of(ONE_JOB, tmp_path) | {"tool_version": "9.1", "extra": True}
    path = tmp_path / "snapshot.json"

    assert refused(path, content) == (
        f"{path}: extra: no such field (written by sadvise 9.1): mend it, or write one with `sadvise snapshot`"
    )


def spoil(*steps: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    """Return what sets one field of a file's content."""

    def apply(content: dict[str, Any]) -> None:
        place: Any = content
        for step in steps[:-1]:
            place = place[step]
        place[steps[-1]] = value

    return apply


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (spoil("version", value=0), "version: Input should be 1"),
        (spoil("comment", value=""), "comment: no such field"),
        (spoil("version", value=[]), "is JSON but not a snapshot"),
        (spoil("snapshot", "taken_at", value=float("nan")), "snapshot.taken_at: Input should be a finite number"),
        (spoil("snapshot", "taken_at", value=float("inf")), "snapshot.taken_at: Input should be a finite number"),
        (spoil("snapshot", "taken_at", value="5"), "snapshot.taken_at: Input should be a valid number"),
        (spoil("snapshot", "jobs", 0, "nice", value=1.0), "snapshot.jobs[0].nice: Input should be a valid integer"),
        (spoil("snapshot", "jobs", 0, "nice", value=True), "snapshot.jobs[0].nice: Input should be a valid integer"),
        (spoil("snapshot", "jobs", 0, "held", value=0), "snapshot.jobs[0].held: Input should be a valid boolean"),
        (spoil("snapshot", "jobs", 0, "state", value="PD"), "snapshot.jobs[0].state: Input should be 'pending', "),
        (spoil("snapshot", "jobs", 0, "job_id", value=0), "snapshot.jobs[0]: job id 0 is not a positive number"),
        (spoil("snapshot", "jobs", 0, "walltime", value=1), "snapshot.jobs[0].walltime: no such field"),
        (spoil("snapshot", "jobs", 0, "\x1b[2J", value=1), r"snapshot.jobs[0].'\x1b[2J': no such field"),
        (spoil("snapshot", "topology", value=None), "snapshot.topology: Input should be an object"),
    ],
    ids=[
        "no such version",
        "unknown head",
        "version of a wrong type",
        "not a number",
        "infinite",
        "text for number",
        "float for integer",
        "truth for integer",
        "integer for truth",
        "unknown state",
        "impossible id",
        "unknown field",
        "terminal codes",
        "missing part",
    ],
)
def test_a_wrong_field_is_named_by_its_path(
    change: Callable[[dict[str, Any]], None], complaint: str, tmp_path: Path
) -> None:
    content = content_of(ONE_JOB, tmp_path)
    change(content)
    path = tmp_path / "snapshot.json"

    refusal = refused(path, content)

    assert refusal.startswith(f"{path}: {complaint}")
    assert "\n" not in refusal


@pytest.mark.parametrize(
    ("snapshot", "name"),
    [
        (make_snapshot([make_job(7), make_job(7)]), "job 7"),
        (make_snapshot(nodes=[make_node("n1"), make_node("n1")]), "node n1"),
        (make_snapshot(partitions=[make_partition("gpu"), make_partition("gpu")]), "partition gpu"),
    ],
    ids=["job", "node", "partition"],
)
def test_what_stands_twice_is_an_error(snapshot: Snapshot, name: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    write_snapshot(snapshot, path)

    with pytest.raises(SnapshotFileError, match=f"{name} stands twice"):
        read_snapshot(path)


@pytest.mark.parametrize("name", ["snapshot.json", "snapshot.json.gz"])
def test_a_file_over_the_size_limit_is_not_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write_snapshot(make_snapshot(unread=("x" * 10_000,)), path)

    with pytest.raises(SnapshotFileError, match="is larger than 9000 bytes, so it is no snapshot"):
        read_snapshot(path, limit_bytes=9000)


@pytest.mark.parametrize("table", ["jobs", "nodes", "partitions", "unread"])
def test_check_ends_at_the_first_bad_item_of_a_table(table: str, tmp_path: Path) -> None:
    faults = []
    for count in (1, 1000):
        content = content_of(ONE_JOB, tmp_path)
        content["snapshot"][table] = [{}] * count
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps(content))
        with pytest.raises(SnapshotFileError, match=rf"snapshot\.{table}\[0\]") as caught:
            read_snapshot(path)
        assert isinstance(caught.value.__cause__, ValidationError)
        faults.append(caught.value.__cause__.error_count())

    assert faults[0] == faults[1]


def test_gzip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    # A file can be several that were packed by themselves.
    path.write_bytes(gzip.compress(b" " * 2**20) * 256)

    tracemalloc.start()
    with pytest.raises(SnapshotFileError, match="is larger than 1048576 bytes, so it is no snapshot"):
        read_snapshot(path, limit_bytes=2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert path.stat().st_size < 2**20 and peak < 16 * 2**20


@pytest.mark.parametrize("start", [b"[", b'{"format": "sadvise.snapshot", "snapshot": ', b'{"a":'], ids=["a", "b", "c"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_json_that_is_nested_to_hurt_is_refused_in_one_line(
    start: bytes, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    refusal = refused(tmp_path / "deep.json", pack(start * 1_000_000))

    assert "deep.json: is nested too deeply for a snapshot: write one with" in refusal


def test_the_source_reads_its_file_under_its_name(tmp_path: Path) -> None:
    write_snapshot(ONE_JOB, tmp_path / "snapshot.json")
    source = SnapshotFileSource(tmp_path / "snapshot.json", name="demo")

    snapshot = source.snapshot()

    assert snapshot == ONE_JOB
    assert source.name == "demo"
