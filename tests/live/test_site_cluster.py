"""A trace on the cluster of the site itself, read from a real slurmctld."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.backends.assoc_text import PreemptRule, read_queue_limits
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import running_config
from tests.live.conftest import started
from tools.stage import LiveCluster
from tools.stage.watch import talking_to

pytestmark = pytest.mark.live

TIERS = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PreemptExemptTime=00:00:00",
    "PartitionName=scavenger Nodes=ALL PriorityTier=1 GraceTime=0 State=UP",
    "PartitionName=urgent Nodes=ALL PriorityTier=5 PreemptMode=OFF State=UP",
)


def test_trace_runs_on_the_cluster_of_the_site(fresh: LiveCluster, tmp_path: Path) -> None:
    trace = tmp_path / "month.csv"
    trace.write_text(
        "job_id,submit_time,run_time_s,gpus,time_limit_s,partition\n1,0,60,8,600,gpu\n2,0,60,16,600,debug\n",
        encoding="utf-8",
    )
    argv = [sys.executable, "-m", "advisor.cli.main", "simulate", str(trace), "--cluster", "live", "--json"]

    answer = subprocess.run(argv, env=fresh.env, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stderr
    assert [run["finished"] for run in json.loads(answer.stdout)["runs"]] == [2, 2]
    # The test cluster has no accounting.
    assert "sadvise: --cluster live: slurmctld shows no associations" in answer.stderr


def test_a_partition_that_gives_way_does_so_in_the_simulation_as_on_slurmctld(release: str, tmp_path: Path) -> None:
    trace = tmp_path / "month.csv"
    columns = "job_id,submit_time,run_time_s,gpus,time_limit_s,partition"
    rows = ("1,0,600,8,1200,scavenger", "2,0,600,8,1200,scavenger", "3,100,60,8,600,urgent")
    trace.write_text("\n".join((columns, *rows, "")), encoding="utf-8")
    argv = [sys.executable, "-m", "advisor.cli.main", "simulate", str(trace), "--cluster", "live", "--json"]
    with started(LiveCluster(release, node_count=2, extra_lines=TIERS)) as live:
        answer = subprocess.run(argv, env=live.env, capture_output=True, text=True, check=False)
        lows = [live.submit("-p", "scavenger", "--gres=gpu:8", "-n8", "--time=20") for _ in range(2)]
        live.wait_for(lambda: [*map(live.state_of, lows)] == ["RUNNING"] * 2, 30.0, what="both run")
        high = live.submit("-p", "urgent", "--gres=gpu:8", "-n8", "--time=10")
        live.wait_for(lambda: live.state_of(high) == "RUNNING", 30.0, what="the urgent job runs")
        states = sorted(map(live.state_of, lows))

    assert answer.returncode == 0, answer.stderr
    assert "Preempt" not in answer.stderr
    [run] = [run for run in json.loads(answer.stdout)["runs"] if run["policy"] == "slurm"]
    assert (run["finished"], run["preemptions"]) == (3, 1)
    assert states == ["PENDING", "RUNNING"]


@pytest.mark.releases("22.05")
@pytest.mark.needs("slurmdbd")
def test_which_qos_preempt_which_is_read_from_accounting(release: str) -> None:
    lines = ("PreemptType=preempt/qos", "PreemptMode=CANCEL", "AccountingStorageEnforce=qos")
    low = ("PreemptMode=requeue", "GraceTime=30", "PreemptExemptTime=00:10:00")
    with started(LiveCluster(release, node_count=1, accounting=True, extra_lines=lines)) as live, talking_to(live):
        for qos, settings in (("low", low), ("high", ("Preempt=low,normal",))):
            live.run("sacctmgr", "-i", "add", "qos", qos)
            live.run("sacctmgr", "-i", "modify", "qos", qos, "set", *settings)
        commands = SlurmCommands(timeout_s=20.0)

        limits = read_queue_limits(commands, running_config(commands))

    assert limits.preempting == {
        "normal": PreemptRule(),
        "low": PreemptRule(mode="requeue", grace_s=30.0, exempt_s=600.0),
        "high": PreemptRule(preempts=("low", "normal")),
    }
