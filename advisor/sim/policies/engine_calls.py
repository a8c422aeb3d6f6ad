"""The C functions that policies call, from the sources in `engine` of these names.

Placement is that of policies that place jobs themselves (`gang_placement`). Under delay scheduling gangs are offered
free GPUs, and decline a placement spread too far until their timer ends; the tier of a gang is relative to the best
placement it could ever have: the fewest nodes under as few leaves as possible, then one leaf, then any.
"""

from advisor.sim.engine.native import native
from advisor.sim.engine.tables import GangPatience, Integers, Moves, Order, Reals, RunTimeForecasts, Shares, Victims
from advisor.sim.queueing import Queue
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State


@native
def pick(s: State, row: int, gpus: int) -> bool:
    """Pick the fewest nodes for a gang, under as few leaves as possible; return False if they are not free."""


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


@native
def run_round(s: State, every_s: float, until: float) -> int:
    """Run arrivals and ends until a decision is due (ROUND), `until` (PAUSED), or nothing is left (DONE).

    A decision is due every `every_s` while a job is active, 0: at every event. Stops early where the segments are full
    (FULL).
    """


@native
def serve(
    s: State,
    v: Victims,
    rows: Integers,
    gpus: Integers,
    smallest: Integers,
    failed: Integers,
    now: float,
    may_preempt: bool,
) -> None:
    """Start, resize and stop jobs to reach their sizes, in the order of `rows`; see `RoundView.serve`.

    `failed` is space for a number per shape.
    """


@native
def start_one(s: State, row: int, gpus: int, smallest: int, now: float) -> bool:
    """Start a pending job on as many of `gpus` as fit; return False if fewer than `smallest` do."""


@native
def share_gpus(s: State, rows: Integers, hosts: Integers, now: float) -> None:
    """Start pending jobs on the GPUs of running ones that hold as many."""


@native
def put_back(s: State, rows: Integers, now: float) -> None:
    """Return running jobs to the queue."""


@native
def best_rates(s: State, rows: Integers, gpus: Integers, rates: Reals) -> None:
    """Compute the work per second of jobs at sizes, alone on the best placement; all arrays are `(n_rows,)`."""


@native
def run_queue(s: State, q: Queue, v: Victims, until: float) -> int:
    """Run until all jobs have ended (DONE), `until` (PAUSED), or the segments are full (FULL)."""


@native
def make_room_close(s: State, v: Victims, row: int, key: float) -> int:
    """List running jobs with a key above `key` to preempt so that a job fits, if on several nodes under one leaf.

    Return how many, 0 if none help. On one node these are the jobs with the highest keys where others lose the fewest
    GPUs, on several all jobs of the nodes where others lose the fewest.
    """


@native
def run_ordered(s: State, m: Slurm, order: Order, until: float) -> int:
    """Run as `run_slurm` does, and sort the line every `every_s` of the trace's clock."""


@native
def move_jobs(s: State, m: Slurm, moves: Moves, now: float) -> None:
    """Change the pending jobs of each pool, by lifts or exchanges, and let slurmctld sort its line."""


@native
def count_owed(s: State, moves: Moves, now: float) -> None:
    """Add up by how much the jobs of users have waited longer than without advice, as far as that is known by now."""


@native
def run_moved(s: State, m: Slurm, moves: Moves, forecasts: RunTimeForecasts, every_s: float, until: float) -> int:
    """Run as `run_slurm` does, with changes every `every_s` while jobs are pending.

    Where run times are forecast, stops before the changes of a cycle for which the model is asked (ROUND).
    """


@native
def sum_up_runs(t: RunTimeForecasts) -> None:
    """Sum up the runs that are remembered at the start."""


@native
def ask_run_times(s: State, t: RunTimeForecasts, rows: Integers, now: float) -> int:
    """Learn from the jobs that ended, and write the feature rows of those of `rows` that are due; return how many."""


@native
def answer_run_times(s: State, t: RunTimeForecasts, shares: Shares) -> None:
    """Take the model's answers for the feature rows."""
