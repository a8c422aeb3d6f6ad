"""The recorded answers of `scontrol show job` and `scontrol show node`, which live clusters are never asked for.

Such blocks of `Key=value` escape nothing, and jobs and nodes hold users' text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from advisor.backends.records import JobRecord, NodeRecord
from advisor.backends.spelling import count, duration_s, is_unset, names
from advisor.backends.text_decode import REQUEST_FIELDS, Row, job_record, node_record
from advisor.domain.gang import GpuScope

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
    for chunk in re.split(rf"(?m)^(?={key}=)", text)[1:]:
        found: dict[str, str] = {}
        for line in chunk.split("\n"):
            for name, value in _pairs(line.strip()):
                found.setdefault(name, value)
        yield found


def job_records(text: str) -> tuple[JobRecord, ...]:
    """Read the jobs of `scontrol show job -d`."""
    return tuple(_job(block) for block in blocks(text, key="JobId"))


def node_records(text: str) -> tuple[NodeRecord, ...]:
    """Read the nodes of `scontrol show node -d`."""
    return tuple(_node(block) for block in blocks(text, key="NodeName"))


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


def _node(block: Row) -> NodeRecord:
    row = {ours: block[theirs] for ours, theirs in _NODE_KEYS.items()}
    row |= {"GresUsed": block.get("GresUsed", ""), "Disk": block.get("TmpDisk", "")}
    row["Threads"] = block.get("ThreadsPerCore", "")
    row["Reason"] = _SET_BY.sub("", block.get("Reason", ""))
    return node_record(row, names(block.get("Partitions", "")))


def _job(block: Row) -> JobRecord:
    row = {ours: block[theirs] for ours, theirs in _JOB_KEYS.items()}
    low, high = _node_counts(block["NumNodes"], field="scontrol NumNodes")
    switch_count, wait_s = _switches(block.get("Switches", "0"), field="scontrol Switches")
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
        "ReqSwitch": str(switch_count),
        "Wait4Switch": f"0:{wait_s:.0f}",
        "JobArrayID": _array_id(block),
        "HetJobID": block.get("HetJobId", ""),
        "HetJobOffset": block.get("HetJobOffset", ""),
        "CronJob": block.get("CronJob", ""),
        "MinCPUs": block.get("MinCPUsNode", ""),
        "MinTmpDisk": block.get("MinTmpDiskNode", ""),
        "CoreSpec": block.get("CoreSpec", ""),
        "Contiguous": block.get("Contiguous", ""),
        "Sockets": block.get("Socks/Node", ""),
        **_by_parts("NTPerNode Boards NTPerSocket NTPerCore", block.get("NtasksPerN:B:S:C", "")),
        **_by_parts("Boards Sockets/Board Cores Threads", block.get("ReqB:S:C:T", "")),
    }
    if "Exclusive" in block:
        row["Exclusive"] = block["Exclusive"]
    return job_record(row)


def _array_id(block: Row) -> str:
    base, task = block.get("ArrayJobId", ""), block.get("ArrayTaskId", "")
    if not base:
        return block["JobId"]
    return f"{base}_{task}" if task.isdecimal() else f"{base}_[{task}]"


def _by_parts(fields: str, text: str) -> Row:
    """Return numbers that scontrol prints together, such as `0:2:*:*`, by the fields of squeue."""
    return dict(zip(fields.split(), text.split(":"), strict=False))


def _node_counts(text: str, *, field: str) -> tuple[int, int | None]:
    """Decode `NumNodes`: `2-4` is a range, `2-2` exactly two, `2` at least two."""
    low, dash, high = text.strip().partition("-")
    return count(low, field=field), count(high, field=field) if dash else None


def _switches(text: str, *, field: str) -> tuple[int, float]:
    """Decode `Switches`: a count of leaf switches and the longest wait in seconds (`1@00:30:00`)."""
    number, at, wait = text.strip().partition("@")
    return count(number, field=field), (duration_s(wait, field=field) or 0.0) if at else 0.0
