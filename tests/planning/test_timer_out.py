"""A timer that is out explains itself as if it were chosen now."""

from dataclasses import replace

import pytest

from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange, SetSwitches
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory, Wait
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.timers import TimerOut, timers_out
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import timer_out_sentence
from tests.builders import TAKEN_AT, make_gang, make_job, make_snapshot
from tests.planning.test_placement import RANGE, half_idle_nodes, one_idle_node_per_leaf, waiting

HELD = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
ASKED = SetSwitches(job_id=1, before=None, after=SwitchRequest(count=1, max_wait_s=840.0))


def out(action: Action, *, ago_s: float, due_s: float | None = None, state: LeaseState = LeaseState.OUT) -> Lease:
    """A change that was applied a while ago."""
    return replace(intended(action, TAKEN_AT - ago_s, after_s=due_s), state=state)


def with_changes(snapshot: Snapshot, *leases: Lease) -> Snapshot:
    """The snapshot as it stands once the changes have taken effect."""
    jobs = {job.job_id: job for job in snapshot.jobs}
    for lease in leases:
        jobs[lease.job_id] = lease.action.applied_to(jobs[lease.job_id])
    return replace(snapshot, jobs=tuple(jobs.values()))


def timers_of(snapshot: Snapshot, *leases: Lease, waits: tuple[Wait, ...] = ()) -> tuple[TimerOut, ...]:
    """Return the timers of the gang that are out."""
    return timers_out(snapshot, 1, PlanningSettings(), Limits(), NO_FORECASTS, Memory(waits=waits, leases=leases))


OVER = "The cost of staying spread out is not known now. The wait is over"


def test_wait_for_one_leaf_says_how_others_fared_and_what_spreading_costs() -> None:
    lease = out(ASKED, ago_s=300.0)
    waits = tuple(
        Wait(gpus=16, tier=LocalityTier.LEAF, waited_s=660.0, got=number < 9, ended_time=TAKEN_AT)
        for number in range(12)
    )

    (timer,) = timers_of(with_changes(one_idle_node_per_leaf(waiting()), lease), lease, waits=waits)

    assert timer_out_sentence(timer) == (
        "It waits up to 14 min for one leaf switch, as spread out it would run 1.9 to 9.6 h longer. "
        "Of the last 12 gangs of 9 to 16 GPUs, 9 got there within 11 min. 9 min of the wait are left"
    )
    assert (timer.nodes, timer.began_time, timer.ends_time) == (None, TAKEN_AT - 300.0, TAKEN_AT + 540.0)
    assert timer.timer is not None
    assert {"gangs_seen": 12, "gangs_got": 9, "timer_s": 840.0}.items() <= timer.timer.evidence.items()


def test_wait_for_few_nodes_is_explained_by_the_range_that_the_user_gave() -> None:
    lease = out(HELD, ago_s=300.0, due_s=1800.0)

    (timer,) = timers_of(with_changes(half_idle_nodes(waiting(RANGE)), lease), lease)

    assert timer_out_sentence(timer).startswith(
        "It waits up to 30 min for one node, as spread out it would run 58 min to 4.8 h longer. No recent waits of "
        "gangs of 5 to 8 GPUs"
    )
    assert timer_out_sentence(timer).endswith("25 min of the wait are left")


def test_both_timers_of_a_gang_are_told_in_their_order() -> None:
    held, asked = out(HELD, ago_s=100.0, due_s=600.0), out(ASKED, ago_s=1000.0)

    assert [timer.nodes for timer in timers_of(half_idle_nodes(waiting(RANGE)), held, asked)] == [None, 1]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            ASKED,
            f"It waits up to 14 min for one leaf switch. {OVER}",
        ),
        (HELD, f"It waits up to 14 min for one node. {OVER}"),
        (
            replace(HELD, after=NodeRange(low=1, high=2)),
            f"It waits up to 14 min for 2 nodes. {OVER}",
        ),
    ],
    ids=["leaf", "node", "nodes"],
)
def test_gang_that_is_kept_by_something_else_now_says_only_what_is_out(action: Action, words: str) -> None:
    lease = out(action, ago_s=900.0, due_s=840.0)
    fits_now = make_snapshot([waiting(make_gang(8, nodes_max=4))])
    not_in_line = make_snapshot([replace(waiting(RANGE), dependency="afterok:7")])

    assert [timer_out_sentence(timer) for timer in (*timers_of(fits_now, lease), *timers_of(not_in_line, lease))] == [
        words,
        words,
    ]


@pytest.mark.parametrize(
    ("snapshot", "lease"),
    [
        (make_snapshot(), out(ASKED, ago_s=60.0)),
        (make_snapshot([make_job(1, gpus=8, running_on=["n01"])]), out(ASKED, ago_s=60.0)),
        (half_idle_nodes(waiting(RANGE)), out(replace(ASKED, job_id=2), ago_s=60.0)),
        (half_idle_nodes(waiting(RANGE)), out(ASKED, ago_s=60.0).ended(Ending.TAKEN_BACK, TAKEN_AT)),
        (half_idle_nodes(waiting(RANGE)), out(ASKED, ago_s=60.0, state=LeaseState.HANDS_OFF)),
        (half_idle_nodes(waiting(RANGE)), out(SetNice(job_id=1, before=0, after=9), ago_s=60.0, due_s=600.0)),
    ],
    ids=["gone", "started", "of another job", "ended", "overruled", "no timer"],
)
def test_without_a_timer_in_force_nothing_is_told(snapshot: Snapshot, lease: Lease) -> None:
    assert timers_of(snapshot, lease) == ()
