"""What the users of a simulation are owed."""

import numpy as np

from advisor.settings import Limits
from advisor.sim.policies.mover import WINDOW_S, PlainWaits
from tests.sim.building import make_state, make_trace

HOUR_S = 3600.0
EVERY_S = 600.0


def waits(start_time: list[float], limits: Limits | None = None) -> PlainWaits:
    """Return two jobs of one user and one of another, submitted at 0 and an hour long, by their plain starts."""
    starts = np.array(start_time)
    return PlainWaits(np.zeros(3), np.array([0, 0, 1]), starts, limits or Limits(), every_s=EVERY_S)


def test_only_what_plain_slurm_has_done_by_now_counts() -> None:
    state = make_state(make_trace([{"gpus": 1, "run_time_s": HOUR_S} for _ in range(3)]), "nodes=1,gpus=4")
    state.jobs["start_time"] = [np.nan, 0.0, np.nan]
    plain, rows = waits([HOUR_S, 2 * HOUR_S, 9 * HOUR_S]), np.arange(3)

    early, late = plain.owed(state, rows, HOUR_S), plain.owed(state, rows, 3 * HOUR_S)

    # After an hour: the first job waits as under plain Slurm, the second started an hour sooner.
    assert early.tolist() == [-HOUR_S / (2 * Limits().agreed_delay_s)] * 2 + [0.0]
    # After three: the first has waited two hours longer, the second two hours less.
    assert late.tolist() == [0.0, 0.0, 0.0]


def test_sums_are_kept_for_a_while_and_old_jobs_drop_out() -> None:
    state = make_state(make_trace([{"gpus": 1, "run_time_s": HOUR_S} for _ in range(3)]), "nodes=1,gpus=4")
    state.jobs["start_time"] = np.nan
    plain, rows = waits([0.0, 0.0, 0.0]), np.arange(3)

    first = plain.owed(state, rows, HOUR_S)

    assert (first > 0.0).all()
    assert plain.owed(state, rows, HOUR_S + 0.9 * EVERY_S).tolist() == first.tolist()
    assert plain.owed(state, rows, HOUR_S + WINDOW_S).tolist() == [0.0, 0.0, 0.0]


def test_jobs_are_overdue_beyond_the_larger_bound() -> None:
    limits = Limits(max_lateness_s=10 * HOUR_S, max_lateness_ratio=0.5)
    plain, rows = waits([HOUR_S, 100 * HOUR_S, np.nan], limits), np.arange(3)

    assert plain.is_overdue(rows, 11.5 * HOUR_S).tolist() == [True, False, False]
    assert plain.is_overdue(rows, 151.0 * HOUR_S).tolist() == [True, True, False]
