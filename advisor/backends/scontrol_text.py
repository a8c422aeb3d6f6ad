"""Decodes the blocks of `Key=value` that `scontrol show` prints.

The format escapes nothing, so live clusters are asked only for what holds no user's text: partitions, switches and
the configuration. Jobs and nodes are read for answers that were recorded.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from advisor.backends.records import JobRecord, NodeRecord
from advisor.backends.spelling import is_unset, names, node_counts, node_names, switches
from advisor.backends.text_decode import REQUEST_FIELDS, Row, job_record, node_record, partition
from advisor.domain.gang import GpuScope
from advisor.domain.site import Partition
from advisor.errors import DecodeError

_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_:/()]*)=(\S*)")
# From these on the rest of the line is the value; elsewhere a value ends at a blank.
_TO_THE_LINE_END: Final = frozenset(
    ("JobName", "Comment", "SubmitLine", "Command", "WorkDir", "OS", "StdErr", "StdOut", "StdIn")
)
_SET_BY = re.compile(r" \[\S+@\S+\]$")
_REQUEST_KEYS: Mapping[GpuScope, str] = {
    GpuScope.JOB: "TresPerJob",
    GpuScope.NODE: "TresPerNode",
    GpuScope.SOCKET: "TresPerSocket",
    GpuScope.TASK: "TresPerTask",
}
# Partition keys of scontrol under sinfo's names.
_PARTITION_KEYS: Mapping[str, str] = {
    "PartitionName": "PartitionName",
    "Available": "State",
    "Time": "MaxTime",
    "DefaultTime": "DefaultTime",
    "PriorityTier": "PriorityTier",
    "Size": "MaxNodes",
}
_NODE_KEYS: Mapping[str, str] = {
    "NodeList": "NodeName",
    "StateComplete": "State",
    "CPUs": "CPUTot",
    "CPUsState": "CPUAlloc",
    "Memory": "RealMemory",
    "AllocMem": "AllocMem",
    "Gres": "Gres",
    "features_act": "ActiveFeatures",
    "Weight": "Weight",
}
_JOB_KEYS: Mapping[str, str] = {
    "JobID": "JobId",
    "State": "JobState",
    "Reason": "Reason",
    "Name": "JobName",
    "Account": "Account",
    "Partition": "Partition",
    "QOS": "QOS",
    "NumTasks": "NumTasks",
    "NumCPUs": "NumCPUs",
    "OverSubscribe": "OverSubscribe",
    "Feature": "Features",
    "ReqNodes": "ReqNodeList",
    "ExcNodes": "ExcNodeList",
    "NodeList": "NodeList",
    "SubmitTime": "SubmitTime",
    "EligibleTime": "EligibleTime",
    "StartTime": "StartTime",
    "EndTime": "EndTime",
    "TimeLimit": "TimeLimit",
    "MinTime": "TimeMin",
    "PriorityLong": "Priority",
    "Nice": "Nice",
    "Dependency": "Dependency",
    "Requeue": "Requeue",
}


def blocks(text: str, *, key: str) -> Iterator[Row]:
    """Split an answer into its blocks, each of which starts with `key`; the first value of a key counts."""
    chunks = re.split(rf"(?m)^(?={re.escape(key)}=)", text)
    if len(chunks) == 1 and text.strip():
        raise DecodeError(f"scontrol show gave no {key}: try another --source")
    for chunk in chunks[1:]:
        pairs: dict[str, str] = {}
        for line in chunk.split("\n"):
            for name, value in _pairs(line.strip()):
                pairs.setdefault(name, value)
        yield pairs


def job_records(text: str) -> tuple[JobRecord, ...]:
    """Read the jobs of `scontrol show job -d`."""
    return tuple(_job(block) for block in blocks(text, key="JobId"))


def node_records(text: str) -> tuple[NodeRecord, ...]:
    """Read the nodes of `scontrol show node -d`."""
    return tuple(_node(block) for block in blocks(text, key="NodeName"))


def partitions(text: str) -> tuple[Partition, ...]:
    """Read the partitions of `scontrol show partition`, by name."""
    decoded = (_partition(block) for block in blocks(text, key="PartitionName"))
    return tuple(sorted(decoded, key=lambda partition: partition.name))


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    # A node's reason fills a line of its own, a job's is one word among others.
    if line.startswith("Reason="):
        yield "Reason", line.removeprefix("Reason=")
        return
    for match in _PAIR.finditer(line):
        if match[1] in _TO_THE_LINE_END:
            yield match[1], line[match.start(2) :]
            return
        yield match[1], match[2]


def _renamed(block: Row, keys: Mapping[str, str], what: str) -> dict[str, str]:
    try:
        return {ours: block[theirs] for ours, theirs in keys.items()}
    except KeyError as err:
        raise DecodeError(f"scontrol show {what} names no {err.args[0]}: try another --source") from err


def _partition(block: Row) -> Partition:
    return partition(
        _renamed(block, _PARTITION_KEYS, "partition"),
        node_names(block.get("Nodes", ""), field="scontrol Nodes"),
    )


def _node(block: Row) -> NodeRecord:
    row = _renamed(block, _NODE_KEYS, "node")
    row["GresUsed"] = block.get("GresUsed", "")
    row["Reason"] = _SET_BY.sub("", block.get("Reason", ""))
    return node_record(row, names(block.get("Partitions", "")))


def _job(block: Row) -> JobRecord:
    row = _renamed(block, _JOB_KEYS, "job")
    low, high = node_counts(block["NumNodes"], field="scontrol NumNodes")
    count, wait_s = switches(block.get("Switches", "0"), field="scontrol Switches")
    allocated = block.get("AllocTRES", "")
    row |= {REQUEST_FIELDS[scope]: block.get(key, "") for scope, key in _REQUEST_KEYS.items()}
    row |= {
        "UserName": block["UserId"].partition("(")[0],
        "Comment": block.get("Comment", ""),
        "Reservation": block.get("Reservation", ""),
        "NumNodes": str(low),
        "MaxNodes": str(high or 0),
        # The oldest releases have one list, of what is allocated or else requested.
        "tres-alloc": block.get("ReqTRES", block.get("TRES", "")) if is_unset(allocated) else allocated,
        "cpus-per-tres": block.get("CpusPerTres", ""),
        "ReqSwitch": str(count),
        "Wait4Switch": f"0:{wait_s:.0f}",
        "JobArrayID": _array_id(block),
        "HetJobID": block.get("HetJobId", ""),
        "HetJobOffset": block.get("HetJobOffset", ""),
        "CronJob": block.get("CronJob", ""),
    }
    if "Exclusive" in block:
        row["Exclusive"] = block["Exclusive"]
    return job_record(row)


def _array_id(block: Row) -> str:
    base, task = block.get("ArrayJobId", ""), block.get("ArrayTaskId", "")
    if not base:
        return block["JobId"]
    return f"{base}_{task}" if task.isdecimal() else f"{base}_[{task}]"
