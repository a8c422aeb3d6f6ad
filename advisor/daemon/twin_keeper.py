"""Keeps plain Slurm running beside the cluster: notes every snapshot, and has a process of its own run the model."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from pydantic import TypeAdapter

from advisor.backends.child import run_module
from advisor.backends.process import Deadline
from advisor.domain.forecast import Forecasts
from advisor.domain.lease import Lease
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import Stretch
from advisor.domain.units import DAY_S
from advisor.errors import AdvisorError, SlurmError
from advisor.sim.live.carried_jobs import PlainStay
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.submitted_jobs import LeasesUndone, SubmittedJobs
from advisor.sim.live.twin_child import TwinAnswer, TwinTask

# Longer runs are ended.
DEADLINE_S: Final = 300.0
DRAWS: Final = 32
# From this age on, with more jobs than this, or once a run takes this share of its deadline, the anchor moves.
_LONGEST_S: Final = DAY_S
_MOST_JOBS: Final = 20_000
_LONG_RUN_RATIO: Final = 0.5
# The share of one core that the runs take.
_CORE_RATIO: Final = 0.1
_MODULE: Final = "advisor.sim.live.twin_child"

_ANSWER: Final = TypeAdapter(TwinAnswer)

# Runs a packed task and returns its answer as JSON; raises `AdvisorError`.
RunTask = Callable[[bytes], bytes]


def run_in_child(task: bytes, patience: Deadline, *, limit_s: float = DEADLINE_S) -> bytes:
    """Run a task in a process of the lowest priority; raises `SlurmError` if it fails, takes too long or is cancelled.

    The process and all that it started are killed then.
    """
    return run_module(_MODULE, task, patience, limit_s=limit_s)


class TwinKeeper:
    """The twin of one daemon; one thread uses it, another waits for the process.

    `fault` is why the last run gave nothing, "" if it gave something.
    """

    def __init__(self, run_task: RunTask, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take the function that runs a task, and a clock."""
        self._run_task, self._monotonic = run_task, monotonic
        self._undo = LeasesUndone()
        self._twin: PlainTwin | None = None
        self._worker: threading.Thread | None = None
        self._results: SimpleQueue[TwinAnswer | str] = SimpleQueue()
        self._due_at = 0.0
        self._run_s = 0.0
        # The jobs of the anchor that the last run began at, until its queues are carried over to the present one.
        self._before: SubmittedJobs | None = None
        self._queues: Sequence[Sequence[PlainStay]] = ()
        self.fault = ""

    def forget(self) -> None:
        """Forget the anchor; the next snapshot is another one."""
        self._twin, self._before, self._queues = None, None, ()

    def finished(self) -> Iterator[Stretch]:
        """Yield the stretches of the runs that have ended since."""
        while True:
            try:
                result = self._results.get_nowait()
            except Empty:
                return
            if isinstance(result, str):
                self.fault = result
                # A shorter run can succeed where a longer one did not.
                self.forget()
            else:
                self.fault = ""
                # The queues at the present anchor, and not those of an earlier run.
                if self._twin is not None and result.stretch.until == self._twin.anchor.taken_at:
                    self._queues = result.queues
                yield result.stretch

    def observe(self, snapshot: Snapshot, leases: Iterable[Lease], forecasts: Forecasts, *, interval_s: float) -> None:
        """Note a snapshot and the leases of its round, and start a run if one is due."""
        try:
            self._observe(snapshot, leases, forecasts, interval_s)
        except Exception as err:
            # A comparison must not stop the rounds, which revert leases.
            self.fault = f"plain Slurm is not run: a fault of sadvise itself: {type(err).__name__}: {err}"
            self.forget()

    def _observe(self, snapshot: Snapshot, leases: Iterable[Lease], forecasts: Forecasts, interval_s: float) -> None:
        if self._queues and self._twin is not None and self._before is not None:
            self._twin.carry_over(self._queues, self._before)
            self._queues, self._before = (), None
        self._undo.learn(leases)
        if self._twin is None:
            self._twin = PlainTwin(snapshot, self._undo)
            self._due_at = self._monotonic() + interval_s
            return
        self._twin.observe(snapshot)
        is_running = self._worker is not None and self._worker.is_alive()
        if not is_running and self._monotonic() >= self._due_at:
            self._start(self._twin, snapshot, forecasts, interval_s)

    def _start(self, twin: PlainTwin, snapshot: Snapshot, forecasts: Forecasts, interval_s: float) -> None:
        task = TwinTask(twin=twin, forecasts=forecasts, draws=DRAWS).packed()
        if self._moves(twin, snapshot):
            # The stretch of the old anchor ends where that of the next one begins.
            self._before = twin.submitted
            twin.move_anchor(snapshot)
        self._due_at = self._monotonic() + max(interval_s, self._run_s / _CORE_RATIO)
        self._worker = threading.Thread(target=self._work, args=(task,), daemon=True)
        self._worker.start()

    def _moves(self, twin: PlainTwin, snapshot: Snapshot) -> bool:
        """Return whether the anchor moves after a run up to a snapshot."""
        age_s = snapshot.taken_at - twin.anchor.taken_at
        return age_s >= _LONGEST_S or twin.job_count > _MOST_JOBS or self._run_s > _LONG_RUN_RATIO * DEADLINE_S

    def _work(self, task: bytes) -> None:
        begun = self._monotonic()
        try:
            self._results.put(_ANSWER.validate_json(self._run_task(task), strict=True))
        except SlurmError as err:
            late = "" if self._monotonic() - begun < DEADLINE_S else f" within {DEADLINE_S:.0f} s"
            self._results.put(f"plain Slurm was not run to its end{late}: {err}")
        except (AdvisorError, ValueError) as err:
            self._results.put(f"plain Slurm was not run to its end: {err}")
        finally:
            self._run_s = self._monotonic() - begun
