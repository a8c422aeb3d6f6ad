"""Advice on a live queue: every printed command does what it names, and every revert undoes it."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from advisor.domain.snapshot import Snapshot
from tests.live.conftest import started
from tests.live.reading import sadvise_on, taken
from tools.advice_queue import PENDING, advice_cluster, fill
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

# Nothing here has waited a minute yet.
FORECASTING = {"SADVISE_GUARD__PROBATION_JOBS": "0", "SADVISE_GUARD__MIN_JOB_AGE_S": "0"}
# The queue is made so that rules find a use for every lever; changes that would not gain for all jobs go untried.
EAGER = {
    **FORECASTING,
    "SADVISE_FORECASTS__ENABLED": "false",
    "SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "0",
}
# Long jobs stand everywhere in the mixed queue; by default nobody is put behind them.
PATIENT = {
    **{f"SADVISE_GUARD__MAX_{whose}_DELAY_S": "2592000" for whose in ("ADDED", "USER", "ACCOUNT")},
    "SADVISE_FORECASTS__ENABLED": "false",
}
FIELDS = (
    "JobID,Nice,ReqSwitch,Wait4Switch,NumNodes,MaxNodes,NumTasks,NumCPUs,tres-alloc,tres-per-job,"
    "tres-per-node,tres-per-task,TimeLimit,MinTime,Comment,Partition,State,ReqNodes,Feature,MinCpus,MinMemory"
)


@pytest.fixture(scope="module")
def advised(release: str) -> Iterator[tuple[LiveCluster, dict[str, int]]]:
    """A cluster whose queue needs every kind of advice, and the job ids by name."""
    with started(advice_cluster(release)) as live:
        ids = fill(live)

        def all_considered() -> bool:
            """Slurm has looked at every job"""
            reasons = live.run("squeue", "-h", "-a", "-t", "PENDING", "-o", "%r").split("\n")
            return "None" not in reasons

        live.wait_for(all_considered, 90.0)
        yield live, ids


def sadvise(live: LiveCluster, *arguments: str, settings: Mapping[str, str] = EAGER) -> str:
    """Run the command line as an administrator of the cluster would."""
    answer = sadvise_on(live, *arguments, settings=settings)
    assert answer.exit_code == 0, answer.err
    return answer.out


def advice(live: LiveCluster, *arguments: str, settings: Mapping[str, str] = EAGER) -> list[dict[str, Any]]:
    """Return the recommendations for the queue as it is now."""
    document: dict[str, Any] = json.loads(sadvise(live, "recommend", "--json", *arguments, settings=settings))
    return document["recommendations"]  # type: ignore[no-any-return]


def state_of(live: LiveCluster, job_id: int) -> str:
    """Return what Slurm says of a job, but for what its scheduler works out anew."""
    layout = ",".join(f"{field}:@@" for field in FIELDS.split(","))
    return live.run("squeue", "-h", "-a", "-j", str(job_id), "-O", layout)


def holds(snapshot: Snapshot, job_id: int, wanted: Mapping[str, Any]) -> bool:
    """Whether the job has the value that a recommendation names."""
    job = snapshot.jobs_by_id[job_id]
    found = json.loads(json.dumps({"nice": job.nice, "time_limit_s": job.time_limit_s, **asdict(job.gang)}))
    return all(found[key] == value for key, value in wanted.items())


def test_queue_gets_advice_of_every_kind(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, ids = advised

    changes = advice(live)

    assert {change["kind"] for change in changes} == {"reorder", "resize", "consolidate"}
    # By rule the first in line, which could be held to one node, does not wait.
    assert {change["lever"] for change in changes} == {"nice", "gpu_count", "switches"}
    assert {change["job_id"] for change in changes} <= {ids[name] for name in PENDING}


def test_changes_that_rollouts_refuse_are_no_advice(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, _ = advised

    document = json.loads(
        sadvise(
            live, "recommend", "--json", "--rollout", settings={**EAGER, "SADVISE_PLANNING__ROLLOUT_DEADLINE_S": "60"}
        )
    )

    tried = {(one["job_id"], one["lever"]): one["finding"] for one in document["rollout"]["changes"]}
    untried = {(one["job_id"], one["lever"]) for one in advice(live) if one["lever"] != "nice"}
    sent = {(one["job_id"], one["lever"]) for one in document["recommendations"] if one["lever"] != "nice"}
    assert document["rollout"]["fault"] == "" and untried <= set(tried)
    assert sent == {key for key, finding in tried.items() if finding.startswith("gains")}


def test_models_forecast_a_live_queue(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, ids = advised

    document = json.loads(sadvise(live, "recommend", "--json", settings=FORECASTING))
    told = json.loads(sadvise(live, "explain", "--json", str(ids["llama-pretrain"]), settings=FORECASTING))

    assert document["forecasts"]["notes"] == []
    # Only `explain` and the daemon forecast when jobs start.
    assert len(document["forecasts"]["models"]) == 3
    assert {change["kind"] for change in document["recommendations"]} <= {"reorder", "resize", "consolidate"}
    run_time = told["diagnosis"]["forecast"]["run_time_s"]
    assert 0.0 < run_time["low"] <= run_time["median"] <= run_time["high"]


# PriorityWeightJobSize of the live clusters.
SIZE_POINTS = 1000


def try_out(live: LiveCluster, change: dict[str, Any]) -> None:
    """Run a change's command as printed and read it back, then its revert, and compare with the state before."""
    job_id = change["job_id"]
    before, priority = state_of(live, job_id), priority_of(live, job_id)
    assert holds(taken(live), job_id, change["before"]), change

    applied = live.ask(*change["command"])
    after = taken(live)
    reverted = live.ask(*change["revert"])

    assert (applied.returncode, applied.stderr) == (0, ""), change
    assert holds(after, job_id, change["after"]), change
    assert (reverted.returncode, reverted.stderr) == (0, ""), change
    assert state_of(live, job_id) == before, change

    def priority_is_back() -> bool:
        """Whether the job has its priority again, but for a point of age and the points of a larger size.

        Slurm counts the CPUs that an exclusive job will hold once it has tested it for a start.
        """
        return -1 <= priority_of(live, job_id) - priority <= SIZE_POINTS

    live.wait_for(priority_is_back, 15.0, what=f"priority {priority} of job {job_id} is back after {change}")


