"""Two jobs that change places: the lift first, then the other half, and neither without the other."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from advisor.apply.applier import INTENT_GRACE_S, OTHER_HALF, Applier
from advisor.apply.step import OpenGate
from advisor.cycle import Cycle
from advisor.domain.actions import Action
from advisor.domain.job import Job
from advisor.domain.lease import Ending, LeaseState
from advisor.domain.load import Allowance
from advisor.domain.plan import Outcome, Receipt
from advisor.errors import SlurmUnavailableError
from advisor.journal import opened
from advisor.settings import Limits
from tests.builders import HOUR_S, make_job
from tests.fake_cluster import FakeCluster
from tests.planning.queues import busy

LONG = make_job(1, gpus=16, priority=5000, time_limit_s=40 * HOUR_S)
OTHER = make_job(2, gpus=4, priority=4000, time_limit_s=20 * HOUR_S, user="bob")
SHORT = make_job(3, gpus=2, priority=3000, time_limit_s=HOUR_S)
CYCLE = Cycle(limits=Limits(fairness="user"))


@dataclass
class Batches(FakeCluster):
    """A cluster that keeps the jobs of each batch, refuses changes to some, and dies before one of the batches."""

    refuses: frozenset[int] = frozenset()
    dies_before: int | None = None
    batches: list[list[int]] = field(default_factory=list)

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Make the changes of one batch."""
        if self.dies_before == len(self.batches):
            raise SlurmUnavailableError("killed")
        self.batches.append([change.job_id for change in changes])
        return tuple(
            Receipt(action=change, outcome=Outcome.FAILED, text="refused")
            if change.job_id in self.refuses
            else self.apply(change)
            for change in changes
        )


@dataclass
class Roomy(OpenGate):
    """A gate with room for some changes."""

    changes: int

    def room(self, wanted: int, *, returning: bool = False) -> Allowance:  # noqa: ARG002  (the protocol's)
        """Return that room."""
        return Allowance(changes=min(wanted, self.changes), text="full")


@pytest.fixture
def cluster() -> Batches:
    return Batches(jobs={job.job_id: job for job in busy(LONG, OTHER, SHORT).jobs})


def applier_on(cluster: Batches) -> Applier:
    return Applier(source=cluster, actuator=cluster, cycle=CYCLE, named=cluster)


def nices(cluster: Batches) -> list[int]:
    return [cluster.jobs[job_id].nice for job_id in (1, 2, 3)]


def states(at_work: Applier) -> dict[int, LeaseState]:
    return {lease.job_id: lease.state for lease in at_work.journal.leases()}


def started(job: Job) -> Job:
    """The job, running."""
    return make_job(job.job_id, gpus=2, running_on=["n01"], started_ago_s=0.0, nice=job.nice)


def test_the_lift_is_sent_first_and_the_other_half_after_it(cluster: Batches) -> None:
    at_work = applier_on(cluster)

    step = at_work.step()

    assert cluster.batches == [[3], [1]]
    assert [(receipt.action.job_id, receipt.outcome) for receipt in step.applied] == [
        (3, Outcome.APPLIED),
        (1, Outcome.APPLIED),
    ]
    # 2000 points apart, and marked.
    assert nices(cluster) == [1997, 0, -2007]
    assert states(at_work) == {1: LeaseState.OUT, 3: LeaseState.OUT}


def test_second_step_changes_nothing_more(cluster: Batches) -> None:
    at_work = applier_on(cluster)
    at_work.step()

    assert at_work.step().applied == ()


def test_without_the_lift_the_other_half_is_not_sent(cluster: Batches) -> None:
    cluster.refuses = frozenset({3})
    at_work = applier_on(cluster)

    step = at_work.step()

    assert cluster.batches == [[3]]
    assert [(receipt.action.job_id, receipt.text) for receipt in step.held_back] == [(1, OTHER_HALF)]
    assert (nices(cluster), states(at_work)) == ([0, 0, 0], {})


