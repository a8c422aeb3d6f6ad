"""Jobs read by their ids: in lists, each for itself, and whatever the rest of the queue holds."""

from pathlib import Path

import pytest

from advisor.backends import named_jobs
from advisor.backends.named_jobs import UNREADABLE, NamedJobs, hidden_ends, read_jobs
from advisor.backends.site_reader import SiteReader
from advisor.clock import ManualClock
from advisor.domain.actions import Lever
from advisor.domain.job import JobState
from advisor.errors import SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import FakeSlurm, job_row


def row(job_id: int, **fields: str) -> dict[str, str]:
    return job_row(JobID=str(job_id), JobArrayID=str(job_id), **fields)


def test_jobs_are_read_in_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_jobs, "IDS_PER_COMMAND", 2)
    slurm = FakeSlurm(jobs=[row(7), row(9), row(8), row(11)])

    jobs = read_jobs(slurm, [9, 8, 7, 8])

    assert [job.job_id for job in jobs] == [7, 8, 9]
    assert [command[command.index("-j") + 1] for command in slurm.asked] == ["7,8", "9"]


def test_no_ids_ask_nothing() -> None:
    slurm = FakeSlurm()

    assert read_jobs(slurm, []) == [] and hidden_ends(slurm, []) == {} and slurm.asked == []


@pytest.mark.parametrize(
    ("answer", "hidden"),
    [
        (b'{"jobs": [{"job_id": 7, "job_state": "PENDING", "max_nodes": 0, "name": "a\xff\n"}]}', {7: True}),
        (b'{"jobs": [{"job_id": 7, "job_state": ["PENDING"], "max_nodes": {"set": true, "number": 4}}]}', {7: False}),
        (b'{"jobs": [{"job_id": 8, "job_state": "PENDING", "max_nodes": 0}]}', {}),
        (b'{"jobs": [{"job_id": 7, "job_state": ["RUNNING"], "max_nodes": 0}]}', {}),
        (b'{"jobs": [{"job_id": 7, "job_state": "PENDING", "max_nodes": 4294967294}]}', {}),
        (b'{"jobs": [{"job_id": 7, "job_state": "PENDING", "max_nodes": {"set": true, "infinite": true}}]}', {}),
        (b'{"jobs": [{"job_id": 7, "job_state": "PENDING", "max_nodes": "0"}]}', {}),
        (b'{"jobs": [{"job_id": [7], "job_state": "PENDING", "max_nodes": 0}, 7]}', {}),
        (b'{"jobs": [{"job_id": 7, "job_state": "PENDING", "max_nodes": 0}', {}),
        (b'{"jobs": null, "errors": [{"error": "x"}]}', {}),
        (b"[]", {}),
        (b"[" * 200_000, {}),
        (b"", {}),
    ],
    ids=["0", "a number", "another job", "running", "no value", "infinite", "a text", "no ids", "cut", "no list",
         "no object", "deep", "empty"],
)  # fmt: skip
def test_hidden_ends_are_those_that_a_whole_answer_shows(answer: bytes, hidden: dict[int, bool]) -> None:
    slurm = FakeSlurm(texts={"squeue -a --json -j 7": answer})

    assert hidden_ends(slurm, [7]) == hidden


def test_a_single_job_that_slurm_no_longer_knows_is_not_there() -> None:
    gone = SlurmRefusedError("squeue failed with exit status 1: slurm_load_jobs error: Invalid job id specified")

    assert read_jobs(FakeSlurm(against=gone), [7]) == []


@pytest.mark.parametrize("fault", [SlurmRefusedError("denied"), SlurmUnavailableError("no answer")])
def test_other_faults_are_errors(fault: SlurmRefusedError) -> None:
    with pytest.raises(type(fault)):
        read_jobs(FakeSlurm(against=fault), [7, 8])


@pytest.mark.parametrize(
    "fields",
    [{"NumNodes": "many"}, {"tres_per_job": "gres/gpu:x:y:z"}, {"SubmitTime": "N/A"}, {"Nice": "1.5"}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_job_that_cannot_be_read_costs_no_other(fields: dict[str, str]) -> None:
    slurm = FakeSlurm(jobs=[row(7), row(8, **fields), row(9)])

    seven, eight, nine = read_jobs(slurm, [7, 8, 9])

    assert (seven.unseen, nine.unseen) == ((), ())
    assert (eight.job_id, eight.state, eight.unseen) == (8, JobState.PENDING, (UNREADABLE,))


def test_a_snapshot_of_some_jobs_shows_no_lever_of_one_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    (tmp_path / "slurm.conf").write_text("ClusterName=here\n")
    slurm, clock = FakeSlurm(jobs=[row(7), row(8, NumNodes="many"), row(9)]), ManualClock(1000.0)

    snapshot = NamedJobs(slurm, clock, SiteReader(slurm, clock)).snapshot_of({7, 8})

    assert [job.job_id for job in snapshot.jobs] == [7, 8]
    assert [snapshot.shows(job, Lever.NICE) for job in snapshot.jobs] == [True, False]
    assert (snapshot.config.cluster, snapshot.taken_at) == ("here", 1000.0)
    assert not any(
        "--array-unique" in command or (command[0] == "sinfo" and "-N" in command) for command in slurm.asked
    )
