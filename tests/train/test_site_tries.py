"""What a place holds in store for a gang and for those that it would slow, and when more places are worth a try."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.features.observe.graph import Neighbours, Residents, Servers
from advisor.features.observe.pointer import Gang
from advisor.features.observe.site_speeds import SiteSpeeds
from tools.train.site_tries import (
    FIRST_RESIDUALS,
    MOST_SIGNATURES,
    PLACE_SPREAD,
    PageHinkley,
    Prospect,
    Signature,
    Subspace,
    Subspaces,
    Surroundings,
    TryAllowance,
    Z,
    best_try,
    prospect_of,
    share_of,
    span_of,
)

GANG = Gang(gpus=8, fewest_nodes=2, model=0, leaf_inflation=1.1, spine_inflation=1.3, run_s=3600.0, wait_s=0.0)
ADDED, VARIANCE = 0.1, 0.0009


def around(
    *, speeds: SiteSpeeds | None = None, crossing: tuple[int, ...] = (0, 0), left_s: float = 1800.0
) -> Surroundings:
    """Return six servers under two leaves: a gang of model 1 sends from the first two, one of model 0 has the third."""
    tables = SiteSpeeds(
        models=("bert", "gpt2"),
        gpu_types=("a100", "v100"),
        log_speed=np.tile([0.0, -0.1, 0.0], (3, 1)),
        speed_variance=np.full((3, 3), 0.0004),
        place_weight=np.full(3, 0.5),
        neighbours=Neighbours.of(np.full((3, 3), ADDED)),
        added_variance=np.full((3, 3), VARIANCE),
    )
    residents = Residents(
        gang=np.array([0, 0, 1]),
        server=np.array([0, 1, 2]),
        held=np.array([4, 4, 4]),
        gpus=np.array([8, 4]),
        nodes=np.array([2, 1]),
        model=np.array([1, 0]),
        left_s=np.array([left_s, np.nan]),
    )
    servers = Servers(
        gpus=np.full(6, 8),
        free=np.array([4, 4, 4, 8, 8, 8]),
        is_up=np.ones(6, np.bool_),
        leaf=np.array([0, 0, 0, 1, 1, 1]),
    )
    return Surroundings(
        speeds=tables if speeds is None else speeds,
        servers=servers,
        residents=residents,
        types=np.array([0, 0, 0, 0, 0, 1]),
        leaf_crossing=np.array(crossing),
        protected=np.zeros(2, np.bool_),
    )


def prospect(place: tuple[int, ...], chosen: tuple[int, ...] = (3, 4), site: Surroundings | None = None) -> Prospect:
    return prospect_of(around() if site is None else site, GANG, place, (4, 4), chosen)


def test_own_choice_costs_its_neighbours_alone() -> None:
    own, beside = prospect((3, 4)), prospect((0, 1), chosen=(0, 1))

    assert (own.lowest, own.loss, own.affected) == (0.0, 0.0, ())
    # Both run together for half of its run time.
    assert beside.loss == pytest.approx(ADDED / 2)
    assert beside.affected == (0,)


def test_place_beside_a_gang_slows_both() -> None:
    beside = prospect((0, 1))

    assert beside.affected == (0,)
    assert beside.lowest == pytest.approx(-np.log1p(ADDED) - Z * np.sqrt(VARIANCE))
    assert beside.loss == pytest.approx(ADDED + ADDED / 2)
    assert beside.signature == "bert+gpt2|one leaf|half|a100"
    assert [beside.keeps(share) for share in (0.13, 0.14)] == [False, True]


def test_job_on_one_server_is_not_slowed() -> None:
    assert prospect((2, 3), chosen=(2, 4)).affected == ()


def test_unknown_remaining_time_counts_as_that_of_the_gang() -> None:
    assert prospect((0, 1), site=around(left_s=float("nan"))).loss == pytest.approx(2 * ADDED)


def test_slower_gpus_and_what_is_unsure_of_them_count() -> None:
    slower = prospect((4, 5))

    assert slower.lowest == pytest.approx(-0.1 - Z * np.sqrt(2 * 0.0004))
    assert slower.loss == pytest.approx(np.expm1(0.1))


def test_wider_span_counts_with_the_spread_of_its_weight() -> None:
    farther = 0.5 * np.log(1.3 / 1.1)

    assert prospect((2, 3)).lowest == pytest.approx(-farther * (1.0 + Z * PLACE_SPREAD))


def test_neighbours_in_common_cancel() -> None:
    assert prospect((0, 2), chosen=(0, 1)).lowest == pytest.approx(-np.log1p(ADDED) - Z * np.sqrt(VARIANCE))
    assert prospect((0, 2), chosen=(0, 1)).loss == pytest.approx(ADDED / 2)


def test_links_between_leaves_are_left_alone_where_others_send() -> None:
    open_, used = (prospect((2, 3), site=around(crossing=crossing)) for crossing in ((0, 0), (1, 0)))
    used_already = prospect((2, 3), chosen=(2, 4), site=around(crossing=(1, 1)))

    assert (open_.is_open, used.is_open, used_already.is_open) == (True, False, True)


def test_protected_gang_closes_the_servers_from_which_it_sends() -> None:
    site = replace(around(), protected=np.array([True, True]))

    assert not prospect((0, 1), site=site).is_open
    assert prospect((2, 3), chosen=(2, 4), site=site).is_open
    assert prospect((0, 1), chosen=(0, 1), site=site).is_open


def test_what_is_not_known_of_a_neighbour_alone_is_never_safe() -> None:
    speeds = around().speeds
    variance = speeds.added_variance.copy()
    variance[1, 0] = np.nan

    assert not prospect((0, 1), site=around(speeds=replace(speeds, added_variance=variance))).keeps(0.5)


@pytest.mark.parametrize("table", ["added_variance", "log_speed"])
def test_what_is_not_finite_is_never_safe(table: str) -> None:
    speeds = around().speeds
    broken: dict[str, Any] = {table: np.full(getattr(speeds, table).shape, np.nan)}

    assert not prospect((0, 1), site=around(speeds=replace(speeds, **broken))).keeps(0.5)


def test_best_try_weighs_what_it_teaches_against_what_it_costs() -> None:
    own, other = prospect((3, 4)), prospect((0, 1))

    assert best_try([own, other], 0.15, np.array([0.0, 0.9]), 1.0) == 0
    assert best_try([own, other], 0.15, np.array([0.0, 1.1]), 1.0) == 1
    assert best_try([own, other], 0.15, np.array([0.0, 1.1]), 0.5) == 0
    assert best_try([own, own], 0.15, np.zeros(2), 1.0) == 0


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
