"""The pause file: there or not, whatever it says."""

import os
from pathlib import Path

import pytest

from advisor.errors import ConfigError
from advisor.site.pause_file import NAME, Pause, pause, paused, resume


@pytest.mark.parametrize(
    ("freeze", "text"),
    [
        (False, "paused by ada: maintenance"),
        (True, "paused, and what is due stays, by ada: maintenance"),
    ],
)
def test_pause_says_by_whom_why_and_whether_it_freezes(freeze: bool, text: str, tmp_path: Path) -> None:
    assert paused(tmp_path) is None

    pause(tmp_path, by="ada", reason="maintenance", freeze=freeze)
    found = paused(tmp_path)

    assert found is not None and found.since_time > 0
    assert (found.freezes, found.text) == (freeze, text)


def test_resume_tells_whether_there_was_a_pause(tmp_path: Path) -> None:
    pause(tmp_path, by="", reason="")

    assert [resume(tmp_path), resume(tmp_path)] == [True, False]
    assert paused(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"by": "ada"}',
        b'{"freeze": "yes"}',
        b'{"freeze": 1}',
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b'{"by": 7, "reason": null}',
        b"[" * 4096,
        b'{"by":' * 700,
        b'{"by": ' + b"[" * 190 + b"]" * 190 + b"}",
        b'{"by": ' + b"9" * 4000 + b"}",
        bytes(2**24),
    ],
)
def test_any_file_is_a_pause_and_only_one_that_says_so_freezes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)

    found = paused(tmp_path)

    assert found is not None and found.text.startswith("paused") and not found.freezes


def test_pipe_is_a_pause_without_a_writer_and_with_a_silent_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)

    without = paused(tmp_path)
    writer = os.open(tmp_path / NAME, os.O_RDWR)
    silent = paused(tmp_path)
    os.close(writer)

    assert without is not None and silent is not None


def test_no_more_of_a_file_is_read_than_a_pause_holds(tmp_path: Path) -> None:
    with (tmp_path / NAME).open("wb") as stream:
        stream.truncate(2**40)

    assert paused(tmp_path) is not None


def test_what_cannot_be_looked_at_is_a_pause(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    found = paused(tmp_path / "file")

    assert found is not None and "cannot be read" in found.reason


def test_hostile_words_stay_on_one_line(tmp_path: Path) -> None:
    pause(tmp_path, by="a\nb\x1b[31m", reason="x" * 999)

    found = paused(tmp_path)

    assert found is not None and found.by == "a b [31m" and len(found.reason) == 200
    assert found.text.isprintable()


def test_pause_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (tmp_path / NAME).symlink_to(tmp_path / "target")

    with pytest.raises(ConfigError, match="nothing is paused; run as root or as the daemon's user"):
        pause(tmp_path, by="ada", reason="")
    assert (tmp_path / "target").read_text() == "kept"


def test_pause_that_cannot_be_removed_says_so(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()

    with pytest.raises(ConfigError, match="still paused"):
        resume(tmp_path)
    assert isinstance(paused(tmp_path), Pause)
