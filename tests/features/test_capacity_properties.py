"""What holds for every gang on every cluster, checked against a plain search through sets of nodes."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.node import GpuPool, Node
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import Fit, Fitter, node_table
from tests.builders import make_node, make_snapshot
from tests.examples import examples

pytestmark = pytest.mark.no_cover


def fit(snapshot: Snapshot, gang: GangRequest) -> Fit:
    """Where a gang fits on a snapshot."""
    return Fitter(snapshot, node_table(snapshot)).fit(gang, ("gpu",))


@st.composite
def small_clusters(draw: st.DrawFn) -> Snapshot:
    """Draw up to five nodes with two GPU types, some closed, on two leaves."""
    nodes = [
        replace(
            make_node(
                f"n{number}",
                cpus=8,
                cpus_used=draw(st.integers(0, 8)),
                memory_mib=100,
                memory_used_mib=draw(st.integers(0, 100)),
                flags=draw(st.sampled_from([(), (), ("DRAIN",)])),
            ),
            gpus=tuple(
                GpuPool(gpu_type=gpu_type, total=4, used=draw(st.integers(0, 4)))
                for gpu_type in draw(st.sampled_from([("a",), ("a",), ("b",), ("a", "b"), ()]))
            ),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return make_snapshot(nodes=nodes)


def counts() -> st.SearchStrategy[tuple[GpuCount, ...]]:
    """Draw GPUs of some types."""
    one = st.builds(GpuCount, gpu_type=st.sampled_from([None, "a", "b"]), count=st.integers(1, 6))
    return st.lists(one, max_size=2, unique_by=lambda gpu: gpu.gpu_type).map(tuple)


@st.composite
def small_gangs(draw: st.DrawFn) -> GangRequest:
    """Draw a request in one or several forms."""
    nodes_min = draw(st.integers(1, 2))
    names = st.lists(st.sampled_from(["n0", "n1", "n2"]), unique=True, max_size=2).map(tuple)
    return GangRequest(
        per_job=draw(counts()),
        per_node=draw(st.just(()) | counts()),
        per_task=draw(st.just(()) | counts()),
        nodes_min=nodes_min,
        nodes_max=draw(st.none() | st.integers(nodes_min, 3)),
        tasks=draw(st.integers(1, 4)),
        cpus=draw(st.integers(1, 12)),
        cpus_per_gpu=draw(st.none() | st.integers(1, 3)),
        memory_mib_per_node=draw(st.none() | st.integers(1, 100)),
        exclusive=draw(st.booleans()),
        required_nodes=draw(names),
        excluded_nodes=draw(names),
    )


def idle_of(node: Node, gpu_type: str | None, *, now: bool) -> int:
    """The GPUs of a type on a node, idle ones or all."""
    pools = [pool for pool in node.gpus if gpu_type in (None, pool.gpu_type)]
    return sum(pool.idle if now else pool.total for pool in pools)


def whole_of(asked: Sequence[GpuCount], gpu: GpuCount) -> int:
    """What a count binds together with those beside it: a count of any type is on top of the others."""
    return sum(other.count for other in asked) if gpu.gpu_type is None else gpu.count


def beside(gang: GangRequest, gpus: Sequence[GpuCount]) -> int:
    """The CPUs that must stand beside these GPUs."""
    return max(1, (gang.cpus_per_gpu or 0) * sum(gpu.count for gpu in gpus))


def enough(nodes: Sequence[Node], gang: GangRequest, *, now: bool) -> bool:
    """Whether exactly these nodes could be the gang's, written down as the rules read, without arrays."""
    cpus = [node.cpus - (node.cpus_used if now else 0) for node in nodes]
    for node, free in zip(nodes, cpus, strict=True):
        memory = node.memory_mib - (node.memory_used_mib if now else 0)
        if (now and not node.is_usable) or free < 1 or memory < (gang.memory_mib_per_node or 0):
            return False
        if free < beside(gang, gang.per_node):
            return False
        if any(idle_of(node, gpu.gpu_type, now=now) < whole_of(gang.per_node, gpu) for gpu in gang.per_node):
            return False
        if gang.per_job and not any(idle_of(node, gpu.gpu_type, now=now) for gpu in gang.per_job):
            return False
        if now and gang.exclusive and (node.cpus_used or any(pool.used for pool in node.gpus)):
            return False
    cap = sum(gpu.count for gpu in gang.per_node) or 10**6
    for gpu in gang.per_job:
        given = [
            min(cap, idle_of(node, gpu.gpu_type, now=now), free // gang.cpus_per_gpu if gang.cpus_per_gpu else cap)
            for node, free in zip(nodes, cpus, strict=True)
        ]
        if sum(given) < whole_of(gang.per_job, gpu):
            return False
    if not gang.per_task and gang.tasks < max(2, gang.nodes_min):
        return sum(cpus) >= gang.cpus
    per_task = max(beside(gang, gang.per_task), -(-gang.cpus // gang.tasks) if now else gang.cpus // gang.tasks)
    held = [
        min(
            [free // per_task]
            + [idle_of(node, gpu.gpu_type, now=now) // whole_of(gang.per_task, gpu) for gpu in gang.per_task]
        )
        for node, free in zip(nodes, cpus, strict=True)
    ]
    # Slurm gives each node a task.
    return sum(held) >= gang.tasks and (not now or min(held) >= 1)


def any_set_is_enough(snapshot: Snapshot, gang: GangRequest, *, now: bool) -> bool:
    """Whether some set of nodes is enough, found by trying them all."""
    nodes = [node for node in snapshot.nodes if node.name not in gang.excluded_nodes]
    most = len(nodes) if gang.nodes_max is None else gang.nodes_max
    as_pool = len(gang.required_nodes) > most and gang.nodes_max is not None
    for size in range(gang.nodes_min, most + 1):
        for chosen in itertools.combinations(nodes, size):
            names = {node.name for node in chosen}
            named = names.issubset(gang.required_nodes) if as_pool else names.issuperset(gang.required_nodes)
            if named and enough(chosen, gang, now=now):
                return True
    return False


@settings(max_examples=examples(200), deadline=None)
@given(small_clusters(), small_gangs())
def test_no_gang_is_promised_more_than_there_is(snapshot: Snapshot, gang: GangRequest) -> None:
    found = fit(snapshot, gang)

    if found.fits_now:
        assert any_set_is_enough(snapshot, gang, now=True)
    if not found.fits_ever:
        assert not any_set_is_enough(snapshot, gang, now=False)


@settings(max_examples=examples(200), deadline=None)
@given(small_clusters(), small_gangs())
def test_simple_gang_that_could_start_is_never_overlooked(snapshot: Snapshot, gang: GangRequest) -> None:
    one_need = replace(gang, per_job=(), tasks=max(2, gang.tasks)) if gang.nodes_max else replace(gang, per_task=())

    assert fit(snapshot, one_need).fits_now is any_set_is_enough(snapshot, one_need, now=True)


@settings(deadline=None)
@given(small_clusters(), small_gangs(), st.randoms())
def test_order_of_nodes_does_not_matter(snapshot: Snapshot, gang: GangRequest, random: Random) -> None:
    nodes = list(snapshot.nodes)
    random.shuffle(nodes)

    assert fit(replace(snapshot, nodes=tuple(nodes)), gang) == fit(snapshot, gang)


@settings(max_examples=examples(200), deadline=None)
@given(small_clusters(), small_gangs(), st.integers(0, 4), st.integers(0, 4), st.integers(0, 100))
def test_more_idle_resources_never_move_a_gang_away(
    snapshot: Snapshot, gang: GangRequest, gpus: int, cpus: int, memory_mib: int
) -> None:
    freed = [
        replace(
            node,
            gpus=tuple(replace(pool, used=max(0, (pool.used or 0) - gpus)) for pool in node.gpus),
            cpus_used=max(0, node.cpus_used - cpus),
            memory_used_mib=max(0, node.memory_used_mib - memory_mib),
        )
        if number % 2
        else node
        for number, node in enumerate(snapshot.nodes)
    ]

    before, after = fit(snapshot, gang), fit(replace(snapshot, nodes=tuple(freed)), gang)

    assert before.tier_ever == after.tier_ever
    if before.tier_now is not None:
        assert after.tier_now is not None
        assert after.tier_now <= before.tier_now
        assert before.tier_ever is not None
        assert before.tier_ever <= before.tier_now


@settings(max_examples=examples(200), deadline=None)
@given(small_clusters(), small_gangs())
def test_fewest_nodes_are_the_first_of_the_range_that_are_enough(snapshot: Snapshot, gang: GangRequest) -> None:
    fitter = Fitter(snapshot, node_table(snapshot))
    # Nodes that are required would be chosen among below their number, and all be wanted from there on.
    gang = replace(gang, nodes_max=gang.nodes_max or 3, required_nodes=())
    counts = range(gang.nodes_min, (gang.nodes_max or 3) + 1)

    fewest = fitter.fewest_nodes(gang, ("gpu",))

    fits = [count for count in counts if fit(snapshot, replace(gang, nodes_max=count)).tier_in_service is not None]
    assert fewest == (fits[0] if fits else None)


@settings(max_examples=examples(200), deadline=None)
@given(small_clusters(), small_gangs())
def test_one_fitter_answers_like_a_fresh_one_for_each_question(snapshot: Snapshot, gang: GangRequest) -> None:
    fitter = Fitter(snapshot, node_table(snapshot))
    asked = [
        gang,
        *(replace(gang, nodes_max=count) for count in (None, *range(gang.nodes_min, 4))),
        replace(gang, excluded_nodes=()),
        replace(gang, required_nodes=()),
        replace(gang, exclusive=not gang.exclusive),
        replace(gang, tasks=gang.tasks + 1),
        replace(gang, nodes_min=1, tasks=2),
        replace(gang, cpus=gang.cpus + 1),
        replace(gang, cpus_per_gpu=4),
        replace(gang, memory_mib_per_node=100),
    ]

    found = [fitter.fit(each, ("gpu",)) for each in asked]

    # The tier in service does not count in a comparison of fits.
    alone = [fit(snapshot, each) for each in asked]
    assert found == alone
    assert [each.tier_in_service for each in found] == [each.tier_in_service for each in alone]
    assert [each.tier_now for each in found] == [fitter.tier_now(each, ("gpu",)) for each in asked]


@settings(max_examples=examples(200), deadline=None)
@given(small_clusters(), st.data(), st.lists(small_gangs(), min_size=1, max_size=3))
def test_fitter_of_other_idle_resources_answers_like_a_fresh_one(
    snapshot: Snapshot, data: st.DataObject, gangs: list[GangRequest]
) -> None:
    table = node_table(snapshot)
    left = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(table.names), max_size=len(table.names))))
    gpus, cpus, memory_mib = (
        (idle * left.reshape(-1, *[1] * (idle.ndim - 1)) // 3).astype(idle.dtype)
        for idle in (table.gpus_idle, table.cpus_idle, table.memory_idle_mib)
    )
    fitter = Fitter(snapshot, table)
    for gang in gangs:
        fitter.fit(gang, ("gpu",))

    found = fitter.with_idle(gpus, cpus, memory_mib)

    fresh = Fitter(snapshot, replace(table, gpus_idle=gpus, cpus_idle=cpus, memory_idle_mib=memory_mib))
    for gang in gangs:
        assert found.fit(gang, ("gpu",)) == fresh.fit(gang, ("gpu",))
        assert found.fit(gang, ("gpu",)).tier_in_service == fresh.fit(gang, ("gpu",)).tier_in_service
        assert found.nodes_now(gang, ("gpu",)).tolist() == fresh.nodes_now(gang, ("gpu",)).tolist()
        assert fitter.tier_now(gang, ("gpu",)) == Fitter(snapshot, table).tier_now(gang, ("gpu",))


@given(small_clusters(), small_gangs(), st.integers(0, 4))
def test_every_node_that_is_promised_holds_a_task(snapshot: Snapshot, gang: GangRequest, per_task: int) -> None:
    table = node_table(snapshot)
    tasks = replace(gang, per_job=(), per_node=(), per_task=(GpuCount(count=per_task),), nodes_min=1)
    rows = Fitter(snapshot, table).nodes_now(tasks, ("gpu",))

    assert (table.gpus_idle[rows].sum(axis=1) >= per_task).all()
    assert (table.cpus_idle[rows] >= 1).all()
