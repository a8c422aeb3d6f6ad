"""Decides which jobs a badly placed or pending gang can stop, by how the network hurts them, and when that pays.

Published are its aim and name (Dally, arXiv 2401.16492); key, victims, quantum and the rule of twice the cost are our
interpretation. A victim waits for as long as the gang runs that took its place, which counts as a cost, too.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import HOUR_S

Floats = NDArray[np.float64]

# How much the network counts in the key; the rest is the GPU-time had so far.
NETWORK_SHARE: Final = 0.5
# A victim's key is higher by this much at least.
KEY_MARGIN: Final = 0.1
# A job is stopped only after it has run for QUANTUM_S, and not again within APART_S.
QUANTUM_S: Final = 1200.0
APART_S: Final = HOUR_S
# What is gained is more than this many times what it costs.
GAIN_OVER_COST: Final = 2.0


def keys(done_s: Floats, held_s: Floats, attained_gpu_s: Floats) -> Floats:
    """Return the priority keys of jobs, lowest first to be served, `(n_jobs,)`.

    `done_s` is the run time on the best placement of what a job has done, `held_s` how long that took it: their
    ratio, 1 for a job that never ran, is small for a job that its places hurt.
    """
    ratio = np.divide(done_s, held_s, out=np.ones(len(done_s)), where=held_s > 0.0)
    most = attained_gpu_s.max(initial=0.0)
    attained = attained_gpu_s / most if most > 0.0 else np.zeros(len(done_s))
    key: Floats = np.clip(ratio, 0.0, 1.0) ** NETWORK_SHARE * attained ** (1.0 - NETWORK_SHARE)
    return key


def give_way(key: Floats, sensitivity: Floats, *, gang_key: float, gang_sensitivity: float) -> NDArray[np.bool_]:
    """Mark the running jobs that can stop for a gang, `(n_jobs,)`: by key, and no more sensitive than the gang."""
    can_go: NDArray[np.bool_] = (key > gang_key + KEY_MARGIN) & (sensitivity <= gang_sensitivity)
    return can_go


def stopping_cost_s(victims: int, run_s: float, restart_s: float) -> float:
    """Return the loss of the victims of a gang that runs for `run_s` in their place: a wait as long, and a restart.

    Stopping a job loses no work, as its state is saved first.
    """
    return victims * (run_s + restart_s)


def pays(gain_s: float, cost_s: float) -> bool:
    """Return whether a gain is worth the cost."""
    return gain_s > GAIN_OVER_COST * cost_s
