"""What a setting gains and costs, which users lose by it and which only seem to, and which setting is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.domain.tune_verdict import PRESETS, Preset
from advisor.settings import Limits
from advisor.sim.cluster import parse_cluster
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import LONGEST_SHIFT_S, perturbed
from advisor.sim.study.frontier import CopiedRuns, Point, TuneOutcome, best_lift, marked, point_of
from advisor.sim.study.result import result_of
from advisor.sim.study.tried_settings import Family, TriedSetting
from advisor.sim.study.user_losses import LEAST_JOBS, UserTally, finish_times, jct_alone_s, tally_users, user_losses
from tests.sim.building import make_trace
from tests.sim.runs import make_run, random_trace

HOUR_S = 3600.0
JOBS = 40
USER = np.repeat(np.arange(2, dtype=np.int32), JOBS // 2)


def setting_of(name: str, family: Family, preset: Preset | None = None) -> TriedSetting:
    return TriedSetting(
        name=name,
        family=family,
        policy="slurm",
        cluster=parse_cluster("nodes=1,gpus=8"),
        options=SimulationOptions(),
        preset=preset,
    )


PLAIN, LIFT = setting_of("slurm", Family.PLAIN), setting_of("lift", Family.LIFT)


def runs_of(jct_s: NDArray[np.float64], delay_s: NDArray[np.float64], changes: int = 0) -> CopiedRuns:
    return CopiedRuns(jct_s=jct_s, queueing_delay_s=delay_s, changes=changes)


@pytest.fixture
def plain() -> CopiedRuns:
    """Two copies in which all jobs take ten hours and wait for one."""
    return runs_of(np.full((2, JOBS), 10 * HOUR_S), np.full((2, JOBS), HOUR_S))


def point(runs: CopiedRuns, plain: CopiedRuns, setting: TriedSetting = LIFT) -> Point:
    return point_of(setting, runs, plain, USER, late_s=6 * HOUR_S, seed=0)


def test_the_figures_are_means_over_the_copies(plain: CopiedRuns) -> None:
    jct_s = plain.jct_s * np.where(USER == 0, 0.5, 1.2)
    delay_s = plain.queueing_delay_s.copy()
    delay_s[0, 3], delay_s[1, 3:5] = 8 * HOUR_S, 9 * HOUR_S

    compared = point(runs_of(jct_s, delay_s, changes=20), plain)

    assert compared.mean_jct_s == pytest.approx(8.5 * HOUR_S)
    assert compared.change.percent == pytest.approx(-15.0)
    assert compared.p99_jct_s == 12 * HOUR_S
    assert compared.longest_wait_s == 8.5 * HOUR_S
    assert compared.late_jobs == 1.5
    assert (compared.users_worse, compared.users_beyond_chance, len(compared.losses)) == (1, 1, 2)
    assert compared.worst is not None and compared.worst.user == 1
    assert compared.changes_per_job == 0.25


def test_the_interval_is_drawn_over_blocks_of_jobs(plain: CopiedRuns) -> None:
    change = point(runs_of(plain.jct_s * np.linspace(0.5, 0.9, JOBS), plain.queueing_delay_s), plain).change

    assert (str(change.pairing), change.pairs, change.units) == ("jobs", JOBS, 6)
    assert change.low < change.percent < change.high < 0.0


def test_late_jobs_of_plain_slurm_are_counted_between_the_copies() -> None:
    delay_s = np.full((2, JOBS), HOUR_S)
    delay_s[1, :4] = 20 * HOUR_S
    plain = runs_of(np.full((2, JOBS), 30 * HOUR_S), delay_s)

    assert point(plain, plain, PLAIN).late_jobs == 2.0
    assert point(runs_of(plain.jct_s, delay_s.copy()), plain).late_jobs == 0.0


def test_jobs_without_a_jct_count_nowhere(plain: CopiedRuns) -> None:
    jct_s, delay_s = plain.jct_s.copy(), plain.queueing_delay_s.copy()
    jct_s[0, 0], delay_s[0, 0] = np.nan, np.nan

    compared = point(runs_of(jct_s, delay_s), plain)

    assert (compared.change.percent, compared.change.pairs, compared.change.left_out) == (0.0, JOBS - 1, 1)
    assert compared.mean_jct_s == 10 * HOUR_S
    assert [loss.user for loss in compared.losses] == [1]


def test_a_point_is_hidden_only_if_another_is_as_good_in_every_column(plain: CopiedRuns) -> None:
    faster = runs_of(plain.jct_s * 0.8, plain.queueing_delay_s, changes=8)
    fastest_with_fewer_changes = runs_of(plain.jct_s * 0.7, plain.queueing_delay_s, changes=4)
    points = [
        point(plain, plain, PLAIN),
        point(faster, plain, setting_of("a", Family.LIFT)),
        point(faster, plain, setting_of("b", Family.LIFT)),
        point(plain, plain, setting_of("idle", Family.SLURM)),
    ]

    # Equal ones are shown once, and what changes nothing is Slurm as it is.
    assert [each.is_dominated for each in marked(points)] == [False, False, True, True]
    best = point(fastest_with_fewer_changes, plain, setting_of("best", Family.LIFT))
    assert [each.is_dominated for each in marked([*points, best])] == [False, True, True, True, False]
    ceiling = replace(best, setting=setting_of("oracle", Family.CEILING))
    assert [each.is_dominated for each in marked([*points, ceiling])] == [False, False, True, True, False]


@pytest.fixture
def tried(plain: CopiedRuns) -> dict[str, Point]:
    """Settings by name: what they make of the JCT of each user, and of the waits of all."""

    def tried(name: str, family: Family, preset: Preset | None, *factors: float, wait: float = 1.0) -> Point:
        jct_s = plain.jct_s * np.where(USER == 0, *factors)
        return point(runs_of(jct_s, plain.queueing_delay_s * wait), plain, setting_of(name, family, preset))

    points = (
        tried("slurm", Family.PLAIN, None, 1.0, 1.0),
        tried("pin", Family.PIN, Preset.FREE, 0.95, 0.95),
        tried("lift user", Family.LIFT, Preset.GENTLE, 0.9, 0.9),
        tried("lift account", Family.LIFT, Preset.GENTLE, 0.8, 0.9),
        tried("harsh", Family.LIFT, Preset.TRADE, 0.2, 1.5),
        tried("late", Family.BOTH, Preset.TRADE, 0.5, 0.5, wait=1.01),
        tried("site", Family.LIFT, None, 0.1, 0.1),
        tried("bf_window", Family.SLURM, None, 0.85, 0.95),
    )
    return {each.setting.name: each for each in points}


def test_best_of_a_preset_hurts_fewest_users_and_is_then_the_fastest(tried: dict[str, Point]) -> None:
    outcome = TuneOutcome(points=tuple(tried.values()), seed=0, in_force=tried["slurm"])

    assert best_lift(outcome.points, Preset.GENTLE) is tried["lift account"]
    assert outcome.presets == {
        Preset.FREE: tried["pin"],
        Preset.GENTLE: tried["lift account"],
        Preset.TRADE: tried["harsh"],
    }
    assert outcome.tuned_slurm is tried["bf_window"]
    # The trade is faster, and takes it from a user.
    assert outcome.advised is tried["lift account"]
    assert outcome.beyond(tried["bf_window"], tried["lift account"]).percent == pytest.approx(100 * (0.85 / 0.9 - 1))
    assert outcome.named == [tried[name] for name in ("pin", "lift account", "harsh", "bf_window")]


def test_a_daemon_moves_to_the_best_lift_of_the_presets_by_the_settings_of_its_guard_alone(plain: CopiedRuns) -> None:
    limits = {name: Limits(fairness=name) for name in ("user", "lane", "trade")}

    def lift(policy: str, fairness: str, factor: float, family: Family = Family.LIFT) -> Point:
        setting = replace(
            setting_of(f"{policy} {fairness}", family, PRESETS[fairness]),
            policy=policy,
            options=SimulationOptions(limits=limits[fairness]),
        )
        return point(runs_of(plain.jct_s * factor, plain.queueing_delay_s), plain, setting)

    points = (
        point(plain, plain, PLAIN),
        lift("lift", "user", 0.9),
        lift("lift", "lane", 0.7),
        lift("lift-forecast", "lane", 0.8),
        lift("lift", "trade", 0.6),
        lift("lift-forecast", "trade", 1.1),
        # With a line of slurm.conf, which the daemon does not write.
        lift("lift", "lane", 0.1, Family.BOTH),
    )
    outcome = TuneOutcome(points=points, seed=0, in_force=points[0])

    def moved(*allowed: Preset, forecasts: bool) -> str | None:
        move = outcome.move(frozenset(allowed), forecasts=forecasts)
        return None if move is None else move.setting.name

    assert moved(Preset.GENTLE, forecasts=False) == "lift lane"
    assert moved(Preset.GENTLE, forecasts=True) == "lift-forecast lane"
    assert moved(*Preset, forecasts=False) == "lift trade"
    assert moved(Preset.TRADE, forecasts=True) is moved(Preset.FREE, forecasts=False) is moved(forecasts=False) is None


def test_what_lengthens_the_tail_of_the_waits_is_no_choice(tried: dict[str, Point]) -> None:
    outcome = TuneOutcome(points=(tried["slurm"], tried["late"]), seed=0, in_force=tried["slurm"])

    assert tried["late"].lengthens_tail and not tried["slurm"].lengthens_tail
    assert outcome.presets[Preset.TRADE] is outcome.advised is None
    assert outcome.tuned_slurm is tried["slurm"]


def test_what_lowers_the_mean_jct_by_nothing_clear_is_not_advised(plain: CopiedRuns) -> None:
    uneven = runs_of(plain.jct_s * np.where(np.arange(JOBS) % 2, 0.5, 1.4), plain.queueing_delay_s)
    points = (point(plain, plain, PLAIN), point(uneven, plain, setting_of("pin", Family.PIN, Preset.FREE)))

    assert points[1].mean_jct_s < points[0].mean_jct_s
    assert TuneOutcome(points=points, seed=0, in_force=points[0]).advised is None


def test_one_worse_copy_of_plain_slurm_is_what_chance_does_to_the_tail(plain: CopiedRuns) -> None:
    delay_s = plain.queueing_delay_s.copy()
    delay_s[0] *= 1.2
    slower = runs_of(plain.jct_s, plain.queueing_delay_s * 1.15)

    assert not point(slower, runs_of(plain.jct_s, delay_s)).lengthens_tail
    assert point(slower, plain).lengthens_tail


@pytest.mark.parametrize(
    ("jobs", "alone_s"),
    [
        # Of two users each has 4 of 8 GPUs: two jobs of 2 beside each other, the third after the first of them.
        ([("ann", 0, 2, 100), ("ann", 0, 2, 50), ("ann", 10, 2, 100), ("bob", 0, 4, 10)], [100, 50, 140, 10]),
        # A job that fits waits for the one ahead of it, and one of 8 takes the share twice as long.
        ([("ann", 0, 2, 100), ("ann", 1, 8, 100), ("ann", 2, 1, 10), ("bob", 5, 1, 10)], [100, 299, 308, 10]),
        # The share is of the GPUs by the number of users; alone a user has all.
        ([("ann", 0, 8, 100), ("ann", 0, 8, 100)], [100, 200]),
    ],
)
def test_a_user_alone_has_an_equal_share_in_the_order_of_submission(
    jobs: list[tuple[str, int, int, int]], alone_s: list[float]
) -> None:
    names = ("user", "submit_time", "gpus", "run_time_s")
    trace = make_trace([dict(zip(names, job, strict=True)) for job in sorted(jobs, key=lambda job: job[1])])
    expected = [alone for _, alone in sorted(zip(jobs, alone_s, strict=True), key=lambda pair: pair[0][1])]

    assert jct_alone_s(trace.jobs, 8, least_jobs=1).tolist() == pytest.approx(expected)


def test_rho_is_the_mean_jct_of_a_user_over_that_alone_and_few_jobs_count_nowhere() -> None:
    trace = random_trace(200)
    user = trace.jobs["user"]
    alone_s = jct_alone_s(trace.jobs, 16)
    enough = np.bincount(user) >= LEAST_JOBS
    factor = np.where(user == np.flatnonzero(enough)[0], 3.0, 0.5)

    fared = finish_times(alone_s * factor, alone_s, user)

    assert np.isfinite(alone_s).tolist() == enough[user].tolist() and enough.sum() > 1
    assert (alone_s[enough[user]] >= trace.jobs["run_time_s"][enough[user]] - 1e-6).all()
    assert fared is not None and fared.users == enough.sum()
    assert fared.worst_rho == pytest.approx(3.0) and fared.worst_user == np.flatnonzero(enough)[0]
    assert fared.mean_rho == pytest.approx((3.0 + 0.5 * (fared.users - 1)) / fared.users)
    assert finish_times(np.full(200, np.nan), alone_s, user) is None


def test_runs_are_collected_in_the_order_of_the_trace() -> None:
    trace = make_trace([{"submit_time": 30.0 * at, "user": ("ann", "bob", "cy")[at % 3]} for at in range(30)])
    copies = [perturbed(trace, repeat, 0) for repeat in range(3)]
    results = []
    for copy in copies:
        submitted = copy.trace.jobs["submit_time"]
        # A job waits for as many seconds as its id, and runs for 100.
        starts = submitted + copy.trace.jobs["job_id"]
        times = list(zip(starts.tolist(), (starts + 100.0).tolist(), strict=True))
        results.append(result_of(replace(make_run(copy.trace, times), changes=2)))

    runs = CopiedRuns.of(results, copies)

    assert runs.changes == 6
    for copy_of_delays, copy_of_jct in zip(runs.queueing_delay_s, runs.jct_s, strict=True):
        assert copy_of_delays == pytest.approx(np.arange(1, 31))
        assert copy_of_jct == pytest.approx(np.arange(101, 131))


COPIES, USERS = 4, 30
USER_OF_JOB = np.repeat(np.arange(USERS), JOBS)


def world(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the JCT of the same jobs twice: chance moves all jobs of a user together, and every job alone."""
    rng = np.random.default_rng(seed)
    own = rng.lognormal(np.log(6 * HOUR_S), 1.0, USERS * JOBS)
    shape = (2, COPIES, USERS)
    together = rng.lognormal(0.0, 0.07, shape)[..., USER_OF_JOB]
    before_s, after_s = own * together * rng.lognormal(0.0, 0.3, (2, COPIES, USERS * JOBS))
    return before_s, after_s


