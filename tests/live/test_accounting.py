"""A cluster with accounting: what its users have used moves their fair-share, and nothing of it is left behind."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.backends.failures_reader import read_failed_runs
from advisor.backends.particulars_reader import read_particulars
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import TextSource
from advisor.cli.site_history import accounting_commands
from advisor.clock import SystemClock
from advisor.diagnose.causes import diagnose
from advisor.diagnose.failing_nodes import SINCE
from advisor.errors import TraceError
from advisor.fit.accounting import ask_accounting
from advisor.sim.traces.importing.formats import import_trace
from advisor.sim.traces.importing.sacct import FILLED_IN, WRITTEN, asked_rows
from advisor.view.explanations import explanation
from tests.live.conftest import started
from tests.live.reading import sadvise_on
from tests.live.test_budget import Running
from tools.stage import LiveCluster
from tools.stage.watch import talking_to

# slurmdbd is always there beside the host's own Slurm only.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.needs("slurmdbd")]

ONE_GPU = ("--gres=gpu:1", "-n1", "--time=60")
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


def test_check_says_whether_fair_share_is_charged_for_gpus(used: Used) -> None:
    def findings() -> dict[str, tuple[str, str]]:
        checks = json.loads(sadvise_on(used.live, "check", "--json").out)["checks"]
        named = [check for check in checks if check["name"].startswith("fair share")]
        return {check["name"]: (check["status"], check["cost"]) for check in named}

    before = findings()
    weights = [cost.partition("TRESBillingWeights=")[2].strip('"') for _, cost in before.values()]
    for partition in ("gpu", "debug"):
        used.live.run("scontrol", "update", f"PartitionName={partition}", f"TRESBillingWeights={weights[0]}")

    assert before.keys() == {"fair share gpu", "fair share debug"}
    assert weights[0].startswith("CPU=1.0,GRES/gpu=")
    assert findings() == {"fair share": ("ok", "")}


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


def test_ended_jobs_are_read_for_a_fit_of_run_times(used: Used, monkeypatch: pytest.MonkeyPatch) -> None:
    for user in ("games", "mail"):
        used.live.run("scancel", f"--user={user}")
    job_id = used.live.submit("--gres=gpu:1", "-n1", "--time=10", script="true", user="news")
    # It is listed a moment after it became eligible.
    used.live.wait_for(lambda: states_of(used.live).get(str(job_id)) == "COMPLETED")

    accounting = ask_accounting(commands_of(used.live, monkeypatch), since="now-1hours")

    row = accounting.ended.jobs.user.index("news")
    assert accounting.ended.jobs.account[row] == "biology"
    assert (accounting.ended.jobs.gpus[row], accounting.ended.jobs.limit_s[row]) == (1.0, 600.0)
    assert accounting.ended.state[row] == "COMPLETED"
    assert set(accounting.left_out) <= {"not ended", "never started"}


def states_of(live: LiveCluster) -> dict[str, str]:
    """Return the state of each job in accounting, by its id."""
    rows = live.run("sacct", "-a", "-n", "-X", "-P", "-S", "now-1hours", "-o", "JobIDRaw,State").splitlines()
    return dict(row.split("|") for row in rows)


def commands_of(live: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCommands:
    """Return the commands with which sadvise asks the accounting of a cluster."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, live.env[name])
    return accounting_commands(None, 60.0)


# What a user writes: rows of `mail` between bars and between tabs, and pieces that break rows.
FORGED = "9999|9999|mail|normal|debug|1|1|2|999999|60|COMPLETED|gres/gpu=1|gres/gpu=1|1|"
HOSTILE = (
    f"x\n{FORGED}", f"x\n{FORGED}\ny", f"x|\n{FORGED}", f"x\n{FORGED}".replace("|", "\t"), "a\nb", "a|b", "a\tb", "\n",
    '"}, {"job_id": 9999', "@", "\\n9999|",
)  # fmt: skip
FIELDS = ("--job-name=", "--comment=", "--account=", "--wckey=", "--constraint=", "--chdir=/tmp/")


# Long enough for accounting to count a second.
SHORT = "sleep 1.5"


