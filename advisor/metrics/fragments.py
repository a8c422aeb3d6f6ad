"""Counts the idle GPUs of a partition: on nodes that are entirely free, or beside GPUs in use."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import UNTYPED


@dataclass(slots=True, kw_only=True)
class PoolUse:
    """Counts of GPUs; `idle` on nodes that start jobs, `fragmented` beside GPUs in use, `largest` idle on one node."""

    total: int = 0
    idle: int = 0
    fragmented: int = 0
    largest: int = 0


def use_by_pool(snapshot: Snapshot) -> Mapping[tuple[str, str], PoolUse]:
    """Count the GPUs by partition and type, in one pass over the nodes; cheap enough for every round."""
    uses: dict[tuple[str, str], PoolUse] = {}
    for node in snapshot.nodes:
        usable = node.is_usable
        for gpus in node.gpus:
            idle = gpus.idle if usable else 0
            for partition in node.partitions:
                use = uses.setdefault((partition, gpus.gpu_type or UNTYPED), PoolUse())
                use.total += gpus.total
                use.idle += idle
                use.fragmented += idle if idle < gpus.total else 0
                use.largest = max(use.largest, idle)
    return dict(sorted(uses.items()))
