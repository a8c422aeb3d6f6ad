"""What the programs on live clusters share: actors and the time that passes, arrivals, and how daemons end."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.stage.arrivals import PAIR, SMALL, gap_s
from tools.stage.daemon import end_daemon, log_end
from tools.stage.program import Every, kept_folder, passing, print_faults, print_figures, summed_up
from tools.stage.watch import LiveStay, stay_of

READY = "import signal, sys, time\n{}\nprint('ready', flush=True)\ntime.sleep(60)"


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes that are killed at the end of a test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def begin(started: list["subprocess.Popen[bytes]"], on_term: str) -> "subprocess.Popen[bytes]":
    """Start a program that does something at SIGTERM, and wait until it is ready for it."""
    text = READY.format(f"signal.signal(signal.SIGTERM, {on_term})")
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize(
    ("on_term", "within_s", "faults"),
    [
        pytest.param("lambda *_: sys.exit(0)", 20.0, [], id="in order"),
        pytest.param("lambda *_: sys.exit(3)", 20.0, ["the daemon ended with 3"], id="with a status"),
        pytest.param("signal.SIG_IGN", 0.2, ["the daemon did not end within 0.2 s"], id="not at all"),
    ],
)
def test_a_daemon_that_does_not_end_in_order_is_a_fault(
    started: list["subprocess.Popen[bytes]"], on_term: str, within_s: float, faults: list[str]
) -> None:
    process = begin(started, on_term)

    assert end_daemon(process, within_s) == faults
    assert process.poll() is not None
    assert end_daemon(process, within_s) == [f"the daemon ended by itself with {process.returncode}"]


def test_a_daemon_that_may_be_ended_before_it_is_ready_may_end_with_any_status(
    started: list["subprocess.Popen[bytes]"],
) -> None:
    assert end_daemon(begin(started, "signal.SIG_DFL"), 20.0, any_status=True) == []


def test_an_actor_is_due_at_once_and_then_every_few_seconds() -> None:
    every = Every(2.0)

    assert [now for now in (0.0, 0.5, 1.9, 2.1, 4.0, 4.2) if every.is_due(now)] == [0.0, 2.1, 4.2]


def test_time_passes_until_it_is_over_or_a_process_has_ended(started: list["subprocess.Popen[bytes]"]) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    started.append(ended)
    ended.wait()

    began = time.monotonic()
    seen = list(passing(0.05, 0.01))

    assert seen == sorted(seen) and seen[-1] < 0.05 <= time.monotonic() - began
    assert list(passing(60.0, 0.01, ended)) == []


def test_jobs_arrive_at_the_load_that_is_asked_for() -> None:
    chance = random.Random(1)

    mean_s = sum(gap_s(chance, SMALL.gpus * 100.0, 64, 2.0) for _ in range(4000)) / 4000

    assert mean_s == pytest.approx(100.0 * SMALL.gpus / 64 / 2.0, rel=0.05)
    assert PAIR.options == ("-N1-2", "--gpus=a100:4", "-n2")


def test_a_folder_stays_only_if_it_is_named(tmp_path: Path) -> None:
    with kept_folder(None) as removed, kept_folder(tmp_path / "kept") as kept:
        assert Path(removed).is_dir()

    assert not Path(removed).exists()
    assert Path(kept).is_dir()


def test_figures_faults_and_the_last_line_are_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_figures([("jobs", 7)])
    print_faults(["one is late"])
    (tmp_path / "log").write_text("first\nsecond\nthird\n")

    assert capsys.readouterr().out == f"{'jobs':<58}{7:>12}\nFAULT: one is late\n"
    assert summed_up("Slurm 22.05.8", 6.0, 5, 0) == "Slurm 22.05.8, 6 minutes, seed 5: 0 faults"
    assert log_end(tmp_path / "log", 2) == "second\nthird"
    assert log_end(tmp_path / "none", 2) == ""


@pytest.mark.parametrize(
    ("row", "stay"),
    [
        (("PENDING", "900", "960", ""), LiveStay()),
        (("RUNNING", "900", "960", "n01"), LiveStay(start_time=900.0, state="RUNNING", nodes="n01")),
        (("CANCELLED", "950", "950", ""), LiveStay(end_time=950.0, state="CANCELLED")),
        (("TIMEOUT", "900", "960", "n01"), LiveStay(start_time=900.0, end_time=960.0, state="TIMEOUT", nodes="n01")),
        (("REQUEUE_HOLD", "N/A", "N/A", ""), LiveStay(state="REQUEUE_HOLD")),
    ],
)
def test_planned_start_of_a_pending_job_and_the_end_of_one_that_never_ran_are_no_starts(
    row: tuple[str, str, str, str], stay: LiveStay
) -> None:
    assert stay_of(*row) == stay
