"""Runs the jobs of a trace where a real slurmctld placed them: how fast each goes on, and when its work is done.

The rates are those of the simulator's engine: they follow from the nodes of a job and from the jobs that share links
with it. Instants are seconds from the start of the run.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.sim.cluster import Cluster
from advisor.sim.engine.native import native
from advisor.sim.profiles import load_profiles
from advisor.sim.run_outcome import End, Run
from advisor.sim.state import PENDING, RUNNING, State, build_state, outcomes, with_room
from advisor.sim.traces.trace import Trace


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
