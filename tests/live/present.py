"""Keeps a live cluster busy in real time: jobs as the users of a trace ask for them, which end after a minute or so."""

import threading
from typing import Final, Self

import numpy as np

from advisor.sim.traces.trace import Trace
from tools.live.compressed_site import GPUS_PER_NODE
from tools.live.trace_jobs import options_of
from tools.stage import LiveCluster, LiveSlurmError

# A job runs for its run time over this, within bounds, and asks for its full limit.
_SHORTER: Final = 120.0
SHORTEST_S: Final = 15.0
LONGEST_S: Final = 90.0


class Present:
    """Jobs that arrive for as long as a `with` block lasts: some at once, then one after the other."""

    def __init__(
        self,
        live: LiveCluster,
        trace: Trace,
        *,
        at_once: int,
        every_s: float,
        shortest_s: float = SHORTEST_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._live, self._trace = live, trace
        self._bounds_s = (shortest_s, longest_s)
        self._at_once, self._every_s = at_once, every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._arrive)
        self.faults: list[str] = []

    def __enter__(self) -> Self:
        """Submit the first jobs, and begin with the others."""
        for row in range(self._at_once):
            self._submit(row)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Submit no more."""
        self._is_over.set()
        self._thread.join()

    def _arrive(self) -> None:
        row = self._at_once
        while not self._is_over.wait(self._every_s):
            try:
                self._submit(row)
            except LiveSlurmError as err:
                self.faults.append(f"a job was not submitted: {err}")
                return
            row += 1

    def _submit(self, row: int) -> None:
        jobs = self._trace.jobs
        row %= len(jobs)
        seconds = float(np.clip(jobs["run_time_s"][row] / _SHORTER, *self._bounds_s))
        user = self._trace.users[jobs["user"][row]]
        options = options_of(self._trace, row, GPUS_PER_NODE)
        self._live.submit(*options, script=f"sleep {seconds:.0f}", user=user)