def test_without_any_effect_hardly_any_world_has_a_user_beyond_chance() -> None:
    losses = [user_losses(*world(seed), USER_OF_JOB) for seed in range(100)]

    assert sum(any(loss.is_beyond_chance for loss in users) for users in losses) <= 5
    # By the means alone most worlds have users who lose.
    assert sum(any(loss.is_worse for loss in users) for users in losses) >= 90


def test_a_loss_of_half_is_found_and_it_alone() -> None:
    as_they_are = []
    for seed in range(100):
        before_s, after_s = world(seed)
        after_s[:, USER_OF_JOB == 7] *= 1.5
        as_they_are.append([loss.user for loss in user_losses(before_s, after_s, USER_OF_JOB) if loss.is_beyond_chance])

    assert as_they_are.count([7]) >= 80


def test_a_loss_is_the_difference_of_the_means_and_the_worst_comes_first() -> None:
    user = np.repeat([0, 1, 2], 20)
    before_s = np.full((2, 60), 10 * HOUR_S)
    after_s = before_s * np.repeat([1.2, 0.5, 1.5], 20)

    worst, second, best = user_losses(before_s, after_s, user)

    assert [loss.user for loss in (worst, second, best)] == [2, 0, 1]
    assert (worst.before_s, worst.after_s, worst.jobs) == (10 * HOUR_S, 15 * HOUR_S, 20)
    assert (worst.percent, worst.error_s, worst.allowed_s) == (50.0, 0.0, 1800.0)
    assert worst.is_beyond_chance and second.is_beyond_chance
    assert not best.is_worse


