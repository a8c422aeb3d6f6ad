"""How much was tried to learn from it, as the report counts it."""

import math

import pytest

from advisor.domain.actions import Lever, Reason
from advisor.domain.lease import Ending
from advisor.domain.outcome import JobOutcome, SeenChange
from advisor.trial.explored import ExploredTally, explored_tally

NOW, SINCE = 1_000_000.0, 900_000.0


def ran(
    job_id: int,
    *changes: SeenChange,
    start_time: float | None = NOW - 7200.0,
    end_time: float | None = NOW - 3600.0,
    gpus: int = 8,
) -> JobOutcome:
    return JobOutcome(
        job_id=job_id, submit_time=0.0, gpus=gpus, start_time=start_time, last_start_time=start_time, end_time=end_time,
        last_seen_time=end_time, changes=changes,
    )  # fmt: skip


def named(
    *,
    reason: Reason = Reason.EXPLORE_PLACE,
    applied_time: float = NOW - 7300.0,
    ending: Ending = Ending.NO_LONGER_PENDING,
) -> SeenChange:
    return SeenChange(lever=Lever.NODE_LIST, applied_time=applied_time, reason=reason, ending=ending)


def test_gpu_time_of_tried_places_is_that_of_their_runs_out_of_all() -> None:
    jobs = [ran(1, named()), ran(2), ran(3, named(reason=Reason.PLACE_FOR_GANG)), ran(4, gpus=0)]

    tally = explored_tally(jobs, since=SINCE, now=NOW)

    assert tally == ExploredTally(changes=1, jobs=1, gpu_s=8 * 3600.0, of_gpu_s=3 * 8 * 3600.0)
    assert tally.ratio == pytest.approx(1 / 3)


@pytest.mark.parametrize("ending", [Ending.TAKEN_BACK, Ending.REVERTED, Ending.OVERRULED, Ending.NOT_APPLIED])
def test_place_that_was_given_back_was_not_tried(ending: Ending) -> None:
    tally = explored_tally([ran(1, named(ending=ending))], since=SINCE, now=NOW)

    assert (tally.changes, tally.jobs, tally.gpu_s) == (1, 0, 0.0)


def test_last_place_that_was_named_counts() -> None:
    first, last = named(applied_time=NOW - 7300.0), named(reason=Reason.PLACE_FOR_GANG, applied_time=NOW - 7250.0)

    assert explored_tally([ran(1, first, last)], since=SINCE, now=NOW).jobs == 0


def test_run_counts_within_the_period_and_up_to_now() -> None:
    early = named(applied_time=SINCE - 60.0)
    jobs = [ran(1, early, start_time=SINCE - 50.0, end_time=SINCE + 100.0), ran(2, named(), end_time=None)]

    tally = explored_tally(jobs, since=SINCE, now=NOW)

    assert (tally.changes, tally.jobs, tally.gpu_s) == (1, 2, 8 * 100.0 + 8 * 7200.0)


def test_share_of_nothing_is_unknown() -> None:
    assert math.isnan(explored_tally([ran(1, start_time=None, end_time=None)], since=SINCE, now=NOW).ratio)
