"""A daemon in mode apply beside a small live cluster, where one gang had better wait for one node."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cli.conftest import Outcome
from tests.live.reading import sadvise_on
from tests.live.test_advice import state_of
from tools.advice_queue import PENDING, PRIORITY_LINES
from tools.stage import LiveCluster, LiveSlurmError
from tools.stage.daemon import daemon

NODES: Final = 5
CONFIG: Final = """
[mode]
default = "apply"
[source]
timeout_s = {timeout_s}
[journal]
file = "{folder}/journal.sqlite"
[daemon]
runtime_folder = "{folder}"
interval_s = 1.0
interval_max_s = {slowest_s}
jitter_s = 0.0
deadline_s = 20.0
log_level = "debug"
[planning]
rollout_deadline_s = 0.0
[guard]
nice_min = 0
min_job_age_s = 0.0
[metrics]
listen = "unix:{folder}/metrics"
"""
ROOMY: Final = """
[budget]
time_ratio = 0.5
"""
# A round that went well, done or not; at debug each one is told.
_ROUND: Final = "event=round "
_ENDED: Final = "event=ended "
# A busy machine takes its time to start a daemon.
DEADLINE_S: Final = 180.0


def small_cluster(release: str, *, extra_lines: Sequence[str] = (), accounting: bool = False) -> LiveCluster:
    """Return the cluster, not yet started: five nodes, on which the gang fits."""
    return LiveCluster(
        release,
        node_count=NODES,
        gpu_types=["h100"] * NODES,
        shards={},
        extra_lines=(*PRIORITY_LINES, *extra_lines),
        accounting=accounting,
    )


def fill(live: LiveCluster) -> None:
    """Fill every node with a job of 20 minutes, and let one wait: by rule the first in line never waits for a place."""
    for node in range(1, NODES + 1):
        live.submit("--time=00:20:00", "--gres=gpu:h100:8", "-n8", f"--nodelist=n0{node}")
    live.wait_for(lambda: len(live.run("squeue", "-h", "-t", "R", "-o", "%A").split()) == NODES, DEADLINE_S)
    live.submit("--time=00:20:00", "--gres=gpu:h100:8", "-n8", "--nodelist=n01")


def submit_gang(live: LiveCluster, *options: str, user: str | None = None) -> int:
    """Submit the gang, which accepts one to four nodes, and wait until Slurm has looked at it."""
    job_id = live.submit(*PENDING["bert-range"], *options, user=user)
    live.wait_for(lambda: "None" not in live.run("squeue", "-h", "-t", "PD", "-o", "%r").split(), DEADLINE_S)
    return job_id


def as_user(name: str) -> tuple[str, ...]:
    """Return what runs a program as another user, who still may reach and enter the root filesystem of a release."""
    user = pwd.getpwnam(name)
    caps = ("--inh-caps=+sys_chroot,+dac_read_search", "--ambient-caps=+sys_chroot,+dac_read_search")
    return ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *caps)


def on_host(name: str) -> tuple[str, ...]:
    """Return what runs a program on a host of another name."""
    return ("unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A daemon at work, and the gang that it looks at."""

    live: LiveCluster
    job_id: int
    before: str
    process: subprocess.Popen[bytes]
    config: Path
    log: Path
    env: Mapping[str, str]
    through: Sequence[str] = field(default=())

    def held(self) -> bool:
        """Whether the daemon's change is out."""
        return "NumNodes=1-1 " in self.live.run("scontrol", "show", "job", str(self.job_id), check=False)

    def wait_until_held(self) -> None:
        """Wait until the daemon holds the gang to one node."""
        try:
            self.live.wait_for(self.held, DEADLINE_S, what="the daemon holds the gang to one node")
        except LiveSlurmError as err:
            raise LiveSlurmError(f"{err}; the daemon's log ends: {self.log.read_text()[-2000:]}") from err

    def says(self, words: str, *, after: int = 0) -> bool:
        """Whether the log says something from some point on."""
        return words in self.log.read_text()[after:]

    def so_far(self) -> int:
        """Return how long the log is."""
        return len(self.log.read_text())

    def wait_for_good_rounds(self, count: int = 1) -> None:
        """Wait until so many rounds have gone well from now on."""
        now = self.so_far()
        self.live.wait_for(lambda: self.log.read_text()[now:].count(_ROUND) >= count, DEADLINE_S, what="rounds go well")

    def wait_for_words(self, *words: str) -> None:
        """Wait until the log says one of these."""
        what = f"the log says {words[0]!r}"
        self.live.wait_for(lambda: any(self.says(each) for each in words), DEADLINE_S, what=what)

    def sadvise(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command of sadvise, as who runs the daemon."""
        argv = [*self.through, sys.executable, "-m", "advisor.cli.main", *arguments, "--config", str(self.config)]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    def answers(self, *arguments: str) -> Outcome:
        """Run another command of sadvise as root, in this process."""
        return sadvise_on(self.live, *arguments, "--config", str(self.config))

    def end(self) -> str:
        """End the daemon as the service manager does, see that it ends in order, and return its last line."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(10.0) == 0, self.log.read_text()[-2000:]
        last = self.log.read_text().splitlines()[-1]
        assert _ENDED in last
        return last


@contextmanager
def watched(
    live: LiveCluster,
    job_id: int,
    folder: Path,
    *,
    user: str | None = None,
    host: str | None = None,
    path: str = "",
    budget: str = ROOMY,
    timeout_s: float = 2.0,
    slowest_s: float = 2.0,
) -> Iterator[Watched]:
    """Run a daemon with its files in a folder, as some user or on a host of some name; it lifts no job.

    Programs in the folder `path` come before Slurm's.
    """
    config, log = folder / "sadvise.toml", folder / "log"
    config.write_text(CONFIG.format(folder=folder, timeout_s=timeout_s, slowest_s=slowest_s) + budget)
    if user is not None:
        for each in (folder, config):
            shutil.chown(each, user)
    through = (*(() if user is None else as_user(user)), *(() if host is None else on_host(host)))
    env = {**live.env, "PATH": os.pathsep.join(filter(None, (path, live.env["PATH"])))}
    before = state_of(live, job_id)
    with daemon(live, config, log, through=through, env=env) as process:
        yield Watched(
            live=live,
            job_id=job_id,
            before=before,
            process=process,
            config=config,
            log=log,
            env=env,
            through=through,
        )


@contextmanager
def at_work(live: LiveCluster, job_id: int, folder: Path) -> Iterator[Watched]:
    """Run a daemon until it holds the gang to one node, and on."""
    with watched(live, job_id, folder) as at_hand:
        at_hand.wait_until_held()
        yield at_hand
