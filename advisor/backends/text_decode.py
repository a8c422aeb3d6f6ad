"""Decodes what squeue, sinfo and scontrol print; text in, records out, nothing else.

squeue and sinfo escape nothing: a job name can hold newlines, and whatever stands for the end of a field. So each
call ends its fields with a random delimiter, and its rows with a mark after that. A row is split, and can be wrong,
alone.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import cycle
from typing import Any, Final

from advisor.backends.process import text_of
from advisor.backends.records import (
    DEPENDENCY_LENGTH,
    JobRecord,
    NodeRecord,
    UnreadJob,
    UnreadRow,
    record_or_unread,
    row_or_unread,
    takes_jobs,
)
from advisor.backends.spelling import (
    CACHED_TEXTS,
    NO_LIMIT,
    count,
    duration_s,
    instant,
    integer,
    is_unset,
    memory_mib,
    names,
    node_names,
    optional_text,
    whole,
)
from advisor.backends.tres import gres_list, tres
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.errors import DecodeError

Row = Mapping[str, str]

JOB_FIELDS: Final = (
    "JobID", "JobArrayID", "HetJobID", "HetJobOffset", "State", "Reason", "Name", "UserName", "Account",
    "Partition", "QOS", "Comment", "NumNodes", "MaxNodes", "NumTasks", "NumCPUs", "tres-alloc", "tres-per-job",
    "tres-per-node", "tres-per-socket", "tres-per-task", "cpus-per-tres", "OverSubscribe", "Exclusive", "ReqSwitch",
    "Wait4Switch", "Feature", "ReqNodes", "ExcNodes", "MinCPUs", "NTPerNode", "MinTmpDisk", "Sockets", "Cores",
    "Threads", "NTPerCore", "NTPerSocket", "CoreSpec", "Contiguous", "NodeList", "SubmitTime", "EligibleTime",
    "StartTime", "EndTime", "TimeLimit", "MinTime", "PriorityLong", "Nice", "Dependency", "Reservation", "Requeue",
    "CronJob",
)  # fmt: skip
NODE_FIELDS: Final = (
    "NodeList", "PartitionName", "StateComplete", "Reason", "CPUs", "CPUsState", "Memory", "AllocMem", "Gres",
    "GresUsed", "features_act", "Weight", "Available", "Time", "DefaultTime", "PriorityTier", "Size",
    "PriorityJobFactor", "Partition", "OverSubscribe", "MaxCPUsPerNode", "Disk", "Threads",
)  # fmt: skip
REQUEST_FIELDS: Final[Mapping[GpuScope, str]] = {
    GpuScope.JOB: "tres-per-job",
    GpuScope.NODE: "tres-per-node",
    GpuScope.SOCKET: "tres-per-socket",
    GpuScope.TASK: "tres-per-task",
}

NO_WIDTHS: Final[Mapping[str, int]] = {}
# squeue and sinfo fill a field of a width with spaces, and cut what is longer, by the byte.
_JOB_WIDTHS: Final = {"Dependency": DEPENDENCY_LENGTH}
# The only free text that sinfo prints: sinfo takes its format from the command line alone, where everyone can read it.
NODE_WIDTHS: Final = {"Reason": 128}

# Of the fields that users fill in, only lists of nodes and of array tasks can be longer than a few thousand bytes.
ROW_LIMIT_BYTES: Final = 64 << 10
# Ends a row, where the delimiter and a newline can also begin a value.
_ROW_MARK: Final = "!"
_LONGEST_ID: Final = 10

_UNKNOWN_FIELD = re.compile(r"Invalid (?:job|node|\w+) format specification: (\S+)")
_ARRAY = re.compile(r"(\d{1,10})_(?:\[([^\]%]*)(?:%(\d{1,10}))?\]|(\d{1,10}))", re.ASCII)


def field_list(fields: Iterable[str], delimiter: str, widths: Mapping[str, int] = NO_WIDTHS) -> str:
    """Spell the value of `-O`: every field in full or to its width, each followed by the delimiter."""
    return ",".join(f"{field}:{widths.get(field, '')}{delimiter}" for field in fields)


def job_format(delimiter: str) -> str:
    """Spell the value of squeue's `-O`, which also marks the end of a row."""
    return field_list(JOB_FIELDS, delimiter, _JOB_WIDTHS) + _ROW_MARK


def unknown_fields(complaints: str) -> frozenset[str]:
    """Name the fields that this release of the command does not have; it prints nothing in their place."""
    return frozenset(_UNKNOWN_FIELD.findall(complaints))


