"""Puts what a reader found into one snapshot, the same for every reader."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from advisor.backends.process import printable
from advisor.backends.records import JobRecord, NodeRecord, UnreadJob, jobs_and_unread, node_of
from advisor.backends.site_reader import Site
from advisor.domain.actions import Lever
from advisor.domain.job import Job
from advisor.domain.node import Node
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError

_SHOWN: Final = 3


def assemble(  # noqa: PLR0913  (the parts of a snapshot)
    *,
    source: str,
    taken_at: float,
    site: Site,
    jobs: Iterable[JobRecord | Job | UnreadJob],
    nodes: Iterable[NodeRecord],
    partitions: Iterable[Partition],
    unread: Iterable[str] = (),
    splits_told: bool = True,
    hidden_levers: tuple[Lever, ...] = (),
) -> Snapshot:
    """Make the snapshot, sorted; raises `DecodeError` for what cannot be a cluster.

    A job that cannot be read is left out and named in `unread`; if none can be read, the fault is not the job's.
    A node without a partition runs no job, and sinfo does not list a partition without nodes, so that both are
    left out.
    """
    try:
        all_nodes = sorted((_for_jobs(node_of(node), site) for node in nodes), key=lambda node: node.name)
    except ValueError as err:
        raise DecodeError(f"Slurm answered with a node that cannot be: {err}; try another --source") from err
    read_jobs, unread_jobs = jobs_and_unread(jobs, all_nodes)
    if unread_jobs and not read_jobs:
        raise DecodeError(unread_jobs[0].why)
    snapshot = Snapshot(
        taken_at=taken_at,
        source=source,
        config=site.config,
        topology=site.topology,
        partitions=tuple(
            sorted((partition for partition in partitions if partition.nodes), key=lambda partition: partition.name)
        ),
        nodes=tuple(node for node in all_nodes if node.partitions),
        jobs=read_jobs,
        unread=(*site.unread, *unread, *_left_out(unread_jobs)),
        unread_jobs=tuple(job.job_id for job in unread_jobs),
        splits_told=splits_told,
        hidden_levers=hidden_levers,
    )
    if not snapshot.nodes:
        raise DecodeError(
            "Slurm lists no node in any partition: its answer was cut short, or the nodes are hidden from this user "
            "(PrivateData=nodes): run `sinfo` to see what it says"
        )
    _check_unique("node", [node.name for node in snapshot.nodes])
    _check_unique("partition", [partition.name for partition in snapshot.partitions])
    return snapshot


def _for_jobs(node: Node, site: Site) -> Node:
    """Return a node with the CPUs and the memory that jobs can have."""
    if node.name not in site.for_jobs:
        return node
    cpus, memory_mib = site.for_jobs[node.name]
    return replace(node, cpus=min(node.cpus, cpus), memory_mib=min(node.memory_mib, memory_mib))


def _left_out(jobs: Sequence[UnreadJob]) -> Iterator[str]:
    """Yield a sentence about the jobs that are left out."""
    if jobs:
        shown = "; ".join(f"job {job.job_id or 'without an id'}: {printable(job.why)}" for job in jobs[:_SHOWN])
        more = f"; and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
        yield f"{len(jobs)} of the jobs, which are left out ({shown}{more})"


def _check_unique(what: str, names: list[str]) -> None:
    twice = next((name for name, following in pairwise(names) if name == following), None)
    if twice is not None:
        raise DecodeError(f"Slurm lists {what} {twice} twice: try again")
