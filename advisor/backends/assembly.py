"""Puts what a reader found into one snapshot, the same for every reader."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from advisor.backends.process import printable
from advisor.backends.records import (
    JobRecord,
    NodeRecord,
    UnreadJob,
    UnreadRow,
    jobs_and_unread,
    node_or_unread,
)
from advisor.backends.reservations import without_reserved
from advisor.backends.site_reader import Site
from advisor.domain.actions import Lever
from advisor.domain.job import Job
from advisor.domain.node import Node
from advisor.domain.particulars import Reservation
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError, SlurmError

_SHOWN: Final = 3
HIDDEN_NODES: Final = (
    "nodes that are powered down, which this release hides without PrivateData=cloud, and boots when a job needs them"
)


def assemble(  # noqa: PLR0913  (the parts of a snapshot)
    *,
    source: str,
    taken_at: float,
    site: Site,
    jobs: Iterable[JobRecord | Job | UnreadJob],
    nodes: Iterable[NodeRecord | UnreadRow],
    partitions: Iterable[Partition | UnreadRow],
    reservations: Callable[[], Iterable[Reservation]] | None = None,
    unread: Iterable[str] = (),
    splits_told: bool = True,
    hidden_levers: tuple[Lever, ...] = (),
    hides_bars: bool = False,
) -> Snapshot:
    """Make the snapshot, sorted; raises `DecodeError` for what cannot be a cluster.

    A job, node or partition that cannot be read is left out and named in `unread`. If none of several jobs can be read,
    the fault is not the job's. A node without a partition runs no job, and sinfo does not list a partition without
    nodes, so that both are left out. `reservations` is asked only where a node is reserved.
    """
    read_nodes = [node_or_unread(record) for record in nodes]
    all_nodes = sorted(
        (_for_jobs(node, site) for node in read_nodes if isinstance(node, Node)), key=lambda node: node.name
    )
    unread_nodes = [row for row in read_nodes if isinstance(row, UnreadRow)]
    all_partitions = list(partitions)
    unread_partitions = [row for row in all_partitions if isinstance(row, UnreadRow)]
    read_jobs, unread_jobs = jobs_and_unread(jobs, all_nodes, hides_lone_tasks=site.config.traits.hides_lone_tasks)
    if len(unread_jobs) > 1 and not read_jobs:
        raise DecodeError(unread_jobs[0].why)
    reserved = ""
    if reservations is not None and any(node.is_reserved for node in all_nodes):
        try:
            all_nodes = without_reserved(all_nodes, read_jobs, reservations(), taken_at)
        except SlurmError as err:
            reserved = f"reservations, so that every reserved node counts as reserved in whole: {err}"
    snapshot = Snapshot(
        taken_at=taken_at,
        source=source,
        config=site.config,
        topology=site.topology,
        partitions=tuple(
            sorted(
                (each for each in all_partitions if isinstance(each, Partition) and each.nodes),
                key=lambda partition: partition.name,
            )
        ),
        nodes=tuple(node for node in all_nodes if node.partitions),
        jobs=read_jobs,
        unread=(
            *site.unread,
            *unread,
            *_left_out("jobs", [(f"job {job.job_id or 'without an id'}", job.why) for job in unread_jobs]),
            *_rows_left_out("node", unread_nodes),
            *_rows_left_out("partition", unread_partitions),
            *((reserved,) if reserved else ()),
            *((HIDDEN_NODES,) if site.config.hides_powered_down else ()),
        ),
        unread_jobs=tuple(job.job_id for job in unread_jobs),
        splits_told=splits_told,
        hidden_levers=hidden_levers,
        hides_bars=hides_bars,
    )
    if not snapshot.nodes and not unread_nodes and not site.config.hides_powered_down:
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


def _rows_left_out(what: str, rows: Iterable[UnreadRow]) -> Iterator[str]:
    return _left_out(f"{what}s", [(f"{what} {row.name or 'without a name'}", row.why) for row in rows])


def _left_out(what: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence about the rows that are left out, each with the reason."""
    if rows:
        shown = "; ".join(f"{name}: {printable(why)}" for name, why in rows[:_SHOWN])
        more = f"; and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        yield f"{len(rows)} of the {what}, which are left out ({shown}{more})"


def _check_unique(what: str, names: list[str]) -> None:
    twice = next((name for name, following in pairwise(names) if name == following), None)
    if twice is not None:
        raise DecodeError(f"Slurm lists {what} {twice} twice: try again")
