"""The turn of a pending job in words."""

from dataclasses import replace

import pytest

from advisor.diagnose.turn import JobTurn, PlaceInLine, WithoutAdvice
from advisor.domain.forecast import Interval
from advisor.domain.standings import Standing
from advisor.domain.units import HOUR_S
from advisor.planning.beliefs import Basis
from advisor.view.prospects import TurnDocument, advice_sentences, place_sentences, turn_document
from advisor.view.terminal import instant
from tests.builders import TAKEN_AT

PLACE = PlaceInLine(
    jobs=40,
    place=12,
    place_as_submitted=3,
    gpus=2,
    gpus_taken=2.0,
    tasks=1,
    run_s=720.0,
    gpu_s=1440.0,
    limit_s=HOUR_S,
    basis=Basis.RULE,
    is_lifted=False,
    lifted_ahead=9,
    lifted_ahead_gpu_s=3.1 * HOUR_S,
    passed_by=8,
)
LATE = WithoutAdvice(until=TAKEN_AT, start_time=TAKEN_AT - 2 * HOUR_S, late_s=2 * HOUR_S, bound_s=3 * HOUR_S)
NOT_LIFTED = (
    "it is not lifted: its 1000 tasks can take 600.0 GPU-hours by their time limit, and at most 128.0 GPU-hours of one "
    "user are lifted at a time"
)
STANDING = Standing(
    jobs=12, waited_s=9 * HOUR_S, plain_s=Interval(low=10 * HOUR_S, median=12 * HOUR_S, high=14 * HOUR_S)
)
UNKNOWN = JobTurn(place=None, without_advice=None, standing=None, owed=0.0, credit=1.0, max_credit=3.0)


def told(**parts: object) -> dict[str, str]:
    turn = replace(UNKNOWN, **parts)  # type: ignore[arg-type]
    return dict((*place_sentences(turn), *advice_sentences(turn, "alice")))


def test_place_size_and_lifts_of_a_job() -> None:
    assert told(place=PLACE) == {
        "place": "12 of 40 jobs that wait for these GPUs; 3 in the site's own order",
        "size": "0.4 GPU-hours expected: 2 GPUs for 12 min, by 20 % of its time limit of 1.0 h, without a forecast",
        "lifts": "9 lifted jobs stand before it, with 3.1 GPU-hours expected, "
        "8 of them behind it in the site's own order",
    }


@pytest.mark.parametrize(
    ("changed", "label", "text"),
    [
        ({"is_lifted": True, "lifted_ahead": 0}, "lifts", "it was lifted"),
        (
            {"basis": Basis.FORECAST, "gpus": 1, "gpus_taken": 8.0, "gpu_s": 5760.0},
            "size",
            "1.6 GPU-hours expected: 1 GPU (it keeps 8 from other jobs) for 12 min, by the mean of its forecast",
        ),
        (
            {"lifted_ahead": 0, "tasks": 1000, "most_gpu_s": 600 * HOUR_S, "liftable_gpu_s": 128 * HOUR_S},
            "lifts",
            NOT_LIFTED,
        ),
        (
            {"is_lifted": True, "lifted_ahead": 1, "passed_by": 0},
            "lifts",
            "it was lifted; 1 lifted job stands before it, with 3.1 GPU-hours expected",
        ),
        ({"basis": Basis.FORECAST}, "size", "0.4 GPU-hours expected: 2 GPUs for 12 min, by the mean of its forecast"),
        (
            {"basis": Basis.FORECAST, "tasks": 30, "gpu_s": 43200.0},
            "size",
            "12.0 GPU-hours expected: 2 GPUs for 12 min for each of 30 tasks, by the mean of its forecast",
        ),
        (
            {"run_s": None, "gpu_s": None, "limit_s": None},
            "size",
            "2 GPUs for a time that is not known: it has neither a time limit nor a forecast",
        ),
        ({"place_as_submitted": 12}, "place", "12 of 40 jobs that wait for these GPUs, as in the site's own order"),
    ],
)
def test_other_places(changed: dict[str, object], label: str, text: str) -> None:
    assert told(place=replace(PLACE, **changed))[label] == text  # type: ignore[arg-type]


def test_nothing_is_said_of_lifts_where_there_are_none() -> None:
    assert "lifts" not in told(place=replace(PLACE, lifted_ahead=0))
    assert told() == {}


@pytest.mark.parametrize(
    ("bound_s", "end"),
    [
        (3 * HOUR_S, "2.0 h ago; once it is 3.0 h late, it goes before all others"),
        (HOUR_S, "2.0 h ago; that is beyond the bound of 1.0 h, so that it goes before all others"),
        (None, "2.0 h ago"),
    ],
)
def test_late_job_and_its_bound(bound_s: float | None, end: str) -> None:
    start = f"without advice it would most likely have started at {instant(TAKEN_AT - 2 * HOUR_S)}, "

    assert told(without_advice=replace(LATE, bound_s=bound_s))["without"] == start + end


def test_job_that_would_wait_too() -> None:
    without = told(without_advice=replace(LATE, start_time=None, late_s=0.0))["without"]

    assert without == f"without advice it would most likely wait too, as of {instant(TAKEN_AT)}"


def test_user_who_gained_and_one_who_gave_perhaps_by_chance() -> None:
    gave = replace(STANDING, waited_s=13 * HOUR_S)

    assert told(standing=STANDING)["user"] == (
        "alice gained in the last week: wait -3.0 h (-5.0 h to -1.0 h) in all by the advice, 12 jobs"
    )
    assert told(standing=gave)["user"] == (
        "alice gave in the last week: wait +1.0 h (-1.0 h to +3.0 h) in all by the advice, 12 jobs; can be chance"
    )


def test_weight_for_what_a_user_is_owed_is_shown_with_its_bound() -> None:
    lines = told(standing=STANDING, credit=2.25)

    assert lines["credit"] == "jobs weigh 2.2 times as much until that is repaid (planning.max_credit = 3)"
    assert "credit" not in told(standing=STANDING)


def test_document_holds_the_same_as_values() -> None:
    document = turn_document(
        JobTurn(place=PLACE, without_advice=LATE, standing=STANDING, owed=-1.5, credit=1.0, max_credit=3.0), "alice"
    )

    assert document.place == PLACE
    assert document.without_advice is not None and not document.without_advice.is_late
    week = document.user_week
    assert week is not None and (week.user, week.owed, week.credit, week.max_credit) == ("alice", -1.5, 1.0, 3.0)
    assert (week.jobs, week.difference_s) == (STANDING.jobs, STANDING.difference_s)
    assert turn_document(UNKNOWN, "alice") == TurnDocument(place=None, without_advice=None, user_week=None)
