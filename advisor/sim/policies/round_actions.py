"""The loop between two rounds, and what a decision changes; see `engine/rounds.c`."""

from advisor.sim.engine.native import native
from advisor.sim.engine.tables import Integers, Reals
from advisor.sim.state import State
from advisor.sim.victims import Victims


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
