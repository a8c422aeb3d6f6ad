"""A live queue that needs every kind of advice, and the recording of the snapshot that ships with the package.

python -m tools.advice_queue [--release 26.05] [-o advisor/demo/snapshot.json]
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tools.stage import LiveCluster
from tools.stage.daemon import PROGRAM

DAY, SHORT = "--time=1-00:00:00", "--time=00:20:00"

# The order of submission decides, and every job has priority to spare.
PRIORITY_LINES = ("PriorityWeightJobSize=0", "PriorityWeightPartition=1000")
GPU_TYPES = ("h100", "h100", "a100", "a100", "h100", "h100", "a100", "v100")

# Two leaves of four nodes; only short jobs stand between the h100 gangs and their GPUs.
RUNNING: Mapping[str, tuple[str, ...]] = {
    "ablation": ("--time=00:30:00", "--gres=gpu:h100:8", "-n8", "--nodelist=n01"),
    "finetune": (SHORT, "--gres=gpu:h100:8", "-n8", "--nodelist=n02"),
    "diffusion-1": (DAY, "--gres=gpu:a100:8", "-n8", "--nodelist=n03"),
    "diffusion-2": (DAY, "--gres=gpu:a100:8", "-n8", "--nodelist=n04"),
    "sweep-1": (SHORT, "--gres=gpu:h100:8", "-n8", "--nodelist=n05"),
    "sweep-2": (SHORT, "--gres=gpu:h100:8", "-n8", "--nodelist=n06"),
    "preprocess": (DAY, "--gres=gpu:a100:5", "-n16", "--nodelist=n07"),
    "vision": ("--time=2-00:00:00", "--gres=gpu:v100:4", "-n4", "--nodelist=n08"),
}
PENDING: Mapping[str, tuple[str, ...]] = {
    # One node would do; the range allows four.
    "bert-range": (DAY, "-N1-4", "--gpus=h100:8", "-n4"),
    # Two nodes: bert-range takes one of the four h100 nodes that come free on two leaves, so that it starts spread out
    # unless it waits for the two that are left under one.
    "gpt-ddp": (DAY, "-N2", "--gpus-per-node=h100:8", "--ntasks-per-node=1"),
    # May run on one GPU and more, and writes checkpoints: four v100 stand idle.
    "resnet-elastic": (
        "--time=02:00:00", "-N1", "--gpus=v100:8", "-n1", "--comment=sadvise: gpus=1-8 ckpt=300 model=resnet50",
    ),
    # Two days on most of the a100, before a row of short jobs.
    "llama-pretrain": ("--time=2-00:00:00", "-N2", "--gres=gpu:a100:8", "-n2"),
    "eval-1": ("--time=00:30:00", "--gres=gpu:a100:4", "-n1"),
    "eval-2": ("--time=00:30:00", "--gres=gpu:a100:4", "-n1"),
    "eval-3": ("--time=00:45:00", "--gres=gpu:a100:4", "-n1"),
    "eval-array": ("--time=00:30:00", "--array=1-8%4", "--gres=gpu:a100:4", "-n1"),
    "held": (DAY, "--hold", "--gres=gpu:2"),
    # Long jobs whose users let others go first.
    "het": (DAY, "--nice=20", "-n8", "--gres=gpu:8", ":", "--nice=20", "-n4", "--gres=gpu:4"),
    "later": (DAY, "--nice=20", "--begin=now+1hour", "--gres=gpu:2"),
    "opted-out": (DAY, "--nice=20", "--gpus=a100:4", "-n4", "--comment=sadvise: off"),
    "cpu-only": (DAY, "-N7", "-n112"),
}  # fmt: skip


def advice_cluster(release: str) -> LiveCluster:
    """Return the cluster, not yet started, that the queue is made for."""
    return LiveCluster(release, gpu_types=GPU_TYPES, extra_lines=PRIORITY_LINES)


def fill(cluster: LiveCluster) -> dict[str, int]:
    """Submit the queue to a fresh default cluster and return the job ids by name."""
    ids = {}
    for name, request in RUNNING.items():
        ids[name] = cluster.submit(f"--job-name={name}", *request)

    def all_run() -> bool:
        """Whether the first jobs run."""
        return cluster.count("RUNNING") == len(RUNNING)

    cluster.wait_for(all_run, 60.0)
    for name, request in PENDING.items():
        ids[name] = cluster.submit(f"--job-name={name}", *request)
    ids["after-vision"] = cluster.submit(
        "--job-name=after-vision", DAY, "--nice=20", "--gres=gpu:v100:4", f"--dependency=afterok:{ids['vision']}"
    )
    return ids


def main() -> None:
    """Start a cluster, fill it, wait until the jobs are old enough to be touched, and write the snapshot."""
    parser = argparse.ArgumentParser(prog="python -m tools.advice_queue", description=__doc__.splitlines()[0])
    parser.add_argument("--release", default="26.05", help="the Slurm release to record")
    parser.add_argument("-o", "--output", type=Path, default=Path("advisor/demo/snapshot.json"))
    parser.add_argument("--age", type=float, default=75.0, help="seconds to wait before recording")
    args = parser.parse_args()
    with advice_cluster(args.release) as cluster:
        fill(cluster)
        print(f"waiting {args.age:g} s for the jobs to grow old enough", file=sys.stderr)
        time.sleep(args.age)
        # With the cluster's own commands first on PATH, as an administrator there would run it.
        sadvise = [sys.executable, *PROGRAM, "snapshot", "--source", "text", "-o", str(args.output)]
        subprocess.run(sadvise, env=cluster.env, check=True)
    args.output.chmod(0o644)


if __name__ == "__main__":
    main()
