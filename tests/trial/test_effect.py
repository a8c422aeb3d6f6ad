"""What an experiment shows, on jobs whose answer is known; and what levers kept of their promises."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.domain.actions import Action, Lever, NodeRange, SetNice, SetNodeRange, SetSwitches
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.forecast import Interval
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Wait
from advisor.domain.outcome import Arm, JobOutcome, SeenChange, SeenForecast
from advisor.domain.topology import LocalityTier
from advisor.domain.units import DAY_S
from advisor.trial.effect import Comparison, Conclusion, change_of_ratio, compared, ratio_interval
from advisor.trial.tallies import LeverTally, Share, lever_tallies, places_got

BY_DAY = ExperimentSettings(by="day", name="spring", start="2026-03-01", end="2026-04-29")
BY_PARTITION = ExperimentSettings(
    by="partition", name="halves", start="2026-03-01", end="2026-05-30", treated_partitions="gpu", min_blocks=5
)
FIRST = BY_DAY.start_time
AFTER = BY_DAY.end_time + 10 * DAY_S
JOBS_A_DAY = 20

Delay = Callable[[int, Arm, int], float]


def job(day: int, delay_s: float, settings: ExperimentSettings = BY_DAY, **fields: Any) -> JobOutcome:
    """A job of an hour that was submitted so many days into the experiment, and assigned as its settings say."""
    submit_time = settings.start_time + (day + 0.5) * DAY_S
    start_time = submit_time + delay_s
    partition = str(fields.get("partition", "gpu"))
    arm = settings.arm_at(submit_time, partition.split(","))
    outcome = JobOutcome(
        job_id=1, submit_time=submit_time, start_time=start_time, last_start_time=start_time,
        end_time=start_time + 3600.0, last_seen_time=start_time + 3600.0, account="lab", arm=arm,
        experiment=settings.digest if arm else "",
    )  # fmt: skip
    return replace(outcome, **fields)


def days(delay: Delay, *, count: int = 60, **fields: Any) -> list[JobOutcome]:
    """The jobs of an experiment by day, with delays by day, arm and number."""
    found = []
    for day in range(count):
        arm = BY_DAY.arm_at(FIRST + day * DAY_S)
        found += [job(day, delay(day, arm, at), **fields) for at in range(JOBS_A_DAY)]
    return found


def uneven(day: int, arm: Arm, at: int) -> float:
    """Delays of days that differ, without an effect."""
    return float(np.random.default_rng([day, at]).lognormal(math.log(600.0 + 600.0 * (day // 2 % 5)), 0.5))


def times(factor: float) -> Delay:
    """Such delays, with those of treated days multiplied."""
    return lambda day, arm, at: uneven(day, arm, at) * (factor if arm is Arm.TREATED else 1.0)


def shown(outcomes: Iterable[JobOutcome], now: float = AFTER, settings: ExperimentSettings = BY_DAY) -> Comparison:
    """What the experiment shows."""
    return compared(outcomes, settings, now)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.0, Conclusion.UNCLEAR), (0.5, Conclusion.HELPED), (2.0, Conclusion.WORSE)],
    ids=["none", "half", "double"],
)
def test_an_effect_is_told_with_an_interval_that_holds_it(factor: float, verdict: Conclusion) -> None:
    effect = shown(days(times(factor))).primary

    assert effect.verdict is verdict
    assert effect.low < 100 * (factor - 1) < effect.high
    assert (effect.blocks, effect.jobs) == (30, 60 * JOBS_A_DAY)
    assert effect.treated / effect.control == pytest.approx(1 + effect.percent / 100)


def test_every_metric_has_its_mean_and_its_high_end() -> None:
    effects = shown(days(times(0.5))).effects

    assert [(effect.metric, effect.figure) for effect in effects] == [
        (metric, figure)
        for metric in ("queueing_delay", "jct", "bounded_slowdown")
        for figure in ("mean", "p95", "typical")
    ]
    assert all(effect.verdict is Conclusion.HELPED for effect in effects)
    # An hour of run time is in every JCT, and dilutes what is saved.
    assert effects[3].percent > effects[0].percent


def test_the_metric_that_was_chosen_beforehand_is_what_counts() -> None:
    settings = replace(BY_DAY, metric="jct")
    outcomes = [replace(each, experiment=settings.digest) for each in days(times(0.5))]

    assert shown(outcomes, settings=settings).primary.metric == "jct"


def test_the_typical_day_hangs_on_no_single_day() -> None:
    worst_day = next(day for day in range(60) if BY_DAY.arm_at(FIRST + day * DAY_S) is Arm.TREATED)
    outcomes = days(lambda day, arm, at: times(0.5)(day, arm, at) * (1000.0 if day == worst_day else 1.0))
    settings = replace(BY_DAY, figure="typical")
    outcomes = [replace(each, experiment=settings.digest) for each in outcomes]

    comparison = shown(outcomes, settings=settings)

    assert comparison.effects[0].percent > 100.0
    assert comparison.primary.figure == "typical" and comparison.primary.verdict is Conclusion.HELPED


def test_days_on_which_nothing_waits_are_typical_days_too() -> None:
    comparison = shown(days(lambda *_: 0.0))

    assert (comparison.effects[2].figure, comparison.effects[2].percent) == ("typical", 0.0)


def test_too_few_blocks_say_nothing_however_large_the_effect() -> None:
    effect = shown(days(times(0.1)), now=FIRST + 15 * DAY_S).primary

    assert (effect.blocks, effect.verdict) == (7, Conclusion.TOO_LITTLE)


def test_without_jobs_there_is_too_little_data() -> None:
    comparison = shown([])

    assert comparison.primary.verdict is Conclusion.TOO_LITTLE
    assert math.isnan(comparison.primary.percent) and math.isnan(comparison.primary.treated)
    assert comparison.arms[Arm.TREATED].jobs == 0


def test_only_blocks_that_are_over_for_a_day_count() -> None:
    outcomes = days(uneven)

    blocks = [shown(outcomes, now=FIRST + day * DAY_S).blocks_over for day in (0.0, 2.9, 3.0, 4.9, 5.0, 61.0, 99.0)]

    assert blocks == [0, 0, 1, 1, 2, 30, 30]


def test_days_without_jobs_on_one_side_are_left_out_with_their_block() -> None:
    outcomes = [each for each in days(uneven) if BY_DAY.day_of(each.submit_time) - BY_DAY.first_day != 7]

    assert shown(outcomes).primary.blocks == 29


def test_a_day_weighs_the_same_however_many_jobs_it_has() -> None:
    outcomes = days(times(0.5))
    crowded = [*outcomes, *(each for each in outcomes if BY_DAY.block_of(each.submit_time) == 3)]

    assert shown(crowded).primary.percent == pytest.approx(shown(outcomes).primary.percent)


def test_where_nothing_waits_there_is_nothing_to_compare() -> None:
    effect = shown(days(lambda *_: 0.0)).primary

    assert effect.verdict is Conclusion.TOO_LITTLE and math.isnan(effect.percent)


def test_waits_on_a_single_control_day_bound_no_interval() -> None:
    effect = shown(days(lambda day, *_: 5000.0 if day in {0, 1} else 0.0)).primary

    assert effect.verdict is Conclusion.TOO_LITTLE and math.isnan(effect.high)


def test_jobs_assigned_under_other_settings_are_counted_and_left_out() -> None:
    earlier = [replace(each, experiment="0123456789abcdef") for each in days(times(0.5), count=4)]

    comparison = shown([*earlier, *days(uneven)[4 * JOBS_A_DAY :]])

    assert comparison.other_settings == 4 * JOBS_A_DAY
    assert comparison.primary.blocks == 28


def test_an_arm_tells_who_has_no_figure_who_crossed_and_who_was_changed() -> None:
    change = SeenChange(lever=Lever.NICE, applied_time=0.0)
    treated = next(day for day in (0, 1) if BY_DAY.arm_at(FIRST + day * DAY_S) is Arm.TREATED)
    outcomes = [
        job(treated, 60.0, changes=(change,)),
        job(treated, DAY_S),
        job(treated, 60.0, start_time=None),
        job(treated, 60.0, start_time=None, end_time=None),
        job(1 - treated, 60.0),
    ]

    arms = shown(outcomes).arms

    count = arms[Arm.TREATED]
    assert (count.jobs, count.without_figure, count.crossed, count.changed) == (4, 2, 2, 1)
    assert arms[Arm.CONTROL].jobs == 1


def test_the_accounts_that_lost_most_are_named_and_chance_is_allowed_for() -> None:
    outcomes = [
        *days(times(3.0), account="victim"),
        *days(times(0.5), account="winner"),
        *days(times(1.15), account="same"),
        *days(times(3.0), count=6, account="seldom"),
    ]

    comparison = shown(outcomes)

    assert comparison.groups == 3
    assert [(group.account, group.is_clear) for group in comparison.worst] == [("victim", True), ("same", False)]


def test_allowing_for_many_accounts_widens_an_interval() -> None:
    pairs = np.random.default_rng(1).lognormal(size=(20, 2))

    widths = [np.diff(change_of_ratio(pairs, pairs[::-1] ** 0.9, tests=tests)[1:])[0] for tests in (1, 2, 10, 100)]

    assert widths == sorted(widths) and len(set(widths)) == 4


def by_partition(factor: float, *, before: float = 1.0) -> list[JobOutcome]:
    """The jobs of 13 weeks before an experiment by partition and of its own 13, `gpu` waiting thrice as long."""
    found = []
    for day in range(-91, 91):
        for partition, level in (("gpu", 3.0 * (factor if day >= 0 else before)), ("debug", 1.0)):
            for at in range(5):
                delay_s = level * float(np.random.default_rng([day + 91, at, len(partition)]).lognormal(6.0, 0.3))
                found.append(job(day, delay_s, BY_PARTITION, partition=partition))
    return found


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, Conclusion.UNCLEAR), (0.6, Conclusion.HELPED), (1.6, Conclusion.WORSE)]
)
def test_partitions_are_compared_with_what_they_were_before(factor: float, verdict: Conclusion) -> None:
    effect = shown(by_partition(factor), BY_PARTITION.end_time + 2 * DAY_S, BY_PARTITION).primary

    assert (effect.verdict, effect.blocks) == (verdict, 6)
    assert effect.low < 100 * (factor - 1) < effect.high
    # What the partitions differ by anyway is no effect.
    assert effect.treated / effect.control == pytest.approx(3.0 * factor, rel=0.2)


def test_without_the_time_before_partitions_tell_nothing() -> None:
    outcomes = [each for each in by_partition(0.5) if each.arm]

    assert shown(outcomes, BY_PARTITION.end_time + 2 * DAY_S, BY_PARTITION).primary.verdict is Conclusion.TOO_LITTLE


def test_jobs_in_partitions_of_both_arms_are_in_none() -> None:
    outcomes = [job(day, 60.0, BY_PARTITION, partition="gpu,debug") for day in (-3, 3)]

    arms = shown(outcomes, BY_PARTITION.end_time, BY_PARTITION).arms

    assert [count.jobs for count in arms.values()] == [0, 0]


def test_the_ratio_is_that_of_the_means_and_equal_pairs_leave_no_doubt() -> None:
    pairs = np.array([[10.0, 20.0], [11.0, 22.0], [12.0, 24.0]])

    assert ratio_interval(pairs) == pytest.approx((0.5, 0.5, 0.5))


def test_fiellers_interval_is_where_students_test_finds_no_difference() -> None:
    pairs = np.random.default_rng(3).lognormal(size=(30, 2))

    _, low, high = ratio_interval(pairs)

    for ratio in (low, high):
        differences = pairs[:, 0] - ratio * pairs[:, 1]
        student = abs(differences.mean()) / (differences.std(ddof=1) / math.sqrt(30))
        assert student == pytest.approx(2.045, abs=1e-3)


def test_blocks_that_never_vary_leave_no_doubt_and_those_without_waits_no_ratio() -> None:
    flat, empty = np.array([[2.0, 1.0]] * 4), np.array([[2.0, 1.0], [0.0, 1.0]])

    assert change_of_ratio(flat, flat) == (1.0, 1.0, 1.0)
    assert all(math.isnan(each) for each in change_of_ratio(flat, empty))


def drawn_days(rng: np.random.Generator, count: int, level: float = 0.0) -> np.ndarray:
    """Return the mean delay of each day `(n_days,)` of a queue whose congestion goes on from day to day, in bursts."""
    state, means = rng.normal(), []
    for day in range(count):
        state = 0.6 * state + 0.8 * rng.normal()
        congestion = level + 0.8 * state - (math.log(2.0) if day % 7 >= 5 else 0.0)
        bursts = 1 + rng.poisson(40.0 * math.exp(0.2 * state))
        delays_s = (rng.random(bursts) < 0.7) * rng.lognormal(math.log(600.0), 1.2, bursts) * math.exp(congestion)
        means.append(np.repeat(delays_s, rng.integers(1, 10, size=bursts)).mean())
    return np.array(means)


def drawn_by_day(rng: np.random.Generator) -> tuple[float, float, float]:
    """Return ratio and interval of 12 blocks of two days, of which one waits 30 % less."""
    days = drawn_days(rng, 24)
    treated = 2 * np.arange(12) + rng.integers(2, size=12)
    return ratio_interval(np.stack([0.7 * days[treated], days[treated ^ 1]], axis=1))


def drawn_by_partition(rng: np.random.Generator) -> tuple[float, float, float]:
    """Return ratio and interval of ten weeks in which one of two partitions waits 30 % less, after ten without."""
    one, other = (drawn_days(rng, 140, level) for level in rng.normal(size=2))
    one[70:] *= 0.7
    pairs = np.stack([one, other], axis=1).reshape(10, 14, 2).mean(axis=1)
    return change_of_ratio(pairs[5:], pairs[:5])


@pytest.mark.parametrize("drawn", [drawn_by_day, drawn_by_partition])
def test_intervals_hold_the_truth_about_as_often_as_they_say(
    drawn: Callable[[np.random.Generator], tuple[float, float, float]],
) -> None:
    rng = np.random.default_rng(11)

    intervals = [drawn(rng) for _ in range(60)]

    assert sum(math.isnan(low + high) or low <= 0.7 <= high for _, low, high in intervals) >= 52


@example(0, 125)
@given(st.integers(0, 200), st.integers(0, 200))
def test_wilsons_interval_holds_the_share_and_stays_between_0_and_1(count: int, more: int) -> None:
    share = Share(count=count, n=count + more)

    if share.n:
        assert 0.0 <= share.low <= share.ratio <= share.high + 1e-12 <= 1.0 + 1e-12
    else:
        assert math.isnan(share.ratio) and math.isnan(share.low)


def test_wilsons_interval_is_as_in_the_books() -> None:
    share = Share(count=8, n=10)

    assert (share.low, share.high) == pytest.approx((0.490, 0.943), abs=1e-3)


def changed(*, start_time: float | None = None, end_time: float | None = None, **fields: Any) -> JobOutcome:
    """A job with one change at 1000 s, promised to delay it by 300 s at most."""
    change = SeenChange(
        lever=Lever.SWITCHES, applied_time=1000.0, added_delay_s=300.0, saved_s_low=1.0, saved_s_high=9.0
    )
    forecast = SeenForecast(made_time=1000.0, start_time=Interval(low=1000.0, median=1100.0, high=1500.0))
    return JobOutcome(
        job_id=1, submit_time=0.0, start_time=start_time, last_start_time=start_time, end_time=end_time,
        changes=(replace(change, **fields),), changed_forecast=forecast,
    )  # fmt: skip


def tally(*outcomes: JobOutcome, now: float = 9000.0, since: float = 0.0, ended: Iterable[Lease] = ()) -> LeverTally:
    """What the one lever did."""
    (found,) = lever_tallies(outcomes, ended, since=since, now=now)
    return found


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (changed(), "out"),
        (changed(ending=Ending.NO_LONGER_PENDING), "stayed"),
        (changed(ending=Ending.TAKEN_BACK), "taken_back"),
        (changed(ending=Ending.REVERTED), "reverted"),
        (changed(ending=Ending.OVERRULED), "overruled"),
        (changed(overruled_time=1200.0), "overruled"),
        (changed(end_time=2000.0), "unknown"),
    ],
)  # fmt: skip
def test_changes_are_counted_by_how_they_ended(outcome: JobOutcome, kind: str) -> None:
    found = tally(outcome)

    kinds = ("out", "renewed", "stayed", "taken_back", "reverted", "overruled", "unknown")
    assert {name: getattr(found, name) for name in kinds if getattr(found, name)} == {kind: 1}
    assert (found.applied, found.saved_s_low, found.saved_s_high) == (1, 1.0, 9.0)


def test_a_change_that_gave_way_to_a_later_one_is_renewed_and_promises_nothing_more() -> None:
    outcome = changed(start_time=1700.0)
    later = replace(outcome.changes[0], applied_time=1600.0)

    found = tally(replace(outcome, changes=(*outcome.changes, later)))

    assert (found.applied, found.renewed, found.out, found.jobs) == (2, 1, 1, 1)
    assert (found.in_time.count, found.in_time.n) == (1, 1)


@pytest.mark.parametrize(
    ("outcome", "kept", "kept_by_forecast"),
    [
        (changed(start_time=1300.0), (1, 1), (1, 1)),
        (changed(start_time=1301.0), (0, 1), (1, 1)),
        (changed(start_time=1801.0), (0, 1), (0, 1)),
        (changed(), (0, 1), (0, 1)),
        (changed(end_time=2000.0), (0, 0), (0, 0)),
        (changed(start_time=900.0), (0, 0), (0, 0)),
        (replace(changed(start_time=900.0), requeues=1, last_start_time=1200.0), (1, 1), (1, 1)),
        (replace(changed(start_time=900.0), requeues=1, last_start_time=900.0), (0, 1), (0, 1)),
        (changed(start_time=1300.0, added_delay_s=0.0), (0, 0), (0, 0)),
        (replace(changed(start_time=1300.0), changed_forecast=None), (1, 1), (0, 0)),
    ],
    ids=[
        "in time",
        "late",
        "later than forecast",
        "still waits",
        "never ran",
        "before",
        "requeued, in time",
        "requeued, still waits",
        "no promise",
        "no forecast",
    ],
)
def test_a_promise_is_kept_or_not_by_the_start(
    outcome: JobOutcome, kept: tuple[int, int], kept_by_forecast: tuple[int, int]
) -> None:
    found = tally(outcome)

    assert (found.in_time.count, found.in_time.n) == kept
    assert (found.in_time_by_forecast.count, found.in_time_by_forecast.n) == kept_by_forecast


def test_a_job_that_waits_within_its_promise_says_nothing_yet() -> None:
    assert tally(changed(), now=1200.0).in_time.n == 0


def test_a_requeued_job_is_in_time_when_it_starts_again() -> None:
    requeued = replace(changed(start_time=100.0), last_start_time=1200.0)

    assert tally(requeued).in_time.count == 1


def test_what_was_sent_in_vain_is_counted_from_the_journal() -> None:
    in_vain = intended(SetNice(job_id=1, before=0, after=5), 1000.0).ended(Ending.NOT_APPLIED, 1000.0)
    back = intended(SetNice(job_id=2, before=0, after=5), 1000.0).ended(Ending.TAKEN_BACK, 1000.0)

    found = tally(ended=[in_vain, back, replace(in_vain, applied_time=10.0)], since=500.0)

    assert (found.lever, found.applied, found.not_applied) == (Lever.NICE, 0, 1)


def test_changes_from_before_are_none_of_the_report() -> None:
    assert lever_tallies([changed()], [], since=5000.0, now=9000.0) == ()


HELD = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
ASKED = SetSwitches(job_id=1, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))


def timer(action: Action, *, job_id: int = 1, after_s: float | None = None) -> Lease:
    """A timer that began at 1000."""
    lease = intended(replace(action, job_id=job_id), 1000.0, after_s=after_s)
    return replace(lease, state=LeaseState.OUT)


def places(*leases: Lease, start_time: float | None = None, since: float = 0.0) -> list[tuple[LocalityTier, int, int]]:
    """Count one place that was got, and timers of a job that started then."""
    waits = [Wait(gpus=8, tier=LocalityTier.LEAF, waited_s=60.0, got=True, ended_time=1.0)]
    outcomes = [JobOutcome(job_id=1, submit_time=0.0, start_time=start_time)]
    found = places_got(waits, leases, outcomes, since=since, now=9000.0)
    return [(place.tier, place.got.count, place.got.n) for place in found]


def test_timers_that_ended_without_a_place_count_by_tier_even_if_the_gang_never_started() -> None:
    node = timer(HELD, after_s=300.0).ended(Ending.TAKEN_BACK, 1310.0)
    cancelled = timer(ASKED, job_id=2).ended(Ending.NO_LONGER_PENDING, 2000.0)

    assert places(node, timer(ASKED, job_id=3), cancelled) == [(LocalityTier.NODE, 0, 1), (LocalityTier.LEAF, 1, 3)]


@pytest.mark.parametrize(
    ("lease", "start_time"),
    [
        (timer(ASKED).ended(Ending.NO_LONGER_PENDING, 1650.0), 1590.0),
        (replace(timer(ASKED), applied_time=8500.0), None),
        (timer(HELD, after_s=300.0).ended(Ending.REVERTED, 1400.0), None),
        (timer(HELD, after_s=900.0).ended(Ending.TAKEN_BACK, 1400.0), None),
        (timer(HELD, after_s=300.0).ended(Ending.NO_LONGER_PENDING, 1400.0), 1390.0),
        (timer(ASKED).ended(Ending.NOT_APPLIED, 2000.0), None),
        (timer(HELD.swapped(), after_s=300.0), None),
    ],
    ids=["started in time", "still waits", "reverted", "cut short", "kept to few nodes", "not applied", "no timer"],
)
def test_timers_that_got_a_place_or_were_cut_short_did_not_give_up(lease: Lease, start_time: float | None) -> None:
    assert places(lease, start_time=start_time) == [(LocalityTier.LEAF, 1, 1)]


def test_timer_of_a_requeued_gang_is_judged_by_its_later_start() -> None:
    outcomes = [JobOutcome(job_id=1, submit_time=0.0, start_time=500.0, last_start_time=3000.0, requeues=1)]

    (found,) = places_got([], [timer(ASKED)], outcomes, since=0.0, now=9000.0)

    assert (found.tier, found.got) == (LocalityTier.LEAF, Share(count=0, n=1))


def test_timers_that_ended_before_the_period_are_not_counted() -> None:
    assert places(timer(ASKED), since=1599.0) == [(LocalityTier.LEAF, 1, 2)]
    assert places(timer(ASKED), since=1600.0) == [(LocalityTier.LEAF, 1, 1)]
