"""Applying: intents before changes, people before us, and what is due taken back."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.cycle import Cycle
from advisor.domain.actions import Action, SetNice, SetNodeRange, SetTimeMin
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory, Wait
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.errors import ConfigError, SlurmUnavailableError
from tests.builders import HOUR_S, TAKEN_AT, make_config, make_job
from tests.fake_cluster import HOLD, FakeCluster, fragmented, gang, held


def applier_on(cluster: FakeCluster, *leases: Lease) -> Applier:
    """An applier with leases already in its journal."""
    at_work = Applier(source=cluster, actuator=cluster, cycle=Cycle())
    for lease in leases:
        at_work.journal.keep(lease)
    return at_work


def lent(action: Action = HOLD, *, state: LeaseState = LeaseState.OUT, due_in_s: float | None = 600.0) -> Lease:
    """A lease given a minute ago."""
    lease = intended(action, TAKEN_AT - 60.0)
    return replace(lease, state=state, due_time=None if due_in_s is None else TAKEN_AT + due_in_s)


def endings(at_work: Applier, job_id: int = 9) -> list[Ending | None]:
    """How the leases of a job ended."""
    return [lease.ending for lease in at_work.journal.closed([job_id])]


def test_what_no_rule_refused_is_written_down_and_applied() -> None:
    cluster = fragmented()
    at_work = applier_on(cluster)

    step = at_work.step()

    (lease,) = at_work.journal.leases()
    assert [receipt.outcome for receipt in step.applied] == [Outcome.APPLIED]
    assert cluster.jobs[9].gang.nodes_max == 1
    assert (lease.action, lease.undo, lease.state) == (HOLD, HOLD.swapped(), LeaseState.OUT)
    assert lease.due_time is not None and lease.due_time > lease.applied_time == TAKEN_AT


def test_second_step_changes_nothing_more() -> None:
    cluster = fragmented()
    at_work = applier_on(cluster)
    at_work.step()

    again = at_work.step()

    assert again.applied == ()
    assert again.record.left_alone[9] == "no_change_outstanding"
    assert cluster.sent == [HOLD]


def test_only_wanted_jobs_get_new_changes() -> None:
    cluster = fragmented()
    at_work = replace(applier_on(cluster), wanted=lambda job, _: job.job_id != 9)

    step = at_work.step()

    assert step.record.recommendations != ()
    assert step.applied == () and cluster.sent == []


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ALREADY_SO])
def test_a_change_that_came_to_nothing_leaves_no_lease(outcome: Outcome) -> None:
    cluster = fragmented()
    at_work = applier_on(cluster)
    snapshot = cluster.snapshot()
    if outcome is Outcome.FAILED:
        cluster.failing = {SetNodeRange: "Requested node configuration is not available"}
    else:
        held(cluster)  # its user was quicker

    step = at_work.step(snapshot)

    assert [receipt.outcome for receipt in step.applied] == [outcome]
    assert at_work.journal.leases() == ()
    assert endings(at_work) == [Ending.NOT_APPLIED]


def test_a_change_is_taken_back_when_due_and_the_plan_sees_it() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(due_in_s=0.0))

    step = at_work.step()

    assert [(receipt.action, receipt.text) for receipt in step.reconciled.taken_back] == [(HOLD.swapped(), "")]
    assert endings(at_work) == [Ending.TAKEN_BACK]
    assert step.record.snapshot.jobs_by_id[9].gang.nodes_max == 4
    assert cluster.snapshots == 2


def test_a_change_that_is_not_due_stays() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(due_in_s=0.5))

    found = at_work.reconcile(cluster.snapshot())

    assert not found.taken_back and not found.overruled
    assert at_work.journal.leases() == (lent(due_in_s=0.5),)
    assert cluster.sent == []


def test_a_change_that_may_stay_does_not_keep_others_off() -> None:
    soft = SetTimeMin(job_id=9, before=None, after=1800.0)
    cluster = held(fragmented(), soft)
    early, late = (replace(lent(soft, due_in_s=None), applied_time=TAKEN_AT - ago_s) for ago_s in (599.0, 600.0))
    in_cooldown = applier_on(held(fragmented(), soft), early).step()
    at_work = applier_on(cluster, late)

    step = at_work.step()

    assert in_cooldown.applied == () and in_cooldown.record.left_alone[9] == "cooldown_over"
    assert [receipt.action for receipt in step.applied] == [HOLD]
    assert [lease.lever for lease in at_work.journal.leases()] == ["node_range", "time_min"]


LIFT = SetNice(job_id=9, before=0, after=-500)


def test_lifted_gang_gets_a_timer_and_each_goes_back_on_its_own() -> None:
    lift = replace(lent(LIFT, due_in_s=24 * HOUR_S), applied_time=TAKEN_AT - 1.0)
    cluster = held(fragmented(), LIFT)
    at_work = applier_on(cluster, lift)

    step = at_work.step()
    cluster.now += (
        next(lease.due_time or 0.0 for lease in at_work.journal.leases() if lease.lever == "node_range") - TAKEN_AT
    )
    later = at_work.reconcile(cluster.snapshot())

    assert [receipt.action for receipt in step.applied] == [HOLD]
    assert [receipt.action for receipt in later.taken_back] == [HOLD.swapped()]
    assert at_work.journal.leases() == (lift,)
    assert (cluster.jobs[9].nice, cluster.jobs[9].gang.nodes_max) == (-500, 4)


def test_revert_takes_back_lift_and_timer() -> None:
    cluster = held(held(fragmented(), LIFT))
    at_work = applier_on(cluster, lent(LIFT), lent())

    done = at_work.revert(cluster.snapshot(), {9})

    assert {receipt.action for receipt in done.taken_back} == {LIFT.swapped(), HOLD.swapped()}
    assert (cluster.jobs[9].nice, cluster.jobs[9].gang.nodes_max) == (0, 4)


def test_of_two_changes_the_one_that_is_due_is_reverted_in_a_round_that_could_not_read_the_queue() -> None:
    cluster = held(held(fragmented(), LIFT))
    at_work = applier_on(cluster, lent(LIFT), lent(due_in_s=-1.0))

    done = at_work.return_due(cluster.now)

    assert [receipt.action for receipt in done.taken_back] == [HOLD.swapped()]
    assert at_work.journal.leases() == (lent(LIFT),)


def test_where_nothing_is_due_nothing_is_read() -> None:
    cluster = held(fragmented())
    with_one, with_none = applier_on(cluster, lent()), applier_on(cluster)

    found = [with_one.return_due(cluster.now), with_none.return_due(cluster.now)]

    assert [each.taken_back for each in found] == [(), ()]
    assert (cluster.snapshots, cluster.sent) == (0, [])


@pytest.mark.parametrize("state", [LeaseState.INTENDED, LeaseState.RETURNING, LeaseState.HANDS_OFF])
def test_lift_of_which_the_effect_is_unsure_keeps_a_timer_off(state: LeaseState) -> None:
    lift = replace(lent(LIFT, state=state), by_person=False)

    assert Memory(leases=(lift,)).outstanding == {9}
    assert Memory(leases=(replace(lift, state=LeaseState.OUT),)).outstanding == frozenset()


def running(job_id: int = 9) -> Job:
    return make_job(job_id, gpus=2, running_on=["n01"])


@pytest.mark.parametrize("state", list(LeaseState))
@pytest.mark.parametrize("gone", [True, False], ids=["gone", "started"])
def test_a_lease_ends_with_the_wait_of_its_job(state: LeaseState, gone: bool) -> None:
    cluster = FakeCluster(jobs={} if gone else {9: running()})
    at_work = replace(applier_on(cluster, lent(state=state, due_in_s=0.0)), grace_s=0.0)

    at_work.reconcile(cluster.snapshot())

    theirs = [Ending.OVERRULED] if gone else []  # a job that is requeued stays theirs
    assert endings(at_work) == (theirs if state is LeaseState.HANDS_OFF else [Ending.NO_LONGER_PENDING])
    assert cluster.sent == []


@pytest.mark.parametrize("state", [LeaseState.INTENDED, LeaseState.OUT, LeaseState.RETURNING])
def test_what_somebody_else_changed_stays_and_the_job_is_left_alone(state: LeaseState) -> None:
    cluster = fragmented()
    cluster.jobs[9] = gang(nodes_max=2)
    at_work = applier_on(cluster, lent(state=state, due_in_s=0.0))

    first, second = at_work.step(), at_work.step()

    assert [lease.job_id for lease in first.reconciled.overruled] == [9]
    assert second.reconciled.overruled == ()
    assert first.record.left_alone[9] == second.record.left_alone[9] == "no_person_objected"
    assert [(lease.state, lease.overruled_time) for lease in at_work.journal.leases()] == [
        (LeaseState.HANDS_OFF, TAKEN_AT)
    ]
    assert cluster.sent == []


def test_an_intent_that_took_effect_is_a_lease_that_is_out() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(state=LeaseState.INTENDED))

    at_work.reconcile(cluster.snapshot())

    assert at_work.journal.leases() == (lent(),)


def test_an_intent_that_took_effect_and_is_due_is_taken_back_at_once() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(state=LeaseState.INTENDED, due_in_s=-1.0))

    found = at_work.reconcile(cluster.snapshot())

    assert [receipt.outcome for receipt in found.taken_back] == [Outcome.APPLIED]
    assert cluster.jobs[9].gang.nodes_max == 4


def test_an_intent_without_effect_is_dropped_after_two_minutes() -> None:
    cluster = fragmented()
    at_work = applier_on(cluster, lent(state=LeaseState.INTENDED))
    cluster.now = TAKEN_AT + 59.5
    early = at_work.step()
    kept = at_work.journal.leases()
    cluster.now += 0.5

    at_work.reconcile(cluster.snapshot())

    assert kept == (lent(state=LeaseState.INTENDED),)
    assert early.record.left_alone[9] == "no_change_outstanding"
    assert at_work.journal.leases() == ()
    assert endings(at_work) == [Ending.NOT_APPLIED]


@pytest.mark.parametrize("arrived", [True, False])
def test_an_answer_that_was_lost_is_found_out_by_the_next_step(arrived: bool) -> None:
    cluster = fragmented()
    cluster.is_lost, cluster.unreachable = arrived, not arrived
    at_work = replace(applier_on(cluster), grace_s=0.0)

    with pytest.raises(SlurmUnavailableError):
        at_work.step()
    (intent,) = at_work.journal.leases()
    cluster.is_lost = cluster.unreachable = False
    at_work.reconcile(cluster.snapshot())

    assert intent.state is LeaseState.INTENDED
    assert [lease.state for lease in at_work.journal.leases()] == ([LeaseState.OUT] if arrived else [])


@pytest.mark.parametrize("arrived", [True, False])
def test_a_return_whose_answer_was_lost_is_finished_by_the_next_step(arrived: bool) -> None:
    cluster = held(fragmented())
    cluster.is_lost, cluster.unreachable = arrived, not arrived
    at_work = applier_on(cluster, lent(due_in_s=0.0))

    with pytest.raises(SlurmUnavailableError):
        at_work.step()
    (returning,) = at_work.journal.leases()
    cluster.is_lost = cluster.unreachable = False
    found = at_work.reconcile(cluster.snapshot())

    assert returning.state is LeaseState.RETURNING
    assert len(found.taken_back) == (0 if arrived else 1)
    assert endings(at_work) == [Ending.TAKEN_BACK]
    assert cluster.jobs[9].gang.nodes_max == 4


def test_a_return_that_fails_is_tried_again() -> None:
    cluster = held(fragmented())
    at_work = applier_on(cluster, lent(due_in_s=0.0))
    cluster.failing = {SetNodeRange: "Slurm is busy"}
    first = at_work.reconcile(cluster.snapshot())
    cluster.failing = {}

    second = at_work.reconcile(cluster.snapshot())

    assert [receipt.text for receipt in first.taken_back] == ["Slurm is busy"]
    assert [receipt.outcome for receipt in second.taken_back] == [Outcome.APPLIED]
    assert cluster.jobs[9].gang.nodes_max == 4


@pytest.mark.parametrize(("named", "back"), [(None, [8, 9]), ([9], [9]), ([7], [])])
def test_revert_takes_back_what_is_not_due_either(named: Sequence[int] | None, back: list[int]) -> None:
    cluster = fragmented(gang(8))
    nice = SetNice(job_id=8, before=0, after=50)
    held(held(cluster), nice)
    at_work = applier_on(cluster, lent(), lent(nice, due_in_s=None))

    found = at_work.revert(cluster.snapshot(), named)

    assert [receipt.action.job_id for receipt in found.taken_back] == back
    assert (cluster.jobs[8].nice, cluster.jobs[9].gang.nodes_max) == (0 if 8 in back else 50, 4 if 9 in back else 1)


def test_of_two_changes_to_a_field_the_users_own_value_is_what_is_gone_back_to() -> None:
    cluster = fragmented()
    first = lent(SetNice(job_id=9, before=5, after=50), due_in_s=None)
    again = SetNice(job_id=9, before=50, after=90)
    held(cluster, again)
    second = replace(intended(again, TAKEN_AT, previous=first), state=LeaseState.OUT)
    at_work = applier_on(cluster, first, second)

    at_work.revert(cluster.snapshot())

    assert cluster.jobs[9].nice == 5
    assert at_work.journal.leases() == ()


def test_of_two_changes_to_a_field_the_first_is_still_out_if_the_second_was_never_sent() -> None:
    first = SetNice(job_id=9, before=5, after=50)
    cluster = held(fragmented(), first)
    second = intended(SetNice(job_id=9, before=50, after=90), TAKEN_AT - 60.0, previous=lent(first))
    at_work = replace(applier_on(cluster, second), grace_s=0.0)

    at_work.reconcile(cluster.snapshot())
    (left,) = at_work.journal.leases()
    at_work.revert(cluster.snapshot())

    assert (left.action, left.state) == (first, LeaseState.OUT)
    assert cluster.jobs[9].nice == 5


def test_a_change_back_to_the_users_own_value_leaves_nothing_out() -> None:
    back = SetNice(job_id=9, before=50, after=5)
    cluster = held(fragmented(), back)
    first = lent(SetNice(job_id=9, before=5, after=50))
    at_work = applier_on(cluster, intended(back, TAKEN_AT, previous=first))

    at_work.reconcile(cluster.snapshot())

    assert at_work.journal.leases() == ()
    assert endings(at_work) == [Ending.TAKEN_BACK]


def test_a_journal_of_another_cluster_stops_everything() -> None:
    calls: list[tuple[float, tuple[Lease, ...]]] = []
    cluster = held(fragmented())
    at_work = replace(applier_on(cluster, lent(due_in_s=0.0)), observe=recorder(calls))
    at_work.journal.claim("elsewhere")

    for act in (at_work.step, lambda: at_work.revert(cluster.snapshot())):
        with pytest.raises(ConfigError, match="'elsewhere', not those on 'test'"):
            act()

    assert not cluster.sent and not calls
    assert at_work.journal.observed_until() is None
    assert make_config().cluster == "test"


WAIT = Wait(gpus=4, tier=LocalityTier.NODE, waited_s=60.0, got=True, ended_time=TAKEN_AT)


def recorder(calls: list[tuple[float, tuple[Lease, ...]]]) -> Callable[..., tuple[Wait, ...]]:
    """A tuner that finds one wait in every snapshot, and what it was told."""

    def observe(snapshot: Snapshot, until: float, leases: Sequence[Lease]) -> tuple[Wait, ...]:
        calls.append((until, tuple(leases)))
        return (WAIT,)

    return observe


def test_tuner_is_told_the_leases_of_the_jobs_that_just_started() -> None:
    calls: list[tuple[float, tuple[Lease, ...]]] = []
    started = replace(running(), start_time=TAKEN_AT - 10.0)
    long_ago = replace(running(7), start_time=TAKEN_AT - 500.0)
    cluster = FakeCluster(jobs={9: started, 7: long_ago})
    soft = lent(SetTimeMin(job_id=9, before=None, after=1800.0), due_in_s=None)
    at_work = replace(applier_on(cluster, lent(), soft, lent(replace(HOLD, job_id=7))), observe=recorder(calls))
    at_work.journal.close(lent(), Ending.TAKEN_BACK, TAKEN_AT - 20.0)
    at_work.journal.add_waits([], TAKEN_AT - 100.0)

    at_work.step()

    assert calls == [(TAKEN_AT - 100.0, (lent().ended(Ending.TAKEN_BACK, TAKEN_AT - 20.0), soft))]
    assert at_work.journal.waits(0.0) == (WAIT,)
    assert at_work.journal.observed_until() == TAKEN_AT


def test_tuner_learns_nothing_from_what_started_before_anybody_looked() -> None:
    calls: list[tuple[float, tuple[Lease, ...]]] = []
    cluster = fragmented()
    at_work = replace(applier_on(cluster), observe=recorder(calls))

    at_work.step()
    cluster.now += 60.0
    at_work.step()

    assert [until for until, _ in calls] == [TAKEN_AT]
    assert at_work.journal.observed_until() == TAKEN_AT + 60.0


def test_clock_that_goes_back_lets_no_start_be_seen_twice() -> None:
    calls: list[tuple[float, tuple[Lease, ...]]] = []
    cluster = fragmented()
    at_work = replace(applier_on(cluster), observe=recorder(calls))
    at_work.journal.add_waits([], TAKEN_AT + 30.0)

    at_work.step()

    assert calls == [(TAKEN_AT + 30.0, ())]
    assert at_work.journal.observed_until() == TAKEN_AT + 30.0


def test_without_a_tuner_nothing_is_remembered() -> None:
    at_work = applier_on(fragmented())

    at_work.step()

    assert at_work.journal.observed_until() is None
    assert isinstance(at_work.journal, MemoryJournal)


@pytest.mark.parametrize(
    "wrong",
    [
        {"undo": SetNice(job_id=9, before=0, after=1)},
        {"undo": replace(HOLD.swapped(), job_id=8)},
        {"ending": Ending.TAKEN_BACK},
        {"ended_time": 1.0},
    ],
)
def test_a_lease_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the lease of job 9"):
        replace(lent(), **wrong)  # type: ignore[arg-type]
