"""The order of waiting jobs: sizes over weights."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.domain.forecast import Interval
from advisor.domain.standings import Standing
from advisor.planning.objective import Objective, Waiting, credit, owed, owed_to
from advisor.settings import Limits

BY_SIZE = Objective(decades=3.0, scale=10_000.0, patience_s=1800.0, max_credit=3.0, is_weighed=False)
WEIGHED = Objective(decades=3.0, scale=10_000.0, patience_s=1800.0, max_credit=3.0, is_weighed=True)


def waiting(**columns: list[float]) -> Waiting:
    """Return jobs alike but for some columns, with 8 GPUs for all."""
    count = len(next(iter(columns.values())))
    alike = {
        "priority": np.full(count, 5000.0),
        "gpu_s": np.full(count, 3600.0),
        "tasks": np.ones(count),
        "run_s": np.full(count, 3600.0),
        "waited_s": np.zeros(count),
        "owed": np.zeros(count),
        "is_overdue": np.zeros(count, np.bool_),
    }
    return Waiting(**alike | {name: np.array(values) for name, values in columns.items()}, capacity=8.0)


def order(objective: Objective, line: Waiting) -> list[int]:
    return [int(row) for row in np.argsort(objective.keys(line), kind="stable")]


def test_without_weights_the_least_gpu_time_goes_first() -> None:
    line = waiting(gpu_s=[300.0, 100.0, 200.0], priority=[9.0, 1.0, 5.0], waited_s=[1e6, 0.0, 0.0])

    assert order(BY_SIZE, line) == [1, 2, 0]


def test_the_priority_of_the_site_outweighs_sizes_by_its_decades() -> None:
    full_range = waiting(priority=[10_000.0, 0.0], gpu_s=[900.0, 1.0])

    # A thousand times the size counts as much as the whole range, but for the part of the turnaround waited.
    assert order(WEIGHED, full_range) == [0, 1]
    assert order(replace(WEIGHED, decades=0.0), full_range) == [1, 0]


def test_a_job_near_its_turn_is_not_passed_by_a_somewhat_shorter_one() -> None:
    near = waiting(priority=[5001.0, 5000.0], waited_s=[40_000.0, 0.0], gpu_s=[4000.0, 3600.0])
    fresh = replace(near, waited_s=np.zeros(2))

    assert order(WEIGHED, near) == [0, 1]
    assert order(WEIGHED, fresh) == [1, 0]


def test_turnaround_counts_the_work_ahead_in_the_order_of_the_site() -> None:
    line = waiting(priority=[1.0, 3.0, 2.0], gpu_s=[800.0, 1600.0, 8000.0], run_s=[100.0, 200.0, 1000.0])

    assert line.turnaround_s().tolist() == [1300.0, 200.0, 1200.0]


def test_tasks_of_an_array_go_by_the_size_of_one_and_hold_up_others_by_all() -> None:
    line = waiting(priority=[2.0, 1.0], gpu_s=[800.0, 900.0], tasks=[10.0, 1.0])

    assert order(BY_SIZE, line) == [0, 1]
    assert line.turnaround_s().tolist() == [3600.0, 4600.0]


def test_jobs_of_equal_priority_stand_in_the_order_of_the_rows() -> None:
    assert waiting(gpu_s=[800.0, 800.0], run_s=[100.0, 100.0]).turnaround_s().tolist() == [100.0, 200.0]


def test_a_user_who_is_owed_goes_first_up_to_a_bound() -> None:
    line = waiting(owed=[0.0, 0.5, 2.0, 1e9, -3.0], gpu_s=[100.0] * 5)
    keys = replace(WEIGHED, decades=0.0).keys(replace(line, priority=np.zeros(5), capacity=np.inf))

    assert keys[0] / keys[1:] == pytest.approx([10**0.25, 3.0, 3.0, 1.0])


def test_overdue_jobs_go_before_all_others() -> None:
    line = waiting(is_overdue=[False, True], gpu_s=[1.0, 1e9])

    assert order(WEIGHED, line) == [1, 0]


def test_users_are_owed_what_they_waited_beyond_the_larger_allowance() -> None:
    limits = Limits(agreed_delay_s=1800.0, agreed_delay_ratio=0.05)
    given_s, plain_s, jobs = (
        np.array([1800.0, 10_000.0, -500.0, 0.0]),
        np.array([100.0, 1e6, 0.0, 0.0]),
        np.array([2.0, 1.0, 1.0, 0.0]),
    )

    assert owed(given_s, plain_s, jobs, limits) == pytest.approx([0.5, 0.2, -500.0 / 1800.0, 0.0])


def test_users_are_owed_by_the_least_that_they_waited_longer() -> None:
    def standing(low_s: float, high_s: float) -> Standing:
        plain = Interval(low=low_s, median=(low_s + high_s) / 2.0, high=high_s)
        return Standing(jobs=1, waited_s=10_000.0, plain_s=plain)

    certain, doubtful, none = owed_to(
        [standing(0.0, 6_400.0), standing(0.0, 10_000.0), standing(9_000.0, 20_000.0)],
        Limits(agreed_delay_s=1800.0, agreed_delay_ratio=0.05),
    )

    assert (certain, doubtful) == pytest.approx((2.0, 0.0))
    assert none < 0.0
    assert owed_to([], Limits()).tolist() == []


def test_credit_can_be_switched_off() -> None:
    assert credit(np.array([0.0, 5.0]), 1.0).tolist() == [1.0, 1.0]


def test_sites_without_weights_of_fair_share_keep_classes_apart() -> None:
    classes = Objective(decades=3.0, scale=1.0, patience_s=1800.0, max_credit=3.0, is_weighed=True)

    assert order(classes, waiting(priority=[1000.0, 2000.0], gpu_s=[1.0, 1e8])) == [1, 0]
