"""A cluster with accounting: what its users have used moves their fair-share, and nothing of it is left behind."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.fit.accounting import FIELDS, read_accounting
from tests.live.conftest import started
from tools.live_slurm import LiveCluster

pytestmark = pytest.mark.live

USERS = {"vision": "games", "language": "mail", "biology": "news"}
# A minute passes before slurmctld computes priorities anew; it takes no shorter period.
RECALCULATION_DEADLINE_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A full cluster that one of three users has used for some time; `unused` are the fair-shares before that."""

    live: LiveCluster
    unused: dict[str, float]


@pytest.fixture(scope="module")
def used(release: str) -> Iterator[Used]:
    """A cluster with three accounts of one user each, whose nodes `games` has held since the start."""
    if release != "22.05":
        pytest.skip("slurmdbd is installed beside the host's own Slurm only")
    lines = ("PriorityWeightFairshare=10000", "PriorityDecayHalfLife=00:10:00")
    with started(LiveCluster(release, node_count=2, accounting=True, extra_lines=lines)) as live:
        for account, user in USERS.items():
            live.add_account(account, user)
        live.reset()
        unused = fair_shares(live)
        for _ in range(2):
            live.submit("--gres=gpu:8", "-n8", "--time=10", user="games")
        live.wait_for(lambda: fair_shares(live) != unused, RECALCULATION_DEADLINE_S, what="use shows")
        yield Used(live=live, unused=unused)


def fair_shares(live: LiveCluster) -> dict[str, float]:
    """Return the fair-share factor of every user."""
    rows = (line.split("|") for line in live.run("sshare", "-a", "-h", "-P", "-o", "User,FairShare").splitlines())
    return {user.strip(): float(factor) for user, factor in rows if user.strip()}


def test_use_lowers_the_fair_share_of_its_user_alone(used: Used) -> None:
    after = fair_shares(used.live)

    assert set(used.unused.values()) == {1.0}
    # The lowest of four ranks: root has an association of its own.
    assert after == {**used.unused, "games": 0.25}


def test_job_of_a_user_who_used_less_gets_the_higher_priority(used: Used) -> None:
    heavy, light = (used.live.submit("--gres=gpu:8", "-n8", "--time=10", user=user) for user in ("games", "mail"))

    priorities = [
        int(used.live.run("squeue", "-h", "-j", str(job_id), "-O", "PriorityLong:")) for job_id in (heavy, light)
    ]

    # Three quarters of PriorityWeightFairshare, and nothing else tells the two apart by more than a few points.
    assert priorities[1] - priorities[0] == pytest.approx(7500, abs=50)


def test_cancelled_job_stands_in_the_database_with_its_gpus(used: Used) -> None:
    job_id = int(used.live.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()[0])
    used.live.run("scancel", str(job_id))

    def row() -> list[str]:
        fields = "State,User,Account,AllocTRES"
        return used.live.run("sacct", "-n", "-X", "-P", "-j", str(job_id), "-o", fields).strip().split("|")

    used.live.wait_for(lambda: row()[0].startswith("CANCELLED"))
    assert row()[1:3] == ["games", "vision"]
    assert "gres/gpu=8" in row()[3].split(",")


def test_ended_jobs_are_read_for_a_fit_of_run_times(used: Used, tmp_path: Path) -> None:
    for user in ("games", "mail"):
        used.live.run("scancel", f"--user={user}")
    used.live.submit("--gres=gpu:1", "-n1", "--time=10", script="true", user="news")

    def printed() -> str:
        return used.live.run("sacct", "-a", "-X", "-P", "-S", "now-1hours", "-o", FIELDS)

    # It is listed a moment after it became eligible.
    used.live.wait_for(lambda: re.search(r"^news\|.*\|COMPLETED\|", printed(), re.MULTILINE) is not None)
    file = tmp_path / "sacct.txt"
    file.write_text(printed())

    accounting = read_accounting(file)

    row = accounting.ended.jobs.user.index("news")
    assert accounting.ended.jobs.account[row] == "biology"
    assert (accounting.ended.jobs.gpus[row], accounting.ended.jobs.limit_s[row]) == (1.0, 600.0)
    assert accounting.ended.state[row] == "COMPLETED"
    assert set(accounting.left_out) <= {"not ended", "never started"}


def test_stopped_cluster_leaves_neither_database_nor_processes(used: Used) -> None:
    with LiveCluster(used.live.release, node_count=1, accounting=True) as other:
        folder = other.folder
        running = commands_that_name(folder)

    assert {"mariadbd", "slurmctld"} <= running
    assert commands_that_name(folder) == set()
    assert not folder.exists()


def commands_that_name(folder: Path) -> set[str]:
    """List the programs whose command line holds the folder's name."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(folder).encode() in word for word in words):
            found.add(Path(words[0].decode()).name)
    return found
