"""Plays a trace on live clusters: they get the jobs, show where these start, and each ends when its work is done.

The batch script of a job makes a FIFO, whose name holds the job and its start, and waits for a line from it, which
takes no CPU. How fast a job goes on follows from its nodes and from the jobs that share links with it, at the rates of
the simulator's engine. Instants are seconds from the start of the run.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from advisor.backends.assoc_text import read_queue_limits
from advisor.backends.process import SlurmCommands
from advisor.backends.spelling import node_names
from advisor.clock import SystemClock
from advisor.sim.cluster import Cluster
from advisor.sim.engine.native import native
from advisor.sim.profiles import load_profiles
from advisor.sim.run_outcome import End, Run
from advisor.sim.slurm.site_cluster import SiteCluster, site_cluster
from advisor.sim.state import PENDING, RUNNING, State, build_state, outcomes, with_room
from advisor.sim.traces.trace import Trace
from tools.live.compressed_site import GPUS_PER_NODE
from tools.live.trace_jobs import options_of
from tools.stage import LiveCluster
from tools.stage.program import Every
from tools.stage.sdiag import Cycles
from tools.stage.watch import TIMEOUT_S, snapshot_of, stays, talking_to

_NAME: Final = re.compile(r"^(\d+)\.(\d+)$")
_EVERYONE: Final = 0o1777


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A job whose script has begun, at an instant in POSIX seconds; `starts` counts the starts before this one."""

    job_id: int
    starts: int
    instant: float


class Scripts:
    """The scripts of a cluster; their FIFOs are in `folder`, which programs of the cluster see under the same name."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, in which jobs of all users make their FIFOs."""
        folder.mkdir()
        folder.chmod(_EVERYONE)
        self.folder = folder
        self._seen: set[str] = set()

    @property
    def text(self) -> str:
        """The script without its first line."""
        fifo = f'"{self.folder}/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}"'
        return f"mkfifo -m 600 {fifo} && read -r _ <{fifo}"

    def began(self) -> Iterator[Began]:
        """Yield the jobs whose scripts have begun since the last call."""
        for entry in sorted(os.scandir(self.folder), key=lambda entry: entry.name):
            named = _NAME.match(entry.name)
            if named and entry.name not in self._seen:
                self._seen.add(entry.name)
                yield Began(job_id=int(named[1]), starts=int(named[2]), instant=entry.stat().st_mtime)

    def let_go(self, job_id: int, starts: int) -> bool:
        """Let a script end; return False if it does not wait yet."""
        path = self.folder / f"{job_id}.{starts}"
        try:
            fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            # It has no reader: the script has not come so far, or was ended.
            return False
        try:
            os.write(fifo, b"\n")
        except BrokenPipeError:
            # It was ended since.
            return False
        finally:
            os.close(fifo)
        return True


@native
def start(s: State, row: int, now: float) -> None:
    """Start a pending job on the picked nodes."""


@native
def end(s: State, row: int, now: float, how: int) -> None:
    """End a running job."""


@native
def preempt(s: State, row: int, now: float) -> None:
    """Return a running job to the queue, back at its last checkpoint."""


class PlacedJobs:
    """The jobs of one live cluster, as rows of its trace."""

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        """Take the jobs before the first submission; a stopped job goes back to its last checkpoint."""
        self.trace, self.cluster = trace, cluster
        self._state = build_state(trace, cluster, load_profiles(), ideal=False, loses_work=True)
        # slurmctld enforces the limits.
        self._state.rules["limits_bind"] = False
        self._row_of_node = {name: row for row, name in enumerate(cluster.node_names)}
        self._is_done = np.zeros(len(trace), np.bool_)

    def submit(self, row: int) -> None:
        """Note that a job was submitted."""
        self._state.jobs["phase"][row] = PENDING
        self._state.tally["pending"] += 1

    def start(self, row: int, gpus_by_node: Mapping[str, int], now: float) -> None:
        """Start a pending job where slurmctld placed it."""
        state = self._room()
        for place, name in enumerate(sorted(gpus_by_node, key=self._row_of_node.__getitem__)):
            state.pick_nodes[place], state.pick_gpus[place] = self._row_of_node[name], gpus_by_node[name]
        state.tally["picked"] = len(gpus_by_node)
        start(state, row, now)

    def end(self, row: int, now: float, how: End) -> None:
        """End a running job."""
        end(self._room(), row, now, int(how))

    def requeue(self, row: int, now: float) -> None:
        """Return a running job to the queue."""
        preempt(self._room(), row, now)
        self._is_done[row] = False

    def is_running(self, row: int) -> bool:
        """Return whether a job runs."""
        return bool(self._state.jobs["phase"][row] == RUNNING)

    def done(self, now: float) -> Sequence[int]:
        """Return the running jobs whose work is done, each once."""
        running = self._state.running[: int(self._state.tally["running"][0])]
        rows = running[(self._state.jobs["finish_time"][running] <= now) & ~self._is_done[running]]
        self._is_done[rows] = True
        return [int(row) for row in np.sort(rows)]

    def run(self, policy: str, seed: int, *, wall_s: float, changes: int) -> Run:
        """Return what came of the jobs so far, as the simulator does of its own."""
        state = self._state
        return Run(
            trace=self.trace,
            policy=policy,
            seed=seed,
            cluster_gpus=self.cluster.gpus,
            outcomes=outcomes(state),
            segments=state.segments[: int(state.tally["segments"][0])].copy(),
            wall_s=wall_s,
            peak_rss_mib=0.0,
            changes=changes,
        )

    def _room(self) -> State:
        """Return the state with room for one more segment."""
        if self._state.tally["segments"][0] + 1 >= len(self._state.segments):
            self._state = with_room(self._state)
        return self._state


