"""Which jobs of a line are lifted within the bounds, on arrays."""

import numpy as np
import pytest

from advisor.planning.lifts import Bounds, Stakes, lifted_priority, lifts

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
