"""The daemon beside a slurmctld that stops, hangs and restarts: it says so, waits, and leaves nothing behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.conftest import started
from tests.live.test_advice import state_of
from tests.live.watching import Watched, at_work, fill, small_cluster, submit_gang, watched
from tools.live_slurm import LiveCluster
from tools.live_slurm.cluster import BACKUP_LINES

pytestmark = pytest.mark.live

ONE = "22.05"


def once(release: str) -> None:
    """Leave a test out on all releases but one."""
    if release != ONE:
        pytest.skip("one release is enough")


@pytest.fixture(scope="module")
def small(release: str) -> Iterator[LiveCluster]:
    with started(small_cluster(release)) as live:
        fill(live)
        yield live


@pytest.fixture
def gang(small: LiveCluster) -> Iterator[int]:
    job_id = submit_gang(small)
    yield job_id
    small.run("scancel", str(job_id))


@pytest.fixture
def busy(small: LiveCluster, gang: int, tmp_path: Path) -> Iterator[Watched]:
    with at_work(small, gang, tmp_path) as at_hand:
        yield at_hand


def test_slurmctld_that_hangs_is_waited_for_and_everything_is_taken_back(busy: Watched) -> None:
    busy.live.hang_controller()
    try:
        busy.wait_for_words("no answer within 2 s")
    finally:
        busy.live.wake_controller()
    busy.wait_for_good_rounds()

    busy.end()

    assert state_of(busy.live, busy.job_id) == busy.before


def test_second_daemon_is_refused_beside_the_first(release: str, busy: Watched) -> None:
    once(release)

    second = busy.sadvise("serve")

    assert second.returncode == 1
    assert "another" in second.stderr and second.stderr.count("\n") == 1
    assert "taken_back=1 still_out=0" in busy.end()
    assert state_of(busy.live, busy.job_id) == busy.before


def test_scontrol_that_says_yes_and_does_nothing_is_not_believed_and_not_asked_again(
    release: str, small: LiveCluster, gang: int, tmp_path: Path
) -> None:
    once(release)
    said, fake = tmp_path / "said", tmp_path / "bin"
    fake.mkdir()
    (fake / "scontrol").write_text(
        f'#!/bin/sh\n[ "$1" = update ] && echo "$@" >>{said} && exit 0\nexec /usr/bin/scontrol "$@"\n'
    )
    (fake / "scontrol").chmod(0o755)

    with watched(small, gang, tmp_path, path=str(fake)) as at_hand:
        at_hand.wait_for_words("change failed")
        at_hand.wait_for_good_rounds(3)
        last = at_hand.end()

    assert at_hand.says("read back another value than the one written")
    assert said.read_text() == f"update JobId={gang} NumNodes=1-1\n"
    assert "taken_back=0 still_out=1" in last, "it may still come true, so it stays an intent"
    assert state_of(small, gang) == at_hand.before


def test_backup_slurmctld_that_takes_over_is_asked_next_and_everything_is_taken_back(
    release: str, tmp_path: Path
) -> None:
    with started(small_cluster(release, extra_lines=BACKUP_LINES)) as live:
        live.start_backup()
        fill(live)
        job_id = submit_gang(live)
        with at_work(live, job_id, tmp_path) as at_hand:
            live.kill_controller()
            live.wait_for(lambda: live.ask("squeue", "-h").returncode == 0, 60.0, what="the backup answers")
            at_hand.wait_for_good_rounds()

            at_hand.end()

            assert not at_hand.held()
            assert "NumNodes=1-4" in live.run("scontrol", "show", "job", str(job_id))


# The last one, since a restarted slurmctld shows node ranges by their lower end.
def test_slurmctld_that_stops_and_restarts_is_found_again_and_everything_is_taken_back(busy: Watched) -> None:
    busy.live.stop_controller()
    try:
        busy.wait_for_words("no answer within 2 s", "cannot reach")
    finally:
        busy.live.start_controller()
    busy.wait_for_good_rounds()

    busy.end()

    assert not busy.held()