def job_rows(chunks: Iterable[bytes], *, delimiter: str, heading: str = "") -> Iterator[bytes]:
    """Split the answer of squeue into its rows, the values of each with the delimiter between them.

    No more is held than a chunk and the longest row that is read; of a longer one only the head is returned, which
    `record_of` refuses. Raises `DecodeError` unless the answer ends with the end of a row.
    """
    first, end = heading.encode(), f"{delimiter}{_ROW_MARK}\n".encode()
    head, rest = b"", b""
    for chunk in chunks:
        *ended, rest = (rest + chunk).split(end)
        for row in ended:
            yield (head or row).removeprefix(first)
            head = first = b""
        if len(rest) > ROW_LIMIT_BYTES:
            head, rest = head or rest[: ROW_LIMIT_BYTES + 1], rest[-len(end) :]
    if rest not in (b"", first) or head:
        raise DecodeError("squeue gave an incomplete answer: try again")


def record_of(row: bytes, delimiter: str, absent: frozenset[str] = frozenset()) -> JobRecord | UnreadJob:
    """Read a job from what squeue printed of it; `absent` are the fields that this release does not have."""
    job_id = row.partition(delimiter.encode())[0]
    known = job_id.isdigit() and len(job_id) <= _LONGEST_ID
    return record_or_unread(lambda: _record_of(row, delimiter, absent), int(job_id) if known else 0)


def _record_of(row: bytes, delimiter: str, absent: frozenset[str]) -> JobRecord:
    if len(row) > ROW_LIMIT_BYTES:
        raise DecodeError(f"squeue prints more than {ROW_LIMIT_BYTES} bytes about it")
    values = text_of(row).split(delimiter)
    if len(values) != len(JOB_FIELDS):
        raise DecodeError("squeue prints a row that does not fit its fields")
    return job_record(row_of(values, JOB_FIELDS, absent))


def row_of(values: Sequence[str], fields: Sequence[str], absent: frozenset[str] = frozenset()) -> Row:
    """Return a row by field; those that are `absent`, since this release does not have them, are left out."""
    row = dict(zip(fields, values, strict=True))
    for field in absent:
        row.pop(field, None)
    return row


def rows(
    output: bytes,
    *,
    command: str,
    fields: Sequence[str],
    delimiter: str,
    absent: Iterable[str] = (),
    widths: Mapping[str, int] = NO_WIDTHS,
) -> list[Row]:
    """Split a whole answer into rows; fields that are `absent` are left out of them.

    A field of fixed width can hold the delimiter and forge nothing. Raises `DecodeError` unless the answer ends with
    the end of a row and every row has every field.
    """
    # One character for each byte, as widths count them.
    parts = output.decode("latin-1").split(delimiter)
    if parts.pop() != ("\n" if parts else ""):
        raise DecodeError(f"{command} gave an incomplete answer: try again")
    values = list(_joined(parts, fields, delimiter, widths))
    if len(values) % len(fields):
        raise DecodeError(f"{command} gave an incomplete answer: try again")
    first = values[:: len(fields)]
    if not all(value.startswith("\n") for value in first[1:]):
        raise DecodeError(f"{command} gave an answer whose rows do not fit its fields: try another --source")
    values[:: len(fields)] = [value.removeprefix("\n") for value in first]
    if not output.isascii():
        values = [value if value.isascii() else text_of(value.encode("latin-1")) for value in values]
    missing = frozenset(absent)
    return [
        row_of(values[start : start + len(fields)], fields, missing) for start in range(0, len(values), len(fields))
    ]


def _joined(parts: Iterable[str], fields: Sequence[str], delimiter: str, widths: Mapping[str, int]) -> Iterator[str]:
    """Yield the values of an answer that was split at the delimiter, those of fixed width put together again."""
    left = iter(parts)
    for width, part in zip(cycle(widths.get(field, 0) for field in fields), left, strict=False):
        value = part
        while len(value) < width:
            value += delimiter + next(left, "".ljust(width))
        yield value


def job_record(row: Row) -> JobRecord:
    """Read a job from its row."""
    return JobRecord(
        job_id=whole(row["JobID"], field="squeue JobID"),
        state=row["State"].strip(),
        reason=row["Reason"],
        name=optional_text(row["Name"]),
        user=optional_text(row["UserName"]),
        account=optional_text(row["Account"]),
        partitions=names(row["Partition"]),
        qos=optional_text(row["QOS"]),
        comment=optional_text(row["Comment"]),
        **_asked(tuple(map(row.get, _ASKED_FIELDS))),
        uncounted=_uncounted(tuple(row.get(field, "") for field in UNCOUNTED)),
        nodes=node_names(row["NodeList"], field="squeue NodeList"),
        array=_array(row),
        het=_het(row),
        submit_time=instant(row["SubmitTime"], field="squeue SubmitTime"),
        eligible_time=instant(row["EligibleTime"], field="squeue EligibleTime"),
        start_time=instant(row["StartTime"], field="squeue StartTime"),
        end_time=instant(row["EndTime"], field="squeue EndTime"),
        limit_s=duration_s(row["TimeLimit"], field="squeue TimeLimit"),
        limit_min_s=duration_s(row["MinTime"], field="squeue MinTime"),
        priority=whole(row["PriorityLong"], field="squeue PriorityLong"),
        nice=integer(row["Nice"], field="squeue Nice"),
        dependency=optional_text(row["Dependency"].rstrip(" ")),
        reservation=optional_text(row["Reservation"]),
        requeueable=row["Requeue"].strip() == "1",
        cron=row.get("CronJob", "").strip().lower() in ("1", "yes", "true"),
    )


