"""Promises of changes against what came."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.domain.actions import Lever
from tests.tools_live.made_arms import SPEEDUP, made_run, made_trace
from tools.live.kept import stretched
from tools.live.savings import Promise, savings

IDS = np.arange(101, 105)


def promise(job_id: int, low_s: float, high_s: float, *, is_start: bool = True) -> Promise:
    """Return the promise of a lift, or of another change."""
    lever = Lever.NICE if is_start else Lever.GPU_COUNT
    return Promise(job_id=job_id, lever=lever, low_s=low_s, high_s=high_s, is_start=is_start)


def test_a_promise_is_held_if_the_paired_difference_is_in_it() -> None:
    trace = made_trace(4)
    plain, again, advised = (
        stretched(made_run(trace, waits_s), SPEEDUP)
        for waits_s in ([100.0] * 4, [101.0, 99.0, 101.0, 104.0], [60.0, 95.0, 150.0, 60.0])
    )
    promises = [
        promise(101, 30.0, 50.0),
        promise(102, 6.0, 9.0),
        promise(103, 10.0, 20.0),
        promise(104, 39.0, 41.0, is_start=False),
        promise(999, 1.0, 2.0),
    ]

    found = list(savings(promises, plain, advised, again, IDS, SPEEDUP))

    assert [saving.came_s / SPEEDUP for saving in found] == pytest.approx([40.0, 5.0, -50.0, 40.0])
    assert [saving.is_held for saving in found] == [True, False, False, True]
    # Three of four jobs differ by a second between the plain clusters.
    assert [saving.is_held_or_noise for saving in found] == [True, True, False, True]
    assert found[0].low_s == 30.0 * SPEEDUP


def test_without_a_second_plain_cluster_nothing_is_noise() -> None:
    trace = made_trace(4)
    plain, advised = (stretched(made_run(trace, [wait_s] * 4), SPEEDUP) for wait_s in (100.0, 95.0))

    found = list(savings([promise(101, 6.0, 9.0)], plain, advised, None, IDS, SPEEDUP))

    assert [(saving.is_held, saving.is_held_or_noise) for saving in found] == [(False, False)]


def test_a_job_that_did_not_finish_tells_nothing_of_its_end() -> None:
    plain, advised = (made_run(made_trace(4), [100.0] * 4) for _ in range(2))
    outcomes = advised.outcomes.copy()
    outcomes["end"][0] = 0

    found = savings(
        [promise(101, 1.0, 2.0, is_start=False)], plain, replace(advised, outcomes=outcomes), None, IDS, 1.0
    )

    assert list(found) == []
