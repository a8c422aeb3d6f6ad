"""Delay timers from the waits that were seen, on cases small enough to compute by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.memory import Wait
from advisor.domain.topology import LocalityTier
from advisor.planning.tuning import (
    EDGES_S,
    MEMORIES,
    UNSEEN_MEANS,
    Rates,
    Seen,
    Tuner,
    Tuning,
    best_wait_s,
    mean_gain_s,
    rates,
    timer_s,
    tuning_of,
)
from advisor.settings import PlanningSettings

NODE, LEAF = LocalityTier.NODE, LocalityTier.LEAF
NOW = 1_000_000.0
MEMORY_S = 3600.0
# Two imagined waits with a mean of 10 min for few nodes, of 30 min for a leaf.
TUNING = Tuning(expected_s={NODE: 600.0, LEAF: 1800.0}, imagined=2.0, memory_s=MEMORY_S)
STRETCHES = len(EDGES_S) - 1


def wait(waited_s: float, *, got: bool = True, ago_s: float = 0.0, gpus: int = 16, tier: LocalityTier = NODE) -> Wait:
    return Wait(gpus=gpus, tier=tier, waited_s=waited_s, got=got, ended_time=NOW - ago_s)


def means_s(*waits: Wait) -> list[float]:
    """Return the mean wait for a place that each stretch of waiting promises."""
    return [float(mean_s) for mean_s in 1.0 / rates(waits, NOW, TUNING, NODE)]


def mean_of(tuner: Tuner, gpus: int = 16, tier: LocalityTier = NODE) -> float:
    return float(1.0 / tuner.rates(gpus, tier)[0])


def worth_of(wait_s: float, rate_per_s: Rates, worth_s: float) -> float:
    """Return what it is worth to wait so long: the place if it comes, less the time that is waited on average."""
    spent_s = np.clip(wait_s - EDGES_S[:-1], 0.0, np.diff(EDGES_S))
    waiting = np.exp(-np.r_[0.0, np.cumsum(rate_per_s * spent_s)])
    return float(worth_s * (1.0 - waiting[-1]) - ((waiting[:-1] - waiting[1:]) / rate_per_s).sum())


@pytest.mark.parametrize(("tier", "mean_s"), [(NODE, 600.0), (LEAF, 1800.0)])
def test_where_nothing_was_seen_the_settings_speak(tier: LocalityTier, mean_s: float) -> None:
    found = rates([], NOW, TUNING, tier)

    assert found == pytest.approx([1.0 / mean_s] * STRETCHES)


def test_places_that_come_after_ten_minutes_come_in_that_stretch() -> None:
    found = means_s(wait(600.0), wait(600.0))

    # Over all, 2 + 2 places in 1200 + 1200 s: one in 600. Two imagined places stand in each stretch beside what was
    # seen: none in 2 x 60 s, none in 2 x 120 s, two in 2 x 420 s, and nothing beyond.
    assert found == pytest.approx([660.0, 720.0, 510.0, *[600.0] * 5])


def test_a_wait_that_was_given_up_lowers_the_rate_and_adds_no_place() -> None:
    found = means_s(*[wait(600.0)] * 2, *[wait(600.0, got=False)] * 2)

    # Over all, 2 + 2 places in 2400 + 1200 s: one in 900.
    assert found == pytest.approx([1020.0, 1140.0, 870.0, *[900.0] * 5])


def test_a_wait_given_up_at_once_tells_nothing() -> None:
    assert means_s(*[wait(0.0, got=False)] * 50) == pytest.approx(means_s())


def test_a_wait_counts_half_after_the_memory() -> None:
    found = means_s(wait(60.0, ago_s=MEMORY_S))

    # Half a place in 30 s: over all 2.5 places in 1230 s, one in 492.
    assert found == pytest.approx([(30.0 + 2 * 492.0) / 2.5, *[492.0] * 7])


def test_what_happened_lately_weighs_more() -> None:
    calmer = means_s(wait(1000.0, ago_s=2 * MEMORY_S), wait(30.0))
    busier = means_s(wait(1000.0), wait(30.0, ago_s=2 * MEMORY_S))

    assert all(calm < busy for calm, busy in zip(calmer, busier, strict=True))


def test_a_wait_is_forgotten_after_six_memories() -> None:
    forgotten = Tuner([wait(60.0, ago_s=MEMORIES * MEMORY_S + 1.0)], NOW, TUNING)
    remembered = Tuner([wait(60.0, ago_s=MEMORIES * MEMORY_S)], NOW, TUNING)

    assert mean_of(forgotten) == pytest.approx(600.0)
    assert forgotten.seen(16, NODE).gangs == 0
    assert mean_of(remembered) < 599.0
    assert remembered.seen(16, NODE).gangs == 1


def test_waits_tell_of_their_class_and_tier_only() -> None:
    tuner = Tuner([wait(60.0, gpus=9), wait(60.0, gpus=500)], NOW, TUNING)

    assert mean_of(tuner, 16) == mean_of(tuner, 10) < 600.0
    assert mean_of(tuner, 64) == mean_of(tuner, 128) < 600.0
    assert [mean_of(tuner, gpus) for gpus in (1, 8, 17, 32)] == pytest.approx([600.0] * 4)
    assert mean_of(tuner, 16, LEAF) == pytest.approx(1800.0)


@pytest.mark.parametrize("worth_s", [0.0, 300.0, 600.0])
def test_nobody_waits_for_a_place_that_saves_no_more_than_the_mean_wait(worth_s: float) -> None:
    assert best_wait_s(np.full(STRETCHES, 1.0 / 600.0), worth_s, 10_000.0) == 0.0


@pytest.mark.parametrize("bound_s", [10.0, 60.0, 5000.0, 50_000.0])
def test_a_wait_that_always_pays_lasts_up_to_the_bound(bound_s: float) -> None:
    assert best_wait_s(np.full(STRETCHES, 1.0 / 600.0), 601.0, bound_s) == bound_s


def test_a_wait_ends_with_the_stretch_after_which_places_come_slower() -> None:
    slower_after_30_min = np.array([*[1.0 / 600.0] * 4, *[1.0 / 7200.0] * 4])

    assert best_wait_s(slower_after_30_min, 3600.0, 20_000.0) == 1800.0
    assert best_wait_s(slower_after_30_min, 3600.0, 1000.0) == 1000.0


def test_a_bad_minute_is_waited_through_where_better_ones_follow() -> None:
    slow_at_first = np.array([1.0 / 7200.0, *[1.0 / 600.0] * 7])

    # The first minute brings 3600 - 7200 s at a chance of 1 in 120: 30 s are lost, and then 3000 s saved.
    assert best_wait_s(slow_at_first, 3600.0, 20_000.0) == 20_000.0


def test_a_few_bad_minutes_are_not_waited_through_for_little() -> None:
    slow_at_first = np.array([*[1.0 / 7200.0] * 3, *[1.0 / 600.0] * 5])

    # Ten minutes bring 650 - 7200 s at a chance of 8 in 100: 524 s are lost for the 46 that follow.
    assert best_wait_s(slow_at_first, 650.0, 20_000.0) == 0.0


RATES = st.lists(st.floats(1e-6, 0.1), min_size=STRETCHES, max_size=STRETCHES).map(np.array)


@given(rate_per_s=RATES, worth_s=st.floats(0.0, 1e6), bound_s=st.floats(0.0, 1e5), other=st.floats(0.0, 1.0))
def test_no_wait_within_the_bound_is_worth_more(
    rate_per_s: Rates, worth_s: float, bound_s: float, other: float
) -> None:
    found = best_wait_s(rate_per_s, worth_s, bound_s)

    assert 0.0 <= found <= bound_s
    best, another = (worth_of(wait_s, rate_per_s, worth_s) for wait_s in (found, other * bound_s))
    assert best >= -1e-6
    assert best >= another - 1e-6 * max(1.0, worth_s)


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[Wait], list[Wait]]:
    """Draw waits of one class and tier, in two orders."""
    seconds = st.one_of(st.sampled_from([0.0, 60.0, 180.0]), st.floats(0.0, 20_000.0))
    drawn = draw(st.lists(st.tuples(seconds, st.booleans(), st.floats(0.0, 30_000.0)), max_size=12))
    waits = [wait(waited_s, got=got, ago_s=ago_s) for waited_s, got, ago_s in drawn]
    return waits, draw(st.permutations(waits))


@given(waits=shuffled())
def test_the_order_of_waits_tells_nothing(waits: tuple[list[Wait], list[Wait]]) -> None:
    one, other = (Tuner(each, NOW, TUNING) for each in waits)

    assert one.rates(16, NODE).tobytes() == other.rates(16, NODE).tobytes()
    assert one.seen(16, NODE) == other.seen(16, NODE)


@given(waits=shuffled(), worth_s=st.floats(0.0, 1e6), bound_s=st.floats(0.0, 1e5))
def test_whatever_was_seen_no_timer_is_longer_than_its_bound(
    waits: tuple[list[Wait], list[Wait]], worth_s: float, bound_s: float
) -> None:
    rate_per_s = Tuner(waits[0], NOW, TUNING).rates(16, NODE)

    assert 0.0 <= timer_s(rate_per_s, worth_s, 2.0, 1.0, 1.05, bound_s) <= bound_s


def test_a_timer_is_the_best_wait_at_the_rates_of_the_gangs_class() -> None:
    # Two of three got a place within a minute, and the third none in an hour.
    waits = [wait(30.0), wait(50.0), wait(3600.0, got=False)]

    wait_s = timer_s(Tuner(waits, NOW, TUNING).rates(16, NODE), 1000.0, 2.0, 1.0, 1.05, 21_600.0)

    # Over all 4 places in 3680 + 1200 s, one in 1220: only the first minute, 4 places in 140 + 2440 s, is worth it.
    assert wait_s == 60.0


@pytest.mark.parametrize(
    ("inflation", "inflation_there", "expected_s"),
    [
        pytest.param(1.5, 1.0, 5000.0, id="for as long as it saves"),
        pytest.param(1.5, 1.2, 3000.0, id="beyond the inflation of the closer place"),
        pytest.param(1.05, 1.0, 500.0, id="from the least inflation on"),
        pytest.param(1.04, 1.0, 0.0, id="not below it"),
        pytest.param(1.5, 1.6, 0.0, id="not for a worse place"),
        pytest.param(3.0, 1.0, 9000.0, id="up to the bound"),
    ],
)
def test_a_timer_is_no_longer_than_what_the_closer_place_saves(
    inflation: float, inflation_there: float, expected_s: float
) -> None:
    often = np.full(STRETCHES, 1.0 / 400.0)

    assert timer_s(often, 10_000.0, inflation, inflation_there, 1.05, 9000.0) == pytest.approx(expected_s)


def test_a_class_of_which_nothing_was_seen_waits_no_longer_than_the_settings_bear_out() -> None:
    tuner = Tuner([wait(60.0, gpus=16)], NOW, TUNING)

    assert tuner.most_s(16, NODE) == np.inf
    assert tuner.most_s(2, NODE) == UNSEEN_MEANS * TUNING.expected_s[NODE]


def test_seen_tells_how_many_got_a_place_and_how_soon() -> None:
    got = [wait(float(waited_s)) for waited_s in range(100, 2100, 100)]
    waits = [*got, wait(9000.0, got=False), wait(50.0, tier=LEAF), wait(50.0, gpus=2)]

    tuner = Tuner(waits, NOW, TUNING)

    # Of twenty waits of 100 to 2000 s, 90 % lasted 1900 s or less.
    assert tuner.seen(16, NODE) == Seen(gangs=21, got=20, within_s=1900.0)
    assert tuner.seen(16, LEAF) == Seen(gangs=1, got=1, within_s=50.0)


def test_seen_of_nothing_is_nothing() -> None:
    tuner = Tuner([wait(700.0, got=False)], NOW, TUNING)

    assert tuner.seen(16, NODE) == Seen(gangs=1, got=0, within_s=0.0)
    assert tuner.seen(8, NODE) == Seen(gangs=0, got=0, within_s=0.0)


def test_the_assumptions_are_those_of_the_settings() -> None:
    settings = PlanningSettings(node_timer_s=100.0, leaf_timer_s=200.0, timer_memory_s=300.0, timer_imagined=4.0)

    assert tuning_of(settings) == Tuning(expected_s={NODE: 100.0, LEAF: 200.0}, imagined=4.0, memory_s=300.0)


def test_wait_gains_its_worth_as_often_as_a_place_comes_less_the_wait() -> None:
    rate_per_s = np.full(STRETCHES, 1.0 / 600.0)
    got = 1.0 - math.exp(-1800.0 / 600.0)

    # The mean of a wait that ends at a place or after 1800 s is 600 s for each place that came.
    assert mean_gain_s(rate_per_s, 3600.0, 1800.0) == pytest.approx(got * (3600.0 - 600.0))
    assert -1800.0 < mean_gain_s(rate_per_s, 0.0, 1800.0) < 0.0
    assert mean_gain_s(rate_per_s, 3600.0, 0.0) == 0.0
