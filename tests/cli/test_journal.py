"""`sadvise journal`: the views, the filters, and what it says of a journal that is not whole or not there."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.apply.step import Step
from advisor.cli.options import instant_of
from advisor.cycle import Cycle
from advisor.domain.actions import SetNice
from advisor.domain.lease import LeaseState, intended
from advisor.errors import ConfigError
from advisor.journal import SqliteJournal
from tests.builders import TAKEN_AT
from tests.cli.conftest import Sadvise
from tests.fake_cluster import HOLD, fragmented

NICE = SetNice(job_id=7, before=0, after=50)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A journal of one step, which applied one change, with a change of another job out before it."""
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path)
    journal.claim("test")
    journal.keep(
        replace(
            intended(NICE, TAKEN_AT - 60.0, after_s=600.0),
            state=LeaseState.HANDS_OFF,
            user="al\x1b[31mice",
            account="a|b",
            added_delay_s=90.0,
        )
    )
    cluster = fragmented()
    cycle = Cycle()
    at_work = Applier(source=cluster, actuator=cluster, cycle=cycle)
    step: Step = at_work.step()
    journal.receipts(journal.record(step.record, cycle), step)
    journal.keep(replace(intended(HOLD, TAKEN_AT), state=LeaseState.OUT, user="bob"))
    journal.close_file()
    return str(path)


def test_open_changes_are_shown_first(sadvise: Sadvise, path: str) -> None:
    header, *rows = sadvise("journal", "--journal", path).out.splitlines()

    assert header.split() == [
        "job_id",
        "lever",
        "state",
        "before",
        "after",
        "user",
        "account",
        "applied_time",
        "due_time",
        "added_delay_s",
        "job_ids",
    ]
    assert [row.split()[:3] for row in rows] == [["9", "node_range", "out"], ["7", "nice", "hands_off"]]
    assert '{"low":1,"high":4}' in rows[0]


def test_hostile_names_are_spelled_out(sadvise: Sadvise, path: str) -> None:
    outcome = sadvise("journal", "leases", "-P", "-h", "-j", "7", "--journal", path)

    assert outcome.out.split("|")[:7] == ["7", "nice", "hands_off", "0", "50", "al\\x1b[31mice", "a\\x7cb"]
    assert outcome.out.count("\n") == 1


def test_json_is_versioned(sadvise: Sadvise, path: str) -> None:
    document = json.loads(sadvise("journal", "leases", "--json", "--journal", path).out)

    assert (document["meta"]["schema"], document["meta"]["cluster"]) == ("sadvise.journal/1", "test")
    assert document["leases"][1] == {
        "job_id": 7,
        "lever": "nice",
        "state": "hands_off",
        "before": 0,
        "after": 50,
        "user": "al\x1b[31mice",
        "account": "a|b",
        "applied_time": TAKEN_AT - 60.0,
        "due_time": TAKEN_AT + 540.0,
        "added_delay_s": 90.0,
        "job_ids": [7],
    }


def test_changes_tell_what_was_proposed_and_done(sadvise: Sadvise, path: str) -> None:
    changes = json.loads(sadvise("journal", "changes", "--json", "--journal", path).out)["changes"]

    assert [(row["job_id"], row["cycle_id"], row["done"]) for row in changes] == [
        (9, 1, "applied"),
        (9, 1, "recommended"),
    ]
    assert (changes[0]["before"], changes[0]["after"]) == ({"low": 1, "high": 4}, {"low": 1, "high": 1})
    assert sadvise("journal", "changes", "-n", "1", "-h", "--journal", path).out.split()[4:6] == [
        "applied",
        '{"low":1,"high":4}',
    ]


def test_cycles_say_whether_they_can_be_planned_again(sadvise: Sadvise, path: str) -> None:
    header, row = (line.split("|") for line in sadvise("journal", "cycles", "-P", "--journal", path).out.splitlines())

    shown = dict(zip(header, row, strict=True))
    assert (shown["cycle_id"], shown["applied"]) == ("1", "1")
    assert int(shown["record_bytes"]) > 0
    assert len(shown["digest"]) == 12


def test_audit_is_shown_newest_first(sadvise: Sadvise, path: str) -> None:
    rows = json.loads(sadvise("journal", "audit", "--json", "--journal", path).out)["audit"]

    assert [(row["number"], row["event"]) for row in rows] == [(3, "out"), (2, "hands_off"), (1, "claimed")]
    assert rows[0]["detail"]["user"] == "bob"


def test_whole_audit_is_said_to_be(sadvise: Sadvise, path: str) -> None:
    outcome = sadvise("journal", "verify", "--journal", path)

    assert outcome.exit_code == 0
    assert outcome.out.startswith("whole   3 rows from number 1 on, last hash ")
    assert json.loads(sadvise("journal", "verify", "--json", "--journal", path).out)["verify"]["rows"] == 3


def test_broken_audit_is_named_and_in_the_exit_code(sadvise: Sadvise, path: str) -> None:
    journal = SqliteJournal(Path(path))
    journal._database.execute("DROP TRIGGER audit_is_never_changed")
    journal._database.execute("UPDATE audit SET detail = '{}' WHERE id = 2")
    journal.close_file()

    outcome = sadvise("journal", "verify", "--journal", path)

    assert outcome.exit_code == 1
    assert outcome.out == "broken  row 2: it was changed after it was written; 1 row before it hold\n"
    assert sadvise("journal", "verify", "--json", "--journal", path).exit_code == 1


def test_table_that_another_program_changed_is_named_and_in_the_exit_code(sadvise: Sadvise, path: str) -> None:
    journal = SqliteJournal(Path(path))
    journal._database.execute("DROP TRIGGER leases_sealed_at_update")
    journal._database.execute("UPDATE leases SET added_delay_s = 0.0")
    journal.close_file()

    outcome = sadvise("journal", "verify", "--journal", path)

    assert outcome.exit_code == 1
    assert outcome.out.splitlines()[0].startswith("whole   3 rows from number 1 on")
    assert outcome.out.splitlines()[1] == "broken  leases: rows were changed by another program"
    assert json.loads(sadvise("journal", "verify", "--json", "--journal", path).out)["verify"]["tables"] == ["leases"]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ((), 2),
        (("-j", "7"), 1),
        (("-j", "7,9"), 2),
        (("-j", "8"), 0),
        (("--since", "2027-01-15T07:59:30+00:00"), 1),
        (("--since", "2027-01-16"), 0),
        (("-n", "1"), 1),
    ],
)
def test_filters_narrow_what_is_shown(sadvise: Sadvise, path: str, arguments: tuple[str, ...], shown: int) -> None:
    outcome = sadvise("journal", "leases", "-P", "-h", "--journal", path, *arguments)

    assert outcome.exit_code == 0
    assert outcome.out.count("\n") == shown


def test_nothing_is_said_to_be_there(sadvise: Sadvise, path: str) -> None:
    assert sadvise("journal", "-j", "8", "--journal", path).out == "nothing of ours is out\n"
    assert sadvise("journal", "changes", "-j", "8", "--journal", path).out == "nothing is written down\n"


def test_instants_are_ago_or_on_a_day() -> None:
    assert instant_of("90s", 100.0) == 10.0
    assert instant_of("1.5h", 10_000.0) == 4_600.0
    assert instant_of(" 2w ", 0.0) == -1_209_600.0
    assert instant_of("2026-03-01T12:00", 0.0) == time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))
    for wrong in ("", "h", "2 h", "-1h", "1e9h", "٣h", "9999999999999"):
        with pytest.raises(ConfigError, match="--since"):
            instant_of(wrong, 0.0)
