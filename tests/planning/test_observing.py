"""What timers that were out tell about waits, and how long they held a job back."""

from dataclasses import replace

import pytest

from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange, SetSwitches
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Wait
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.observing import (
    Past,
    gave_up_time,
    observed,
    past_by_job,
    started_since,
    still_waiting,
    timer_tier,
)
from tests.builders import HOUR_S, TAKEN_AT, make_gang, make_job, make_snapshot

NODE, LEAF = LocalityTier.NODE, LocalityTier.LEAF
HELD = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
ASKED = SetSwitches(job_id=1, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))
SINCE = TAKEN_AT - HOUR_S


def started(*nodes: str, ago_s: float = 100.0, gpus: int = 8) -> Snapshot:
    """A gang that started on some nodes; n01 and n02 hang on one leaf, n03 and n04 on the other."""
    return make_snapshot([make_job(1, gang=make_gang(gpus), running_on=nodes, started_ago_s=ago_s)])


def lease(action: Action, *, ago_s: float, state: LeaseState = LeaseState.OUT, due_s: float | None = None) -> Lease:
    """A change that was applied a while ago."""
    return replace(intended(action, TAKEN_AT - ago_s, after_s=due_s), state=state)


def wait(tier: LocalityTier, waited_s: float, *, got: bool, ago_s: float = 100.0) -> Wait:
    """What is to be seen of the gang."""
    return Wait(gpus=8, tier=tier, waited_s=waited_s, got=got, ended_time=TAKEN_AT - ago_s)


def test_gang_that_starts_as_its_timer_wants_got_its_place() -> None:
    assert observed(started("n01"), SINCE, [lease(HELD, ago_s=400.0, due_s=900.0)]) == (wait(NODE, 300.0, got=True),)
    assert observed(started("n01", "n02"), SINCE, [lease(ASKED, ago_s=400.0)]) == (wait(LEAF, 300.0, got=True),)


def test_gang_may_sit_closer_than_its_timer_wants() -> None:
    assert observed(started("n01"), SINCE, [lease(ASKED, ago_s=400.0)]) == (wait(LEAF, 300.0, got=True),)


def test_gang_on_as_many_nodes_as_it_was_held_to_got_its_place() -> None:
    two = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=2))

    assert observed(started("n01", "n03"), SINCE, [lease(two, ago_s=400.0)]) == (wait(NODE, 300.0, got=True),)


def test_gang_that_gave_up_tells_how_long_its_timer_ran_not_when_it_started() -> None:
    given_up = lease(HELD, ago_s=900.0, due_s=300.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 550.0)

    # The node range was held until somebody took it back, 50 s after it was due.
    assert observed(started("n01", "n02"), SINCE, [given_up]) == (wait(NODE, 350.0, got=False),)
    # Slurm's own timer ended after its 600 s.
    assert observed(started("n01", "n03"), SINCE, [lease(ASKED, ago_s=900.0)]) == (wait(LEAF, 600.0, got=False),)


def test_gang_that_starts_long_after_its_timers_tells_nothing() -> None:
    node = lease(HELD, ago_s=3000.0, due_s=300.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 2700.0)

    # It stood far from the head of the line: no place was there to be declined as its timer ended.
    assert observed(started("n01", "n02"), SINCE, [node]) == ()
    # The timer for a leaf went on until shortly before the start.
    assert observed(started("n01", "n03"), SINCE, [node, lease(ASKED, ago_s=1000.0)]) == (
        wait(NODE, 300.0, got=False),
        wait(LEAF, 600.0, got=False),
    )


def test_lease_closed_as_the_job_was_found_started_counts_up_to_the_start() -> None:
    closed = lease(HELD, ago_s=400.0, due_s=900.0).ended(Ending.NO_LONGER_PENDING, TAKEN_AT - 50.0)

    assert observed(started("n01"), SINCE, [closed]) == (wait(NODE, 300.0, got=True),)


