"""A disk that fills, a file that must not be written or is damaged, and who may read it."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from advisor.domain.lease import intended
from advisor.errors import JournalError
from advisor.journal import SqliteJournal, locked, opened
from advisor.journal.file import files_of
from tests.journal.contract import NICE, NOW, wait
from tests.journal.test_store import change

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A path that every user reaches; the folders of pytest are for their owner alone."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "journal.sqlite"


def run(script: str, *arguments: str) -> str:
    """Run a script in a process of its own, and return what it printed."""
    argv = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    answer = subprocess.run(argv, check=False, cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_journal_works_again_once_there_is_room(path: Path) -> None:
    said = run(
        """
        import resource, sys
        from pathlib import Path
        from advisor.domain.lease import intended
        from advisor.errors import JournalError
        from advisor.journal import SqliteJournal
        from tests.journal.contract import NICE, NOW, wait

        path = Path(sys.argv[1])
        journal = SqliteJournal(path)
        journal.keep(intended(NICE, NOW))
        room = path.with_name("journal.sqlite-wal").stat().st_size
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        faults = set()
        for _ in range(3):
            try:
                journal.add_waits([wait(NOW)], NOW)
            except JournalError as err:
                faults.add(str(err))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(len(faults), *faults)
        print(journal.waits(0.0) == (), journal.leases() == (intended(NICE, NOW),), journal.verify().broken)
        journal.add_waits([wait(NOW)], NOW)
        print(len(journal.waits(0.0)))
        """,
        str(path),
    ).splitlines()

    assert said[0].startswith("1 ") and "cannot be read or written: check its disk, which may be full" in said[0]
    assert said[1:] == ["True True None", "1"]


def test_commit_that_fails_leaves_no_half_written_change(path: Path) -> None:
    with SqliteJournal(path) as journal:
        _fail_at_the_commit(journal)


def _fail_at_the_commit(journal: SqliteJournal) -> None:
    journal._database.execute("PRAGMA foreign_keys = ON")
    # A check that SQLite makes at the commit, so that it is the commit that fails.
    journal._database.execute("CREATE TABLE parents (id INTEGER PRIMARY KEY)")
    journal._database.execute("CREATE TABLE children (id INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)")
    journal._database.execute("CREATE TRIGGER orphan AFTER INSERT ON waits BEGIN INSERT INTO children VALUES (1); END")

    with pytest.raises(JournalError, match="FOREIGN KEY"):
        journal.add_waits([wait(NOW)], NOW)

    assert not journal._database.in_transaction
    assert journal.waits(0.0) == ()
    journal.keep(intended(NICE, NOW))
    assert journal.leases() == (intended(NICE, NOW),)


@pytest.mark.needs("root")
def test_file_of_another_user_is_refused_before_anything_is_written(open_path: Path) -> None:
    with opened(open_path) as journal:
        journal.keep(intended(NICE, NOW))
    open_path.chmod(0o644)

    said = run(_AS_NOBODY + "look(lambda: SqliteJournal(path).keep(intended(NICE, NOW)))", str(open_path))

    assert "cannot be written: run as the user who owns it" in said or "cannot be opened" in said


_AS_NOBODY = """\
import os, sys
from pathlib import Path
from advisor.domain.lease import intended
from advisor.errors import JournalError
from advisor.journal import SqliteJournal
from tests.journal.contract import NICE, NOW
path = Path(sys.argv[1])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
def look(work):
    try:
        print(work())
    except JournalError as err:
        print(err)
