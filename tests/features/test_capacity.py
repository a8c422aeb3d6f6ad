"""What nodes hold, and where gangs fit, now and ever."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import FrameType

import pytest

from advisor.domain.gang import GangRequest, GpuCount, GpuScope, ShareCount
from advisor.domain.node import GpuPool
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier, Topology, TopologyKind
from advisor.features.capacity import Doubt, Fit, Fitter, node_table
from advisor.features.nodes import Chunk, chunks_ever, gpus_of, memory_is_shared_out, rows_of
from tests.builders import make_config, make_gang, make_job, make_node, make_partition, make_snapshot, make_topology

NODE, LEAF, SPINE, CLUSTER = LocalityTier


def fit(snapshot: Snapshot, gang: GangRequest, *partitions: str) -> Fit:
    """Where a gang fits on a snapshot, in the partition "gpu" unless others are named."""
    return Fitter(snapshot, node_table(snapshot)).fit(gang, partitions or ("gpu",))


def cluster(*idle: int, per_node: int = 8, topology: Topology | None = None) -> Snapshot:
    """Nodes n1, n2, ... with so many idle GPUs each, the first half of them on one leaf."""
    return make_snapshot(
        nodes=[make_node(f"n{number}", per_node, per_node - gpus) for number, gpus in enumerate(idle, 1)],
        topology=topology,
    )


def test_table_holds_what_is_idle_and_what_may_start() -> None:
    pools = (GpuPool(gpu_type="v100", total=2), GpuPool(gpu_type="a100", total=8, used=3), GpuPool(total=1, used=None))
    mixed = replace(make_node("n1", cpus=64, cpus_used=60, memory_mib=1000, memory_used_mib=1200), gpus=pools)

    table = node_table(make_snapshot(nodes=[mixed, replace(mixed, name="n2", flags=("DRAIN",))]))

    assert table.gpu_types == ("a100", "gpu", "v100")
    assert table.gpus_total.tolist() == [[8, 1, 2], [8, 1, 2]]
    assert table.gpus_idle.tolist() == [[5, 0, 2], [5, 0, 2]]
    assert table.gpus_startable.tolist() == [[5, 0, 2], [0, 0, 0]]
    assert table.gpu_use_known.tolist() == [[True, False, True]] * 2
    assert (table.cpus_idle.tolist(), table.memory_idle_mib.tolist()) == ([4, 4], [0, 0])
    assert gpus_of(table.gpu_types, table.gpus_idle, None).tolist() == [7, 7]
    assert gpus_of(table.gpu_types, table.gpus_idle, "h100").tolist() == [0, 0]


def test_table_knows_switches_and_partitions() -> None:
    nodes = [make_node("n1"), make_node("n2", partitions=("cpu", "gpu")), make_node("n3")]
    partitions = [make_partition("gpu", nodes=("n1", "n2", "gone")), make_partition("cpu", nodes=())]
    topology = make_topology({"leaf1": ["n1"], "leaf2": ["n2", "gone"]})

    table = node_table(make_snapshot(nodes=nodes, partitions=partitions, topology=topology))

    assert table.leaf.tolist() == [0, 1, -1]
    assert table.spine.tolist() == [2, 2, -1]
    assert dict(zip(table.partition_names, table.partition_member.tolist(), strict=True)) == {
        "cpu": [False, True, False],
        "gpu": [True, True, False],
    }
    assert rows_of(table, ["n3", "gone", "n1"]) == [2, 0]


def test_chunks_are_bound_by_the_scarcest_resource() -> None:
    nodes = [
        make_node("n1", 8, 2, gpu_type="a100", cpus=64, cpus_used=40, memory_mib=1000),
        make_node("n2", 8, 2, gpu_type="a100", cpus=64, memory_mib=1000, memory_used_mib=700),
        make_node("n3", 8, 2, gpu_type="v100", cpus=64, memory_mib=1000),
        make_node("n4", 8, 2, gpu_type="a100", state="DOWN", cpus=64, memory_mib=1000),
    ]
    table = node_table(make_snapshot(nodes=nodes))
    chunk = Chunk(gpus=(GpuCount(gpu_type="a100", count=2),), cpus=12, memory_mib=200)

    assert chunks_ever(table, chunk).tolist() == [4, 4, 0, 4]


def test_gpus_of_any_type_bind_beside_those_asked_by_name() -> None:
    pools = (GpuPool(gpu_type="a100", total=4), GpuPool(gpu_type="v100", total=2))
    table = node_table(make_snapshot(nodes=[replace(make_node("n1"), gpus=pools)]))

    def held(*counts: GpuCount) -> int:
        return int(chunks_ever(table, Chunk(gpus=counts))[0])

    assert held(GpuCount(count=3)) == 2
    assert held(GpuCount(gpu_type="a100", count=3), GpuCount(count=3)) == 1
    assert held(GpuCount(gpu_type="a100", count=4), GpuCount(count=3)) == 0


def test_chunk_without_a_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match="0 CPUs"):
        Chunk(cpus=0)


@pytest.mark.parametrize(
    ("words", "shared_out"),
    [((), True), (("CR_Core_Memory",), True), (("CR_CORE",), False)],
    ids=["unknown", "memory", "cores only"],
)
def test_memory_counts_where_slurm_hands_it_out(words: tuple[str, ...], shared_out: bool) -> None:
    assert memory_is_shared_out(make_config(select_parameters=words)) is shared_out


def test_memory_in_use_binds_only_where_it_is_handed_out() -> None:
    nodes = [make_node("n1", memory_mib=1000, memory_used_mib=900)]
    gang = make_gang(1, memory_mib_per_node=500)

    def tier(word: str, need: GangRequest) -> LocalityTier | None:
        return fit(make_snapshot(nodes=nodes, config=make_config(select_parameters=(word,))), need).tier_now

    assert tier("CR_CORE_MEMORY", gang) is None
    assert tier("CR_CORE", gang) is NODE
    assert tier("CR_CORE", replace(gang, memory_mib_per_node=1001)) is None


EIGHT_ON_EACH = make_gang(8, scope=GpuScope.NODE, nodes_min=2, nodes_max=2, tasks=2)
TASKS = make_gang(3, scope=GpuScope.TASK, tasks=4, cpus=4)
TYPED = make_gang(gpu_type="a100", gpus=1)


@pytest.mark.parametrize(
    ("idle", "gang", "now", "ever"),
    [
        pytest.param((5, 8, 0, 0), make_gang(8), NODE, NODE, id="total, whole node"),
        pytest.param((5, 3, 8, 0), make_gang(10), SPINE, LEAF, id="total, over leaves"),
        pytest.param((5, 5, 8, 0), make_gang(10), LEAF, LEAF, id="total, under a leaf"),
        pytest.param((5, 3, 0, 2), make_gang(10, nodes_max=2), None, LEAF, id="total, too few nodes allowed"),
        pytest.param((5, 3, 0, 2), make_gang(10, nodes_max=3), SPINE, LEAF, id="total, largest nodes first"),
        pytest.param((5, 5, 5, 5), make_gang(20, nodes_max=1), None, None, id="total, never on one node"),
        pytest.param((8, 0, 0, 0), make_gang(8, nodes_min=2), None, LEAF, id="total, at least two nodes"),
        pytest.param((8, 0, 8, 0), EIGHT_ON_EACH, SPINE, LEAF, id="each node"),
        pytest.param((8, 8, 8, 0), EIGHT_ON_EACH, LEAF, LEAF, id="each node, under a leaf"),
        pytest.param((7, 7, 7, 8), EIGHT_ON_EACH, None, LEAF, id="each node, fragmented"),
        pytest.param((8, 8), replace(EIGHT_ON_EACH, nodes_min=3, nodes_max=3), None, None, id="each node, never"),
        pytest.param((8, 2, 3, 5), TASKS, SPINE, LEAF, id="tasks are never split"),
        pytest.param((8, 6, 0, 0), TASKS, LEAF, LEAF, id="tasks under a leaf"),
        pytest.param((8, 2, 2, 2), TASKS, None, LEAF, id="tasks, three too many"),
        pytest.param((8, 8, 8, 8), TYPED, None, None, id="a type that no node has"),
        pytest.param((8, 0, 0, 0), replace(EIGHT_ON_EACH, per_job=(GpuCount(count=16),)), None, LEAF, id="two forms"),
        pytest.param((0, 0, 0, 0), make_gang(0, cpus=100, tasks=1), LEAF, LEAF, id="CPUs only"),
        pytest.param((0, 0, 0, 0), make_gang(0, cpus=130, tasks=2, nodes_max=2), None, None, id="task above a node"),
        pytest.param((0, 0, 0, 0), make_gang(0, cpus=300, nodes_max=9), None, None, id="more CPUs than there are"),
        pytest.param((8, 4, 0, 0), make_gang(2, cpus=65, nodes_max=2), LEAF, LEAF, id="CPUs of two nodes"),
        pytest.param((8, 8, 0, 0), replace(make_gang(8), cpus_per_gpu=9), LEAF, LEAF, id="CPUs beside each GPU"),
        pytest.param((8, 8, 0, 0), replace(EIGHT_ON_EACH, cpus_per_gpu=9), None, None, id="CPUs beside all eight"),
        pytest.param((8, 8, 8, 8), replace(TASKS, cpus_per_gpu=11), SPINE, SPINE, id="CPUs beside a task's GPUs"),
        pytest.param((8, 8, 0, 0), make_gang(8, cpus=65, nodes_max=1), None, None, id="CPUs above a node"),
    ],
)
def test_gang_fits_at_its_closest_tier(
    idle: Sequence[int], gang: GangRequest, now: LocalityTier | None, ever: LocalityTier | None
) -> None:
    found = fit(cluster(*idle), gang)

    assert (found.tier_now, found.tier_ever) == (now, ever)


def test_count_per_node_caps_what_a_node_gives_to_a_total() -> None:
    gang = GangRequest(per_job=(GpuCount(count=8),), per_node=(GpuCount(count=4),), nodes_max=2)

    assert fit(cluster(8, 0, 0, 0), gang).tier_now is None
    assert fit(cluster(8, 4, 0, 0), gang).tier_now is LEAF


def test_several_nodes_of_a_flat_cluster_are_as_far_apart_as_can_be() -> None:
    flat = cluster(8, 8, topology=make_topology(kind=TopologyKind.FLAT))

    assert fit(flat, EIGHT_ON_EACH).tier_now is CLUSTER
    assert fit(flat, make_gang(8)).tier_now is NODE


def test_several_types_may_come_from_several_nodes() -> None:
    nodes = [make_node("n1", 4, gpu_type="a100"), make_node("n2", 4, gpu_type="v100")]
    gang = make_gang(per_job=(GpuCount(gpu_type="a100", count=2), GpuCount(gpu_type="v100", count=2)))
    snapshot = make_snapshot(nodes=nodes, topology=make_topology({"leaf1": ["n1", "n2"]}))

    assert fit(snapshot, gang).tier_now is LEAF
    # With a bound on the nodes each must give some of everything: nothing is promised, nothing ruled out.
    assert fit(snapshot, replace(gang, nodes_max=2)) == Fit(tier_now=None, tier_ever=LEAF, doubts=(Doubt.MEMORY,))


def test_closed_nodes_hold_gangs_ever_but_not_now() -> None:
    snapshot = make_snapshot(nodes=[make_node("n1", state="DOWN"), make_node("n2", flags=("DRAIN",))])

    assert fit(snapshot, make_gang(8)) == Fit(tier_now=None, tier_ever=NODE, doubts=(Doubt.MEMORY,))


PER_TASK = make_gang(1, scope=GpuScope.TASK, tasks=4, cpus=4, memory_mib_per_node=1)


@pytest.mark.parametrize(
    ("gang", "now"),
    [
        pytest.param(replace(PER_TASK, nodes_min=2, nodes_max=2), CLUSTER, id="a task on each"),
        pytest.param(replace(PER_TASK, nodes_min=3, nodes_max=4), None, id="more nodes than have GPUs"),
        pytest.param(replace(PER_TASK, nodes_max=4, required_nodes=("n3",)), None, id="a named node without GPUs"),
        pytest.param(replace(PER_TASK, nodes_max=4, required_nodes=("n2",)), CLUSTER, id="a named node"),
        pytest.param(
            replace(PER_TASK, nodes_min=2, nodes_max=2, tasks=2, cpus=18), None, id="too few CPUs for one task"
        ),
    ],
)
def test_each_node_takes_a_task(gang: GangRequest, now: LocalityTier | None) -> None:
    nodes = [make_node("n1", 4, cpus=16), make_node("n2", 4, 3, cpus=16, cpus_used=8), make_node("n3", 4, 4, cpus=16)]
    found = fit(make_snapshot(nodes=nodes, topology=make_topology(kind=TopologyKind.FLAT)), gang)

    assert (found.tier_now, found.fits_ever) == (now, True)


@pytest.mark.parametrize(
    ("gang", "is_doubted"),
    [
        pytest.param(
            replace(make_gang(6, nodes_max=2), nodes_open=True), True, id="open, more nodes than the estimate"
        ),
        pytest.param(replace(make_gang(4, nodes_max=2), nodes_open=True), False, id="open, within the estimate"),
        pytest.param(replace(make_gang(9, nodes_max=2), nodes_open=True), False, id="open, fits nowhere"),
        pytest.param(make_gang(6), False, id="open without an estimate"),
        pytest.param(make_gang(6, nodes_max=3, tasks=2, cpus=2), True, id="fewer tasks"),
        pytest.param(make_gang(6, nodes_max=3, tasks=3, cpus=3), False, id="as many tasks"),
        pytest.param(
            replace(make_gang(4, nodes_max=2, tasks=2, cpus=2), tasks_per_node=2), True, id="tasks of one node"
        ),
        pytest.param(
            replace(make_gang(4, nodes_max=2, tasks=2, cpus=2), tasks_per_node=1), False, id="tasks of two nodes"
        ),
        pytest.param(make_gang(6, nodes_min=2, nodes_max=3, tasks=2, cpus=1), False, id="tasks made of the nodes"),
    ],
)
def test_more_nodes_than_slurm_may_give_are_in_doubt(gang: GangRequest, *, is_doubted: bool) -> None:
    found = fit(cluster(2, 2, 2, per_node=4), replace(gang, memory_mib_per_node=1))

    assert found.doubts == ((Doubt.NODE_COUNT,) if is_doubted else ())
    assert found.restricted is is_doubted


@pytest.mark.parametrize(
    ("nodes", "tasks", "now", "doubts"),
    [
        ((1, 2), 1, NODE, ()),
        ((1, 3), 1, None, ()),
        ((2, 3), 2, None, ()),
        ((1, 3), 3, NODE, (Doubt.NODE_LIMIT,)),
        ((3, 3), 3, None, ()),
    ],
)
def test_node_range_beyond_the_limit_of_a_partition_starts_nothing_there(
    nodes: tuple[int, int], tasks: int, now: LocalityTier | None, doubts: tuple[Doubt, ...]
) -> None:
    names = ("n1", "n2", "n3")
    partitions = [make_partition("narrow", nodes=names, max_nodes_per_job=2), make_partition("wide", nodes=names)]
    snapshot = make_snapshot(nodes=[make_node(name) for name in names], partitions=partitions)
    least, most = nodes
    gang = make_gang(3, nodes_min=least, nodes_max=most, tasks=tasks, cpus=tasks, memory_mib_per_node=1)

    found = fit(snapshot, gang, "narrow")

    assert (found.tier_now, found.doubts) == (now, doubts)
    both = fit(snapshot, gang, "narrow", "wide")
    assert (both.fits_now, both.doubts) == (True, ())


def test_node_limit_is_in_doubt_where_the_other_partitions_do_worse() -> None:
    nodes = [make_node("n1", used=8), make_node("n2")]
    partitions = [make_partition("narrow", nodes=("n2",), max_nodes_per_job=1), make_partition("busy", nodes=("n1",))]
    gang = make_gang(3, nodes_max=2, tasks=2, cpus=2, memory_mib_per_node=1)

    found = fit(make_snapshot(nodes=nodes, partitions=partitions), gang, "narrow", "busy")

    assert (found.tier_now, found.doubts) == (NODE, (Doubt.NODE_LIMIT,))


@pytest.mark.parametrize(
    ("idle", "gpus", "nodes_min", "version", "is_doubted"),
    [
        ((4, 1, 1), 3, 2, "22.05.8", True),
        ((4, 1, 1), 3, 2, "24.11.5", False),
        ((3, 3, 1), 4, 3, "22.05.8", True),
        ((2, 1, 1), 4, 3, "22.05.8", False),
        ((2, 2, 2), 4, 3, "22.05.8", False),
        ((4, 1, 1), 3, 1, "22.05.8", False),
    ],
)
def test_gpus_that_the_first_nodes_can_take_are_in_doubt(
    idle: tuple[int, ...], gpus: int, nodes_min: int, version: str, *, is_doubted: bool
) -> None:
    snapshot = replace(cluster(*idle, per_node=4), config=make_config(slurm_version=version))
    gang = make_gang(gpus, nodes_min=nodes_min, nodes_max=3, memory_mib_per_node=1)

    found = fit(snapshot, gang)

    assert found.fits_now
    assert (Doubt.UNEQUAL_NODES in found.doubts) is is_doubted
    by_task = replace(gang, per_job=(), per_task=(GpuCount(count=1),), tasks=gpus, cpus=gpus)
    assert (Doubt.UNEQUAL_NODES in fit(snapshot, by_task).doubts) is is_doubted


def test_partition_decides_which_nodes_count() -> None:
    partitions = [
        make_partition("big", nodes=("n1", "n2")),
        make_partition("small", nodes=("n1",)),
        make_partition("down", nodes=("n1", "n2"), is_up=False),
        make_partition("narrow", nodes=("n1", "n2"), max_nodes_per_job=1),
        make_partition("wide", nodes=("n1", "n2"), min_nodes_per_job=2),
    ]
    snapshot = make_snapshot(nodes=[make_node("n1"), make_node("n2")], partitions=partitions)
    gang = make_gang(16)

    tiers = {name: fit(snapshot, gang, name) for name in ("big", "small", "down", "narrow", "wide")}

    assert {name: (found.tier_now, found.tier_ever) for name, found in tiers.items()} == {
        "big": (SPINE, SPINE),
        "small": (None, None),
        "down": (None, SPINE),
        "narrow": (None, None),
        "wide": (SPINE, SPINE),
    }
    assert fit(snapshot, make_gang(8), "wide").tier_now is SPINE
    assert fit(snapshot, replace(gang, nodes_max=1), "wide").tier_ever is None
    assert fit(snapshot, replace(gang, nodes_min=2), "narrow").tier_ever is None
    assert fit(snapshot, gang, "small", "big").tier_now is SPINE


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        pytest.param({"excluded_nodes": ("n2", "gone")}, None, id="its only place excluded"),
        pytest.param({"required_nodes": ("n2",)}, NODE, id="its only place required"),
        pytest.param({"required_nodes": ("n1",)}, LEAF, id="required node filled up with others"),
        pytest.param({"required_nodes": ("n1",), "nodes_max": 1}, None, id="required node too small"),
        pytest.param({"required_nodes": ("n1", "n2"), "nodes_max": 2}, LEAF, id="both required"),
        pytest.param({"required_nodes": ("n1", "n2"), "nodes_max": 1}, NODE, id="longer list is a pool"),
        pytest.param({"required_nodes": ("n3",)}, None, id="required node without GPUs"),
        pytest.param({"required_nodes": ("gone",)}, None, id="required node unknown"),
    ],
)
def test_named_nodes_are_honoured(changes: dict[str, tuple[str, ...]], now: LocalityTier | None) -> None:
    snapshot = cluster(1, 4, 0, 0)

    assert fit(snapshot, replace(make_gang(4), **changes)).tier_now is now  # type: ignore[arg-type]  # one table of fields


def test_exclusive_gang_wants_nodes_on_which_nobody_runs() -> None:
    nodes = [make_node("n1", cpus_used=1), make_node("n2", used=1), make_node("n3", used=None), make_node("n4")]
    gang = make_gang(4, exclusive=True)

    assert fit(make_snapshot(nodes=nodes), gang).tier_now is NODE
    assert fit(make_snapshot(nodes=nodes[:3]), gang) == Fit(tier_now=None, tier_ever=NODE, doubts=(Doubt.MEMORY,))


def test_count_per_socket_is_promised_on_whole_nodes_only() -> None:
    gang = make_gang(2, scope=GpuScope.SOCKET)

    assert fit(cluster(7, 7), gang).tier_now is None
    assert fit(cluster(8, 7), gang).tier_now is NODE
    assert fit(cluster(1, per_node=1), gang).tier_ever is None


@pytest.mark.parametrize(
    ("gang", "partitions", "doubts"),
    [
        pytest.param(make_gang(memory_mib_per_node=1), ("gpu",), (), id="none"),
        pytest.param(make_gang(memory_mib_per_node=1, features="a|b"), ("gpu",), (Doubt.FEATURES,), id="features"),
        pytest.param(
            make_gang(0, memory_mib_per_node=1, shares=(ShareCount(kind="mps", count=5),)),
            ("gpu",),
            (Doubt.SHARES,),
            id="shares",
        ),
        pytest.param(make_gang(scope=GpuScope.SOCKET, memory_mib_per_node=1), ("gpu",), (Doubt.SOCKETS,), id="sockets"),
        pytest.param(make_gang(), ("gpu",), (Doubt.MEMORY,), id="memory"),
        pytest.param(
            make_gang(0, memory_mib_per_node=1, gpus_known=False), ("gpu",), (Doubt.GPUS_UNKNOWN,), id="GPUs unknown"
        ),
        pytest.param(make_gang(memory_mib_per_node=1), ("gpu", "?"), (Doubt.PARTITION_UNKNOWN,), id="partition"),
        pytest.param(make_gang(memory_mib_per_node=1), ("?",), (Doubt.PARTITION_UNKNOWN,), id="only that"),
    ],
)
def test_fit_says_what_it_could_not_check(
    gang: GangRequest, partitions: tuple[str, ...], doubts: tuple[Doubt, ...]
) -> None:
    found = fit(cluster(8), gang, *partitions)

    assert found.doubts == doubts


def test_unknown_gpu_request_is_never_promised_a_place() -> None:
    assert fit(cluster(8), make_gang(0, gpus_known=False)).tier_now is None


def test_memory_is_no_doubt_where_it_is_not_handed_out() -> None:
    snapshot = make_snapshot(nodes=[make_node("n1")], config=make_config(select_parameters=("CR_CORE",)))

    assert fit(snapshot, make_gang()).doubts == ()


def test_fit_on_a_cluster_without_nodes_or_gpus() -> None:
    assert fit(make_snapshot(nodes=[]), make_gang()).tier_ever is None
    assert fit(make_snapshot(nodes=[make_node("n1", 0)]), make_gang()).tier_ever is None
    assert fit(make_snapshot(nodes=[make_node("n1", 0)]), make_gang(0)).tier_now is NODE


def test_equal_requests_are_computed_once() -> None:
    snapshot = cluster(8, 8, 8, 8)
    fitter = Fitter(snapshot, node_table(snapshot))

    assert fitter.fit(make_gang(8), ("gpu",)) is fitter.fit(make_gang(8), ("gpu",))


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions a piece of work calls."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("gang", [make_gang(8), make_gang(24, nodes_max=9), TASKS, EIGHT_ON_EACH])
def test_fit_is_the_same_few_array_operations_however_many_nodes_there_are(gang: GangRequest) -> None:
    few, many = cluster(*[4] * 10), cluster(*[4] * 1000)
    fitters = [Fitter(snapshot, node_table(snapshot)) for snapshot in (few, many)]

    on_few, on_many = (calls_of(partial(fitter.fit, gang, ("gpu",))) for fitter in fitters)

    assert on_many <= on_few + 50


SHARDS = make_gang(0, shares=(ShareCount(kind="shard", count=3),))


@pytest.mark.parametrize(
    ("jobs", "words", "parts", "idle"),
    [
        pytest.param(1, (), 32, 7, id="three of four parts"),
        pytest.param(3, (), 32, 5, id="nine parts fill two GPUs and open a third"),
        pytest.param(3, ("LL_SHARED_GRES",), 32, 5, id="three jobs, spread"),
        pytest.param(4, (), 32, 5, id="twelve parts fill three"),
        pytest.param(4, ("CR_CPU", "ll_shared_gres"), 32, 4, id="four jobs, spread"),
        pytest.param(2, (), 0, 7, id="parts of a GPU unknown"),
        pytest.param(9, (), 4, 0, id="more than there are"),
    ],
)
def test_gpu_held_in_parts_is_not_idle(jobs: int, words: tuple[str, ...], parts: int, idle: int) -> None:
    node = make_node("n1", shares=(ShareCount(kind="shard", count=parts), ShareCount(kind="mps", count=800)))
    running = [make_job(number, gang=SHARDS, running_on=["n1", "gone"]) for number in range(1, jobs + 1)]

    table = node_table(
        make_snapshot([*running, make_job(99, gang=SHARDS)], [node], config=make_config(select_parameters=words))
    )

    assert table.gpus_idle.tolist() == [[idle]]


def test_table_takes_no_more_than_a_glance_at_each_job() -> None:
    snapshot = cluster(8, 8)
    crowded = replace(snapshot, jobs=(make_job(),) * 1000)

    assert calls_of(partial(node_table, crowded)) == calls_of(partial(node_table, snapshot))


@pytest.mark.parametrize(
    ("over_subscribe", "idle"),
    [("NO", 0), ("YES:4", 0), ("FORCE:1", 0), ("FORCE:2", 48), ("FORCE", 64), ("FORCE:4", 64)],
)
def test_cpus_are_idle_until_all_jobs_that_may_share_them_do(over_subscribe: str, idle: int) -> None:
    jobs = [make_job(each, gang=make_gang(2, cpus=cpus), running_on=["n1"]) for each, cpus in ((1, 64), (2, 16))]
    partition = replace(make_partition(nodes=("n1",)), over_subscribe=over_subscribe)

    table = node_table(make_snapshot(jobs, [make_node("n1", used=4, cpus_used=64)], partitions=[partition]))

    assert table.cpus_idle.tolist() == [idle]


@pytest.mark.parametrize(("per_node", "fits"), [(None, True), (4, True), (2, False), (1, False)])
def test_node_takes_no_more_tasks_than_the_job_puts_on_one(per_node: int | None, fits: bool) -> None:
    snapshot = make_snapshot(nodes=[make_node("n1")])
    gang = GangRequest(per_task=(GpuCount(count=1),), tasks=4, cpus=4, tasks_per_node=per_node, memory_mib_per_node=1)

    assert (fit(snapshot, gang).tier_ever is NODE) is fits
    assert (fit(snapshot, replace(gang, per_task=(), per_job=(GpuCount(count=4),))).tier_ever is NODE) is fits
