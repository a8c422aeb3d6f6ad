"""Applying under a gate, for a person, and for a daemon that ends."""

from dataclasses import dataclass, field, replace

import pytest

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import OpenGate
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import SetNice, SetSwitches, SetTimeMin
from advisor.domain.gang import SwitchRequest
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.mode import Mode, Modes
from advisor.domain.plan import Outcome, Recommendation
from tests.apply.test_applier import applier_on, endings, lent
from tests.builders import TAKEN_AT
from tests.fake_cluster import HOLD, FakeCluster, fragmented, gang, held

PAUSED = "paused by root"


@dataclass
class Shut(OpenGate):
    """A gate that lets nothing pass that concerns some jobs, and keeps what it was asked."""

    job_ids: tuple[int, ...]
    asked: list[Recommendation | Lease] = field(default_factory=list)

    def against_change(self, change: Recommendation, job: Job) -> str | None:
        """Keep the change off the jobs it is shut for."""
        assert job.job_id == change.job_id
        self.asked.append(change)
        return PAUSED if change.job_id in self.job_ids else None

    def against_return(self, lease: Lease) -> str | None:
        """Keep the return off the jobs it is shut for."""
        self.asked.append(lease)
        return PAUSED if lease.job_id in self.job_ids else None


def test_change_that_the_gate_is_shut_for_is_held_back_and_leaves_no_trace() -> None:
    cluster = fragmented()
    gate = Shut((9,))
    at_work = replace(applier_on(cluster), gate=gate)

    step = at_work.step()

    assert [change.job_id for change in step.record.recommendations] == [9]
    assert [(each.action, each.text) for each in step.held_back] == [(HOLD, PAUSED)]
    assert step.applied == () and cluster.sent == [] and len(gate.asked) == 1
    assert at_work.journal.leases() == () and endings(at_work) == []


def test_gate_that_is_open_again_lets_the_change_pass() -> None:
    cluster = fragmented()
    at_work = applier_on(cluster)
    replace(at_work, gate=Shut((9,))).step()

    step = replace(at_work, gate=Shut(())).step()

    assert [receipt.outcome for receipt in step.applied] == [Outcome.APPLIED]
    assert step.held_back == ()


def test_return_that_the_gate_is_shut_for_is_put_off_and_the_change_stays_ours() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(due_in_s=0.0))

    step = replace(at_work, gate=Shut((9,))).step()
    left = at_work.journal.leases()
    later = at_work.reconcile(cluster.snapshot())

    assert [(each.action, each.text) for each in step.reconciled.put_off] == [(HOLD.swapped(), PAUSED)]
    assert step.reconciled.taken_back == () and left == (lent(due_in_s=0.0),)
    assert step.record.left_alone[9] == "no_change_outstanding"
    assert [receipt.outcome for receipt in later.taken_back] == [Outcome.APPLIED]


