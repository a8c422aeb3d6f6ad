"""The log of rounds says what was done and what is different, and repeats nothing."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
import structlog

from advisor.apply.step import Reconciled
from advisor.daemon.round_log import REMINDED_AFTER, RoundLog
from advisor.domain.actions import NodeRange, SetGpus, SetNodeRange, SetSwitches
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.lease import LeaseState
from advisor.domain.mode import Mode
from advisor.domain.plan import Outcome, Receipt
from advisor.view.sentences import sentence
from tests.builders import make_job, size_of
from tests.made_rounds import change, lease, make_round, put_off, receipt, step


class Events:
    """A round log whose events a test reads."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.tell = RoundLog(
            structlog.wrap_logger(
                structlog.PrintLogger(self._stream),
                processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
                wrapper_class=structlog.make_filtering_bound_logger(0),
            )
        ).tell

    def taken(self, *, level: str = "info") -> list[dict[str, Any]]:
        """Return what was logged since the last call, without what only debugging shows."""
        told = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        self._stream.truncate(0)
        self._stream.seek(0)
        return [event for event in told if event["level"] != "debug" or level == "debug"]


@pytest.fixture
def events() -> Events:
    return Events()


def names(told: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in told]


def test_a_round_that_is_like_the_one_before_is_told_to_whoever_debugs(events: Events) -> None:
    events.tell(make_round(step()))
    first = names(events.taken())
    events.tell(make_round(step(), number=1))

    assert first == ["round"]
    assert names(events.taken(level="debug")) == ["round"]


def test_a_change_tells_who_what_and_why(events: Events) -> None:
    done = step(jobs=[make_job(1, user="eve\n")], judged=[change(1)], applied=[receipt(1)])

    events.tell(make_round(done, open_leases={LeaseState.OUT: 1}))

    told = events.taken()
    assert names(told) == ["change applied", "round"]
    assert told[0] == {
        "event": "change applied",
        "level": "info",
        "job_id": 1,
        "lever": "nice",
        "before": 0,
        "after": 100,
        "user": "eve\n",
        "kind": "reorder",
        "reason": "short_work_first",
        "saved_s": "60..600",
        "added_delay_max_s": 30,
        "text": sentence(change(1)),
    }
    assert (told[1]["sent"], told[1]["failed"], told[1]["open_leases"]) == (1, 0, 1)


def test_run_times_that_are_set_aside_are_told_once_and_so_is_their_return(events: Events) -> None:
    for number, why in enumerate(("0 of 0", "1 of 2")):
        events.tell(make_round(step(), number=number, on_probation={"run_time 1": why}))
    aside = events.taken()
    events.tell(make_round(step(), number=2))
    counted = events.taken()

    assert names(aside) == ["run times are set aside", "round"]
    assert (aside[0]["model"], aside[0]["why"], aside[0]["level"]) == ("run_time 1", "0 of 0", "info")
    assert names(counted) == ["run times are no longer set aside"] and counted[0]["model"] == "run_time 1"


def test_what_failed_is_a_warning_with_its_fault(events: Events) -> None:
    failed = receipt(2, Outcome.FAILED, "Access denied")

    events.tell(make_round(step(applied=[failed, receipt(3, Outcome.ALREADY_SO)])))

    told = events.taken()
    assert names(told) == ["change failed", "change not needed", "round"]
    assert (told[0]["level"], told[0]["fault"]) == ("warning", "Access denied")
    assert told[2]["failed"] == 1


def test_what_people_overruled_and_what_was_taken_back_is_told(events: Events) -> None:
    found = Reconciled(taken_back=(receipt(1),), overruled=(lease(2),), put_off=(put_off(3, "budget: spent"),))

    events.tell(make_round(step(reconciled=found)))

    told = events.taken()
    assert names(told) == [
        "take-back applied",
        "somebody else changed the field: the job is left alone",
        "take-back put off",
        "round",
    ]
    assert told[1]["level"] == "warning"


def test_what_was_taken_back_without_reading_the_queue_is_logged_too(events: Events) -> None:
    reconciled = Reconciled(taken_back=(receipt(1),), overruled=(lease(2),))

    events.tell(replace(make_round(), returned=reconciled))

    assert names(events.taken()) == [
        "round not done",
        "take-back applied",
        "somebody else changed the field: the job is left alone",
    ]


