"""A full disk: what is reverted then stands in the reserve, and the journal adopts it once there is room."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Lever, SetNice
from advisor.domain.lease import Ending, Lease, LeaseState, Purpose, intended
from advisor.domain.memory import Wait
from advisor.domain.probation import Trust
from advisor.domain.standings import standings_of
from advisor.domain.topology import LocalityTier
from advisor.errors import ConfigError, JournalError, JournalFullError
from advisor.journal import SqliteJournal, opened, opened_full
from advisor.journal.disclosure import Disclosure, disclosure_of
from advisor.journal.reserve import Reserve
from advisor.journal.rows import lease_row
from advisor.journal.views import Done, RowQuery
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_job, make_stretch
from tests.fake_cluster import FakeCluster
from tests.journal.contract import NICE, NOW

SIZE_BYTES = 128 * 1024  # as docs/journal.md has it


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def out(job_id: int, user: str = "alice") -> Lease:
    """Return a change that is out."""
    return replace(intended(replace(NICE, job_id=job_id), NOW), state=LeaseState.OUT, user=user)


def filled(path: Path, *leases: Lease) -> None:
    """Write open leases into a journal."""
    with opened(path) as journal:
        journal.claim("here")
        for lease in leases:
            journal.keep(lease)


def size_of(reserve: Path) -> int:
    return reserve.stat().st_size


@contextmanager
def files_up_to(most_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_was_reverted_on_a_full_disk_is_in_the_journal_once_there_is_room(path: Path) -> None:
    filled(path, out(1), out(2), out(3), out(4))
    with opened_full(path) as full:
        assert full.leases() == (out(1), out(2), out(3), out(4))
        full.close(out(1), Ending.TAKEN_BACK, NOW + 1.0)
        full.close(out(2), Ending.REVERTED, NOW + 2.0)
        full.keep(replace(out(3), state=LeaseState.RETURNING))
        full.close(out(4), Ending.NO_LONGER_PENDING, NOW + 3.0)

    with opened(path) as journal:
        endings = [(lease.job_id, lease.ending, lease.ended_time) for lease in journal.closed([1, 2, 3, 4])]
        states = [(lease.job_id, lease.state) for lease in journal.leases()]
        changes = [(change.job_id, change.done, change.time) for change in journal.changes(RowQuery())]

    assert endings == [(1, Ending.TAKEN_BACK, NOW + 1.0), (2, Ending.REVERTED, NOW + 2.0)]
    assert states == [(3, LeaseState.RETURNING), (4, LeaseState.OUT)], "the next snapshot shows that a job started"
    assert changes == [(2, Done.TAKEN_BACK, NOW + 2.0), (1, Done.TAKEN_BACK, NOW + 1.0)]


def test_what_was_reverted_is_adopted_once(path: Path) -> None:
    filled(path, out(1))
    with opened_full(path) as full:
        full.close(out(1), Ending.TAKEN_BACK, NOW + 1.0)
    with opened(path) as journal:
        journal.keep(out(1))

    with opened(path) as journal:
        assert journal.leases() == (out(1),)
        assert len(journal.closed([1])) == 1


def test_second_revert_on_a_full_disk_knows_of_the_first(path: Path) -> None:
    filled(path, out(1), out(2))
    with opened_full(path) as full:
        full.close(out(1), Ending.TAKEN_BACK, NOW + 1.0)
        full.keep(replace(out(2), state=LeaseState.RETURNING))

    with opened_full(path) as full:
        assert [(lease.job_id, lease.state) for lease in full.leases()] == [(2, LeaseState.RETURNING)]
        assert [lease.ending for lease in full.closed([1])] == [Ending.TAKEN_BACK]

    with opened(path) as journal:
        assert [lease.ending for lease in journal.closed([1])] == [Ending.TAKEN_BACK], "the second did not drop it"


def test_reserve_of_changes_that_the_journal_does_not_have_is_ignored(path: Path) -> None:
    filled(path, out(1))
    later = replace(out(1), applied_time=NOW + 1.0)
    Reserve(path).keep([later.ended(Ending.TAKEN_BACK, NOW + 2.0), out(7).ended(Ending.TAKEN_BACK, NOW + 2.0)])

    with opened_full(path) as full:
        read = full.leases()
    with opened(path) as journal:
        adopted = journal.leases()

    assert read == adopted == (out(1),)


def test_journal_that_cannot_grow_still_belongs_to_its_cluster(path: Path) -> None:
    filled(path, out(1))

    with opened_full(path) as full, pytest.raises(ConfigError, match="'here', not those on 'there'"):
        full.claim("there")


def test_journal_of_no_cluster_yet_is_claimed_by_the_first(path: Path) -> None:
    with opened(path):
        pass

    with opened_full(path) as full:
        full.claim("there")
        with pytest.raises(ConfigError, match="'there'"):
            full.claim("here")


def test_reserve_holds_three_hundred_leases_in_the_room_that_it_took_at_first(path: Path) -> None:
    reserve, leases = Reserve(path), [out(job_id) for job_id in range(300)]
    reserve.prepare()
    reserve_file = path.with_name("journal.sqlite.reserve")
    before = size_of(reserve_file)

    reserve.keep(leases)

    assert reserve.leases() == tuple(leases)
    assert size_of(reserve_file) == before == SIZE_BYTES


def test_reserve_keeps_the_last_leases_where_not_all_fit(path: Path) -> None:
    reserve, leases = Reserve(path), [out(job_id) for job_id in range(1000)]
    reserve.prepare()

    reserve.keep(leases)

    kept = reserve.leases()
    assert kept == tuple(leases[-len(kept) :]) and 300 <= len(kept) < 1000
    assert size_of(path.with_name("journal.sqlite.reserve")) == SIZE_BYTES


@pytest.mark.parametrize(("spare", "kept"), [(0, 1), (-1, 0)], ids=["to the byte", "one byte too long"])
def test_lease_is_kept_if_it_fits_with_its_brackets(path: Path, spare: int, kept: int) -> None:
    reserve = Reserve(path)
    reserve.prepare()
    length = len(json.dumps([lease_row(out(1, user=""))]))
    lease = out(1, user="a" * (SIZE_BYTES - length - spare))

    reserve.keep([lease])

    assert len(reserve.leases()) == kept
    assert size_of(path.with_name("journal.sqlite.reserve")) == SIZE_BYTES


def test_reserve_that_finds_no_room_leaves_no_file_and_is_made_later(path: Path) -> None:
    reserve_file = path.with_name("journal.sqlite.reserve")

    with files_up_to(1000), pytest.raises(JournalFullError, match="cannot be written, and without it nothing is"):
        Reserve(path).prepare()
    is_there = reserve_file.exists()
    Reserve(path).prepare()

    assert not is_there
    assert size_of(reserve_file) == SIZE_BYTES


def test_reserve_that_is_missing_is_named_when_it_is_needed(path: Path) -> None:
    with pytest.raises(JournalFullError, match="what was reverted cannot be recorded"):
        Reserve(path).keep([out(1)])

    assert Reserve(path).leases() == ()


def test_another_value_of_a_change_is_another_change(path: Path) -> None:
    filled(path, out(1))
    other = replace(out(1), action=SetNice(job_id=1, before=0, after=51), undo=SetNice(job_id=1, before=51, after=0))
    Reserve(path).keep([other.ended(Ending.TAKEN_BACK, NOW + 2.0)])

    with opened(path) as journal:
        assert journal.leases() == (out(1),)


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
