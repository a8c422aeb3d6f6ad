"""Sums of waits with and without advice: of made starts, and of a simulated cluster whose plain run is known."""

import numpy as np
import pytest

from advisor.domain.standings import standings_of
from advisor.sim.live.wait_sums import stretch_of, stretch_over
from tests.sim.live.test_plain_twin import lift_small, made_starts, observed, play, queue


def test_waits_count_from_the_anchor_on_and_up_to_the_last_snapshot() -> None:
    # One job waited for 50 s at the anchor, and started with advice alone.
    starts = made_starts([[np.nan, 400.0]], [100.0, 300.0])._replace(
        wait_begin_time=np.array([-50.0, 200.0]), was_submitted_later=np.array([False, True])
    )

    stretch = stretch_of(starts)

    assert (stretch.total.jobs, stretch.total.carried) == (2, 1)
    assert (stretch.total.waited_s, stretch.total.plain_s) == (200.0, (1200.0,))
    assert (stretch.by_user["ann"].waited_s, stretch.by_user["ann"].plain_s) == (100.0, (1000.0,))
    assert (stretch.by_user["bob"].waited_s, stretch.by_user["bob"].plain_s) == (100.0, (200.0,))
    assert stretch.by_account["lab"] == stretch.total


def test_what_the_model_does_not_know_widens_the_interval() -> None:
    known, half, nothing = (
        standings_of([stretch_of(made_starts([[300.0], [310.0]], [100.0], unknown_ratio=ratio))]).total
        for ratio in (0.0, 0.5, 1.0)
    )

    assert known is not None and half is not None and nothing is not None
    assert (nothing.plain_s.low, nothing.plain_s.high) == (0.0, 1000.0)
    assert half.plain_s.low < known.plain_s.low < 300.0
    assert 310.0 < known.plain_s.high < half.plain_s.high


def test_job_in_doubt_could_have_waited_as_long_without_advice_over_any_number_of_stretches() -> None:
    draws = [[100.0, 400.0], [300.0, 350.0]]
    known = made_starts(draws, [900.0, 500.0])
    doubtful = known._replace(in_doubt=np.array([True, False]))

    sure, unsure = (
        standings_of([stretch_of(each._replace(anchor_time=-float(shift))) for shift in range(3)])
        for each in (known, doubtful)
    )

    assert sure.by_user["ann"].difference_s.low > 0.0
    assert unsure.by_user["ann"].difference_s.low <= 0.0 <= unsure.by_user["ann"].difference_s.high
    assert unsure.by_user["bob"] == sure.by_user["bob"]
    assert unsure.total is not None and sure.total is not None
    assert unsure.total.difference_s.low < sure.total.difference_s.low


def test_gain_of_a_job_in_doubt_is_not_certain_either() -> None:
    doubtful = made_starts([[900.0]], [100.0])._replace(in_doubt=np.array([True]))

    difference = standings_of([stretch_of(doubtful)]).by_user["ann"].difference_s

    assert difference.low < 0.0 <= difference.high


def test_no_jobs_are_no_waits() -> None:
    stretch = stretch_of(made_starts(np.empty((2, 0)).tolist(), []))

    assert (stretch.total.jobs, stretch.total.plain_s, stretch.total.more_s) == (0, (0.0, 0.0), 0.0)
    assert stretch.by_user == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_true_differences_lie_in_the_intervals(seed: int) -> None:
    plain, run = play(queue(seed)), play(queue(seed), lift_small)
    starts = observed(run).starts(draws=16, run_s_by_job=run.run_s_by_job)
    true_s = run.true_starts(starts.job_ids) - plain.true_starts(starts.job_ids)

    standings = standings_of([stretch_of(starts)])

    assert standings.total is not None
    difference = standings.total.difference_s
    assert difference.low < true_s.sum() < difference.high < 0.0
    users = np.array(starts.users, dtype=object)
    inside = [
        standing.difference_s.low <= true_s[users == user].sum() <= standing.difference_s.high
        for user, standing in standings.by_user.items()
    ]
    assert len(inside) > 1 and np.mean(inside) >= 0.8


def test_runs_from_several_queues_are_draws_of_one() -> None:
    both = stretch_of(made_starts([[300.0, 500.0]], [100.0, 300.0]))
    alone = stretch_of(made_starts([[200.0]], [100.0]))
    empty = stretch_of(made_starts(np.empty((1, 0)).tolist(), []))

    pooled = stretch_over([both, alone])

    assert stretch_over([both]) is both
    assert (pooled.total.plain_s, pooled.total.jobs, pooled.total.waited_s) == ((800.0, 200.0), 2, 400.0)
    assert (pooled.by_user["ann"].plain_s, pooled.by_user["bob"].plain_s) == ((300.0, 200.0), (500.0, 0.0))
    assert stretch_over([empty, empty]).by_user == {}
    assert stretch_over([empty, empty]).total.plain_s == (0.0, 0.0)


def test_jobs_that_plain_slurm_would_have_started_are_late() -> None:
    draws = [[150.0, 400.0, np.nan], [250.0, 500.0, 700.0], [np.nan, 600.0, np.nan]]
    starts = made_starts(draws, [np.nan, 450.0, np.nan])

    stretch = stretch_of(starts)

    assert stretch.late == ((int(starts.job_ids[0]), 250.0),)
    assert standings_of([stretch]).plain_start_by_job == {int(starts.job_ids[0]): 250.0}
    assert stretch_over([stretch, stretch_of(made_starts(draws, [100.0, 450.0, 800.0]))]).late == ()


def test_late_job_whose_request_then_changes_is_late_no_more() -> None:
    draws = [[150.0, 250.0], [150.0, 250.0]]
    late = stretch_of(made_starts(draws, [np.nan, np.nan]))
    after = made_starts(np.empty((2, 0)).tolist(), [])._replace(anchor_time=1000.0, until=2000.0, disputed=(1,))
    changed = stretch_over([stretch_of(after), stretch_of(after)])

    assert standings_of([late]).plain_start_by_job == {0: 150.0, 1: 250.0}
    assert standings_of([late, changed]).plain_start_by_job == {0: 150.0}
