"""A file that is replaced is the old one or the new one, whole, for those who may read it."""

import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.files import DEEPEST, EVERYONE, OWNER_ONLY, check_json, parse_toml, read_bounded, replace_file, replacing


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def replaced_in_part(path: Path, error: BaseException) -> None:
    with replacing(path) as stream:
        stream.write(b"half")
        stream.flush()
        raise error


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_gets_its_content_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)

    replace_file(path, b"old")
    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert names_in(tmp_path) == [path.name]


@pytest.mark.parametrize(("mode", "seen"), [(OWNER_ONLY, 0o600), (EVERYONE, 0o644)])
def test_the_mode_is_the_one_asked_for_whatever_the_umask_and_the_old_file(
    mode: int, seen: int, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o604)

    replace_file(path, b"", mode=mode)

    assert stat.S_IMODE(path.stat().st_mode) == seen


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_no_other(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with pytest.raises(error):
        replaced_in_part(path, error())

    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["file"]


def test_the_name_is_given_only_after_the_block(tmp_path: Path) -> None:
    path = tmp_path / "file"

    with replacing(path) as stream:
        stream.write(b"half")
        stream.flush()
        before = path.exists()

    assert not before
    assert path.read_bytes() == b"half"


def test_the_content_is_on_the_disk_before_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "file", []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        synced.append((kind, path.exists(), os.fstat(descriptor).st_size if kind == "file" else None))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)

    replace_file(path, b"four")

    assert synced == [("file", False, 4), ("folder", True, None)]


def test_a_link_is_replaced_and_its_target_kept(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")

    replace_file(tmp_path / "link", b"new")

    assert (tmp_path / "target").read_bytes() == b"kept"
    assert not (tmp_path / "link").is_symlink()


def test_a_folder_that_is_missing_or_stands_in_the_way_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "file", b"")
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "folder", b"")

    assert names_in(tmp_path) == ["folder"]


def test_a_folder_that_cannot_be_synced_does_not_undo_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def refusing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refusing)

    replace_file(tmp_path / "file", b"new")

    assert (tmp_path / "file").read_bytes() == b"new"


def test_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(OSError, match="it is a pipe and no file"):
        read_bounded(pipe, 100)


def test_pipe_of_a_shell_is_read_to_its_end() -> None:
    reading, sending = os.pipe()
    try:
        os.write(sending, b"content")
        os.close(sending)
        assert read_bounded(Path(f"/dev/fd/{reading}"), 100) == b"content"
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" * 100_000, id="never closed"),
        pytest.param(b'{"meta":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="nested"),
        pytest.param(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, id="objects"),
        pytest.param(b"[" + b",".join([b"[]"] * 100_000) + b"]", id="brackets and nothing else"),
        pytest.param(b'["[\\"",' + b"[" * 100 + b"]" * 100 + b"]", id="behind a text"),
    ],
)
def test_json_of_brackets_is_refused_before_it_is_parsed(content: bytes) -> None:
    with pytest.raises(ValueError, match="nested more than 32 deep, or more brackets than content"):
        check_json(content)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[" * 32 + b"]" * 32, id="as deep as can be"),
        pytest.param(b'{"jobs": [{"gpus": [', id="cut short"),
        pytest.param(b'{"jobs": [' + b'{"name": "a job", "gpus": [{"count": 8}]},' * 10_000 + b"1]}", id="a large one"),
        pytest.param(b'["' + b"[" * 100_000 + b'", "\\\\", "\\"[[", 1]', id="a hostile name"),
    ],
)
def test_json_of_content_can_be_parsed(content: bytes) -> None:
    check_json(content)


# In 200 KB, the first three take the stack, the others up to minutes.
BOMBS = {
    "arrays": "a = " + "[" * 100_000,
    "tables in a line": "a = " + "{a=" * 50_000,
    "both": "a = " + "[{a=" * 50_000,
    "key": "a" + ".a" * 60_000 + " = 1",
    "key in a table": "[planning]\ndepth" + ".a" * 60_000 + " = 1",
    "header": "[a" + ".a" * 60_000 + "]",
    "many lines": "a = " + "[\n" * 50_000,
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_deep_nesting_is_refused_unparsed(text: str) -> None:
    with pytest.raises(ValueError, match=r"^nested more than 32 deep: write its brackets and dotted keys flat$"):
        parse_toml(text)


def test_nesting_up_to_the_bound_is_parsed() -> None:
    nested = f"a = {'[' * DEEPEST}{']' * DEEPEST}\nb{'.b' * (DEEPEST - 1)} = 1"

    assert parse_toml(nested) == tomllib.loads(nested)


@given(st.text(alphabet="[]{}=.,#\"'a1 \n\\", max_size=400))
def test_any_text_is_parsed_as_tomllib_does_or_refused(text: str) -> None:
    try:
        tables = parse_toml(text)
    except ValueError:
        return

    assert tables == tomllib.loads(text)
