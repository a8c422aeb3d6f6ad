"""Values that check themselves, and what they answer."""

from collections.abc import Callable

import pytest

from advisor.domain.gang import GangRequest, GpuCount, GpuScope
from advisor.domain.job import GpuRange, Job, JobState
from advisor.domain.node import GpuPool
from advisor.domain.site import SiteConfig
from advisor.domain.topology import LocalityTier
from tests.builders import (
    TAKEN_AT,
    gpu_counts,
    make_config,
    make_gang,
    make_job,
    make_node,
    make_snapshot,
    make_topology,
)


def test_negative_counts_and_empty_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        GpuCount(count=-1)
    with pytest.raises(ValueError, match="range"):
        GpuRange(low=4, high=2)
    with pytest.raises(ValueError, match="positive"):
        Job(job_id=0, state=JobState.PENDING, gang=GangRequest(), submit_time=0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GpuCount(count=2**40),
        lambda: make_gang(1, nodes_min=0),
        lambda: make_gang(1, nodes_max=0),
        lambda: make_gang(1, memory_mib_per_node=2**80),
        lambda: make_job(2**60),
        lambda: make_job(1, priority=2**80),
        lambda: make_job(1, submit_time=-1e308),
        lambda: make_job(1, eligible_time=float("nan"), time_limit_s=1.0),
        lambda: make_job(1, time_limit_s=-1.0),
        lambda: make_job(1, time_min_s=1e12),
        lambda: make_gang(1, cpus_per_gpu=2**40),
        lambda: GpuRange(low=1, high=2**40),
        lambda: make_node(cpus=2**40),
        lambda: make_node(memory_mib=2**80),
        lambda: make_node(gpus=2**40),
        lambda: make_snapshot(taken_at=1e300),
    ],
)
def test_numbers_that_no_cluster_has_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        make()


@pytest.mark.parametrize(
    ("gang", "total"),
    [
        (make_gang(12), 12),
        (make_gang(4, scope=GpuScope.NODE, nodes_min=3), 12),
        (make_gang(1, scope=GpuScope.TASK, tasks=6), 6),
        (make_gang(2, scope=GpuScope.SOCKET), None),
        (make_gang(0), 0),
        (make_gang(0, gpus_known=False), None),
        (make_gang(per_job=gpu_counts(8), per_node=gpu_counts(4)), 8),
    ],
)
def test_total_follows_from_the_form_of_the_request(gang: GangRequest, total: int | None) -> None:
    assert gang.gpu_count == total


@pytest.mark.parametrize("scope", GpuScope)
def test_counts_change_in_one_form_only(scope: GpuScope) -> None:
    changed = make_gang(4, scope=scope).with_counts(scope, gpu_counts(2, "a100"))

    assert changed.counts(scope) == gpu_counts(2, "a100")
    assert changed.all_counts == gpu_counts(2, "a100")
    assert changed.gpu_type == "a100"


def test_several_types_are_no_one_type() -> None:
    assert make_gang(per_job=gpu_counts(2, "a100") + gpu_counts(2, "v100")).gpu_type is None


def test_queueing_delay_counts_from_eligibility_and_is_never_negative() -> None:
    assert make_job(1, submitted_ago_s=60, eligible_time=None).queueing_delay_s(TAKEN_AT) == 60
    assert make_job(1, eligible_time=TAKEN_AT + 60).queueing_delay_s(TAKEN_AT) == 0


def test_gpus_of_unknown_use_are_not_idle() -> None:
    assert GpuPool(total=8, used=None).idle == 0
    assert GpuPool(total=8, used=3).idle == 5


@pytest.mark.parametrize(
    ("state", "flags", "usable"),
    [("IDLE", (), True), ("MIXED", ("PLANNED",), True), ("DOWN", (), False), ("IDLE", ("DRAIN",), False)],
)
def test_node_in_service_is_usable(state: str, flags: tuple[str, ...], usable: bool) -> None:
    assert make_node(state=state, flags=flags).is_usable is usable


@pytest.mark.parametrize(
    ("nodes", "tier"),
    [
        (["n01"], LocalityTier.NODE),
        (["n01", "n02"], LocalityTier.LEAF),
        (["n02", "n03"], LocalityTier.SPINE),
        (["n02", "n99"], LocalityTier.CLUSTER),
    ],
)
def test_tier_is_the_smallest_that_holds_all_nodes(nodes: list[str], tier: LocalityTier) -> None:
    assert make_topology().tier_of(nodes) is tier


def test_switch_wait_read_from_the_configuration() -> None:
    assert SiteConfig().max_switch_wait_s == 300.0
    assert make_config(scheduler_parameters={"max_switch_wait": "60"}).max_switch_wait_s == 60.0


@pytest.mark.parametrize(
    ("version", "parameters", "taken", "lasting"),
    [
        ("22.05.8", {"time_min_as_soft_limit": ""}, False, False),
        ("23.11.4", {"time_min_as_soft_limit": ""}, True, False),
        ("24.11.5", {}, False, False),
        ("25.05", {"time_min_as_soft_limit": ""}, True, False),
        ("25.05.3", {"time_min_as_soft_limit": ""}, True, False),
        ("25.05.4-1", {"time_min_as_soft_limit": ""}, True, True),
        ("25.05.10", {"time_min_as_soft_limit": ""}, True, True),
        ("26.05.5", {"time_min_as_soft_limit": ""}, True, True),
        ("", {"time_min_as_soft_limit": ""}, False, False),
    ],
)
def test_soft_limits_are_known_by_release_and_parameter(
    version: str, parameters: dict[str, str], taken: bool, lasting: bool
) -> None:
    config = SiteConfig(slurm_version=version, scheduler_parameters=parameters)

    assert config.takes_soft_limits is taken
    assert config.traits.soft_limits_outlast_start is lasting


@pytest.mark.parametrize(
    ("words", "hides"), [((), False), (("accounts", "usage"), False), (("jobs", "usage"), True), (("all",), True)]
)
def test_users_who_do_not_see_the_jobs_of_others_are_known_by_private_data(words: tuple[str, ...], hides: bool) -> None:
    assert make_config(private_data=words).hides_jobs is hides
    assert SiteConfig(private_data=words).hides_jobs


def test_backfill_counts_in_minutes_unless_told_otherwise() -> None:
    assert SiteConfig().backfill_resolution_s == 60.0
    assert SiteConfig(scheduler_parameters={"bf_resolution": "600"}).backfill_resolution_s == 600.0
    assert SiteConfig(scheduler_parameters={"bf_resolution": "soon"}).backfill_resolution_s == 60.0


def test_snapshot_finds_jobs_and_partitions_by_name() -> None:
    snapshot = make_snapshot([make_job(7)])

    assert snapshot.jobs_by_id[7].job_id == 7
    assert snapshot.partitions_by_name["gpu"].name == "gpu"
