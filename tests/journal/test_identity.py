"""The files of a journal are recognised by what they are, not by their path."""

import shutil
from pathlib import Path

import pytest

from advisor.journal.file import files_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"pages")
    path.with_name("journal.sqlite-wal").write_bytes(b"log")
    return path


def test_files_that_grew_are_the_same(path: Path) -> None:
    before = files_of(path)
    path.write_bytes(b"more pages")

    assert before.is_same(files_of(path))
    assert before.database != files_of(path).database


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal"])
def test_copy_in_place_of_a_file_is_another(path: Path, name: str) -> None:
    before = files_of(path)
    file = path.with_name(name)

    shutil.copy2(file, path.with_name("copy"))
    path.with_name("copy").replace(file)

    assert not before.is_same(files_of(path))


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal"])
def test_file_that_is_gone_is_not_the_same_and_a_new_one_is_no_other(path: Path, name: str) -> None:
    whole = files_of(path)
    path.with_name(name).unlink()

    assert not whole.is_same(files_of(path))
    assert files_of(path).is_same(whole)
