import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tools.fidelity.recording import (
    Recording,
    RecordingError,
    Scheduler,
    WorkloadKind,
    read_recording,
    write_recording,
)
from tools.fidelity.workloads import LONG, draw_site_workload, draw_workload

FOLDER = Path(__file__).parents[1] / "recorded/fidelity"
RECORDED = [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in sorted(FOLDER.glob("*/*.json"))]


@pytest.fixture(params=RECORDED)
def recording(request: pytest.FixtureRequest) -> Recording:
    return read_recording(request.param)


def test_recordings_are_there() -> None:
    assert len(RECORDED) >= 3


def test_recording_is_of_the_workload_that_its_seed_draws(recording: Recording) -> None:
    seed, kind = recording.workload.seed, recording.workload.kind
    drawn = draw_workload(seed, LONG) if kind is WorkloadKind.PLAIN else draw_site_workload(seed, kind)

    assert recording.workload == drawn
    assert list(dict.fromkeys(job.request for job in recording.jobs)) == list(drawn.jobs)


def test_jobs_start_after_submission_and_only_the_overrunning_ones_meet_their_limit(recording: Recording) -> None:
    ended_by_limit = [job for job in recording.jobs if job.state != "COMPLETED"]

    assert all(job.submit_time <= job.start_time < job.end_time for job in recording.jobs)
    assert {job.state for job in ended_by_limit} <= {"TIMEOUT"}
    assert [job for job in recording.jobs if job.request.sleep_s > job.request.time_limit_s] == ended_by_limit


def test_no_node_ever_gives_out_more_gpus_than_it_has(recording: Recording) -> None:
    moments = sorted(job.start_time for job in recording.jobs)

    for node, moment in itertools.product(itertools.chain(*recording.leaves), moments):
        there = [job for job in recording.jobs if node in job.nodes and job.start_time <= moment < job.end_time]
        least = sum(job.request.gpus // len(job.nodes) for job in there if job.request.nodes is not None)
        assert least <= recording.gpus_per_node


def test_queue_is_deep_and_both_schedulers_start_jobs(recording: Recording) -> None:
    starters = [job.started_by for job in recording.jobs]
    least, least_delay_s = (10, 20) if recording.workload.kind is WorkloadKind.PLAIN else (2, 10)
    if recording.scheduler_parameter("bf_min_age_reserve") not in {None, "", "0"}:
        # Where young jobs hold no nodes, the main scheduler leaves few to backfill.
        least = 5

    assert min(starters.count(scheduler) for scheduler in Scheduler) >= least
    assert sum(job.start_time - job.submit_time for job in recording.jobs) / len(recording.jobs) > least_delay_s


def test_priority_at_submission_is_the_sum_of_its_factors(recording: Recording) -> None:
    known = [job for job in recording.jobs if job.priority]
    # slurmctld computes none for a job that is not eligible yet.
    assert len(known) >= (len(recording.jobs) if recording.workload.kind is not WorkloadKind.ARRAYS else 20)
    for job in known:
        assert job.priority is not None
        factors = (job.priority.age, job.priority.fair_share, job.priority.job_size, job.priority.partition)
        parts = sum(factors) + job.priority.qos - job.priority.nice
        # slurmctld cuts the fraction off the sum, sprio rounds each factor.
        assert job.priority.total == pytest.approx(parts, abs=2)
        assert job.priority.nice == job.request.nice


def test_scheduler_parameter_is_looked_up_by_its_whole_name(recording: Recording) -> None:
    assert recording.scheduler_parameter("bf_window") == "1440"
    assert recording.scheduler_parameter("bf_continue") == ""
    assert recording.scheduler_parameter("window") is None


def test_written_recording_reads_back_equal(recording: Recording, tmp_path: Path) -> None:
    write_recording(replace(recording, controller_start_time=-2.0), tmp_path / "copy.json")

    assert read_recording(tmp_path / "copy.json") == replace(recording, controller_start_time=-2.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("{}", "not a recording: release: Field required", id="empty"),
        pytest.param("nonsense", "not a recording", id="not json"),
    ],
)
def test_file_that_is_no_recording_is_named_with_its_fault(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "odd.json").write_text(text)

    with pytest.raises(RecordingError, match=rf"odd\.json: {complaint}"):
        read_recording(tmp_path / "odd.json")


def test_missing_file_is_one_line() -> None:
    with pytest.raises(RecordingError, match=r"^/nowhere: No such file or directory$"):
        read_recording(Path("/nowhere"))
