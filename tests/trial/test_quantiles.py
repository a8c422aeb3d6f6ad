import pytest

from advisor.trial.quantiles import t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (19, 2.093), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980), (10**6, 1.960)],
)
def test_quantile_is_that_of_the_printed_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=5e-4)


def test_more_freedom_gives_a_smaller_quantile() -> None:
    quantiles = [t_quantile(freedom) for freedom in range(1, 200)]

    assert quantiles == sorted(quantiles, reverse=True)
