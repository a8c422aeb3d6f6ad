"""A queue that holds jobs of every request form, running and pending."""

from collections.abc import Mapping

from tools.stage.live_cluster import LiveCluster

LONG, SHORT = "--time=2-00:00:00", "--time=00:30:00"
DRAINED_NODE = "n08"
DRAIN_REASON = "fan 3 | slow, see #12"
START_DEADLINE_S = 180.0

# In this order they fill n01 to n07 of the default cluster to the last GPU; nothing that comes later can start.
RUNNING: Mapping[str, tuple[str, ...]] = {
    "run-v100-a": (LONG, "--gpus=v100:4", "-n4"),
    "run-v100-b": (SHORT, "--gres=gpu:v100:4", "-n4"),
    "run-shard": (LONG, "--gres=shard:2", "-n1"),
    "array": (LONG, "--array=1-6%2", "--gres=gpu:a100:1", "--nodelist=n06", "-n1"),
    "run-filler": (LONG, "--gres=gpu:a100:5", "--nodelist=n06", "-n5"),
    "run-node-long": (LONG, "--gres=gpu:8", "-n8"),
    "run-node-short": (SHORT, "--gres=gpu:a100:8", "-n8"),
    "run-gang": (LONG, "-N2", "--gpus-per-node=8", "--ntasks-per-node=8"),
    "run-gpus-short": (SHORT, "--gpus=8", "-N1", "-n8"),
    "run-cpu": (LONG, "-n2"),
}

PENDING: Mapping[str, tuple[str, ...]] = {
    "gres-8": (LONG, "--gres=gpu:8", "-n8"),
    "gres-4": (SHORT, "--gres=gpu:4", "-n4"),
    "gres-typed-4": (LONG, "--gres=gpu:a100:4", "-n4"),
    "gpus-12": (LONG, "--gpus=12", "-n12"),
    "gpus-4": (SHORT, "--gpus=4", "-n4"),
    "gpus-typed-4": (LONG, "--gpus=a100:4"),
    "per-node-8x2": (LONG, "--gpus-per-node=8", "-N2"),
    "per-node-typed": (SHORT, "--gpus-per-node=a100:4", "-N2", "--ntasks-per-node=4"),
    "per-task": (LONG, "--gpus-per-task=1", "-n2"),
    "per-socket": (LONG, "--gpus-per-socket=2", "--sockets-per-node=2", "-n2"),
    "per-gpu-cpus-and-memory": (LONG, "--gpus=4", "--cpus-per-gpu=2", "--mem-per-gpu=4G"),
    "range-gpus-8": (LONG, "-N1-4", "--gpus=8", "-n8"),
    "range-per-node": (LONG, "--gpus-per-node=4", "-N2-4"),
    "array-pending": (SHORT, "--array=2,4,8-20:4%3", "--gres=gpu:1"),
    "array-unlimited": (SHORT, "--array=0-9", "--gres=gpu:1"),
    "het": (LONG, "-n8", "--gres=gpu:8", ":", "-n4", "--gres=gpu:2"),
    "held": (LONG, "--hold", "--gres=gpu:2"),
    "deferred": (LONG, "--begin=now+1hour", "--gres=gpu:2"),
    "cpu-only": (LONG, "-N7", "-n112"),
    "exclusive": (SHORT, "--exclusive", "--gres=gpu:1"),
    "switches": (LONG, "-N2", "--gpus-per-node=4", "--switches=1@30:00"),
    "nice-10": (SHORT, "--gres=gpu:2", "--nice=10"),
    "hint": (LONG, "--gpus=4", "-n4", "--comment=sadvise: gpus=2-8 model=bert"),
    "opted-out": (LONG, "--gpus=4", "-n4", "--comment=sadvise: off"),
    "excluding": (LONG, "--gres=gpu:4", "--exclude=n01,n03"),
    "pinned": (LONG, "--gres=gpu:4", "--nodelist=n02"),
    "constrained": (LONG, "--gres=gpu:4", "--constraint=a100"),
    "preferring": (LONG, "--gres=gpu:4", "--prefer=v100"),
    "time-min": ("--time=1-00:00:00", "--time-min=00:30:00", "--gres=gpu:8"),
    "unlimited": ("--time=UNLIMITED", "--gres=gpu:8"),
    "shard": (LONG, "--gres=shard:31"),
    "memory": (SHORT, "--gres=gpu:1", "--mem=32G", "--cpus-per-task=4"),
    "debug": (SHORT, "--partition=debug", "--gres=gpu:2"),
    "two-partitions": (SHORT, "--partition=gpu,debug", "--gres=gpu:2"),
    "other-user": (LONG, "--gres=gpu:2", "--uid=games", "--account=vision", "--no-requeue"),
    "name | with, odd: characters %j": (SHORT, "--gres=gpu:2"),
}


def mixed_queue(cluster: LiveCluster) -> dict[str, int]:
    """Fill a fresh default cluster, drain one node, and return the id of every job by its name."""
    cluster.drain(DRAINED_NODE, DRAIN_REASON)
    ids: dict[str, int] = {}
    for name, request in RUNNING.items():
        ids[name] = _submit(cluster, name, request)
        # One after the other, so that every job finds the same nodes free whatever the release's pace.
        _wait_until(cluster, ids[name], "%T", "RUNNING")
    for name, request in PENDING.items():
        ids[name] = _submit(cluster, name, request)
    after_another = f"--dependency=afterok:{ids['run-node-long']}"
    ids["dependent"] = _submit(cluster, "dependent", (LONG, "--gres=gpu:8", after_another))
    _wait_until(cluster, ids["other-user"], "%r", "Priority")
    return ids


def _submit(cluster: LiveCluster, name: str, request: tuple[str, ...]) -> int:
    return cluster.submit(f"--job-name={name}", *request, script="sleep 7d")


def _wait_until(cluster: LiveCluster, job_id: int, column: str, value: str) -> None:
    """Wait until squeue prints a value for a job, or for a task of it."""
    cluster.wait_for(
        lambda: value in cluster.run("squeue", "-h", "-a", "-j", str(job_id), "-o", column).split(),
        START_DEADLINE_S,
        what=f"squeue prints {value} for job {job_id}",
    )
