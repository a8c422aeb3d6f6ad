"""The rule `price` for sizes: what a step saves of a job's run time and of the wait that it costs others.

A job costs its run time, and for each pending job the wait that its GPU-time adds if it is shared out evenly:
run time x (1 + price x GPUs x pending jobs / all GPUs). The formula is ours.
"""

from typing import Final

import numpy as np

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.policy import Options, Scores
from advisor.features.steps import OPTION_COLUMNS, Reals

# How much the wait of others counts against a job's own run time. Ours, chosen by trials on drawn workloads.
PRICE: Final = 10.0
# A run time of 0 has no cost to compare with.
_LEAST_MIN: Final = 1e-6


def cost_saved(run: Reals, run_after: Reals, crowding: Reals, crowding_after: Reals) -> Reals:
    """Return the share of its cost that a step saves.

    Run times are in one unit; crowding is the price times the GPUs and the pending jobs for each GPU.
    """
    return np.asarray(1.0 - run_after * (1.0 + crowding_after) / (run * (1.0 + crowding)))


class PriceRule:
    """The rule as a policy, which scores the steps that the planner offers to learned ones."""

    name = "price"
    digest = ""
    levers = frozenset({Lever.GPU_COUNT})

    def act(self, options: Options) -> Scores:
        """Return a score for each step; raises `ModelError` for options of another lever."""
        if tuple(options.columns) != OPTION_COLUMNS:
            raise ModelError(f"policy {self.name}: it does not score options of {options.lever}")
        run = np.maximum(np.expm1(options.columns["run_time"]), _LEAST_MIN)
        run_after = np.maximum(run - np.expm1(options.columns["run_time_saved"]), 0.0)
        crowding = PRICE * np.expm1(options.columns["crowd"])
        return cost_saved(run, run_after, crowding, crowding * np.exp2(options.columns["gpus_added"]))
