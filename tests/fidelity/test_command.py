"""The command line on recordings that are there; the live runs are in tests/live."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools.fidelity.__main__ import main
from tools.fidelity.recording import read_recording, write_recording

FOLDER = Path(__file__).parents[1] / "recorded/fidelity/22.05"


def test_recording_that_cannot_be_replayed_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recording = read_recording(FOLDER / "qos1.json")
    preempting = replace(recording, parameters={**recording.parameters, "PreemptMode": "REQUEUE"})
    write_recording(preempting, tmp_path / "preempting.json")
    monkeypatch.setattr(sys, "argv", ["fidelity", "--recording", str(tmp_path / "preempting.json")])

    status = main()

    assert status == 1
    assert capsys.readouterr() == ("", "fidelity: the model does not know yet: PreemptMode=REQUEUE\n")


def test_without_a_replay_each_job_and_the_mean_delay_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fidelity", "--no-replay", "--recording", str(FOLDER / "partitions1.json")])

    status = main()

    lines = capsys.readouterr().out.splitlines()
    assert status == 0
    assert len(lines) == 1 + 60 + 1
    assert lines[-1] == "60 jobs, 10 started by backfill, mean queueing delay 40.8 s, last end after 279 s"
