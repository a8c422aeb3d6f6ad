"""The daemon at sites that are hard on it: with a rate limiter, without slurmdbd, with hostile names."""

import http.client
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.conftest import started
from tests.live.test_advice import state_of
from tests.live.watching import fill, small_cluster, submit_gang, watched
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

USER, COORDINATOR = "games", "news"
LIMITED = "SlurmctldParameters=rl_enable,rl_bucket_size=30,rl_refill_rate=2"
BOUNDLESS = "[budget]\ntime_ratio = 1.0\n"
HOSTILE = (
    "new\nline",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "pipe|pipe",
    "'single' \"double\" `id` $(id) ; exit",
    "<script>alert(1)</script>",
    "JobId=1 Nice=-1000",
    "--help",
    "\u202egnp",
    "tab\tand\rreturn",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users reach."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


# By default Slurm's limiter holds 30 requests of a user, and lets two more pass in a second.
FULL_AGAIN_S = 16.0


@pytest.fixture(scope="module")
def limited(release: str) -> Iterator[LiveCluster]:
    """A cluster with the rate limiter at Slurm's defaults; root is exempt from it."""
    with started(small_cluster(release, extra_lines=(LIMITED,))) as live:
        fill(live)
        yield live


def limits(live: LiveCluster) -> int:
    """Count how often slurmctld told the user to come back later."""
    uid = pwd.getpwnam(USER).pw_uid
    log = (live.folder / "slurmctld.log").read_text(errors="replace")
    return log.count(f"RPC rate limit exceeded by uid {uid} ")


# One release is enough, and 22.05 has no rate limiter.
@pytest.mark.releases("26.05")
@pytest.mark.parametrize("budget", ["", BOUNDLESS], ids=["default", "boundless"])
def test_ordinary_user_goes_on_under_slurms_rate_limiter_which_no_budget_ever_meets(
    limited: LiveCluster, folder: Path, budget: str
) -> None:
    job_id = submit_gang(limited, user=USER)
    # What other processes of the user have asked lately, such as those of the test before, no daemon can know.
    time.sleep(FULL_AGAIN_S)
    before = limits(limited)

    with watched(limited, job_id, folder, user=USER, budget=budget, timeout_s=10.0, slowest_s=8.0) as at_hand:
        at_hand.wait_until_held()
        at_hand.wait_for_words("slurmctld limits the requests of this user")
        at_hand.wait_for_good_rounds()
        # What is taken back at the end is outside the budget.
        met = limits(limited) > before
        at_hand.end()

    # Under the limiter the end may be too short for all of it; then the journal still knows.
    argv = [sys.executable, "-m", "advisor.cli.main", "revert", "--all", "--config", str(folder / "sadvise.toml")]
    subprocess.run(argv, env=limited.env, check=True, capture_output=True)
    assert not met
    assert state_of(limited, job_id) == at_hand.before
    limited.run("scancel", str(job_id))


# slurmdbd is installed beside the host's own Slurm only.
@pytest.mark.releases("22.05")
@pytest.mark.needs("slurmdbd")
def test_without_slurmdbd_a_coordinator_changes_nothing_of_others_and_says_why_until_it_is_back(
    release: str, folder: Path
) -> None:
    enforced = ("AccountingStorageEnforce=associations",)
    with started(small_cluster(release, extra_lines=enforced, accounting=True)) as live:
        for command in (
            "add account vision",
            "add account staff",
            f"add user {USER} account=vision",
            f"add user {COORDINATOR} account=staff",
            f"add coordinator account=vision names={COORDINATOR}",
        ):
            live.run("sacctmgr", "-i", *command.split())
        fill(live)
        job_id = submit_gang(live, user=USER)
        live.stop_accounting()

        with watched(live, job_id, folder, user=COORDINATOR, timeout_s=10.0) as at_hand:
            at_hand.wait_for_words("change held back")
            at_hand.wait_for_good_rounds(2)
            without, untouched = at_hand.log.read_text(), state_of(live, job_id)
            live.start_accounting()
            # A reload builds everything anew, so that nobody has to wait until the privilege is read again.
            at_hand.process.send_signal(signal.SIGHUP)
            at_hand.wait_until_held()
            at_hand.end()

        assert f"privilege: the job belongs to another user of account vision, and {COORDINATOR} has no" in without
        assert "as far as is known (the accounting database was not asked" in without
        assert untouched == at_hand.before == state_of(live, job_id)


@pytest.mark.releases("22.05")
def test_hostile_names_are_escaped_wherever_they_are_shown(release: str, folder: Path) -> None:
    with started(small_cluster(release)) as live:
        fill(live)
        for text in HOSTILE:
            live.submit("--hold", "-N1", "--gres=gpu:h100:8", f"--job-name={text}", f"--comment={text}")
        whole = "".join(HOSTILE)
        job_id = submit_gang(live, f"--job-name={whole}", f"--comment={whole}")
        named = live.run("squeue", "-h", "-j", str(job_id), "-o", "%j")
        assert all(char in named for char in "\n\x1b|'\"<")

        with watched(live, job_id, folder) as at_hand:
            at_hand.wait_until_held()
            at_hand.wait_for_good_rounds(2)
            shown = {
                view: at_hand.answers(*view.split())
                for view in (
                    "journal changes",
                    "journal cycles",
                    "journal audit",
                    "recommend",
                    f"explain {job_id}",
                    "status",
                )
            }
            metrics = scraped(folder / "metrics")
            at_hand.end()
            ended = at_hand.answers("status")

        texts = {
            "log": at_hand.log.read_text(),
            "metrics": metrics,
            **{view: each.out for view, each in shown.items()},
        }
        assert {view: each.err for view, each in shown.items() if each.exit_code} == {}
        assert all(line.startswith("time=") for line in texts["log"].splitlines())
        for name, text in texts.items():
            assert [char for char in text if not char.isprintable() and char != "\n"] == [], name
        assert metrics.startswith("# HELP ") and "script" not in metrics
        assert "red" in texts[f"explain {job_id}"], "the name is shown, only not as it is"
        assert state_of(live, job_id) == at_hand.before
        assert f"running, pid {at_hand.process.pid}" in texts["status"] and "1 change in effect" in texts["status"]
        assert (ended.exit_code, ended.out.split("\n")[0]) == (5, "daemon    not running")


def scraped(path: Path) -> str:
    """Read the metrics from a Unix socket."""
    connection = http.client.HTTPConnection("localhost")
    with socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.settimeout(10.0)
        connection.sock.connect(str(path))
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