_ASKED_FIELDS: Final = (
    "NumNodes", "MaxNodes", "NumTasks", "NumCPUs", "tres-alloc", "cpus-per-tres", "OverSubscribe", "Exclusive",
    "ReqSwitch", "Wait4Switch", "Feature", "ReqNodes", "ExcNodes", "MinCPUs", "NTPerNode", "MinTmpDisk",
    *REQUEST_FIELDS.values(),
)  # fmt: skip
# Options of which the fit knows nothing, by the field that shows them.
UNCOUNTED: Final[Mapping[str, str]] = {
    "Sockets": "--sockets-per-node",
    "Cores": "--cores-per-socket",
    "Threads": "--threads-per-core",
    "NTPerCore": "--ntasks-per-core",
    "NTPerSocket": "--ntasks-per-socket",
    "CoreSpec": "--core-spec",
    "Contiguous": "--contiguous",
    "OverSubscribe": "--exclusive",
    "Exclusive": "--exclusive",
}
# What stands in these fields for a job that does not ask: of --exclusive only that of a label bars nodes unseen.
_NOT_ASKED: Final = frozenset(
    ("", "*", "0", "n/a", "(null)", "65534", "65535", "no", "yes", "ok", "user", "node", "none")
)


@lru_cache(CACHED_TEXTS)
def _uncounted(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options among those of `UNCOUNTED` that a job uses."""
    shown = zip(UNCOUNTED.values(), values, strict=True)
    return tuple(dict.fromkeys(option for option, value in shown if value.strip().lower() not in _NOT_ASKED))


@lru_cache(CACHED_TEXTS)
def _asked(values: tuple[str | None, ...]) -> Mapping[str, Any]:
    """Read what a job asks for, as `JobRecord` holds it; whole queues ask for the same few things."""
    row = {field: value for field, value in zip(_ASKED_FIELDS, values, strict=True) if value is not None}

    def optional(field: str, decode: Callable[..., int], otherwise: int) -> int:
        text = row.get(field, "")
        return otherwise if is_unset(text) else decode(text, field=f"squeue {field}")

    return {
        "nodes_shown": count(row["NumNodes"], field="squeue NumNodes"),
        "nodes_max": count(row["MaxNodes"], field="squeue MaxNodes"),
        "tasks": max(1, count(row["NumTasks"], field="squeue NumTasks")),
        "cpus": count(row["NumCPUs"], field="squeue NumCPUs"),
        "cpus_per_node": max(1, optional("MinCPUs", count, 1)),
        "tasks_per_node": optional("NTPerNode", count, 0),
        "tmp_disk_mib": optional("MinTmpDisk", memory_mib, 0),
        "tres": tres(row["tres-alloc"], field="squeue tres-alloc"),
        "requests": {
            scope: gres_list(row[key], field=f"squeue {key}") for scope, key in REQUEST_FIELDS.items() if row[key]
        },
        "cpus_per_gres": gres_list(row["cpus-per-tres"], field="squeue cpus-per-tres"),
        "exclusive": _is_exclusive(row["OverSubscribe"], row.get("Exclusive")),
        "only_user": row.get("Exclusive", row["OverSubscribe"]).strip().upper() == "USER",
        "switch_count": count(row["ReqSwitch"], field="squeue ReqSwitch"),
        "switch_wait_s": duration_s(row["Wait4Switch"], field="squeue Wait4Switch") or 0.0,
        "features": optional_text(row["Feature"]),
        "required_nodes": node_names(row["ReqNodes"], field="squeue ReqNodes"),
        "excluded_nodes": node_names(row.get("ExcNodes", ""), field="squeue ExcNodes"),
    }


def node_records(node_rows: Iterable[Row]) -> tuple[NodeRecord | UnreadRow, ...]:
    """Read the nodes from rows of one node and one partition each."""
    partitions: dict[str, list[str]] = {}
    first_rows: dict[str, Row] = {}
    for row in node_rows:
        first_rows.setdefault(row["NodeList"], row)
        partitions.setdefault(row["NodeList"], []).append(row["PartitionName"])
    return tuple(row_or_unread(partial(node_record, row, partitions[name]), name) for name, row in first_rows.items())


def partitions_of(partition_rows: Iterable[Row]) -> tuple[Partition | UnreadRow, ...]:
    """Read the partitions from rows of one node and one partition each, by name."""
    nodes: dict[str, list[str]] = {}
    first_rows: dict[str, Row] = {}
    for row in partition_rows:
        first_rows.setdefault(row["PartitionName"], row)
        nodes.setdefault(row["PartitionName"], []).append(row["NodeList"])
    return tuple(row_or_unread(partial(partition, first_rows[name], nodes[name]), name) for name in sorted(first_rows))


def node_record(row: Row, partitions: Iterable[str]) -> NodeRecord:
    """Read a node from a row and the names of its partitions."""
    return NodeRecord(
        name=row["NodeList"],
        states=tuple(word.strip("*~#!%$@^- ").upper() for word in row["StateComplete"].split("+")),
        reason=row["Reason"].rstrip(" "),
        cpus=count(row["CPUs"], field="sinfo CPUs"),
        cpus_used=count(row["CPUsState"].partition("/")[0], field="sinfo CPUsState"),
        memory_mib=count(row["Memory"], field="sinfo Memory"),
        memory_used_mib=count(row["AllocMem"], field="sinfo AllocMem"),
        gres=gres_list(row["Gres"], field="sinfo Gres"),
        gres_used=gres_list(row["GresUsed"], field="sinfo GresUsed"),
        tmp_disk_mib=None if is_unset(row.get("Disk", "")) else count(row["Disk"], field="sinfo Disk"),
        threads_per_core=1 if is_unset(row.get("Threads", "")) else count(row["Threads"], field="sinfo Threads"),
        partitions=tuple(set(partitions)),
        features=names(row["features_act"]),
        weight=count(row["Weight"], field="sinfo Weight"),
    )


def partition(row: Row, nodes: Iterable[str]) -> Partition:
    """Make a partition of a row, or of a block of `scontrol show partition` under sinfo's names."""
    least, most = _job_sizes(row["Size"])
    return Partition(
        name=row["PartitionName"],
        is_up=takes_jobs(row["Available"]),
        nodes=tuple(sorted(set(nodes))),
        max_time_s=duration_s(row["Time"], field="sinfo Time"),
        default_time_s=duration_s(row["DefaultTime"], field="sinfo DefaultTime"),
        priority_tier=count(row["PriorityTier"], field="sinfo PriorityTier"),
        min_nodes_per_job=least,
        max_nodes_per_job=most,
        priority_job_factor=count(row["PriorityJobFactor"], field="sinfo PriorityJobFactor"),
        # sinfo marks the default partition, scontrol has a key for it.
        is_default=row["Default"] == "YES" if "Default" in row else row["Partition"].strip().endswith("*"),
        qos="" if is_unset(row.get("QoS", "")) else row["QoS"],
        over_subscribe=row["OverSubscribe"].strip().upper(),
        max_cpus_per_node=_most_cpus(row.get("MaxCPUsPerNode", "")),
    )


def _most_cpus(text: str) -> int | None:
    """Decode the most CPUs that the jobs of a partition hold on a node together."""
    unbounded = is_unset(text) or text.strip().lower() in NO_LIMIT
    return None if unbounded else count(text, field="sinfo MaxCPUsPerNode")


def _job_sizes(size: str) -> tuple[int, int | None]:
    """Decode the fewest and the most nodes of the jobs that a partition takes (`1-infinite`, `2-8`, `4`)."""
    low, _, high = size.strip().partition("-")
    if not high and (low.lower() in NO_LIMIT or is_unset(low)):
        return 1, None
    unbounded = high.lower() in NO_LIMIT or (bool(high) and is_unset(high))
    return max(1, count(low, field="sinfo Size")), None if unbounded else count(high or low, field="sinfo Size")


def _is_exclusive(sharing: str, exclusive: str | None) -> bool:
    """Whether a job takes whole nodes for itself; releases with a field of its own for it do not use the older one."""
    return sharing.strip().upper() == "NO" if exclusive is None else exclusive.strip().upper() == "NODE"


def _array(row: Row) -> ArrayRecord | None:
    spelled = row["JobArrayID"].strip()
    match = _ARRAY.fullmatch(spelled) if "_" in spelled else None
    if match is None:
        return None
    base, waiting, throttle, task = match.groups()
    if task is not None:
        return ArrayRecord(array_job_id=int(base), task_id=int(task))
    return ArrayRecord(array_job_id=int(base), waiting=waiting, max_running=int(throttle) if throttle else None)


def _het(row: Row) -> HetRecord | None:
    if is_unset(row["HetJobID"]):
        return None
    return HetRecord(
        het_job_id=count(row["HetJobID"], field="squeue HetJobID"),
        offset=count(row["HetJobOffset"], field="squeue HetJobOffset"),
    )
