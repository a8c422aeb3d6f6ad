"""Sums of waits with and without advice: of made starts, and of simulated clusters, also over several anchors."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.standings import Standings, standings_of
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.twin_child import TwinTask, answered
from advisor.sim.live.wait_sums import stretch_of, stretch_over
from tests.builders import TAKEN_AT
from tests.sim.live.test_plain_twin import (
    SLURM,
    Played,
    as_submitted,
    held,
    lift_small,
    made_starts,
    observed,
    play,
    played,
    queue,
    seen,
    started,
    twin_of,
    waiting,
)


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


def over_anchors(run: Played, parts: int, *, carries: bool = True) -> Standings:
    """Return the standings over a run in which the anchor moves after equal parts."""
    twin = PlainTwin(run.snapshots[0], as_submitted, parameters=SLURM)
    ends = np.linspace(0, len(run.snapshots) - 1, parts + 1).round().astype(int).tolist()
    stretches = []
    for first, last in pairwise(ends):
        for snapshot in run.snapshots[first + 1 : last + 1]:
            twin.observe(snapshot)
        answer = answered(TwinTask(twin=twin, forecasts=NO_FORECASTS, draws=16))
        stretches.append(answer.stretch)
        before = twin.submitted
        twin.move_anchor(run.snapshots[last])
        if carries:
            twin.carry_over(answer.queues, before)
    return standings_of(stretches)


@cache
def compared(seed: int) -> NDArray[np.int64]:
    """Return the ids of the jobs whose waits are compared over a run under lifts."""
    return observed(played(seed, lift_small)).starts(draws=1).job_ids


@pytest.mark.slow
@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_difference_over_several_anchors_is_near_the_true_one(seed: int, parts: int) -> None:
    plain, run = played(seed), played(seed, lift_small)
    job_ids = compared(seed)
    true_s = float((run.true_starts(job_ids) - plain.true_starts(job_ids)).sum())

    total = over_anchors(run, parts).total

    assert total is not None
    assert total.difference_s.low < true_s < total.difference_s.high
    assert total.jobs == len(job_ids)


def test_job_that_was_lifted_waits_on_plain_slurm_and_the_other_runs() -> None:
    run_s_by_job = {2: 600.0, 3: 300.0}
    first, second = waiting(2, priority=200), waiting(3, priority=100)
    twin = twin_of(
        seen(0, held(), first, second),
        seen(300, started(second, 299.0), first),
        seen(400, started(second, 299.0), first),
    )
    run = twin.starts(draws=8, run_s_by_job=run_s_by_job)
    before = twin.submitted

    twin.move_anchor(seen(400, started(second, 299.0), first))
    twin.carry_over(run.carried, before)
    for snapshot in (seen(600, first), seen(610, started(first, 605.0)), seen(1000, started(first, 605.0))):
        twin.observe(snapshot)
    starts = [twin.starts(draws=2, run_s_by_job=run_s_by_job, queue=number) for number in range(twin.queues)]

    assert {(stay.job_id, stay.is_running) for stay in run.carried[0]} == {(2, True), (3, False)}
    for begun in starts:
        plain = dict(zip(begun.job_ids.tolist(), (begun.plain_start_time - TAKEN_AT).T.tolist(), strict=True))
        assert set(plain) == {2, 3}
        assert set(plain[2]) == {400.0}
        # The first began between the snapshots of 0 and 300 s, and ran for 600 s.
        assert all(600.0 <= instant <= 940.0 for instant in plain[3])


def test_job_that_ended_on_plain_slurm_alone_waits_no_longer_there() -> None:
    run_s_by_job = {2: 60.0, 3: 300.0}
    first, second = waiting(2, priority=200), waiting(3, priority=100)
    lifted = started(second, 299.0)
    twin = twin_of(seen(0, held(), first, second), seen(300, lifted, first), seen(550, lifted, first))
    run = twin.starts(draws=8, run_s_by_job=run_s_by_job)
    before = twin.submitted

    twin.move_anchor(seen(550, lifted, first))
    twin.carry_over(run.carried, before)
    twin.observe(seen(700, started(first, 650.0)))
    begun = twin.starts(draws=2, run_s_by_job=run_s_by_job)

    assert begun.plain_start_time[:, begun.job_ids.tolist().index(2)].tolist() == [TAKEN_AT + 550.0] * 2
    assert begun.real_start_time[begun.job_ids.tolist().index(2)] == TAKEN_AT + 650.0
    # It runs on both sides, or nothing of it is to be compared any more.
    assert [stay.job_id for stay in begun.carried[0] if stay.end_time is not None] == [2]
