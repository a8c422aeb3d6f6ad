"""Node selection of the model of Slurm, as observed on slurmctld 22.05 with topology/tree; see `engine/placement.c`."""

from advisor.sim.engine.native import native
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State


@native
def per_node(s: State, row: int) -> int:
    """Return the number of GPUs that a job takes on every node, 0 if it is open."""


@native
def enter(s: State, m: Slurm, partition: int) -> None:
    """Make the nodes of a partition the ones that jobs can be placed on."""


@native
def pick_now(s: State, m: Slurm, row: int, until: float) -> bool:
    """Pick nodes that are free now and not reserved up to `until`; return False if there are not enough.

    They are nodes of the partition at hand. A wait of the job for switches is ignored.
    """


@native
def leaves_picked(s: State) -> int:
    """Count the leaves of the picked nodes; the nodes of a leaf are adjacent."""
