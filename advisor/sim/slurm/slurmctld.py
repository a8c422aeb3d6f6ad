"""A model of slurmctld: events, the main scheduling pass and backfill, multifactor priority, and node selection.

See `slurmctld.c`, `priority.c` and `placement.c` in `engine`. Nodes are selected as observed on slurmctld 22.05 with
topology/tree.

`docs/fidelity.md` describes what it omits and how much it differs from a real slurmctld.
"""

from advisor.sim.engine.native import native
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State


@native
def run_slurm(s: State, m: Slurm, until: float) -> int:
    """Run until all jobs have ended (DONE), `until` (PAUSED), or the segments are full (FULL)."""


@native
def ask_for_pass(m: Slurm, now: float) -> None:
    """Request a main pass and backfill, as every change of the queue or the nodes does."""


@native
def watch_switches(s: State, m: Slurm, row: int, now: float) -> None:
    """Set the timer of a job to the end of its wait for few switches."""


@native
def take_up(s: State, m: Slurm, now: float) -> None:
    """Complete the state of slurmctld from the jobs that run, wait and stand in the line; once for a snapshot."""


@native
def resume(s: State, m: Slurm, now: float) -> None:
    """Set the timers of all jobs that run or wait, from their run times, and sort the line."""


@native
def prioritise(s: State, m: Slurm, row: int, now: float) -> None:
    """Calculate the priority of a job in each of its partitions."""


@native
def points_beyond(s: State, m: Slurm, row: int, priority: float, calculated: float) -> float:
    """Return by how much the priority that a job has differs from the formula at its calculation."""


@native
def sort_line(s: State, m: Slurm) -> bool:
    """Sort the line by priority; return whether that changed it."""


@native
def recalculate(s: State, m: Slurm, now: float) -> None:
    """Charge the running jobs, decay all usage, the new included, and rank the users."""


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
