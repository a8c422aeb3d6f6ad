"""What a site offers, and what each lack costs."""

from dataclasses import replace

import pytest

from advisor.backends.scontrol_text import billings
from advisor.diagnose.site_checks import Check, Status, billing_checks, site_checks
from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.job import Job, Sensitivity
from advisor.domain.site import Billing, SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.settings import Limits
from tests.backends.recorded import LIVE_RELEASES, RECORDED
from tests.builders import HOUR_S, make_config, make_gang, make_hints, make_job, make_node, make_snapshot, make_topology

LIMITS = Limits()


def checked(snapshot: Snapshot, limits: Limits = LIMITS) -> dict[str, Check]:
    """Check a site."""
    return {check.name: check for check in site_checks(snapshot, limits)}


FULL = make_snapshot(
    [make_job(1, priority=500)],
    config=make_config(
        slurm_version="26.05.5", scheduler_parameters={"max_switch_wait": "86400", "time_min_as_soft_limit": ""}
    ),
)


def test_full_site_lacks_nothing() -> None:
    lacking = {name for name, check in checked(FULL).items() if check.status is not Status.OK or check.cost}

    assert lacking == set()


def test_idle_gpus_that_backfill_keeps_are_counted() -> None:
    nodes = (
        make_node(flags=("PLANNED",), used=5),
        make_node(name="n02", state="PLANNED", used=8),
        make_node(name="n03"),
    )
    site = replace(FULL, nodes=nodes)
    young = replace(site, config=make_config(scheduler_parameters={"bf_min_age_reserve": "259200"}))

    kept, known = checked(site)["reservations"], checked(young)["reservations"]

    assert kept.text == "3 GPUs idle now on 2 nodes that backfill keeps for pending jobs"
    assert "bf_min_age_reserve" in kept.cost and known.cost == ""
    assert "reservations" not in checked(replace(FULL, nodes=(make_node(flags=("PLANNED",), used=8),)))


@pytest.mark.parametrize(("release", "remedy"), [("22.05.8", "MaxCPUsPerNode"), ("26.05.5", "RestrictedCoresPerGPU")])
def test_idle_gpus_without_cpus_have_a_remedy_of_the_release(release: str, remedy: str) -> None:
    jobs = [make_job(1, gpus=8)]
    nodes = [make_node(used=5, cpus_used=64), make_node(name="n02", used=8, cpus_used=64)]
    site = make_snapshot(jobs, nodes, config=make_config(slurm_version=release))
    free = make_snapshot(jobs, [make_node(used=5, cpus_used=5)], config=make_config(slurm_version=release))

    check = checked(site)["CPUs beside GPUs"]

    assert check.text.startswith("3 GPUs idle") and remedy in check.cost
    assert "CPUs beside GPUs" not in checked(free)


@pytest.mark.parametrize(
    ("name", "status", "site"),
    [
        ("configuration", Status.UNKNOWN, replace(FULL, config=SiteConfig())),
        ("small jobs", Status.LACKS, replace(FULL, config=make_config(select_parameters=("CR_CORE", "CR_LLN")))),
        ("lever nice", Status.LACKS, replace(FULL, config=make_config(priority_type="priority/basic"))),
        ("max_switch_wait", Status.LACKS, replace(FULL, config=make_config(scheduler_parameters={}))),
        ("topology", Status.LACKS, replace(FULL, topology=make_topology(kind=TopologyKind.FLAT))),
        ("topology", Status.LACKS, replace(FULL, topology=make_topology(kind=TopologyKind.BLOCK))),
        ("topology", Status.LACKS, replace(FULL, topology=make_topology(kind=TopologyKind.OTHER))),
        ("time_min_as_soft_limit", Status.LACKS, replace(FULL, config=make_config())),
        ("lever time_min", Status.LACKS, replace(FULL, config=make_config())),
        ("time_min_as_soft_limit", Status.OK, replace(FULL, config=replace(FULL.config, slurm_version="24.11.5"))),
        ("priorities", Status.LACKS, replace(FULL, jobs=(make_job(1, priority=1), make_job(2, priority=1)))),
        ("priorities", Status.UNKNOWN, replace(FULL, jobs=())),
        ("AccountingStorageTRES", Status.LACKS, replace(FULL, config=make_config(accounting_tres=("cpu",)))),
        ("GPUs in use", Status.UNKNOWN, replace(FULL, nodes=(make_node(used=None),))),
        ("PrivateData", Status.LACKS, replace(FULL, config=make_config(private_data=("jobs", "users")))),
        ("not read", Status.UNKNOWN, replace(FULL, unread=("the topology",))),
    ],
)
def test_lack_is_named_with_its_cost(name: str, status: Status, site: Snapshot) -> None:
    check = checked(site)[name]

    assert check.status is status
    assert check.cost or name == "priorities"


def test_longest_timer_says_what_to_set() -> None:
    site = replace(FULL, config=make_config(scheduler_parameters={"max_switch_wait": "3600"}))

    enough, short = (checked(site, Limits(max_added_delay_s=hours * HOUR_S)) for hours in (1, 6))

    assert enough["max_switch_wait"].status is Status.OK
    assert short["max_switch_wait"].cost == "timers are cut to it; set SchedulerParameters=max_switch_wait=21600"


def test_where_gangs_cannot_wait_for_switches_nobody_is_told_to_let_them() -> None:
    flat = checked(replace(FULL, topology=make_topology(kind=TopologyKind.FLAT)))
    block = checked(replace(FULL, topology=make_topology(kind=TopologyKind.BLOCK)))

    assert "max_switch_wait" not in flat and "max_switch_wait" not in block
    assert "few nodes only" in flat["topology"].cost
    assert "--segment" in block["topology"].cost and "reservation" in block["topology"].cost


