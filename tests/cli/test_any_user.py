"""A user who cannot read the journal gets the advice of one who can, as far as the daemon shows what it knows."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.apply.rehearsal import RehearsedCluster
from advisor.backends.snapshot_file import read_snapshot, write_snapshot
from advisor.cycle import Cycle
from advisor.daemon.service import disclosure_after
from advisor.domain.actions import SetNice
from advisor.journal import SqliteJournal
from advisor.site.lease_socket import LeaseWindow, shown
from advisor.watch.reading import demo_path
from tests.builders import make_stretch
from tests.cli.conftest import Sadvise

NOBODY = 65_534
pytestmark = pytest.mark.needs("root")


@contextmanager
def another_user() -> Iterator[None]:
    """Be an ordinary user while the block runs."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state and runtime folder as the package makes it, with a journal and the queue after its changes."""
    path = Path(tempfile.mkdtemp(prefix="sadvise-"))
    monkeypatch.setenv("SADVISE_DAEMON__RUNTIME_FOLDER", str(path))
    monkeypatch.setenv("SADVISE_FORECASTS__ENABLED", "false")
    cluster = RehearsedCluster(read_snapshot(demo_path()))
    with SqliteJournal(path / "journal.sqlite") as journal:
        Applier(source=cluster, actuator=cluster, cycle=Cycle(), journal=journal).step()
        now = cluster.snapshot().taken_at
        pending = [job for job in cluster.snapshot().jobs if job.is_pending]
        stretch = make_stretch(anchor_time=now - 3600.0, until=now, user=pending[0].user)
        journal.keep_stretch(replace(stretch, late=tuple((job.job_id, now - 60.0) for job in pending)))
    write_snapshot(cluster.snapshot(), path / "queue.json")
    (path / "queue.json").chmod(0o644)
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def window(folder: Path) -> Iterator[LeaseWindow]:
    """What a daemon at the folder shows after its round."""
    window = LeaseWindow()
    with SqliteJournal.read_only(folder / "journal.sqlite") as journal, shown(window, folder):
        window.show(disclosure_after(journal, Cycle(), read_snapshot(folder / "queue.json")))
        yield window


def reordered(folder: Path) -> int:
    """Return the job whose nice the journal's change raised."""
    with SqliteJournal.read_only(folder / "journal.sqlite") as journal:
        return next(lease.job_id for lease in journal.leases() if isinstance(lease.action, SetNice))


def on_queue(folder: Path, *words: str) -> tuple[str, ...]:
    return (*words, "--snapshot", str(folder / "queue.json"), "--journal", str(folder / "journal.sqlite"))


@pytest.mark.usefixtures("window")
def test_advice_is_that_of_root(sadvise: Sadvise, folder: Path) -> None:
    job = str(reordered(folder))
    commands = [on_queue(folder, *words) for words in (("recommend",), ("recommend", "--json"), ("explain", job))]
    of_root = [sadvise(*command) for command in commands]

    with another_user():
        of_user = [sadvise(*command) for command in commands]

    assert of_user == of_root
    assert "without advice it would most likely have started at " in of_user[2].out
    assert " in the last week: wait " in of_user[2].out
    assert all(outcome.exit_code == 0 for outcome in of_user)


@pytest.mark.usefixtures("window")
def test_user_sees_why_a_job_has_a_nice_and_when_it_is_reverted(sadvise: Sadvise, folder: Path) -> None:
    job = str(reordered(folder))
    sadvise(*on_queue(folder, "explain", job))

    with another_user():
        text = sadvise(*on_queue(folder, "explain", job)).out
        document = json.loads(sadvise(*on_queue(folder, "explain", job, "--json")).out)["diagnosis"]
        leases = sadvise("journal", "--journal", str(folder / "journal.sqlite"), "-P").out

    (change,) = document["changes"]
    assert change["before"] == {"nice": 0}
    assert change["after"]["nice"] < 0
    assert change["reason"] == "short_work_first"
    assert change["due_time"] > change["applied_time"]
    assert "changed since " in text.replace("   ", " ").replace("  ", " ")
    assert f"nice 0 -> nice {change['after']['nice']}: {change['text']}; " in text
    # Setting it back by hand is no remedy: the change is ours.
    assert f"JobId={job} Nice=0" not in text
    assert f"{job}|nice|out|0|{change['after']['nice']}|" in leases


@pytest.mark.usefixtures("window")
def test_where_slurm_hides_jobs_a_user_sees_the_own_ones_without_those_of_others(
    sadvise: Sadvise, folder: Path, window: LeaseWindow
) -> None:
    job = reordered(folder)
    snapshot = read_snapshot(folder / "queue.json")
    with SqliteJournal.read_only(folder / "journal.sqlite") as journal:
        disclosure = disclosure_after(journal, Cycle(), snapshot)
    owner = snapshot.jobs_by_id[job].user
    window.show(replace(disclosure, hides_jobs=True).of(owner))
    sadvise(*on_queue(folder, "explain", str(job)))

    with another_user():
        text = sadvise(*on_queue(folder, "explain", str(job))).out

    assert ": short_work_first; reverted " in text


def test_without_a_daemon_one_line_says_what_is_missing(sadvise: Sadvise, folder: Path) -> None:
    sadvise(*on_queue(folder, "recommend"))

    with another_user():
        recommended = sadvise(*on_queue(folder, "recommend"))
        explained = sadvise(*on_queue(folder, "explain", "12"))
        journal = sadvise("journal", "--journal", str(folder / "journal.sqlite"))
        audit = sadvise("journal", "audit", "--journal", str(folder / "journal.sqlite"))

        report = sadvise("report", "--journal", str(folder / "journal.sqlite"))

    assert (
        report.err == f"sadvise: error: {folder}/journal.sqlite: is closed to this user: run as root or as its owner\n"
    )
    line = (
        f"{folder}/journal.sqlite is closed to this user, and {folder}/leases.sock: no daemon answers: "
        "No such file or directory; changes in effect and observed waits are missing from this advice"
    )
    assert [text for text in recommended.out.splitlines() if "journal" in text] == [f"journal      {line}"]
    assert line in explained.out
    assert journal.err == f"sadvise: error: {line.partition(';')[0]}\n"
    assert audit.err.endswith("run as root or as its owner; `sadvise journal` shows what is in effect\n")
    assert (recommended.exit_code, explained.exit_code, journal.exit_code) == (0, 0, 1)


def test_closed_models_are_one_line(sadvise: Sadvise, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SADVISE_FORECASTS__ENABLED", "true")
    (folder / "models").mkdir(mode=0o700)
    monkeypatch.setenv("SADVISE_FORECASTS__MODELS", str(folder / "models"))
    sadvise("recommend", "--demo")

    with another_user():
        text = sadvise("recommend", "--demo").out

    assert text.count("refused") == 1