def test_if_the_other_half_fails_the_lift_is_reverted(cluster: Batches) -> None:
    cluster.refuses = frozenset({1})
    at_work = applier_on(cluster)

    step = at_work.step()

    assert cluster.batches == [[3], [1], [3]]
    assert [receipt.action.job_id for receipt in step.reconciled.taken_back] == [3]
    assert (nices(cluster), states(at_work)) == ([0, 0, 0], {})
    assert [lease.ending for lease in at_work.journal.closed([1, 3])] == [Ending.NOT_APPLIED, Ending.TAKEN_BACK]


def test_after_a_kill_between_the_halves_the_lift_is_reverted(cluster: Batches, tmp_path: Path) -> None:
    cluster.dies_before = 1
    with opened(tmp_path / "journal.sqlite") as journal:
        at_work = replace(applier_on(cluster), journal=journal)
        with pytest.raises(SlurmUnavailableError):
            at_work.step()
        assert cluster.jobs[3].nice < 0
        cluster.dies_before, cluster.now = None, cluster.now + INTENT_GRACE_S
        at_work.reconcile(cluster.snapshot())

        assert (nices(cluster), states(at_work)) == ([0, 0, 0], {})


def test_both_halves_go_back_when_the_lift_is_due(cluster: Batches) -> None:
    at_work = applier_on(cluster)
    at_work.step()
    cluster.now += 24 * HOUR_S

    reconciled = at_work.reconcile(cluster.snapshot())

    assert {receipt.action.job_id for receipt in reconciled.taken_back} == {1, 3}
    assert (nices(cluster), states(at_work)) == ([0, 0, 0], {})


def test_job_whose_partner_has_started_keeps_its_new_place_until_its_own_bound(cluster: Batches) -> None:
    at_work = applier_on(cluster)
    at_work.step()
    cluster.jobs[3] = started(cluster.jobs[3])
    cluster.now += Limits().max_lateness_s - HOUR_S
    at_work.reconcile(cluster.snapshot())
    kept = nices(cluster)[0]
    cluster.now += HOUR_S
    at_work.reconcile(cluster.snapshot())

    assert kept > 0
    assert (nices(cluster)[0], states(at_work)) == (0, {})


@pytest.mark.parametrize("named", [1, 3])
def test_revert_of_one_half_restores_both(cluster: Batches, named: int) -> None:
    at_work = applier_on(cluster)
    at_work.step()

    at_work.revert(cluster.snapshot(), [named])

    assert (nices(cluster), states(at_work)) == ([0, 0, 0], {})
    endings = {lease.job_id: lease.ending for lease in at_work.journal.closed([1, 3])}
    assert endings == {named: Ending.REVERTED, 4 - named: Ending.TAKEN_BACK}


def test_when_a_person_changes_one_half_the_other_goes_back(cluster: Batches) -> None:
    at_work = applier_on(cluster)
    at_work.step()
    cluster.jobs[1] = replace(cluster.jobs[1], nice=50)

    at_work.reconcile(cluster.snapshot())

    assert nices(cluster) == [50, 0, 0]
    assert states(at_work) == {1: LeaseState.HANDS_OFF}


def test_leaving_restores_both(cluster: Batches) -> None:
    at_work = applier_on(cluster)
    at_work.step()

    at_work.leave(cluster.snapshot())

    assert (nices(cluster), states(at_work)) == ([0, 0, 0], {})


def test_half_that_is_not_wanted_keeps_the_other_off(cluster: Batches) -> None:
    step = replace(applier_on(cluster), wanted=lambda job, _: job.job_id != 1).step()

    assert cluster.batches == [] and step.applied == ()
    assert [receipt.text for receipt in step.held_back] == [OTHER_HALF]


@pytest.mark.parametrize(("room", "sent"), [(0, []), (1, []), (2, [3, 1])])
def test_room_for_one_change_is_no_room_for_an_exchange(cluster: Batches, room: int, sent: list[int]) -> None:
    step = replace(applier_on(cluster), gate=Roomy(room)).step()

    assert [receipt.action.job_id for receipt in step.applied] == sent
    assert len(step.held_back) == 2 - len(sent)
