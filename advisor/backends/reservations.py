"""Reads the reservations of a cluster with scontrol, one request to slurmctld, and what they hold of nodes."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from advisor.backends.process import Commands, ask_text
from advisor.backends.scontrol_text import ShownRecord, blocks
from advisor.backends.spelling import count, instant, names, node_names
from advisor.backends.tres import tres
from advisor.domain.gang import GpuCount
from advisor.domain.job import Job
from advisor.domain.node import Node
from advisor.domain.particulars import Reservation
from advisor.errors import DecodeError

# Beside the types of GPUs.
_CPUS: Final = "CPUs"
# The cores of one node, where a reservation does not take all of them.
_CORES: Final = re.compile(r"NodeName=(\S+) CoreIDs=([0-9,-]+)")
_NONE = "No reservations in the system"
_MAINTENANCE = frozenset(("MAINT", "MAGNETIC_MAINT"))


def read_reservations(commands: Commands) -> tuple[Reservation, ...]:
    """Return all reservations, by start."""
    return decode_reservations(ask_text(commands, "scontrol", "-o", "show", "reservation"))


def decode_reservations(text: str) -> tuple[Reservation, ...]:
    """Decode what scontrol shows of reservations; raises `DecodeError` for what is not that."""
    if not text.strip() or _NONE in text.partition("ReservationName=")[0]:
        return ()
    parts = re.split(r"(?m)^(?=ReservationName=)", text)[1:]
    found = (_reservation(block, part) for block, part in zip(blocks(text, key="ReservationName"), parts, strict=True))
    return tuple(sorted(found, key=lambda reservation: (reservation.start_time, reservation.name)))


def without_reserved(
    nodes: Sequence[Node], jobs: Iterable[Job], reservations: Iterable[Reservation], now: float
) -> list[Node]:
    """Return the nodes with what reservations of parts of them keep from other jobs.

    What jobs of a reservation use counts as in use already. A node that is reserved as a whole stays as it is.
    """
    current = [each for each in reservations if each.start_time <= now < each.end_time]
    whole = {node for each in current for node in each.nodes if node not in each.cpus_by_node}
    held: dict[tuple[str, str], Counter[str | None]] = {
        (each.name, node): Counter({_CPUS: cpus} | {gpu.gpu_type: gpu.count for gpu in each.gpus})
        for each in current
        for node, cpus in each.cpus_by_node.items()
    }
    for job in jobs:
        if job.reservation and job.allocation is not None:
            nodes_held = job.allocation.nodes
            by_type = {gpu.gpu_type: gpu.count for gpu in job.allocation.gpus}
            used = {_CPUS: job.gang.cpus, **by_type, None: sum(by_type.values())}
            for node in nodes_held:
                if (job.reservation, node) in held:
                    held[job.reservation, node].subtract({key: count // len(nodes_held) for key, count in used.items()})
    left: dict[str, Counter[str | None]] = {}
    for (_, node), counts in held.items():
        # Unary plus drops what is used up.
        left[node] = left.get(node, Counter()) + +counts
    return [
        _with_reserved(node, left.get(node.name, Counter())) if node.is_reserved and node.name not in whole else node
        for node in nodes
    ]


def _with_reserved(node: Node, kept: Counter[str | None]) -> Node:
    # GPUs of any type are reserved of the one type that there is, or else of each.
    gpus = tuple(replace(pool, reserved=min(pool.total, kept[pool.gpu_type] or kept[None])) for pool in node.gpus)
    return replace(node, cpus_reserved=min(kept[_CPUS], node.cpus), gpus=gpus)


def _reservation(block: ShownRecord, text: str) -> Reservation:
    start_time, end_time = (instant(block[key], field=f"scontrol {key}") for key in ("StartTime", "EndTime"))
    if start_time is None or end_time is None:
        raise DecodeError("scontrol shows a reservation without times: see scontrol show reservation")
    cpus = tres(block.get("TRES", ""), field="scontrol TRES").cpus
    return Reservation(
        name=block["ReservationName"],
        start_time=start_time,
        end_time=end_time,
        nodes=node_names(block.get("Nodes", ""), field="scontrol Nodes"),
        cpus=cpus,
        cpus_by_node=_cpus_by_node(text, cpus, count(block.get("CoreCnt", "0"), field="scontrol CoreCnt")),
        gpus=_gpus_of_each(block),
        licences=tuple(word.partition(":")[0].partition("=")[0] for word in names(block.get("Licenses", ""))),
        is_maintenance=not _MAINTENANCE.isdisjoint(block.get("Flags", "").split(",")),
    )


def _cpus_by_node(text: str, cpus: int | None, cores: int) -> dict[str, int]:
    """Read the cores that a reservation takes of each node, as CPUs."""
    threads = max(1, (cpus or 0) // cores) if cores else 1
    return {name: threads * _size(ids) for name, ids in _CORES.findall(text)}


def _gpus_of_each(block: ShownRecord) -> tuple[GpuCount, ...]:
    """Return the GPUs that a reservation takes of each of its nodes."""
    gpus = tres(block.get("TRES", ""), field="scontrol TRES").gpus or ()
    nodes = max(1, count(block.get("NodeCnt", "1"), field="scontrol NodeCnt"))
    return tuple(GpuCount(gpu_type=gpu.gpu_type, count=math.ceil(gpu.count / nodes)) for gpu in gpus)


def _size(ids: str) -> int:
    """Count the cores of a list such as `0-3,8`."""
    ends = (part.partition("-")[::2] for part in ids.split(",") if part)
    return sum(int(high or low) - int(low) + 1 for low, high in ends)
