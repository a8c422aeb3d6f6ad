import re
import subprocess
import time

import pytest

from tools.stage import LiveCluster, LiveSlurmError
from tools.stage.mixed_queue import DRAIN_REASON, DRAINED_NODE, PENDING, RUNNING

pytestmark = pytest.mark.live


def test_cluster_runs_the_release_it_is_named_after(cluster: LiveCluster) -> None:
    said = cluster.run("scontrol", "--version")

    assert said.split()[-1] == cluster.version
    assert cluster.version.startswith(cluster.release)


def test_plain_command_line_reaches_the_cluster_through_its_environment(cluster: LiveCluster) -> None:
    argv = ["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N"]

    answer = subprocess.run(argv, env=cluster.env, capture_output=True, text=True, check=True)

    assert answer.stdout.split() == [f"n0{number}" for number in range(1, 9)]


def test_wrong_slurm_conf_gives_slurms_own_complaint(cluster: LiveCluster) -> None:
    # Not a missing file: every release waits a minute for it to appear.
    (cluster.folder / "wrong.conf").write_text("Nonsense=1\n")
    env = {**cluster.env, "SLURM_CONF": str(cluster.folder / "wrong.conf")}

    answer = subprocess.run(["squeue", "-h"], env=env, capture_output=True, text=True, check=False)

    assert answer.returncode == 1
    assert "Parsing error at unrecognized key: Nonsense" in answer.stderr


def test_nodes_have_the_gpus_and_switches_that_were_asked_for(cluster: LiveCluster) -> None:
    gres = cluster.run("sinfo", "-h", "-N", "-p", "gpu", "-O", "NodeHost:|,Gres:|").splitlines()
    topology = cluster.run("scontrol", "show", "topology")

    assert gres[0] == "n01|gpu:a100:8|"
    assert gres[5] == "n06|gpu:a100:8,shard:a100:32|"
    assert gres[7] == "n08|gpu:v100:8|"
    assert "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[01-04]" in topology
    assert "Switches=leaf[1-2]" in topology


def test_mixed_queue_runs_and_waits_as_intended(cluster: LiveCluster, mixed: dict[str, int]) -> None:
    rows = cluster.run("squeue", "-h", "-a", "-O", "JobID:|,State:").splitlines()
    states = {int(job_id): state for job_id, _, state in (row.partition("|") for row in rows)}

    assert {name for name in RUNNING if states[mixed[name]] != "RUNNING"} == {"array"}
    assert {name for name in (*PENDING, "dependent") if states[mixed[name]] != "PENDING"} == set()


def test_mixed_queue_fills_every_gpu_that_is_not_drained(cluster: LiveCluster, mixed: dict[str, int]) -> None:
    rows = cluster.run("sinfo", "-h", "-N", "-p", "gpu", "-O", "NodeHost:|,StateCompact:|,Reason:").splitlines()
    states = {name: (state, reason) for name, state, reason in (row.split("|", 2) for row in rows)}

    assert states.pop(DRAINED_NODE) == ("drain", DRAIN_REASON)
    assert {state.rstrip("-") for state, _ in states.values()} == {"mix"}


def test_array_and_heterogeneous_job_stand_in_the_mixed_queue(cluster: LiveCluster, mixed: dict[str, int]) -> None:
    names = cluster.run("squeue", "-h", "-a", "-O", "JobArrayID:").splitlines()

    assert f"{mixed['array']}_[3-6%2]" in names
    assert {f"{mixed['array']}_1", f"{mixed['array']}_2"} <= set(names)
    assert {f"{mixed['het']}+0", f"{mixed['het']}+1"} <= set(names)


def test_rpc_counts_move_with_what_is_asked(cluster: LiveCluster) -> None:
    before = cluster.rpc_counts()

    cluster.run("squeue", "-h", "-a")
    cluster.run("squeue", "-h", "-a")

    after = cluster.rpc_counts()
    moved = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
    assert moved == {"REQUEST_JOB_INFO": 2, "REQUEST_PARTITION_INFO": 2}


def test_reset_forgets_jobs_drained_nodes_and_reservations(cluster: LiveCluster) -> None:
    cluster.submit("--gres=gpu:8")
    cluster.drain("n03", "broken")
    cluster.run(
        "scontrol",
        "create",
        "reservation",
        "StartTime=now",
        "Duration=5",
        "Users=root",
        "Nodes=n01",
        "Flags=IGNORE_JOBS",
    )

    cluster.reset()

    assert cluster.run("sinfo", "-h", "-p", "gpu", "-o", "%T %D").split() == ["idle", "8"]
    assert "No reservations" in cluster.run("scontrol", "show", "reservation")
    assert cluster.submit("--hold") == 1


def test_job_of_another_user_is_refused_to_a_third(fresh: LiveCluster) -> None:
    job_id = fresh.submit("--hold")

    answer = fresh.ask("scontrol", "update", f"JobId={job_id}", "Nice=5", user="games")

    assert answer.returncode == 1
    assert "Invalid user id" in answer.stderr


def test_stopped_controller_refuses_and_started_one_remembers(fresh: LiveCluster) -> None:
    job_id = fresh.submit("--hold")

    fresh.stop_controller()
    while_down = fresh.run("scontrol", "ping", check=False)
    fresh.start_controller()

    assert "is DOWN" in while_down
    assert fresh.run("squeue", "-h", "-a", "-o", "%A").split() == [str(job_id)]


def test_flat_cluster_starts_beside_the_running_one(cluster: LiveCluster) -> None:
    with LiveCluster(cluster.release, topology="flat") as other:
        theirs, ours = (live.run("scontrol", "show", "config") for live in (other, cluster))

    assert re.search(r"TopologyPlugin\s*= topology/(flat|none|default)\n", theirs)
    assert re.search(r"TopologyPlugin\s*= topology/tree\n", ours)


def test_block_topology_starts_where_the_release_has_it(cluster: LiveCluster) -> None:
    if cluster.release == "22.05":
        with pytest.raises(LiveSlurmError, match="no topology/block"):
            LiveCluster(cluster.release, topology="block").start()
        return

    with LiveCluster(cluster.release, topology="block") as other:
        topology = other.run("scontrol", "show", "topology")

    assert "BlockName=block2 BlockIndex=1 Nodes=n[05-08]" in topology


def test_thousand_nodes_and_many_held_jobs_are_there_within_seconds(cluster: LiveCluster) -> None:
    started = time.monotonic()

    with LiveCluster(cluster.release, node_count=1000, start_slurmd=False) as big:
        ids = big.submit_many(200)
        waiting = big.run("squeue", "-h", "-a", "-t", "PENDING", "-o", "%A").split()
        nodes = big.run("sinfo", "-h", "-p", "gpu", "-o", "%D").split()

    assert sorted(map(int, waiting)) == ids
    assert sum(map(int, nodes)) == 1000
    assert time.monotonic() - started < 60


def test_stopped_cluster_leaves_no_files(cluster: LiveCluster) -> None:
    with LiveCluster(cluster.release, node_count=2) as other:
        folder = other.folder
        job_id = other.submit("--gres=gpu:1")
        other.wait_for(lambda: "RUNNING" in other.run("squeue", "-h", "-j", str(job_id), "-o", "%T"))

    assert not folder.exists()
    assert not folder.is_symlink()
