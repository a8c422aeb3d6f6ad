"""Whether fair share is charged for GPUs, and the line of slurm.conf that makes it so."""

from dataclasses import replace

import pytest

from advisor.backends.scontrol_text import billings
from advisor.diagnose.site_checks import Check, Status, billing_checks
from advisor.domain.site import Billing
from advisor.domain.snapshot import Snapshot
from tests.backends.recorded import LIVE_RELEASES, RECORDED
from tests.builders import make_config, make_node, make_snapshot

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
