"""What is counted of places that were seen, and when more of them are worth a try."""

import math

import numpy as np
import pytest

from tools.train.sites.subspaces import (
    FIRST_RESIDUALS,
    MOST_SIGNATURES,
    PageHinkley,
    Signature,
    Subspace,
    Subspaces,
    TryAllowance,
    share_of,
    span_of,
)


def after(residuals: list[float], signature: str = "a") -> Subspaces:
    """Return subspaces after the residuals of one signature."""
    seen = Subspaces()
    for residual in residuals:
        seen = seen.updated(signature, residual)
    return seen


def test_signature_names_who_sends_and_where_in_one_order() -> None:
    one = Signature(classes=("gpt2", "bert"), span="one leaf", share="half", gpu_type="a100")
    other = Signature(classes=("bert", "gpt2"), span="one leaf", share="half", gpu_type="a100")

    assert one.text == other.text == "bert+gpt2|one leaf|half|a100"


def test_signature_is_short_and_its_parts_cannot_be_mistaken() -> None:
    many = Signature(classes=tuple("abcdefgh"), span="one leaf", share="half", gpu_type="")
    odd = Signature(classes=("a|b+c",), span="one leaf", share="half", gpu_type="x|y")

    assert many.text == "a+b+c+d+e+f+2 more|one leaf|half|other"
    assert odd.text == "a b c|one leaf|half|x y"


def test_places_are_classed_by_span_and_share() -> None:
    assert [span_of(*place) for place in ((1, 1), (2, 1), (2, 2))] == ["one server", "one leaf", "several leaves"]
    assert [share_of(gpus, 8) for gpus in (1, 2, 3, 4, 5, 8)] == ["quarter", "quarter", "half", "half", "part", "whole"]


def test_counts_and_squared_residuals_are_kept_by_signature() -> None:
    seen = after([2.0, 1.0]).updated("b", -3.0)

    assert seen.total == 3
    assert seen.of("a").count == 2 and seen.of("a").squared == pytest.approx(0.9 * 4.0 + 0.1)
    assert seen.of("b") == Subspace(count=1, squared=9.0)
    assert seen.of("c") == Subspace()


def test_what_is_not_finite_is_not_counted() -> None:
    assert after([1.0]).updated("a", math.nan) == after([1.0])


def test_rarest_signature_is_dropped_beyond_the_bound() -> None:
    full = {f"s{number}": Subspace(count=2, squared=1.0) for number in range(MOST_SIGNATURES)}
    full["s7"] = Subspace(count=1, squared=1.0)

    seen = Subspaces(seen=full, total=9999).updated("new", 1.0)

    assert len(seen.seen) == MOST_SIGNATURES
    assert "s7" not in seen.seen and seen.of("new").count == 1


def test_rare_wrong_and_disputed_places_are_worth_more() -> None:
    seen = Subspaces(
        seen={
            "known": Subspace(count=100, squared=1.0),
            "rare": Subspace(count=1, squared=1.0),
            "wrong": Subspace(count=100, squared=9.0),
        },
        total=201,
    )
    utility = seen.utilities(["known", "rare", "wrong", "known"], np.array([0.1, 0.1, 0.1, 0.4]))

    assert utility.argmin() == 0
    assert utility[3] - utility[0] == pytest.approx(0.3 / np.std([0.1, 0.1, 0.1, 0.4]))
    assert utility[2] - utility[0] == pytest.approx(8.0 / np.std([1.0, 1.0, 9.0, 1.0]))
    assert utility[1] - utility[0] == pytest.approx(
        0.5 * (math.sqrt(math.log(201) / 2) - math.sqrt(math.log(201) / 101))
    )


def test_alike_places_are_worth_the_same() -> None:
    assert Subspaces().utilities(["a", "b"], np.array([0.1, 0.1])).tolist() == [0.0, 0.0]


def test_shift_is_found_and_steady_residuals_are_none() -> None:
    rng = np.random.default_rng(0)
    steady, shifted = PageHinkley(), PageHinkley()
    for residual in np.abs(rng.normal(size=2000)):
        steady = steady.updated(float(residual))
        assert not steady.has_shifted
    for residual in np.abs(rng.normal(size=200)):
        shifted = shifted.updated(float(residual))
    steps = 0
    while not shifted.has_shifted:
        shifted, steps = shifted.updated(float(abs(rng.normal(0.0, 3.0)))), steps + 1

    assert 1 < steps < 40


def test_allowance_falls_with_the_residual_and_a_shift_renews_it() -> None:
    allowance = TryAllowance()
    for _ in range(FIRST_RESIDUALS):
        allowance = allowance.updated(1.0)
        assert allowance.kappa == 1.0
    for _ in range(40):
        allowance = allowance.updated(0.1)
    assert allowance.kappa == pytest.approx(0.1, abs=0.03)

    steps = 0
    while allowance.kappa < 1.0:
        allowance, steps = allowance.updated(-4.0), steps + 1

    assert steps < 30
    for _ in range(30):
        allowance = allowance.updated(4.0)
    assert allowance.kappa == 1.0
