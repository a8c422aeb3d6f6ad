"""A journal lost under a live daemon: noticed, and after a new start the changes that it does not know are listed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import started
from tests.live.watching import DEADLINE_S, Watched, fill, small_cluster, submit_gang, watched

pytestmark = pytest.mark.live


def test_lost_journal_is_noticed_and_its_changes_are_listed_after_a_new_start(release: str, tmp_path: Path) -> None:
    check_lost_journal(release, tmp_path, accounting=False)


# slurmdbd is installed beside the host's own Slurm only.
@pytest.mark.releases("22.05")
@pytest.mark.needs("slurmdbd")
def test_accounting_tells_which_changes_a_lost_journal_held(release: str, tmp_path: Path) -> None:
    check_lost_journal(release, tmp_path, accounting=True)


def check_lost_journal(release: str, tmp_path: Path, *, accounting: bool) -> None:
    """Lose the journal under a daemon, and see what that daemon and the next one say."""
    with started(small_cluster(release, accounting=accounting)) as live:
        fill(live)
        gang = submit_gang(live)
        with watched(live, gang, tmp_path) as daemon:
            daemon.wait_until_held()
            lose_journal(tmp_path)
            daemon.wait_for_words("was removed while sadvised was using it")
            noticed = daemon.so_far()
            daemon.wait_for_good_rounds(3)
            sent_since = "change applied" in daemon.log.read_text()[noticed:]
            last = daemon.end()
        # What a planner can have sent to others.
        own, reordered, waiting = (
            live.submit("--gres=gpu:h100:8", "-n8", "--time=10", *options) for options in (("--nice=137",), (), ())
        )
        live.run("scontrol", "update", f"JobId={reordered}", "Nice=157")
        live.run("scontrol", "update", f"JobId={waiting}", "Switches=1@30")
        # Accounting knows of a job some time after its submission.
        last_known = waiting if accounting else reordered
        with watched(live, gang, tmp_path) as daemon:
            live.wait_for(lambda: unknown(daemon, last_known) != [], DEADLINE_S, what="the last of them is listed")
            listed = {job_id: unknown(daemon, job_id) for job_id in (gang, own, reordered, waiting)}
            daemon.wait_for_good_rounds(3)
            still_held = daemon.held()

    assert not sent_since and "still_out=1" in last
    by_accounting = {
        gang: ["accepts 1-1 nodes, submitted with 1-4"],
        own: [],
        waiting: ["waits for few leaf switches, which its submit line does not ask for; its script can"],
    }
    by_mark = {gang: [], own: ["nice 137 carries the mark of sadvise"], waiting: []}
    expected = by_accounting if accounting else by_mark
    assert listed == {**expected, reordered: ["nice 157 carries the mark of sadvise"]}
    assert still_held, "what the journal does not know is never reverted"
    # The daemon does not ask accounting, so that it also names the nice of the user.
    assert f"job_ids={own},{reordered}" in daemon.log.read_text()


def lose_journal(folder: Path) -> None:
    """Remove the journal as `rm journal.sqlite*` does."""
    for file in folder.glob("journal.sqlite*"):
        file.unlink()


def unknown(daemon: Watched, job_id: int) -> list[str]:
    """Return what `sadvise check` lists of one job."""
    document: dict[str, Any] = json.loads(daemon.answers("check", "--json").out)
    return [row["text"] for row in document["checks"] if row["name"] == f"changes without a lease: job {job_id}"]
