"""Node selection of policies that place jobs themselves; see `engine/gang_placement.c`."""

from advisor.sim.engine.native import native
from advisor.sim.state import State


@native
def pick(s: State, row: int, gpus: int) -> bool:
    """Pick the fewest nodes for a gang, under as few leaves as possible; return False if they are not free."""
