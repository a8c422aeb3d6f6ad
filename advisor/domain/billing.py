"""Defines what a partition bills its jobs for, by which fair share is charged."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """The weights of a partition's TRESBillingWeights as slurm.conf has them, "" for none.

    `gpu_tres` are the GPUs among them whose weight is above 0, in small letters: `gres/gpu`, `gres/gpu:a100`.
    """

    partition: str
    weights: str = ""
    gpu_tres: tuple[str, ...] = ()
