"""Intervals of paired differences, on data whose answer is known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from advisor.sim.study.statistics import (
    MOST_BLOCKS,
    CellName,
    Pairing,
    RelativeChange,
    difference_of_figures,
    mean_over_cells,
    paired_difference,
)
from tests.examples import examples

NAN = float("nan")
ONE = CellName("one", 0)
Values = NDArray[np.float64]


def over_jobs(
    a: Values, b: Values, *, seed: int = 0, share: float | None = None, resamples: int = 2000
) -> RelativeChange:
    """Compare two runs of one cell."""
    return paired_difference({ONE: a}, {ONE: b}, seed=seed, share=share, resamples=resamples)


def lognormal(jobs: int, seed: int = 0) -> Values:
    """Draw JCTs as skewed as real ones."""
    return np.random.default_rng(seed).lognormal(8.0, 1.5, jobs)


def test_equal_runs_do_not_differ() -> None:
    values = lognormal(500)

    change = over_jobs(values, values)

    assert (change.percent, change.low, change.high) == (0.0, 0.0, 0.0)
    assert not change.is_clear


@pytest.mark.parametrize("share", [None, 0.5, 0.99], ids=["mean", "median", "p99"])
@pytest.mark.parametrize("factor", [0.8, 1.0, 3.0])
def test_a_factor_on_every_job_is_found_without_doubt(factor: float, share: float | None) -> None:
    values = lognormal(2000)

    change = over_jobs(values, factor * values, share=share)

    assert change.percent == pytest.approx(100 * (factor - 1), abs=1e-9)
    assert change.low == pytest.approx(change.percent, abs=1e-6)
    assert change.high == pytest.approx(change.percent, abs=1e-6)


@settings(max_examples=examples(30), deadline=None)
@given(scale=st.floats(1e-3, 1e6), seed=st.integers(0, 100))
def test_neither_the_unit_nor_the_side_matters(scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.lognormal(5, 1, 400), rng.lognormal(5.2, 1, 400)

    change, scaled, swapped = over_jobs(a, b), over_jobs(scale * a, scale * b), over_jobs(b, a)

    assert scaled.percent == pytest.approx(change.percent, rel=1e-6)
    assert scaled.low == pytest.approx(change.low, rel=1e-6)
    assert (1 + swapped.low / 100) * (1 + change.high / 100) == pytest.approx(1.0, rel=1e-6)


def test_the_same_seed_draws_the_same_interval() -> None:
    a, b = lognormal(300, 1), lognormal(300, 2)

    assert over_jobs(a, b, seed=7) == over_jobs(a, b, seed=7)
    assert over_jobs(a, b, seed=7) != over_jobs(a, b, seed=8)


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.5, 0.95], ids=["mean", "median", "p95"])
def test_intervals_of_independent_jobs_cover_the_truth_about_as_often_as_they_say(share: float | None) -> None:
    rng = np.random.default_rng(5)
    covered = 0

    for trial in range(200):
        a = rng.lognormal(5.0, 0.8, 1000)
        b = 0.9 * a * rng.lognormal(-0.02, 0.2, 1000)  # the noise has mean 1 and median exp(-0.02)
        # At the mean the truth is -10 %; near a quantile it follows from the two distributions being lognormal.
        spread = math.hypot(0.8, 0.2) - 0.8
        z = {None: 0.0, 0.5: 0.0, 0.95: 1.6449}[share]
        truth = -10.0 if share is None else 100 * (0.9 * math.exp(-0.02 + z * spread) - 1)
        change = over_jobs(a, b, seed=trial, share=share, resamples=300)
        covered += change.low <= truth <= change.high

    assert 180 <= covered <= 200


def queue_jct(gaps: Values, run_times: Values, speed: float) -> Values:
    """Return the JCT of every job of a queue with one server, by Lindley's recursion."""
    service = run_times / speed
    steps = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    return steps - np.minimum.accumulate(steps) + service


