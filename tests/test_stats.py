import numpy as np
import pytest

from advisor.stats import mean_interval, t_quantile, t_quantile_of_tests


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (19, 2.093), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980), (10**6, 1.960)],
)
def test_quantile_is_that_of_the_printed_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=5e-4)


def test_more_freedom_gives_a_smaller_quantile() -> None:
    quantiles = [t_quantile(freedom) for freedom in range(1, 200)]

    assert quantiles == sorted(quantiles, reverse=True)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 3.078), (4, 1.533), (5, 1.476), (30, 1.310), (10**6, 1.282)])
def test_quantile_of_the_80_percent_interval_is_that_of_the_printed_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom, coverage=0.8) == pytest.approx(quantile, abs=3e-3)


@pytest.mark.parametrize(("freedom", "tests", "quantile"), [(30, 1, 2.042), (10, 5, 3.169), (60, 5, 2.660)])
def test_quantile_of_several_tests_is_that_of_the_printed_tables(freedom: int, tests: int, quantile: float) -> None:
    assert t_quantile_of_tests(freedom, tests) == pytest.approx(quantile, abs=5e-3)


@pytest.mark.parametrize("coverage", [0.95, 0.8])
def test_interval_of_a_mean_covers_the_expectation_as_often_as_stated(coverage: float) -> None:
    rng = np.random.default_rng(1)
    drawn = [mean_interval(rng.normal(3.0, 2.0, 6), coverage=coverage) for _ in range(2000)]

    assert np.mean([low <= 3.0 <= high for _, low, high in drawn]) == pytest.approx(coverage, abs=0.02)


def test_interval_of_one_value_has_no_ends() -> None:
    assert np.isnan(mean_interval([-5.0])[1:]).all()
    assert mean_interval([-5.0, -5.0]) == (-5.0, -5.0, -5.0)
