"""Days and partitions of an experiment: who decides, and what cannot be changed afterwards."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from advisor.domain.experiment import NO_EXPERIMENT, ExperimentSettings, day_number
from advisor.domain.outcome import Arm, JobOutcome
from advisor.domain.units import DAY_S
from tests.builders import HOUR_S

BY_DAY = ExperimentSettings(by="day", name="spring", start="2026-03-01", end="2026-04-29")
BY_PARTITION = replace(BY_DAY, by="partition", treated_partitions="gpu, vision")
FIRST = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


@given(st.dates(min_value=date(1970, 1, 1), max_value=date(9999, 12, 31)))
def test_days_count_as_the_calendar_does(day: date) -> None:
    number = day_number(day.isoformat())

    assert number == (day - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29",
        "2026-13-01",
        "2026-00-01",
        "2026-04-31",
        "1969-12-31",
        "2026-3-1",
        "1900-02-29",
        "today",
        "2026-01-00",
    ],
)
def test_what_is_no_day_of_the_calendar_is_none(text: str) -> None:
    assert day_number(text) is None


def test_leap_days_are_days() -> None:
    assert day_number("2000-02-29") == 11_016
    assert day_number("2100-02-29") is None


@given(seed=st.integers(), block=st.integers(0, 29))
def test_each_block_has_one_treated_and_one_control_day(seed: int, block: int) -> None:
    settings = replace(BY_DAY, seed=seed)

    arms = {settings.arm_at(FIRST + (2 * block + day) * DAY_S) for day in (0, 1)}

    assert arms == {Arm.TREATED, Arm.CONTROL}


def test_lots_decide_the_order_within_blocks() -> None:
    firsts = [BY_DAY.arm_at(FIRST + 2 * block * DAY_S) for block in range(30)]
    others = [replace(BY_DAY, seed=1).arm_at(FIRST + 2 * block * DAY_S) for block in range(30)]

    assert 5 <= firsts.count(Arm.TREATED) <= 25
    assert firsts != others


@pytest.mark.parametrize(
    ("instant", "inside"),
    [(FIRST - 1.0, False), (FIRST, True), (FIRST + 60 * DAY_S - 1.0, True), (FIRST + 60 * DAY_S, False)],
    ids=["before", "first second", "last second", "after"],
)
def test_outside_the_experiment_there_is_no_arm(instant: float, inside: bool) -> None:
    assert bool(BY_DAY.arm_at(instant)) is inside


def test_the_arm_changes_at_the_hour_of_the_switch() -> None:
    settings = replace(BY_DAY, switch_hour=6)
    day = FIRST + 6 * HOUR_S

    assert settings.arm_at(day - 1.0) is Arm.NONE
    assert settings.arm_at(day) is settings.arm_at(day + DAY_S - 1.0)
    assert settings.arm_at(day + DAY_S - 1.0) is not settings.arm_at(day + DAY_S)
    assert (settings.start_time, settings.end_time) == (day, day + 60 * DAY_S)


@pytest.mark.parametrize(
    ("partitions", "arm"),
    [
        (("gpu",), Arm.TREATED),
        (("gpu", "vision"), Arm.TREATED),
        (("debug",), Arm.CONTROL),
        (("debug", "long"), Arm.CONTROL),
        (("gpu", "debug"), Arm.NONE),
        ((), Arm.NONE),
    ],
)
def test_partitions_are_treated_as_they_are_named(partitions: tuple[str, ...], arm: Arm) -> None:
    assert BY_PARTITION.arm_at(FIRST, partitions) is arm


@pytest.mark.parametrize(
    ("settings", "instant", "partitions", "why"),
    [
        (NO_EXPERIMENT, FIRST, ("gpu",), None),
        (BY_DAY, FIRST - DAY_S, ("gpu",), None),
        (BY_PARTITION, FIRST, ("gpu",), None),
        (BY_PARTITION, FIRST, ("debug",), "it is a control partition of the experiment spring"),
        (BY_PARTITION, FIRST, ("debug", "gpu"), "it asks for partitions of both arms of the experiment spring"),
    ],
    ids=["none", "not yet", "treated", "control", "both"],
)
def test_control_jobs_get_no_change_and_are_told_why(
    settings: ExperimentSettings, instant: float, partitions: tuple[str, ...], why: str | None
) -> None:
    assert settings.against_change(instant, partitions) == why


def test_nothing_is_changed_on_one_day_of_two() -> None:
    refused = [BY_DAY.against_change(FIRST + day * DAY_S, ("gpu",)) is not None for day in range(60)]

    assert sum(refused) == 30


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "autumn"),
        ("start", "2026-02-28"),
        ("end", "2026-04-30"),
        ("switch_hour", 1),
        ("seed", 1),
        ("metric", "jct"),
        ("min_blocks", 20),
        ("figure", "typical"),
    ],
)
def test_every_setting_that_is_changed_changes_the_digest(key: str, value: str | int) -> None:
    changed: dict[str, Any] = {key: value}

    assert replace(BY_DAY, **changed).digest != BY_DAY.digest


def test_what_is_registered_holds_every_setting_and_the_digest() -> None:
    noted = BY_DAY.registration()

    assert noted["digest"] == BY_DAY.digest and len(BY_DAY.digest) == 16
    assert (noted["metric"], noted["min_blocks"], noted["end"]) == ("queueing_delay", 8, "2026-04-29")
    assert NO_EXPERIMENT.digest == ""


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"switch_hour": 24}, "switch_hour must be"),
        ({"min_blocks": 2}, "min_blocks must be"),
        ({"start": "2026-02-30"}, "start must be a day"),
        ({"end": "soon"}, "end must be a day"),
        ({"name": ""}, "name, start and end must be given"),
        ({"end": "2026-02-01"}, "end must not lie before start"),
        ({"treated_partitions": "gpu"}, "treated_partitions must be given by partition"),
        ({"by": "partition", "treated_partitions": "gpu", "figure": "typical"}, "figure must be mean"),
        ({"by": "partition"}, "treated_partitions must be given by partition"),
    ],
)
def test_settings_that_make_no_experiment_are_refused(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        replace(BY_DAY, **changes)


def test_blocks_before_the_first_day_are_below_0() -> None:
    assert [BY_DAY.block_of(FIRST + day * DAY_S) for day in (-1, 0, 1, 2)] == [-1, 0, 0, 1]
    assert [BY_PARTITION.block_of(FIRST + day * DAY_S) for day in (-1, 0, 13, 14)] == [-1, 0, 0, 1]
    assert NO_EXPERIMENT.block_days == 1


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ({"end_time": 900.0, "last_seen_time": 840.0}, True),
        ({"end_time": 9000.0, "last_seen_time": 840.0}, False),
        ({"end_time": 900.0, "last_seen_time": 960.0}, False),
        ({"end_time": 900.0}, False),
        ({}, False),
    ],
    ids=["a cycle", "a gap", "clock set back", "nobody looked", "open"],
)
def test_an_end_is_known_to_within_two_looks_or_not_at_all(fields: dict[str, float], known: bool) -> None:
    outcome = JobOutcome(job_id=1, submit_time=0.0, start_time=100.0, last_start_time=100.0, **fields)  # type: ignore[arg-type]

    assert outcome.end_is_known is known
    assert outcome.jct_s == (900.0 if known else None)
    assert outcome.run_time_s == (800.0 if known else None)
    # 900 s over a run time that counts as 600 s at least is for 800 s just that.
    assert outcome.bounded_slowdown == (900.0 / 800.0 if known else None)


@pytest.mark.parametrize(
    ("eligible_time", "start_time", "delay_s"),
    [(None, 100.0, 100.0), (40.0, 100.0, 60.0), (140.0, 100.0, 0.0), (40.0, None, None)],
)
def test_queueing_delay_counts_from_when_a_job_is_eligible(
    eligible_time: float | None, start_time: float | None, delay_s: float | None
) -> None:
    outcome = JobOutcome(job_id=1, submit_time=0.0, eligible_time=eligible_time, start_time=start_time)

    assert outcome.queueing_delay_s == delay_s


def test_a_short_run_counts_as_ten_minutes_in_its_slowdown() -> None:
    outcome = JobOutcome(
        job_id=1, submit_time=0.0, start_time=1190.0, last_start_time=1190.0, end_time=1200.0, last_seen_time=1200.0
    )

    assert outcome.bounded_slowdown == 2.0


def test_an_outcome_survives_a_journal() -> None:
    kind = TypeAdapter(JobOutcome)
    outcome = JobOutcome(job_id=1, submit_time=0.5, user="a\x1b[31m|b", arm=Arm.CONTROL, experiment=BY_DAY.digest)

    assert kind.validate_json(kind.dump_json(outcome)) == outcome