def test_where_fairness_keeps_jobs_of_others_from_being_passed_that_has_a_cost() -> None:
    (nice,) = (check for check in site_checks(FULL, Limits(fairness="account")) if check.name == "lever nice")

    assert (nice.status, nice.text) == (Status.OK, "usable")
    assert "within each account alone" in nice.cost and "sadvise tune" in nice.cost


@pytest.mark.parametrize(
    ("gang", "is_open"),
    [
        (make_job(gang=make_gang(8, nodes_max=None)), True),
        (make_job(gang=make_gang(8, nodes_max=1, nodes_open=True)), True),
        (make_job(gang=make_gang(8, nodes_max=4)), False),
        (make_job(gang=make_gang(8, nodes_max=None), hints=make_hints(sensitivity=Sensitivity.LOW)), False),
        (make_job(gang=make_gang(1, nodes_max=None)), False),
        (make_job(gang=GangRequest(per_node=(GpuCount(count=4),))), False),
    ],
)
def test_gangs_that_slurm_can_spread_are_counted_with_what_holds_them(gang: Job, is_open: bool) -> None:
    found = checked(replace(FULL, jobs=(gang, make_job(2, gpus=1))))

    assert ("open gangs" in found) == is_open
    if is_open:
        check = found["open gangs"]
        assert (check.status, check.text) == (Status.LACKS, "the node count of 1 pending gang is open")
        assert "pin_gangs" in check.cost


def test_queue_without_gangs_and_ranges_is_named_as_no_lack() -> None:
    empty = checked(replace(FULL, jobs=(make_job(1, gpus=1),)))
    gang = make_job(1, gpus=8, hints=make_hints(gpus=(2, 8), sensitivity=Sensitivity.HIGH))
    full = checked(replace(FULL, jobs=(gang,)))

    assert empty["gangs"].text.startswith("no pending job can be spread over nodes")
    assert empty["sizes"].text.startswith("no pending job declares a range")
    assert full["gangs"].text == "1 pending gang can be spread over nodes; 1 declare sensitivity=high"
    assert full["sizes"].text == "1 pending job with a declared range"


SITE = make_snapshot(
    nodes=[make_node(cpus=64)],
    config=make_config(priority_weights={"fair_share": 1000}, accounting_tres=("cpu", "gres/gpu")),
)


def check_of(text: str, site: Snapshot = SITE) -> Check:
    """Return the only check of a site whose partition scontrol shows with some text."""
    (check,) = billing_checks(site, billings(f"PartitionName=gpu State=UP {text} TRES=cpu=64,node=1,billing=64"))
    return check


def with_config(**fields: object) -> Snapshot:
    return replace(SITE, config=replace(SITE.config, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "finding", "line"),
    [
        ("", "billed for their CPUs alone", 'PartitionName=gpu TRESBillingWeights="CPU=1.0,GRES/gpu=8.0"'),
        (
            "TRESBillingWeights=CPU=2.0,Mem=0.25G",
            "TRESBillingWeights=CPU=2.0,Mem=0.25G",
            'PartitionName=gpu TRESBillingWeights="CPU=2.0,Mem=0.25G,GRES/gpu=8.0"',
        ),
        (
            "TRESBillingWeights=GRES/gpu:a100=4",
            "does not count gres/gpu:a100",
            'PartitionName=gpu TRESBillingWeights="GRES/gpu:a100=4,GRES/gpu=8.0"',
        ),
    ],
)
def test_partition_that_does_not_bill_gpus_lacks_a_line(text: str, finding: str, line: str) -> None:
    check = check_of(text)

    assert (check.name, check.status) == ("fair share gpu", Status.LACKS)
    assert finding in check.text
    assert check.cost.endswith(f"set in slurm.conf: {line}")


def test_gpus_that_accounting_does_not_count_are_not_billed() -> None:
    site = with_config(accounting_tres=("cpu",))

    assert check_of("TRESBillingWeights=GRES/gpu=2", site).cost.endswith("slurm.conf: AccountingStorageTRES=gres/gpu")
    assert "AccountingStorageTRES=gres/gpu and PartitionName=gpu " in check_of("", site).cost


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (SITE, "the sum of what a job holds counts"),
        (with_config(priority_flags=("MAX_TRES",)), "the largest share of what a job holds counts"),
        (with_config(priority_weights={"age": 1000}), "PriorityWeightFairshare is 0"),
        (with_config(priority_weights={}), "does not order jobs"),
    ],
)
def test_site_that_bills_gpus_or_has_no_fair_share_lacks_nothing(site: Snapshot, words: str) -> None:
    check = check_of("TRESBillingWeights=CPU=1.0,GRES/gpu=0.5", site)

    assert (check.name, check.status, check.cost) == ("fair share", Status.OK, "")
    assert words in check.text


def test_partition_without_gpus_need_not_bill_them() -> None:
    (check,) = billing_checks(replace(SITE, nodes=(make_node(gpus=0),)), billings("PartitionName=gpu State=UP"))

    assert check.status is Status.OK


@pytest.mark.parametrize("release", LIVE_RELEASES)
def test_releases_show_no_weights_where_none_are_set(release: str) -> None:
    read = billings((RECORDED / release / "partition.txt").read_text())

    assert read == (Billing(partition="gpu"), Billing(partition="debug"))


def test_weight_of_0_bills_nothing() -> None:
    read = billings("PartitionName=gpu TRESBillingWeights=GRES/gpu=0.0,GRES/gpu:a100=.5,GRES/nic=1,Mem=0.25G\n")

    assert read[0].gpu_tres == ("gres/gpu:a100",)
