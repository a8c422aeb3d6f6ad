"""Scores the steps of elastic jobs by rule: what learned policies begin from, and are compared with."""

from collections.abc import Callable
from typing import Final

import numpy as np

from advisor.features.steps import Reals, Steps, Supply

# A step is scored from its own numbers and those of the pool, `(..., 2, n_jobs)`; one of 0 or below is not taken.
StepScorer = Callable[[Steps, Supply], Reals]

# How much the wait of others counts against a job's own run time. Ours, chosen by trials
# on drawn workloads.
PRICE: Final = 10.0


def as_asked(steps: Steps, _supply: Supply) -> Reals:
    """Give every job the size that it asks for."""
    return np.where(steps.columns[..., 3] < 0.0, 1.0, 0.0)


def by_gain(steps: Steps, _supply: Supply) -> Reals:
    """Return the run time that each added GPU saves, in seconds: the marginal gain of Optimus."""
    return np.asarray((steps.run_s - steps.run_after_s) / np.maximum(steps.gpus_after - steps.gpus, 1.0))


def by_price(steps: Steps, supply: Supply) -> Reals:
    """Return the share of its cost that a step saves.

    A job costs its run time, and for each pending job the wait that its GPU-time adds if it is shared out evenly:
    run time x (1 + price x GPUs x pending jobs / all GPUs). The formula is ours.
    """
    crowd = PRICE * (supply.waiting / supply.capacity)[..., None, None]
    cost, cost_after = (
        run_s * (1.0 + crowd * gpus)
        for run_s, gpus in ((steps.run_s, steps.gpus), (steps.run_after_s, steps.gpus_after))
    )
    return np.asarray(1.0 - cost_after / cost)
