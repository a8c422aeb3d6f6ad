"""The daemon beside a slurmctld that stops, hangs and restarts: it says so, waits, and leaves nothing behind."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.conftest import started
from tests.live.test_advice import state_of
from tools.advice_queue import PENDING, PRIORITY_LINES
from tools.live_hour import CUT_SHORT, daemon
from tools.live_slurm import LiveCluster
from tools.live_slurm.cluster import BACKUP_LINES

pytestmark = pytest.mark.live

CONFIG = """
[mode]
default = "apply"
[source]
timeout_s = 2.0
[journal]
file = "{folder}/journal.sqlite"
[daemon]
runtime_folder = "{folder}"
interval_s = 1.0
interval_max_s = 2.0
jitter_s = 0.0
deadline_s = 20.0
[budget]
rpcs_per_minute = 600.0
burst = 600
[guard]
min_job_age_s = 0.0
[metrics]
listen = "unix:{folder}/metrics"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A daemon at work on a cluster where one gang had better wait for one node."""

    live: LiveCluster
    job_id: int
    before: str
    process: subprocess.Popen[bytes]
    config: Path
    log: Path

    def held(self) -> bool:
        """Whether the daemon's change is out."""
        return "NumNodes=1-1 " in self.live.run("scontrol", "show", "job", str(self.job_id), check=False)

    def says(self, words: str, *, after: int = 0) -> bool:
        """Whether the log says something from some point on."""
        return words in self.log.read_text()[after:]

    def so_far(self) -> int:
        """Return how long the log is."""
        return len(self.log.read_text())

    def wait_for_a_good_round(self) -> None:
        """Wait until a round has gone well from now on."""
        now = self.so_far()
        self.live.wait_for(lambda: self.says("event=round ", after=now), 60.0, what="a round goes well")


def fill(live: LiveCluster) -> None:
    """Fill every node with a job of 20 minutes."""
    for node in range(1, 6):
        live.submit("--time=00:20:00", "--gres=gpu:h100:8", "-n8", f"--nodelist=n0{node}")
    live.wait_for(lambda: len(live.run("squeue", "-h", "-t", "R", "-o", "%A").split()) == 5, 60.0)


@contextmanager
def at_work(live: LiveCluster, job_id: int, folder: Path) -> Iterator[Watched]:
    """Run a daemon until it holds the gang to one node, and on."""
    config, log = folder / "sadvise.toml", folder / "log"
    config.write_text(CONFIG.format(folder=folder))
    before = state_of(live, job_id)
    with daemon(live, config, log) as process:
        watched = Watched(live=live, job_id=job_id, before=before, process=process, config=config, log=log)
        live.wait_for(watched.held, 60.0, what="the daemon holds the gang to one node")
        yield watched


@pytest.fixture(scope="module")
def small(release: str) -> Iterator[LiveCluster]:
    with started(
        LiveCluster(release, node_count=5, gpu_types=["h100"] * 5, shards={}, extra_lines=PRIORITY_LINES)
    ) as live:
        fill(live)
        yield live


@pytest.fixture
def watched(small: LiveCluster, tmp_path: Path) -> Iterator[Watched]:
    job_id = small.submit(*PENDING["bert-range"])
    small.wait_for(lambda: "None" not in small.run("squeue", "-h", "-t", "PD", "-o", "%r").split(), 60.0)
    with at_work(small, job_id, tmp_path) as watched:
        yield watched
    small.run("scancel", str(job_id))


def end(watched: Watched) -> None:
    """End the daemon as the service manager does; what a round cut short leaves out, a person takes back."""
    watched.process.send_signal(signal.SIGTERM)
    left = watched.process.wait(10.0)
    assert left == (1 if watched.says(CUT_SHORT) else 0)
    if left:
        argv = [sys.executable, "-m", "advisor.cli.main", "revert", "--all", "--config", str(watched.config)]
        subprocess.run(argv, env=watched.live.env, capture_output=True, timeout=60.0, check=True)


def test_slurmctld_that_hangs_is_waited_for_and_everything_is_taken_back(watched: Watched) -> None:
    watched.live.hang_controller()
    try:
        watched.live.wait_for(lambda: watched.says("no answer within 2 s"), 60.0, what="the log says that it hangs")
    finally:
        watched.live.wake_controller()
    watched.wait_for_a_good_round()

    end(watched)

    assert state_of(watched.live, watched.job_id) == watched.before


def test_second_daemon_is_refused_beside_the_first(watched: Watched) -> None:
    argv = [sys.executable, "-m", "advisor.cli.main", "serve", "--config", str(watched.config)]

    second = subprocess.run(argv, env=watched.live.env, capture_output=True, text=True, timeout=60.0, check=False)

    end(watched)
    assert second.returncode == 1
    assert "another" in second.stderr and second.stderr.count("\n") == 1
    assert state_of(watched.live, watched.job_id) == watched.before


def test_backup_slurmctld_that_takes_over_is_asked_next_and_everything_is_taken_back(
    release: str, tmp_path: Path
) -> None:
    if release != "22.05":
        pytest.skip("one release is enough")
    lines = (*PRIORITY_LINES, *BACKUP_LINES)
    with started(LiveCluster(release, node_count=5, gpu_types=["h100"] * 5, shards={}, extra_lines=lines)) as live:
        live.start_backup()
        fill(live)
        job_id = live.submit(*PENDING["bert-range"])
        live.wait_for(lambda: "None" not in live.run("squeue", "-h", "-t", "PD", "-o", "%r").split(), 60.0)
        with at_work(live, job_id, tmp_path) as watched:
            live.kill_controller()
            live.wait_for(lambda: live.ask("squeue", "-h").returncode == 0, 60.0, what="the backup answers")
            watched.wait_for_a_good_round()

            end(watched)

            assert not watched.held()
            assert "NumNodes=1-4" in live.run("scontrol", "show", "job", str(job_id))


# The last one, since a restarted slurmctld shows node ranges by their lower end.
def test_slurmctld_that_stops_and_restarts_is_found_again_and_everything_is_taken_back(watched: Watched) -> None:
    watched.live.stop_controller()
    try:
        watched.live.wait_for(
            lambda: watched.says("no answer within 2 s") or watched.says("cannot reach"),
            60.0,
            what="the log says that it is gone",
        )
    finally:
        watched.live.start_controller()
    watched.wait_for_a_good_round()

    end(watched)

    assert not watched.held()
