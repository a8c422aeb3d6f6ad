"""Checks whether fair share is charged for GPUs.

What a job is billed for counts as its use of the share of its account. Without TRESBillingWeights it is billed for its
CPUs alone.
"""

from collections.abc import Iterator, Sequence

from advisor.diagnose.site_checks import Check, Status
from advisor.domain.billing import Billing
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot

_NAME = "fair share"


def billing_checks(snapshot: Snapshot, billings: Sequence[Billing]) -> Iterator[Check]:
    """Check the partitions with GPUs, where fair share orders jobs."""
    config = snapshot.config
    if not config.priority_weights.get("fair_share"):
        text = "it does not order jobs: PriorityWeightFairshare is 0, or PriorityType is not priority/multifactor"
        yield Check(name=_NAME, status=Status.OK, text=text)
        return
    is_counted = "gres/gpu" in config.accounting_tres
    lacking = False
    for billing in billings:
        partition = snapshot.partitions_by_name.get(billing.partition)
        price = None if partition is None else _cpus_per_gpu(snapshot, partition)
        if price is None or not set(billing.gpu_tres).isdisjoint(config.accounting_tres):
            continue
        lacking = True
        weights = billing.weights or "CPU=1.0"
        lines = [
            *([] if is_counted else ["AccountingStorageTRES=gres/gpu"]),
            *([] if "gres/gpu" in billing.gpu_tres else [_line(billing.partition, f"{weights},GRES/gpu={price:.1f}")]),
        ]
        yield Check(
            name=f"{_NAME} {billing.partition}",
            status=Status.LACKS,
            text=_finding(billing),
            cost=f"users pay nothing for the GPUs that they hold; set in slurm.conf: {' and '.join(lines)}",
        )
    if not lacking:
        counts = "the largest share" if "MAX_TRES" in config.priority_flags else "the sum"
        yield Check(name=_NAME, status=Status.OK, text=f"it is charged for GPUs; {counts} of what a job holds counts")


def _finding(billing: Billing) -> str:
    if billing.gpu_tres:
        return f"jobs are not billed for GPUs: AccountingStorageTRES does not count {','.join(billing.gpu_tres)}"
    if billing.weights:
        return f"jobs are not billed for GPUs: TRESBillingWeights={billing.weights}"
    return "jobs are billed for their CPUs alone: there are no TRESBillingWeights"


def _line(partition: str, weights: str) -> str:
    return f'PartitionName={partition} TRESBillingWeights="{weights}"'


def _cpus_per_gpu(snapshot: Snapshot, partition: Partition) -> float | None:
    """Return the CPUs of the partition's GPU nodes for each of their GPUs, at least 1; None where it has no GPUs.

    With this weight all GPUs of a node cost what all its CPUs do.
    """
    names = set(partition.nodes)
    nodes = [node for node in snapshot.nodes if node.name in names and node.gpus]
    gpus = sum(pool.total for node in nodes for pool in node.gpus)
    return max(1.0, sum(node.cpus for node in nodes) / gpus) if gpus else None
