"""Trials of plans in a process of its own: verdicts are kept, and without one only the lifts go out."""

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest

from advisor.apply.memory_journal import MemoryJournal
from advisor.config import Config
from advisor.cycle import Cycle
from advisor.daemon.service import Outfit, Service
from advisor.domain.actions import Lever, NodeRange, SetNice, SetNodeRange
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import SlurmError
from advisor.journal import opened
from advisor.journal.views import Done, RowQuery
from advisor.metrics.observer import Metrics
from advisor.planning.case import Case
from advisor.planning.plan_trial import (
    GAINS,
    KEPT_S,
    TRIED,
    KeptTrials,
    PlanTrial,
    Trial,
    TrialFinding,
    TriedChange,
    is_tried,
    refused_by_trial,
)
from advisor.replay.deviations import Shadow
from advisor.settings import PlanningSettings
from advisor.sim.live.rollout_trial import ANSWER, TrialTask
from advisor.site.plan_trials import MOST_WAITING, ChildTrial, RunTrial, ShortTrial, run_trial, trials_by
from tests.builders import TAKEN_AT, make_cluster, make_gang, make_job, make_recommendation, make_snapshot
from tests.daemon.rounds import Site
from tests.daemon.test_round_log import Events
from tests.fake_cluster import HOLD
from tests.planning.test_policies import Scripted

JOBS = [make_job(number, gang=make_gang(2), time_limit_s=3600.0) for number in range(1, 5)]


def lift(job_id: int) -> Recommendation:
    return make_recommendation(SetNice(job_id=job_id, before=0, after=-100), revert_after_s=3600.0)


def hold(job_id: int) -> Recommendation:
    return make_recommendation(
        SetNodeRange(job_id=job_id, before=NodeRange(low=1, high=2), after=NodeRange(low=1, high=1)),
        kind=Kind.CONSOLIDATE,
        revert_after_s=600.0,
    )


def case(*, after_s: float = 0.0) -> Case:
    return Case(snapshot=replace(make_cluster(JOBS), taken_at=TAKEN_AT + after_s))


CHANGES = (lift(4), hold(1))


def tried_within(limit_s: float) -> PlanTrial:
    """Try the changes in this process."""
    seen = case()
    return TrialTask(
        snapshot=seen.snapshot, forecasts=seen.forecasts, settings=seen.settings, changes=CHANGES, limit_s=limit_s
    ).tried()


class Runs:
    """Answers each task with the same finding about every change other than a lift."""

    def __init__(self, finding: TrialFinding, *, lifts: TrialFinding | None = None, fault: str = "") -> None:
        self.tasks: list[tuple[int, ...]] = []
        self._finding, self._lifts, self._fault = finding, lifts, fault

    def __call__(self, task: bytes, limit_s: float) -> bytes:
        assert limit_s == 15.0
        changes = [one for one in pickle.loads(task).changes if one.refused_by is None]  # noqa: S301  (made here)
        others = [one for one in changes if not isinstance(one.action, SetNice)]
        self.tasks.append(tuple(one.job_id for one in changes))
        if self._fault:
            raise SlurmError(self._fault)
        found = tuple(TriedChange(job_id=one.job_id, lever=one.action.lever, finding=self._finding) for one in others)
        return ANSWER.dump_json(PlanTrial(lifts=self._lifts, changes=found))


def kept(run: RunTrial) -> KeptTrials:
    return KeptTrials(trial=ChildTrial(run=run, deadline_s=15.0))


def rules(trials: KeptTrials, changes: Sequence[Recommendation], *, after_s: float = 0.0) -> tuple[str | None, ...]:
    trial = trials.tried(case(after_s=after_s), changes)
    return tuple(change.refused_by for change in refused_by_trial(changes, trial))


def test_verdict_holds_for_a_while_and_is_then_found_again() -> None:
    runs = Runs(TrialFinding.NO_CLEAR_GAIN)
    trials = kept(runs)

    verdicts = [rules(trials, [hold(1)], after_s=after_s) for after_s in (0.0, 60.0, KEPT_S - 1.0)]

    assert verdicts == [(GAINS,)] * 3
    assert len(runs.tasks) == 1
    assert rules(trials, [hold(1)], after_s=KEPT_S + 1.0) == (GAINS,)
    assert len(runs.tasks) == 2


