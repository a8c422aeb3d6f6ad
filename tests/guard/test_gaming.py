"""What a user who games the advisor can gain at the cost of others, at most."""

from collections import Counter
from dataclasses import replace

import pytest

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import NodeRange, SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.job import GpuRange, Job, Sensitivity
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.mark import is_marked
from advisor.domain.plan import Plan
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge, refusals
from advisor.planning.lift import StartsNext
from advisor.settings import Limits, PlanningSettings
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    make_gang,
    make_hints,
    make_holders,
    make_job,
    make_node,
    make_snapshot,
)
from tests.fake_cluster import FakeCluster
from tests.guard.proposals import PLAIN, SOFT, lent, refused_by, soft_limit, timer

LIMITS = Limits()
ALICE, MALLORY = "alice", "mallory"


def full(hours: float = 300.0) -> list[Job]:
    """Jobs that hold every GPU of the cluster for long."""
    return [
        make_job(
            900 + number,
            gpus=8,
            user="carol",
            running_on=[f"n0{number}"],
            started_ago_s=0.0,
            time_limit_s=hours * HOUR_S,
        )
        for number in range(1, 5)
    ]


def long_job(job_id: int, user: str = ALICE, priority: int = 1000) -> Job:
    """A job that short ones pass."""
    return make_job(job_id, gpus=32, user=user, account=user, priority=priority, time_limit_s=2 * DAY_S)


def short_job(job_id: int, submit_time: float = TAKEN_AT - HOUR_S) -> Job:
    """One of many small pieces that somebody cut a long job into."""
    return make_job(
        job_id, gpus=2, user=MALLORY, account="piece", priority=900, submit_time=submit_time, time_limit_s=HOUR_S
    )


@pytest.mark.parametrize("own", [0, 1, 7, 10_000])
def test_own_nice_leaves_the_order_as_it_is_and_is_restored_exactly(own: int) -> None:
    jobs = (*full(), long_job(1), replace(short_job(100), nice=own))
    cluster = FakeCluster(jobs={job.job_id: job for job in jobs})
    at_work = Applier(source=cluster, actuator=cluster, cycle=Cycle())

    at_work.step()
    moved_to, (lease,) = cluster.jobs[100].nice, at_work.journal.leases()
    cluster.now += DAY_S
    at_work.step()

    assert moved_to < own and is_marked(moved_to)
    assert lease.undo.after == own
    assert cluster.sent[1] == lease.undo


def test_splitting_a_job_gains_the_lifts_of_short_jobs_and_no_more_places_than_there_are() -> None:
    jobs = [*full(), long_job(1), *(short_job(number) for number in range(100, 140))]
    cluster = FakeCluster(jobs={job.job_id: job for job in jobs})
    at_work = Applier(source=cluster, actuator=cluster, cycle=Cycle())

    for _ in range(5):
        at_work.step()
        cluster.now += 60.0

    leases = at_work.journal.leases()
    assert 0 < len(leases) <= PlanningSettings().lift_places
    assert all(lease.added_delay_s == 0.0 for lease in leases)


def test_splitting_jobs_takes_no_more_of_a_cycle_than_the_share_of_one_user() -> None:
    jobs = [make_job(job_id, user=MALLORY, account=f"lab{job_id}") for job_id in range(1, 60)]
    others = [make_job(job_id, user=f"user{job_id}", account=f"lab{job_id}") for job_id in range(60, 70)]
    changes = [timer(job.job_id, saved_s=1e6 if job.user == MALLORY else 1.0) for job in (*jobs, *others)]
    snapshot = make_snapshot([*jobs, *others])

    verdicts = judge(Plan(recommendations=tuple(changes)), snapshot, circumstances(snapshot, LIMITS))

    accepted = Counter(snapshot.jobs_by_id[verdict.job_id].user for verdict in verdicts if verdict.refused_by is None)
    assert accepted.pop(MALLORY) == LIMITS.max_changes_per_user
    assert set(accepted.values()) == {1} and len(accepted) == 10


def test_user_with_many_accounts_and_account_with_many_users_have_their_own_bounds() -> None:
    of_user = [lent(make_job(100 + n, user=MALLORY, account=f"lab{n}"), delay_s=6 * HOUR_S) for n in range(4)]
    of_account = [lent(make_job(200 + n, user=f"user{n}", account="ring"), delay_s=6 * HOUR_S) for n in range(16)]

    fresh_account = make_job(1, user=MALLORY, account="fresh")
    fresh_user = make_job(1, user="fresh", account="ring")

    assert refused_by(timer(), fresh_account, leases=of_user) == "fair_to_user"
    assert refused_by(timer(), fresh_user, leases=of_account) == "fair_to_account"


def test_cancelling_and_submitting_again_makes_no_new_start() -> None:
    back = [lent(make_job(100 + n), ago_s=6 * HOUR_S, ending=Ending.TAKEN_BACK) for n in range(4)]
    gone = [replace(lease, would_start_time=lease.applied_time) for lease in back]

    assert refused_by(timer(), PLAIN, leases=gone) == "fair_to_user"


def test_false_time_min_keeps_the_jobs_own_value_and_gets_no_soft_limit() -> None:
    claims_a_minute = replace(PLAIN, time_min_s=60.0)

    assert refused_by(soft_limit(3600.0, before=60.0), claims_a_minute, config=SOFT) == "users_time_min_kept"
    assert refused_by(soft_limit(3600.0), claims_a_minute, config=SOFT) == "before_still_true"


