"""`sadvise notify` shows what would be sent and sends nothing, or tries every target and says what happened."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from advisor.domain.actions import Lever
from advisor.domain.outcome import SeenChange
from advisor.domain.tune_verdict import TuneVerdict
from advisor.domain.units import DAY_S, HOUR_S
from advisor.journal import SqliteJournal
from advisor.journal.base import FAILING, GANGS, IDLE, TUNED
from advisor.view.digest_words import tune_words
from tests.builders import make_stretch
from tests.cli.conftest import Sadvise
from tests.cli.test_report import outcome
from tests.post_office import Hook, PostOffice, post_office, web_server


@pytest.fixture
def office() -> Iterator[PostOffice]:
    with post_office() as running:
        yield running


@pytest.fixture
def hook() -> Iterator[Hook]:
    with web_server() as running:
        yield running


@pytest.fixture
def configured(tmp_path: Path, office: PostOffice, hook: Hook, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with both targets, and a journal with a lifted job of alice that ended an hour ago."""
    submit_time, path = time.time() - 5 * HOUR_S, tmp_path / "journal.sqlite"
    change = SeenChange(lever=Lever.NICE, applied_time=submit_time + 60.0, saved_s_low=600.0, saved_s_high=7200.0)
    job = outcome(7, user="alice", submit_time=submit_time, changes=(change,))
    stretch = make_stretch(anchor_time=submit_time, waited_s=3600.0, plain_s=(7200.0, 7300.0), user="alice")
    with SqliteJournal(path) as journal:
        journal.keep_outcomes([job])
        journal.keep_stretch(stretch)
    (tmp_path / "sadvise.toml").write_text(
        f'[journal]\nfile = "{path}"\n[notify]\nmail_to = "ops@example.org"\nusers = "all"\n'
        f'sendmail = "{office.sendmail(tmp_path)}"\nwebhook = "{hook.url}"\n'
    )
    monkeypatch.setenv("SADVISE_CONFIG", str(tmp_path / "sadvise.toml"))
    return tmp_path


def test_the_digest_and_the_mails_are_printed_and_nothing_is_sent(
    sadvise: Sadvise, configured: Path, office: PostOffice, hook: Hook
) -> None:
    shown = sadvise("notify", "--config", str(configured / "sadvise.toml"))

    assert shown.exit_code == 0 and shown.err == ""
    words = " ".join(shown.out.split())
    assert "to      ops@example.org" in shown.out and "to      alice" in shown.out
    assert "1 GPU job ended, 1 were changed" in shown.out
    assert "user alice: -1.0 h" in shown.out
    assert "Job 7, started" in shown.out
    assert "its place in the line, expected to save 10 min to 2.0 h over all jobs that it helps" in words
    assert "waited 1.0 h less in all than on plain Slurm" in words
    assert office.envelopes == [] and hook.documents == []


def test_the_digest_says_what_tune_advised_this_week(sadvise: Sadvise, configured: Path) -> None:
    verdict = TuneVerdict(jobs=40, in_force="lift trade 2", preset="free", setting="pin", beyond_chance_now=1)
    with SqliteJournal(configured / "journal.sqlite") as journal:
        journal.note(time.time(), TUNED, asdict(verdict))

    shown = sadvise("notify", "--config", str(configured / "sadvise.toml"))

    assert f"Settings: {tune_words(verdict)}." in " ".join(shown.out.split())

    with SqliteJournal(configured / "journal.sqlite") as journal:
        journal.note(time.time(), TUNED, {"of": "another version"})
    assert "Settings:" not in sadvise("notify", "--config", str(configured / "sadvise.toml")).out


def test_the_digest_names_the_nodes_that_fail(sadvise: Sadvise, configured: Path) -> None:
    with SqliteJournal(configured / "journal.sqlite") as journal:
        journal.note(time.time(), FAILING, {"nodes": "n1 failed 3 times"})

    shown = sadvise("notify", "--config", str(configured / "sadvise.toml"))

    assert "Nodes: n1 failed 3 times; `sadvise check` has the commands" in " ".join(shown.out.split())


