"""Runs as a process of its own: imports pyslurm and prints the cluster as JSON lines.

pyslurm is GPL-2.0-only, ends the process where Slurm is not configured and never lets go of the interpreter while it
waits. So nothing of the advisor stands here, and this file imports nothing of it: the two speak over a pipe. With
`--version` it prints what pyslurm calls itself and reads no cluster.
"""

import json
import sys

import pyslurm

JOB_KEYS = (
    "account",
    "allocated_nodes",
    "allocated_tres",
    "array_id",
    "array_task_id",
    "array_tasks_parallel",
    "array_tasks_waiting",
    "comment",
    "constraints",
    "cpus",
    "cpus_per_gpu",
    "dependencies",
    "eligible_time",
    "end_time",
    "excluded_nodes",
    "gres_per_node",
    "heterogeneous_id",
    "heterogeneous_offset",
    "id",
    "is_cronjob",
    "is_requeueable",
    "max_nodes",
    "max_wait_time_switches",
    "name",
    "nice",
    "ntasks",
    "num_nodes",
    "partition",
    "priority",
    "qos",
    "requested_tres",
    "required_nodes",
    "required_switches",
    "reservation",
    "resource_sharing",
    "start_time",
    "state",
    "state_reason",
    "submit_time",
    "time_limit",
    "time_limit_min",
    "tres_per_job",
    "tres_per_node",
    "tres_per_socket",
    "tres_per_task",
    "user_name",
)
NODE_KEYS = (
    "active_features",
    "allocated_cpus",
    "allocated_memory",
    "allocated_tres",
    "configured_gres",
    "name",
    "partitions",
    "real_memory",
    "reason",
    "state",
    "total_cpus",
    "weight",
)
PARTITION_KEYS = ("default_time", "max_nodes", "max_time", "name", "nodes", "priority_tier", "state")


def write(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Print one line for each job, node and partition, and a last one with their number."""
    write(json.dumps({"version": pyslurm.__version__}))
    if "--version" in sys.argv:
        return
    lines = 0
    for kind, collection, keys in (
        ("job", pyslurm.Jobs, JOB_KEYS),
        ("node", pyslurm.Nodes, NODE_KEYS),
        ("partition", pyslurm.Partitions, PARTITION_KEYS),
    ):
        for each in collection.load().values():
            values = each.to_dict()
            write(json.dumps({"kind": kind, "values": {key: values.get(key) for key in keys}}, default=str))
            lines += 1
    write(json.dumps({"kind": "end", "lines": lines}))


if __name__ == "__main__":
    main()
