"""Multifactor priority of the model of Slurm, and the line of pending jobs sorted by it; see `engine/priority.c`."""

from advisor.sim.engine.native import native
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State


@native
def priority_of(s: State, m: Slurm, row: int, now: float) -> float:
    """Return the priority of a pending job in its first partition; whole points, at least 1, as Slurm has them."""


@native
def prioritise(s: State, m: Slurm, row: int, now: float) -> None:
    """Calculate the priority of a job in each of its partitions."""


@native
def points_beyond(s: State, m: Slurm, row: int, priority: float, calculated: float) -> float:
    """Return by how much the priority that a job has differs from the formula at its calculation."""


@native
def insert(s: State, m: Slurm, row: int) -> None:
    """Insert a job into the line, once for each partition; equal priorities are ordered by submit time and id."""


@native
def strike(s: State, m: Slurm, place: int) -> None:
    """Remove the entry at a place from the line; the caller updates the count of pending jobs."""


@native
def reprioritise(s: State, m: Slurm, now: float) -> bool:
    """Recalculate the priority of every pending job and sort the line; return whether that changed the order."""


@native
def sort_line(s: State, m: Slurm) -> bool:
    """Sort the line by priority; return whether that changed it."""


@native
def charge(s: State, m: Slurm, row: int, now: float) -> None:
    """Charge the use of a running job since its last charge to its user and account, in whole seconds as in Slurm."""


@native
def recalculate(s: State, m: Slurm, now: float) -> None:
    """Charge the running jobs, decay all usage, the new included, and rank the users."""
