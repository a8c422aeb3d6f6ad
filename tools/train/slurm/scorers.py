"""Scores the steps of elastic jobs by rule: what learned policies begin from, and are compared with."""

from collections.abc import Callable

import numpy as np

from advisor.features.price import PRICE, cost_saved
from advisor.features.steps import Reals, Steps, Supply

# A step is scored from its own numbers and those of the pool, `(..., 2, n_jobs)`; one of 0 or below is not taken.
StepScorer = Callable[[Steps, Supply], Reals]


def as_asked(steps: Steps, _supply: Supply) -> Reals:
    """Give every job the size that it asks for."""
    return np.where(steps.columns[..., 3] < 0.0, 1.0, 0.0)


def by_gain(steps: Steps, _supply: Supply) -> Reals:
    """Return the run time that each added GPU saves, in seconds: the marginal gain of Optimus."""
    return np.asarray((steps.run_s - steps.run_after_s) / np.maximum(steps.gpus_after - steps.gpus, 1.0))


def by_price(steps: Steps, supply: Supply) -> Reals:
    """Return the share of its cost that a step saves, by the rule `price`."""
    crowd = PRICE * (supply.waiting / supply.capacity)[..., None, None]
    return cost_saved(steps.run_s, steps.run_after_s, crowd * steps.gpus, crowd * steps.gpus_after)