def test_both_timers_of_one_gang_tell_of_their_tiers() -> None:
    given_up = lease(HELD, ago_s=900.0, due_s=300.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 600.0)

    assert observed(started("n01", "n02"), SINCE, [given_up, lease(ASKED, ago_s=500.0)]) == (
        wait(NODE, 300.0, got=False),
        wait(LEAF, 400.0, got=True),
    )


@pytest.mark.parametrize(
    ("snapshot", "leases"),
    [
        (started("n01"), []),
        (started("n01"), [lease(SetNice(job_id=1, before=0, after=9), ago_s=400.0, due_s=900.0)]),
        (started("n01"), [lease(HELD.swapped(), ago_s=400.0)]),
        (started("n01"), [lease(HELD, ago_s=400.0, state=LeaseState.HANDS_OFF)]),
        (started("n01"), [lease(HELD, ago_s=400.0, state=LeaseState.INTENDED)]),
        (started("n01"), [lease(HELD, ago_s=400.0).ended(Ending.NOT_APPLIED, TAKEN_AT - 390.0)]),
        (started("n01"), [lease(HELD, ago_s=400.0).ended(Ending.NO_LONGER_PENDING, TAKEN_AT - 200.0)]),
        (started("n01"), [lease(HELD, ago_s=50.0)]),
        (started("n01", "n03"), [lease(ASKED, ago_s=400.0)]),
        (started("n01", "n02"), [lease(HELD, ago_s=400.0, due_s=900.0)]),
        (started("n01", ago_s=2 * HOUR_S), [lease(HELD, ago_s=3 * HOUR_S)]),
        (started("n01", ago_s=-10.0), [lease(HELD, ago_s=400.0)]),
        (started("n01", gpus=1), [lease(HELD, ago_s=400.0)]),
        (make_snapshot([make_job(1, gpus=8)]), [lease(HELD, ago_s=400.0)]),
        (make_snapshot(), [lease(HELD, ago_s=400.0)]),
    ],
    ids=[
        "no timer",
        "another lever",
        "a range made wider",
        "changed by somebody else",
        "never known to be in force",
        "never applied",
        "of an earlier start",
        "applied after the start",
        "spread while it waited: somebody changed it",
        "on more nodes than held to: somebody changed it",
        "seen before",
        "starts later",
        "no gang",
        "still pending",
        "gone",
    ],
)
def test_what_declined_nothing_tells_nothing(snapshot: Snapshot, leases: list[Lease]) -> None:
    assert observed(snapshot, SINCE, leases) == ()


def test_gang_whose_request_does_not_tell_its_gpus_counts_those_it_holds() -> None:
    snapshot = started("n01")
    hidden = replace(snapshot.jobs[0], gang=replace(snapshot.jobs[0].gang, gpus_known=False))

    (found,) = observed(replace(snapshot, jobs=(hidden,)), SINCE, [lease(HELD, ago_s=400.0)])

    assert found.gpus == 8


def test_every_start_lies_between_just_two_snapshots() -> None:
    snapshots = [replace(started("n01"), taken_at=TAKEN_AT - ago_s) for ago_s in (102.5, 99.5, 97.0)]
    times = [snapshot.taken_at for snapshot in snapshots]
    # Slurm tells the second in which a job started, which may be that of the snapshot before.
    within = replace(snapshots[0].jobs[0], start_time=TAKEN_AT - 100.0)

    found = [started_since(within, since, snapshot) for since, snapshot in zip(times, snapshots[1:], strict=False)]

    assert found == [False, True]


