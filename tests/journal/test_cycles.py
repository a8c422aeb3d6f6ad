"""What the journal tells of past cycles: proposals, receipts, outcomes, and how long it keeps them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.apply.applier import Applier
from advisor.apply.step import Reconciled, Step
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever, SetNice, SetNodeRange, SetTimeMin
from advisor.domain.job import Job
from advisor.domain.lease import Ending, intended
from advisor.domain.load import Allowance
from advisor.domain.outcome import Arm, JobOutcome, SeenChange
from advisor.domain.plan import LeverProposals, Outcome, Receipt, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import HOUR_S
from advisor.errors import JournalError
from advisor.journal import SqliteJournal, store
from advisor.journal.cycle_record import Recorder
from advisor.journal.differences import Difference, difference, mapped, restored
from advisor.journal.views import Done, PastChange, RowQuery
from advisor.settings import JournalSettings, Limits
from tests.builders import TAKEN_AT, make_job, make_snapshot
from tests.fake_cluster import HOLD, FakeCluster, fragmented

DAY_S = 86_400.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    retention = JournalSettings(keep_days=1.0, records_mib=1.0)
    with SqliteJournal(tmp_path / "journal.sqlite", retention=retention) as journal:
        yield journal


def done(journal: SqliteJournal, looked: RowQuery | None = None) -> list[tuple[int | None, int, Done, str]]:
    """What was said and done, newest first."""
    changes = journal.changes(looked or RowQuery())
    return [(change.cycle_id, change.job_id, change.done, change.said) for change in changes]


def judged(cluster: FakeCluster, cycle: Cycle | None = None) -> CycleRecord:
    return (cycle or Cycle()).judge(cluster.snapshot())


class Closed:
    """A gate through which nothing passes."""

    def against_change(self, change: Recommendation, job: Job) -> str | None:  # noqa: ARG002
        """Hold a change back."""
        return "paused by al\nice"

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:  # noqa: ARG002  (the protocol's)
        """Leave room for all."""
        return Allowance(changes=wanted)

    def against_return(self, lease: object) -> str | None:  # noqa: ARG002
        """Hold a return back."""
        return "paused by al\nice"


def applied_with(journal: SqliteJournal, applier: Applier) -> int:
    """Run one step as the daemon does, and return the number of its cycle."""
    replace(applier, journal=journal).step()
    return journal.cycles(RowQuery())[0].cycle_id


def test_a_step_is_told_from_the_proposal_to_the_receipt(journal: SqliteJournal) -> None:
    cluster = fragmented(make_job(11, gpus=2, held=True, priority=0))

    number = applied_with(journal, Applier(source=cluster, actuator=cluster, cycle=Cycle()))

    (receipt, proposal) = journal.changes(RowQuery())
    assert receipt == PastChange(
        cycle_id=number,
        time=TAKEN_AT,
        job_id=9,
        lever="node_range",
        done=Done.APPLIED,
        action=HOLD,
        said="",
    )
    assert (proposal.done, proposal.action) == (Done.RECOMMENDED, HOLD)
    assert proposal.said.endswith("(node_worth_waiting)")
    (cycle,) = journal.cycles(RowQuery())
    assert (cycle.cycle_id, cycle.taken_at, cycle.jobs, cycle.pending) == (number, TAKEN_AT, 7, 3)
    assert (cycle.proposed, cycle.recommended, cycle.left_alone, cycle.applied, cycle.held_back) == (1, 1, 1, 1, 0)
    assert cycle.record_bytes and cycle.note == "" and len(cycle.digest) == 64


def test_what_was_refused_is_told_with_the_rule(journal: SqliteJournal) -> None:
    capped = Cycle(limits=Limits(max_changes=0))

    journal.record(judged(fragmented(), capped), capped)

    assert done(journal) == [(1, 9, Done.REFUSED, "changes_within_cap")]


def test_levers_are_counted_by_job_with_the_rules_that_refused_them(journal: SqliteJournal) -> None:
    with journal._writing():
        journal._add_changes(
            None,
            TAKEN_AT,
            [
                (SetNice(job_id=job_id, before=0, after=-9), done, said)
                for job_id, done, said in (
                    (1, Done.RECOMMENDED, "it should start next (short_work_first)"),
                    (1, Done.APPLIED, ""),
                    (2, Done.REFUSED, "cooled_down"),
                    (2, Done.REFUSED, "cooled_down"),
                    (2, Done.REFUSED, "nice_within_limits"),
                    (3, Done.REFUSED, "cooled_down"),
                )
            ],
        )

    by_lever = {made.lever: made for made in journal.proposals(TAKEN_AT - 1.0)}

    assert by_lever.keys() == set(Lever)
    assert by_lever[Lever.NICE] == LeverProposals(
        lever=Lever.NICE, proposed=3, refused={"cooled_down": 2, "nice_within_limits": 1}, applied=1
    )
    assert by_lever[Lever.NODE_RANGE] == LeverProposals(lever=Lever.NODE_RANGE, proposed=0, refused={}, applied=0)
    assert not any(made.proposed for made in journal.proposals(TAKEN_AT))


def test_what_slurm_refused_is_told_in_its_words(journal: SqliteJournal) -> None:
    cluster = fragmented()
    cluster.failing = {SetNodeRange: "Invalid |job\x1b id"}

    applied_with(journal, Applier(source=cluster, actuator=cluster, cycle=Cycle()))

    assert done(journal)[0] == (1, 9, Done.FAILED, "Invalid |job\x1b id")
    assert journal.cycles(RowQuery())[0].applied == 0


def test_what_stands_is_told_once(journal: SqliteJournal) -> None:
    cluster = fragmented()
    held = Applier(source=cluster, actuator=cluster, cycle=Cycle(), gate=Closed())

    first, second = applied_with(journal, held), applied_with(journal, held)

    assert done(journal) == [
        (first, 9, Done.HELD_BACK, "paused by al\nice"),
        (first, 9, Done.RECOMMENDED, done(journal)[1][3]),
    ]
    assert [cycle.held_back for cycle in journal.cycles(RowQuery())] == [1, 1]
    assert second == first + 1


def test_what_was_taken_back_and_what_was_not_is_told(journal: SqliteJournal) -> None:
    back, soft = HOLD.swapped(), SetTimeMin(job_id=10, before=None, after=1800.0)
    reconciled = Reconciled(
        taken_back=(
            Receipt(action=back, outcome=Outcome.APPLIED),
            Receipt(action=soft.swapped(), outcome=Outcome.FAILED, text="Slurm denies it"),
        ),
        overruled=(intended(replace(HOLD, job_id=11), TAKEN_AT),),
        put_off=(Receipt(action=replace(back, job_id=12), outcome=Outcome.HELD_BACK, text="no request left"),),
    )
    expected = [
        (12, Done.NOT_TAKEN_BACK, "no request left"),
        (10, Done.NOT_TAKEN_BACK, "Slurm denies it"),
        (11, Done.OVERRULED, ""),
        (9, Done.TAKEN_BACK, ""),
    ]

    journal.returns(TAKEN_AT, reconciled)
    outside = done(journal)
    record = judged(fragmented())
    journal.receipts(journal.record(record, Cycle()), Step(record=record, reconciled=reconciled, applied=()))

    assert [row[1:] for row in outside] == expected and {row[0] for row in outside} == {None}
    assert [row[1:] for row in done(journal) if row[0] == 1 and row[2] is not Done.RECOMMENDED] == expected


def test_change_made_outside_of_any_cycle_is_told_with_its_purpose(journal: SqliteJournal) -> None:
    journal.adopted(TAKEN_AT, [HOLD, replace(HOLD, job_id=10)], "It is short. [newcomer]")

    changes = journal.changes(RowQuery())
    assert [(change.cycle_id, change.job_id, change.done) for change in changes] == [
        (None, job_id, what) for job_id in (10, 9) for what in (Done.APPLIED, Done.RECOMMENDED)
    ]
    assert {(change.time, change.said) for change in changes} == {(TAKEN_AT, "It is short. [newcomer]")}


def test_cycles_and_changes_are_those_asked_for(journal: SqliteJournal) -> None:
    for number in range(3):
        seen = replace(fragmented().snapshot(), taken_at=TAKEN_AT + number)
        journal.record(Cycle().judge(seen), Cycle())
    journal.returns(TAKEN_AT + 5.0, Reconciled(taken_back=(Receipt(action=HOLD, outcome=Outcome.APPLIED),)))

    assert [cycle.cycle_id for cycle in journal.cycles(RowQuery(most=2))] == [3, 2]
    assert [cycle.cycle_id for cycle in journal.cycles(RowQuery(since=TAKEN_AT + 1.0))] == [3]
    assert [cycle.cycle_id for cycle in journal.cycles(RowQuery(job_ids=(9, 10)))] == [1]
    assert journal.cycles(RowQuery(job_ids=(10,))) == ()
    assert journal.changes(RowQuery(job_ids=(10,))) == ()
    assert [row[2] for row in done(journal, RowQuery(job_ids=(9,), since=TAKEN_AT))] == [Done.TAKEN_BACK]
    assert journal.changes(RowQuery(job_ids=())) == ()


def test_cycle_that_proposed_nothing_is_told_and_not_kept_whole(journal: SqliteJournal) -> None:
    number = journal.record(Cycle().judge(make_snapshot([make_job()])), Cycle())

    (cycle,) = journal.cycles(RowQuery())
    assert (cycle.record_bytes, cycle.note) == (0, "nothing was proposed")
    with pytest.raises(JournalError, match=f"cycle {number} is not recorded in full: nothing was proposed"):
        journal.recorded(number)
    with pytest.raises(JournalError, match="no cycle is recorded in full"):
        journal.recorded()
    with pytest.raises(JournalError, match="there is no cycle 77: list the cycles with `sadvise journal"):
        journal.recorded(77)


def test_cycles_with_waiting_gpu_jobs_and_the_next_are_kept_whole_on_request(journal: SqliteJournal) -> None:
    journal.keeps_waits = True

    for snapshot in (make_snapshot(), make_snapshot([make_job()]), make_snapshot(), make_snapshot()):
        journal.record(Cycle().judge(snapshot), Cycle())

    assert [cycle.record_bytes > 0 for cycle in journal.cycles(RowQuery())] == [False, True, True, False]


def test_one_cycle_with_waiting_gpu_jobs_in_three_hours_is_kept_whole_on_request(journal: SqliteJournal) -> None:
    journal.keeps_polls = True

    for hours in (0.0, 2.9, 3.0, 5.0, 6.1, 1.0):
        journal.record(Cycle().judge(at_hour(hours)), Cycle())

    assert journal.recorded_times() == tuple(
        (number, TAKEN_AT + hours * HOUR_S) for number, hours in ((1, 0.0), (3, 3.0), (5, 6.1), (6, 1.0))
    )


def test_cycles_without_waiting_gpu_jobs_are_no_polls(journal: SqliteJournal) -> None:
    journal.keeps_polls = True

    journal.record(Cycle().judge(make_snapshot()), Cycle())
    journal.record(Cycle().judge(make_snapshot([make_job()])), Cycle())

    assert journal.recorded_ids(9) == (2,)


def test_journal_that_is_opened_again_keeps_no_poll_before_its_time(journal: SqliteJournal) -> None:
    journal.keeps_polls = True
    journal.record(Cycle().judge(at_hour(0.0)), Cycle())

    with SqliteJournal(journal.path) as again:
        again.keeps_polls = True
        for hours in (1.0, 3.5):
            again.record(Cycle().judge(at_hour(hours)), Cycle())

    assert journal.recorded_ids(9) == (1, 3)


def test_outcomes_of_jobs_are_those_that_ended_and_those_that_did_not(journal: SqliteJournal) -> None:
    ended, running, other = (
        JobOutcome(job_id=1, submit_time=5.0, end_time=9.0, last_seen_time=8.0),
        JobOutcome(job_id=1, submit_time=10.0, start_time=11.0),
        JobOutcome(job_id=2, submit_time=1.0),
    )
    journal.keep_outcomes([running, other, ended])

    assert journal.outcomes_of([3, 1, 1]) == (ended, running)
    assert journal.outcomes_of([]) == ()


def at_hour(hours: float) -> Snapshot:
    """Return a queue with one pending GPU job, some hours later."""
    return make_snapshot([make_job()], taken_at=TAKEN_AT + hours * HOUR_S)


def test_text_that_is_not_unicode_costs_the_record_and_not_the_cycle(journal: SqliteJournal) -> None:
    strange, plain = fragmented(make_job(11, name="\udc80")), fragmented()

    journal.record(judged(plain), Cycle())
    journal.record(judged(strange), Cycle())
    third = journal.record(judged(plain), Cycle())

    assert [cycle.record_bytes > 0 for cycle in journal.cycles(RowQuery())] == [True, False, True]
    assert journal.cycles(RowQuery())[1].note == "a text of it is not Unicode"
    assert journal.recorded().cycle_id == third


def test_record_that_could_not_be_written_does_not_spoil_the_next(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The third is to stand by itself, and is the one that cannot be written.
    monkeypatch.setattr("advisor.journal.cycle_record.RECORDS_IN_FRAME", 2)
    cluster = fragmented()
    for _ in range(2):
        journal.record(judged(cluster), Cycle())
    (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
    journal._database.execute(f"PRAGMA max_page_count = {pages}")
    crowd = make_snapshot(
        [*cluster.jobs.values(), *(make_job(100 + number, name=f"{number}" * 9) for number in range(3000))]
    )

    with pytest.raises(JournalError, match="cannot grow: its disk is full"):
        journal.record(Cycle().judge(crowd), Cycle(), whole=True)
    journal._database.execute("PRAGMA max_page_count = 1000000")
    last = journal.record(judged(cluster), Cycle())

    assert [cycle.cycle_id for cycle in journal.cycles(RowQuery())] == [last, 2, 1]
    assert journal.recorded(last).snapshot == cluster.snapshot()
    assert journal.recorded(1).snapshot == cluster.snapshot()


@pytest.mark.parametrize(("in_frame", "frames"), [(1, [1, 2, 3, 4, 5]), (2, [1, 1, 3, 3, 5]), (3, [1, 1, 1, 4, 4])])
def test_frame_has_so_many_records(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, in_frame: int, frames: list[int]
) -> None:
    monkeypatch.setattr("advisor.journal.cycle_record.RECORDS_IN_FRAME", in_frame)

    for _ in range(5):
        journal.record(judged(fragmented()), Cycle())

    assert [frame for (frame,) in journal._database.execute("SELECT frame FROM records ORDER BY cycle_id")] == frames


@pytest.mark.parametrize("in_frame", [1, 2])
def test_records_give_way_when_there_is_no_room(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch, in_frame: int
) -> None:
    monkeypatch.setattr("advisor.journal.cycle_record.RECORDS_IN_FRAME", in_frame)
    journal._retention = JournalSettings(keep_days=1.0, records_mib=0.003)

    for _ in range(9):
        journal.record(judged(fragmented()), Cycle())

    kept = [cycle.cycle_id for cycle in journal.cycles(RowQuery()) if cycle.record_bytes]
    assert kept[0] == 9 and 0 < len(kept) < 9
    assert (kept[-1] - 1) % in_frame == 0, "a frame goes with what follows from it"
    with pytest.raises(JournalError, match="cycle 1 is not recorded in full: its record was deleted to make room"):
        journal.recorded(1)
    assert journal.recorded(kept[-1]).cycle_id == kept[-1]


def test_old_cycles_are_pruned_with_what_they_said(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LEAST_KEPT", 0)
    monkeypatch.setattr(Recorder, "written", Recorder.forget)
    for number in range(3):
        seen = replace(fragmented().snapshot(), taken_at=TAKEN_AT + number * DAY_S)
        journal.record(Cycle().judge(seen), Cycle())
    journal.returns(TAKEN_AT + 2 * DAY_S, Reconciled(taken_back=(Receipt(action=HOLD, outcome=Outcome.APPLIED),)))
    journal.keep_outcomes([outcome(1, end_time=TAKEN_AT), outcome(2, end_time=TAKEN_AT + 2 * DAY_S), outcome(3)])

    journal.prune(TAKEN_AT + 2.5 * DAY_S)

    assert [cycle.cycle_id for cycle in journal.cycles(RowQuery())] == [3]
    assert [row[2] for row in done(journal)] == [Done.TAKEN_BACK, Done.REFUSED], "the proposal was two days old"
    assert [each.job_id for each in (*journal.outcomes(0.0), *journal.open_outcomes())] == [2, 3]
    assert journal.path.with_name("journal.sqlite-wal").stat().st_size == 0
    journal.prune(TAKEN_AT + 99 * DAY_S)
    assert [cycle.cycle_id for cycle in journal.cycles(RowQuery())] == [3], "the newest whole cycle stays"


def test_newest_ten_thousand_changes_stay_at_any_age(journal: SqliteJournal) -> None:
    receipts = [Receipt(action=replace(HOLD, job_id=number), outcome=Outcome.APPLIED) for number in range(10_003)]
    journal.returns(TAKEN_AT, Reconciled(taken_back=tuple(receipts)))

    journal.prune(TAKEN_AT + 99 * DAY_S)

    kept = journal.changes(RowQuery(most=20_000))
    assert len(journal.changes(RowQuery())) == 50
    assert (len(kept), kept[-1].job_id) == (10_000, 3)


def outcome(job_id: int, *, end_time: float | None = None, submit_time: float = TAKEN_AT - 60.0) -> JobOutcome:
    change = SeenChange(lever=Lever.NICE, applied_time=TAKEN_AT, ending=Ending.TAKEN_BACK, ended_time=TAKEN_AT + 1.0)
    return JobOutcome(
        job_id=job_id,
        submit_time=submit_time,
        end_time=end_time,
        user="al\nice",
        arm=Arm.TREATED,
        changes=(change,),
    )


def test_outcomes_are_kept_by_job_and_submit_time(journal: SqliteJournal) -> None:
    again = outcome(1, end_time=TAKEN_AT + 5.0)
    other = outcome(1, submit_time=TAKEN_AT)

    journal.keep_outcomes([outcome(1), outcome(2, end_time=TAKEN_AT + 1.0), other])
    journal.keep_outcomes([again])

    assert journal.open_outcomes() == (other,)
    assert journal.outcomes(0.0) == (outcome(2, end_time=TAKEN_AT + 1.0), again)
    assert journal.outcomes(TAKEN_AT + 1.0) == (again,)
    assert journal.outcomes(0.0, most=1) == (again,)


def test_outcome_that_makes_no_sense_is_refused(journal: SqliteJournal) -> None:
    journal.keep_outcomes([outcome(1)])
    journal._database.execute("UPDATE outcomes SET outcome = '{}'")

    with pytest.raises(JournalError, match="is damaged"):
        journal.open_outcomes()


def test_recorded_cycles_are_those_read_one_by_one_across_frames(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.journal.cycle_record.RECORDS_IN_FRAME", 3)
    for number in range(8):
        seen = replace(fragmented().snapshot(), taken_at=TAKEN_AT + number)
        journal.record(Cycle().judge(seen), Cycle())

    ids = journal.recorded_ids(5)

    assert ids == (4, 5, 6, 7, 8)
    assert list(journal.recorded_cycles(ids)) == [journal.recorded(number) for number in ids]
    assert [whole.cycle_id for whole in journal.recorded_cycles([2, 99])] == [2]


ITEMS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=8)


@given(earlier=ITEMS, later=ITEMS)
def test_later_list_comes_back(earlier: list[tuple[int, int]], later: list[tuple[int, int]]) -> None:
    found = difference(earlier, later, lambda item: item[0])

    assert restored(earlier, found) == tuple(later)


def test_only_what_changed_is_told() -> None:
    earlier = [[1, "a"], [2, "b"], [3, "c"], [4, "d"]]

    found = difference(earlier, [[1, "a"], [3, "C"], [4, "d"], [5, "e"]], lambda item: item[0])

    assert found == Difference(dropped=(1,), changed=((2, [3, "C"]),), added=([5, "e"],))
    assert mapped(found, lambda item: item[1]) == Difference(dropped=(1,), changed=((2, "C"),), added=("e",))


def test_another_order_is_told() -> None:
    found = difference(["a", "b"], ["c", "b", "a"], lambda item: item)

    assert found == Difference(added=("c",), order=(2, 1, 0))


@pytest.mark.parametrize("found", [Difference(changed=((3, "x"),)), Difference(order=(1, 9), added=("x",))])
def test_difference_to_another_list_is_refused(found: Difference[str]) -> None:
    with pytest.raises(ValueError, match="does not follow"):
        restored(["a", "b"], found)