def test_the_digest_adds_up_who_held_idle_gpus_as_far_as_it_was_seen(sadvise: Sadvise, configured: Path) -> None:
    now = time.time()
    rows = (
        [(7, "alice", 8, now - 5 * HOUR_S, now - 3 * HOUR_S), (8, "ben", 1, now - 20 * DAY_S, now - 3 * HOUR_S)],
        [(7, "alice", 8, now - 5 * HOUR_S, now - 2 * HOUR_S), (9, "alice", 2, now - 4 * HOUR_S, now - 2 * HOUR_S)],
        "another version",
    )
    with SqliteJournal(configured / "journal.sqlite") as journal:
        for jobs in rows:
            journal.note(now, IDLE, {"jobs": json.dumps(jobs)})

    shown = sadvise("notify", "--config", str(configured / "sadvise.toml"))
    [digest, _] = json.loads(sadvise("notify", "--config", str(configured / "sadvise.toml"), "--json").out)["notices"]

    words = " ".join(shown.out.split())
    # Job 7 for 3 h from the first sight to the last, job 9 for 2 h, job 8 since the week began.
    assert "Idle GPUs: 193.0 GPU-hours held by 3 running jobs of 2 users; `sadvise idle` lists those of now." in words
    assert "Who held idle GPUs: user ben: 1 job, 165.0 GPU-hours user alice: 2 jobs, 28.0 GPU-hours" in words
    assert "ben" not in json.dumps(digest)


def test_the_digest_names_gangs_that_starved_and_their_users_to_administrators_alone(
    sadvise: Sadvise, configured: Path
) -> None:
    with SqliteJournal(configured / "journal.sqlite") as journal:
        journal.note(time.time(), GANGS, {"starved": '[[71, "evelyn"]]', "scattered": '[["n1", 12.5]]'})
        journal.note(time.time(), GANGS, {"starved": "another version"})

    shown = sadvise("notify", "--config", str(configured / "sadvise.toml"))
    [digest, _] = json.loads(sadvise("notify", "--config", str(configured / "sadvise.toml"), "--json").out)["notices"]

    words = " ".join(shown.out.split())
    assert "Gangs: 1 starved, jobs 71; `sadvise explain`" in words and "Fragments: 12.5 GPU-hours" in words
    assert "Whose gangs starved: job 71, user evelyn" in words and "evelyn" not in json.dumps(digest)


def test_the_documents_of_the_webhook_name_no_user(sadvise: Sadvise, configured: Path) -> None:
    printed = json.loads(sadvise("notify", "--config", str(configured / "sadvise.toml"), "--json").out)

    digest, mail = printed["notices"]
    assert digest["to"] is None and mail["to"] == "alice"
    assert digest["document"]["figures"]["jobs_changed"] == 1
    assert "alice" not in json.dumps(digest)


def test_the_test_reaches_every_target(sadvise: Sadvise, configured: Path, office: PostOffice, hook: Hook) -> None:
    tried = sadvise("notify", "--config", str(configured / "sadvise.toml"), "--test")

    assert tried.exit_code == 0
    assert "mail    accepted by" in tried.out and "webhook accepted" in tried.out
    assert [envelope.rcpt_tos for envelope in office.envelopes] == [["ops@example.org"]]
    assert hook.documents[0]["kind"] == "test"


def test_a_target_that_fails_is_named_with_the_reason(sadvise: Sadvise, configured: Path, office: PostOffice) -> None:
    office.unknown = frozenset({"ops@example.org"})
    tried = sadvise("notify", "--config", str(configured / "sadvise.toml"), "--test", "--json")

    faults = {target["target"]: target["fault"] for target in json.loads(tried.out)["targets"]}
    assert tried.exit_code == 1
    assert "no such user" in faults["mail"] and faults["webhook"] == ""


def test_a_test_without_a_target_says_what_to_set(sadvise: Sadvise, tmp_path: Path) -> None:
    (tmp_path / "sadvise.toml").write_text("[notify]\n")

    tried = sadvise("notify", "--config", str(tmp_path / "sadvise.toml"), "--test")

    assert tried.exit_code == 1
    assert tried.err == "sadvise: error: no target is configured: set mail_to or webhook in [notify] of sadvise.toml\n"
