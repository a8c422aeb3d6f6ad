"""Draws what snapshots do not show: where the periods of slurmctld stand, and the fractions of seconds."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.sim.live.resumed_arrays import Periods
from advisor.sim.live.snapshot_model import SnapshotModel

Floats = NDArray[np.float64]

# The number of queues of plain Slurm that are carried over to another anchor.
_QUEUES: Final = 8


def drawn_periods(model: SnapshotModel, rng: np.random.Generator) -> Periods:
    """Return periods of slurmctld that began within one period before the snapshot."""
    parameters, shares = model.cluster.slurm, rng.random(3)
    return Periods(
        main_time=model.taken_at - shares[0] * parameters.tick_s,
        backfill_time=model.taken_at - shares[1] * parameters.bf_interval_s,
        priority_time=model.taken_at - shares[2] * parameters.priority_calc_period_s,
    )


def spread_draws(starts: Floats, until: float) -> list[int]:
    """Return draws that stand for all: by the sum of the waits, in the middle of equal parts; the first of a few."""
    if len(starts) < _QUEUES:
        return [0]
    order = np.argsort(np.nan_to_num(starts, nan=until).sum(axis=1), kind="stable")
    return [int(order[(2 * part + 1) * len(starts) // (2 * _QUEUES)]) for part in range(_QUEUES)]


def with_fractions(submit_time: Floats, rng: np.random.Generator) -> Floats:
    """Return instants within the whole seconds that Slurm shows; those of one second keep their order."""
    return np.sort(submit_time + rng.random(len(submit_time)))