@pytest.fixture(scope="module")
def recorded(release: str, need: Callable[[str], Path]) -> Iterator[LiveCluster]:
    """A cluster that takes any account, with ended jobs of `mail` and jobs of `games` with hostile texts."""
    need(f"slurmdbd {release}")
    with started(LiveCluster(release, node_count=2, accounting=True)) as live:
        live.add_account("lab", "mail", "games")
        honest = [
            live.submit(*ONE_GPU, "--job-name=train", script=SHORT, user="mail"),
            live.submit(*ONE_GPU, "--array=1-3", "--job-name=array", script=SHORT, user="mail"),
            live.submit(*ONE_GPU, ":", *ONE_GPU, script=SHORT, user="mail"),
        ]
        live.wait_for(lambda: all(str(job_id) in states_of(live) for job_id in honest))
        taken = 0
        for option in FIELDS:
            for text in HOSTILE:
                argv = ("sbatch", "--parsable", "--output=/dev/null", *ONE_GPU, option + text)
                taken += live.ask(*argv, stdin=f"#!/bin/sh\n{SHORT}\n", user="games").returncode == 0
        assert taken >= 2 * len(HOSTILE)
        honest.append(live.submit(*ONE_GPU, "--job-name=last", script=SHORT, user="mail"))

        def ended() -> bool:
            """Accounting has the end of every job"""
            ids = live.run(
                "sacct", "-a", "-n", "-X", "-p", "--delimiter=@@", "-S", "now-1hours", "-o", "JobIDRaw,State"
            )
            rows = [row.strip().split("@@") for row in ids.split("@@\n") if row]
            return {str(job_id) for job_id in honest} <= {row[0] for row in rows} and not any(
                row[1].startswith(("PENDING", "RUNNING", "COMPLETING")) for row in rows
            )

        live.wait_for(ended, 120.0, what="every job has ended")
        yield live


@pytest.mark.releases("22.05", "24.11", "26.05")
def test_texts_of_a_user_change_no_row_of_another_in_trace_or_fit(
    recorded: LiveCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = tmp_path / "sacct.json"
    answer.write_text(recorded.run("sacct", "-a", "-X", "--json", "-S", "now-1hours"))
    commands = commands_of(recorded, monkeypatch)

    live = import_trace("sacct", Path("live"), read=asked_rows(commands, since="now-1hours"))
    read = import_trace("sacct", answer)
    fitted = ask_accounting(commands, since="now-1hours")

    assert live.left_out == read.left_out
    for column in live.trace.jobs.dtype.names or ():
        assert live.trace.jobs[column].tolist() == read.trace.jobs[column].tolist(), column
    assert (live.trace.job_names, live.trace.accounts) == (read.trace.job_names, read.trace.accounts)
    names = {live.trace.job_names[code] for code in live.trace.jobs["name"]}
    # Slurm keeps no double quotes in names.
    assert {text for text in HOSTILE if '"' not in text} <= names
    of_mail = [row for row in live.trace.jobs if live.trace.users[row["user"]] == "mail"]
    assert {live.trace.job_names[row["name"]] for row in of_mail} <= {"train", "array", "sbatch", "last"}
    assert max(row["run_time_s"] for row in of_mail) < 600
    assert 9999 not in live.trace.jobs["job_id"]
    assert set(fitted.ended.jobs.user) == {"mail", "games"}
    assert max(fitted.ended.run_s) < 600


@pytest.mark.releases("22.05", "24.11", "26.05")
def test_text_of_sacct_with_texts_of_users_has_no_made_up_row_of_another(recorded: LiveCluster, tmp_path: Path) -> None:
    file = tmp_path / "sacct.txt"
    columns = ",".join((*FILLED_IN, *WRITTEN))
    printed = recorded.run("sacct", "-a", "-X", "-P", "--delimiter=\t", "-S", "now-1hours", "-o", columns)
    file.write_text(printed)

    with pytest.raises(TraceError, match="a newline in a text that users write broke the row"):
        import_trace("sacct", file, skip_bad=True)


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
        """Slurm has looked at every job, and those without a name of their own run"""
        reasons = live.run("squeue", "-h", "-a", "-t", "PENDING", "-o", "%r|%j").splitlines()
        waiting = ("None|", "Dependency|never")
        return not any(reason.startswith(waiting) or reason.endswith("|sbatch") for reason in reasons)

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
    # Before its job is submitted, which would start at once.
    live.run("scontrol", "update", "PartitionName=debug", "State=DOWN")
    ids = {}
    for name, (options, _, _) in HELD_UP.items():
        asked = (option.format(grp0=grp, fails=fails) for option in options)
        user = "news" if name == "grp" else "mail"
        ids[name] = live.submit(*ONE_GPU, *asked, "-J", name, user=user)
    return ids


def test_runs_that_a_failing_node_ended_are_read_requeued_ones_too(used: Used) -> None:
    live = used.live
    live.reset()
    ids = [live.submit(*ONE_GPU, requeue, "-w", "n01", user="mail") for requeue in ("--requeue", "--no-requeue")]
    live.wait_for(lambda: live.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split() == sorted(map(str, ids)))

    live.run("scontrol", "update", "NodeName=n01", "State=DOWN", "Reason=fails")
    with talking_to(live):
        commands = SlurmCommands(timeout_s=30.0)
        live.wait_for(lambda: len(read_failed_runs(commands, SINCE)) == 2, what="accounting has the runs")
        runs = read_failed_runs(commands, SINCE)
    checks = json.loads(sadvise_on(live, "check", "--json").out)["checks"]

    assert {(run.nodes, run.user) for run in runs} == {(("n01",), "mail")}
    (check,) = (check for check in checks if check["name"] == "nodes that end jobs")
    assert check["text"].startswith("no node fails more often than chance makes; 2 runs ended as a node failed")


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
