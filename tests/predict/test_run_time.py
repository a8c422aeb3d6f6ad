from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.fit.fitted import bundled
from advisor.fit.run_time_fit import fit_run_time
from advisor.predict.onnx_model import Bundle
from advisor.predict.run_time import RunTimeForecaster
from advisor.predict.run_time_curve import AdaptiveLevels, Curves, Grid, are_inside, quantiles_and_mean
from advisor.predict.run_time_features import COLD, LEVELS, REQUEST_KNOWN, SIBLINGS_ENDED, EndedJobs
from advisor.predict.run_time_replay import asked_at, replay, steps
from tests.predict.run_time_jobs import MONDAY, make_ended, make_jobs, make_site

LATER = MONDAY + 90 * 86_400.0
FIRST = np.zeros(1, dtype=np.int64)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return bundled(fit_run_time(make_site(), seed=0, keep_history=True))


@pytest.fixture
def forecaster(bundle: Bundle) -> RunTimeForecaster:
    return RunTimeForecaster.from_bundle(bundle)


def even_curve(limit_s: float = 10_000.0) -> Curves:
    """Return one curve whose logarithm is spread evenly between 1 s and the limit."""
    cap = np.log([limit_s])
    return Curves(levels=np.array([[0.0, 0.5, 1.0]]), logs=np.array([[0.0, 0.5, 1.0]]) * cap[:, None], cap=cap)


@pytest.mark.slow
def test_a_users_usual_run_time_lies_in_a_narrow_interval(forecaster: RunTimeForecaster) -> None:
    jobs = make_jobs(2, user=["user0", "user11"], account=["account0", "account2"], submit_time=LATER)

    found = forecaster.forecast(jobs).intervals()

    assert found.low[0] < 600.0 < found.high[0] < 3600.0 < found.low[1] < 40_000.0 < found.high[1]
    assert found.known.all()


def test_no_forecast_exceeds_the_time_limit(forecaster: RunTimeForecaster) -> None:
    limits = np.array([1.0, 30.0, 600.0, 3600.0, 86_400.0])
    jobs = make_jobs(5, user="user11", account="account2", limit_s=limits, submit_time=LATER)

    found = forecaster.forecast(jobs)

    assert (found.quantiles_s <= limits[:, None] * (1 + 1e-12)).all()
    assert (found.mean_s <= limits * (1 + 1e-12)).all()
    assert (np.diff(found.quantiles_s, axis=1) >= 0).all()


def test_without_a_limit_the_longest_of_the_fit_stands_in(forecaster: RunTimeForecaster) -> None:
    jobs = make_jobs(3, user="new", account="new", limit_s=[np.nan, np.inf, -1.0], submit_time=LATER)

    found = forecaster.forecast(jobs)

    assert (found.quantiles_s <= 86_400.0 * (1 + 1e-12)).all()
    assert not found.known.any()


def test_a_stranger_with_a_request_beyond_the_fit_is_not_known(forecaster: RunTimeForecaster) -> None:
    jobs = make_jobs(3, user=["new", "new", "user0"], account=["new", "new", "x"], gpus=[1.0, 64.0, 64.0])

    assert forecaster.forecast(jobs).known.tolist() == [True, False, True]


def test_strangers_get_wider_intervals_until_their_first_jobs_end(forecaster: RunTimeForecaster) -> None:
    jobs = make_jobs(user="new", account="new", submit_time=LATER)
    before = forecaster.forecast(jobs).intervals()

    forecaster.add_ended(make_ended([3600.0] * 8, user="new", account="new", submit_time=LATER - 50_000.0))
    after = forecaster.forecast(jobs).intervals()

    assert after.high[0] / after.low[0] < before.high[0] / before.low[0]
    assert after.low[0] <= 3600.0 <= after.high[0]


def test_a_running_job_is_never_said_to_have_ended(forecaster: RunTimeForecaster) -> None:
    elapsed_s = np.array([0.0, 300.0, 5000.0, 86_399.0, 90_000.0])
    jobs = make_jobs(5, user="user0", account="account0", elapsed_s=elapsed_s, submit_time=LATER)

    found = forecaster.forecast(jobs)

    assert (found.quantiles_s >= np.minimum(elapsed_s, 86_400.0)[:, None] * (1 - 1e-12)).all()
    assert (np.diff(found.quantiles_s[:, 2]) >= -1e-6).all()


def test_half_of_an_even_curve_is_left_after_its_median() -> None:
    plain = AdaptiveLevels(0.0, 0.0)

    found, _ = quantiles_and_mean(even_curve(), plain, FIRST, np.array([100.0]))

    np.testing.assert_allclose(np.log(found[0]) / np.log(10_000.0), 0.5 + np.array(LEVELS) / 2)


def test_the_mean_of_a_curve_is_that_of_its_run_times() -> None:
    plain = AdaptiveLevels(0.0, 0.0)

    _, mean_s = quantiles_and_mean(even_curve(), plain, FIRST, np.zeros(1))

    assert mean_s[0] == pytest.approx(9999.0 / np.log(10_000.0), rel=0.02)