"""
_LOOK = "look(lambda: len(SqliteJournal.read_only(path).leases()))"


@pytest.mark.needs("root")
def test_who_may_only_read_reads_while_nobody_writes(open_path: Path) -> None:
    with opened(open_path) as journal:
        journal.keep(intended(NICE, NOW))
    open_path.chmod(0o644)

    assert run(_AS_NOBODY + _LOOK, str(open_path)) == "1\n"


@pytest.mark.needs("root")
def test_who_may_only_read_reads_beside_the_one_who_writes(open_path: Path) -> None:
    with opened(open_path):
        pass
    open_path.chmod(0o644)

    with opened(open_path) as journal:
        journal.keep(intended(NICE, NOW))

        assert run(_AS_NOBODY + _LOOK, str(open_path)) == "1\n"


@pytest.mark.needs("root")
def test_who_may_not_read_is_told(open_path: Path) -> None:
    with opened(open_path):
        pass

    assert "is closed to this user" in run(_AS_NOBODY + _LOOK, str(open_path))


def test_only_the_owner_may_read_what_the_journal_makes(path: Path) -> None:
    with opened(path) as journal:
        journal.keep(intended(NICE, NOW))

        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}

    assert modes == {
        "journal.sqlite": 0o600,
        "journal.sqlite-wal": 0o600,
        "journal.sqlite-shm": 0o600,
        "journal.sqlite.lock": 0o600,
        "journal.sqlite.reserve": 0o600,
    }


def test_who_only_looks_cannot_write(path: Path) -> None:
    with opened(path):
        pass

    with SqliteJournal.read_only(path) as journal:
        with pytest.raises(JournalError, match="cannot be written"):
            journal.keep(intended(NICE, NOW))

        assert journal.cluster() is None and journal.leases() == ()


def test_who_only_looks_is_told_what_is_no_journal(path: Path) -> None:
    path.write_bytes(b"a diary, not a journal\n" * 400)

    with pytest.raises(JournalError, match="is not a journal of sadvise"):
        SqliteJournal.read_only(path)


def test_who_only_looks_is_told_of_tables_that_are_not_ours(path: Path) -> None:
    change(path, "CREATE TABLE songs (title TEXT)")

    with pytest.raises(JournalError, match="is not a journal of sadvise"):
        SqliteJournal.read_only(path)


def test_a_journal_that_another_program_is_just_creating_holds_nothing_yet(path: Path) -> None:
    path.touch()
    with SqliteJournal.read_only(path) as journal:
        assert journal.leases() == ()

    change(path, "PRAGMA journal_mode = WAL")
    with SqliteJournal.read_only(path) as journal:
        assert journal.leases() == ()


def test_who_only_looks_is_told_that_there_is_none(path: Path) -> None:
    with pytest.raises(JournalError, match="no such journal: name another file with --journal"):
        SqliteJournal.read_only(path)


def test_damage_deep_in_the_file_is_found_by_a_thorough_look(path: Path) -> None:
    with opened(path) as journal:
        journal.claim("here")
        journal.add_waits([wait(NOW + number) for number in range(2000)], NOW)
    with closing(sqlite3.connect(path)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'waits_by_end'").fetchone()
    content = bytearray(path.read_bytes())
    content[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    path.write_bytes(content)

    with opened(path) as journal:
        assert journal.cluster() == "here"
    with pytest.raises(JournalError, match="is damaged: move it away"):
        SqliteJournal(path, thorough=True)


def test_sound_file_passes_a_thorough_look(path: Path) -> None:
    with opened(path) as journal:
        journal.claim("here")

    with SqliteJournal(path, thorough=True) as journal:
        assert journal.cluster() == "here"


def test_one_thread_opens_it_and_another_works_with_it(path: Path) -> None:
    with SqliteJournal(path) as journal:
        worker = Thread(target=lambda: journal.keep(intended(NICE, NOW)), daemon=True)
        worker.start()
        worker.join(10.0)

        assert journal.leases() == (intended(NICE, NOW),)


def test_one_thread_opens_it_to_read_and_another_reads(path: Path) -> None:
    with opened(path) as journal:
        journal.keep(intended(NICE, NOW))
    seen: list[object] = []

    with SqliteJournal.read_only(path) as reader:
        worker = Thread(target=lambda: seen.append(reader.leases()), daemon=True)
        worker.start()
        worker.join(10.0)

    assert seen == [(intended(NICE, NOW),)]


def test_text_that_is_not_unicode_is_named(path: Path) -> None:
    with SqliteJournal(path) as journal, pytest.raises(JournalError, match="cannot hold a text that is not Unicode"):
        journal.claim("\udc80")


def test_journal_is_read_while_jobs_are_changed_with_it(path: Path) -> None:
    with locked(path), SqliteJournal(path) as writer, SqliteJournal.read_only(path) as reader:
        writer.keep(intended(NICE, NOW))

        assert reader.leases() == (intended(NICE, NOW),)


def test_log_that_one_large_write_made_long_is_truncated(path: Path) -> None:
    log = path.with_name("journal.sqlite-wal")
    with SqliteJournal(path) as journal:
        journal._database.execute("CREATE TABLE large (content BLOB)")
        journal._database.execute("INSERT INTO large VALUES (zeroblob(20 << 20))")
        long = log.stat().st_size
        journal.keep(intended(NICE, NOW))

        assert log.stat().st_size <= 16 << 20 < long


def test_file_that_is_refused_is_not_held_open(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE songs (title TEXT)")

    with pytest.raises(JournalError) as refused:
        SqliteJournal(path)

    held = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert str(path) not in held and refused.value is not None


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run a block with the rights of another user."""
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.needs("root")
def test_file_is_read_where_the_index_of_its_log_cannot_be_made(open_path: Path) -> None:
    with opened(open_path) as journal:
        journal.keep(intended(NICE, NOW))
    open_path.chmod(0o644)

    with as_nobody(), SqliteJournal.read_only(open_path) as journal:
        assert journal.leases() == (intended(NICE, NOW),)


@pytest.mark.needs("root")
def test_rights_are_those_that_the_program_acts_with(open_path: Path) -> None:
    with opened(open_path):
        pass

    with as_nobody(), pytest.raises(JournalError, match="is closed to this user"):
        SqliteJournal.read_only(open_path)


def test_log_that_cannot_be_read_is_no_reason_to_read_half_the_file(path: Path) -> None:
    with opened(path) as journal:
        journal.keep(intended(NICE, NOW))
    path.with_name("journal.sqlite-wal").mkdir()
    (path.with_name("journal.sqlite-wal") / "something").touch()

    with pytest.raises(JournalError, match="cannot be opened"):
        SqliteJournal.read_only(path)


@pytest.fixture
def file_path(tmp_path: Path) -> Path:
    file_path = tmp_path / "journal.sqlite"
    file_path.write_bytes(b"pages")
    file_path.with_name("journal.sqlite-wal").write_bytes(b"log")
    return file_path


def test_files_that_grew_are_the_same(file_path: Path) -> None:
    before = files_of(file_path)
    file_path.write_bytes(b"more pages")

    assert before.is_same(files_of(file_path))
    assert before.database != files_of(file_path).database


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal"])
def test_copy_in_place_of_a_file_is_another(file_path: Path, name: str) -> None:
    before = files_of(file_path)
    file = file_path.with_name(name)

    shutil.copy2(file, file_path.with_name("copy"))
    file_path.with_name("copy").replace(file)

    assert not before.is_same(files_of(file_path))


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-wal"])
def test_file_that_is_gone_is_not_the_same_and_a_new_one_is_no_other(file_path: Path, name: str) -> None:
    whole = files_of(file_path)
    file_path.with_name(name).unlink()

    assert not whole.is_same(files_of(file_path))
    assert files_of(file_path).is_same(whole)
