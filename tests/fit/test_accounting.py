"""Ended jobs out of what sacct printed, and what is done with rows that are none."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from advisor.backends.process import Answer
from advisor.errors import TraceError
from advisor.fit.accounting import FIELDS, ask_accounting, read_accounting
from tests.backends.fake_slurm import Streaming

ROW = {
    "User": "alice",
    "Account": "lab",
    "Partition": "gpu",
    "QOS": "normal",
    "Submit": "1772323200",
    "Start": "1772323300",
    "End": "1772326900",
    "ElapsedRaw": "3600",
    "TimelimitRaw": "120",
    "State": "COMPLETED",
    "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
    "AllocTRES": "",
    "JobName": "train_1",
}


def line(**changes: str) -> str:
    return "|".join((ROW | changes)[name] for name in FIELDS.split(",")) + "\n"


def written(tmp_path: Path, *lines: str, header: str = FIELDS.replace(",", "|") + "\n") -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(header + "".join(lines), encoding="latin-1")
    return path


def test_job_is_read_with_its_request_and_its_end(tmp_path: Path) -> None:
    accounting = read_accounting(written(tmp_path, line()))

    ended, jobs = accounting.ended, accounting.ended.jobs
    assert (jobs.user, jobs.account, jobs.name, jobs.partition, jobs.qos) == (
        ("alice",),
        ("lab",),
        ("train_1",),
        ("gpu",),
        ("normal",),
    )
    assert [float(each[0]) for each in (jobs.gpus, jobs.cpus, jobs.nodes, jobs.memory_mib)] == [2, 8, 1, 65536]
    assert (jobs.limit_s[0], ended.run_s[0], ended.end_time[0]) == (7200.0, 3600.0, 1772326900.0)
    assert ended.state == ("COMPLETED",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ReqTRES": "cpu=4,mem=1G,node=1"}, "without GPUs"),
        ({"State": "RUNNING"}, "not ended"),
        ({"Start": "Unknown"}, "never started"),
        ({"Submit": "yesterday"}, "a field that is not as sacct prints it"),
        ({"ElapsedRaw": "1e18"}, "a field that is not as sacct prints it"),
        ({"ReqTRES": "gres/gpu=lots"}, "a field that is not as sacct prints it"),
    ],
)
def test_row_that_is_no_ended_gpu_job_is_counted_by_its_reason(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    accounting = read_accounting(written(tmp_path, line(), line(**changes)))

    assert len(accounting.ended) == 1
    assert accounting.left_out == {reason: 1}


def test_torn_rows_and_job_steps_are_left_out(tmp_path: Path) -> None:
    header = "JobID|" + FIELDS.replace(",", "|") + "\n"
    path = written(tmp_path, "7|" + line(), "7.batch|" + line(), "torn|row\n", "\n", header=header)

    accounting = read_accounting(path)

    assert (accounting.rows, len(accounting.ended)) == (3, 1)
    assert accounting.left_out == {"job steps": 1, "another number of columns than the header": 1}


def test_name_may_hold_the_separator(tmp_path: Path) -> None:
    assert read_accounting(written(tmp_path, line(JobName="a|b"))).ended.jobs.name == ("a|b",)


def test_unlimited_job_has_no_known_limit(tmp_path: Path) -> None:
    assert np.isnan(read_accounting(written(tmp_path, line(TimelimitRaw="UNLIMITED"))).ended.jobs.limit_s[0])


def test_latest_rows_of_a_long_file_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, *(line(User=f"u{number}") for number in range(10)))

    accounting = read_accounting(path, rows_kept=3)

    assert accounting.ended.jobs.user == ("u7", "u8", "u9")
    assert accounting.left_out == {"before the latest 3": 7}


def test_other_encodings_and_gzip_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt.gz"
    path.write_bytes(gzip.compress((FIELDS.replace(",", "|") + "\n" + line(User="j\xf6rg")).encode("latin-1")))

    assert len(read_accounting(path).ended) == 1


def test_file_without_a_needed_column_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"column Submit is missing: write the file with SLURM_TIME_FORMAT=%s sacct"):
        read_accounting(written(tmp_path, header="User|Account\n"))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_accounting(tmp_path / "nothing")


class Recorded(Streaming):
    """A sacct that prints one job."""

    cluster = None

    def __init__(self) -> None:
        self.asked: tuple[str, ...] = ()

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer, and keep what was asked."""
        self.asked = (program, *arguments)
        return Answer(output=(FIELDS.replace(",", "|") + "\n" + line()).encode())


def test_sacct_is_asked_for_ended_jobs_of_everybody() -> None:
    commands = Recorded()

    accounting = ask_accounting(commands, since="now-90days")

    assert len(accounting.ended) == 1
    assert commands.asked == ("sacct", "-a", "-X", "-P", "-S", "now-90days", "-o", FIELDS)
