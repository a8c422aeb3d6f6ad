"""Delay timers on live clusters: gangs wait for a close place or start spread when their timer ends; none is stuck."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from advisor.apply.applier import INTENT_GRACE_S
from advisor.domain.lease import Lease, LeaseState
from advisor.journal import opened
from tests.live.conftest import started
from tests.live.test_advice import sadvise
from tools.advice_queue import PRIORITY_LINES
from tools.stage import LiveCluster

# The oldest and the newest release stand for all.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05", "26.05")]

ROOT = Path(__file__).parent.parent.parent
# Each gang has a partition of its own on leaves n01 to n04 and n05 to n08.
PARTITIONS = ("in-time Nodes=n01,n02,n05", "in-vain Nodes=n03,n04,n06", "ranged Nodes=n07,n08")
# Short timers, half of the bound, by rule, and nothing waits until a job is a minute old.
# No gang is lifted, and timers are not tried first, so that they are all that changes.
SETTINGS = {
    "SADVISE_GUARD__NICE_MIN": "0",
    "SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "0",
    "SADVISE_GUARD__MAX_ADDED_DELAY_S": "120",
    "SADVISE_GUARD__MIN_JOB_AGE_S": "0",
    "SADVISE_FORECASTS__ENABLED": "false",
}
SOON, LATER, NEVER = "sleep 20", "sleep 45", "sleep 3600"
LONG = "--time=2-00:00:00"


@pytest.fixture(scope="module")
def cluster(release: str) -> Iterator[LiveCluster]:
    """Eight nodes of eight GPUs under two leaf switches, for gangs of three partitions."""
    lines = [f"PartitionName={partition} MaxTime=UNLIMITED State=UP" for partition in PARTITIONS]
    extra_lines = (*PRIORITY_LINES, *lines)
    with started(LiveCluster(release, gpu_types=["a100"] * 8, shards={}, extra_lines=extra_lines)) as live:
        yield live


def fill(live: LiveCluster) -> Mapping[str, int]:
    """Occupy every node, and let three gangs wait whose first chance is a spread place.

    By rule the first in line does not wait for a closer place, so another job waits ahead of them, for node n04.
    """
    for node, script in (("n01", LATER), ("n02", SOON), ("n05", SOON), ("n03", SOON), ("n04", NEVER), ("n06", SOON)):
        live.submit(LONG, "--time=00:02:00", "--gres=gpu:8", "-n1", f"--nodelist={node}", script=script)
    for node in ("n07", "n08"):
        live.submit(LONG, "--gres=gpu:4", "-n1", f"--nodelist={node}", script=NEVER)
        live.submit("--time=00:02:00", "--gres=gpu:4", "-n1", f"--nodelist={node}", script=SOON)
    live.submit("--time=00:02:00", "--gres=gpu:8", "-n1", "--nodelist=n04", script=NEVER)
    pair = (LONG, "-N2", "--gpus-per-node=8", "--ntasks-per-node=1")
    return {
        "in-time": live.submit("-p", "in-time", *pair),
        "in-vain": live.submit("-p", "in-vain", *pair),
        "ranged": live.submit("-p", "ranged", LONG, "-N1-2", "--gpus=8", "-n2"),
    }


def advisor_until(live: LiveCluster, journal: Path, timers: Mapping[int, str]) -> None:
    """Let an advisor run until every gang has its timer, then kill it with whatever it is doing."""
    line = f"while :; do {sys.executable} -m advisor.cli.main apply --json --journal {journal}; done"
    process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        env={**live.env, **SETTINGS},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        live.wait_for(lambda: all(wait in asked(live, job_id) for job_id, wait in timers.items()), 40.0, what="timers")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10.0)


def asked(live: LiveCluster, job_id: int) -> str:
    """Return what a pending job asks of its nodes and switches."""
    return live.run("squeue", "-h", "-j", str(job_id), "-O", "MaxNodes:@,ReqSwitch:@,Wait4Switch:@")


def nodes_of(live: LiveCluster, job_id: int) -> str:
    """Return the nodes of a running job; nothing while it pends."""
    return live.run("squeue", "-h", "-t", "RUNNING", "-j", str(job_id), "-o", "%N").strip()


def leases(journal: Path) -> tuple[Lease, ...]:
    """Return the open leases of a journal."""
    with opened(journal) as kept:
        return kept.leases()


def unsettled_after_grace(live: LiveCluster, journal: Path, intents: Sequence[Lease]) -> list[Lease]:
    """Return the leases that are not out once none of the intents can take effect any more.

    A kill between sending and settling leaves intents. That of a gang that has started stays one while the command can
    still reach it, since a requeued gang would keep its value. A gang that started while its value was taken back is
    settled by the next advisor.
    """
    if intents:
        time.sleep(max(0.0, max(lease.applied_time for lease in intents) + INTENT_GRACE_S - time.time()))
    if any(lease.state is not LeaseState.OUT for lease in leases(journal)):
        sadvise(live, "apply", "--json", "--journal", str(journal), settings=SETTINGS)
    return [lease for lease in leases(journal) if lease.state is not LeaseState.OUT]


def test_gangs_get_a_close_place_in_time_or_start_spread_and_a_killed_advisor_leaves_none_stuck(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    journal, began = tmp_path / "journal.sqlite", time.monotonic()
    gangs = fill(cluster)
    waits = {gangs["in-time"]: "2@1@1:00@", gangs["in-vain"]: "2@1@1:00@", gangs["ranged"]: "1@0@"}

    advisor_until(cluster, journal, waits)
    begun_s = time.monotonic() - began
    cluster.wait_for(lambda: nodes_of(cluster, gangs["in-time"]) != "", 60.0, what="the gang in time runs")
    spread_early = nodes_of(cluster, gangs["in-vain"])
    cluster.wait_for(lambda: nodes_of(cluster, gangs["in-vain"]) != "", 90.0, what="the gang in vain runs")
    held = nodes_of(cluster, gangs["ranged"])
    done = json.loads(sadvise(cluster, "apply", "--json", "--journal", str(journal), settings=SETTINGS))["changes"]
    cluster.wait_for(lambda: nodes_of(cluster, gangs["ranged"]) != "", 30.0, what="the relaxed gang runs")

    # All spread places were free after 20 s; only the timers kept the gangs from them.
    assert begun_s < 20.0
    assert nodes_of(cluster, gangs["in-time"]) == "n[01-02]"
    assert spread_early == ""
    assert nodes_of(cluster, gangs["in-vain"]) == "n[03,06]"
    # Nobody was there to relax it; the next advisor does.
    assert held == ""
    assert [(row["job_id"], row["lever"]) for row in done if row["done"] == "taken_back"] == [
        (gangs["ranged"], "node_range")
    ]
    assert nodes_of(cluster, gangs["ranged"]) == "n[07-08]"
    intents = [lease for lease in leases(journal) if lease.state is LeaseState.INTENDED]
    assert {lease.job_id for lease in intents} <= {gangs["in-time"], gangs["in-vain"]}
    assert unsettled_after_grace(cluster, journal, intents) == []


def test_gang_far_from_the_head_gets_no_timer_while_idle_gpus_are_reserved_for_the_jobs_ahead(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    cluster.reset()
    for node, gpus in (("n01", 4), ("n03", 4), *((f"n0{number}", 8) for number in (2, 4, 5, 6, 7, 8))):
        cluster.submit("--time=10:00:00", f"--gres=gpu:{gpus}", "-n1", f"--nodelist={node}", script=NEVER)
    cluster.wait_for(lambda: len(cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()) == 8, what="all run")
    for _ in range(30):
        cluster.submit("--time=10:00:00", "--gres=gpu:8", "-N1", "-n1", script=NEVER)
    gang = cluster.submit(LONG, "-N1-2", "--gpus=8", "-n2")
    # A job that slurmctld has not considered yet is no job ahead.
    cluster.wait_for(
        lambda: set(cluster.run("squeue", "-h", "-t", "PENDING", "-o", "%r").split()) <= {"Priority", "Resources"},
        what="all are considered",
    )
    before = asked(cluster, gang)
    settings = {**SETTINGS, "SADVISE_GUARD__MAX_ADDED_DELAY_S": "3600"}

    done = json.loads(sadvise(cluster, "apply", "--json", "--journal", str(tmp_path / "j"), settings=settings))[
        "changes"
    ]

    # Its GPUs are idle on n01 and n03, and slurmctld keeps both nodes for jobs ahead.
    assert [row for row in done if row["lever"] in ("node_range", "switches")] == []
    assert asked(cluster, gang) == before
    assert nodes_of(cluster, gang) == ""
