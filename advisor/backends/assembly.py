"""Puts what a reader found into one snapshot, the same for every reader."""

from collections.abc import Iterable
from itertools import pairwise

from advisor.backends.records import JobRecord, NodeRecord, impossible, jobs_of, node_of
from advisor.backends.site_reader import Site
from advisor.domain.actions import Lever
from advisor.domain.job import Job
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError


def assemble(  # noqa: PLR0913  (the parts of a snapshot)
    *,
    source: str,
    taken_at: float,
    site: Site,
    jobs: Iterable[JobRecord | Job],
    nodes: Iterable[NodeRecord],
    partitions: Iterable[Partition],
    unread: Iterable[str] = (),
    splits_told: bool = True,
    hidden_levers: tuple[Lever, ...] = (),
) -> Snapshot:
    """Make the snapshot, sorted; raises `DecodeError` for what cannot be a cluster.

    A node without a partition runs no job, and sinfo does not list a partition without nodes, so that both are
    left out.
    """
    try:
        all_nodes = sorted(map(node_of, nodes), key=lambda node: node.name)
    except ValueError as err:
        raise DecodeError(f"Slurm answered with a node that cannot be: {err}; try another --source") from err
    all_jobs = jobs_of(jobs, all_nodes)
    snapshot = Snapshot(
        taken_at=taken_at,
        source=source,
        config=site.config,
        topology=site.topology,
        partitions=tuple(
            sorted((partition for partition in partitions if partition.nodes), key=lambda partition: partition.name)
        ),
        nodes=tuple(node for node in all_nodes if node.partitions),
        jobs=all_jobs,
        unread=(*site.unread, *unread, *impossible(all_jobs)),
        splits_told=splits_told,
        hidden_levers=hidden_levers,
    )
    if not snapshot.nodes:
        raise DecodeError(
            "Slurm lists no node in any partition: its answer was cut short, or the nodes are hidden from this user "
            "(PrivateData=nodes): run `sinfo` to see what it says"
        )
    _check_unique("job", [str(job.job_id) for job in snapshot.jobs])
    _check_unique("node", [node.name for node in snapshot.nodes])
    _check_unique("partition", [partition.name for partition in snapshot.partitions])
    return snapshot


def _check_unique(what: str, names: list[str]) -> None:
    twice = next((name for name, following in pairwise(names) if name == following), None)
    if twice is not None:
        raise DecodeError(f"Slurm lists {what} {twice} twice: try again")
