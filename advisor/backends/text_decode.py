"""Decodes what squeue, sinfo and scontrol print; text in, records out, nothing else.

squeue and sinfo escape nothing: a job name can hold newlines, and whatever stands for the end of a field. So each
call ends its fields with a random delimiter, and a whole answer is a whole number of rows.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Final, TypedDict

from advisor.backends.records import JobRecord, NodeRecord
from advisor.backends.spelling import (
    CACHED_TEXTS,
    NO_LIMIT,
    count,
    duration_s,
    instant,
    integer,
    is_unset,
    names,
    node_names,
    optional_text,
    whole,
)
from advisor.backends.tres import Gres, Tres, gres_list, tres
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.errors import DecodeError

Row = Mapping[str, str]

JOB_FIELDS: Final = (
    "JobID",
    "JobArrayID",
    "HetJobID",
    "HetJobOffset",
    "State",
    "Reason",
    "Name",
    "UserName",
    "Account",
    "Partition",
    "QOS",
    "Comment",
    "NumNodes",
    "MaxNodes",
    "NumTasks",
    "NumCPUs",
    "tres-alloc",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "cpus-per-tres",
    "OverSubscribe",
    "Exclusive",
    "ReqSwitch",
    "Wait4Switch",
    "Feature",
    "ReqNodes",
    "ExcNodes",
    "NodeList",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "MinTime",
    "PriorityLong",
    "Nice",
    "Dependency",
    "Reservation",
    "Requeue",
    "CronJob",
)
NODE_FIELDS: Final = (
    "NodeList",
    "PartitionName",
    "StateComplete",
    "Reason",
    "CPUs",
    "CPUsState",
    "Memory",
    "AllocMem",
    "Gres",
    "GresUsed",
    "features_act",
    "Weight",
    "Available",
    "Time",
    "DefaultTime",
    "PriorityTier",
    "Size",
)
REQUEST_FIELDS: Final[Mapping[GpuScope, str]] = {
    GpuScope.JOB: "tres-per-job",
    GpuScope.NODE: "tres-per-node",
    GpuScope.SOCKET: "tres-per-socket",
    GpuScope.TASK: "tres-per-task",
}

_UNKNOWN_FIELD = re.compile(r"Invalid (?:job|node|\w+) format specification: (\S+)")
_ARRAY = re.compile(r"(\d{1,10})_(?:\[([^\]%]*)(?:%(\d{1,10}))?\]|(\d{1,10}))", re.ASCII)


def field_list(fields: Iterable[str], delimiter: str) -> str:
    """Spell the value of `-O`: every field in full, each followed by the delimiter."""
    return ",".join(f"{field}:{delimiter}" for field in fields)


def unknown_fields(complaints: str) -> frozenset[str]:
    """Name the fields that this release of the command does not have; it prints nothing in their place."""
    return frozenset(_UNKNOWN_FIELD.findall(complaints))


def printed_rows(text: str, *, command: str, fields: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """Split an answer into the values of its rows, in the order of `fields`.

    Raises `DecodeError` unless the answer ends with the end of a row and every row has every field.
    """
    parts = text.split(delimiter)
    if parts.pop() != ("\n" if parts else "") or len(parts) % len(fields):
        raise DecodeError(f"{command} gave an incomplete answer: try again")
    for start in range(0, len(parts), len(fields)):
        values = parts[start : start + len(fields)]
        if start and not values[0].startswith("\n"):
            raise DecodeError(f"{command} gave an answer whose rows do not fit its fields: try another --source")
        values[0] = values[0].removeprefix("\n")
        yield values


def row_of(values: Sequence[str], fields: Sequence[str], absent: frozenset[str] = frozenset()) -> Row:
    """Return a row by field; those that are `absent`, since this release does not have them, are left out."""
    row = dict(zip(fields, values, strict=True))
    for field in absent:
        row.pop(field, None)
    return row


def rows(text: str, *, command: str, fields: Sequence[str], delimiter: str, absent: Iterable[str] = ()) -> list[Row]:
    """Split an answer into rows; fields that are `absent` are left out of them. Raises as `printed_rows` does."""
    missing = frozenset(absent)
    printed = printed_rows(text, command=command, fields=fields, delimiter=delimiter)
    return [row_of(values, fields, missing) for values in printed]


def job_record(row: Row) -> JobRecord:
    """Read a job from its row."""
    return JobRecord(
        job_id=whole(row["JobID"], field="squeue JobID"),
        states=(row["State"].strip(),),
        reason=row["Reason"],
        name=optional_text(row["Name"]),
        user=optional_text(row["UserName"]),
        account=optional_text(row["Account"]),
        partitions=names(row["Partition"]),
        qos=optional_text(row["QOS"]),
        comment=optional_text(row["Comment"]),
        **_asked(_REQUEST(row), row.get("ExcNodes", ""), row.get("Exclusive")),
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
        dependency=optional_text(row["Dependency"]),
        reservation=optional_text(row["Reservation"]),
        requeueable=row["Requeue"].strip() == "1",
        cron=row.get("CronJob", "").strip().lower() in ("1", "yes", "true"),
    )


_REQUEST = itemgetter(
    "NumNodes",
    "MaxNodes",
    "NumTasks",
    "NumCPUs",
    "tres-alloc",
    "cpus-per-tres",
    "OverSubscribe",
    "ReqSwitch",
    "Wait4Switch",
    "Feature",
    "ReqNodes",
    *REQUEST_FIELDS.values(),
)


class _Asked(TypedDict):
    """What a job asks for, as `JobRecord` holds it."""

    nodes_shown: int
    nodes_max: int
    tasks: int
    cpus: int
    tres: Tres
    requests: Mapping[GpuScope, tuple[Gres, ...]]
    cpus_per_gres: tuple[Gres, ...]
    exclusive: bool
    switch_count: int
    switch_wait_s: float
    features: str
    required_nodes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]


@lru_cache(CACHED_TEXTS)
def _asked(values: tuple[str, ...], excluded_nodes: str, exclusive: str | None) -> _Asked:
    """Read what a job asks for; whole queues ask for the same few things."""
    nodes, most_nodes, tasks, cpus, counted, per_tres, sharing, switches, wait, feature, required, *asked = values
    return _Asked(
        nodes_shown=count(nodes, field="squeue NumNodes"),
        nodes_max=count(most_nodes, field="squeue MaxNodes"),
        tasks=max(1, count(tasks, field="squeue NumTasks")),
        cpus=count(cpus, field="squeue NumCPUs"),
        tres=tres(counted, field="squeue tres-alloc"),
        requests={
            scope: gres_list(text, field=f"squeue {key}")
            for (scope, key), text in zip(REQUEST_FIELDS.items(), asked, strict=True)
            if text
        },
        cpus_per_gres=gres_list(per_tres, field="squeue cpus-per-tres"),
        exclusive=_is_exclusive(sharing, exclusive),
        switch_count=count(switches, field="squeue ReqSwitch"),
        switch_wait_s=duration_s(wait, field="squeue Wait4Switch") or 0.0,
        features=optional_text(feature),
        required_nodes=node_names(required, field="squeue ReqNodes"),
        excluded_nodes=node_names(excluded_nodes, field="squeue ExcNodes"),
    )


def node_records(node_rows: Iterable[Row]) -> tuple[NodeRecord, ...]:
    """Read the nodes from rows of one node and one partition each."""
    partitions: dict[str, list[str]] = {}
    first_rows: dict[str, Row] = {}
    for row in node_rows:
        first_rows.setdefault(row["NodeList"], row)
        partitions.setdefault(row["NodeList"], []).append(row["PartitionName"])
    return tuple(node_record(row, partitions[name]) for name, row in first_rows.items())


def partitions_of(partition_rows: Iterable[Row]) -> tuple[Partition, ...]:
    """Read the partitions from rows of one node and one partition each, by name."""
    nodes: dict[str, list[str]] = {}
    first_rows: dict[str, Row] = {}
    for row in partition_rows:
        first_rows.setdefault(row["PartitionName"], row)
        nodes.setdefault(row["PartitionName"], []).append(row["NodeList"])
    return tuple(partition(first_rows[name], nodes[name]) for name in sorted(first_rows))


def node_record(row: Row, partitions: Iterable[str]) -> NodeRecord:
    """Read a node from a row and the names of its partitions."""
    return NodeRecord(
        name=row["NodeList"],
        states=tuple(word.strip("*~#!%$@^- ").upper() for word in row["StateComplete"].split("+")),
        reason=row["Reason"],
        cpus=count(row["CPUs"], field="sinfo CPUs"),
        cpus_used=count(row["CPUsState"].partition("/")[0], field="sinfo CPUsState"),
        memory_mib=count(row["Memory"], field="sinfo Memory"),
        memory_used_mib=count(row["AllocMem"], field="sinfo AllocMem"),
        gres=gres_list(row["Gres"], field="sinfo Gres"),
        gres_used=gres_list(row["GresUsed"], field="sinfo GresUsed"),
        partitions=tuple(set(partitions)),
        features=names(row["features_act"]),
        weight=count(row["Weight"], field="sinfo Weight"),
    )


def partition(row: Row, nodes: Iterable[str]) -> Partition:
    """Make a partition of a row, or of a block of `scontrol show partition` under sinfo's names."""
    return Partition(
        name=row["PartitionName"],
        is_up=row["Available"].strip().lower() == "up",
        nodes=tuple(sorted(set(nodes))),
        max_time_s=duration_s(row["Time"], field="sinfo Time"),
        default_time_s=duration_s(row["DefaultTime"], field="sinfo DefaultTime"),
        priority_tier=count(row["PriorityTier"], field="sinfo PriorityTier"),
        max_nodes_per_job=_most_nodes(row["Size"]),
    )


def _most_nodes(size: str) -> int | None:
    """Decode the job sizes that a partition takes (`1-infinite`, `2-8`, `4`)."""
    high = size.strip().rpartition("-")[2]
    return None if high.lower() in NO_LIMIT or is_unset(high) else count(high, field="sinfo Size")


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