def test_where_no_run_ends_for_a_while_the_shortest_time_counts() -> None:
    curves = Curves(
        levels=np.array([[0.0, 0.5, 0.5, 1.0]]), logs=np.log([[1.0, 10.0, 1000.0, 2000.0]]), cap=np.array([np.inf])
    )

    assert curves.at(np.array([[0.5]])) == pytest.approx(10.0)


def test_first_job_of_a_replay_can_come_after_others_that_are_not_asked_about() -> None:
    jobs = make_ended([100.0] * 3, submit_time=MONDAY + np.array([0.0, 200.0, 1000.0]))

    first, second, last = steps(jobs, np.array([False, True, True]))

    assert (first.ended.tolist(), first.rows.tolist()) == ([0], [1])
    assert (second.ended.tolist(), second.rows.tolist()) == ([1], [2])
    assert (last.ended.tolist(), last.rows.tolist()) == ([2], [])


@pytest.mark.parametrize(("group", "share"), [(REQUEST_KNOWN, (0.4 + 0.8) / 2), (SIBLINGS_ENDED, 0.4)])
def test_curve_is_the_mean_of_two_answers_until_siblings_have_ended(group: int, share: float) -> None:
    grid = Grid(over_anchor=np.array([-1.0, 1.0]), over_limit=np.array([-2.0, -1.0]))
    shares = np.array([[0.2, 0.6, 0.4, 0.8]], dtype=np.float32)

    found = grid.curves(shares, np.log([1000.0]), np.log([1000.0 * np.e]), np.array([group]))

    # A limit of e anchors: its second threshold is the anchor itself, where the first answer is halfway up.
    assert found.level_of(np.array([1000.0]))[0] == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize(("run_s", "kept"), [(0.5, [0.01, 0.8]), (9.0, [0.2, 0.99])], ids=["short", "long"])
def test_levels_stay_where_an_interval_says_something(run_s: float, kept: list[float]) -> None:
    levels = AdaptiveLevels(0.1, 0.5)
    for number in range(100):
        levels.note(due_time=0.0, group=0, burst=f"{number}", quantiles_s=np.arange(1.0, 6.0), run_s=run_s)

    levels.settle(1.0)

    assert levels.levels[0, [0, -1]].tolist() == kept


def test_a_burst_moves_the_levels_less_than_as_many_jobs_apart() -> None:
    together, apart = AdaptiveLevels(0.001, 0.5), AdaptiveLevels(0.001, 0.5)
    for number in range(30):
        together.note(due_time=1.0, group=0, burst="one", quantiles_s=np.arange(1.0, 6.0), run_s=0.5)
        apart.note(due_time=1.0, group=0, burst=f"{number}", quantiles_s=np.arange(1.0, 6.0), run_s=0.5)

    together.settle(2.0)
    apart.settle(2.0)

    assert apart.levels[0, 0] < together.levels[0, 0] < LEVELS[0]


