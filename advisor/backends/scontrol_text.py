"""Decodes the blocks of `Key=value` that `scontrol show` prints.

The format escapes nothing, so a cluster is asked only for what holds no user's text: partitions, switches, the
configuration, and the first keys of nodes, which stand before the text of administrators.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from advisor.backends.process import Commands, ask_text
from advisor.backends.records import UnreadRow, row_or_unread
from advisor.backends.spelling import count, names, node_names
from advisor.backends.text_decode import Row, partition
from advisor.domain.site import Billing, Partition
from advisor.errors import DecodeError

_PAIR = re.compile(r"([A-Za-z][A-Za-z0-9_:/()]*)=(\S*)")
# Partition keys of scontrol under sinfo's names.
_PARTITION_KEYS: Final[Mapping[str, str]] = {
    "PartitionName": "PartitionName",
    "Available": "State",
    "Time": "MaxTime",
    "DefaultTime": "DefaultTime",
    "PriorityTier": "PriorityTier",
    "MaxNodes": "MaxNodes",
    "PriorityJobFactor": "PriorityJobFactor",
}
# Keys that are read where they are shown, and what they are elsewhere.
_FURTHER_KEYS: Final[Mapping[str, str]] = {
    "Default": "NO",
    "QoS": "N/A",
    "OverSubscribe": "NO",
    "MaxCPUsPerNode": "UNLIMITED",
}
# A weight can have a unit behind it, as in Mem=0.25G.
_ABOVE_0 = re.compile(r"0*\.?0*[1-9].*")


class ShownRecord(dict[str, str]):
    """One record as scontrol shows it; to ask for a key that it lacks raises `DecodeError`."""

    def __missing__(self, key: str) -> str:
        first = next(iter(self), "record")
        raise DecodeError(f"scontrol show prints a {first} without {key}: try again, or try another --source")


def blocks(text: str, *, key: str) -> Iterator[ShownRecord]:
    """Split an answer into its blocks, each of which starts with `key`; the first value of a key counts."""
    chunks = re.split(rf"(?m)^(?={re.escape(key)}=)", text)
    if len(chunks) == 1 and text.strip():
        raise DecodeError(f"scontrol show gave no {key}: try another --source")
    for chunk in chunks[1:]:
        yield ShownRecord({key: "", **dict(reversed(_PAIR.findall(chunk)))})


def for_jobs(text: str) -> Mapping[str, tuple[int, int]]:
    """Map the nodes of `scontrol show node` to the CPUs and the MiB of memory that jobs can have, if not all.

    The rest is reserved for the system (CoreSpecCount, CpuSpecList, MemSpecLimit).
    """
    reserving = (block for block in blocks(text, key="NodeName") if {"CoreSpecCount", "MemSpecLimit"} & block.keys())
    return {block["NodeName"]: _for_jobs(block) for block in reserving}


def _for_jobs(block: ShownRecord) -> tuple[int, int]:
    cpus = count(block.get("CPUEfctv", block.get("CPUTot", "")), field="scontrol CPUEfctv")
    memory_mib = count(block.get("RealMemory", ""), field="scontrol RealMemory")
    return cpus, max(0, memory_mib - count(block.get("MemSpecLimit", "0"), field="scontrol MemSpecLimit"))


def partitions(text: str) -> tuple[Partition | UnreadRow, ...]:
    """Read the partitions of `scontrol show partition`, by name."""
    decoded = (
        row_or_unread(partial(_partition, block, _row(block)), block["PartitionName"])
        for block in blocks(text, key="PartitionName")
    )
    return tuple(sorted(decoded, key=lambda partition: partition.name))


def _row(block: ShownRecord) -> dict[str, str]:
    """Return a block under sinfo's names; one that lacks a key was cut short."""
    row = {ours: block[theirs] for ours, theirs in _PARTITION_KEYS.items()}
    sizes = {"Size": f"{block.get('MinNodes', '0')}-{row['MaxNodes']}"}
    return row | sizes | {key: block.get(key, default) for key, default in _FURTHER_KEYS.items()}


def _partition(block: ShownRecord, row: Row) -> Partition:
    return partition(row, node_names(block.get("Nodes", ""), field="scontrol Nodes"))


def read_billings(commands: Commands) -> tuple[Billing, ...]:
    """Ask slurmctld for its partitions, which costs it one request; raises `AdvisorError`."""
    return billings(ask_text(commands, "scontrol", "-o", "-a", "show", "partition"))


def billings(text: str) -> tuple[Billing, ...]:
    """Read the weights of the partitions of `scontrol show partition`, which shows them where they are set."""
    return tuple(
        _billing(block["PartitionName"], block.get("TRESBillingWeights", "").removeprefix("(null)"))
        for block in blocks(text, key="PartitionName")
    )


def _billing(partition: str, weights: str) -> Billing:
    pairs = (word.lower().partition("=") for word in names(weights))
    gpu_tres = (
        tres for tres, _, weight in pairs if tres.partition(":")[0] == "gres/gpu" and _ABOVE_0.fullmatch(weight)
    )
    return Billing(partition=partition, weights=weights, gpu_tres=tuple(gpu_tres))
