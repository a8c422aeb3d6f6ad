"""The daemon beside a slurmctld that stops, hangs and restarts: it says so, waits, and leaves nothing behind."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.conftest import started
from tests.live.test_advice import state_of
from tests.live.watching import ROOMY, Watched, at_work, fill, small_cluster, submit_gang, watched
from tests.post_office import post_office
from tools.stage import LiveCluster
from tools.stage.live_cluster import BACKUP_HOST, BACKUP_LINES, PRIMARY_HOST

pytestmark = pytest.mark.live

ONE = "22.05"


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


@pytest.mark.releases(ONE)
def test_slurmctld_that_hangs_is_waited_for_and_everything_is_taken_back(busy: Watched) -> None:
    busy.live.hang_controller()
    try:
        busy.wait_for_words("no answer within 2 s")
    finally:
        busy.live.wake_controller()
    busy.wait_for_good_rounds()

    busy.end()

    assert state_of(busy.live, busy.job_id) == busy.before


@pytest.mark.releases(ONE)
def test_second_daemon_is_refused_beside_the_first(busy: Watched) -> None:
    second = busy.sadvise("serve")

    assert second.returncode == 1
    assert "another" in second.stderr and second.stderr.count("\n") == 1
    assert "taken_back=1 still_out=0" in busy.end()
    assert state_of(busy.live, busy.job_id) == busy.before


@pytest.mark.releases(ONE)
def test_scontrol_that_says_yes_and_does_nothing_is_not_believed_and_not_asked_again(
    small: LiveCluster, gang: int, tmp_path: Path
) -> None:
    said, fake = tmp_path / "said", tmp_path / "bin"
    fake.mkdir()
    (fake / "scontrol").write_text(f'#!/bin/sh\n[ $# = 0 ] && cat >>{said} && exit 0\nexec /usr/bin/scontrol "$@"\n')
    (fake / "scontrol").chmod(0o755)

    with watched(small, gang, tmp_path, path=str(fake)) as at_hand:
        at_hand.wait_for_words("change failed")
        at_hand.wait_for_good_rounds(3)
        last = at_hand.end()

    assert at_hand.says("read back another value than the one written")
    assert said.read_text() == f"update JobId={gang} NumNodes=1-1\n"
    assert "taken_back=0 still_out=1" in last, "it may still come true, so it stays an intent"
    assert state_of(small, gang) == at_hand.before


@pytest.mark.releases(ONE)
def test_slurm_conf_that_changes_between_a_change_and_its_read_back_costs_no_round(
    small: LiveCluster, gang: int, tmp_path: Path
) -> None:
    fake, done = tmp_path / "bin", tmp_path / "reconfigured"
    fake.mkdir()
    reconfigure = (
        f"sed -i 's/^SchedulerParameters=/&defer,/' {small.folder}/slurm.conf && /usr/bin/scontrol reconfigure"
    )
    (fake / "scontrol").write_text(
        f'#!/bin/sh\n[ $# -gt 0 ] && exec /usr/bin/scontrol "$@"\n'
        f"/usr/bin/scontrol\nstatus=$?\n[ -e {done} ] || {{ touch {done} && {reconfigure}; }}\nexit $status\n"
    )
    (fake / "scontrol").chmod(0o755)

    with watched(small, gang, tmp_path, path=str(fake)) as at_hand:
        at_hand.wait_until_held()
        assert done.exists() and "defer," in small.run("scontrol", "show", "config")
        at_hand.wait_for_good_rounds(2)
        assert at_hand.held()
        last = at_hand.end()

    assert not at_hand.says("change failed")
    assert "taken_back=1 still_out=0" in last
    assert state_of(small, gang) == at_hand.before


HOSTILE_NAME = "x\nBcc: eve@example.org\r\nSubject: y\r\n\r\n.\r\nRCPT TO:<eve@example.org>"


@pytest.mark.releases(ONE, "26.05")
def test_name_of_a_job_adds_nothing_to_a_mail_about_it(small: LiveCluster, tmp_path: Path) -> None:
    job_id = submit_gang(small, f"--job-name={HOSTILE_NAME}", f"--comment={HOSTILE_NAME}", user="games")
    with post_office() as office:
        notify = (
            f'[notify]\nmail_to = "ops@example.org"\nmail_from = "sadvise@example.org"\n'
            f'sendmail = "{office.sendmail(tmp_path)}"\n'
        )
        with watched(small, job_id, tmp_path, budget=ROOMY + notify) as at_hand:
            at_hand.wait_until_held()
            small.run("scontrol", "update", f"JobId={job_id}", "NumNodes=1-2")

            small.wait_for(
                lambda: any(str(job_id) in str(mail) for mail in office.mails), 180.0, what="a mail about it"
            )

            at_hand.end()
    small.run("scancel", str(job_id))

    assert {tuple(envelope.rcpt_tos) for envelope in office.envelopes} == {("ops@example.org",)}
    for mail in office.mails:
        assert mail["To"] == "ops@example.org" and mail["Bcc"] is None
        assert mail["Subject"].startswith("[sadvise ")
        assert len(mail.keys()) == len(set(mail.keys()))


@pytest.mark.releases(ONE, "26.05")
def test_backup_slurmctld_that_takes_over_is_asked_next_and_the_daemon_beside_it_begins_to_apply(
    release: str, tmp_path: Path
) -> None:
    with started(small_cluster(release, extra_lines=BACKUP_LINES)) as live:
        live.start_backup()
        fill(live)
        job_id = submit_gang(live)
        (tmp_path / "backup").mkdir()
        with watched(live, job_id, tmp_path / "backup", host=BACKUP_HOST) as standby:
            standby.wait_for_good_rounds()
            assert standby.says(f"slurmctld acts on {PRIMARY_HOST}, this is {BACKUP_HOST}: the daemon there applies")
            assert standby.sadvise("pause").returncode == 0 and not standby.held()
            # On a host that runs none of the two it is the daemon's turn, whichever acts.
            with at_work(live, job_id, tmp_path) as at_hand:
                # A crash loses what was not saved yet; this one is to leave the change to the backup. One more job has
                # slurmctld save again, whether or not it has saved the change.
                saved, changed_time = live.folder / "state/job_state", time.time()
                live.submit("--hold", "-n1")
                live.wait_for(lambda: saved.stat().st_mtime > changed_time, 60.0, what="slurmctld saves its jobs")
                live.kill_controller()
                live.wait_for(lambda: live.ask("squeue", "-h").returncode == 0, 60.0, what="the backup answers")
                at_hand.wait_for_good_rounds()

                last = at_hand.end()

                assert "taken_back=1 still_out=0" in last and not at_hand.held()
                # From 24.11 on a slurmctld that took over shows the lower end of every range alone.
                shown = "NumNodes=1-4 " if release == ONE else "NumNodes=1 "
                assert shown in live.run("scontrol", "show", "job", str(job_id))

            following = standby
            if release != ONE:
                # Nothing can be proposed for a gang of which the upper end is hidden.
                live.run("scancel", str(job_id))
                following = replace(standby, job_id=submit_gang(live))
            assert following.sadvise("resume").returncode == 0
            following.wait_until_held()
            assert "taken_back=1 still_out=0" in following.end() and not following.held()


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
