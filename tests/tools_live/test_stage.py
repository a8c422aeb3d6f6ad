"""What the programs on live clusters share: actors, time, arrivals, daemons, scripts of jobs, sdiag and site tables."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.config import load_config
from advisor.domain.units import DAY_S
from advisor.errors import SimulationError
from tests.live.controller import Typed
from tests.live.walk import TypedStep, faults, walk
from tests.programs import killed_after
from tools.live.arm import Began, Scripts
from tools.live.compressed_site import CompressedSite, PlannedArm
from tools.stage.arrivals import PAIR, SMALL, gap_s
from tools.stage.daemon import end_daemon, log_end, write_config
from tools.stage.program import Every, kept_folder, passing, print_faults, print_figures, summed_up
from tools.stage.sdiag import Cycles, cycles_of, together
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


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path / "scripts")


def begun(scripts: Scripts, job_id: int, starts: int = 0) -> subprocess.Popen[bytes]:
    """Start the script of a job as slurmd does."""
    env = {**os.environ, "SLURM_JOB_ID": str(job_id), **({"SLURM_RESTART_COUNT": str(starts)} if starts else {})}
    return subprocess.Popen(["sh", "-c", scripts.text], env=env)


def first_of(scripts: Scripts) -> Began:
    """Wait until a script has begun."""
    while True:
        for began in scripts.began():
            return began


def let_go(scripts: Scripts, job_id: int, starts: int = 0) -> None:
    """Let a script end as soon as it waits."""
    while not scripts.let_go(job_id, starts):
        pass


def test_a_script_shows_its_start_and_waits_until_it_is_let_go(scripts: Scripts) -> None:
    with killed_after(begun(scripts, 17)) as script:
        began = first_of(scripts)
        running = script.poll()
        let_go(scripts, 17)

        assert script.wait(10.0) == 0
    assert (began.job_id, began.starts, running) == (17, 0, None)
    assert list(scripts.began()) == []


def test_a_second_start_is_told_from_the_first(scripts: Scripts) -> None:
    with killed_after(begun(scripts, 17, starts=2)) as script:
        began = first_of(scripts)
        let_go(scripts, 17, starts=2)

        assert script.wait(10.0) == 0
    assert (began.job_id, began.starts) == (17, 2)


def test_a_script_that_is_ended_right_then_cannot_be_let_go(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    path, opened = scripts.folder / "17.0", os.open
    os.mkfifo(path)
    reader = opened(path, os.O_RDONLY | os.O_NONBLOCK)

    def open_then_end(*words: Any) -> int:
        fifo = opened(*words)
        os.close(reader)
        return fifo

    monkeypatch.setattr(os, "open", open_then_end)

    assert not scripts.let_go(17, 0)


def test_a_script_that_has_not_begun_cannot_be_let_go(scripts: Scripts) -> None:
    assert not scripts.let_go(17, 0)


RECORDED = Path(__file__).parents[1] / "recorded"


def text_of(release: str) -> str:
    """Return the recorded output."""
    return (RECORDED / release / "sdiag.txt").read_text()


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_passes_and_requests_are_read_of_every_release(release: str) -> None:
    cycles = cycles_of(text_of(release))

    assert cycles.main_passes > 0 and 0.0 < cycles.main_mean_s < 1.0
    assert cycles.backfill_passes > 0 and 0.0 < cycles.backfill_mean_s < 1.0
    assert cycles.requests["REQUEST_SUBMIT_BATCH_JOB"] > 0
    # Users are listed in the same form after the requests.
    assert all(name.isupper() for name in cycles.requests)
    assert cycles.request_s == pytest.approx(sum(cycles.request_s_by_type.values()))


def test_the_passes_of_the_main_scheduler_are_not_those_of_backfill() -> None:
    cycles = cycles_of(text_of("22.05"))

    assert (cycles.main_passes, cycles.backfill_passes) == (13, 4)
    assert cycles.main_mean_s == pytest.approx(386e-6)
    assert cycles.backfill_mean_s == pytest.approx(2681e-6)
    assert cycles.requests["REQUEST_PARTITION_INFO"] == 122
    assert cycles.request_s_by_type["REQUEST_PARTITION_INFO"] == pytest.approx(0.026342)


def test_runs_count_by_their_passes() -> None:
    def run(passes: int, mean_s: float) -> Cycles:
        return Cycles(
            main_passes=passes,
            main_mean_s=mean_s,
            backfill_passes=0,
            backfill_mean_s=0.0,
            requests={"A": passes},
            request_s=1.0,
            request_s_by_type={"A": 1.0},
        )

    both = together([run(10, 1.0), run(30, 2.0)])

    assert (both.main_passes, both.main_mean_s) == (40, 1.75)
    assert (both.requests, both.request_s, both.request_s_by_type) == ({"A": 40}, 2.0, {"A": 2.0})
    assert both.backfill_mean_s == 0.0


@pytest.mark.parametrize("speedup", [1.0, 60.0, 480.0, 1200.0])
def test_compressed_tables_are_a_configuration_that_the_daemon_takes(speedup: float, tmp_path: Path) -> None:
    site = CompressedSite(release="22.05", nodes=2, leaf_nodes=1, speedup=speedup, nic_gbps=100.0, oversubscription=1.0)

    config = load_config(write_config(tmp_path, 2.0, site.daemon_tables(PlannedArm.of("default"), None)), {})

    assert config.planning.node_list_lease_s == max(1.0, 120.0 / speedup)
    assert config.planning.lift_lease_s >= 1.0


def test_arm_says_what_its_site_sets_its_daemon_keeps_to_and_what_simulates_it() -> None:
    arm = PlannedArm.of("gentle=default:fairness=user,pin=yes,reserve-after=3d")

    assert (arm.label, arm.policy, arm.fairness, arm.pins) == ("gentle", "default", "user", True)
    assert arm.parameters == {"bf_min_age_reserve_s": 3 * DAY_S}
    assert list(arm.simulated()) == ["lift:fairness=user,pin=yes", "lift:run-times=forecast,fairness=user,pin=yes"]
    assert list(PlannedArm.of("none:reserve-after=6h").simulated()) == ["slurm"]
    assert list(PlannedArm.of("none:reserve-first=1").simulated()) == ["slurm"]


@pytest.mark.parametrize(
    "text",
    ["nothing", "default:site", "none:fairness=user", "default:run-times=truth", "default:interactive=9", "a=:pin=yes"],
)
def test_unknown_policies_and_options_of_clusters_are_refused(text: str) -> None:
    with pytest.raises(SimulationError, match="policy"):
        PlannedArm.of(text)


class Script:
    """A prompt that prints what it was given to type, and fails the first time for lines that begin with `test`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def type(self, line: str) -> Typed:
        self.lines.append(line)
        is_late = line.startswith("test") and self.lines.count(line) == 1
        return answer(line, printed="12\n", exit_status=int(is_late))


def answer(line: str = "sadvise check", *, printed: str = "", exit_status: int = 0) -> Typed:
    return Typed(line=line, exit_status=exit_status, printed=printed)


def test_command_waits_for_its_condition_and_takes_the_job_that_it_names() -> None:
    script = Script()

    list(walk(script, [TypedStep(line="sadvise explain JOBID", holds=(), awaits="test -e job")]))

    assert script.lines == ["test -e job", "test -e job", "sadvise explain 12"]


def test_answer_as_expected_has_no_fault() -> None:
    step = TypedStep(line="sadvise check", holds=("^lever",), exit_status=1)

    assert list(faults(step, answer(printed="lever nice", exit_status=1))) == []


def test_exit_status_traceback_and_missing_text_are_faults() -> None:
    found = list(
        faults(TypedStep(line="sadvise check", holds=("lever",)), answer(printed="Traceback (...)", exit_status=1))
    )

    assert [fault.partition(": ")[2][:12] for fault in found] == ["exit status ", "a traceback", "does not pri"]