def test_new_change_is_tried_beside_those_that_gain_and_without_those_that_do_not() -> None:
    gaining, losing = Runs(TrialFinding.GAINS), Runs(TrialFinding.NO_CLEAR_GAIN)
    of_gaining, of_losing = (kept(runs) for runs in (gaining, losing))

    for trials in (of_gaining, of_losing):
        rules(trials, CHANGES)
        rules(trials, [lift(4), hold(1), hold(2)], after_s=60.0)

    assert gaining.tasks == [(4, 1), (4, 1, 2)]
    assert losing.tasks == [(4, 1), (4, 2)]


def test_verdict_does_not_hold_once_the_clock_was_set_back() -> None:
    runs = Runs(TrialFinding.NO_CLEAR_GAIN)
    trials = kept(runs)

    for after_s in (0.0, -KEPT_S):
        rules(trials, [hold(1)], after_s=after_s)

    assert len(runs.tasks) == 2


def test_lifts_that_clearly_lose_stay_refused_for_as_long() -> None:
    trials = kept(Runs(TrialFinding.GAINS, lifts=TrialFinding.CLEAR_LOSS))

    assert rules(trials, CHANGES) == (GAINS, None)
    assert rules(trials, [lift(3), hold(1)], after_s=60.0) == (GAINS, None)


def test_fault_lets_the_lifts_go_out_and_is_not_repeated_at_once() -> None:
    runs = Runs(TrialFinding.GAINS, fault="killed")
    trials = kept(runs)

    trial = trials.tried(case(), CHANGES)

    assert trial.fault == "the plan was not rolled out: killed"
    assert rules(trials, CHANGES, after_s=60.0) == (None, TRIED)
    assert len(runs.tasks) == 1


@pytest.mark.parametrize("answer", [b"", b"{}[", b'{"changes": [{"job_id": "x"}]}', b"\xff"])
def test_answer_that_is_none_is_a_fault(answer: bytes) -> None:
    trials = ChildTrial(run=lambda _task, _limit_s: answer, deadline_s=15.0)

    trial = trials.tried(case(), CHANGES)

    assert trial.fault.startswith("the plan was not rolled out: ")
    assert trial.changes == (TriedChange(job_id=1, lever=Lever.NODE_RANGE, finding=TrialFinding.NOT_TRIED),)


def test_process_answers_as_the_function_does() -> None:
    trial = ChildTrial(run=run_trial(), deadline_s=60.0).tried(case(), CHANGES)

    assert trial == tried_within(60.0)
    assert trial.effect is not None
    assert json.loads(ANSWER.dump_json(trial))["effect"]["draws"] == trial.effect.draws


def test_process_that_is_late_is_ended() -> None:
    trial = ChildTrial(run=run_trial(), deadline_s=0.01).tried(case(), CHANGES)

    assert trial.effect is None
    assert "within" in trial.fault


def test_queue_that_would_take_minutes_starts_no_process() -> None:
    runs = Runs(TrialFinding.GAINS)
    few = case().snapshot
    long = replace(few, jobs=tuple(replace(few.pending[0], job_id=number) for number in range(1, MOST_WAITING + 2)))

    trial = ChildTrial(run=runs, deadline_s=15.0).tried(Case(snapshot=long), CHANGES)

    assert runs.tasks == [] and trial.effect is None
    assert trial.fault == "the plan was not rolled out: more than 5000 jobs wait"


def test_process_that_would_take_too_long_says_so() -> None:
    trial = tried_within(1e-9)

    assert trial.effect is None and trial.lifts is TrialFinding.NO_CLEAR_LOSS
    assert trial.fault.startswith("its rollouts would take about ")


def test_snapshot_with_nothing_to_simulate_sends_the_lifts_alone() -> None:
    empty = Case(snapshot=make_snapshot([], []))

    trial = ChildTrial(run=run_trial(), deadline_s=60.0).tried(empty, CHANGES)

    assert "nothing to simulate" in trial.fault
    assert trial.changes[0].finding is TrialFinding.NOT_TRIED


def test_command_tries_the_plan_of_a_short_queue_itself_and_finds_the_same() -> None:
    trial = ShortTrial(otherwise=Decided(TrialFinding.NOT_TRIED)).tried(case(), CHANGES)

    assert trial == tried_within(60.0)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(make_snapshot([], []), id="nothing to simulate"),
        pytest.param(make_snapshot([make_job(number) for number in range(1, 202)], []), id="long queue"),
    ],
)
def test_command_leaves_other_plans_to_a_process(seen: Snapshot) -> None:
    elsewhere = Decided(TrialFinding.NOT_TRIED, fault="elsewhere")

    trial = ShortTrial(otherwise=elsewhere).tried(Case(snapshot=seen), CHANGES)

    assert trial.fault == "elsewhere"


