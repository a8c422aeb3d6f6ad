"""A cluster with accounting: what its users have used moves their fair-share, and nothing of it is left behind."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.backends.particulars_reader import read_particulars
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import SystemClock
from advisor.fit.accounting import FIELDS, read_accounting
from advisor.planning.causes import diagnose
from advisor.view.explanations import explanation
from tests.live.conftest import started
from tests.live.test_budget import Running
from tools.live_slurm import LiveCluster

# slurmdbd is installed beside the host's own Slurm only.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.needs("slurmdbd")]

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
    lines = (
        "PriorityWeightFairshare=10000",
        "PriorityDecayHalfLife=00:10:00",
        "AccountingStorageEnforce=associations,limits,qos",
        "Licenses=matlab:1",
    )
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


ONE_GPU = ("--gres=gpu:1", "-n1", "--time=60")
# By the name of the job: what else it asks for, what `explain` says first, and what to do.
HELD_UP = {
    "grp": (("-A", "biology"), "account biology may use 1 GPU at a time and uses 1, and this job asks for 1 GPU", "-A"),
    "user": (("--qos=small",), "user mail in QOS small may use 1 GPU at a time and uses 1,", "modify qos small set"),
    "wall": (("--qos=brief",), "a job in QOS brief may ask for 5 min at most; this one asks for 1.0 h", "=0:05:00"),
    "hold": (("--hold",), "its user holds it", "scontrol release"),
    "begin": (("--begin=now+2hours",), "it is not to begin before", "StartTime=now"),
    "after": (("--dependency=afterok:{grp0}",), "to end without an error: job", "scontrol update JobId="),
    "never": (("--dependency=afterok:{fails}",), "it can never start: it needs job", "Dependency="),
    "licence": (("-L", "matlab:1"), "it asks for 1 licence matlab, of which 0 of 1 are free", "-L matlab"),
    "exam": (("--reservation=exam",), "it asks for reservation exam (1 node), which begins at", "ReservationName="),
    "late": (("--time=3-0",), "maintenance reservation service takes all 2 nodes it can use at", "TimeLimit="),
    "down": (("-p", "debug"), "partition debug is not up, and starts no jobs", "PartitionName=debug State=UP"),
    "node": (
        ("-w", "n01", "--gres=gpu:8"),
        "it insists on node n01 (--nodelist) for 8 GPUs on one node;",
        "ReqNodeList=",
    ),
}


def test_explain_names_what_holds_each_job_up_with_the_number_and_the_command(used: Used) -> None:
    live = used.live
    held_up = submitted(live)

    def all_judged() -> bool:
        """Slurm has looked at every job"""
        reasons = live.run("squeue", "-h", "-a", "-t", "PENDING", "-o", "%r|%j").splitlines()
        return not any(reason.startswith(("None|", "Dependency|never")) for reason in reasons)

    live.wait_for(all_judged, 60.0, what="every job has its reason")
    commands = Running(live=live)
    seen = TextSource(commands, SystemClock(), SiteReader(commands, SystemClock())).snapshot()
    shown = {}
    for name, job_id in held_up.items():
        particulars = read_particulars(commands, seen.jobs_by_id[job_id], seen.config)
        shown[name] = explanation(diagnose(seen, job_id, particulars=particulars))

    for name, (_, text, command) in HELD_UP.items():
        assert text in shown[name].first.text, name
        assert any(command in remedy for remedy in shown[name].first.remedies), (name, shown[name].first.remedies)
        assert len(shown[name].first.text) < 160
    assert shown["late"].share is not None and "account language has lately used" in shown["late"].share
    printed = subprocess.run(
        [sys.executable, "-m", "advisor.cli.main", "explain", str(held_up["grp"])],
        env=live.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert [line[:8].strip() for line in printed[:3]] == ["why", "since", "to do"]


def submitted(live: LiveCluster) -> dict[str, int]:
    """Fill a cluster with one job for each cause, and return their ids by name."""
    for command in (
        "add qos small set MaxTRESPerUser=gres/gpu=1",
        "add qos brief set MaxWall=5",
        "modify user where name=mail set qos=normal,small,brief",
        "modify account biology set GrpTRES=gres/gpu=1",
    ):
        live.run("sacctmgr", "-i", *command.split())
    live.run("scancel", "--state=RUNNING", "--user=news")
    grp = live.submit(*ONE_GPU, user="news")
    live.submit(*ONE_GPU, "--qos=small", user="mail")
    live.submit(*ONE_GPU, "-L", "matlab:1", "-w", "n01", user="mail")
    fails = live.submit("-n1", "--time=1", script="false", user="mail")
    live.wait_for(lambda: str(fails) not in live.run("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%A").split())
    for reservation in (
        "ReservationName=exam Users=mail StartTime=now+3hours Duration=60 Nodes=n02",
        "ReservationName=service Users=root StartTime=now+2days Duration=120 Nodes=ALL Flags=MAINT,IGNORE_JOBS",
    ):
        live.run("scontrol", "create", "reservation", *reservation.split())
    ids = {}
    for name, (options, _, _) in HELD_UP.items():
        asked = (option.format(grp0=grp, fails=fails) for option in options)
        user = "news" if name == "grp" else "mail"
        ids[name] = live.submit(*ONE_GPU, *asked, "-J", name, user=user)
    live.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
    return ids


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
