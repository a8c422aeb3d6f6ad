"""What is shown of a journal to those who cannot read it."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Lever, SetNice
from advisor.domain.lease import Ending, Lease, LeaseState, Purpose
from advisor.domain.memory import Wait
from advisor.domain.probation import Trust
from advisor.domain.standings import standings_of
from advisor.domain.topology import LocalityTier
from advisor.errors import JournalError
from advisor.journal import SqliteJournal
from advisor.journal.disclosure import Disclosure, disclosure_of
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_job, make_stretch
from tests.fake_cluster import FakeCluster


def lease(job_id: int, user: str) -> Lease:
    action = SetNice(job_id=job_id, before=3, after=50)
    return Lease(
        action=action,
        undo=action.swapped(),
        applied_time=TAKEN_AT,
        due_time=TAKEN_AT + 600.0,
        state=LeaseState.OUT,
        user=user,
        added_delay_s=900.0,
    )


ALL = Disclosure(
    cluster="c",
    taken_at=TAKEN_AT,
    hides_jobs=True,
    leases=(lease(1, "alice"), lease(2, "bob"), lease(3, "")),
    waits=(Wait(gpus=8, tier=LocalityTier.LEAF, waited_s=60.0, got=True, ended_time=TAKEN_AT),),
    observed_until=TAKEN_AT,
    trust=Trust(proven=frozenset({"run_time 1"}), drifted=frozenset({"run_time 2"})),
    standings=standings_of(
        [
            replace(make_stretch(user="alice", waited_s=90.0), late=((1, TAKEN_AT - 60.0),)),
            make_stretch(anchor_time=TAKEN_AT + HOUR_S, user="bob"),
        ]
    ),
    purposes={
        (1, Lever.NICE): Purpose(reason="short_work_first", text="stands before 1 job (2)"),
        (2, Lever.NICE): Purpose(reason="short_work_first", text="stands before 1 job (1)"),
    },
)


def test_disclosure_comes_back_from_its_document() -> None:
    assert disclosure_of(ALL.to_json()) == ALL
    assert disclosure_of(ALL.of("alice").to_json()) == ALL.of("alice")


def test_part_of_a_user_names_no_job_of_others() -> None:
    part = ALL.of("alice")

    assert part.leases == (lease(1, "alice"),)
    assert part.purposes == {(1, Lever.NICE): Purpose(reason="short_work_first")}
    assert part.waits == ()
    assert part.standings.by_user.keys() == {"alice"}
    assert (part.standings.total, part.standings.by_account, part.standings.plain_start_by_job) == (None, {}, {})
    assert ALL.of("").leases == ()


def test_journal_of_a_disclosure_holds_what_the_journal_holds() -> None:
    over = replace(lease(4, "carol"), ending=Ending.TAKEN_BACK, ended_time=TAKEN_AT)
    ended = replace(ALL, leases=(*ALL.leases, over))

    journal = ended.journal()

    assert journal.leases() == ALL.leases
    assert [past.job_id for past in journal.closed((), since=0.0)] == [4]
    assert journal.waits(0.0) == ALL.waits
    assert journal.standings(0.0) == ALL.standings


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"[" * 100_000,
        b'{"schema": "sadvise.leases/9"}',
        ALL.to_json().replace(b'"Nice', b"").replace(b"nice", b"n"),
    ],
    ids=["nothing", "a list", "nested deeply", "of a later version", "an unknown lever"],
)
def test_anything_else_is_refused_in_one_line(content: bytes) -> None:
    with pytest.raises(JournalError, match=r"daemon"):
        disclosure_of(content)


def test_journal_knows_what_a_change_in_effect_is_for(tmp_path: Path) -> None:
    jobs = [
        make_job(900 + n, gpus=8, running_on=[f"n0{n}"], started_ago_s=0.0, time_limit_s=DAY_S) for n in range(1, 5)
    ]
    jobs += [make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S)]
    jobs += [make_job(10 + n, gpus=2, priority=900 - n, time_limit_s=HOUR_S) for n in range(6)]
    cluster = FakeCluster(jobs={job.job_id: job for job in jobs})
    journal = SqliteJournal(tmp_path / "journal.sqlite")

    Applier(source=cluster, actuator=cluster, cycle=Cycle(), journal=journal).step()

    purpose = journal.purposes(journal.leases())[10, Lever.NICE]
    assert purpose.reason == "short_work_first"
    assert purpose.text.startswith("It needs 0.4 GPU-hours and waits behind 1 job with")
    journal.close_file()
