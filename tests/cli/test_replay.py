"""`sadvise replay`: the same bytes, what differs, and what cannot be replayed, as the actions of earlier versions."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from advisor import cycle as cycle_module
from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Lever, SetNodeList
from advisor.domain.gang import GpuScope
from advisor.domain.lease import Ending
from advisor.domain.outcome import JobOutcome, SeenChange
from advisor.domain.plan import Plan
from advisor.journal import SqliteJournal, opened
from advisor.journal.rows import outcome_of, outcome_row
from tests.builders import HOUR_S, TAKEN_AT, gpu_counts, make_gang, make_hints, make_job, make_snapshot
from tests.cli.conftest import Sadvise
from tests.fake_cluster import FakeCluster, fragmented


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


SCRIPT = Path(__file__).parents[1] / "recorded" / "journal" / "removed-actions.sql"
# Its cycles: a place that was tried, named nodes, a stop to grow, the size of a restart, a stop for a gang.
TRY, NAMED, STOP_TO_GROW, SIZE, STOP_FOR_GANG = "12345"
REMOVED = [
    (TRY, "explore_place"),
    (STOP_TO_GROW, "restart_with_more_gpus"),
    (SIZE, "size_of_restart"),
    (STOP_FOR_GANG, "gang_needs_the_place"),
]


@pytest.fixture
def of_earlier_version(tmp_path: Path) -> Path:
    """Return the journal as that version left it."""
    of_earlier_version = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(of_earlier_version, isolation_level=None)) as database:
        database.executescript(SCRIPT.read_text())
    of_earlier_version.chmod(0o600)
    return of_earlier_version


def test_it_is_intact_and_leases_keep_their_reasons(of_earlier_version: Path) -> None:
    with opened(of_earlier_version) as journal:
        leases = journal.leases()
        purposes = journal.purposes(leases)
        verified = journal.verify()
        closed = journal.closed([3])

    assert verified.is_intact
    assert {lease.lever for lease in leases} == {Lever.NODE_LIST, Lever.GPU_COUNT}
    assert purposes[1, Lever.NODE_LIST].reason == "explore_place"
    # The stop of job 3 cannot be reverted: it is listed, and no lease.
    assert closed == ()


def test_nodes_of_a_try_and_size_of_a_restart_are_taken_back_when_they_are_due(of_earlier_version: Path) -> None:
    on_two = make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, required_nodes=("n01", "n02"))
    grown = make_job(3, gang=make_gang(8), reason="Resources", hints=make_hints(gpus=(1, 8)))
    cluster = FakeCluster(jobs={1: make_job(1, gang=on_two), 3: grown}, now=TAKEN_AT + HOUR_S)
    with opened(of_earlier_version) as journal:
        applier = Applier(source=cluster, actuator=cluster, cycle=Cycle(), journal=journal)

        applier.return_due(cluster.now)

        assert {(lease.job_id, lease.ending) for lease in journal.closed([1, 3])} == {
            (1, Ending.TAKEN_BACK),
            (3, Ending.TAKEN_BACK),
        }
    assert cluster.jobs[1].gang.required_nodes == ()
    assert cluster.jobs[3].gang.gpu_count == sum(gpus.count for gpus in gpu_counts(4))


@pytest.mark.parametrize(
    "arguments",
    [
        ("journal",),
        ("journal", "changes"),
        ("journal", "cycles"),
        ("journal", "audit"),
        ("report",),
        ("report", "--json"),
    ],
    ids=" ".join,
)
def test_commands_that_read_it_work(sadvise: Sadvise, of_earlier_version: Path, arguments: tuple[str, ...]) -> None:
    outcome = sadvise(*arguments, "--journal", str(of_earlier_version))

    assert (outcome.exit_code, outcome.err) == (0, "")


def test_changes_show_a_removed_reason_by_its_name(sadvise: Sadvise, of_earlier_version: Path) -> None:
    rows = sadvise("journal", "changes", "--journal", str(of_earlier_version), "--json").out

    assert all(reason in rows for _, reason in REMOVED)


@pytest.mark.parametrize(("cycle", "reason"), REMOVED)
def test_cycle_that_proposed_what_was_removed_is_not_planned_again(
    sadvise: Sadvise, of_earlier_version: Path, cycle: str, reason: str
) -> None:
    outcome = sadvise("replay", cycle, "--journal", str(of_earlier_version))

    assert outcome.exit_code == 1
    assert outcome.err == (
        f"sadvise: error: cycle {cycle} cannot be planned again: it proposed {reason}, which was removed: "
        "--with-config shows what would be planned today\n"
    )


@pytest.mark.parametrize(("cycle", "reason"), REMOVED)
def test_what_would_be_planned_today_is_shown_beside_it(
    sadvise: Sadvise, of_earlier_version: Path, cycle: str, reason: str
) -> None:
    outcome = sadvise("replay", cycle, "--with-config", "--json", "--journal", str(of_earlier_version))

    assert outcome.exit_code == 0
    assert reason in {difference["recorded"] for difference in json.loads(outcome.out)["differences"]}


def test_changes_list_the_stops_of_running_jobs(sadvise: Sadvise, of_earlier_version: Path) -> None:
    outcome = sadvise("journal", "changes", "--json", "--journal", str(of_earlier_version))

    stops = [row for row in json.loads(outcome.out)["changes"] if row["lever"] == "checkpoint_requeue"]
    assert [(row["job_id"], row["before"], row["after"]) for row in stops] == [
        (1, TAKEN_AT - 10 * HOUR_S, None),
        (1, TAKEN_AT - 2 * HOUR_S, None),
    ]
    assert all(row["job_ids"] == [1] for row in stops)


def test_other_cycles_are_planned_again_without_the_values_that_their_actions_had(
    sadvise: Sadvise, of_earlier_version: Path
) -> None:
    named = sadvise("replay", NAMED, "--json", "--journal", str(of_earlier_version))

    # The name of the policy is not recorded with its choices.
    assert {difference["what"] for difference in json.loads(named.out)["differences"]} == {
        "node_list evidence",
        "node_list text",
    }


def test_list_of_nodes_is_read_without_what_a_try_booked(of_earlier_version: Path) -> None:
    with SqliteJournal.read_only(of_earlier_version) as journal:
        (named,) = (lease.action for lease in journal.leases() if lease.lever is Lever.NODE_LIST)
        (ended,) = journal.outcomes(0.0)

    assert named == SetNodeList(job_id=1, before=(), after=("n01", "n02"))
    assert [change.reason for change in ended.changes] == ["explore_place"]


def test_outcome_is_read_without_the_stops_of_its_job() -> None:
    lift = SeenChange(lever=Lever.NICE, applied_time=1.0)
    _, _, _, text = outcome_row(JobOutcome(job_id=7, submit_time=0.0, changes=(lift, replace(lift, applied_time=2.0))))

    stopped = text.replace('"nice"', '"checkpoint_requeue"', 1).replace('"ending":null', '"ending":"done_for_good"', 1)

    assert outcome_of(stopped).changes == (replace(lift, applied_time=2.0),)
    with pytest.raises(ValueError, match="validation error"):
        outcome_of('["checkpoint_requeue"]')
