"""The submit table of a daemon over a fake cluster: what it holds, when it is there, and which jobs are adopted."""

import pwd
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from advisor.config import Config
from advisor.daemon.service import Service
from advisor.daemon.submit_table import MOST_BYTES, VALID_S
from advisor.domain.actions import Lever, SetNice
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.mode import Mode, Modes
from advisor.journal import opened
from advisor.settings import DaemonSettings, Limits
from advisor.site.pause_file import pause
from tests.builders import HOUR_S, TAKEN_AT, make_job
from tests.daemon.rounds import Site
from tests.fake_cluster import FakeCluster


def line() -> list[Job]:
    """Return jobs of root and of a user without a number, too young for a change, that wait for busy GPUs."""
    running = [make_job(number, gpus=8, running_on=[f"n0{number}"], time_limit_s=9 * HOUR_S) for number in (1, 2, 3, 4)]
    pending = [
        make_job(number, gpus=1, user=user, priority=1000 - number, reason="Priority", submitted_ago_s=10.0)
        for number, user in ((20, "root"), (21, "no user of this machine"), (22, "ro\not\x00"))
    ]
    return [*running, *pending]


class Publishing(Site):
    """A site whose daemon writes a table."""

    def config(self, **tables: object) -> Config:
        """Return the configuration with the path of the table."""
        daemon = DaemonSettings(runtime_folder=str(self.folder), submit_table=str(self.table))
        return super().config(**{"daemon": daemon, "guard": Limits(fairness="site"), **tables})

    @property
    def table(self) -> Path:
        """The path of the table."""
        return self.folder / "submit-table"

    def lines(self) -> list[str]:
        """Return the lines of the table."""
        return self.table.read_text().splitlines()

    def arrives(self, nice: int, *, ago_s: float = 1.0, job_id: int = 30) -> None:
        """Let a job arrive with a nice."""
        self.cluster.jobs[job_id] = make_job(job_id, gpus=1, nice=nice, submitted_ago_s=ago_s, priority=99_000)

    def nice(self) -> int:
        """Return the nice that jobs of the largest class get."""
        (partition,) = [words for words in map(str.split, self.lines()) if words[0] == "partition"]
        return int(partition[2])


@pytest.fixture
def site(tmp_path: Path) -> Publishing:
    """A cluster with a line."""
    return Publishing(folder=tmp_path, cluster=FakeCluster(jobs={job.job_id: job for job in line()}))


def test_table_names_users_by_their_numbers_and_ends_with_its_length(site: Publishing) -> None:
    site.service().round()

    lines = site.lines()
    assert lines[:3] == ["sadvise submit table 1", f"written {TAKEN_AT:.0f}", f"valid {TAKEN_AT + VALID_S:.0f}"]
    assert [line.split()[:3] for line in lines if line.startswith("bound")] == [
        ["bound", "gpu", "*"],
        ["bound", "gpu", "0"],
    ]
    assert lines[-1] == f"end {len(lines) - 1}"
    assert site.table.stat().st_mode & 0o777 == 0o644 and site.table.stat().st_size < MOST_BYTES


def test_table_leaves_out_what_is_not_changed(site: Publishing) -> None:
    service = site.service()
    config = replace(site.config(), mode=Modes(default=Mode.APPLY, accounts="theory=observe, vision=apply"))
    service.reconfigure(config)
    service.round()
    excluded = [line for line in site.lines() if line.startswith("exclude")]

    service.reconfigure(replace(config, mode=Modes(default=Mode.APPLY, partitions="gpu=recommend")))
    service.round()

    assert excluded == ["exclude theory"]
    assert not site.table.exists()


def test_table_goes_while_no_change_can_be_made(site: Publishing) -> None:
    service = site.service()
    service.round()
    was_there = site.table.exists()
    pause(site.folder, by="ada", reason="maintenance")

    service.round()

    assert was_there and not site.table.exists()


