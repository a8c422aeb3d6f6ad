"""Spells the jobs of a trace as options of sbatch."""

from dataclasses import replace
from typing import Final

from advisor.domain.units import MINUTE_S
from advisor.sim.traces.trace import Trace

GPU_TYPE: Final = "a100"


def options_of(trace: Trace, row: int, gpus_per_node: int) -> tuple[str, ...]:
    """Return the options of a job: what it asks for, its limit, its account and what its user declares."""
    job = trace.jobs[row]
    return (
        f"--job-name=job{job['job_id']}",
        f"--account={trace.accounts[job['account']]}",
        f"--partition={trace.partitions[job['partition']]}",
        f"--time={job['time_limit_s'] / MINUTE_S:.0f}",
        f"--comment={comment_of(trace, row)}",
        "--requeue",
        *_size(trace, row, gpus_per_node),
    )


def as_asked(trace: Trace, gpus_per_node: int) -> Trace:
    """Return a trace whose jobs are bound to as many nodes as their options bind them to."""
    jobs = trace.jobs.copy()
    bound = (jobs["gpus_min"] < jobs["gpus_max"]) & (jobs["nodes_max"] == 0)
    jobs["nodes_min"][bound] = 1
    jobs["nodes_max"][bound] = -(-jobs["gpus_max"][bound] // gpus_per_node)
    return replace(trace, jobs=jobs)


def comment_of(trace: Trace, row: int) -> str:
    """Return the comment with the hints of a job."""
    job = trace.jobs[row]
    words = [
        f"model={trace.models[job['model']]}" if job["model"] >= 0 else "",
        f"gpus={job['gpus_min']}-{job['gpus_max']}" if job["gpus_min"] < job["gpus_max"] else "",
        f"ckpt={max(1, round(job['checkpoint_interval_s']))}" if job["checkpoint_interval_s"] else "",
    ]
    return " ".join(["sadvise:", *filter(None, words)])


def _size(trace: Trace, row: int, gpus_per_node: int) -> tuple[str, ...]:
    """Return the GPUs and nodes that a job asks for, one task on each node.

    Where its node count is open it has as many tasks as it can have nodes, as Slurm gives a job no more nodes than
    tasks.
    """
    job = trace.jobs[row]
    gpus, nodes = int(job["gpus"]), int(job["nodes_max"])
    if nodes and gpus % nodes:
        return (f"--nodes={nodes}", f"--gpus={GPU_TYPE}:{gpus}", f"--ntasks={nodes}")
    if nodes:
        return (f"--nodes={nodes}", f"--gres=gpu:{GPU_TYPE}:{gpus // nodes}", "--ntasks-per-node=1")
    if gpus <= 1 and job["gpus_max"] <= 1:
        return ("--nodes=1", f"--gres=gpu:{GPU_TYPE}:{gpus}", "--ntasks-per-node=1")
    if job["gpus_min"] < job["gpus_max"]:
        # A task for each GPU would decide the size, which then could not be changed.
        most = -(-int(job["gpus_max"]) // gpus_per_node)
        return (f"--nodes=1-{most}", f"--gpus={GPU_TYPE}:{gpus}", f"--ntasks={most}")
    return (f"--gpus={GPU_TYPE}:{gpus}", f"--ntasks={gpus}")
