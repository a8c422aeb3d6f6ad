"""What every rollout keeps to: the contract of `advisor.planning.rollout.Rollout`."""

import numpy as np

from advisor.domain.actions import SetNice
from advisor.planning.case import Case
from advisor.planning.rollout import Rollout, TimedAction, mean_completion_s, mean_wait_s
from tests.builders import HOUR_S, make_cluster, make_gang, make_job

FULL = [make_job(number, gpus=8, running_on=[f"n0{number}"], time_limit_s=2 * HOUR_S) for number in range(1, 5)]
WAITING = [make_job(10 + number, gang=make_gang(4), priority=100 - number, time_limit_s=HOUR_S) for number in range(4)]
CASE = Case(snapshot=make_cluster([*FULL, *WAITING]))
LEFT_ALONE: tuple[TimedAction, ...] = ()
RAISED = (TimedAction(action=SetNice(job_id=13, before=0, after=-50)),)
UNKNOWN = (TimedAction(action=SetNice(job_id=999, before=0, after=-50)),)


def check(rollout: Rollout) -> None:
    """Check the contract; a change of a job that is not there has no effect."""
    values = rollout.values(CASE, [LEFT_ALONE, RAISED, LEFT_ALONE, UNKNOWN], horizon_s=HOUR_S, draws=3)
    again = rollout.values(CASE, [LEFT_ALONE, RAISED, LEFT_ALONE, UNKNOWN], horizon_s=HOUR_S, draws=3)
    later = rollout.values(CASE, [RAISED], horizon_s=HOUR_S, draws=2, first_draw=1)

    count = len(values.job_ids)
    assert sorted(values.job_ids.tolist()) == sorted(job.job_id for job in CASE.snapshot.jobs)
    assert values.start_s.shape == values.end_s.shape == values.completion_s.shape == (4, 3, count)
    assert values.gpus.shape == values.was_pending.shape == (count,)
    assert np.isfinite(values.completion_s).all() and values.horizon_s == HOUR_S
    assert mean_completion_s(values).shape == mean_wait_s(values).shape == (4, 3)
    # Equal plans and equal calls have equal values, and a draw is known by its number.
    for name in ("start_s", "end_s", "completion_s"):
        of_name = getattr(values, name)
        np.testing.assert_array_equal(of_name, getattr(again, name))
        np.testing.assert_array_equal(of_name[0], of_name[2])
        np.testing.assert_array_equal(of_name[0], of_name[3])
        np.testing.assert_array_equal(of_name[1, 1:], getattr(later, name)[0])
