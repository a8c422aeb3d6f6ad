"""What every actuator keeps to; run by the tests of each on a cluster of its own."""

from collections.abc import Iterable
from dataclasses import replace

from advisor.apply.applier import Actuator
from advisor.cycle import ClusterSource
from advisor.domain.actions import Action
from advisor.domain.plan import Outcome

NO_JOB = 987_654


def check(actuator: Actuator, source: ClusterSource, actions: Iterable[Action], *, running: int) -> None:
    """Do and undo actions on pending jobs that hold what each finds there; `running` is a job that has started."""
    actions = tuple(actions)
    for action in actions:
        _check_there_and_back(actuator, source, action)
    for job_id in (running, NO_JOB):
        receipt = actuator.apply(replace(actions[0], job_id=job_id))
        assert (receipt.outcome, receipt.text) == (Outcome.FAILED, "the job is not pending")


def _check_there_and_back(actuator: Actuator, source: ClusterSource, action: Action) -> None:
    before = source.snapshot().jobs_by_id[action.job_id]
    assert action.held_by(before) == action.before

    there, again = actuator.apply(action), actuator.apply(action)
    changed = source.snapshot().jobs_by_id[action.job_id]
    back = actuator.apply(action.swapped())

    assert (there.outcome, there.text, there.action) == (Outcome.APPLIED, "", action)
    assert again.outcome is Outcome.ALREADY_SO
    assert action.held_by(changed) == action.after
    assert (back.outcome, back.text) == (Outcome.APPLIED, "")
    after = source.snapshot().jobs_by_id[action.job_id]
    assert after.gang == before.gang
    assert (after.nice, after.time_min_s, after.time_limit_s) == (before.nice, before.time_min_s, before.time_limit_s)
