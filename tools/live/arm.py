"""One live cluster of a run: it gets the jobs, shows where they start, and each ends when its work is done."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from advisor.backends.spelling import node_names
from advisor.clock import SystemClock
from advisor.sim.cluster import Cluster
from advisor.sim.run_outcome import End
from advisor.sim.traces.trace import Trace
from tools.live.execution import Execution
from tools.live.requests import options_of
from tools.live.scripts import Began, Scripts
from tools.live.site import GPUS_PER_NODE
from tools.stage import LiveCluster
from tools.stage.actors import Every
from tools.stage.sdiag import Cycles
from tools.stage.watch import stays

# How often Slurm is asked for the states of the jobs, which the scripts do not show.
LOOK_S: Final = 2.0
_PART: Final = re.compile(r"\bNodes=(\S+) .*?\bGRES=\S*?gpu:[^:\s(,]+:(\d+)")
_ENDED: Final[Mapping[str, End]] = {"TIMEOUT": End.TIME_LIMIT}
_FAILED: Final = frozenset({"BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"})


@dataclass(slots=True, kw_only=True)
class Seen:
    """What is known of a job on one cluster: its id and its starts so far, this one left out."""

    job_id: int
    starts: int = 0


class Arm:
    """A cluster and the jobs on it; instants are seconds from the start of the run, `zero_time` in POSIX seconds."""

    def __init__(self, name: str, live: LiveCluster, model: Cluster, trace: Trace) -> None:
        """Take a cluster that runs; `model` is how its network and its nodes are modelled."""
        self.name, self.live = name, live
        self.execution = Execution(trace, model)
        self.faults: list[str] = []
        self.seen: dict[int, Seen] = {}
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
        self.seen[row] = Seen(job_id=job_id)
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
