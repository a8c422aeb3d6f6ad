"""The scaling law, and how points teach it."""

import numpy as np
import pytest

from advisor.predict.scaling import COUNT, DEFAULT, INSIDE, PARAMETERS, VOLUME, Prior, learn, log_step, slopes
from tests.predict.throughput_cluster import THETA, work

EVERYWHERE = ("1", "2", "4", "11", "22", "44", "13", "111", "222", "444", "1111", "2222", "4444")


def test_one_gpu_at_the_reference_batch_takes_the_scale() -> None:
    found = log_step(THETA, work("1", batch=1.0))

    assert found == pytest.approx(THETA[0])


@pytest.mark.parametrize(
    ("longer", "shorter"),
    [(("4", 2.0), ("4", 1.0)), (("4", 1.0), ("1", 1.0)), (("11", 1.0), ("1", 1.0)), (("44", 1.0), ("22", 1.0))],
    ids=["batch", "gpus on a node", "nodes", "gpus on two nodes"],
)
def test_step_grows_with(longer: tuple[str, float], shorter: tuple[str, float]) -> None:
    more, less = (log_step(THETA, work(place, batch=batch))[0] for place, batch in (longer, shorter))

    assert more > less


def test_two_nodes_can_be_slower_than_three() -> None:
    two, three = log_step(THETA, work("22", "222", batch=1.0))

    assert two > three


def test_rows_of_many_jobs_get_the_law_of_each() -> None:
    other = THETA + 0.1
    rows = work("22", "22", batch=2.0)

    found = log_step(np.array([THETA, other]), rows)

    assert found.tolist() == pytest.approx([log_step(THETA, rows)[0], log_step(other, rows)[0]])


def test_slopes_are_those_of_the_law() -> None:
    rows, moved = work("13", "4", batch=3.0), THETA.copy()
    moved[VOLUME] += 1e-3

    found = slopes(THETA, rows)

    assert found.shape == (2, COUNT) and len(PARAMETERS) == COUNT
    assert found[:, VOLUME] * 1e-3 == pytest.approx(log_step(moved, rows) - log_step(THETA, rows), rel=1e-2)


def test_law_is_found_from_points_on_all_placements() -> None:
    points = work(*EVERYWHERE * 2, batch=1.0)
    points = points.take(np.arange(len(points)))
    points.batch[len(EVERYWHERE) :] = 4.0

    law = learn(points, log_step(THETA, points), DEFAULT)

    assert log_step(law.theta, points) == pytest.approx(log_step(THETA, points), abs=0.05)


def test_without_points_the_law_is_the_prior() -> None:
    law = learn(work(), np.zeros(0), DEFAULT)

    assert law.theta.tolist() == DEFAULT.mean.tolist()
    assert np.sqrt(np.diag(law.covariance)) == pytest.approx(DEFAULT.deviation)


def test_one_node_says_nothing_of_the_network() -> None:
    points = work("1", "2", "4", batch=1.0)

    law = learn(points, log_step(THETA, points), DEFAULT)

    assert law.theta[VOLUME] == pytest.approx(DEFAULT.mean[VOLUME])
    assert law.covariance[INSIDE, INSIDE] < DEFAULT.deviation[INSIDE] ** 2


def test_an_outlier_hardly_moves_the_law() -> None:
    points = work(*EVERYWHERE * 3, batch=1.0)
    off = log_step(THETA, points)
    off[3] += 3.0
    near = Prior(mean=THETA, deviation=DEFAULT.deviation)

    law = learn(points, off, near)

    # The mean of the three points there is off by 1.
    assert np.abs(log_step(law.theta, points) - log_step(THETA, points)).max() < 0.15