def priority_of(live: LiveCluster, job_id: int) -> int:
    """Return a job's priority."""
    return int(live.run("squeue", "-h", "-a", "-j", str(job_id), "-O", "PriorityLong:").split()[0])


def test_printed_commands_do_what_they_name_and_reverts_undo_it(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, _ = advised
    changes = advice(live)
    # Or the job that shrinks would start at once, which is the purpose, but leaves nothing to revert.
    live.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")

    for change in changes:
        try_out(live, change)
    live.run("scontrol", "update", "PartitionName=gpu", "State=UP")


def test_advice_for_a_queue_of_every_request_form_can_be_done_and_undone(
    cluster: LiveCluster, mixed: dict[str, int]
) -> None:
    changes = advice(cluster, settings={**EAGER, **PATIENT})

    assert changes
    assert {change["job_id"] for change in changes} <= set(mixed.values())
    for change in changes:
        try_out(cluster, change)


def test_split_array_is_left_alone(release: str) -> None:
    with started(LiveCluster(release)) as live:
        for _ in range(8):
            live.submit("--gres=gpu:8", "-n8", "--time=2-00:00:00")
        array = live.submit("--array=1-4", "--gres=gpu:8", "--time=2-00:00:00")
        for _ in range(6):
            live.submit("--gres=gpu:1", "--time=00:10:00", "--nice=5")
        live.run("scontrol", "update", f"JobId={array}_2", "Nice=7")

        document = json.loads(sadvise(live, "recommend", "--json", "--source", "text"))

        assert {"job_id": array, "rule": "array_not_split"} in document["skipped"]
        assert array not in {change["job_id"] for change in document["recommendations"]}


def test_commands_printed_for_people_are_those_of_the_json(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, _ = advised

    printed = sadvise(live, "recommend", "--long")

    for change in advice(live):
        # The nice of a lift follows the priority, which ages from one reading to the next.
        *command, value = change["command"]
        name = value.partition("=")[0] + "=" if change["lever"] == "nice" else f"{value}\n"
        assert f"apply   {shlex.join(command)} {name}" in printed
        assert f"revert  {shlex.join(change['revert'])}" in printed


def test_job_with_advice_applied_gets_no_more_of_it(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, ids = advised
    change = next(change for change in advice(live) if change["lever"] == "switches")

    live.run(*change["command"])
    left = advice(live, "-j", str(change["job_id"]))
    live.run(*change["revert"])

    assert left == []
    assert change["job_id"] == ids["gpt-ddp"]


def test_filters_and_exit_code_follow_squeue(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, ids = advised

    assert [change["job_id"] for change in advice(live, "-j", str(ids["gpt-ddp"]))] == [ids["gpt-ddp"]]
    assert advice(live, "-p", "debug") == []
    assert advice(live, "-u", "nobody") == []
    assert sadvise(live, "recommend", "-u", "nobody", "-P", "-h") == ""
    argv = [sys.executable, "-m", "advisor.cli.main", "recommend", "--exit-code"]
    assert subprocess.run(argv, env={**live.env, **EAGER}, capture_output=True, check=False).returncode == 3


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("held", "held_by_user"),
        ("after-vision", "dependency"),
        ("later", "begin_time"),
        ("llama-pretrain", "gpus"),
        ("resnet-elastic", "gpus"),
    ],
)
def test_explain_names_what_keeps_a_job_waiting(
    advised: tuple[LiveCluster, dict[str, int]], name: str, cause: str
) -> None:
    live, ids = advised

    document = json.loads(sadvise(live, "explain", "--json", str(ids[name])))

    diagnosis = document["diagnosis"]
    assert cause in {finding["cause"] for finding in (diagnosis["first"], *diagnosis["further"])}


def test_snapshot_file_gives_the_advice_of_the_live_queue(
    advised: tuple[LiveCluster, dict[str, int]], tmp_path: Path
) -> None:
    live, _ = advised
    file = str(tmp_path / "now.json")
    sadvise(live, "snapshot", "-o", file)

    from_file = advice(live, "--snapshot", file)

    # The nice of a lift follows the priority, which ages from one reading to the next.
    fields = [[*change["command"][:3], change["lever"]] for change in from_file]
    assert fields == [[*change["command"][:3], change["lever"]] for change in advice(live)]


def test_check_finds_every_lever_usable(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, _ = advised

    checks = {check["name"]: check for check in json.loads(sadvise(live, "check", "--json"))["checks"]}

    assert {checks[f"lever {lever}"]["status"] for lever in ("nice", "switches", "node_range", "gpu_count")} == {"ok"}
    assert checks["slurm.conf"]["text"] == "agrees with what slurmctld runs with"
    assert checks["Slurm release"]["text"] == f"{live.version}, tested"


def test_job_that_shrinks_starts_at_once(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, ids = advised
    change = next(change for change in advice(live) if change["kind"] == "resize")
    assert change["job_id"] == ids["resnet-elastic"]

    live.run(*change["command"])

    def it_runs() -> bool:
        """the resized job runs"""
        return live.run("squeue", "-h", "-j", str(change["job_id"]), "-o", "%T").strip() == "RUNNING"

    live.wait_for(it_runs, 30.0)
    held = live.run("scontrol", "-d", "show", "job", str(change["job_id"]))
    assert f"JOB_GRES=gpu:v100:{change['after']['per_job'][0]['count']}\n" in held


def test_partition_that_is_down_while_jobs_wait_is_the_first_line(advised: tuple[LiveCluster, dict[str, int]]) -> None:
    live, _ = advised
    live.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    try:
        first, *_ = sadvise(live, "recommend").splitlines()
    finally:
        live.run("scontrol", "update", "PartitionName=gpu", "State=UP")

    assert re.match(
        r"stopped +partition gpu is not up: \d+ GPU jobs wait for \d+ GPUs, and \d+ are idle there; ", first
    )
    assert first.endswith("to do: `scontrol update PartitionName=gpu State=UP`")
    assert not sadvise(live, "recommend").startswith("stopped")