def test_blocks_cover_what_congestion_does_where_single_jobs_would_not() -> None:
    """A queue at 80 % load against the same with a server 10 % faster; the truth is the mean over 400 other weeks."""
    rng = np.random.default_rng(11)

    def week(jobs: int = 4000) -> tuple[Values, Values]:
        gaps, run_times = rng.exponential(1.25, jobs), rng.exponential(1.0, jobs)
        return queue_jct(gaps, run_times, 1.0), queue_jct(gaps, run_times, 1.1)

    ratios = [math.log(b.mean() / a.mean()) for a, b in (week() for _ in range(400))]
    truth = 100 * math.expm1(np.mean(ratios))
    covered_by_blocks = covered_by_jobs = 0
    for trial in range(100):
        a, b = week()
        change = over_jobs(a, b, seed=trial, resamples=300)
        covered_by_blocks += change.low <= truth <= change.high
        # Drawing single jobs: the standard error of a ratio of means.
        error = float(np.std(b / b.mean() - a / a.mean())) / math.sqrt(len(a))
        centre = math.log(b.mean() / a.mean())
        covered_by_jobs += 100 * math.expm1(centre - 1.96 * error) <= truth <= 100 * math.expm1(centre + 1.96 * error)

    assert covered_by_blocks >= 75
    assert covered_by_jobs <= 60


def test_a_few_blocks_are_drawn_however_long_the_trace() -> None:
    assert over_jobs(lognormal(100), lognormal(100, 1)).units == 10
    assert over_jobs(lognormal(100_000), lognormal(100_000, 1), resamples=50).units == MOST_BLOCKS


def test_jobs_that_finished_under_one_policy_only_are_left_out_and_counted() -> None:
    a = np.array([10.0, 10.0, NAN, 10.0, NAN] * 10)
    b = np.array([5.0, NAN, 99.0, 5.0, NAN] * 10)

    change = over_jobs(a, b)

    assert (change.pairs, change.left_out) == (20, 20)
    assert change.percent == pytest.approx(-50.0)


def test_one_cell_is_paired_over_jobs_and_several_seeds_over_seeds() -> None:
    a = {CellName("one", seed): lognormal(100, seed) for seed in range(4)}
    b = {cell: 0.9 * values + cell.seed for cell, values in a.items()}

    several = paired_difference(a, b, seed=0)
    one = paired_difference({ONE: a[ONE]}, b, seed=0)

    assert (several.pairing, several.units, several.pairs) == (Pairing.SEEDS, 4, 400)
    assert (one.pairing, one.units, one.pairs) == (Pairing.JOBS, 10, 100)


def test_seeds_that_changed_nothing_count_once() -> None:
    a = {CellName("one", seed): lognormal(100) for seed in range(5)}
    b = {cell: lognormal(100, 9) for cell in a}

    change = paired_difference(a, b, seed=0)

    assert change == over_jobs(lognormal(100), lognormal(100, 9))


def test_the_interval_over_seeds_is_that_of_student() -> None:
    logs = np.array([-0.10, -0.05, -0.30, -0.12, -0.21])
    a = {CellName("one", seed): np.array([100.0]) for seed in range(5)}
    b = {CellName("one", seed): np.array([100.0 * math.exp(log)]) for seed, log in enumerate(logs)}

    change = paired_difference(a, b, seed=0, resamples=40_000)

    reach = 2.776 * logs.std(ddof=1) / math.sqrt(5)
    assert change.percent == pytest.approx(100 * math.expm1(logs.mean()))
    assert change.low == pytest.approx(100 * math.expm1(logs.mean() - reach), abs=0.3)
    assert change.high == pytest.approx(100 * math.expm1(logs.mean() + reach), abs=0.3)


def test_every_trace_weighs_the_same_however_long_its_jobs() -> None:
    a = {CellName("short", 0): np.array([1.0, 1.0]), CellName("long", 0): np.array([1e6, 1e6])}
    b = {CellName("short", 0): np.array([2.0, 2.0]), CellName("long", 0): np.array([5e5, 5e5])}

    change = paired_difference(a, b, seed=0)

    assert change.percent == pytest.approx(0.0)
    assert change.pairing is Pairing.TRACES


def test_ten_seeds_of_three_traces_are_three_units_not_thirty() -> None:
    effects = {"x": -0.2, "y": 0.1, "z": -0.4}
    a = {CellName(trace, seed): lognormal(50, seed) for trace in effects for seed in range(10)}
    b = {cell: values * math.exp(effects[cell.trace]) + cell.seed for cell, values in a.items()}

    change = paired_difference(a, b, seed=0)

    spread = np.std(list(effects.values()), ddof=1) / math.sqrt(3)
    assert change.units == 3
    assert math.log((1 + change.high / 100) / (1 + change.low / 100)) == pytest.approx(2 * 4.303 * spread, rel=0.05)


