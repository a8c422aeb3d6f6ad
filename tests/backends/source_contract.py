"""What every reader of a cluster keeps to; run by the tests of each."""

from dataclasses import replace

from advisor.cycle import ClusterSource
from advisor.domain.snapshot import Snapshot


def check(source: ClusterSource) -> Snapshot:
    """Read twice, check what holds of any snapshot, and return the first."""
    first, second = source.snapshot(), source.snapshot()
    assert first.source == source.name
    assert second.taken_at >= first.taken_at
    assert replace(second, taken_at=first.taken_at) == first, "a cluster that stands still reads the same twice"
    _check_order(first)
    _check_references(first)
    return first


def _check_order(snapshot: Snapshot) -> None:
    assert [job.job_id for job in snapshot.jobs] == sorted({job.job_id for job in snapshot.jobs})
    assert [node.name for node in snapshot.nodes] == sorted({node.name for node in snapshot.nodes})
    names = [partition.name for partition in snapshot.partitions]
    assert names == sorted(set(names))
    switches = [(switch.level, switch.name) for switch in snapshot.topology.switches]
    assert switches == sorted(set(switches))


def _check_references(snapshot: Snapshot) -> None:
    nodes = {node.name: node for node in snapshot.nodes}
    for partition in snapshot.partitions:
        assert partition.nodes == tuple(sorted(set(partition.nodes)))
        assert all(partition.name in nodes[name].partitions for name in partition.nodes)
    for job in snapshot.jobs:
        assert job.allocation is None or (not job.is_pending and set(job.allocation.nodes) <= nodes.keys())
        assert job.gang.nodes_max is None or job.gang.nodes_min <= job.gang.nodes_max
