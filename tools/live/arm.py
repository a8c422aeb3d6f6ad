"""Plays a trace on live clusters: they get the jobs, show where these start, and each ends when its work is done."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from advisor.backends.process import SlurmCommands
from advisor.backends.queue_limits import read_queue_limits
from advisor.backends.spelling import node_names
from advisor.clock import SystemClock
from advisor.sim.cluster import Cluster
from advisor.sim.run_outcome import End
from advisor.sim.slurm.site_cluster import SiteCluster, site_cluster
from advisor.sim.traces.trace import Trace
from tools.live.compressed_site import GPUS_PER_NODE
from tools.live.execution import PlacedJobs
from tools.live.sbatch_options import options_of
from tools.live.scripts import Began, Scripts
from tools.stage import LiveCluster
from tools.stage.program import Every
from tools.stage.sdiag import Cycles
from tools.stage.watch import TIMEOUT_S, snapshot_of, stays, talking_to

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
