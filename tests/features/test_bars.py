"""Bars beside GPUs: what is read counts where gangs fit, and what is not read keeps plans away."""

from dataclasses import replace

import pytest

from advisor.domain.gang import GangRequest, GpuCount, GresCount
from advisor.domain.job import Allocation, Job, JobState
from advisor.domain.node import GresPool, Node
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.features.bars import barred
from advisor.features.capacity import Doubt, Fit, Fitter, node_table
from advisor.features.nodes import gpus_of
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import permitted
from advisor.settings import Limits
from tests.builders import TAKEN_AT, make_config, make_job, make_node, make_partition, make_snapshot

ONE = GangRequest(per_node=(GpuCount(count=1),), nodes_max=1)
PAIR = replace(ONE, nodes_min=2, nodes_max=2)


def fit(snapshot: Snapshot, gang: GangRequest, *partitions: str) -> Fit:
    """Where a gang fits on a snapshot."""
    return Fitter(snapshot, node_table(snapshot)).fit(gang, partitions or ("gpu",))


def running(user: str, node: str, gang: GangRequest) -> Job:
    return replace(
        make_job(job_id=90, gang=gang),
        user=user,
        state=JobState.RUNNING,
        allocation=Allocation(nodes=(node,), gpus=(GpuCount(gpu_type="a100", count=1),)),
    )


def with_other(name: str, total: int, used: int = 0) -> Node:
    return replace(make_node(name), gres=(GresPool(name="VramPerGpu", total=total, used=used),))


def test_another_resource_bars_the_nodes_without_enough_of_it() -> None:
    snapshot = make_snapshot(nodes=[with_other("n1", 24), with_other("n2", 80, used=60)])
    asks = replace(ONE, gres=(GresCount(name="VramPerGpu", count=40),))
    asks_less = replace(ONE, gres=(GresCount(name="VramPerGpu", count=20),))
    asks_too_much = replace(ONE, gres=(GresCount(name="VramPerGpu", count=90),))

    assert (fit(snapshot, asks).fits_now, fit(snapshot, asks).fits_ever) == (False, True)
    assert Doubt.BARRED_NODES in fit(snapshot, asks).doubts
    assert fit(snapshot, asks_less).fits_now
    assert Doubt.BARRED_NODES not in fit(snapshot, asks_less).doubts
    assert not fit(snapshot, asks_too_much).fits_ever


def test_local_disk_bars_nodes_without_it_and_an_unknown_disk_is_never_promised() -> None:
    known = make_snapshot(
        nodes=[replace(make_node("n1"), tmp_disk_mib=100), replace(make_node("n2"), tmp_disk_mib=900)]
    )
    unknown = make_snapshot(nodes=[make_node("n1")])
    asks = replace(ONE, tmp_disk_mib=500)

    assert (fit(known, asks).fits_now, fit(known, asks).restricted) == (True, True)
    assert not fit(known, replace(asks, nodes_min=2, nodes_max=2)).fits_ever
    assert (fit(unknown, asks).fits_now, fit(unknown, asks).fits_ever) == (False, True)


def test_least_cpus_of_a_node_bar_those_with_fewer() -> None:
    snapshot = make_snapshot(nodes=[make_node("n1", cpus=16, cpus_used=10)])

    assert fit(snapshot, replace(ONE, cpus_per_node=6)).fits_now
    assert not fit(snapshot, replace(ONE, cpus_per_node=7)).fits_now
    assert not fit(snapshot, replace(ONE, cpus_per_node=17)).fits_ever


def test_a_partition_bounds_the_cpus_of_its_jobs_on_a_node() -> None:
    node = make_node("n1", cpus=32, cpus_used=12)
    bounded = replace(make_partition("gpu", ["n1"]), max_cpus_per_node=16)
    job = running("ada", "n1", replace(ONE, cpus=12))
    snapshot = replace(make_snapshot(nodes=[node]), partitions=(bounded,), jobs=(job,))
    elsewhere = replace(snapshot, jobs=(replace(job, partitions=("other",)),))

    assert fit(snapshot, replace(ONE, cpus=4)).fits_now
    assert not fit(snapshot, replace(ONE, cpus=12)).fits_now
    assert fit(elsewhere, replace(ONE, cpus=12)).fits_now
    assert not fit(snapshot, replace(ONE, cpus=17)).fits_ever


@pytest.mark.parametrize(("version", "fits"), [("22.05.8", True), ("24.11.5", False)])
def test_least_cpus_of_a_node_above_the_bound_of_a_partition(version: str, *, fits: bool) -> None:
    snapshot = make_snapshot(
        nodes=[make_node("n1", cpus=32)],
        partitions=[replace(make_partition("gpu", ["n1"]), max_cpus_per_node=16)],
        config=make_config(slurm_version=version),
    )

    found = fit(snapshot, replace(ONE, cpus_per_node=20))

    assert (found.fits_now, found.fits_ever) == (fits, fits)


def test_a_partition_of_whole_nodes_gives_none_that_another_job_uses() -> None:
    nodes = [make_node("n1", 4, 1)]
    partitions = [make_partition("gpu", ["n1"]), replace(make_partition("whole", ["n1"]), over_subscribe="EXCLUSIVE")]
    snapshot = make_snapshot(nodes=nodes, partitions=partitions)

    assert fit(snapshot, ONE, "whole").tier_now is None
    assert fit(snapshot, ONE, "whole").fits_ever
    assert fit(snapshot, ONE, "whole", "gpu").fits_now


