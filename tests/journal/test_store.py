"""The journal in a file: it keeps to the contract of all journals, survives kills, damage and full disks."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from advisor.apply.memory_journal import MemoryJournal
from advisor.domain.lease import Lease, LeaseState, intended
from advisor.domain.memory import Journal
from advisor.errors import JournalError, JournalFullError
from advisor.journal import SCHEMA_VERSION, SqliteJournal, opened
from advisor.journal.file import locked
from advisor.journal.seals import add_functions
from tests.journal.contract import ACTIONS, NICE, NOW, check, wait
from tests.programs import killed_after


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    with opened(path) as journal:
        yield journal


def test_journal_in_a_file_keeps_to_the_contract(journal: SqliteJournal) -> None:
    check(journal)


def filled(journal: Journal) -> None:
    """Write down something of everything."""
    journal.claim("here")
    for action in ACTIONS:
        journal.keep(replace(intended(action, NOW, after_s=600.0), state=LeaseState.OUT))
    journal.add_waits([wait(NOW)], NOW + 1.0)


def test_everything_is_there_again_after_a_restart(path: Path) -> None:
    memory = MemoryJournal()
    filled(memory)
    with opened(path) as journal:
        filled(journal)

    with opened(path) as journal:
        assert journal.leases() == memory.leases()
        assert journal.waits(0.0) == memory.waits(0.0)
        assert journal.observed_until() == NOW + 1.0


def test_a_killed_process_leaves_what_it_had_written(path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from advisor.domain.lease import intended\n"
        "from advisor.journal import SqliteJournal\n"
        "from tests.journal.contract import NICE, NOW\n"
        "SqliteJournal(Path(sys.argv[1])).keep(intended(NICE, NOW))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    killed = subprocess.run([sys.executable, "-c", script, str(path)], check=False, cwd=Path(__file__).parents[2])

    assert killed.returncode == -signal.SIGKILL
    with opened(path) as journal:
        assert journal.leases() == (intended(NICE, NOW),)


def test_actions_are_json_beside_the_lever_that_tells_their_kind(journal: SqliteJournal) -> None:
    filled(journal)

    rows = journal._database.execute("SELECT lever, action FROM leases").fetchall()

    kept = {lever: json.loads(action) for lever, action in rows}
    assert kept["nice"] == {"job_id": 5, "before": 0, "after": 50, "exchanged_with": None}
    assert kept.keys() == {"nice", "node_range", "gpu_count", "switches", "time_min", "node_list"}


def test_nonce_is_that_of_the_last_round(journal: SqliteJournal) -> None:
    first = journal.nonce()
    journal.set_nonce("a1")
    journal.set_nonce("b2")

    assert (first, journal.nonce()) == ("", "b2")


def change(path: Path, statement: str) -> None:
    """Meddle with a journal, as a program can that knows its seals."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        add_functions(database)
        database.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE leases SET action = '{\"job_id\": 5}' WHERE lever = 'nice'",
        "UPDATE leases SET action = 'not JSON' WHERE lever = 'nice'",
        "UPDATE leases SET lever = 'unheard of' WHERE lever = 'nice'",
        "UPDATE leases SET state = 'unheard of' WHERE lever = 'nice'",
        "UPDATE leases SET undo = replace(undo, '5', '6') WHERE lever = 'nice'",
    ],
)
def test_a_lease_that_makes_no_sense_is_refused_in_one_line(journal: SqliteJournal, path: Path, statement: str) -> None:
    filled(journal)
    change(path, statement)

    with pytest.raises(JournalError, match=r"journal.sqlite: is damaged: [^\n]+$"):
        journal.leases()


def test_a_wait_for_an_unknown_tier_is_refused(journal: SqliteJournal, path: Path) -> None:
    filled(journal)
    change(path, "UPDATE waits SET tier = 'MOON'")

    with pytest.raises(JournalError, match="is damaged"):
        journal.waits(0.0)


