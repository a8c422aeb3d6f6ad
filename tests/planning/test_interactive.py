"""The room for interactive jobs: a share of the GPUs of partitions that share nodes, less what such jobs hold."""

from dataclasses import replace

import pytest

from advisor.domain.gang import GangRequest
from advisor.domain.mark import is_marked
from advisor.domain.snapshot import Snapshot
from advisor.planning.interactive import InteractiveRoom, interactive_nice, interactive_rooms
from advisor.settings import Limits
from tests.builders import HOUR_S, make_config, make_gang, make_job, make_node, make_partition, make_snapshot

# A quarter of 32 GPUs.
QUARTER = Limits(interactive_ratio=0.25)
NICE = -1_999_999_997


def room_of(snapshot: Snapshot, limits: Limits = QUARTER) -> InteractiveRoom:
    """Return the only room."""
    (only,) = interactive_rooms(snapshot, limits)
    return only


def test_room_is_the_share_of_the_gpus_and_half_of_it_is_one_users() -> None:
    room = room_of(make_snapshot([]))

    assert (room.partitions, room.nice, room.gpus, room.user_gpus) == (("gpu",), NICE, 8, 4)
    assert room.limit_s == 8 * HOUR_S and room.held == {}


def test_jobs_with_the_nice_count_waiting_and_running_and_others_do_not() -> None:
    jobs = [
        make_job(1, gpus=2, user="ada", nice=NICE, running_on=["n01"]),
        make_job(2, gpus=1, user="ada", nice=NICE),
        make_job(3, gpus=3, user="bob", nice=NICE),
        make_job(4, gpus=1, user="eve", nice=-27),
        make_job(5, gpus=8, user="eve", running_on=["n02"]),
    ]

    room = room_of(make_snapshot(jobs))

    assert (room.gpus, room.held) == (2, {"ada": 3, "bob": 3})


def test_no_gpus_are_left_where_jobs_hold_more_than_the_share() -> None:
    jobs = [make_job(1, gpus=8, nice=NICE, running_on=["n01"]), make_job(2, gpus=1, nice=NICE)]

    assert room_of(make_snapshot(jobs)).gpus == 0


def test_nodes_out_of_service_do_not_count() -> None:
    nodes = [make_node("n01"), replace(make_node("n02"), state="DOWN")]

    assert room_of(make_snapshot([], nodes)).gpus == 2


def test_partitions_that_share_nodes_have_one_room_and_whole_nodes_none() -> None:
    nodes = [make_node(f"n{number}") for number in range(1, 5)]
    partitions = [
        make_partition("a", nodes=["n1", "n2"]),
        make_partition("b", nodes=["n2"]),
        make_partition("c", nodes=["n3"]),
        replace(make_partition("d", nodes=["n4"]), over_subscribe="EXCLUSIVE"),
    ]
    held = make_job(1, gpus=1, nice=NICE, partitions=("b",), user="ada")

    rooms = list(interactive_rooms(make_snapshot([held], nodes, partitions=partitions), QUARTER))

    assert [(room.partitions, room.gpus, room.held) for room in rooms] == [
        (("a", "b"), 3, {"ada": 1}),
        (("c",), 2, {}),
        ((), 2, {}),
    ]


def test_there_is_no_room_where_it_is_off_or_nice_moves_no_job() -> None:
    by_submission = make_config(priority_type="priority/basic")

    assert list(interactive_rooms(make_snapshot([]), Limits())) == []
    assert list(interactive_rooms(make_snapshot([]), replace(QUARTER, nice_min=-5))) == []
    assert list(interactive_rooms(make_snapshot([], config=by_submission), QUARTER)) == []


@pytest.mark.parametrize("nice_min", [-7, -8, -16, -17, -1000, -2_000_000_000, -2_147_483_645])
def test_nice_is_the_lowest_marked_one_that_site_and_script_allow(nice_min: int) -> None:
    nice = interactive_nice(replace(QUARTER, nice_min=nice_min))

    assert nice is not None and is_marked(nice)
    assert max(nice_min, -2_000_000_000) <= nice < max(nice_min, -2_000_000_000) + 10


@pytest.mark.parametrize(
    ("gang", "limit_h", "is_covered"),
    [
        (make_gang(1), 8.0, True),
        (make_gang(8, nodes_max=1), 8.0, True),
        (make_gang(9, nodes_max=1), 8.0, False),
        (make_gang(2, nodes_max=None), 8.0, False),
        (make_gang(1), 8.1, False),
        (make_gang(1), None, False),
    ],
)
def test_job_can_have_got_the_nice_on_one_node_within_limit_and_room(
    gang: GangRequest, limit_h: float | None, *, is_covered: bool
) -> None:
    job = make_job(1, gang=gang, time_limit_s=None if limit_h is None else limit_h * HOUR_S)

    assert room_of(make_snapshot([])).covers(job) is is_covered
