"""A rollout in which every change shifts the completion of all jobs by a known amount."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from advisor.domain.actions import (
    Action,
    NodeRange,
    SetGpus,
    SetNice,
    SetNodeList,
    SetNodeRange,
    SetSwitches,
    SetTimeMin,
)
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.plan import Kind, Recommendation
from advisor.planning.case import Case
from advisor.planning.compensation import DelayedByAdvice
from advisor.planning.plan_trial import (
    GAINS,
    NO_TRIAL,
    TRIED,
    PlanTrial,
    TrialFinding,
    TrialSize,
    refused_by_trial,
    scenario,
    try_plan,
    untried,
)
from advisor.planning.rollout import PlanEffect, RolloutValues, Scenario, TimedAction, effect_of, interval_of_mean
from tests.builders import make_cluster, make_gang, make_job, make_recommendation, size_of
from tests.sim.live.test_slurm_rollout import RAISED, check


@dataclass(frozen=True, kw_only=True)
class FakeRollout:
    """Shift the completion of all jobs by `shift_s[action](draw)` for each change; `calls` holds all plans."""

    shift_s: Mapping[Action, Callable[[int], float]]
    calls: list[list[frozenset[Action]]] = field(default_factory=list)

    def values(
        self, case: Case, plans: Sequence[Scenario], *, horizon_s: float, draws: int, first_draw: int = 0
    ) -> RolloutValues:
        self.calls.append([frozenset(timed.action for timed in plan) for plan in plans])
        jobs = case.snapshot.jobs
        start_s = np.zeros((len(plans), draws, len(jobs)))
        for number, plan in enumerate(plans):
            for place, draw in enumerate(range(first_draw, first_draw + draws)):
                shift_s = sum(self.shift_s[timed.action](draw) for timed in plan if timed.action in self.shift_s)
                start_s[number, place] = 5000.0 + 10.0 * np.random.default_rng(draw).random() + shift_s
        completion_s = start_s + 600.0
        return RolloutValues(
            job_ids=np.array([job.job_id for job in jobs]),
            gpus=np.ones(len(jobs), dtype=np.int64),
            was_pending=np.array([job.is_pending for job in jobs]),
            start_s=start_s,
            end_s=completion_s,
            completion_s=completion_s,
            horizon_s=horizon_s,
            left_out=(),
        )


CASE = Case(snapshot=make_cluster([make_job(number, gang=make_gang(1)) for number in range(1, 9)]))
SIZE = TrialSize(plans=8, draws=4)
OWED = DelayedByAdvice(
    realised_delay_s=60.0, first_in_line_s=60.0, bound_s=30.0, jobs_passed=1, priority=1, priority_after=2
)


def always(shift_s: float) -> Callable[[int], float]:
    return lambda _: shift_s


def now_and_then(shift_s: float) -> Callable[[int], float]:
    """A shift by turns upwards and downwards, a little more so upwards."""
    return lambda draw: shift_s if draw % 2 else -0.9 * shift_s


def lift(job_id: int) -> Recommendation:
    return make_recommendation(SetNice(job_id=job_id, before=0, after=-100), revert_after_s=3600.0)


def hold(job_id: int, *, saved_s: float = 600.0) -> Recommendation:
    return make_recommendation(
        SetNodeRange(job_id=job_id, before=NodeRange(low=1, high=2), after=NodeRange(low=1, high=1)),
        kind=Kind.CONSOLIDATE,
        saved_s=(0.0, saved_s),
        revert_after_s=600.0,
    )


def growth(job_id: int) -> Recommendation:
    one, two = size_of(GpuCount(count=1)), size_of(GpuCount(count=2))
    return make_recommendation(
        SetGpus(job_id=job_id, scope=GpuScope.JOB, before=one, after=two), kind=Kind.RESIZE, saved_s=(0.0, 600.0)
    )


def tried(
    changes: Sequence[Recommendation], shift_s: dict[Action, Callable[[int], float]], size: TrialSize = SIZE
) -> tuple[PlanTrial, tuple[str | None, ...], FakeRollout]:
    rollout = FakeRollout(shift_s=shift_s)
    trial = try_plan(CASE, changes, rollout, size)
    return trial, tuple(change.refused_by for change in refused_by_trial(changes, trial)), rollout


def test_change_that_gains_goes_out_and_one_that_loses_does_not() -> None:
    changes = [hold(1), growth(2)]

    trial, refused, _ = tried(changes, {changes[0].action: always(-50.0), changes[1].action: always(10.0)})

    assert refused == (None, GAINS)
    assert [one.finding for one in trial.changes] == [TrialFinding.GAINS, TrialFinding.NO_CLEAR_GAIN]
    assert [one.alone_s and one.alone_s.median for one in trial.changes] == pytest.approx([-50.0, 10.0])
    assert trial.effect is not None
    assert trial.effect.completion_s.median == pytest.approx(-50.0)


def test_change_that_gains_by_chance_alone_does_not_go_out() -> None:
    change = hold(1)

    trial, refused, _ = tried([change], {change.action: now_and_then(50.0)})

    assert refused == (GAINS,)
    assert trial.changes[0].alone_s is not None
    assert trial.changes[0].alone_s.low < 0.0 < trial.changes[0].alone_s.high


def test_lifts_go_out_unless_they_clearly_lose() -> None:
    changes = [lift(1), lift(2)]
    chance, loss = ({change.action: shift for change in changes} for shift in (now_and_then(50.0), always(5.0)))

    uncertain, sent, _ = tried(changes, chance)
    lost, held, _ = tried(changes, loss)

    assert (uncertain.lifts, sent) == (TrialFinding.NO_CLEAR_LOSS, (None, None))
    assert (lost.lifts, held) == (TrialFinding.CLEAR_LOSS, (GAINS, GAINS))
    assert lost.effect is not None
    assert lost.effect.completion_s.median == 0.0


def test_lifts_that_surely_lose_less_than_a_second_lose() -> None:
    change = lift(1)

    trial, refused, _ = tried([change], {change.action: always(0.5)})

    assert (trial.lifts, refused) == (TrialFinding.CLEAR_LOSS, (GAINS,))


def test_change_is_confirmed_against_the_lifts_alone() -> None:
    lifted, gaining, losing = [lift(1), hold(2)], always(-50.0), always(20.0)

    _, refused, _ = tried(lifted, {lifted[0].action: gaining, lifted[1].action: gaining})
    _, against, _ = tried(lifted, {lifted[0].action: gaining, lifted[1].action: losing})

    assert (refused, against) == ((None, None), (None, GAINS))


def test_change_is_tried_on_top_of_the_lifts_and_without_them_where_they_lose() -> None:
    changes = [lift(1), hold(2)]

    _, _, kept = tried(changes, {changes[0].action: always(-5.0)})
    _, refused, lost = tried(changes, {changes[0].action: always(5.0), changes[1].action: always(-5.0)})

    raised, held = (change.action for change in changes)
    assert kept.calls == [_with_ends([[], [raised], [raised, held]])]
    assert lost.calls[1] == _with_ends([[], [held]])
    assert refused == (GAINS, None)


def test_lift_that_makes_up_for_a_delay_goes_out_where_lifts_lose() -> None:
    owed = replace(lift(1), facts=OWED)
    changes = [owed, lift(2)]

    trial, refused, _ = tried(changes, {change.action: always(5.0) for change in changes})

    assert trial.lifts is TrialFinding.CLEAR_LOSS
    assert refused == (None, GAINS)


def test_small_gains_go_out_together_without_those_that_lose_alone() -> None:
    changes = [hold(1), hold(2), hold(3)]
    small = now_and_then(-70.0)

    trial, refused, _ = tried(
        changes,
        {
            changes[0].action: always(-30.0),
            changes[1].action: lambda draw: small(draw) - 20.0,
            changes[2].action: now_and_then(20.0),
        },
        TrialSize(plans=8, draws=8),
    )

    assert [one.finding for one in trial.changes] == [
        TrialFinding.GAINS,
        TrialFinding.GAINS_TOGETHER,
        TrialFinding.NO_CLEAR_GAIN,
    ]
    assert refused == (None, None, GAINS)


def test_changes_beyond_the_number_of_plans_do_not_go_out() -> None:
    changes = [hold(number, saved_s=100.0 * number) for number in range(1, 7)]
    shifts = {change.action: always(20.0) for change in changes[:4]} | {
        change.action: always(-5.0) for change in changes[4:]
    }

    trial, refused, rollout = tried(changes, shifts, TrialSize(plans=5, draws=4))

    # Without changes, all together, and the two that promise most.
    assert len(rollout.calls[0]) == 4
    assert refused == (GAINS, GAINS, GAINS, GAINS, None, None)
    assert [one.alone_s is None for one in trial.changes] == [True, True, True, True, False, False]


def test_change_that_no_plan_holds_was_not_tried() -> None:
    changes = [hold(1), growth(2)]

    trial, refused, _ = tried(changes, {}, TrialSize(plans=3, draws=4))

    assert refused == (GAINS, TRIED)
    assert trial.changes[1].finding is TrialFinding.NOT_TRIED


def test_choice_has_to_gain_under_draws_that_did_not_choose_it() -> None:
    change = hold(1)

    trial, refused, rollout = tried(
        [lift(2), change], {change.action: lambda draw: -50.0 if draw < SIZE.draws else 50.0}
    )

    assert trial.changes[0].finding is TrialFinding.NOT_CONFIRMED
    assert refused == (None, GAINS)
    assert len(rollout.calls) == 2
    assert trial.effect is not None
    assert trial.effect.completion_s.high == 0.0


def test_named_nodes_and_refused_changes_are_left_as_they_are() -> None:
    named = make_recommendation(SetNodeList(job_id=1, before=(), after=("n01", "n02")), kind=Kind.CONSOLIDATE)
    refused = replace(hold(3), refused_by="cooldown_over")

    trial, rules, rollout = tried([named, refused], {})

    assert rollout.calls == []
    assert trial == NO_TRIAL
    assert rules == (None, "cooldown_over")


def test_without_rollouts_lifts_go_out_and_nothing_else() -> None:
    owed = replace(lift(4), facts=OWED)
    timer = make_recommendation(
        SetSwitches(job_id=5, before=None, after=SwitchRequest(count=1, max_wait_s=60.0)), kind=Kind.CONSOLIDATE
    )
    soft = make_recommendation(SetTimeMin(job_id=6, before=None, after=60.0))
    changes = [lift(1), hold(2), growth(3), owed, timer, soft]

    trial = untried(changes, "late")

    assert trial.fault == "late"
    rules = tuple(change.refused_by for change in refused_by_trial(changes, trial))
    assert rules == (None, TRIED, TRIED, None, TRIED, TRIED)


def test_plan_reverts_what_ends_before_the_job_starts() -> None:
    change, soft = hold(1), make_recommendation(SetTimeMin(job_id=6, before=None, after=60.0))

    assert list(scenario([change, soft])) == [
        TimedAction(action=change.action),
        TimedAction(action=change.action.swapped(), after_s=600.0),
        TimedAction(action=soft.action),
    ]


def test_equal_inputs_give_equal_trials_in_any_order() -> None:
    changes = [lift(1), hold(2), growth(3), hold(4)]
    shifts = {change.action: now_and_then(-30.0) for change in changes}

    one, other = (tried(order, shifts)[0] for order in (changes, changes[::-1]))

    assert one == other


@pytest.mark.parametrize("size", [{"plans": 2}, {"draws": 1}, {"horizon_s": 0.0}, {"horizon_s": float("nan")}])
def test_sizes_that_can_decide_nothing_are_refused(size: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least three plans"):
        TrialSize(**size)  # type: ignore[arg-type]


def _with_ends(plans: list[list[Action]]) -> list[frozenset[Action]]:
    """Return plans as rolled out: with the ends of changes that are reverted."""
    return [frozenset(action for one in plan for action in (one, one.swapped())) for plan in plans]


def test_fake_keeps_to_the_contract_of_rollouts() -> None:
    check(FakeRollout(shift_s={RAISED[0].action: always(-5.0)}))


HORIZON_S = 1000.0


def values(start_s: list[list[list[float]]], completion_s: list[list[list[float]]]) -> RolloutValues:
    """Return two plans, in draws, of two jobs that wait and one that runs."""
    starts, ends = np.array(start_s), np.array(completion_s)
    return RolloutValues(
        job_ids=np.array([1, 2, 3]),
        gpus=np.ones(3, dtype=np.int64),
        was_pending=np.array([True, True, False]),
        start_s=starts,
        end_s=ends,
        completion_s=ends,
        horizon_s=HORIZON_S,
        left_out=("a sentence",),
    )


def test_differences_are_means_over_all_jobs_and_the_other_way_round() -> None:
    before, after = [[500.0, 100.0, 0.0]] * 2, [[100.0, 200.0, 0.0]] * 2
    gain = effect_of(values([before, after], [[[900.0, 300.0, 60.0]] * 2, [[500.0, 400.0, 60.0]] * 2]))
    loss = effect_of(values([after, before], [[[500.0, 400.0, 60.0]] * 2, [[900.0, 300.0, 60.0]] * 2]))

    assert (gain.completion_s.median, gain.wait_s.median) == pytest.approx((-100.0, -150.0))
    assert (gain.jobs, gain.waiting, gain.draws, gain.sooner, gain.later) == (3, 2, 2, 1, 1)
    assert gain.gains and not loss.gains
    assert loss.completion_s.median == pytest.approx(100.0)
    assert gain.left_out == ("a sentence",)


def test_jobs_beyond_the_horizon_wait_until_it() -> None:
    effect = effect_of(values([[[np.nan, 0.0, 0.0]], [[400.0, 0.0, 0.0]]], [[[1100.0, 9.0, 9.0]], [[500.0, 9.0, 9.0]]]))

    assert effect.wait_s.median == pytest.approx(-300.0)
    assert (effect.sooner, effect.later) == (1, 0)


def test_interval_takes_two_draws_at_least() -> None:
    one, two = interval_of_mean(np.array([3.0])), interval_of_mean(np.array([0.0, 2.0]))

    assert (one.low, one.median, one.high) == (3.0, 3.0, 3.0)
    assert (two.low, two.median, two.high) == pytest.approx((1.0 - 3.078, 1.0, 1.0 + 3.078))


def test_gain_is_judged_by_the_interval_of_its_expectation() -> None:
    draws = [[0.0, 0.0, 0.0]] * 10

    def shifted(*per_draw: float) -> PlanEffect:
        return effect_of(values([draws, draws], [draws, [[shift, 0.0, 0.0] for shift in per_draw]]))

    # A mean of -4 s over three jobs is -12 s for one; the 90 % quantile of Student's t is 1.383 with 9 degrees.
    wide, narrow = (shifted(*[-12.0 + reach, -12.0 - reach] * 5) for reach in (60.0, 6.0))

    assert (wide.completion_s.low, wide.completion_s.median, wide.completion_s.high) == pytest.approx(
        (-4.0 - 1.383 * 20.0 / 3.0, -4.0, -4.0 + 1.383 * 20.0 / 3.0), rel=1e-3
    )
    assert not wide.gains
    assert narrow.gains


def test_one_plan_of_several_is_compared_with_another() -> None:
    plans = [[[100.0, 0.0, 0.0]] * 2, [[70.0, 0.0, 0.0]] * 2, [[130.0, 0.0, 0.0]] * 2]

    assert effect_of(values(plans, plans), 2, 1).completion_s.median == pytest.approx(20.0)