def test_exclusive_users_share_no_node_with_others() -> None:
    alone = replace(ONE, only_beside="bob")
    with_alice = replace(
        make_snapshot(nodes=[make_node("n1")]), jobs=(running("alice", "n1", ONE), make_job(gang=alone))
    )
    with_bob = replace(with_alice, jobs=(running("bob", "n1", ONE), make_job(gang=alone)))
    owned = replace(with_alice, jobs=(running("alice", "n1", replace(ONE, only_beside="alice")),))

    assert (fit(with_alice, alone).fits_now, fit(with_alice, alone).fits_ever) == (False, True)
    assert fit(with_bob, alone).fits_now
    assert not fit(owned, ONE).fits_now


def test_switches_that_nothing_joins_hold_no_gang_together() -> None:
    leaves = (
        Switch(name="s0", level=0, nodes=("n1", "n2")),
        Switch(name="s1", level=0, nodes=("n3",)),
    )
    nodes = [make_node("n1", used=8), make_node("n2"), make_node("n3"), make_node("n4")]
    apart = replace(make_snapshot(nodes=nodes), topology=Topology(kind=TopologyKind.TREE, switches=leaves))
    top = Switch(name="top", level=1, nodes=("n1", "n2", "n3"))
    joined = replace(apart, topology=Topology(kind=TopologyKind.TREE, switches=(*leaves, top)))
    flat = replace(apart, topology=Topology(kind=TopologyKind.FLAT))

    assert (fit(apart, PAIR).fits_now, fit(apart, PAIR).fits_ever) == (False, True)
    assert fit(joined, PAIR).fits_now
    assert not fit(joined, replace(PAIR, nodes_min=4, nodes_max=4)).fits_ever
    assert fit(flat, replace(PAIR, nodes_min=3, nodes_max=3)).fits_now


@pytest.mark.parametrize(
    ("options", "threads", "is_doubted"),
    [
        (("--contiguous",), 1, True),
        (("--threads-per-core",), 1, False),
        (("--threads-per-core",), 2, True),
        (("--threads-per-core", "--core-spec"), 1, True),
        ((), 2, False),
    ],
)
def test_options_that_are_not_counted_are_doubted(options: tuple[str, ...], threads: int, is_doubted: bool) -> None:
    snapshot = make_snapshot(nodes=[replace(make_node("n1"), threads_per_core=threads)])

    assert (Doubt.OPTIONS in fit(snapshot, replace(ONE, uncounted=options)).doubts) is is_doubted


def waiting(job_id: int, reason: str, start_time: float | None, gang: GangRequest = ONE, priority: int = 10) -> Job:
    return replace(
        make_job(job_id=job_id, gang=gang), reason=reason, start_time=start_time, priority=priority, partitions=("gpu",)
    )


BIG = replace(PAIR, nodes_min=9, nodes_max=9)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param([waiting(1, "Resources", TAKEN_AT + 3600)], {1}, id="tried, and planned for later"),
        pytest.param([waiting(1, "Resources", None)], set(), id="no plan of Slurm"),
        pytest.param([waiting(1, "Resources", TAKEN_AT - 5)], set(), id="about to start"),
        pytest.param([waiting(1, "Priority", TAKEN_AT + 3600)], {1}, id="no job waits before it"),
        pytest.param(
            [waiting(1, "Priority", TAKEN_AT + 3600), waiting(2, "Resources", TAKEN_AT + 60, BIG, priority=20)],
            set(),
            id="another waits before it",
        ),
        pytest.param([waiting(1, "QOSMaxJobsPerUserLimit", TAKEN_AT + 3600)], set(), id="Slurm names the bar"),
        pytest.param([waiting(1, "Resources", TAKEN_AT + 3600, BIG)], set(), id="does not fit now"),
    ],
)
def test_a_job_that_slurm_plans_for_later_without_a_cause_is_barred(jobs: list[Job], expected: set[int]) -> None:
    snapshot = replace(make_snapshot(nodes=[make_node("n1"), make_node("n2")]), jobs=tuple(jobs))

    assert barred(snapshot) == expected


def test_a_job_that_needs_what_some_nodes_lack_is_barred() -> None:
    asks = replace(ONE, gres=(GresCount(name="VramPerGpu", count=40),))
    some = make_snapshot(nodes=[with_other("n1", 24), with_other("n2", 80)])
    every = make_snapshot(nodes=[with_other("n1", 48), with_other("n2", 80)])
    job = waiting(1, "Resources", None, asks)

    assert barred(replace(some, jobs=(job,))) == {1}
    assert barred(replace(every, jobs=(job,))) == set()


def test_gpus_are_counted_as_before() -> None:
    table = node_table(make_snapshot(nodes=[with_other("n1", 24)]))

    assert gpus_of(table.gpu_types, table.gpus_total, None).tolist() == [8]


def test_features_that_every_node_must_have_bar_the_others() -> None:
    snapshot = make_snapshot(nodes=[make_node("n1", features=("a100",)), make_node("n2", features=("a100", "nvlink"))])

    assert fit(snapshot, replace(PAIR, features="a100")).fits_now
    assert fit(snapshot, replace(ONE, features="a100&nvlink")).fits_now
    assert not fit(snapshot, replace(PAIR, features="nvlink")).fits_ever
    assert not fit(snapshot, replace(ONE, features="h100")).fits_ever
    assert Doubt.FEATURES in fit(snapshot, replace(ONE, features="a100|h100")).doubts


def test_a_barred_job_is_left_alone_by_name() -> None:
    snapshot = replace(make_snapshot(nodes=[make_node("n1")]), jobs=(waiting(1, "Resources", TAKEN_AT + 3600),))

    assert permitted(snapshot, circumstances(snapshot, Limits(min_job_age_s=0.0))).left_alone == {1: "no_bar"}
