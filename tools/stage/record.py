"""Records what a real Slurm release answers about the mixed queue, as test data for the decoders."""

import json
import platform
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tools.stage.live_cluster import LiveCluster
from tools.stage.mixed_queue import mixed_queue

# Nothing in the mixed queue contains it. A reader of a live cluster must choose a new one for each call.
SEPARATOR = "<|>"
# POSIX seconds instead of local times, and complete lists of array tasks.
ENVIRONMENT: Mapping[str, str] = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
SETTLING_S = 12.0
NEUTRAL_FOLDER = "/srv/slurm"

SQUEUE_FIELDS = (
    "JobID", "JobArrayID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "HetJobIDSet",
    "Name", "UserName", "UserID", "Account", "Partition", "QOS", "State", "Reason", "PriorityLong", "Nice",
    "SubmitTime", "EligibleTime", "AccrueTime", "StartTime", "EndTime", "TimeLimit", "MinTime", "TimeUsed",
    "NumNodes", "MaxNodes", "MinCpus", "NumCPUs", "NumTasks", "cpus-per-task", "cpus-per-tres", "mem-per-tres",
    "MinMemory", "tres-alloc", "tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task", "tres-bind",
    "NodeList", "SchedNodes", "ReqNodes", "Feature", "Prefer", "Reservation", "Dependency", "Comment",
    "ReqSwitch", "Wait4Switch", "OverSubscribe", "Requeue", "RestartCnt", "Licenses", "BatchFlag", "Contiguous",
    "NTPerNode",
)  # fmt: skip
# Slurm 22.05 prints an error for this one and leaves it out of every row.
SQUEUE_FIELDS_SINCE: Mapping[str, str] = {"ExcNodes": "24.11", "cronjob": "26.05"}
SINFO_FIELDS = (
    "NodeList", "NodeHost", "Partition", "PartitionName", "Available", "Time", "DefaultTime", "CPUsState", "CPUs",
    "Memory", "AllocMem", "FreeMem", "Gres", "GresUsed", "StateLong", "StateComplete", "Reason", "Weight",
    "Features", "Features_act", "Size", "PriorityTier", "PriorityJobFactor", "MaxCPUsPerNode", "OverSubscribe",
    "PreemptMode", "Root", "Groups", "Sockets", "Cores", "Threads", "Comment", "Extra", "Version",
)  # fmt: skip

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "scontrol_job.txt": ("scontrol", "-d", "-a", "show", "job"),
    "scontrol_job_oneline.txt": ("scontrol", "-o", "-d", "-a", "show", "job"),
    "scontrol_node.txt": ("scontrol", "-o", "-a", "show", "node"),
    "partition.txt": ("scontrol", "-o", "-a", "show", "partition"),
    "reservation.txt": ("scontrol", "-o", "-a", "show", "reservation"),
    "config.txt": ("scontrol", "show", "config"),
    "topology.txt": ("scontrol", "show", "topology"),
    "sprio.txt": ("sprio", "-l"),
    "sdiag.txt": ("sdiag",),
    "ping.txt": ("scontrol", "ping"),
}
COMMANDS_SINCE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "26.05": {"topoconf.txt": ("scontrol", "show", "topoconf")},
}


def commands(release: str) -> dict[str, tuple[str, ...]]:
    """List the commands a release understands by the file that takes the answer."""
    fields = [*SQUEUE_FIELDS, *(field for field, since in SQUEUE_FIELDS_SINCE.items() if since <= release)]
    chosen = {
        "squeue.txt": ("squeue", "-h", "-a", "-O", format_of(fields)),
        "squeue_tasks.txt": ("squeue", "-h", "-a", "-r", "-O", format_of(fields)),
        "sinfo.txt": ("sinfo", "-h", "-a", "-N", "-O", format_of(SINFO_FIELDS)),
        **COMMANDS,
    }
    for since, newer in COMMANDS_SINCE.items():
        if since <= release:
            chosen.update(newer)
    return chosen


def format_of(fields: tuple[str, ...] | list[str]) -> str:
    """Spell an `-O` format that prints every field in full, each followed by the separator."""
    return ",".join(f"{field}:{SEPARATOR}" for field in fields)


def record(release: str, out: Path) -> list[Path]:
    """Start a cluster, fill it, and write every answer; `commands.json` tells how each file was made."""
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with LiveCluster(release) as cluster:
        ids = mixed_queue(cluster)
        _reserve(cluster)
        # Backfill has then been through the queue, and most jobs show why they wait.
        time.sleep(SETTLING_S)
        cluster.env.update(ENVIRONMENT)
        chosen = commands(release)
        for name, argv in chosen.items():
            written.append(out / name)
            written[-1].write_text(_neutral(cluster.run(*argv), cluster.folder))
        about = {
            "version": cluster.version,
            "separator": SEPARATOR,
            "environment": dict(ENVIRONMENT),
            "jobs": ids,
            "commands": {name: list(argv) for name, argv in chosen.items()},
        }
    written.append(out / "commands.json")
    written[-1].write_text(json.dumps(about, indent=2) + "\n")
    return written


def _reserve(cluster: LiveCluster) -> None:
    """Reserve a node for the distant future, where it changes no plan."""
    request = ("ReservationName=maintenance", "StartTime=now+30days", "Duration=120", "Users=root", "Nodes=n07")
    cluster.run("scontrol", "create", "reservation", *request, "Flags=MAINT")


def _neutral(text: str, folder: Path) -> str:
    """Take this machine's name, folders and kernel out of an answer."""
    text = text.replace(str(folder), NEUTRAL_FOLDER)
    text = re.sub(rf"\b{re.escape(socket.gethostname().partition('.')[0])}\b", "vm", text)
    for word in (platform.release(), platform.version()):
        text = text.replace(word, "linux")
    return text