def test_what_is_held_back_round_after_round_is_told_once(events: Events) -> None:
    events.tell(make_round(step(held_back=[put_off(1, "budget: room in 7 s")])))
    first = names(events.taken())
    events.tell(make_round(step(held_back=[put_off(1, "budget: room in 3 s"), put_off(2, "budget: x")]), number=1))

    told = events.taken()
    assert first == ["change held back", "round"]
    assert [(each["event"], each.get("job_id")) for each in told] == [("change held back", 2), ("round", None)]


def test_modes_pauses_and_breakers_are_told_when_they_change(events: Events) -> None:
    events.tell(make_round(step()))
    events.taken()
    held = make_round(step(), number=1, mode=Mode.RECOMMEND, held_to={"paused": "by root", "slurm_errors": "3 failed"})

    events.tell(held)
    begun = events.taken()
    events.tell(replace(held))
    lasting = events.taken()
    events.tell(make_round(step(), number=3))
    ended = events.taken()

    assert [(each["event"], each.get("by"), each.get("why")) for each in begun] == [
        ("mode changed", None, None),
        ("nothing is applied", "paused", "by root"),
        ("nothing is applied", "slurm_errors", "3 failed"),
    ]
    assert lasting == []
    assert names(ended) == ["mode changed", "no longer kept from applying", "no longer kept from applying"]


def test_reader_that_fails_is_logged_once_and_when_it_reads_again(events: Events) -> None:
    good = step()
    seen = replace(good.record.snapshot, source="text", reader_fault="pyslurm failed: it hangs")
    fallen_back = replace(good, record=replace(good.record, snapshot=seen))

    events.tell(make_round(good))
    events.taken()
    events.tell(make_round(fallen_back, number=1))
    failed = events.taken()
    events.tell(make_round(fallen_back, number=2))
    still = events.taken()
    events.tell(make_round(good, number=3))
    again = events.taken()

    assert [(event["event"], event["level"], event["fault"]) for event in failed] == [
        ("the preferred reader failed", "warning", "pyslurm failed: it hangs")
    ]
    assert still == []
    assert [(event["event"], event["reader"]) for event in again] == [("the preferred reader is used again", "text")]


def test_jobs_with_our_mark_and_without_a_lease_are_told_when_there_are_new_ones(events: Events) -> None:
    rounds = [(4,), (4,), (4, 7), (7,), ()]

    told = []
    for number, strays in enumerate(rounds):
        events.tell(replace(make_round(step(), number=number), strays=strays))
        told.append([event["job_ids"] for event in events.taken() if "mark of sadvise" in event["event"]])

    assert told == [["4"], [], ["4,7"], [], []]


def test_metrics_that_cannot_be_filled_are_told_once(events: Events) -> None:
    events.tell(make_round(step()), ["journal: gone"])
    first = names(events.taken())

    events.tell(make_round(step(), number=1), ["journal: gone"])

    assert first == ["metrics not filled", "round"]
    assert events.taken() == []


def test_a_fault_that_lasts_is_told_first_then_now_and_then_and_when_it_ends(events: Events) -> None:
    for number in range(REMINDED_AFTER + 1):
        events.tell(make_round(number=number, fault="slurmctld is down"))
    lasting = events.taken()
    events.tell(make_round(number=99, fault="squeue: nonsense"))
    other = events.taken()
    events.tell(make_round(step(), number=100))
    ended = events.taken()

    assert [(each["event"], each["failed_rounds"]) for each in lasting] == [
        ("round not done", 1),
        ("round not done", REMINDED_AFTER + 1),
    ]
    assert [each["fault"] for each in other] == ["squeue: nonsense"]
    assert ended[0] == {"event": "rounds are done again", "level": "info", "failed_rounds": REMINDED_AFTER + 2}


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        (
            SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1)),
            "1-4",
            "1-1",
        ),
        (SetSwitches(job_id=1, before=None, after=SwitchRequest(count=1, max_wait_s=600.0)), "none", "1@600s"),
        (
            SetGpus(
                job_id=1,
                scope=GpuScope.JOB,
                before=size_of(GpuCount(count=4)),
                after=size_of(GpuCount(gpu_type="a100", count=1), GpuCount(gpu_type="h100", count=1)),
            ),
            "gpu:4",
            "a100:1,h100:1",
        ),
    ],
    ids=["nodes", "switches", "gpus"],
)
def test_values_of_fields_are_short(
    action: SetNodeRange | SetSwitches | SetGpus, before: str, after: str, events: Events
) -> None:
    events.tell(make_round(step(applied=[Receipt(action=action, outcome=Outcome.APPLIED)])))

    told = events.taken()
    assert (told[0]["before"], told[0]["after"]) == (before, after)
