"""`sadvise serve`, `pause` and `resume` without a cluster: one line for whatever is wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.daemon.launch import only_daemon
from tests.cli.conftest import Sadvise
from tests.programs import killed_after

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with everything in a folder of its own."""
    path = tmp_path / "sadvise.toml"
    path.write_text(
        f'[journal]\nfile = "{tmp_path}/journal.sqlite"\n[daemon]\nruntime_folder = "{tmp_path}"\n'
        f'[metrics]\nlisten = "unix:{tmp_path}/metrics.sock"\n'
    )
    return path


def test_one_round_without_slurm_says_so(
    sadvise: Sadvise, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    outcome = sadvise("serve", "--once", "--config", str(config))

    assert outcome.exit_code == 1
    assert (
        outcome.out
        == "observe: sdiag is not on PATH here: install Slurm's client commands, or run on a host that has them\n"
    )


def test_second_daemon_refuses(sadvise: Sadvise, config: Path, tmp_path: Path) -> None:
    with only_daemon(tmp_path, tmp_path / "journal.sqlite"):
        outcome = sadvise("serve", "--once", "--config", str(config))

    assert outcome.exit_code == 1 and outcome.out == ""
    assert outcome.err == f"sadvise: error: {tmp_path}/sadvised.lock: another sadvised runs here: stop that one first\n"


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ('[mode]\ndefault = "applied"', "mode.default"),
        ('[mode]\npartitions = "gpu:apply"', "partitions must be name=mode pairs"),
        ("[daemon]\ninterval_s = 0.0", "interval_s must be at least 1"),
        ("[daemon]\ndeadline_s = 600.0", "deadline_s must be above 0 and at most 80"),
        ("[daemon]\nnight_hour = 24", "night_hour must be an hour from 0 to 23"),
        ("[daemon]\njitter_s = 90.0", "jitter_s must not be negative, nor above interval_s"),
        ('[daemon]\nruntime_folder = "run"', "runtime_folder must be an absolute path"),
        ("[daemon]\nstrain_queue = 0", "strain_cycle_s must be above 0"),
        ('[metrics]\nlisten = "0.0.0.0:9341"', "listen must be a loopback address"),
    ],
)
def test_wrong_settings_are_one_line(sadvise: Sadvise, tmp_path: Path, key: str, complaint: str) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(key)

    for command in (("serve", "--once"), ("config", "check")):
        outcome = sadvise(*command, "--config", str(wrong))

        assert outcome.exit_code == 1 and outcome.err.count("\n") == 1
        assert complaint in outcome.err and str(wrong) in outcome.err


def test_pause_and_resume_tell_what_they_did(sadvise: Sadvise, config: Path, tmp_path: Path) -> None:
    paused = sadvise("pause", "--reason", "maintenance", "--config", str(config))
    there = (tmp_path / "pause").exists()
    resumed = sadvise("resume", "--config", str(config))
    again = sadvise("resume", "--config", str(config))

    assert paused.out == f"paused  {tmp_path}; `sadvise resume` ends the pause\n" and there
    assert resumed.out == f"resumed {tmp_path}\n" and again.out == "nothing was paused\n"
    assert not (tmp_path / "pause").exists()


def test_pause_without_a_runtime_folder_says_that_nothing_is_paused(sadvise: Sadvise, tmp_path: Path) -> None:
    wrong = tmp_path / "sadvise.toml"
    wrong.write_text(f'[daemon]\nruntime_folder = "{tmp_path}/gone"\n')

    outcome = sadvise("pause", "--config", str(wrong))

    assert outcome.exit_code == 1 and "nothing is paused" in outcome.err and outcome.err.count("\n") == 1


def test_daemon_without_slurm_goes_on_and_ends_when_it_is_told_to(config: Path, tmp_path: Path) -> None:
    program = "import sys; from advisor.cli.main import serve; sys.argv = ['sadvised', *sys.argv[1:]]; serve()"
    lines = []
    process = subprocess.Popen(
        [sys.executable, "-c", program, "--config", str(config)],
        env={**os.environ, "PATH": str(tmp_path)},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    with killed_after(process) as daemon:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            lines.append(line)
            if "round not done" in line:
                break
        daemon.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        daemon.send_signal(signal.SIGTERM)
        began = time.monotonic()
        lines += daemon.stderr.readlines()
        status = daemon.wait(10.0)

    assert status == 0 and time.monotonic() - began < 5.0
    assert any("sdiag is not on PATH" in line for line in lines)
    assert "event=ended" in lines[-1] and "still_out=0" in lines[-1]