class Recording(MemoryJournal):
    """A journal that keeps each record with how many changes had been sent by then."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__()
        self.recorded: list[tuple[CycleRecord, int]] = []
        self._fake = cluster

    def record(self, record: CycleRecord, cycle: Cycle) -> int:
        """Keep a record."""
        self.recorded.append((record, len(self._fake.sent)))
        return super().record(record, cycle)


class Full(MemoryJournal):
    """A journal without room for another record."""

    def record(self, record: CycleRecord, cycle: Cycle) -> int:  # noqa: ARG002  (the protocol's)
        """Fail."""
        raise OSError("No space left on device")


def test_plan_is_told_before_anything_of_it_is_sent() -> None:
    cluster = fragmented()
    journal = Recording(cluster)

    step = replace(applier_on(cluster), journal=journal).step()

    assert journal.recorded == [(step.record, 0)]
    assert len(cluster.sent) == 1


def test_plan_that_cannot_be_written_down_is_not_applied() -> None:
    cluster = fragmented()
    at_work = replace(applier_on(cluster), journal=Full())

    with pytest.raises(OSError, match="No space left"):
        at_work.step()
    assert cluster.sent == [] and at_work.journal.leases() == ()


def test_change_that_a_person_takes_back_ends_as_such_and_the_job_is_left_alone() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent())

    at_work.revert(cluster.snapshot(), [9])
    cluster.now += 7 * 86_400.0
    step = at_work.step()

    assert endings(at_work) == [Ending.REVERTED]
    assert step.record.left_alone[9] == "no_person_objected"
    assert cluster.sent == [HOLD.swapped()]


def test_return_for_a_person_that_fails_is_finished_as_theirs() -> None:
    cluster = held(fragmented())
    cluster.failing = {type(HOLD): "Slurm is busy"}
    at_work = applier_on(cluster, lent())
    at_work.revert(cluster.snapshot(), [9])
    (returning,) = at_work.journal.leases()
    cluster.failing = {}

    at_work.reconcile(cluster.snapshot())

    assert (returning.state, returning.by_person) == (LeaseState.RETURNING, True)
    assert endings(at_work) == [Ending.REVERTED]


def test_daemon_that_ends_takes_back_what_nobody_else_would() -> None:
    nice, soft = SetNice(job_id=8, before=0, after=50), SetTimeMin(job_id=7, before=None, after=1800.0)
    switches = SetSwitches(job_id=6, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))
    cluster = fragmented(gang(8), gang(7), gang(6))
    for action in (HOLD, nice, soft, switches):
        held(cluster, action)
    leases = (lent(), lent(nice), lent(soft, due_in_s=None), lent(switches, due_in_s=None))
    at_work = applier_on(cluster, *leases)

    left = at_work.leave(cluster.snapshot())

    assert sorted(receipt.action.job_id for receipt in left.taken_back) == [8, 9]
    assert [lease.job_id for lease in at_work.journal.leases()] == [6, 7]
    assert endings(at_work) == endings(at_work, 8) == [Ending.TAKEN_BACK]
    assert (cluster.jobs[8].nice, cluster.jobs[9].gang.nodes_max) == (0, 4)


def test_daemon_that_ends_finishes_a_return_that_was_under_way() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(state=LeaseState.RETURNING, due_in_s=None))

    left = at_work.leave(cluster.snapshot())

    assert [receipt.outcome for receipt in left.taken_back] == [Outcome.APPLIED]


def test_lease_says_whose_job_was_changed_and_what_that_may_cost_them() -> None:
    cluster = fragmented()
    at_work = applier_on(cluster)

    step = at_work.step()

    (lease,), (change,) = at_work.journal.leases(), step.record.recommendations
    assert (lease.user, lease.account) == ("alice", "lab")
    assert lease.added_delay_s == change.expected.added_delay_max_s > 0.0


@pytest.mark.parametrize(
    "modes", [Modes(), Modes(default=Mode.APPLY, accounts="lab=observe")], ids=["by default", "by account"]
)
def test_jobs_that_are_only_observed_are_neither_advised_nor_changed(modes: Modes) -> None:
    cluster = fragmented()
    at_work = Applier(source=cluster, actuator=cluster, cycle=Cycle(modes=modes), journal=MemoryJournal())

    step = at_work.step()

    assert step.record.judged == () and cluster.sent == []
    assert step.record.left_alone == dict.fromkeys((9, 90), "mode_allows_advice")


def test_guard_is_told_of_other_jobs_that_were_changed_within_its_window() -> None:
    cluster = fragmented()
    inside, outside = (replace(lent(replace(HOLD, job_id=job_id)), user="alice") for job_id in (70, 71))
    at_work = applier_on(cluster, inside, outside)
    window_s = at_work.cycle.limits.fairness_window_s
    at_work.journal.close(outside, Ending.TAKEN_BACK, TAKEN_AT - window_s)
    at_work.journal.close(inside, Ending.TAKEN_BACK, TAKEN_AT - window_s + 1.0)

    step = at_work.step()

    assert [lease.job_id for lease in step.record.memory.leases] == [70]
