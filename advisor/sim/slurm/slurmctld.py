"""A model of slurmctld: the loop of events, the main scheduling pass, and when backfill runs; see `engine/slurmctld.c`.

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