@pytest.mark.parametrize(
    ("hours", "longer_s", "is_worse"),
    [(1.0, 1700.0, False), (1.0, 1900.0, True), (100.0, 17_000.0, False), (100.0, 19_000.0, True)],
)
def test_half_an_hour_and_five_percent_are_allowed(hours: float, longer_s: float, is_worse: bool) -> None:
    before_s = np.full((2, 20), hours * HOUR_S)

    (loss,) = user_losses(before_s, before_s + longer_s, np.zeros(20, np.int32))

    assert (loss.is_worse, loss.is_beyond_chance) == (is_worse, is_worse)


def test_a_policy_that_varies_more_has_to_lose_more() -> None:
    before_s = np.full((4, 20), 10 * HOUR_S)
    steady, unsteady = (
        before_s * np.array(factors)[:, None] for factors in ([1.2, 1.2, 1.2, 1.2], [0.8, 1.0, 1.2, 1.8])
    )

    (sure,), (unsure,) = (user_losses(before_s, after_s, np.zeros(20, np.int32)) for after_s in (steady, unsteady))

    assert sure.loss_s == pytest.approx(unsure.loss_s)
    assert sure.is_beyond_chance
    assert unsure.is_worse and not unsure.is_beyond_chance


def test_users_with_few_jobs_that_ended_in_all_copies_are_left_out() -> None:
    user = np.repeat([0, 1], 20)
    before_s, after_s = np.full((2, 40), HOUR_S), np.full((2, 40), HOUR_S)
    after_s[1, 3] = np.nan

    assert [loss.user for loss in user_losses(before_s, after_s, user)] == [1]
    assert [loss.jobs for loss in user_losses(before_s, after_s, user, least_jobs=1)] == [19, 20]


