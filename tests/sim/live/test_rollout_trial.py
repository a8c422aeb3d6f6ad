"""Trials on the model of slurmctld: equal inputs give equal trials, and no snapshot makes them fail."""

import pytest
from hypothesis import given, settings

from advisor.cycle import Cycle
from advisor.domain.actions import NodeRange, SetNice, SetNodeRange
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.planning.plan_trial import TrialSize, is_tried
from advisor.sim.live.rollout_trial import RolloutTrial
from advisor.sim.live.slurm_rollout import SlurmRollout
from advisor.sim.policies.advised import few_rollouts
from tests.builders import make_recommendation
from tests.examples import examples
from tests.fake_cluster import fragmented
from tests.sim.building import make_trace, run_of
from tests.sim.live.rollout_contract import CASE, check
from tests.sim.test_advised import EAGER, one_node, queue_of_one_long_and_four_short
from tests.strategies import snapshots

SMALL = TrialSize(plans=4, draws=2, horizon_s=3600.0)


def changes_of(snapshot: Snapshot) -> list[Recommendation]:
    """Lift every other pending job, and hold the rest to one node."""
    pending = sorted(snapshot.pending, key=lambda job: job.job_id)
    lifts = [make_recommendation(SetNice(job_id=job.job_id, before=job.nice, after=-9)) for job in pending[::2]]
    holds = [
        make_recommendation(
            SetNodeRange(job_id=job.job_id, before=NodeRange(low=1, high=2), after=NodeRange(low=1, high=1)),
            kind=Kind.CONSOLIDATE,
            revert_after_s=600.0,
        )
        for job in pending[1::2]
    ]
    return [*lifts, *holds]


def test_rollout_on_the_model_keeps_to_the_contract() -> None:
    check(SlurmRollout(seed=2))


@pytest.mark.parametrize("threads", [1, 3])
def test_trial_does_not_depend_on_the_number_of_threads(threads: int) -> None:
    changes = changes_of(CASE.snapshot)

    one, other = (RolloutTrial(size=SMALL, threads=count).tried(CASE, changes) for count in (2, threads))

    assert one == other
    assert one.effect is not None


def test_cycle_records_the_trial_of_its_plan() -> None:
    snapshot = fragmented().snapshot()

    untried, tried = (Cycle(trial=trial).judge(snapshot) for trial in (None, RolloutTrial(size=SMALL)))

    assert any(map(is_tried, untried.judged))
    assert untried.trial.effect is None
    assert tried.trial.effect is not None
    assert [change.action for change in tried.judged] == [change.action for change in untried.judged]


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(seen=snapshots())
def test_no_snapshot_makes_a_trial_fail(seen: Snapshot) -> None:
    changes = changes_of(seen)

    trial = RolloutTrial(size=SMALL, threads=1).tried(Case(snapshot=seen), changes)

    assert {one.job_id for one in trial.changes} == {change.job_id for change in changes if is_tried(change)}


def test_policy_with_rollouts_lifts_as_the_rules_do() -> None:
    trace = make_trace(queue_of_one_long_and_four_short())

    rules, tried = (run_of(trace, one_node(), policy, EAGER) for policy in ("rules", "rules-rollout"))

    assert rules.outcomes.tolist() == tried.outcomes.tolist()
    assert few_rollouts() is not few_rollouts()