def test_table_that_cannot_be_written_is_in_the_audit_once_and_stops_nothing(site: Publishing) -> None:
    site.table.mkdir()
    service = site.service()

    rounds = [service.round(), service.round()]

    assert all(done.step is not None and done.fault == "" for done in rounds)
    assert site.audited("submit_table") == [{"said": f"{site.table}: Is a directory"}]


def the_lease(site: Publishing) -> Lease:
    """Return the only open lease."""
    (lease,) = site.journal_leases()
    return lease


def test_job_that_got_its_nice_at_submission_is_adopted_and_reverted_when_due(site: Publishing) -> None:
    service = site.service()
    service.round()
    nice = site.nice()
    site.arrives(nice)

    done = service.round()
    lease = the_lease(site)
    site.cluster.now += 25 * HOUR_S
    service.round()

    assert lease.action == SetNice(job_id=30, before=0, after=nice) and lease.undo.after == 0
    assert lease.state is LeaseState.OUT and lease.due_time == TAKEN_AT + 24 * HOUR_S
    assert lease.priority == 99_000 + nice
    assert done.strays == ()
    assert site.shown[1].purposes[30, Lever.NICE].reason == "short_work_first"
    assert site.cluster.jobs[30].nice == 0 and site.journal_leases() == ()


def test_next_daemon_adopts_by_the_table_that_it_finds(site: Publishing) -> None:
    site.service().round()
    site.arrives(site.nice())

    site.service().round()

    assert the_lease(site).job_id == 30


def test_job_that_grew_between_its_submission_and_the_round_loses_the_nice(site: Publishing) -> None:
    service = site.service()
    service.round()
    site.arrives(site.nice())
    site.cluster.jobs[30] = replace(site.cluster.jobs[30], time_limit_s=7 * 24 * HOUR_S)

    service.round()

    assert site.cluster.jobs[30].nice == 0 and site.journal_leases() == ()
    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        (closed,) = journal.closed([30])
    assert closed.lost == "asks for more than a job that gets this nice at its submission"


def again(site: Publishing, service: Service) -> tuple[int, ...]:
    """Run a round and return the strays, after it has adopted no job."""
    done = service.round()
    assert site.journal_leases() == ()
    return done.strays


def test_other_marked_values_are_strays_as_before(site: Publishing) -> None:
    service = site.service()
    service.round()
    nice = site.nice()
    service.round()

    for number, (value, ago_s) in enumerate(((-17, 1.0), (nice, HOUR_S), (-nice, 1.0), (nice - 10, 1.0)), start=30):
        site.arrives(value, ago_s=ago_s, job_id=number)

    assert again(site, service) == (30, 31, 32, 33)


def test_job_with_an_ended_lease_is_not_adopted(site: Publishing) -> None:
    service = site.service()
    service.round()
    nice = site.nice()
    lease = intended(SetNice(job_id=30, before=0, after=nice), TAKEN_AT)
    with opened(site.folder / "journal.sqlite", wait_s=5.0) as journal:
        journal.keep(lease)
        journal.close(lease, Ending.REVERTED, TAKEN_AT)
    site.arrives(nice)

    assert again(site, site.service()) == (30,)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe", b"x" * (MOST_BYTES + 1), b"sadvise submit table 1\nwritten 9\n", b"nonsense\n"]
)
def test_damaged_table_of_an_earlier_daemon_is_replaced(site: Publishing, content: bytes) -> None:
    site.table.write_bytes(content)

    site.service().round()

    assert site.nice() < 0


def test_table_that_is_no_longer_wanted_goes(site: Publishing) -> None:
    service = site.service()
    service.round()

    service.reconfigure(replace(site.config(), daemon=DaemonSettings(runtime_folder=str(site.folder))))
    service.round()

    assert not site.table.exists()


