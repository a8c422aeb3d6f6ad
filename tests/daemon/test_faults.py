"""Faults that a daemon meets: what it then does, and what it leaves alone."""

import resource
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import INTENT_GRACE_S
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.process import SlurmCommands
from advisor.domain.job import JobState
from advisor.domain.lease import Ending, LeaseState
from advisor.domain.mode import Mode
from advisor.domain.plan import Outcome
from advisor.errors import SlurmUnavailableError
from advisor.journal import opened
from advisor.journal.views import Done, RowQuery
from advisor.metrics.health import Health
from advisor.site.pause_file import pause
from tests.builders import TAKEN_AT, make_job
from tests.daemon.rounds import Site
from tests.fake_cluster import HOLD, FakeCluster, fragmented, gang
from tools.bench.synthetic import synthetic

HOUR_S = 3600.0
ROUND_S = 60.0
HOSTILE = (
    "a\nb",
    "\x1b[31mred\x1b[0m",
    "x|y|z",
    "<script>alert(1)</script>",
    "JobId=1 Nice=-1000",
    "%n%s%d",
    "--help",
    "'; DROP TABLE leases; --",
    "\u202egnp",
    "",
    "n" * 10_000,
)


def later(site: Site, seconds: float) -> None:
    """Let time pass for Slurm and for the daemon."""
    site.cluster.now += seconds
    site.clock.advance(seconds)


def endings(site: Site) -> list[Ending | None]:
    """Return how the changes to the gang ended."""
    with opened(site.folder / "journal.sqlite") as journal:
        return [lease.ending for lease in journal.closed([9])]


def test_slurmctld_that_dies_in_a_change_gets_no_second_one_and_the_next_rounds_find_out(site: Site) -> None:
    service = site.service()
    site.cluster.is_lost = True
    lost = service.round()
    site.cluster.is_lost = False
    later(site, ROUND_S)

    found = service.round()

    assert "answer was lost" in lost.fault and lost.step is None
    assert found.fault == "" and site.cluster.sent == [HOLD]
    assert [lease.state for lease in site.journal_leases()] == [LeaseState.OUT]


def test_slurm_that_says_yes_and_does_nothing_is_not_believed(site: Site) -> None:
    service = site.service()
    site.cluster.does_nothing = True
    first = service.round()
    intents = site.journal_leases()
    later(site, ROUND_S)
    service.round()
    again = list(site.cluster.sent)
    later(site, INTENT_GRACE_S)

    service.round()

    assert first.step is not None and [receipt.outcome for receipt in first.step.applied] == [Outcome.FAILED]
    assert [lease.state for lease in intents] == [LeaseState.INTENDED]
    assert again == [HOLD], "nothing more is sent while it may still come true"
    assert endings(site) == [Ending.NOT_APPLIED]


@pytest.mark.parametrize("jump_s", [-30 * 86_400.0, -HOUR_S, HOUR_S, 30 * 86_400.0])
def test_clock_that_jumps_never_keeps_a_change_out_for_longer(site: Site, jump_s: float) -> None:
    service = site.service()
    service.round()
    (lease,) = site.journal_leases()
    later(site, jump_s)
    service.round()
    assert lease.due_time is not None
    later(site, lease.due_time - lease.applied_time)

    service.round()

    assert site.cluster.jobs[9].gang.nodes_max == 4
    # By the clock of a month later the job is late, and is lifted above the others.
    assert lease.lever not in {other.lever for other in site.journal_leases()}


@pytest.mark.parametrize("jump_s", [-30 * 86_400.0, 30 * 86_400.0])
def test_clock_that_jumps_does_not_lose_an_intent(site: Site, jump_s: float) -> None:
    service = site.service()
    site.cluster.is_lost = True
    service.round()
    site.cluster.is_lost = False
    later(site, jump_s)

    service.round()

    assert site.cluster.jobs[9].gang.nodes_max == 4 or [lease.state for lease in site.journal_leases()] == [
        LeaseState.OUT
    ]


def test_intent_without_effect_ends_after_a_clock_that_was_set_back(site: Site) -> None:
    service = site.service()
    site.cluster.unreachable = True
    service.round()
    site.cluster.unreachable = False
    later(site, -30 * 86_400.0)
    service.round()
    waiting = site.journal_leases()
    later(site, INTENT_GRACE_S)

    service.round()

    assert [lease.state for lease in waiting] == [LeaseState.INTENDED]
    assert endings(site) == [Ending.NOT_APPLIED]


