"""The table of what becomes of a lease."""

from dataclasses import replace

import pytest

from advisor.apply.leases import TRANSITIONS, Ended, Sight, next_lease, sight_of, without_place
from advisor.apply.memory_journal import MemoryJournal
from advisor.domain.actions import NodeRange, SetNice, SetNodeList, SetNodeRange
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.node import Node
from tests.builders import TAKEN_AT, make_gang, make_job, make_node, make_snapshot
from tests.journal.contract import check

GRACE_S = 120.0
NICE = SetNice(job_id=1, before=0, after=20)
RANGE = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
# What an intent alone can be seen as, and what only a change that is lost or being taken back can.
ONLY_OF = {Sight.BEFORE: {LeaseState.INTENDED}, Sight.USERS: {LeaseState.OUT, LeaseState.RETURNING}}


def lease(state: LeaseState, *, ago_s: float = 600.0) -> Lease:
    """Return a step back in a state."""
    return replace(intended(NICE, TAKEN_AT - ago_s), state=state)


def test_every_state_knows_what_every_sight_means() -> None:
    expected = {(state, sight) for state in LeaseState for sight in Sight if state in ONLY_OF.get(sight, {state})}

    assert set(TRANSITIONS) == expected


@pytest.mark.parametrize(
    ("state", "nice", "sight"),
    [
        (LeaseState.INTENDED, 0, Sight.BEFORE),
        (LeaseState.INTENDED, 20, Sight.OURS),
        (LeaseState.INTENDED, 3, Sight.OTHERS),
        (LeaseState.OUT, 20, Sight.OURS),
        (LeaseState.OUT, 0, Sight.OTHERS),
        (LeaseState.RETURNING, 0, Sight.USERS),
        (LeaseState.RETURNING, 20, Sight.OURS),
        (LeaseState.RETURNING, 3, Sight.OTHERS),
    ],
)
def test_field_of_a_pending_job_is_told_apart(state: LeaseState, nice: int, sight: Sight) -> None:
    assert sight_of(lease(state), make_snapshot([make_job(1, nice=nice)])) is sight


def test_job_that_left_started_or_was_not_read_is_told_apart() -> None:
    out = lease(LeaseState.OUT)
    started = make_snapshot([make_job(1, gpus=1, running_on=["n01"])])
    unread = make_snapshot([make_job(1, unseen=("nice",))])

    assert sight_of(out, make_snapshot([])) is Sight.GONE
    assert sight_of(out, started) is Sight.STARTED
    assert sight_of(out, unread) is Sight.UNREAD


@pytest.mark.parametrize(
    ("state", "nodes", "sight"),
    [
        (LeaseState.RETURNING, ["n01", "n02"], Sight.USERS),
        (LeaseState.RETURNING, ["n01"], Sight.STARTED),
        (LeaseState.OUT, ["n01", "n02"], Sight.STARTED),
    ],
)
def test_gang_that_started_on_more_nodes_than_our_range_allows_was_given_back(
    state: LeaseState, nodes: list[str], sight: Sight
) -> None:
    pinned = replace(intended(RANGE, TAKEN_AT), state=state)
    snapshot = make_snapshot([make_job(1, gang=make_gang(4, nodes_min=1, nodes_max=4), running_on=nodes)])

    assert sight_of(pinned, snapshot) is sight


@pytest.mark.parametrize(
    ("unread_jobs", "sight"), [((), Sight.GONE), ((2,), Sight.GONE), ((1,), Sight.UNREAD), ((0,), Sight.UNREAD)]
)
@pytest.mark.parametrize("state", [LeaseState.OUT, LeaseState.RETURNING, LeaseState.HANDS_OFF])
def test_job_that_was_left_out_is_not_gone(state: LeaseState, unread_jobs: tuple[int, ...], sight: Sight) -> None:
    held = lease(state)
    snapshot = replace(make_snapshot([make_job(3)]), unread_jobs=unread_jobs)

    assert sight_of(held, snapshot) is sight
    assert isinstance(next_lease(held, sight, TAKEN_AT, GRACE_S), Lease) is (sight is Sight.UNREAD)


def test_hidden_end_of_a_range_is_neither_ours_nor_the_one_before() -> None:
    asked = replace(intended(RANGE, TAKEN_AT), state=LeaseState.OUT)
    job = make_job(1, gang=make_gang(4, nodes_min=1, nodes_max=1))

    assert sight_of(asked, make_snapshot([job])) is Sight.ONE_END


@pytest.mark.parametrize(
    ("sight", "ending", "state"),
    [
        (Sight.BEFORE, Ending.NOT_APPLIED, None),
        (Sight.STARTED, Ending.NO_LONGER_PENDING, None),
        (Sight.UNREAD, None, LeaseState.OUT),
        (Sight.ONE_END, None, LeaseState.OUT),
    ],
)
def test_intent_waits_while_it_can_come_true_and_is_settled_then(
    sight: Sight, ending: Ending | None, state: LeaseState | None
) -> None:
    early, late = lease(LeaseState.INTENDED, ago_s=GRACE_S - 1.0), lease(LeaseState.INTENDED, ago_s=GRACE_S)

    settled = next_lease(late, sight, TAKEN_AT, GRACE_S)

    assert next_lease(early, sight, TAKEN_AT, GRACE_S) == early
    assert settled == (Ended(ending=ending) if ending else replace(late, state=state or late.state))


def test_intent_of_a_clock_that_was_set_back_waits_from_now_on() -> None:
    ahead = lease(LeaseState.INTENDED, ago_s=-3600.0)

    assert next_lease(ahead, Sight.BEFORE, TAKEN_AT, GRACE_S) == ahead.restarted(TAKEN_AT)


@pytest.mark.parametrize(
    ("node", "is_lost"),
    [
        pytest.param(make_node("n02"), False, id="free"),
        pytest.param(make_node("n02", used=8), True, id="taken"),
        pytest.param(make_node("n02", state="DRAINED"), True, id="drained"),
        pytest.param(make_node("n02", flags=("RESERVED",)), True, id="reserved"),
    ],
)
def test_pending_gang_has_lost_its_place_once_a_named_node_is_not_free(node: Node, is_lost: bool) -> None:
    action = SetNodeList(job_id=1, before=(), after=("n01", "n02"))
    gang = make_job(1, gang=make_gang(16, nodes_min=2, nodes_max=2, required_nodes=action.after))
    nodes = [make_node("n01"), node, make_node("n03"), make_node("n04")]

    lost = without_place([intended(action, TAKEN_AT - 30.0)], make_snapshot([gang], nodes))

    assert lost == (frozenset({1}) if is_lost else frozenset())


def test_journal_in_memory_keeps_to_the_contract() -> None:
    check(MemoryJournal())
