"""`sadvise replay`: the same bytes, what differs, and what cannot be replayed."""

import json
from pathlib import Path

import pytest

from advisor import cycle as cycle_module
from advisor.cycle import Cycle
from advisor.domain.plan import Plan
from advisor.journal import SqliteJournal
from tests.builders import make_job, make_snapshot
from tests.cli.conftest import Sadvise
from tests.fake_cluster import fragmented


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A journal of a cycle that proposed something and of one that did not."""
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path)
    journal.record(Cycle().judge(fragmented().snapshot()), Cycle())
    journal.record(Cycle().judge(make_snapshot([make_job()])), Cycle())
    journal.close_file()
    return str(path)


@pytest.mark.parametrize("arguments", [(), ("last",), ("1",)])
def test_recorded_cycle_planned_again_is_the_same(sadvise: Sadvise, path: str, arguments: tuple[str, ...]) -> None:
    outcome = sadvise("replay", *arguments, "--journal", path)

    assert outcome.exit_code == 0
    assert outcome.out.startswith("same    cycle 1, digest ") and len(outcome.out.split()[-1]) == 64


def test_json_tells_digest_and_cycle(sadvise: Sadvise, path: str) -> None:
    document = json.loads(sadvise("replay", "1", "--json", "--journal", path).out)

    assert document["meta"]["schema"] == "sadvise.replay/1"
    assert (document["same"], document["differences"]) == (True, [])
    assert document["digest"] == document["cycle"]["digest"]


def test_planner_that_plans_otherwise_is_found_out(
    sadvise: Sadvise, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle_module, "plan", lambda *_, **__: Plan())

    outcome = sadvise("replay", "--journal", path)

    assert outcome.exit_code == 1
    assert outcome.out.startswith("differs  cycle 1, digest ")
    assert "node_range" in outcome.out
    assert sadvise("replay", "-P", "-h", "--journal", path).out.splitlines()[0].startswith("9|node_range|")


def test_settings_of_today_show_what_would_differ(sadvise: Sadvise, path: str, tmp_path: Path) -> None:
    config = tmp_path / "sadvise.toml"
    config.write_text("[guard]\nmax_changes = 0\n[mode]\ndefault = 'apply'\n")

    outcome = sadvise("replay", "--with-config", "-P", "--config", str(config), "--journal", path)

    assert outcome.exit_code == 0
    assert outcome.out == "job_id|what|recorded|replayed\n9|node_range refused by|-|changes_within_cap\n"


def test_cycle_of_another_release_is_said_to_be(sadvise: Sadvise, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.cli.replay.__version__", "99.0")
    monkeypatch.setattr(cycle_module, "plan", lambda *_, **__: Plan())

    outcome = sadvise("replay", "--journal", path)

    assert "which may have planned otherwise" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("2",), 1, "cycle 2 is not recorded in full: nothing was proposed"),
        (("77",), 1, "there is no cycle 77: list the cycles with `sadvise journal cycles`"),
        (("first\x1b",), 2, "'first\\x1b' is not a cycle: give its number, or last"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(
    sadvise: Sadvise, path: str, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    outcome = sadvise("replay", *arguments, "--journal", path)

    assert (outcome.exit_code, outcome.out) == (code, "")
    assert complaint in outcome.err and outcome.err.count("\n") == 1