def test_user_who_undoes_a_change_is_left_alone_for_good(site: Site) -> None:
    service = site.service()
    service.round()
    site.cluster.jobs[9] = gang()
    for _ in range(20):
        later(site, ROUND_S)
        service.round()

    assert site.cluster.sent == [HOLD]
    assert [lease.state for lease in site.journal_leases()] == [LeaseState.HANDS_OFF]
    assert site.cluster.jobs[9].gang.nodes_max == 4


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_go_through_a_round_as_they_are(tmp_path: Path, text: str) -> None:
    cluster = fragmented()
    cluster.jobs[9] = replace(cluster.jobs[9], name=text, user=text, account=text)
    site = Site(folder=tmp_path, cluster=cluster)

    done = site.service().round()

    (lease,) = site.journal_leases()
    assert done.fault == "" and cluster.sent == [HOLD]
    assert (lease.user, lease.account) == (text, text)


def test_twenty_thousand_jobs_arriving_at_once_get_no_more_changes_than_a_round_may_make(tmp_path: Path) -> None:
    snapshot = synthetic(20_000, 200, 1)
    cluster = FakeCluster(jobs={job.job_id: job for job in snapshot.jobs if not job.is_pending})
    cluster.snapshot = lambda: replace(  # type: ignore[method-assign]
        snapshot, jobs=tuple(cluster.jobs[job_id] for job_id in sorted(cluster.jobs))
    )
    site = Site(folder=tmp_path, cluster=cluster)
    service = site.service()
    service.round()
    before = len(cluster.sent)
    cluster.jobs |= dict(snapshot.jobs_by_id)
    memory_mib = resident_mib()
    began = time.process_time()

    done = service.round()

    most = site.config().guard.max_changes
    assert resident_mib() - memory_mib < 250.0
    assert done.fault == "" and done.step is not None
    assert 0 < len(cluster.sent) - before <= most
    assert time.process_time() - began < site.config().daemon.deadline_s


