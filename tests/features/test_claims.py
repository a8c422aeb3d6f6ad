"""What a gang takes of the nodes on which it starts."""

import pytest

from advisor.domain.gang import GangRequest, GpuScope
from advisor.domain.node import GpuPool, Node
from advisor.features.capacity import Fitter, node_table
from advisor.features.claims import claim
from tests.builders import gpu_counts, make_gang, make_node, make_snapshot

NODES = (make_node("n01", used=2, cpus=8), make_node("n02", used=5, cpus=64), make_node("n03", used=1, cpus=64))
MIXED = Node(
    name="n01", state="IDLE", cpus=64, memory_mib=1000, partitions=("gpu",),
    gpus=(GpuPool(gpu_type="a100", total=4, used=0), GpuPool(gpu_type="h100", total=4, used=0)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("gang", "nodes", "taken"),
    [
        (make_gang(4), NODES, {"n01": 4}),
        (make_gang(7), NODES, {"n03": 7}),
        (make_gang(12), NODES, {"n03": 7, "n01": 5}),
        (make_gang(2, nodes_min=2, nodes_max=2), NODES, {"n01": 1, "n02": 1}),
        (make_gang(3, scope=GpuScope.NODE, nodes_min=3, nodes_max=3), NODES, {"n01": 3, "n02": 3, "n03": 3}),
        (make_gang(2, scope=GpuScope.TASK, tasks=5), NODES, {"n01": 6, "n03": 4}),
        (make_gang(4, cpus_per_gpu=4, cpus=16), NODES, {"n03": 4}),
        (make_gang(8, nodes_max=2, exclusive=True), (make_node("n01"), make_node("n02")), {"n01": 8}),
        (make_gang(5, nodes_max=1, excluded_nodes=("n01",)), NODES, {"n03": 5}),
        (make_gang(9, required_nodes=("n02",)), NODES, {"n02": 3, "n01": 6}),
    ],
    ids=[
        "the node with least idle",
        "the one node that holds it",
        "most from the largest",
        "one at least from each",
        "per node",
        "whole tasks",
        "with their CPUs",
        "exclusive",
        "an excluded node",
        "a required node",
    ],
)
def test_gang_takes_its_gpus(gang: GangRequest, nodes: tuple[Node, ...], taken: dict[str, int]) -> None:
    snapshot = make_snapshot(nodes=nodes)
    table = node_table(snapshot)

    found = claim(table, gang, Fitter(snapshot, table).nodes_now(gang, ("gpu",)))

    by_node = zip(found.rows.tolist(), found.gpus.sum(axis=1).tolist(), strict=True)
    assert {table.names[row]: gpus for row, gpus in by_node} == taken


def test_gpus_of_a_type_are_taken_of_that_type_and_others_of_any() -> None:
    table = node_table(make_snapshot(nodes=[MIXED]))
    gang = make_gang(per_job=(*gpu_counts(3), *gpu_counts(2, "h100")), cpus=10, memory_mib_per_node=300)

    taken = claim(table, gang, Fitter(make_snapshot(nodes=[MIXED]), table).nodes_now(gang, ("gpu",)))

    assert taken.gpus.tolist() == [[3, 2]]
    assert (taken.cpus.tolist(), taken.memory_mib.tolist()) == ([10], [300])


def test_gang_that_fits_nowhere_takes_nothing() -> None:
    snapshot = make_snapshot(nodes=NODES)
    table = node_table(snapshot)

    found = claim(table, make_gang(17), Fitter(snapshot, table).nodes_now(make_gang(17), ("gpu",)))

    assert (found.gpus.sum(), found.cpus.sum(), found.memory_mib.sum()) == (0, 0, 0)
