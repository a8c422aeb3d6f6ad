"""Runs as a process of its own: imports pyslurm and prints the cluster as JSON lines.

pyslurm is GPL-2.0-only, ends the process if Slurm is not configured, and holds the interpreter's lock while it waits.
So this file contains and imports nothing of the advisor: the two communicate over a pipe. With `--version` it prints
what pyslurm is this and the attributes that it lacks, and reads no cluster.

Each value is read by itself with `getattr`. A text that is no UTF-8 is decoded byte by byte; whatever else raises, or
is absent in this release of pyslurm, is listed as unseen. An error is one line with its type.
"""

import json
import os
import sys
from typing import Any, TextIO

JOB = (
    "account", "allocated_nodes", "allocated_tres", "array_id", "array_task_id", "array_tasks_parallel",
    "array_tasks_waiting", "comment", "constraints", "cpus", "cpus_per_gpu", "cpus_per_task", "dependencies",
    "eligible_time", "end_time", "excluded_nodes", "gres_per_node", "heterogeneous_id", "heterogeneous_offset",
    "id", "is_cronjob", "is_requeueable", "max_nodes", "max_wait_time_switches", "name", "nice", "ntasks",
    "num_nodes", "partition", "priority", "qos", "requested_tres", "required_nodes", "required_switches",
    "reservation", "resource_sharing", "sockets_per_node", "start_time", "state", "state_reason", "submit_time",
    "time_limit", "time_limit_min", "tres_per_job", "tres_per_socket", "tres_per_task", "user_name",
)  # fmt: skip
NODE = (
    "active_features", "allocated_cpus", "allocated_memory", "allocated_tres", "configured_gres", "name",
    "partitions", "real_memory", "reason", "state", "total_cpus", "weight",
)  # fmt: skip
PARTITION = (
    "default_time", "is_default", "max_cpus_per_node", "max_nodes", "max_time", "min_nodes", "name", "nodes",
    "oversubscribe", "priority_job_factor", "priority_tier", "qos", "state",
)  # fmt: skip

# Free text, which holds whatever bytes a user or an administrator gave it.
TEXTS = ("account", "comment", "name", "reason", "user_name")


class NoConfiguration:
    """Stands for slurm.conf, which `Partitions.load` asks slurmctld for, and only attributes that are not read need."""

    suspend_program = resume_program = None

    @classmethod
    def load(cls) -> "type[NoConfiguration]":
        """Return it without a request."""
        return cls


def write(answers: TextIO, line: dict[str, Any]) -> None:
    """Write a line of JSON."""
    answers.write(json.dumps(line) + "\n")


def count(resource: Any) -> int | None:
    """Return the count of a TRES; None where it is not counted."""
    return None if resource is None or resource.count is None else int(resource.count)


def plain(value: Any) -> Any:
    """Return a value of pyslurm as JSON can hold it; raises `AttributeError` for what is none that is known here."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    counts = {name: count(getattr(value, name)) for name in ("cpu", "mem", "node")}
    return {**counts, "gres": {str(name): count(item) for name, item in value.gres.items()}}


def seen(record: Any, keys: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """Return the values of a record by key, and the keys that could not be read."""
    values: dict[str, Any] = {}
    unseen: list[str] = []
    for key in keys:
        try:
            values[key] = plain(getattr(record, key))
        except UnicodeDecodeError as err:
            if key in TEXTS:
                values[key] = err.object.decode("utf-8", "backslashreplace")
            else:
                unseen.append(key)
        except Exception:
            unseen.append(key)
    return values, unseen


def about(pyslurm: Any) -> dict[str, Any]:
    """Return the version, and whether the form of a request is shown as Slurm spells it (25.11.2 shows none)."""
    try:
        shown = pyslurm.db.TrackableResources.from_str("gres/gpu:8")
    except AttributeError:
        shown = None
    return {"version": pyslurm.__version__, "forms": shown is not None}


def write_cluster(answers: TextIO, pyslurm: Any) -> None:
    """Write one line for each job, node and partition, and a last one with their number."""
    if "pyslurm.core.slurmctld" in sys.modules:
        sys.modules["pyslurm.core.slurmctld"].Config = NoConfiguration  # type: ignore[attr-defined]
    lines = 0
    for kind, collection, keys in (
        ("job", pyslurm.Jobs, JOB),
        ("node", pyslurm.Nodes, NODE),
        ("partition", pyslurm.Partitions, PARTITION),
    ):
        for record in collection.load().values():
            values, unseen = seen(record, keys)
            write(answers, {"kind": kind, "values": values, **({"unseen": unseen} if unseen else {})})
            lines += 1
    write(answers, {"kind": "end", "lines": lines})


def lacks(pyslurm: Any) -> list[str]:
    """Return the attributes that this release of pyslurm does not have."""
    classes = ((pyslurm.Job, JOB), (pyslurm.Node, NODE), (pyslurm.Partition, PARTITION))
    return [f"{kind.__name__}.{key}" for kind, keys in classes for key in keys if not hasattr(kind, key)]


def answer(answers: TextIO) -> None:
    """Write what is asked for, or one line with the error."""
    try:
        import pyslurm

        if "--version" in sys.argv:
            write(answers, {**about(pyslurm), "lacks": lacks(pyslurm)})
        else:
            write(answers, about(pyslurm))
            write_cluster(answers, pyslurm)
    except Exception as err:
        write(answers, {"kind": "error", "type": type(err).__name__, "text": str(err)})


def main() -> None:
    """Print the answer; what pyslurm and libslurm print to standard output by themselves is dropped."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as answers:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        answer(answers)


if __name__ == "__main__":
    main()