@pytest.mark.parametrize(
    ("is_command", "deadline_s", "kind"), [(True, 15.0, ShortTrial), (True, 1.0, ChildTrial), (False, 15.0, ChildTrial)]
)
def test_daemon_and_short_deadlines_always_take_a_process(is_command: bool, deadline_s: float, kind: type) -> None:
    trials = trials_by(PlanningSettings(rollout_deadline_s=deadline_s), is_command=is_command)

    assert isinstance(trials, KeptTrials)
    assert isinstance(trials.trial, kind)


def test_deadline_of_zero_plans_by_the_formulas_alone() -> None:
    assert trials_by(PlanningSettings(rollout_deadline_s=0.0)) is None
    with pytest.raises(ValueError, match="rollout_deadline_s"):
        PlanningSettings(rollout_deadline_s=-1.0)


def test_cycle_without_changes_to_try_starts_no_process() -> None:
    def never(_task: bytes, _limit_s: float) -> bytes:
        raise AssertionError("a process was started")

    long = make_job(1, gang=make_gang(4), time_limit_s=86_400.0, priority=2000, user="bob")
    short = make_job(2, gang=make_gang(1), time_limit_s=600.0, priority=1000)
    full = [make_job(10 + n, gpus=8, running_on=[f"n0{n}"], time_limit_s=7200.0) for n in range(1, 5)]
    cycle = Cycle(trial=kept(never))
    snapshot = make_cluster([*full, long, short])

    record = cycle.judge(snapshot, cycle.memory(MemoryJournal(), snapshot))

    assert [change.action.lever for change in record.recommendations] == [Lever.NICE]


class Decided:
    """A trial whose finding about every change but lifts is given; `count` are its calls."""

    def __init__(self, finding: TrialFinding, fault: str = "") -> None:
        self.count = 0
        self._finding, self._fault = finding, fault

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:  # noqa: ARG002  (the protocol's)
        self.count += 1
        keys = sorted((one.job_id, one.action.lever) for one in changes if is_tried(one))
        found = tuple(TriedChange(job_id=job_id, lever=lever, finding=self._finding) for job_id, lever in keys)
        return PlanTrial(changes=found, fault=self._fault)


def serving(site: Site, trial: Trial, shadow: Shadow | None = None) -> Service:
    """Start a service that tries its plans."""
    config = site.service().config

    def build(config: Config) -> Outfit:
        outfit = site.outfit(config)
        cycle = replace(outfit.applier.cycle, trial=trial)
        return replace(outfit, applier=replace(outfit.applier, cycle=cycle), shadow=shadow)

    return Service(build, config, site.clock, site.told.append)


def test_daemon_sends_what_gains_and_not_what_does_not(site: Site) -> None:
    serving(site, Decided(TrialFinding.NO_CLEAR_GAIN)).round()
    kept_back = list(site.cluster.sent)
    site.clock.advance(3600.0)
    serving(site, Decided(TrialFinding.GAINS)).round()

    assert kept_back == []
    assert site.cluster.sent == [HOLD]


def test_fault_of_a_trial_is_in_the_audit_the_log_and_the_metrics(site: Site) -> None:
    serving(site, Decided(TrialFinding.NOT_TRIED, fault="late")).round()

    metrics = Metrics(version="1", interval_s=60.0, journal=site.folder / "journal.sqlite")
    metrics.observe(site.told[0])
    events = Events()
    events.tell(site.told[0])
    with opened(site.folder / "journal.sqlite") as journal:
        (refused,) = [change for change in journal.changes(RowQuery()) if change.done is Done.REFUSED]
    assert site.audited("plan trial") == [{"tried": 0, "refused": 1, "fault": "late"}]
    assert (refused.action.job_id, refused.said) == (9, TRIED)
    assert b'sadvise_plan_trials_total{outcome="failed"} 1.0' in metrics.exposition()
    assert "changes other than lifts are not sent" in [event["event"] for event in events.taken()]


def test_shadow_takes_the_trial_of_the_plan_in_force(site: Site) -> None:
    trial = Decided(TrialFinding.NO_CLEAR_GAIN)
    serving(site, trial, Shadow(lambda: Scripted(1.0), "scripted")).round()

    (row,) = site.audited("shadow")
    assert trial.count == 1
    assert (row["only_shadow"], row["only_in_force"]) == ("", "")