@pytest.mark.slow
def test_coverage_recovers_after_a_shift(bundle: Bundle) -> None:
    """Every user's run times spread twice as far from one day on; the fit knows nothing of it."""
    chance = np.random.default_rng(1)
    rows = 4000
    jobs = make_ended(
        (3600.0 * np.exp(0.5 * chance.standard_normal(rows))).clip(1.0, 86_400.0).tolist(),
        user=[f"someone{number}" for number in chance.integers(0, 400, rows)],
        account=[f"account{number}" for number in range(rows)],
        submit_time=LATER + np.sort(chance.uniform(0.0, 200 * 86_400.0, rows)),
    )
    adaptive = RunTimeForecaster.from_bundle(bundle)
    fixed = RunTimeForecaster.from_bundle(bundle)
    fixed.levels = AdaptiveLevels(0.0, 0.0)

    errors = []
    for each in (adaptive, fixed):
        found = replay(each, jobs, np.ones(rows, dtype=np.bool_)).intervals()
        inside = ((jobs.run_s >= found.low) & (jobs.run_s <= found.high))[rows // 2 :]
        errors.append(abs(float(np.mean(inside)) - 0.8))

    assert errors[0] < 0.04
    assert errors[0] < errors[1]


def test_jobs_that_ended_without_a_forecast_move_no_levels(forecaster: RunTimeForecaster) -> None:
    before = forecaster.levels.levels.copy()

    forecaster.add_ended(make_ended([86_000.0] * 20, user="user0", account="account0", submit_time=LATER))
    forecaster.levels.settle(LATER + 1e6)

    np.testing.assert_array_equal(forecaster.levels.levels, before)


def test_a_replay_uses_only_what_had_ended_at_each_submission(bundle: Bundle) -> None:
    jobs = make_ended(
        [5000.0, 100.0, 100.0],
        user="new",
        account="new",
        submit_time=[LATER, LATER + 4999.0, LATER + 5001.0],
    )
    everything = np.ones(3, dtype=np.bool_)

    found = replay(RunTimeForecaster.from_bundle(bundle), jobs, everything)

    assert found.group.tolist() == [0, 0, 2]


def test_a_replay_adapts_the_levels_of_strangers_too(bundle: Bundle) -> None:
    strangers = make_ended([100.0, 100.0], user="new", account="new", submit_time=[LATER, LATER + 1e6])
    replayed = RunTimeForecaster.from_bundle(bundle)
    before = replayed.levels.levels.copy()

    found = replay(replayed, strangers, np.array([True, True]))
    replayed.levels.settle(LATER + 1e9)

    assert found.group[0] == COLD
    assert replayed.levels.levels[COLD].tolist() != before[COLD].tolist()


def test_a_replay_answers_as_one_job_at_a_time_does(bundle: Bundle) -> None:
    jobs = make_site(60, seed=3)
    ends = EndedJobs(jobs=jobs.jobs, run_s=jobs.run_s, end_time=jobs.end_time, state=jobs.state)
    by_hand = RunTimeForecaster.from_bundle(bundle)
    expected = []
    for row in range(60):
        now = jobs.jobs.submit_time[row]
        begun = jobs.jobs.submit_time[row - 1] if row else -np.inf
        by_hand.add_ended(ends.take(np.flatnonzero((ends.end_time < now) & (ends.end_time >= begun))))
        expected.append(by_hand.forecast(jobs.jobs.take(np.array([row]))).quantiles_s[0])
    replayed = RunTimeForecaster.from_bundle(bundle)
    replayed.levels = AdaptiveLevels(0.0, 0.0)

    found = replay(replayed, jobs, np.ones(60, dtype=np.bool_))

    np.testing.assert_allclose(found.quantiles_s, np.array(expected), rtol=1e-6)


def test_run_time_is_inside_from_the_lowest_to_the_highest_of_its_quantiles() -> None:
    run_s = np.array([9.9, 10.0, 15.0, 30.0, 30.1])

    assert are_inside(run_s, np.tile([10.0, 20.0, 30.0], (5, 1))).tolist() == [False, True, True, True, False]


def test_run_that_its_limit_ended_lies_within_an_interval_up_to_the_limit() -> None:
    limit_s = np.array([43_200.0, 3600.0, 7.0, 345_600.0])

    inside = are_inside(limit_s, np.exp(np.log(limit_s))[:, None] * [0.5, 1.0])

    assert inside.all() and not are_inside(limit_s + 0.1, limit_s[:, None] * [0.5, 1.0]).any()


def test_job_that_waits_is_forecast_from_what_ended_meanwhile(bundle: Bundle) -> None:
    """Of two jobs submitted together one starts at once and ends; the other learns of that before its own start."""
    jobs = make_ended(
        [5000.0, 5000.0], user="new", account="new", submit_time=LATER, end_time=[LATER + 5000.0, LATER + 15_000.0]
    )

    groups = [
        replay(RunTimeForecaster.from_bundle(bundle), asked_at(jobs, moment), np.array([False, True])).group.tolist()
        for moment in (0.0, 0.4, 1.0)
    ]

    assert groups == [[COLD], [COLD], [SIBLINGS_ENDED]]


def test_no_jobs_have_no_forecasts(forecaster: RunTimeForecaster) -> None:
    assert len(forecaster.forecast(make_jobs(0))) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "start_time"},
        {"columns": ("a", "b")},
        {"outputs": ("a",)},
        {"parameters": ""},
        {"parameters": "{}"},
        {"parameters": '{"format": "sadvise.run_time/1"}'},
    ],
    ids=lambda changed: next(iter(changed.items())).__repr__(),
)
def test_a_foreign_or_damaged_model_is_refused_in_one_line(bundle: Bundle, changed: dict[str, str]) -> None:
    with pytest.raises(ModelError) as refused:
        RunTimeForecaster.from_bundle(replace(bundle, **changed))  # type: ignore[arg-type]

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"rate":0.0', '"rate":9.0'),
        ('"over_limit":[-12.0', '"over_limit":[-1.0'),
        ('"format":"sadvise.run_time/2"', '"format":"sadvise.run_time/2","code":"import os"'),
    ],
)
def test_altered_parameters_are_refused(bundle: Bundle, old: str, new: str) -> None:
    assert old in bundle.parameters

    with pytest.raises(ModelError, match="fit it again"):
        RunTimeForecaster.from_bundle(replace(bundle, parameters=bundle.parameters.replace(old, new, 1)))


def test_a_model_without_history_knows_nobody_at_first() -> None:
    cold = RunTimeForecaster.from_bundle(bundled(fit_run_time(make_site(400), seed=0, keep_history=False)))

    found = cold.forecast(make_jobs(user="user0", account="account0", submit_time=LATER))

    assert len(cold.history) == 0
    assert found.group.tolist() == [0]
