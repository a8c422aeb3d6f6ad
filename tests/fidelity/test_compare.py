import math

import pytest

from tools.fidelity.compare import compare

SUBMITS = {1: 0.0, 2: 0.0, 3: 10.0, 4: 10.0}
LIVE = {1: 5.0, 2: 20.0, 3: 30.0, 4: 65.0}


def test_equal_starts_agree_fully() -> None:
    result = compare(LIVE, LIVE, submits=SUBMITS)

    assert result.job_count == 4
    assert result.correlation == pytest.approx(1.0)
    assert (result.mean_difference_s, result.largest_difference_s) == (0.0, 0.0)
    assert result.passed


def test_differences_are_averaged_over_all_jobs_without_sign() -> None:
    result = compare(LIVE, {1: 6.0, 2: 19.0, 3: 30.0, 4: 71.0}, submits=SUBMITS)

    assert result.mean_difference_s == pytest.approx((1 + 1 + 0 + 6) / 4)
    assert result.largest_difference_s == pytest.approx(6.0)


def test_allowed_difference_grows_with_the_mean_delay() -> None:
    result = compare(LIVE, LIVE, submits=SUBMITS)

    assert result.mean_delay_s == pytest.approx((5 + 20 + 20 + 55) / 4)
    assert result.allowed_difference_s == pytest.approx(3.0 + 0.03 * 25.0)


@pytest.mark.parametrize(
    ("shift_s", "passed"),
    [pytest.param(3.7, True, id="just within"), pytest.param(3.8, False, id="just beyond")],
)
def test_mean_difference_beyond_the_allowed_one_fails(shift_s: float, passed: bool) -> None:
    model = {job_id: start + shift_s for job_id, start in LIVE.items()}

    result = compare(LIVE, model, submits=SUBMITS)

    assert result.correlation == pytest.approx(1.0)
    assert result.passed is passed


def test_wrong_order_fails_however_close_the_times_are() -> None:
    close = {1: 100.0, 2: 101.0, 3: 102.0, 4: 103.0}

    result = compare(close, {1: 101.0, 2: 100.0, 3: 103.0, 4: 102.0}, submits=SUBMITS)

    assert result.mean_difference_s == pytest.approx(1.0)
    assert result.correlation == pytest.approx(0.6)
    assert not result.passed


def test_order_that_cannot_be_told_fails() -> None:
    same = dict.fromkeys(LIVE, 5.0)

    result = compare(same, same, submits=SUBMITS)

    assert math.isnan(result.correlation)
    assert not result.passed


def test_job_that_only_one_side_started_is_named() -> None:
    with pytest.raises(ValueError, match="only one side started: 4"):
        compare(LIVE, {1: 5.0, 2: 20.0, 3: 30.0}, submits=SUBMITS)


def test_no_jobs_are_not_an_agreement() -> None:
    with pytest.raises(ValueError, match="no job"):
        compare({}, {}, submits={})
