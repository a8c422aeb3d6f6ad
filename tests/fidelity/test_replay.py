"""The model against recordings of a real slurmctld."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tools.fidelity.__main__ import comparison_of
from tools.fidelity.compare import LEAST_CORRELATION
from tools.fidelity.recording import RecordingError, Scheduler, read_recording
from tools.fidelity.replay import replay, ticks_of

FOLDER = Path(__file__).parents[1] / "recorded/fidelity/22.05"
RECORDED = sorted(FOLDER.parent.glob("*/*.json"))
# Outside the bound, see docs/fidelity.md, with the mean difference that it reaches: a worse model still shows.
OUTSIDE = {"26.05/seed6b": 7.2}


def test_there_are_recordings() -> None:
    assert len(RECORDED) >= 13


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_model_starts_the_jobs_as_slurmctld_did(path: Path) -> None:
    recording = read_recording(path)

    comparison = comparison_of(recording, replay(recording))

    assert comparison.job_count >= 54
    assert comparison.correlation >= LEAST_CORRELATION
    allowed_s = OUTSIDE.get(f"{path.parent.name}/{path.stem}", comparison.allowed_difference_s)
    assert comparison.mean_difference_s <= allowed_s, comparison


def test_dependencies_begin_times_and_array_limits_hold_jobs_back_as_slurmctld_does() -> None:
    recording = read_recording(FOLDER / "arrays1.json")

    comparison = comparison_of(recording, replay(recording))

    assert comparison.mean_difference_s < 0.5
    assert comparison.largest_difference_s < 4.0


def test_ages_from_which_jobs_hold_nodes_decide_when_jobs_start() -> None:
    recording = read_recording(FOLDER / "age7.json")
    words = recording.parameters["SchedulerParameters"].replace("bf_min_age_reserve=60", "bf_min_age_reserve=0")
    without = replace(recording, parameters={**recording.parameters, "SchedulerParameters": words})

    with_age, without_age = (comparison_of(recording, replay(each)) for each in (recording, without))

    assert with_age.passed
    assert without_age.mean_difference_s > 5 * without_age.allowed_difference_s


def test_ticks_are_a_second_apart_and_hold_the_passes_but_not_those_after_a_kill() -> None:
    recording = read_recording(FOLDER / "seed4.json")
    ticks = ticks_of(recording)
    passes = [each.time for each in recording.passes if each.scheduler is Scheduler.MAIN]

    assert all(1.0 <= later - earlier < 1.06 for earlier, later in itertools.pairwise(ticks))
    # Jobs reached their limits, or ended with a wait for it, right before these two.
    assert sorted(set(passes) - set(ticks)) == [119.156, 352.018]


def test_ticks_of_a_later_release_are_at_full_seconds_and_right_after_and_hold_the_passes() -> None:
    recording = read_recording(FOLDER.parent / "26.05/seed6.json")
    ticks = ticks_of(recording)
    passes = [each.time for each in recording.passes if each.scheduler is Scheduler.MAIN]

    assert all((tick + recording.zero_time + 0.003) % 1.0 < 0.025 for tick in ticks)
    # Each is within the few milliseconds by which a tick was held up, but for one that the end of a job ran at once.
    far = [time for time in passes if min(abs(tick - time) for tick in ticks) > 0.006]
    assert far == [179.748]


def test_recording_with_a_setting_that_the_model_does_not_know_is_refused() -> None:
    recording = read_recording(FOLDER / "seed1.json")
    odd = replace(recording, parameters={**recording.parameters, "PriorityFlags": "NO_FAIR_TREE"})

    with pytest.raises(RecordingError, match=r"^the model does not know yet: PriorityFlags=NO_FAIR_TREE$"):
        replay(odd)