def test_a_newer_schema_is_refused_and_left_as_it_is(path: Path) -> None:
    with opened(path) as journal:
        filled(journal)
    change(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()

    newer = rf"written by a newer sadvise \(schema {SCHEMA_VERSION + 1}, this one knows {SCHEMA_VERSION}\)"
    with pytest.raises(JournalError, match=newer), opened(path):
        pass
    assert path.read_bytes() == before


def damaged(path: Path) -> None:
    """Overwrite the pages behind the first."""
    with opened(path) as journal:
        filled(journal)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def foreign_text(path: Path) -> None:
    """Write what is no database."""
    path.write_text("a diary, not a journal\n" * 400)


def foreign_database(path: Path) -> None:
    """Write another program's database."""
    change(path, "CREATE TABLE songs (title TEXT)")


def folder(path: Path) -> None:
    """Make a folder where the file should be."""
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (damaged, "is damaged: move it away"),
        (foreign_text, "is not a journal of sadvise"),
        (foreign_database, "is not a journal of sadvise"),
        (folder, "cannot be opened"),
    ],
)
def test_what_is_no_journal_is_refused_in_one_line(path: Path, make: Callable[[Path], None], complaint: str) -> None:
    make(path)

    with pytest.raises(JournalError) as refused, opened(path):
        pass

    assert type(refused.value) is JournalError and complaint in str(refused.value)
    assert str(path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_missing_folder_is_named(path: Path) -> None:
    nowhere = path.parent / "nowhere" / "journal.sqlite"

    with pytest.raises(JournalError, match="its folder does not exist: create it, or name another file with --journal"):
        SqliteJournal(nowhere)
    with pytest.raises(JournalError, match="its folder does not exist"), opened(nowhere):
        pass


def test_a_disk_that_is_full_is_named_and_what_was_there_stays(journal: SqliteJournal) -> None:
    filled(journal)
    before = journal.leases()
    (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
    # SQLite's own way to run out of room.
    journal._database.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(JournalFullError, match="cannot grow: its disk is full"):
        journal.add_waits([wait(NOW + number) for number in range(1000)], NOW)

    assert journal.leases() == before
    assert journal.waits(0.0) == (wait(NOW),)


def test_a_file_that_must_not_be_written_is_named(journal: SqliteJournal) -> None:
    # root may write every file, so it is SQLite that is told not to.
    journal._database.execute("PRAGMA query_only = 1")

    with pytest.raises(JournalError, match="cannot be written: run as the user who owns it"):
        journal.keep(intended(NICE, NOW))


def test_a_journal_held_by_another_program_is_named(journal: SqliteJournal, path: Path) -> None:
    journal._database.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(JournalError, match="is in use by another program"):
            journal.keep(intended(NICE, NOW))


def test_a_lock_is_held_by_one_at_a_time_and_dies_with_its_holder(path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from advisor.journal import opened\n"
        "with opened(Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", script, str(path)]
    with killed_after(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(JournalError, match="another sadvise is changing jobs with it"), opened(path):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(10.0)

    with opened(path):
        pass
    with opened(path):
        pass


def test_a_lock_that_becomes_free_in_time_is_waited_for(path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(path, wait_s=30.0):
            order.append("second")

    with locked(path):
        waiting = Thread(target=second)
        waiting.start()
        waiting.join(0.2)
        order.append("first")
    waiting.join(30.0)

    assert order == ["first", "second"]


def test_a_lock_that_cannot_be_made_is_named(path: Path) -> None:
    path.with_name("journal.sqlite.lock").mkdir()

    with pytest.raises(JournalError, match=r"journal.sqlite.lock: cannot be opened: Is a directory"), opened(path):
        pass


def cut_short(journal: SqliteJournal, lease: Lease) -> None:
    with journal.together():
        journal.keep(lease)
        journal.note(NOW, "started", {})
        raise RuntimeError("killed")


def test_what_is_written_together_is_there_all_or_not_at_all(path: Path) -> None:
    lease = intended(NICE, NOW)
    with opened(path) as journal:
        with pytest.raises(RuntimeError):
            cut_short(journal, lease)
        nothing, unaudited = journal.leases(), journal.audit()
        with journal.together():
            journal.keep(lease)
            journal.keep(replace(lease, state=LeaseState.OUT))

    with opened(path) as journal:
        assert (nothing, unaudited) == ((), ())
        assert [kept.state for kept in journal.leases()] == [LeaseState.OUT]
        assert [row.event for row in journal.audit()] == ["out", "intended"]
        assert journal.verify().broken is None
