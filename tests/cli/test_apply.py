"""`sadvise apply` and `sadvise revert` without a cluster: options, the journal and its lock."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier, Wanted
from advisor.apply.step import OpenGate, Reconciled
from advisor.cycle import Cycle
from advisor.domain.actions import SetNice, SetNodeRange
from advisor.domain.lease import Ending, intended
from advisor.domain.mode import EVERYTHING
from advisor.domain.plan import Outcome, Receipt
from advisor.errors import JournalFullError
from advisor.journal import SqliteJournal, opened, opened_full
from advisor.settings import Limits
from advisor.site.pause_file import pause
from advisor.site.site_gate import RoundDeadline, SiteGate
from advisor.watch import changes
from advisor.watch.changes import COLUMNS, ChangeRows, DoneDocument, fields_of, refusal_of
from advisor.watch.reading import Reading
from tests.builders import make_job, make_snapshot
from tests.cli.conftest import Sadvise
from tests.fake_cluster import FakeCluster, fragmented, gang

NICE = SetNice(job_id=7, before=0, after=50)
# What the lines say of the job of the fake cluster, and of one that is gone.
JOB = "alice|job9|lab|gpu|9"
GONE = ["", "", "", "", "7"]
# While there is a file of this name, the disk of the journal counts as full.
FULL = "full"
DENIED = Receipt(action=NICE, outcome=Outcome.FAILED, text="Slurm denies it")


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "journal.sqlite")


@pytest.mark.parametrize("command", [("apply",), ("revert", "7")])
def test_second_applier_says_that_another_is_at_work(
    sadvise: Sadvise, journal: str, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "LOCK_WAIT_S", 0.1)

    with opened(Path(journal)):
        outcome = sadvise(*command, "--journal", journal)

    assert outcome.exit_code == 1
    assert outcome.err.endswith("another sadvise is changing jobs with it: wait until it is done\n")
    assert outcome.err.count("\n") == 1


def test_journal_file_comes_from_the_configuration(sadvise: Sadvise, tmp_path: Path) -> None:
    config = tmp_path / "sadvise.toml"
    config.write_text(f'[journal]\nfile = "{tmp_path}/gone/journal.sqlite"\n')

    assert f"{tmp_path}/gone/journal.sqlite: its folder" in sadvise("apply", "--config", str(config)).err
    assert (
        f"journal.file|{tmp_path}/gone/journal.sqlite|{config}"
        in sadvise("config", "show", "--config", str(config), "-P").out.splitlines()
    )


def test_without_slurm_nothing_is_written_down(
    sadvise: Sadvise, journal: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    outcome = sadvise("apply", "--journal", journal, "--source", "text")

    assert outcome.exit_code == 1
    assert "is not on PATH here" in outcome.err
    with opened(Path(journal)) as held:
        assert held.leases() == ()


def rows_on(cluster: str | None) -> ChangeRows:
    """What publishes changes of jobs that are gone."""
    return ChangeRows(seen=make_snapshot(), cluster=cluster)


def test_a_change_is_published_with_its_command() -> None:
    (row,) = rows_on("far").sent("applied", [Receipt(action=NICE, outcome=Outcome.APPLIED)])

    assert row == DoneDocument(
        job_id=7,
        job_ids=[7],
        lever="nice",
        done="applied",
        outcome="applied",
        text="",
        before=0,
        after=50,
        command=["scontrol", "-M", "far", "update", "JobId=7", "Nice=50"],
    )
    assert fields_of(row) == ["7", "nice", "applied", "applied", "", "scontrol -M far update JobId=7 Nice=50", *GONE]
    assert len(fields_of(row)) == len(COLUMNS)


def test_what_was_left_names_who_changed_it_and_the_command_that_would_take_it_back() -> None:
    lease = intended(NICE, 0.0)

    (row,) = rows_on(None).reconciled(Reconciled(overruled=(lease,)))

    assert (row.done, row.outcome) == ("hands_off", None)
    assert row.text == "somebody else has changed the field meanwhile"
    assert row.command == ["scontrol", "update", "JobId=7", "Nice=0"]
    assert rows_on(None).left("unsettled", [lease], "wait")[0].text == "wait"


@pytest.mark.parametrize(
    "text",
    [
        "the job is not pending",
        "somebody else has changed the field meanwhile",
    ],
)
def test_what_happens_to_a_job_meanwhile_is_no_error(text: str) -> None:
    assert refusal_of([Receipt(action=NICE, outcome=Outcome.FAILED, text=text)]) is None


def test_what_slurm_refused_is_one_line() -> None:
    refusal = refusal_of([Receipt(action=NICE, outcome=Outcome.APPLIED), DENIED])

    assert str(refusal) == "1 of 2 changes failed, the first on job 7: Slurm denies it"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeCluster]:
    """A cluster with a gang that should wait for one node, and a held job, in place of the live one."""
    cluster = fragmented(make_job(11, gpus=2, held=True, priority=0))
    journal = SqliteJournal(tmp_path / "kept.sqlite")

    @contextmanager
    def live_applier(
        _reading: Reading,
        _journal: Path | None,
        wanted: Wanted | None = None,
        *,
        gated: bool = True,
        full: bool = False,
    ) -> Iterator[Applier]:
        if (tmp_path / FULL).exists() and not full:
            raise JournalFullError("its disk is full")
        with opened_full(journal.path) if full else nullcontext(journal) as held:
            yield Applier(
                source=cluster,
                actuator=cluster,
                cycle=Cycle(),
                journal=held,
                named=cluster,
                wanted=wanted,
                gate=gate if gated else OpenGate(),
            )

    gate = SiteGate(runtime_folder=tmp_path, modes=EVERYTHING, patience=RoundDeadline())
    monkeypatch.setattr(changes, "live_applier", live_applier)
    yield cluster
    journal.close_file()


def test_json_tells_what_was_applied_and_which_rule_left_others_alone(sadvise: Sadvise, cluster: FakeCluster) -> None:
    outcome = sadvise("apply", "--json")

    document = json.loads(outcome.out)
    assert outcome.exit_code == 0
    assert (document["meta"]["schema"], document["meta"]["source"]) == ("sadvise.apply/1", "fake")
    assert [(row["job_id"], row["done"], row["outcome"]) for row in document["changes"]] == [(9, "applied", "applied")]
    assert document["skipped"] == [{"job_id": 11, "rule": "not_held"}]


def test_revert_works_on_a_full_disk_and_the_journal_learns_of_it_when_there_is_room(
    sadvise: Sadvise, cluster: FakeCluster, tmp_path: Path
) -> None:
    before = dict(cluster.jobs)
    sadvise("apply")
    with opened(tmp_path / "kept.sqlite") as journal:
        assert [lease.job_id for lease in journal.leases()] == [9]
    (tmp_path / FULL).touch()

    reverted = sadvise("revert", "--all", "-P", "-h")
    again = sadvise("revert", "--all", "-P", "-h")
    (tmp_path / FULL).unlink()

    assert reverted.out == f"9|node_range|taken_back|applied||scontrol update JobId=9 NumNodes=1-4|{JOB}\n"
    assert again.out == "" and cluster.jobs == before
    with opened(tmp_path / "kept.sqlite") as journal:
        assert [lease.ending for lease in journal.closed([9])] == [Ending.REVERTED]


def test_what_is_due_is_reverted_when_the_queue_cannot_be_read(sadvise: Sadvise, cluster: FakeCluster) -> None:
    before = dict(cluster.jobs)
    sadvise("apply")
    cluster.now += 30 * 86_400.0
    cluster.unreadable = "squeue prints what cannot be read"

    outcome = sadvise("apply", "-P", "-h")

    assert outcome.out == f"9|node_range|taken_back|applied||scontrol update JobId=9 NumNodes=1-4|{JOB}\n"
    assert outcome.err == "sadvise: error: squeue prints what cannot be read; reverted 1 of 1 due change\n"
    assert outcome.exit_code == 1 and cluster.jobs == before
    assert cluster.read_by_id[-1] == {9}


def test_json_has_what_was_reverted_when_the_queue_cannot_be_read(sadvise: Sadvise, cluster: FakeCluster) -> None:
    sadvise("apply")
    cluster.now += 30 * 86_400.0
    cluster.unreadable = "squeue prints what cannot be read"

    document = json.loads(sadvise("apply", "--json").out)

    assert document["meta"]["schema"] == "sadvise.apply/1"
    assert [(row["job_id"], row["done"], row["outcome"]) for row in document["changes"]] == [
        (9, "taken_back", "applied")
    ]
    assert document["skipped"] == []


def test_nothing_due_is_the_error_alone_when_the_queue_cannot_be_read(sadvise: Sadvise, cluster: FakeCluster) -> None:
    cluster.unreadable = "squeue prints what cannot be read"
    without_lease = sadvise("apply")
    read_without_lease = list(cluster.read_by_id)
    cluster.unreadable = ""
    sadvise("apply")
    cluster.unreadable = "squeue prints what cannot be read"

    not_due = sadvise("apply", "--json")

    assert (without_lease.out, not_due.out) == ("", "")
    assert without_lease.err == not_due.err == "sadvise: error: squeue prints what cannot be read\n"
    assert read_without_lease == [] and cluster.jobs[9].gang.nodes_max == 1


def test_what_is_due_and_cannot_be_reverted_is_in_the_error(sadvise: Sadvise, cluster: FakeCluster) -> None:
    sadvise("apply")
    cluster.now += 30 * 86_400.0
    cluster.unreadable = "squeue prints what cannot be read"
    cluster.failing = {SetNodeRange: "Slurm denies it"}
    denied = sadvise("apply", "-P", "-h")
    cluster.unreachable = True

    unreachable = sadvise("apply", "-P", "-h")

    assert denied.out.startswith("9|node_range|taken_back|failed|Slurm denies it|")
    assert denied.err == "sadvise: error: squeue prints what cannot be read; reverted 0 of 1 due change\n"
    assert unreachable.err == (
        "sadvise: error: squeue prints what cannot be read; what is due, if anything, was not reverted: no answer\n"
    )


def test_apply_reverts_what_is_due_on_a_full_disk(sadvise: Sadvise, cluster: FakeCluster, tmp_path: Path) -> None:
    before = dict(cluster.jobs)
    sadvise("apply")
    with opened(tmp_path / "kept.sqlite") as journal:
        assert [lease.job_id for lease in journal.leases()] == [9]
    cluster.now += 30 * 86_400.0
    (tmp_path / FULL).touch()

    outcome = sadvise("apply", "-P", "-h")

    assert outcome.out == f"9|node_range|taken_back|applied||scontrol update JobId=9 NumNodes=1-4|{JOB}\n"
    assert outcome.err == "sadvise: error: its disk is full; reverted 1 of 1 due change\n"
    assert outcome.exit_code == 1 and cluster.jobs == before


def test_people_get_a_table_and_the_rules(sadvise: Sadvise, cluster: FakeCluster) -> None:
    first, second = sadvise("apply").out.splitlines(), sadvise("apply").out.splitlines()

    assert first[0].split() == list(COLUMNS)
    assert first[1].split() == [
        "9",
        "node_range",
        "applied",
        "applied",
        "scontrol",
        "update",
        "JobId=9",
        "NumNodes=1-1",
        *JOB.split("|"),
    ]
    assert first[2] == "left alone  1 not_held (rules: docs/reasons.md)"
    assert second == [
        "nothing to apply and nothing to take back",
        "left alone  1 no_change_outstanding, 1 not_held (rules: docs/reasons.md)",
    ]


def test_revert_says_what_the_daemon_does_next(sadvise: Sadvise, cluster: FakeCluster) -> None:
    sadvise("apply")

    last = sadvise("revert", "--all").out.splitlines()[-1]

    assert last.startswith("next    a daemon in mode apply leaves these jobs alone")
    assert "more than 3 jobs" in last and "`sadvise acknowledge people_object`" in last


def test_lines_are_the_changes_alone(sadvise: Sadvise, cluster: FakeCluster) -> None:
    assert sadvise("apply", "-P").out == (
        f"{'|'.join(COLUMNS)}\n9|node_range|applied|applied||scontrol update JobId=9 NumNodes=1-1|{JOB}\n"
    )
    assert sadvise("revert", "9", "-P", "-h").out == (
        f"9|node_range|taken_back|applied||scontrol update JobId=9 NumNodes=1-4|{JOB}\n"
    )


def test_filters_say_which_jobs_get_changes(sadvise: Sadvise, cluster: FakeCluster) -> None:
    wrong, unknown = sadvise("apply", "-p", "nowhere"), sadvise("apply", "-u", "nosuch")

    assert "-p 'nowhere' is not a partition of this cluster" in wrong.err
    assert (unknown.exit_code, unknown.out) == (1, "") and "'nosuch'" in unknown.err
    assert cluster.sent == []


def test_what_slurm_refuses_is_in_the_table_and_the_exit_code(sadvise: Sadvise, cluster: FakeCluster) -> None:
    cluster.failing = {SetNodeRange: "Slurm denies it"}

    outcome = sadvise("apply")

    assert outcome.exit_code == 1
    assert "failed   Slurm denies it" in outcome.out
    assert outcome.err == "sadvise: error: 1 of 1 change failed, the first on job 9: Slurm denies it\n"


def test_what_our_own_rules_refuse_is_named(
    sadvise: Sadvise, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    capped = Applier(source=cluster, actuator=cluster, cycle=Cycle(limits=Limits(max_changes=0)))
    monkeypatch.setattr(changes, "live_applier", lambda *_: nullcontext(capped))

    document = json.loads(sadvise("apply", "--json").out)

    assert [(row["done"], row["text"], row["outcome"]) for row in document["changes"]] == [
        ("refused", "changes_within_cap", None)
    ]
    assert cluster.sent == []


def test_what_a_person_took_back_is_not_applied_again(sadvise: Sadvise, cluster: FakeCluster) -> None:
    sadvise("apply")
    reverted = json.loads(sadvise("revert", "--all", "--json").out)
    again = json.loads(sadvise("apply", "--json").out)

    assert reverted["meta"]["schema"] == "sadvise.revert/1"
    assert [(row["job_id"], row["done"]) for row in reverted["changes"]] == [(9, "taken_back")]
    assert again["changes"] == []
    assert {row["rule"] for row in again["skipped"] if row["job_id"] == 9} == {"no_person_objected"}
    assert cluster.jobs[9].gang.nodes_max == 4


def test_revert_names_what_others_changed(sadvise: Sadvise, cluster: FakeCluster) -> None:
    sadvise("apply")
    cluster.jobs[9] = gang(nodes_max=2)
    theirs = json.loads(sadvise("revert", "9", "--json").out)

    assert [(row["job_id"], row["done"]) for row in theirs["changes"]] == [(9, "hands_off")]
    assert cluster.jobs[9].gang.nodes_max == 2
    assert sadvise("revert", "9").out.splitlines()[1].startswith("9       node_range  hands_off")


def test_revert_says_what_may_still_take_effect(sadvise: Sadvise, cluster: FakeCluster) -> None:
    cluster.unreachable = True
    lost = sadvise("apply")
    cluster.unreachable = False

    (row,) = json.loads(sadvise("revert", "--all", "--json").out)["changes"]

    assert (lost.exit_code, lost.err) == (1, "sadvise: error: no answer\n")
    assert row["done"] == "unsettled"
    assert row["text"].endswith("run this again in a few minutes")


def test_revert_says_when_nothing_is_out(sadvise: Sadvise, cluster: FakeCluster) -> None:
    assert sadvise("revert", "--all").out == "nothing of ours is out\n"
    assert sadvise("revert", "7").out == "nothing of ours is out on these jobs\n"


def test_lifts_that_the_journal_does_not_know_are_named_and_reverted_by_their_mark(
    sadvise: Sadvise, cluster: FakeCluster, tmp_path: Path
) -> None:
    for job_id, nice in ((9, -1007), (90, 137)):
        cluster.jobs[job_id] = replace(cluster.jobs[job_id], nice=nice)

    named = sadvise("revert", "--all")
    document = json.loads(sadvise("revert", "9", "--json").out)
    reverted = sadvise("revert", "--strays")
    again = sadvise("revert", "--strays")

    assert named.exit_code == 1 and "nothing of ours" not in named.out
    assert named.out.splitlines() == [
        "stray   job 9: nice -1007 carries the mark of sadvise; the journal knows no change of it",
        "stray   job 90: nice 137 carries the mark of sadvise; the journal knows no change of it",
    ]
    assert "(9): `sadvise revert --strays`" in named.err
    assert [(row["job_id"], row["lever"]) for row in document["strays"]] == [(9, "nice")]
    assert reverted.exit_code == again.exit_code == 0
    assert (cluster.jobs[9].nice, cluster.jobs[90].nice) == (0, 137)
    with opened(tmp_path / "kept.sqlite") as journal:
        assert [lease.ending for lease in journal.closed([9])] == [Ending.TAKEN_BACK]


def test_a_nice_that_a_user_can_have_set_is_reverted_where_its_job_is_named(
    sadvise: Sadvise, cluster: FakeCluster
) -> None:
    cluster.jobs[90] = replace(cluster.jobs[90], nice=137)

    listed = sadvise("revert", "--all")
    reverted = json.loads(sadvise("revert", "--strays", "90", "--json").out)

    assert listed.exit_code == 0 and listed.out.startswith("stray   job 90")
    assert [(row["job_id"], row["outcome"]) for row in reverted["changes"]] == [(90, "applied")]
    assert cluster.jobs[90].nice == 0


def test_a_queue_that_cannot_be_read_keeps_nothing_from_being_reverted_and_strays_are_not_looked_for(
    sadvise: Sadvise, cluster: FakeCluster
) -> None:
    sadvise("apply")
    cluster.unreadable = "squeue prints what cannot be read"

    reverted = sadvise("revert", "--all")

    assert reverted.exit_code == 0 and "9       node_range  taken_back" in reverted.out
    assert reverted.out.splitlines()[-1] == "strays  not looked for: the queue cannot be read"


def test_what_applies_also_learns_from_the_jobs_that_started(journal: str) -> None:
    reading = Reading(snapshot=None, demo=True, source=None, cluster=None, timeout_s=None, config=None)

    with changes.live_applier(reading, Path(journal)) as at_work:
        seen = at_work.source.snapshot()
        at_work._learn(seen)

        assert at_work.journal.observed_until() == seen.taken_at


def test_a_pause_that_freezes_holds_back_what_is_applied_and_not_what_is_reverted(
    sadvise: Sadvise, cluster: FakeCluster, tmp_path: Path
) -> None:
    sadvise("apply")
    cluster.now += 30 * 86_400.0
    pause(tmp_path, by="ada", reason="", freeze=True)

    held = json.loads(sadvise("apply", "--json").out)["changes"]
    reverted = json.loads(sadvise("revert", "--all", "--json").out)["changes"]

    assert [(row["done"], row["text"]) for row in held] == [
        ("put_off", "paused: paused, and what is due stays, by ada")
    ]
    assert [(row["done"], row["outcome"]) for row in reverted] == [("taken_back", "applied")]
