"""Ended jobs out of what sacct printed, and what is done with rows that are none."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import TraceError
from advisor.fit.accounting import ask_accounting, read_accounting
from advisor.sim.traces.importing.sacct import FILLED_IN, WRITTEN
from tests.backends.fake_slurm import FakeSlurm

ROW = {
    "JobIDRaw": "7",
    "JobID": "7",
    "User": "alice",
    "QOS": "normal",
    "Partition": "gpu",
    "Submit": "1772323200",
    "Eligible": "1772323200",
    "Start": "1772323300",
    "ElapsedRaw": "3600",
    "TimelimitRaw": "120",
    "State": "COMPLETED",
    "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=64G,node=1",
    "AllocTRES": "",
    "NNodes": "1",
    "Reservation": "",
    "Account": "lab",
    "JobName": "train_1",
}


def line(**changes: str) -> str:
    return "|".join((ROW | changes)[name] for name in FILLED_IN) + "\n"


def written(tmp_path: Path, *lines: str, header: str = "|".join(FILLED_IN)) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(f"{header}\n" + "".join(lines), encoding="latin-1")
    return path


def entry(job_id: int, **changes: object) -> dict[str, Any]:
    """Make the same job as `ROW` in JSON."""
    tres = [("cpu", "", 8), ("mem", "", 65536), ("node", "", 1), ("gres", "gpu", 2)]
    return {
        "job_id": job_id, "user": "alice", "account": "lab", "partition": "gpu", "qos": "normal", "name": "train_1",
        "state": {"current": ["COMPLETED"]}, "allocation_nodes": 1,
        "time": {"submission": 1772323200, "eligible": 1772323200, "start": 1772323300, "elapsed": 3600, "limit": 120},
        "tres": {"requested": [{"type": kind, "name": name, "count": count} for kind, name, count in tres]},
        **changes,
    }  # fmt: skip


def in_json(tmp_path: Path, *entries: Mapping[str, object]) -> Path:
    path = tmp_path / "sacct.json"
    path.write_text(json.dumps({"jobs": entries}))
    return path


def test_job_is_read_with_its_request_and_its_end(tmp_path: Path) -> None:
    accounting = read_accounting(in_json(tmp_path, entry(7)))

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


def test_live_accounting_and_json_of_one_job_are_the_same_data(tmp_path: Path) -> None:
    live = ask_accounting(FakeSlurm(ended=[ROW]), since="now-90days")

    assert live.source.sha256 == read_accounting(in_json(tmp_path, entry(7))).source.sha256
    assert live.source.sha256 != read_accounting(in_json(tmp_path, entry(7, name="other"))).source.sha256


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ReqTRES": "cpu=4,mem=1G,node=1"}, "without GPUs"),
        ({"State": "RUNNING"}, "not ended"),
        ({"State": "REQUEUED"}, "not ended"),
        ({"Start": "Unknown"}, "never started"),
        ({"Submit": "yesterday"}, "not as sacct prints them"),
        ({"ElapsedRaw": "1e18"}, "not as sacct prints them"),
        ({"ReqTRES": "gres/gpu=lots"}, "not as sacct prints them"),
    ],
)
def test_row_that_is_no_ended_gpu_job_is_counted_by_its_reason(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    accounting = read_accounting(written(tmp_path, line(), line(**changes)))

    assert len(accounting.ended) == 1
    assert accounting.left_out == {reason: 1}


def test_torn_rows_and_job_steps_are_left_out(tmp_path: Path) -> None:
    accounting = read_accounting(written(tmp_path, line(), line(JobIDRaw="7.batch"), "torn|row\n", "\n"))

    assert (accounting.rows, len(accounting.ended)) == (3, 1)
    assert accounting.left_out == {"job steps": 1, "not as sacct prints them": 1}


def test_unlimited_job_has_no_known_limit(tmp_path: Path) -> None:
    assert np.isnan(read_accounting(written(tmp_path, line(TimelimitRaw="UNLIMITED"))).ended.jobs.limit_s[0])


def test_latest_jobs_of_a_long_file_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path, *(line(JobIDRaw=str(number), User=f"u{number}") for number in range(10)))

    accounting = read_accounting(path, jobs_kept=3)

    assert accounting.ended.jobs.user == ("u7", "u8", "u9")
    assert accounting.left_out == {"before the latest 3": 7}


def test_other_encodings_and_gzip_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt.gz"
    path.write_bytes(gzip.compress(("|".join(FILLED_IN) + "\n" + line(User="j\xf6rg")).encode("latin-1")))

    assert len(read_accounting(path).ended) == 1


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("|".join((*FILLED_IN, "Account")), "users write column Account, and with it false rows"),
        (
            "User|Submit|Start|Elapsed|Timelimit|State|ReqTRES|X",
            "users write column X, and with it false rows",
        ),
        ("User|Submit|Start|Elapsed|Timelimit|State|ReqTRES", "column JobIDRaw or JobID is missing"),
        ("User|Account", "column Submit is missing"),
    ],
)
def test_file_with_other_columns_says_how_to_write_it(tmp_path: Path, header: str, words: str) -> None:
    with pytest.raises(TraceError, match=rf"{words}: write the file with sacct -a -X --json -S START"):
        read_accounting(written(tmp_path, header=header))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_accounting(tmp_path / "nothing")


def test_sacct_is_asked_for_the_jobs_of_all_users() -> None:
    slurm = FakeSlurm(ended=[ROW])

    accounting = ask_accounting(slurm, since="now-90days")

    assert len(accounting.ended) == 1
    assert [{"-a", "-X", "-S", "now-90days"} <= {*asked} for asked in slurm.asked] == [True, True]
    assert (accounting.ended.jobs.name, accounting.ended.jobs.account) == (("train_1",), ("lab",))


FORGED = "|".join(ROW[name] for name in FILLED_IN).replace("alice", "eve")
TEXTS = st.lists(st.sampled_from(["\n", "|", "9", FORGED]) | st.text(max_size=4), max_size=6).map("".join)


@given(st.fixed_dictionaries(dict.fromkeys(WRITTEN, TEXTS)))
def test_texts_of_a_user_change_no_run_time_of_another(texts: dict[str, str]) -> None:
    hostile = {**ROW, "JobIDRaw": "8", "JobID": "8", "User": "mallory", "ElapsedRaw": "2", **texts}

    accounting = ask_accounting(FakeSlurm(ended=[ROW, hostile, {**ROW, "JobIDRaw": "9"}]), since="now-90days")

    assert accounting.ended.jobs.user == ("alice", "mallory", "alice")
    assert accounting.ended.run_s.tolist() == [3600.0, 2.0, 3600.0]
    assert accounting.ended.jobs.name == ("train_1", texts["JobName"], "train_1")
