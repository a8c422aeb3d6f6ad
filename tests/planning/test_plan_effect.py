"""What a rollout says about a plan as a whole."""

import numpy as np
import pytest

from advisor.planning.rollout import PlanEffect, RolloutValues, effect_of, interval_of_mean

HORIZON_S = 1000.0


def values(start_s: list[list[list[float]]], completion_s: list[list[list[float]]]) -> RolloutValues:
    """Return two plans, in draws, of two jobs that wait and one that runs."""
    starts, ends = np.array(start_s), np.array(completion_s)
    return RolloutValues(
        job_ids=np.array([1, 2, 3]),
        gpus=np.ones(3, dtype=np.int64),
        was_pending=np.array([True, True, False]),
        start_s=starts,
        end_s=ends,
        completion_s=ends,
        horizon_s=HORIZON_S,
        left_out=("a sentence",),
    )


def test_differences_are_means_over_all_jobs_and_the_other_way_round() -> None:
    before, after = [[500.0, 100.0, 0.0]] * 2, [[100.0, 200.0, 0.0]] * 2
    gain = effect_of(values([before, after], [[[900.0, 300.0, 60.0]] * 2, [[500.0, 400.0, 60.0]] * 2]))
    loss = effect_of(values([after, before], [[[500.0, 400.0, 60.0]] * 2, [[900.0, 300.0, 60.0]] * 2]))

    assert (gain.completion_s.median, gain.wait_s.median) == pytest.approx((-100.0, -150.0))
    assert (gain.jobs, gain.waiting, gain.draws, gain.sooner, gain.later) == (3, 2, 2, 1, 1)
    assert gain.gains and not loss.gains
    assert loss.completion_s.median == pytest.approx(100.0)
    assert gain.left_out == ("a sentence",)


def test_jobs_beyond_the_horizon_wait_until_it() -> None:
    effect = effect_of(values([[[np.nan, 0.0, 0.0]], [[400.0, 0.0, 0.0]]], [[[1100.0, 9.0, 9.0]], [[500.0, 9.0, 9.0]]]))

    assert effect.wait_s.median == pytest.approx(-300.0)
    assert (effect.sooner, effect.later) == (1, 0)


def test_interval_takes_two_draws_at_least() -> None:
    one, two = interval_of_mean(np.array([3.0])), interval_of_mean(np.array([0.0, 2.0]))

    assert (one.low, one.median, one.high) == (3.0, 3.0, 3.0)
    assert (two.low, two.median, two.high) == pytest.approx((1.0 - 3.078, 1.0, 1.0 + 3.078))


def test_gain_is_judged_by_the_interval_of_its_expectation() -> None:
    draws = [[0.0, 0.0, 0.0]] * 10

    def shifted(*per_draw: float) -> PlanEffect:
        return effect_of(values([draws, draws], [draws, [[shift, 0.0, 0.0] for shift in per_draw]]))

    # A mean of -4 s over three jobs is -12 s for one; the 90 % quantile of Student's t is 1.383 with 9 degrees.
    wide, narrow = (shifted(*[-12.0 + reach, -12.0 - reach] * 5) for reach in (60.0, 6.0))

    assert (wide.completion_s.low, wide.completion_s.median, wide.completion_s.high) == pytest.approx(
        (-4.0 - 1.383 * 20.0 / 3.0, -4.0, -4.0 + 1.383 * 20.0 / 3.0), rel=1e-3
    )
    assert not wide.gains
    assert narrow.gains


def test_one_plan_of_several_is_compared_with_another() -> None:
    plans = [[[100.0, 0.0, 0.0]] * 2, [[70.0, 0.0, 0.0]] * 2, [[130.0, 0.0, 0.0]] * 2]

    assert effect_of(values(plans, plans), 2, 1).completion_s.median == pytest.approx(20.0)