# How often Slurm is asked for the states of the jobs, which the scripts do not show.
LOOK_S: Final = 2.0
_PART: Final = re.compile(r"\bNodes=(\S+) .*?\bGRES=\S*?gpu:[^:\s(,]+:(\d+)")
POLL_S: Final = 0.05
Tell = Callable[[float], None]
_ENDED: Final[Mapping[str, End]] = {"TIMEOUT": End.TIME_LIMIT}
_FAILED: Final = frozenset({"BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"})


@dataclass(slots=True, kw_only=True)
class StartedJob:
    """Holds what is known of a job on one cluster: its id and its starts so far, this one left out."""

    job_id: int
    starts: int = 0


class LiveArm:
    """A cluster and the jobs on it; instants are seconds from the start of the run, `zero_time` in POSIX seconds."""

    def __init__(self, name: str, live: LiveCluster, model: Cluster, trace: Trace) -> None:
        """Take a cluster that runs; `model` is how its network and its nodes are modelled."""
        self.name, self.live = name, live
        self.execution = PlacedJobs(trace, model)
        self.faults: list[str] = []
        self.seen: dict[int, StartedJob] = {}
        self.ended = 0
        self.zero_time = SystemClock().now()
        self._trace = trace
        self._scripts = Scripts(live.folder / "scripts")
        self._row_of: dict[int, int] = {}
        self._done: list[int] = []
        self._looks = Every(LOOK_S)
        self.cycles: Cycles | None = None

    def submit(self, row: int) -> None:
        """Submit a job."""
        options = options_of(self._trace, row, GPUS_PER_NODE)
        user = self._trace.users[self._trace.jobs["user"][row]]
        job_id = self.live.submit(*options, script=self._scripts.text, user=user)
        self.seen[row] = StartedJob(job_id=job_id)
        self._row_of[job_id] = row
        self.execution.submit(row)

    def step(self, now: float) -> None:
        """Follow what has started, let go what is done, and now and then ask Slurm what else has happened."""
        for began in self._scripts.began():
            self._start(began)
        self._done += self.execution.done(now)
        self._done = [row for row in self._done if not self._let_go(row, now)]
        if self._looks.is_due(now):
            self._look(now)

    def _start(self, began: Began) -> None:
        row, instant = self._row_of[began.job_id], began.instant - self.zero_time
        if self.execution.is_running(row):
            # Slurm has requeued it since it was last asked.
            self.execution.requeue(row, instant)
        self.seen[row].starts = began.starts
        self.execution.start(row, self._placement(began.job_id), instant)

    def _placement(self, job_id: int) -> Mapping[str, int]:
        """Return the GPUs of a running job by node."""
        shown = self.live.run("scontrol", "show", "job", "-d", str(job_id))
        return {node: int(gpus) for nodes, gpus in _PART.findall(shown) for node in node_names(nodes, field="Nodes")}

    def _let_go(self, row: int, now: float) -> bool:
        """Let a job end whose work is done; return False if it has to be tried again."""
        seen = self.seen[row]
        if not self.execution.is_running(row):
            return True
        if not self._scripts.let_go(seen.job_id, seen.starts):
            return False
        self._end(row, now, End.FINISHED)
        return True

    def _look(self, now: float) -> None:
        """Note jobs that were ended or requeued by Slurm."""
        for job_id, stay in stays(self.live):
            row = self._row_of.get(job_id)
            if row is None or not self.execution.is_running(row):
                continue
            if stay.state == "PENDING":
                self.execution.requeue(row, now)
            elif stay.state in _ENDED:
                self._end(row, (stay.end_time or 0.0) - self.zero_time, _ENDED[stay.state])
            elif stay.state in _FAILED:
                self.faults.append(f"{self.name}: job {job_id} ended as {stay.state}")
                self._end(row, now, End.NOT)

    def _end(self, row: int, now: float, how: End) -> None:
        self.execution.end(row, now, how)
        self.ended += 1


def play(arms: Sequence[LiveArm], trace: Trace, *, within_s: float, tell: Tell | None) -> float:
    """Submit the jobs as they are due and run until all have ended everywhere; return how long that took.

    A burst takes the machine a while, so the trace gets the instants at which jobs really were submitted.

    `tell` receives the number of jobs that have ended, over all clusters. Jobs that have not ended within `within_s`
    are named as faults of their arms.
    """
    zero_time = time.time()
    for arm in arms:
        arm.zero_time = zero_time
    due = list(range(len(trace)))[::-1]
    with ThreadPoolExecutor(len(arms)) as pool:
        while (now := time.time() - zero_time) < within_s and any(arm.ended < len(trace) for arm in arms):
            # One at a time, so that in a burst of submissions jobs whose work is done still end.
            is_due = bool(due) and trace.jobs["submit_time"][due[-1]] <= now
            if is_due:
                row = due.pop()
                list(pool.map(lambda arm, row=row: arm.submit(row), arms))
                trace.jobs["submit_time"][row] = time.time() - zero_time
            list(pool.map(lambda arm: arm.step(time.time() - zero_time), arms))
            if tell is not None:
                tell(sum(arm.ended for arm in arms))
            if not is_due:
                time.sleep(POLL_S)
    for arm in arms:
        if arm.ended < len(trace):
            arm.faults.append(f"{arm.name}: {len(trace) - arm.ended} jobs have not ended within {within_s:.0f} s")
    return time.time() - zero_time


def model_of(live: LiveCluster) -> SiteCluster:
    """Return the model of a cluster that runs, with plain sentences on what is not in it."""
    seen = snapshot_of(live)
    with talking_to(live):
        limits = read_queue_limits(SlurmCommands(timeout_s=TIMEOUT_S), seen.config)
    return site_cluster(seen, limits)
