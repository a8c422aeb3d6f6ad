"""Which reservation keeps a job from nodes, and the time limit with which it would end before."""

from dataclasses import replace

import pytest

from advisor.diagnose.causes import diagnose
from advisor.domain.diagnosis import Cause, Finding
from advisor.domain.particulars import Particulars, Reservation
from tests.builders import HOUR_S, TAKEN_AT, make_job, make_node, make_snapshot
from tests.diagnose.diagnosing import GPU

IDLE = (make_node("n1"), make_node("n2"))


def reserved(*nodes: str, start_s: float, end_s: float) -> Reservation:
    """Return a reservation of whole nodes, which begins and ends the given seconds from now."""
    return Reservation(name="exam", start_time=TAKEN_AT + start_s, end_time=TAKEN_AT + end_s, nodes=nodes)


def first(*reservations: Reservation, limit_s: float | None = 5 * HOUR_S) -> Finding:
    """Return what keeps a job from starting on two idle nodes."""
    job = make_job(1, gang=GPU, time_limit_s=limit_s, reason="Priority")
    return diagnose(make_snapshot([job], IDLE), 1, particulars=Particulars(reservations=reservations)).first


def test_job_that_would_still_run_at_a_reservation_fits_with_the_time_limit_up_to_it() -> None:
    found = first(reserved("n1", "n2", start_s=2 * HOUR_S, end_s=3 * HOUR_S))

    assert found.cause is Cause.RESERVATION
    assert (found.evidence["reservation"], found.evidence["time_limit_s"]) == ("exam", 5 * HOUR_S)
    assert found.evidence["time_limit_that_fits_s"] == 2 * HOUR_S


@pytest.mark.parametrize("start_s", [-HOUR_S, 0.0])
def test_no_time_limit_fits_before_a_reservation_that_has_begun(start_s: float) -> None:
    found = first(reserved("n1", "n2", start_s=start_s, end_s=HOUR_S))

    assert found.cause is Cause.RESERVATION
    assert "time_limit_that_fits_s" not in found.evidence


@pytest.mark.parametrize(
    "reservation",
    [
        pytest.param(reserved("n1", "n2", start_s=5 * HOUR_S, end_s=6 * HOUR_S), id="it begins as the job ends"),
        pytest.param(reserved("n1", "n2", start_s=-HOUR_S, end_s=0.0), id="it has just ended"),
        pytest.param(reserved("n1", start_s=HOUR_S, end_s=2 * HOUR_S), id="it leaves a node"),
        pytest.param(
            replace(reserved("n1", "n2", start_s=HOUR_S, end_s=2 * HOUR_S), cpus=127), id="it takes parts of nodes"
        ),
    ],
)
def test_reservation_that_leaves_a_node_or_the_time_keeps_no_job_waiting(reservation: Reservation) -> None:
    assert first(reservation).cause is not Cause.RESERVATION


def test_reservation_that_begins_just_before_the_job_ends_or_takes_every_cpu_is_in_the_way() -> None:
    early = reserved("n1", "n2", start_s=5 * HOUR_S - 1.0, end_s=6 * HOUR_S)
    whole = replace(reserved("n1", "n2", start_s=HOUR_S, end_s=2 * HOUR_S), cpus=128)

    assert [first(each).cause for each in (early, whole)] == [Cause.RESERVATION] * 2


def test_nodes_that_are_reserved_tell_of_a_reservation_that_was_not_read() -> None:
    nodes = [replace(make_node("n1"), flags=("RESERVED",)), make_node("n2", state="DOWN")]

    found = diagnose(make_snapshot([make_job(1, gang=GPU, reason="Resources")], nodes), 1).first

    assert (found.cause, found.evidence) == (Cause.RESERVATION, {"nodes_reserved": 1, "nodes_of_job": 2})


def test_of_two_reservations_the_one_that_takes_the_last_node_is_named() -> None:
    one = reserved("n1", start_s=HOUR_S, end_s=2 * HOUR_S)
    other = replace(reserved("n2", start_s=HOUR_S, end_s=2 * HOUR_S), name="service")

    assert first(one, other).evidence["reservation"] == "service"
    assert first(one, other, limit_s=None).evidence["reservation"] == "service"
