"""A gang gets servers one by one: few, under one leaf, tight, and away from gangs that slow it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.features.observe.graph import Neighbours, Residents, Servers
from advisor.features.observe.pointer import (
    CHOICE_COLUMNS,
    GANG_COLUMNS,
    Choice,
    Gang,
    Interference,
    best_fit,
    interference_of,
)

NEIGHBOURS = Neighbours.of(np.array([[0.0, 0.5], [0.25, 1.0]]))


def gang(gpus: int, fewest_nodes: int = 1) -> Gang:
    return Gang(
        gpus=gpus,
        fewest_nodes=fewest_nodes,
        model=0,
        leaf_inflation=1.2,
        spine_inflation=2.0,
        run_s=3600.0,
        wait_s=0.0,
    )


def choice(gpus: int, usable: list[int], leaf: list[int], slows: list[float] | None = None) -> Choice:
    none = np.zeros(len(usable))
    return Choice(
        gang=gang(gpus),
        usable=np.array(usable, np.intp),
        leaf=np.array(leaf, np.intp),
        leaf_crossing=np.zeros(max(leaf) + 1, np.intp),
        interference=Interference(slows_me=none if slows is None else np.array(slows), slows_others=none),
        chosen=[],
        taken=[],
    )


def servers_by_rule(of: Choice) -> list[int]:
    while of.rest > 0 and (server := best_fit(of)) is not None:
        of.choose(server)
    return of.chosen


def test_gang_that_fits_one_server_takes_the_tightest() -> None:
    assert servers_by_rule(choice(4, [8, 6, 4, 5], [0, 0, 1, 1])) == [2]


def test_larger_gang_stays_under_the_tightest_leaf_that_holds_it() -> None:
    assert servers_by_rule(choice(12, [8, 8, 8, 8, 8], [0, 0, 0, 1, 1])) == [3, 4]


def test_gang_that_no_leaf_holds_begins_under_the_one_with_most_free_gpus() -> None:
    assert servers_by_rule(choice(20, [8, 4, 8, 2], [0, 0, 1, 1])) == [0, 1, 2]


def test_among_equally_tight_servers_the_one_with_least_interference_is_chosen() -> None:
    assert servers_by_rule(choice(4, [4, 4, 4], [0, 0, 0], [0.3, 0.1, 0.2])) == [1]


def test_gang_that_does_not_fit_gets_no_server() -> None:
    assert best_fit(choice(9, [4, 4], [0, 0])) is None
    assert not choice(9, [4, 4], [0, 0]).legal.any()


@given(
    usable=st.lists(st.integers(0, 8), min_size=1, max_size=12),
    gpus=st.integers(1, 64),
    seed=st.integers(0, 1000),
)
def test_any_legal_choices_give_a_gang_exactly_its_gpus_or_none(usable: list[int], gpus: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    of = choice(gpus, usable, [number // 3 for number in range(len(usable))])
    fits = sum(usable) >= gpus

    while of.rest > 0 and of.legal.any():
        of.choose(int(rng.choice(np.flatnonzero(of.legal))))

    assert sum(of.taken) == (gpus if fits else 0)
    assert len(set(of.chosen)) == len(of.chosen)
    assert all(taken <= usable[server] for server, taken in zip(of.chosen, of.taken, strict=True))


def test_interference_adds_up_over_the_gangs_that_span_servers() -> None:
    servers = Servers(
        gpus=np.array([8, 8]), free=np.array([2, 6]), is_up=np.ones(2, np.bool_), leaf=np.zeros(2, np.intp)
    )
    residents = Residents(
        gang=np.array([0, 0, 1, 2]),
        server=np.array([0, 1, 0, 0]),
        held=np.array([2, 2, 2, 2]),
        gpus=np.array([4, 2, 4]),
        nodes=np.array([2, 1, 2]),
        model=np.array([1, 1, 0]),
        left_s=np.zeros(3),
    )

    spread = interference_of(gang(16, fewest_nodes=2), servers, residents, NEIGHBOURS)
    alone = interference_of(gang(4), servers, residents, NEIGHBOURS)

    assert spread.slows_me.tolist() == [0.5, 0.5]
    assert spread.slows_others.tolist() == [0.25, 0.25]
    assert not alone.slows_me.any()
    assert not alone.slows_others.any()


def test_columns_are_named_and_finite() -> None:
    of = choice(12, [8, 8, 0, 4], [0, 0, 1, 1])
    of.choose(0)

    columns = of.columns()

    assert columns.shape == (4, len(CHOICE_COLUMNS))
    assert of.gang_columns(NEIGHBOURS).shape == (len(GANG_COLUMNS),)
    assert np.isfinite(columns).all()
    assert columns[:, CHOICE_COLUMNS.index("holds_rest")].tolist() == [1.0, 1.0, 0.0, 1.0]
    assert columns[:, CHOICE_COLUMNS.index("is_tight")].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert columns[1, CHOICE_COLUMNS.index("leaf_is_chosen")] == pytest.approx(1.0)
