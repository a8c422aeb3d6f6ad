"""What a rollout says about a plan as a whole."""

import numpy as np
import pytest

from advisor.planning.plan_effect import effect_of
from advisor.planning.rollout import RolloutValues

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
        arrivals=np.zeros(starts.shape[1], dtype=np.int64),
        arrivals_completion_s=np.zeros(starts.shape[:2]),
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


def test_plan_that_gains_in_most_draws_alone_is_no_clear_gain() -> None:
    draws = [[float(number), 0.0, 0.0] for number in range(10)]
    shifted = [[start - 1.0 if number < 8 else start + 30.0, 0.0, 0.0] for number, (start, *_) in enumerate(draws)]

    effect = effect_of(values([draws, draws], [draws, shifted]))

    assert effect.completion_s.median < 0.0 < effect.completion_s.high
    assert not effect.gains