def test_scontrol_that_ends_well_and_does_nothing_is_a_failed_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    fake(tmp_path / "scontrol", f"cat >>{said}\nexit 0")
    fake(tmp_path / "squeue", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(ScontrolActuator, "_read", lambda _self, _actions: {9: gang()})

    receipt = ScontrolActuator(SlurmCommands(timeout_s=10.0)).apply(HOLD)

    assert said.read_text() == "update JobId=9 NumNodes=1-1\n"
    assert (receipt.outcome, receipt.is_settled) == (Outcome.FAILED, False)
    assert "another value" in receipt.text


def test_scontrol_that_hangs_is_ended_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path / "scontrol", "sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(ScontrolActuator, "_read", lambda _self, _actions: {9: gang()})
    began = time.monotonic()

    with pytest.raises(SlurmUnavailableError, match=r"no answer within 0\.2 s"):
        ScontrolActuator(SlurmCommands(timeout_s=0.2)).apply(HOLD)

    assert time.monotonic() - began < 10.0


def test_job_that_starts_in_the_middle_of_a_change_is_no_fault(site: Site) -> None:
    service = site.service()
    service.round()
    site.cluster.jobs[9] = make_job(9, gpus=4, running_on=["n01"], submit_time=TAKEN_AT - 120.0)
    later(site, ROUND_S)

    done = service.round()

    assert done.fault == "" and site.cluster.jobs[9].state is JobState.RUNNING
    assert site.journal_leases() == ()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.needs("mounts")
def test_full_disk_stops_changes_and_not_the_watching_until_there_is_room(small_disk: Path) -> None:
    site = Site(folder=small_disk, cluster=fragmented())
    arriving = site.cluster.jobs.pop(9)
    service = site.service()
    empty = service.round()
    use_up(small_disk / "others")
    site.cluster.jobs[9] = arriving

    full = service.round()
    sent_when_full = list(site.cluster.sent)
    (small_disk / "others").unlink()
    room = service.round()

    assert empty.held_to == {} and full.fault == room.fault == ""
    assert "its disk is full, and without it nothing is applied" in full.held_to["journal"]
    assert full.step is not None and len(full.step.record.recommendations) == 1
    assert full.mode is Mode.RECOMMEND and sent_when_full == []
    assert room.held_to == {} and site.cluster.sent == [HOLD]
    assert [lease.state for lease in site.journal_leases()] == [LeaseState.OUT]


@pytest.mark.needs("mounts")
def test_full_disk_keeps_nothing_that_is_due_in_effect_and_the_journal_learns_of_it_when_there_is_room(
    small_disk: Path,
) -> None:
    site = Site(folder=small_disk, cluster=fragmented())
    before = dict(site.cluster.jobs)
    service = site.service()
    service.round()
    due_in(site)
    use_up(small_disk / "others")

    full = service.round()
    jobs_when_full = dict(site.cluster.jobs)
    again = service.round()
    sent_when_full = list(site.cluster.sent)
    (small_disk / "others").unlink()
    service.round()

    assert full.step is not None and [receipt.outcome for receipt in full.step.reconciled.taken_back] == [
        Outcome.APPLIED
    ]
    assert "its disk is full" in full.held_to["journal"] and "its disk is full" in again.held_to["journal"]
    assert jobs_when_full == before and sent_when_full == [HOLD, HOLD.swapped()] and full.overdue == again.overdue == 0
    with opened(small_disk / "journal.sqlite") as journal:
        assert [lease.ending for lease in journal.closed([9])][:1] == [Ending.TAKEN_BACK]
        assert Done.TAKEN_BACK in {change.done for change in journal.changes(RowQuery())}
        assert journal.verify().broken is None


@pytest.mark.needs("mounts")
def test_daemon_that_ends_on_a_full_disk_takes_back_what_nobody_else_would(small_disk: Path) -> None:
    site = Site(folder=small_disk, cluster=fragmented())
    before = dict(site.cluster.jobs)
    service = site.service()
    service.round()
    use_up(small_disk / "others")

    left = service.leave(4.0)
    (small_disk / "others").unlink()

    assert left == {"taken_back": 1, "still_out": 0}
    assert site.cluster.jobs == before and site.journal_leases() == ()


@pytest.mark.needs("mounts")
def test_daemon_that_starts_on_a_full_disk_takes_back_what_is_due(small_disk: Path) -> None:
    site = Site(folder=small_disk, cluster=fragmented())
    before = dict(site.cluster.jobs)
    site.service().round()
    due_in(site)
    use_up(small_disk / "others")

    full = site.service().round()
    later_round = site.service().round()

    assert full.overdue == later_round.overdue == 0 and site.cluster.jobs == before
    assert site.cluster.sent == [HOLD, HOLD.swapped()]


@pytest.mark.needs("mounts")
def test_change_that_a_full_disk_and_a_pause_keep_in_effect_is_overdue(small_disk: Path) -> None:
    site = Site(folder=small_disk, cluster=fragmented())
    health = Health(interval_s=ROUND_S)
    service = site.service()
    service.round()
    due_in(site)
    pause(small_disk, by="ada", reason="", freeze=True)
    use_up(small_disk / "others")

    full = service.round()
    health.observe(full)

    assert full.overdue == 1 and site.cluster.sent == [HOLD]
    assert (health.report().status, health.report().overdue) == ("degraded", 1)


def due_in(site: Site) -> None:
    """Let time pass until the change in effect is due."""
    (lease,) = site.journal_leases()
    assert lease.due_time is not None
    later(site, lease.due_time - lease.applied_time)


def use_up(path: Path) -> None:
    """Fill a disk to the last byte."""
    with path.open("wb", buffering=0) as others, suppress(OSError):
        while True:
            others.write(b"x" * 4096)


def resident_mib() -> float:
    """Return how much memory this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def fake(path: Path, script: str) -> None:
    """Make an executable."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.needs("mounts")
def test_daemon_that_starts_on_a_read_only_file_system_sends_nothing_and_counts_what_is_overdue(
    small_disk: Path,
) -> None:
    site = Site(folder=small_disk, cluster=fragmented())
    before = dict(site.cluster.jobs)
    first = site.service()
    first.round()
    first.close()
    due_in(site)
    second = site.service()
    remount(small_disk, "ro")

    frozen = second.round()
    sent_when_frozen = list(site.cluster.sent)
    remount(small_disk, "rw")
    second.round()

    assert "Read-only file system" in frozen.held_to["journal"]
    assert frozen.mode is Mode.RECOMMEND and sent_when_frozen == [HOLD]
    assert site.cluster.sent == [HOLD, HOLD.swapped()] and site.cluster.jobs == before


@pytest.mark.needs("mounts")
@pytest.mark.parametrize("restarts", [False, True], ids=["a daemon that runs", "a daemon that starts"])
def test_file_system_without_inodes_keeps_nothing_that_is_due_in_effect(small_disk: Path, restarts: bool) -> None:
    site = Site(folder=small_disk, cluster=fragmented())
    before = dict(site.cluster.jobs)
    service = site.service()
    service.round()
    due_in(site)
    inodes = sum(1 for _ in small_disk.rglob("*")) + 1
    remount(small_disk, f"nr_inodes={inodes}")

    service = site.service() if restarts else service
    full = service.round()

    assert full.overdue == 0 and site.cluster.jobs == before
    assert site.cluster.sent == [HOLD, HOLD.swapped()]


def remount(disk: Path, option: str) -> None:
    """Mount a disk again with another option."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)


class FailingDisk:
    """An ext4 file system in a file, which the kernel makes read-only upon an error, as on a failing disk."""

    def __init__(self, folder: Path) -> None:
        self._image, self.path = folder / "image", folder / "disk"
        self._image.write_bytes(bytes(8 << 20))
        self.path.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(self._image)], check=True)
        self.mount()

    def mount(self) -> None:
        options = "loop,errors=remount-ro"
        subprocess.run(["mount", "-o", options, str(self._image), str(self.path)], check=True)

    def fail(self) -> None:
        """Report an error, while files of it are open."""
        device = subprocess.check_output(["findmnt", "-no", "SOURCE", str(self.path)], text=True).strip()
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1")

    def repair(self) -> None:
        """Check the file system and mount it again, which needs every file of it closed."""
        subprocess.run(["umount", str(self.path)], check=True)
        subprocess.run(["fsck.ext4", "-fy", str(self._image)], check=False, stdout=subprocess.DEVNULL)
        self.mount()


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[FailingDisk]:
    disk = FailingDisk(tmp_path)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk.path)], check=True)


@pytest.mark.needs("disk errors")
def test_file_system_that_turns_read_only_under_a_daemon_stops_changes_until_it_is_repaired(
    failing_disk: FailingDisk,
) -> None:
    site = Site(folder=failing_disk.path, cluster=fragmented())
    arriving = site.cluster.jobs.pop(9)
    service = site.service()
    empty = service.round()
    site.cluster.jobs[9] = arriving
    failing_disk.fail()

    frozen = service.round()
    again = service.round()
    sent_when_frozen = list(site.cluster.sent)
    failing_disk.repair()
    repaired = service.round()

    assert empty.held_to == {} and frozen.fault == again.fault == repaired.fault == ""
    assert "ead-only" in frozen.held_to["journal"] and "ead-only" in again.held_to["journal"]
    assert frozen.step is not None and len(frozen.step.record.recommendations) == 1
    assert frozen.mode is Mode.RECOMMEND and sent_when_frozen == []
    assert repaired.held_to == {} and site.cluster.sent == [HOLD]
    assert [lease.state for lease in site.journal_leases()] == [LeaseState.OUT]
    service.close()


@pytest.mark.needs("disk errors")
def test_file_system_that_turns_read_only_under_a_daemon_keeps_nothing_in_effect_once_it_is_repaired(
    failing_disk: FailingDisk,
) -> None:
    site = Site(folder=failing_disk.path, cluster=fragmented())
    before = dict(site.cluster.jobs)
    service = site.service()
    service.round()
    due_in(site)
    failing_disk.fail()

    frozen = service.round()
    sent_when_frozen = list(site.cluster.sent)
    failing_disk.repair()
    service.round()

    assert "ead-only" in frozen.held_to["journal"] and frozen.mode is Mode.RECOMMEND
    assert (frozen.overdue, sent_when_frozen) == (1, [HOLD])
    assert site.cluster.sent == [HOLD, HOLD.swapped()] and site.cluster.jobs == before
    service.close()
