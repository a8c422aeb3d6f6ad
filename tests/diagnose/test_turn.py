"""Where a pending job stands: in line, behind lifted jobs, against no advice, and what its user gave."""

from dataclasses import replace

import pytest

from advisor.diagnose.turn import turn_of
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.memory import Memory
from advisor.domain.standings import NO_STANDINGS, Standings, standings_of
from advisor.planning.beliefs import Basis
from advisor.planning.case import Case
from advisor.settings import Limits, PlanningSettings
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_job, make_stretch
from tests.planning.queues import busy, shorts
from tests.planning.test_lift import LONG, lifted


def case_of(
    *jobs: Job, leases: tuple[Lease, ...] = (), standings: Standings = NO_STANDINGS, limits: Limits | None = None
) -> Case:
    memory = Memory(leases=leases, standings=standings)
    return Case(snapshot=busy(*jobs), limits=limits or Limits(), memory=memory)


def test_lifted_jobs_before_a_job_are_counted_with_their_gpu_time() -> None:
    raised, lease = lifted(shorts(1)[0])

    place = turn_of(case_of(LONG, raised, leases=(lease,)), LONG).place

    assert place is not None
    assert (place.jobs, place.place, place.place_as_submitted) == (2, 2, 1)
    # 2 GPUs for a fifth of an hour, which stood behind the long one.
    assert (place.lifted_ahead, place.passed_by, place.is_lifted) == (1, 1, False)
    assert place.lifted_ahead_gpu_s == pytest.approx(2 * 0.2 * HOUR_S)


def test_lifted_job_that_stood_before_it_anyway_has_not_passed_it() -> None:
    raised, lease = lifted(make_job(10, gpus=2, priority=1100, time_limit_s=HOUR_S))

    of_long = turn_of(case_of(LONG, raised, leases=(lease,)), LONG).place
    of_raised = turn_of(case_of(LONG, raised, leases=(lease,)), raised).place

    assert of_long is not None and of_raised is not None
    assert (of_long.place_as_submitted, of_long.lifted_ahead, of_long.passed_by) == (2, 1, 0)
    assert (of_raised.place, of_raised.is_lifted, of_raised.lifted_ahead) == (1, True, 0)


def test_size_is_that_of_the_objective_and_says_what_it_rests_on() -> None:
    place = turn_of(case_of(LONG), LONG).place
    open_end = make_job(2, gpus=4, time_limit_s=None)
    unknown = turn_of(case_of(LONG, open_end), open_end).place

    assert place is not None and unknown is not None
    assert (place.gpus, place.tasks, place.basis) == (16, 1, Basis.RULE)
    ratio = PlanningSettings().used_limit_ratio_low
    assert (place.run_s, place.gpu_s) == pytest.approx((ratio * 40 * HOUR_S, 16 * ratio * 40 * HOUR_S))
    assert (unknown.run_s, unknown.gpu_s, unknown.limit_s) == (None, None, None)


def test_job_that_does_not_compete_has_no_place() -> None:
    held = make_job(2, gpus=4, held=True, priority=0, reason="JobHeldUser")

    assert turn_of(case_of(LONG, held), held).place is None


LATE = standings_of(
    [replace(make_stretch(anchor_time=TAKEN_AT - DAY_S), until=TAKEN_AT - 60.0, late=((1, TAKEN_AT - 2 * HOUR_S),))]
)


@pytest.mark.parametrize(
    ("limits", "bound_s", "is_late"),
    [
        (Limits(max_lateness_s=HOUR_S, max_lateness_ratio=0.0), HOUR_S, True),
        (Limits(max_lateness_s=3 * HOUR_S, max_lateness_ratio=0.0), 3 * HOUR_S, False),
        # It would have waited for an hour.
        (Limits(max_lateness_s=0.0, max_lateness_ratio=4.0), 4 * HOUR_S, False),
        (Limits(max_lateness_s=HOUR_S, fairness="site"), None, False),
        (Limits(max_lateness_s=HOUR_S, fairness="user"), None, False),
    ],
)
def test_job_later_than_without_advice_by_more_than_the_bound_is_late(
    limits: Limits, bound_s: float | None, is_late: bool
) -> None:
    job = replace(LONG, submit_time=TAKEN_AT - 3 * HOUR_S, eligible_time=TAKEN_AT - 3 * HOUR_S)

    without = turn_of(case_of(job, standings=LATE, limits=limits), job).without_advice

    assert without is not None
    assert (without.start_time, without.late_s) == (TAKEN_AT - 2 * HOUR_S, 2 * HOUR_S)
    assert (without.bound_s, without.is_late) == (bound_s, is_late)


def test_job_that_would_wait_too_has_no_start_and_one_submitted_since_is_not_known() -> None:
    other = make_job(2, gpus=4, submitted_ago_s=HOUR_S)
    new = make_job(3, gpus=4, submitted_ago_s=30.0)
    case = case_of(LONG, other, new, standings=LATE)

    without = turn_of(case, other).without_advice

    assert without is not None and (without.start_time, without.late_s, without.is_late) == (None, 0.0, False)
    assert turn_of(case, new).without_advice is None
    assert turn_of(case_of(LONG), LONG).without_advice is None


def test_standing_of_the_user_comes_with_what_the_objective_counts_as_owed() -> None:
    standings = standings_of([make_stretch(waited_s=2 * HOUR_S, plain_s=(HOUR_S,), user=LONG.user)])

    turn = turn_of(case_of(LONG, standings=standings), LONG)

    assert turn.standing is not None and turn.standing.difference_s.median == HOUR_S
    # One job, and half an hour is agreed for each.
    assert turn.owed == pytest.approx(2.0)
    assert (turn.credit, turn.max_credit) == (3.0, 3.0)
    assert turn_of(case_of(LONG, standings=standings, limits=Limits(fairness="site")), LONG).credit == 1.0
    nothing = turn_of(case_of(LONG), LONG)
    assert (nothing.standing, nothing.owed, nothing.credit) == (None, 0.0, 1.0)