def test_users_are_counted_by_the_mean_of_their_jobs_in_one_run() -> None:
    user = np.repeat([0, 1, 2, 3], [20, 20, 20, 19])
    before_s = np.full(79, 10 * HOUR_S)
    after_s = before_s * np.repeat([1.2, 0.5, 1.04, 2.0], [20, 20, 20, 19])

    tally = tally_users(before_s, after_s, user)

    assert tally == UserTally(worse=1, better=1, users=3)


def test_jobs_that_one_policy_did_not_finish_do_not_count_for_their_user() -> None:
    user = np.zeros(21, np.int32)
    before_s, after_s = np.full((2, 21), HOUR_S)
    after_s[:2] = np.nan

    assert tally_users(before_s, after_s, user) == UserTally(worse=0, better=0, users=0)


def test_a_copy_holds_the_same_jobs_up_to_five_minutes_later() -> None:
    trace = random_trace(500)

    copy = perturbed(trace, 0, 0)

    later_s = copy.trace.jobs["submit_time"] - trace.jobs["submit_time"][copy.row]
    assert 0.0 <= later_s.min() < 10.0
    assert 290.0 < later_s.max() <= LONGEST_SHIFT_S
    assert (np.diff(copy.trace.jobs["submit_time"]) >= 0.0).all()
    assert not np.array_equal(copy.row, np.arange(500))
    for name in ("job_id", "run_time_s", "gpus", "user"):
        assert np.array_equal(copy.in_original_order(copy.trace.jobs[name]), trace.jobs[name])


