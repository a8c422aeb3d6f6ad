"""A journal that is removed, replaced or changed under a running daemon: noticed in the next round, nothing is sent."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.domain.actions import Action
from advisor.domain.lease import LeaseState
from advisor.domain.mode import Mode
from advisor.domain.plan import Receipt
from advisor.errors import JournalError
from advisor.journal import opened
from advisor.journal.seals import add_functions
from advisor.metrics.health import Health
from tests.daemon.rounds import Site
from tests.fake_cluster import HOLD, fragmented, gang

ROUND_S = 60.0


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A daemon's site, in whose folder lies a copy of the journal from before the first change."""
    site = Site(folder=tmp_path, cluster=fragmented())
    site.mode = Mode.RECOMMEND
    service = site.service()
    service.round()
    service.leave(1.0)
    shutil.copy2(tmp_path / "journal.sqlite", tmp_path / "yesterday.sqlite")
    site.mode = Mode.APPLY
    return site


def remove(journal: Path) -> None:
    journal.unlink()


def remove_all(journal: Path) -> None:
    for file in journal.parent.glob("journal.sqlite*"):
        file.unlink()


def remove_log(journal: Path) -> None:
    journal.with_name("journal.sqlite-wal").unlink()


def move_away(journal: Path) -> None:
    journal.rename(journal.with_name("moved.sqlite"))


def move_copy_over(journal: Path) -> None:
    journal.with_name("yesterday.sqlite").replace(journal)


def checkpoint(journal: Path) -> None:
    """Write the log into the file, as SQLite does by itself once the log has a thousand pages."""
    with closing(sqlite3.connect(journal)) as database:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def copy_into(journal: Path) -> None:
    """Restore yesterday's file as `cp` does: into the same file, with the log beside it."""
    checkpoint(journal)
    journal.write_bytes(journal.with_name("yesterday.sqlite").read_bytes())


def copy_into_without_log(journal: Path) -> None:
    copy_into(journal)
    remove_log(journal)


def restore(journal: Path) -> None:
    """Restore yesterday's content as `.restore` of sqlite3 does: through SQLite, under its locks."""
    with (
        closing(sqlite3.connect(journal.with_name("yesterday.sqlite"))) as source,
        closing(sqlite3.connect(journal)) as target,
    ):
        source.backup(target)


def remove_lease(journal: Path) -> None:
    with closing(sqlite3.connect(journal, isolation_level=None)) as database:
        database.execute("DROP TRIGGER leases_sealed_at_delete")
        database.execute("DELETE FROM leases")


def remove_lease_sealed(journal: Path) -> None:
    with closing(sqlite3.connect(journal, isolation_level=None)) as database:
        add_functions(database)
        database.execute("DELETE FROM leases")


@pytest.mark.parametrize(
    ("meddle", "said"),
    [
        (remove, "journal.sqlite: was removed"),
        (remove_all, "journal.sqlite: was removed"),
        (remove_log, "journal.sqlite-wal: was removed or replaced"),
        (move_away, "journal.sqlite: was removed"),
        (move_copy_over, "journal.sqlite: was replaced by another file"),
        (copy_into, "journal.sqlite: was replaced by an earlier copy"),
        (copy_into_without_log, "journal.sqlite-wal: was removed or replaced"),
        (restore, "journal.sqlite: was replaced by an earlier copy"),
        (remove_lease, "journal.sqlite: was changed by another program"),
        (remove_lease_sealed, "journal.sqlite: was changed by another program"),
    ],
)
def test_journal_that_is_another_is_noticed_in_the_next_round_and_nothing_is_sent(
    site: Site, meddle: Callable[[Path], None], said: str
) -> None:
    health = Health(interval_s=ROUND_S)
    service = site.service()
    service.round()
    site.cluster.jobs[19] = replace(gang(19), submit_time=site.cluster.jobs[9].submit_time)
    site.cluster.now += 86_400.0
    site.clock.advance(86_400.0)
    meddle(site.folder / "journal.sqlite")

    rounds = [service.round(), service.round()]
    health.observe(rounds[-1])
    left = service.leave(4.0)

    assert site.cluster.sent == [HOLD], "neither a new change nor one that is due"
    for done in rounds:
        assert said in done.held_to["journal"] and done.mode is Mode.RECOMMEND
        assert done.step is not None and 9 in done.step.record.memory.busy and done.overdue == 1
    assert health.report().status == "degraded" and said in health.report().fault
    assert left["taken_back"] == 0 and left["still_out"] == 1 and said in str(left["because"])


def test_copy_that_newer_rounds_in_the_log_cover_in_part_is_noticed(site: Site) -> None:
    service = site.service()
    service.round()
    checkpoint(site.folder / "journal.sqlite")
    service.round()
    (site.folder / "journal.sqlite").write_bytes((site.folder / "yesterday.sqlite").read_bytes())

    done = service.round()

    assert "journal.sqlite: " in done.held_to["journal"] and done.step is not None
    assert 9 in done.step.record.memory.busy and site.cluster.sent == [HOLD]


@pytest.mark.parametrize("meddle", [remove_all, move_copy_over, remove_log])
def test_journal_that_is_lost_in_the_middle_of_a_round_is_noticed_in_the_next(
    site: Site, monkeypatch: pytest.MonkeyPatch, meddle: Callable[[Path], None]
) -> None:
    service = site.service()
    apply = site.cluster.apply

    def meddling(action: Action) -> Receipt:
        meddle(site.folder / "journal.sqlite")
        return apply(action)

    monkeypatch.setattr(site.cluster, "apply", meddling)
    first = service.round()
    second = service.round()

    assert first.step is not None and len(first.step.applied) == 1
    assert "while sadvised was using it" in second.held_to["journal"]
    assert site.cluster.sent == [HOLD]


def test_journal_that_is_put_back_is_used_again(site: Site) -> None:
    service = site.service()
    service.round()
    journal, away = site.folder / "journal.sqlite", site.folder / "moved.sqlite"
    journal.rename(away)
    without = service.round()
    away.rename(journal)

    again = service.round()

    assert "was removed" in without.held_to["journal"] and again.held_to == {}
    assert again.open_leases == {LeaseState.OUT: 1}


def test_new_start_goes_on_with_the_journal_that_is_there(site: Site) -> None:
    site.service().round()
    remove_all(site.folder / "journal.sqlite")

    done = site.service().round()

    assert done.held_to == {} and done.open_leases == {}


def test_what_sadvise_itself_writes_between_two_rounds_is_no_fault(site: Site) -> None:
    service = site.service()
    service.round()
    with opened(site.folder / "journal.sqlite") as journal:
        journal.note(site.clock.now(), "reverted by ada", {})

    assert service.round().held_to == {}


def test_journal_that_is_only_read_or_copied_is_no_fault(site: Site) -> None:
    service = site.service()
    service.round()
    journal = site.folder / "journal.sqlite"
    shutil.copy2(journal, site.folder / "today.sqlite")
    os.link(journal, site.folder / "linked.sqlite")
    journal.chmod(0o640)

    assert service.round().held_to == {}


def test_nonce_that_could_not_be_confirmed_is_no_fault(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.journal import SqliteJournal

    service = site.service()
    service.round()
    write = SqliteJournal.set_nonce

    def lost(journal: SqliteJournal, nonce: str) -> None:
        write(journal, nonce)
        raise JournalError("the answer of the disk was lost")

    monkeypatch.setattr(SqliteJournal, "set_nonce", lost)
    lost_round = service.round()
    monkeypatch.setattr(SqliteJournal, "set_nonce", write)

    assert "was lost" in lost_round.held_to["journal"]
    assert service.round().held_to == {}