def test_user_whom_the_directory_service_did_not_know_gets_a_bound_once_it_does(
    site: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = pwd.getpwnam

    def fails(name: str) -> NoReturn:
        raise KeyError(f"getpwnam(): name not found: {name!r}")

    service = site.service()
    monkeypatch.setattr(pwd, "getpwnam", fails)
    service.round()
    unknown = [text.split()[2] for text in site.lines() if text.startswith("bound")]
    monkeypatch.setattr(pwd, "getpwnam", looked_up)
    site.cluster.now += 60.0
    site.clock.advance(60.0)

    service.round()

    assert unknown == ["*"]
    assert [text.split()[2] for text in site.lines() if text.startswith("bound")] == ["*", "0"]


# A tenth of 32 GPUs, 3, of which one user has 2.
SHARED = Limits(fairness="site", interactive_ratio=0.1)
INTERACTIVE_NICE = -1_999_999_997


def room_lines(site: Publishing) -> list[str]:
    """Return the lines of the table about interactive jobs."""
    return [line for line in site.lines() if line.split()[0] in ("room", "held", "interactive")]


def asks(site: Publishing, *, gpus: int = 1, limit_h: float = 8.0, nice: int = INTERACTIVE_NICE) -> None:
    """Let an interactive job of root arrive."""
    job = make_job(
        30, gpus=gpus, nice=nice, user="root", submitted_ago_s=1.0, time_limit_s=limit_h * HOUR_S, priority=99
    )
    site.cluster.jobs[30] = job


def test_table_has_the_gpus_that_are_left_for_interactive_jobs_and_who_holds_some(site: Publishing) -> None:
    service = site.service()
    service.reconfigure(site.config(guard=SHARED))
    service.round()
    before = room_lines(site)
    asks(site)

    service.round()

    assert before == [f"room 0 {INTERACTIVE_NICE} 480 3 2", "interactive gpu 0"]
    assert room_lines(site) == [f"room 0 {INTERACTIVE_NICE} 480 2 2", "held 0 0 1", "interactive gpu 0"]


def test_table_has_room_for_interactive_jobs_where_nothing_waits(site: Publishing) -> None:
    site.cluster.jobs.clear()
    service = site.service()
    service.reconfigure(site.config(guard=SHARED))

    service.round()

    assert [line for line in site.lines() if line.startswith("partition")] == [] and len(room_lines(site)) == 2


@pytest.mark.parametrize(
    "tables",
    [
        {"guard": Limits(fairness="site")},
        {"guard": SHARED, "mode": Modes(default=Mode.APPLY, partitions="gpu=recommend")},
        {"guard": SHARED, "mode": Modes(default=Mode.RECOMMEND)},
    ],
    ids=["off", "a partition below apply", "all below apply"],
)
def test_interactive_jobs_have_no_room_where_nothing_can_be_changed(
    site: Publishing, tables: dict[str, object]
) -> None:
    service = site.service()
    service.reconfigure(replace(site.config(), **tables))  # type: ignore[arg-type]  # a test's own

    service.round()

    assert not site.table.exists() or room_lines(site) == []


@pytest.mark.parametrize("by_next_daemon", [False, True], ids=["this daemon", "the next daemon"])
def test_interactive_job_is_adopted_with_a_reason_of_its_own_and_reverted_when_due(
    site: Publishing, *, by_next_daemon: bool
) -> None:
    service = site.service()
    service.reconfigure(site.config(guard=SHARED))
    service.round()
    if by_next_daemon:
        service = site.service()
        service.reconfigure(site.config(guard=SHARED))
    asks(site)

    done = service.round()
    lease = the_lease(site)
    site.cluster.now += 25 * HOUR_S
    service.round()

    assert lease.action == SetNice(job_id=30, before=0, after=INTERACTIVE_NICE) and done.strays == ()
    assert site.shown[1].purposes[30, Lever.NICE].reason == "interactive_first"
    assert site.cluster.jobs[30].nice == 0 and site.journal_leases() == ()


@pytest.mark.parametrize("grown", [{"gpus": 4}, {"limit_h": 9.0}], ids=str)
def test_interactive_job_that_grew_before_the_round_loses_the_nice(site: Publishing, grown: dict[str, int]) -> None:
    service = site.service()
    service.reconfigure(site.config(guard=SHARED))
    service.round()
    asks(site, **grown)

    service.round()

    assert site.cluster.jobs[30].nice == 0 and site.journal_leases() == ()