def test_values_are_put_back_into_the_order_of_the_trace() -> None:
    trace = random_trace(50)
    copy = perturbed(trace, 0, 0)
    ids = copy.trace.jobs["job_id"].astype(np.float64)

    ordered = copy.in_original_order(np.stack([ids, -ids]))

    assert np.array_equal(ordered, np.stack([trace.jobs["job_id"], -trace.jobs["job_id"]]))


def test_copies_differ_by_repeat_and_by_seed_and_are_the_same_again() -> None:
    trace = random_trace(50)

    times = [
        perturbed(trace, repeat, seed).trace.jobs["submit_time"] for repeat, seed in [(0, 0), (1, 0), (0, 1), (0, 0)]
    ]

    assert np.array_equal(times[0], times[3])
    assert not np.array_equal(times[0], times[1]) and not np.array_equal(times[0], times[2])


def test_a_user_keeps_the_order_and_the_arrays_of_the_own_jobs() -> None:
    array = [{"user": "ann", "array_id": 1}] * 5
    follower = {"submit_time": 1.0, "user": "ann"}
    other = {"submit_time": 2.0, "user": "bob"}
    trace = make_trace([*array, follower, other])

    for repeat in range(50):
        submitted = perturbed(trace, repeat, 0)
        times = submitted.in_original_order(submitted.trace.jobs["submit_time"])
        assert len(set(times[:5].tolist())) == 1
        assert times[5] >= times[0]
