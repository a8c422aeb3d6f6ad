"""Delay scheduling: gangs are offered free GPUs, and decline a placement spread too far until their timer ends.

The tier of a gang is relative to the best placement it could ever have: the fewest nodes under as few leaves as
possible, then one leaf, then any. See `engine/delay_scheduling.c`.
"""

from advisor.sim.engine.native import native
from advisor.sim.engine.tables import Integers, Reals
from advisor.sim.gang_patience import GangPatience
from advisor.sim.state import State


@native
def offer(s: State, p: GangPatience, rows: Integers, now: float) -> None:
    """Offer the free GPUs to pending jobs in the order of `rows`; a job that declines blocks no other."""


@native
def best_tiers(s: State, p: GangPatience, rows: Integers) -> None:
    """Compute the best tier of every shape of jobs, while the cluster is idle."""


@native
def tier_of_pick(s: State, row: int) -> int:
    """Return the tier of the picked nodes, relative to the best tier that the gang could have."""


@native
def tier_held(s: State, row: int) -> int:
    """Return the tier of the nodes of a running gang, relative to the best tier that it could have."""


@native
def sensitivities(s: State, rows: Integers, inflations: Reals) -> None:
    """Compute the inflation of gangs that span one node more than needed, on two leaves, `(n_rows,)`."""
