"""Chooses the sizes, placements and neighbours of a pending gang to forecast."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.domain.forecast import Placement
from advisor.domain.job import GpuRange, Job, JobState
from advisor.domain.node import Node
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier

# The largest number of neighbours that are counted for a spread gang.
MOST_NEIGHBOURS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A placement of a job: the size and tier as the planner asks for them, and the nodes taken for it."""

    placement: Placement
    nodes: int


class PlacementIndex:
    """The part of a snapshot that determines the placements of its jobs."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Collect the usable nodes, and the gangs that span nodes."""
        self._nodes = [node for node in snapshot.nodes if node.is_usable]
        # Many nodes share few sets of partitions.
        self._most: dict[tuple[str, ...], dict[str | None, int]] = {}
        for node in self._nodes:
            most = self._most.setdefault(node.partitions, {})
            for pool in node.gpus:
                most[pool.gpu_type] = max(most.get(pool.gpu_type, 0), pool.total)
        self._largest: dict[tuple[tuple[str, ...], str | None], int] = {}
        self._crowded: dict[tuple[tuple[str, ...], str | None], tuple[Job, ...]] = {}
        self._spanning = [
            job
            for job in snapshot.jobs
            if job.state is JobState.RUNNING and job.allocation is not None and len(job.allocation.nodes) > 1
        ]
        spanned = {name for job in self._spanning if job.allocation is not None for name in job.allocation.nodes}
        self._spanned = [node for node in self._nodes if node.name in spanned]

    def neighbours(self, job: Job) -> tuple[Job, ...]:
        """Return the gangs over several nodes that run on nodes with idle GPUs for this one, most frequent first.

        Which nodes Slurm would choose is unknown; this is an assumption.
        """
        key = (job.partitions, job.gang.gpu_type)
        if key not in self._crowded:
            idle = {
                node.name for node in self._spanned if self._serves(node.partitions, key[0]) and _idle(node, key[1])
            }
            met = Counter[int]()
            by_id = {}
            for other in self._spanning:
                there = idle.intersection(other.allocation.nodes if other.allocation else ())
                if there:
                    met[other.job_id] = len(there)
                    by_id[other.job_id] = other
            ranked = sorted(met, key=lambda job_id: (-met[job_id], job_id))
            self._crowded[key] = tuple(by_id[job_id] for job_id in ranked[:MOST_NEIGHBOURS])
        return self._crowded[key]

    def gpus_on_node(self, job: Job) -> int:
        """Return the most GPUs of a job's type that a usable node of its partitions has, 0 for none."""
        key = (job.partitions, job.gang.gpu_type)
        if key not in self._largest:
            self._largest[key] = max(
                (
                    total
                    for partitions, most in self._most.items()
                    if self._serves(partitions, key[0])
                    for gpu_type, total in most.items()
                    if key[1] in (None, gpu_type)
                ),
                default=0,
            )
        return self._largest[key]

    @staticmethod
    def _serves(node_partitions: tuple[str, ...], partitions: tuple[str, ...]) -> bool:
        return not set(node_partitions).isdisjoint(partitions)


def candidates(largest: int, asked: int | None, declared: GpuRange | None) -> Iterator[Candidate]:
    """Yield the placements of a job, those of the size it asks for first, at its closest before spread out.

    `largest` is the most GPUs of its kind on one node, `declared` its range. Nothing is measured between leaves, so
    that more than one node is one tier here.
    """
    if not largest or not asked:
        return
    for gpus in (asked, *(size for size in (declared.sizes if declared else ()) if size != asked)):
        fewest = -(-gpus // largest)
        if fewest == 1:
            yield Candidate(placement=Placement(gpus=gpus, tier=LocalityTier.NODE), nodes=1)
        if gpus > 1:
            spread = max(fewest, 2)
            yield Candidate(placement=Placement(gpus=gpus, tier=LocalityTier.LEAF), nodes=spread)


def _idle(node: Node, gpu_type: str | None) -> int:
    return sum(pool.idle for pool in node.gpus if gpu_type in (None, pool.gpu_type))
