"""Reads what partitions bill their jobs for, which no snapshot holds."""

import re

from advisor.backends.process import Commands, ask_text
from advisor.backends.scontrol_text import blocks
from advisor.backends.spelling import names
from advisor.domain.billing import Billing

# A weight can have a unit behind it, as in Mem=0.25G.
_ABOVE_0 = re.compile(r"0*\.?0*[1-9].*")


def read_billings(commands: Commands) -> tuple[Billing, ...]:
    """Ask slurmctld for its partitions, which costs it one request; raises `AdvisorError`."""
    return billings(ask_text(commands, "scontrol", "-o", "-a", "show", "partition"))


def billings(text: str) -> tuple[Billing, ...]:
    """Read the weights of the partitions of `scontrol show partition`, which shows them where they are set."""
    return tuple(
        _billing(block["PartitionName"], block.get("TRESBillingWeights", "").removeprefix("(null)"))
        for block in blocks(text, key="PartitionName")
    )


def _billing(partition: str, weights: str) -> Billing:
    pairs = (word.lower().partition("=") for word in names(weights))
    gpu_tres = (
        tres for tres, _, weight in pairs if tres.partition(":")[0] == "gres/gpu" and _ABOVE_0.fullmatch(weight)
    )
    return Billing(partition=partition, weights=weights, gpu_tres=tuple(gpu_tres))