@pytest.mark.parametrize("traces", [("one", "two"), ("one", "one")], ids=["traces", "seeds"])
def test_two_of_a_kind_give_no_interval(traces: tuple[str, str]) -> None:
    cells = [CellName(trace, seed) for seed, trace in enumerate(traces)]
    a = {cell: lognormal(50, cell.seed) for cell in cells}
    b = {cell: values + 7 * cell.seed + 3 for cell, values in a.items()}

    change = paired_difference(a, b, seed=0)

    assert math.isfinite(change.percent)
    assert math.isnan(change.low) and math.isnan(change.high)
    assert not change.is_clear


def test_an_end_to_nearly_all_waiting_is_clear() -> None:
    """Under the second policy only the first jobs wait, so that some draws have no waiting at all and no logarithm."""
    before = np.full(400, 3600.0)
    after = np.zeros(400)
    after[:5] = 60.0

    change = over_jobs(before, after)

    assert change.percent == pytest.approx(100 * (300 / (400 * 3600) - 1))
    assert change.is_clear and change.high < -99


def test_no_waiting_at_all_is_less_than_some() -> None:
    change = over_jobs(np.full(100, 5.0), np.zeros(100))

    assert (change.percent, change.low, change.high) == (-100.0, -100.0, -100.0)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.zeros(100), np.ones(100)),
        (np.full(100, NAN), np.ones(100)),
        (np.array([]), np.array([])),
    ],
    ids=["from nothing", "no job of both", "no job"],
)
def test_what_has_no_ratio_has_no_change(a: Values, b: Values) -> None:
    change = over_jobs(a, b)

    assert math.isnan(change.percent) and math.isnan(change.low)
    assert not change.is_clear


def test_nothing_in_both_is_no_change() -> None:
    assert over_jobs(np.zeros(100), np.zeros(100)).percent == 0.0


def test_one_figure_each_has_a_change_but_no_interval() -> None:
    change = difference_of_figures({ONE: 200.0}, {ONE: 150.0}, seed=0)

    assert change.percent == pytest.approx(-25.0)
    assert change.pairing is Pairing.NONE
    assert math.isnan(change.low)


def test_figures_over_seeds_have_an_interval_and_missing_ones_are_left_out() -> None:
    a = {CellName("one", seed): 100.0 + seed for seed in range(6)}
    b = {cell: 0.5 * value + cell.seed % 2 for cell, value in a.items()}
    b[CellName("one", 5)] = NAN

    change = difference_of_figures(a, b, seed=0)

    assert change.pairs == change.units == 5
    assert change.high < 0


def test_the_interval_narrows_with_more_seeds_as_student_says() -> None:
    """Past the table of t, the series takes over: 40 alternating seeds against t of 39 degrees, 2.0227."""
    logs = np.tile([0.1, 0.3], 20) + np.linspace(0, 1e-6, 40)
    a = {CellName("one", seed): 1.0 for seed in range(40)}
    b = {CellName("one", seed): math.exp(log) for seed, log in enumerate(logs)}

    change = difference_of_figures(a, b, seed=0, resamples=40_000)

    reach = 2.0227 * logs.std(ddof=1) / math.sqrt(40)
    assert math.log1p(change.high / 100) == pytest.approx(0.2 + reach, abs=0.001)


def test_a_mean_over_cells_is_that_of_student_over_seeds_and_leaves_out_what_is_no_number() -> None:
    values = dict(enumerate(np.random.default_rng(5).normal(3.0, 2.0, 8)))
    cells = {CellName("one", seed): value for seed, value in values.items()} | {CellName("one", 9): NAN}

    mean = mean_over_cells(cells, seed=0)

    drawn = np.array(list(values.values()))
    half = 2.365 * drawn.std(ddof=1) / math.sqrt(8)
    assert mean.mean == pytest.approx(drawn.mean())
    assert mean.units == 8
    assert (mean.low, mean.high) == pytest.approx((drawn.mean() - half, drawn.mean() + half), rel=0.05)


def test_a_mean_over_cells_weighs_every_trace_the_same_and_needs_three_for_an_interval() -> None:
    cells = {CellName("a", seed): 1.0 for seed in range(9)} | {CellName("b", 0): 3.0}

    two = mean_over_cells(cells, seed=0)
    three = mean_over_cells(cells | {CellName("c", 0): 5.0}, seed=0)

    assert (two.mean, two.units) == (2.0, 2)
    assert math.isnan(two.low)
    assert (three.mean, three.units) == (3.0, 3)
    assert three.low < 0.0
    assert three.high > 6.0
    assert math.isnan(mean_over_cells({}, seed=0).mean)