@pytest.mark.parametrize(
    ("given", "start_ago_s", "ended_ago_s"),
    [
        pytest.param(lease(ASKED, ago_s=900.0), None, 300.0, id="still waits, beyond the wait for a switch"),
        pytest.param(lease(ASKED, ago_s=600.0), None, 0.0, id="just at its end"),
        pytest.param(lease(ASKED, ago_s=599.0), None, None, id="still in it"),
        pytest.param(lease(ASKED, ago_s=900.0), 200.0, 300.0, id="started after it"),
        pytest.param(lease(ASKED, ago_s=900.0), 400.0, None, id="started in it"),
        pytest.param(
            lease(ASKED, ago_s=900.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 400.0), None, None, id="it was taken back"
        ),
        pytest.param(
            lease(HELD, ago_s=900.0, due_s=300.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 550.0), None, 550.0, id="range"
        ),
        pytest.param(
            lease(HELD, ago_s=900.0, due_s=300.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 700.0), None, None, id="cut short"
        ),
        pytest.param(
            lease(HELD, ago_s=900.0, due_s=300.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 600.0), None, 600.0, id="when due"
        ),
        pytest.param(lease(HELD, ago_s=900.0, due_s=300.0), None, None, id="range that is out"),
        pytest.param(
            lease(ASKED, ago_s=900.0).ended(Ending.NOT_APPLIED, TAKEN_AT - 100.0), None, None, id="never applied"
        ),
        pytest.param(lease(ASKED, ago_s=900.0, state=LeaseState.INTENDED), None, None, id="never known to be in force"),
        pytest.param(lease(SetNice(job_id=1, before=0, after=9), ago_s=900.0, due_s=9.0), None, None, id="no timer"),
    ],
)
def test_gang_gives_up_when_its_timer_ends_without_a_start(
    given: Lease, start_ago_s: float | None, ended_ago_s: float | None
) -> None:
    start_time = None if start_ago_s is None else TAKEN_AT - start_ago_s

    assert gave_up_time(given, start_time, TAKEN_AT) == (None if ended_ago_s is None else TAKEN_AT - ended_ago_s)


def test_switches_that_are_taken_away_are_no_timer() -> None:
    assert timer_tier(ASKED.swapped()) is None
    assert timer_tier(ASKED) is LEAF


def test_changes_count_for_as_long_as_they_held_a_job_back() -> None:
    leases = [
        lease(HELD, ago_s=3000.0, due_s=600.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 2300.0),
        lease(ASKED, ago_s=2000.0),
        lease(SetNice(job_id=1, before=0, after=9), ago_s=50.0, due_s=900.0),
        lease(SetNice(job_id=2, before=9, after=0), ago_s=50.0),
        lease(replace(ASKED, job_id=3), ago_s=50.0).ended(Ending.NOT_APPLIED, TAKEN_AT),
    ]

    past = past_by_job(leases, TAKEN_AT)

    # 700 s of few nodes, 600 s until the wait for switches ended by itself, 50 s behind others.
    assert past == {1: Past(tiers=frozenset({NODE, LEAF}), delayed_s=1350.0)}


def waiting(gpus: int = 8) -> Snapshot:
    """A gang that is pending."""
    return make_snapshot([make_job(1, gang=make_gang(gpus))])


def test_gang_that_still_waits_tells_how_long_it_has_waited_so_far() -> None:
    assert list(still_waiting(waiting(), [lease(HELD, ago_s=400.0, due_s=900.0)])) == [
        wait(NODE, 400.0, got=False, ago_s=0.0)
    ]
    # Slurm's own timer ended after its 600 s, and the gang waits for something else since.
    assert list(still_waiting(waiting(), [lease(ASKED, ago_s=900.0)])) == [wait(LEAF, 600.0, got=False, ago_s=0.0)]


@pytest.mark.parametrize(
    ("snapshot", "leases"),
    [
        (started("n01"), [lease(HELD, ago_s=400.0)]),
        (make_snapshot([]), [lease(HELD, ago_s=400.0)]),
        (waiting(gpus=1), [lease(HELD, ago_s=400.0)]),
        (waiting(), [lease(HELD, ago_s=0.0)]),
        (waiting(), [lease(HELD, ago_s=400.0, state=LeaseState.INTENDED)]),
        (waiting(), [lease(HELD, ago_s=400.0).ended(Ending.TAKEN_BACK, TAKEN_AT - 50.0)]),
        (waiting(), [lease(SetNice(job_id=1, before=0, after=9), ago_s=400.0)]),
    ],
    ids=["started", "gone", "one GPU", "just applied", "not known to be out", "taken back", "no timer"],
)
def test_what_does_not_wait_by_a_timer_that_is_out_tells_nothing(snapshot: Snapshot, leases: list[Lease]) -> None:
    assert list(still_waiting(snapshot, leases)) == []