def test_false_time_limit_delays_each_other_job_by_no_more_than_the_limit_that_slurm_enforces() -> None:
    snapshot = make_snapshot([*full(), long_job(1), short_job(100)])

    (change,) = Cycle().judge(snapshot).recommendations

    # After its limit Slurm ends the lifted job, whatever its user asked: 2 of 32 GPUs for an hour.
    assert isinstance(change.facts, StartsNext) and change.facts.others_delayed_s_max == HOUR_S * 2 / 32
    assert (change.job_id, change.revert_after_s) == (100, PlanningSettings().lift_lease_s)


@pytest.mark.parametrize("sensitivity", [None, Sensitivity.HIGH])
def test_false_sensitivity_delays_the_job_that_claims_it_and_within_the_bound(sensitivity: Sensitivity | None) -> None:
    """Eight GPUs that one node could hold are free on two nodes of two leaves; the first in line waits for a node."""
    nodes = [make_node(f"n0{number}", used=4 if number in (1, 3) else 8) for number in range(1, 5)]
    gang = make_job(
        1,
        gang=make_gang(8, nodes_min=1, nodes_max=4),
        time_limit_s=9 * DAY_S,
        hints=make_hints(sensitivity=sensitivity),
    )
    other = make_job(2, gpus=4, user="bob", time_limit_s=HOUR_S, priority=10)
    first = make_job(3, gang=make_gang(9, nodes_max=1), user="bob", time_limit_s=None, priority=9000)

    # Without lifts, which would put the other one first.
    cycle = Cycle(limits=Limits(nice_min=0))
    record = cycle.judge(make_snapshot([gang, other, first, *make_holders(nodes, left_s=5 * HOUR_S)], nodes))

    assert {change.job_id for change in record.recommendations} == {1}
    assert all(0.0 < change.expected.added_delay_max_s <= LIMITS.max_added_delay_s for change in record.recommendations)
    assert all(isinstance(change.action, SetNodeRange | SetSwitches) for change in record.recommendations)


def test_false_gpu_range_and_checkpoint_give_no_size_outside_the_range_and_no_time() -> None:
    greedy = replace(PLAIN, hints=make_hints(gpus=(1, 10_000), checkpoint_s=1.0))
    snapshot = make_snapshot([greedy])

    record = Cycle().judge(snapshot)

    sizes = [change.action.after for change in record.recommendations if isinstance(change.action, SetGpus)]
    assert sizes and greedy.hints.gpus == GpuRange(low=1, high=10_000)
    # It grows into GPUs that stay idle otherwise, of which the cluster has 32.
    assert all(after.count <= 32 for after in sizes)
    assert not any(isinstance(change.action, SetTimeMin) for change in record.recommendations)


def test_opting_out_and_in_again_forgets_nothing() -> None:
    leases = [lent(delay_s=5 * HOUR_S), lent(ago_s=599.0, delay_s=0.0)]
    out, back_in = replace(PLAIN, hints=make_hints(opted_out=True)), PLAIN

    assert refused_by(timer(delay_s=0.0), out, leases=leases) == "not_opted_out"
    assert refused_by(timer(delay_s=0.0), back_in, leases=leases) == "cooldown_over"
    assert refused_by(timer(delay_s=2 * HOUR_S), back_in, leases=leases[:1]) == "total_delay_within_limit"


def test_job_that_opted_out_is_not_lifted_and_can_be_passed() -> None:
    opted_out = replace(short_job(100), hints=make_hints(opted_out=True))
    snapshot = make_snapshot([*full(), long_job(1), opted_out, short_job(101)])

    record = Cycle().judge(snapshot)

    assert record.left_alone == {100: "not_opted_out"}
    assert [change.job_id for change in record.recommendations] == [101]


def overruled(job: Job = PLAIN) -> Lease:
    """A change that the owner of the job undid in Slurm."""
    return replace(lent(job), state=LeaseState.HANDS_OFF, overruled_time=TAKEN_AT)


def test_undoing_a_change_gains_no_more_than_opting_out() -> None:
    other = make_job(2, user="bob")
    snapshot = make_snapshot([PLAIN, other])

    around = circumstances(snapshot, LIMITS, leases=[overruled()])

    assert refusals(snapshot, around) == {1: "no_person_objected"}


def test_undoing_a_change_in_part_gains_nothing_more_either() -> None:
    cluster = FakeCluster(jobs={job.job_id: job for job in (*full(), long_job(1), short_job(100))})
    at_work = Applier(source=cluster, actuator=cluster, cycle=Cycle())
    at_work.step()
    cluster.jobs[100] = replace(cluster.jobs[100], nice=-1)

    for _ in range(5):
        cluster.now += 900.0
        at_work.step()

    assert [type(action) for action in cluster.sent] == [SetNice]
    assert cluster.jobs[100].nice == -1


def test_holding_a_place_open_with_a_node_range_is_bounded_for_the_owner_as_for_all() -> None:
    action = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
    gang = replace(PLAIN, gang=make_gang(4, nodes_min=1, nodes_max=4))
    change = replace(timer(delay_s=HOUR_S), action=action)

    back = lent(gang, ago_s=6 * HOUR_S, ending=Ending.TAKEN_BACK, ended_ago_s=700.0)
    spent = [replace(back, would_start_time=TAKEN_AT - 5.5 * HOUR_S)]

    assert refused_by(change, gang) is None
    assert refused_by(change, gang, leases=spent) == "total_delay_within_limit"
