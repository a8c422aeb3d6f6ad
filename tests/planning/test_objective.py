"""The order of waiting jobs, sizes over weights, and which jobs of a line are lifted by it within the bounds."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.domain.forecast import Interval
from advisor.domain.standings import Standing
from advisor.planning.lifts import Bounds, Stakes, lifted_priority, lifts
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


BOUNDS = Bounds(places=4, gpu_s=100.0, user_ratio=0.5)


def lifted_rows(
    *jobs: tuple[float, float, int],
    bounds: Bounds = BOUNDS,
    tasks: int = 1,
    already: tuple[int, ...] = (),
    spent: tuple[float, ...] | None = None,
) -> set[int]:
    """Return the rows of the jobs `(key, GPU-seconds, user)` that are lifted above a job with the highest key."""
    key, gpu_s, user = np.array([*jobs, (1e6, 1e6, 9)], dtype=np.float64).T
    count = len(key)
    priority = np.r_[np.zeros(count - 1), 10.0]
    is_lifted = np.isin(np.arange(count), already)
    # Jobs that are lifted stand before all others.
    priority[is_lifted] = 1e9
    lane = None if spent is None else np.r_[np.array(spent), np.zeros(10 - len(spent))]
    chosen = lifts(
        key,
        priority,
        is_lifted,
        np.ones(count, dtype=np.bool_),
        Stakes(gpu_s=gpu_s, tasks=np.full(count, float(tasks)), user=user.astype(np.intp), spent=lane),
        bounds=bounds,
        scale=1000.0,
    )
    return set(chosen.row.tolist())


@pytest.mark.parametrize(("scale", "points"), [(0.0, 1000.0), (999.0, 1000.0), (5000.0, 5000.0), (9e9, 2e7)])
def test_half_of_a_key_is_worth_the_points_that_a_job_can_move_within_bounds(scale: float, points: float) -> None:
    smaller, larger = lifted_priority(np.array([8.0, 16.0]), 0.0, scale)

    assert smaller - larger == points


def test_one_user_has_half_of_the_places_while_jobs_of_others_wait() -> None:
    jobs = [(1.0, 1.0, 0), (2.0, 1.0, 0), (3.0, 1.0, 0), (4.0, 1.0, 0), (5.0, 1.0, 1), (6.0, 1.0, 1), (7.0, 1.0, 1)]

    assert lifted_rows(*jobs) == {0, 1, 4, 5}


def test_places_that_no_other_user_takes_are_left_to_one() -> None:
    jobs = [(float(key), 1.0, 0) for key in range(1, 9)]

    # The job with the highest key, of another user, takes a place and is not lifted.
    assert lifted_rows(*jobs) == {0, 1, 2}


@pytest.mark.parametrize(
    ("jobs", "rows"),
    [
        pytest.param([(1.0, 40.0, 0), (2.0, 40.0, 0), (3.0, 10.0, 0)], {0, 2}, id="half of the work of one user"),
        pytest.param([(1.0, 50.0, 0), (2.0, 40.0, 1), (3.0, 11.0, 2)], {0, 1}, id="the work of all"),
        pytest.param([(1.0, 70.0, 0)], {0}, id="a single job beyond the share of its user"),
        pytest.param([(1.0, 170.0, 0), (2.0, 1.0, 1)], {0}, id="a single job beyond the bound, and nothing beside it"),
        pytest.param([(0.0, 300.0, 0), (2.0, 1.0, 1)], {0}, id="what goes before all others"),
    ],
)
def test_work_of_lifts_is_bounded(jobs: list[tuple[float, float, int]], rows: set[int]) -> None:
    assert lifted_rows(*jobs) == rows


def test_work_that_is_lifted_and_has_not_started_counts() -> None:
    jobs = [(1.0, 45.0, 0), (2.0, 10.0, 0), (3.0, 10.0, 1)]

    assert lifted_rows(*jobs, already=(0,)) == {2}


@pytest.mark.parametrize(
    ("jobs", "spent", "rows"),
    [
        pytest.param([(1.0, 50.0, 0), (2.0, 40.0, 1), (3.0, 11.0, 2)], (), {0, 1}, id="all that there is"),
        pytest.param([(1.0, 20.0, 0), (2.0, 20.0, 1)], (40.0,), {1}, id="half of it for one user"),
        pytest.param([(1.0, 20.0, 0), (2.0, 20.0, 1)], (0.0, 0.0, 70.0), {0}, id="spent for a user who waits no more"),
        pytest.param([(1.0, 1.0, 0), (2.0, 1.0, 1)], (0.0, 0.0, 100.0), set(), id="all spent"),
        pytest.param([(1.0, 101.0, 0)], (), set(), id="a single job beyond the bound"),
    ],
)
def test_a_lane_counts_what_was_lifted_in_place_of_what_waits(
    jobs: list[tuple[float, float, int]], spent: tuple[float, ...], rows: set[int]
) -> None:
    assert lifted_rows(*jobs, spent=spent) == rows


@pytest.mark.parametrize(
    ("key", "priority", "rows"),
    [
        pytest.param([0.0], [1e9], set(), id="alone"),
        pytest.param([0.0, 0.0], [1e9, 2e9], set(), id="both before all others"),
        pytest.param([0.0, 5.0], [1e9, 2e9], {0}, id="behind another"),
        pytest.param([0.0, 5.0], [2e9, 1e9], set(), id="ahead of another"),
    ],
)
def test_where_all_jobs_are_lifted_only_one_that_another_precedes_is_lifted_again(
    key: list[float], priority: list[float], rows: set[int]
) -> None:
    count = len(key)
    everyone = np.ones(count, dtype=np.bool_)
    stakes = Stakes(gpu_s=np.ones(count), tasks=np.ones(count), user=np.arange(count))

    chosen = lifts(np.array(key), np.array(priority), everyone, everyone, stakes, bounds=BOUNDS, scale=1000.0)

    assert set(chosen.row.tolist()) == rows


def test_array_is_lifted_as_a_whole_or_not_at_all() -> None:
    assert lifted_rows((1.0, 50.0, 0), tasks=50) == {0}
    assert lifted_rows((1.0, 51.0, 0), tasks=51) == set()
