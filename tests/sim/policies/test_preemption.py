"""Who comes first where the network hurts, and when pushing others aside pays."""

import numpy as np
import pytest

from advisor.sim.policies.dally_preempt import KEY_MARGIN, give_way, keys, pays, stopping_cost_s


def keys_of(*jobs: tuple[float, float, float]) -> list[float]:
    """Return the keys of jobs given by what they did, how long that took, and their GPU-time."""
    done_s, held_s, attained_gpu_s = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    return [float(key) for key in keys(done_s, held_s, attained_gpu_s)]


def test_a_job_that_never_ran_comes_first() -> None:
    assert keys_of((0.0, 0.0, 0.0), (10.0, 100.0, 10.0))[0] == 0.0


def test_of_jobs_that_had_as_much_the_one_that_its_places_hurt_comes_first() -> None:
    # The second did a quarter of what it could have done, the third all.
    assert keys_of((0.0, 0.0, 0.0), (25.0, 100.0, 400.0), (100.0, 100.0, 400.0)) == pytest.approx([0.0, 0.5, 1.0])


def test_of_jobs_alike_hurt_the_one_that_had_less_comes_first() -> None:
    assert keys_of((100.0, 100.0, 9.0), (100.0, 100.0, 100.0)) == pytest.approx([0.3, 1.0])


def test_the_network_counts_as_much_as_the_gpu_time() -> None:
    # Half the speed and all of the GPU-time, or full speed and half of it.
    hurt, had_less = keys_of((50.0, 100.0, 100.0), (100.0, 100.0, 50.0))

    assert hurt == pytest.approx(had_less) == pytest.approx(0.5**0.5)


def test_nobody_did_better_than_on_its_best_place() -> None:
    assert keys_of((100.0, 99.0, 100.0)) == [1.0]


def test_first_seconds_of_service_count_against_each_other() -> None:
    one = np.ones(2)

    assert keys(one, one, np.array([0.125, 0.5])).tolist() == [0.5, 1.0]


def test_no_jobs_have_no_keys() -> None:
    nothing = np.zeros(0)

    assert keys(nothing, nothing, nothing).tolist() == []


@pytest.mark.parametrize(
    ("gain_s", "victims", "expected"),
    [
        pytest.param(2121.0, 1, True, id="more than twice the cost"),
        pytest.param(2120.0, 1, False, id="twice the cost"),
        pytest.param(2121.0, 2, False, id="each victim counts"),
        pytest.param(1.0, 0, True, id="any gain without victims"),
        pytest.param(0.0, 0, False, id="no gain"),
    ],
)
def test_preemption_pays_where_the_gain_is_more_than_twice_what_victims_lose(
    gain_s: float, victims: int, expected: bool
) -> None:
    # The gang runs for 1000 s, and a victim takes a minute to start again.
    assert pays(gain_s, stopping_cost_s(victims, 1000.0, 60.0)) == expected


def test_jobs_give_way_that_had_more_and_that_spreading_hurts_no_more() -> None:
    key = np.array([0.5 + KEY_MARGIN, 0.7, 0.7, 0.2])
    sensitivity = np.array([1.0, 1.3, 1.4, 1.0])

    can_go = give_way(key, sensitivity, gang_key=0.5, gang_sensitivity=1.3)

    assert can_go.tolist() == [False, True, False, False]
