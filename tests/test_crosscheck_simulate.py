"""The cross-check: what counts as too far off, and that the simulator agrees with its reference."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.published_traces import write_traces
from tools.bench import crosscheck
from tools.bench.__main__ import main
from tools.bench.crosscheck import Reference, is_off, mean_jct_s
from tools.data.simulated_traces import Workload, read_workload

DATA = os.environ.get("SADVISE_DATA", "")


@pytest.mark.parametrize(
    ("ours_s", "expected"),
    [(100.0, False), (101.9, False), (98.1, False), (102.1, True), (97.9, True), (float("nan"), True)],
)
def test_two_percent_is_the_limit_and_a_mean_over_no_job_is_off(ours_s: float, expected: bool) -> None:
    assert is_off(ours_s, 100.0) is expected


def test_the_mean_is_that_of_a_queue_worked_out_by_hand(tmp_path: Path) -> None:
    trace = read_workload(write_traces(tmp_path, jobs=4), "itp 04").trace

    mean_s = mean_jct_s(Workload(trace=trace, nodes=1), "fifo", 0)

    # 1, 2 and 4 GPUs start at once; the job of 8 was submitted at 180 s, and starts when the third ends at 3840 s.
    assert mean_s == pytest.approx((3600 + 3660 + 3720 + 3840 - 180 + 3780) / 4)


def test_a_difference_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_traces(tmp_path, jobs=4)
    monkeypatch.setattr(crosscheck, "REFERENCES", {"itp 04": Reference(nodes=1, mean_jct_s={"fifo": 1.0})})

    status = main(["crosscheck", "--data", str(tmp_path)])

    assert status == 1
    assert "0 of 1 within 2 %" in capsys.readouterr().out


def test_missing_traces_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["crosscheck", "--data", str(tmp_path)])

    assert status == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_trace_without_a_reference_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["crosscheck", "itp 01"])

    assert status == 1
    assert "'itp 01' has no reference" in capsys.readouterr().err


@pytest.mark.needs("measurements")
def test_the_simulator_agrees_with_its_reference() -> None:
    argv = [sys.executable, "-m", "tools.bench", "crosscheck", "itp 02", "itp 04"]

    answer = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "4 of 4 within 2 %" in answer.stdout
