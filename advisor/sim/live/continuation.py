"""The model of slurmctld set up in the middle of its run, as a snapshot shows it, and runs from that instant on.

The arrays are built once for a snapshot and copied for each run, one block of memory per array. What a run writes
before it reads is not copied: each thread keeps its own.
"""

from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import SetGpus
from advisor.domain.dataclass import dataclass
from advisor.planning.rollout import Scenario
from advisor.sim.live.forecast_paces import Paces, Resized
from advisor.sim.live.resumed_arrays import (
    Periods,
    Sightings,
    Templates,
    Usage,
    resumed_slurm,
    resumed_state,
    set_waiting_points,
    with_slots,
    with_templates,
    with_users,
)
from advisor.sim.live.snapshot_model import SnapshotModel
from advisor.sim.queueing import FULL
from advisor.sim.run_outcome import End
from advisor.sim.slurm.job_update import Modelled, update_job
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import ask_for_pass, resume, run_slurm, sort_line, take_up
from advisor.sim.state import ENDED, PACES, PENDING, RUNNING, State
from advisor.sim.traces.trace import Trace

Table = TypeVar("Table", State, Slurm)

# What a run writes before it reads.
_SPACE: Final = frozenset(
    {
        "segments",
        "pick_nodes",
        "pick_gpus",
        "freeing",
        "freed",
        "freed_cpus",
        "freed_mib",
        "reservations",
        "slots",
        "shuts",
    }
    | {"ready", "open_time", "open_until", "freed_by", "free_time", "free_order", "free_nodes", "begins", "share"}
    | {"chosen", "room", "spare", "scratch", "pace", "candidates", "leaving", "kept_time", "kept_until"}
)
# What no run writes.
_FIXED: Final = frozenset(
    {"profiles", "type_speed", "rules", "faults", "account_shares", "qos_factor", "usable", "bookings", "booked"}
    | {"awaited", "wakes", "backfill_wakes", "members", "claims", "claim_begin", "account_parent", "account_depth"}
    | {"groups", "preempts"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Jobs that arrive after the snapshot, in order: rows of templates and their submit times, `(n_arrivals,)` each.

    `run_time_s`, `(n_arrivals,)`, are their run times instead of those of the templates.
    """

    template: NDArray[np.intp]
    submit_time: NDArray[np.float64]
    run_time_s: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one run went: starts and ends of its rows, `(n_rows,)` each, the jobs of the snapshot before the arrivals.

    `start_time` and `end_time` are NaN where they lie beyond the horizon. `completion_time` is then the end that the
    model already knows of a running job, and for a pending job the horizon plus its run time. A job that is stopped at
    its time limit completes when it would have done its work: to stop it is no gain.
    """

    start_time: NDArray[np.float64]
    end_time: NDArray[np.float64]
    completion_time: NDArray[np.float64]


class Continuation:
    """The model of slurmctld at a snapshot. Any number of threads can run it, each with its own `Workspace`."""

    def __init__(
        self,
        model: SnapshotModel,
        *,
        periods: Periods | None = None,
        usage: Usage | None = None,
        templates: Trace | None = None,
        sightings: Sightings | None = None,
        most_arrivals: int = 0,
        places: int = 0,
        paces: Paces | None = None,
    ) -> None:
        """Build the arrays; `templates` are the jobs that arrivals are drawn from, at most `most_arrivals` per run.

        `sightings` are the priorities of the templates, if Slurm calculated any. Without `paces` a job is as fast on
        every place, and half as fast on half of its GPUs.

        In a pass of backfill the first `places` jobs that wait get a reservation; 0: as many as slurmctld tests.
        """
        self.model = model
        self.n_jobs = len(model.trace)
        self._periods = periods or Periods()
        trace = with_templates(model.trace, templates)
        if usage is not None:
            trace = with_users(trace, usage)
        self._state = resumed_state(model, trace)
        self._slurm = resumed_slurm(model, trace, self._state, self._periods, usage)
        if places:
            self._slurm.control["bf_places"] = places
        take_up(self._state, self._slurm, model.taken_at)
        set_waiting_points(self._state, self._slurm)
        self._templates = Templates.of(self._state, self._slurm, self.n_jobs, sightings)
        self._state, self._slurm = with_slots(self._state, self._slurm, self.n_jobs, most_arrivals, self._templates)
        self._paces = paces
        if paces is not None:
            self._state = self._state._replace(pace=np.ones((self.n_jobs, PACES)))
            known = paces.best_nodes > 0
            self._state.jobs["best_nodes"][: self.n_jobs][known] = paces.best_nodes[known]
        self._ask(self._slurm)

    def workspace(self) -> "Workspace":
        """Return the arrays of one thread."""
        return Workspace(self._state, self._slurm)

    def run(
        self,
        workspace: "Workspace",
        run_time_s: NDArray[np.float64],
        scenario: Scenario = (),
        *,
        horizon_s: float,
        arrivals: Arrivals | None = None,
        draw: int = 0,
    ) -> Course:
        """Run on from the snapshot for `horizon_s`; `run_time_s`, `(n_jobs,)`, are the run times from start to end.

        `draw` is the place of the draw among those of the paces.
        """
        state, slurm = workspace.state, workspace.slurm
        workspace.reset()
        now = self.model.taken_at
        for name in ("work_s", "left_s"):
            state.jobs[name][: self.n_jobs] = run_time_s
        if self._paces is not None:
            state.pace[:] = self._paces.pace[draw]
        if arrivals is not None:
            self._lay_arrivals(state, slurm, arrivals)
        resume(state, slurm, now)
        for change in sorted(scenario, key=lambda change: change.after_s):
            if change.after_s > 0.0:
                _run(state, slurm, now + min(change.after_s, horizon_s))
            self._apply(state, slurm, change.action, run_time_s, draw)
        _run(state, slurm, now + horizon_s)
        return _course(state, self.n_jobs + (0 if arrivals is None else len(arrivals.template)), now + horizon_s)

    def _apply(self, state: State, slurm: Slurm, action: object, run_time_s: NDArray[np.float64], draw: int) -> None:
        """Change a job; a change of a job that does not pend, or that the model does not know, has no effect.

        Nor has a size above the range that the job declares: its allocation has no room for more.
        """
        if not isinstance(action, Modelled):
            return
        # The waiting tasks of an array have one id.
        rows = [row for row in self.model.rows_by_id.get(action.job_id, ()) if state.jobs["phase"][row] == PENDING]
        if not rows:
            return
        for row in rows:
            gpus = int(state.jobs["gpus"][row])
            update_job(state, slurm, row, action)
            if state.jobs["gpus"][row] > state.jobs["gpus_max"][row]:
                state.jobs["gpus"][row] = gpus
            elif isinstance(action, SetGpus) and self._paces is not None:
                self._repace(state, row, self._paces.resized(action, draw, row), float(run_time_s[row]))
        sort_line(state, slurm)
        ask_for_pass(slurm, float(state.tally["now"][0]))

    def _repace(self, state: State, row: int, resized: Resized, run_time_s: float) -> None:
        """Give a job the run time and the paces of its new size."""
        job = state.jobs[row]
        job["work_s"] = job["left_s"] = run_time_s * resized.stretch
        job["work_gpus"] = job["gpus"]
        if resized.best_nodes:
            job["best_nodes"] = resized.best_nodes
        state.pace[row] = resized.pace

    def _ask(self, slurm: Slurm) -> None:
        """Ask for the passes that are due, both if that is unknown."""
        periods, now, control = self._periods, self.model.taken_at, slurm.control
        if periods.main_due is None or periods.backfill_due is None:
            ask_for_pass(slurm, now)
            control["backfill_due_time"] = now
        if periods.main_due is not None:
            control["pass_time"] = periods.main_due
        if periods.backfill_due is not None:
            control["backfill_due_time"] = periods.backfill_due

    def _lay_arrivals(self, state: State, slurm: Slurm, arrivals: Arrivals) -> None:
        count, templates = len(arrivals.template), self._templates
        rows = slice(self.n_jobs, self.n_jobs + count)
        pools = state.jobs["pool"][rows].copy()
        state.jobs[rows] = templates.jobs[arrivals.template]
        state.jobs["pool"][rows] = pools
        state.jobs["submit_time"][rows] = arrivals.submit_time
        slurm.association[rows] = templates.association[arrivals.template]
        slurm.switches_time[rows] = np.where(state.jobs["switches"][rows] > 0, arrivals.submit_time, np.inf)
        slurm.points[rows] = templates.points[arrivals.template]
        slurm.partition[rows] = templates.partition[arrivals.template]
        if len(slurm.group):
            slurm.group[rows] = templates.group[arrivals.template]
        slurm.eligible_time[rows] = arrivals.submit_time
        if arrivals.run_time_s is not None:
            for name in ("work_s", "left_s"):
                state.jobs[name][rows] = arrivals.run_time_s


def _run(state: State, slurm: Slurm, until: float) -> None:
    """Run up to an instant, whatever jobs held before: no segment is read."""
    while run_slurm(state, slurm, until) == FULL:
        state.tally["segments"] = 0


class Workspace:
    """The arrays that the runs of one thread use one after the other."""

    def __init__(self, state: State, slurm: Slurm) -> None:
        """Make room for copies of the arrays of a continuation."""
        self.state, self.slurm = _like(state), _like(slurm)
        tables = ((state, self.state), (slurm, self.slurm))
        self._pairs = [
            (_bytes(getattr(mine, name)), _bytes(getattr(source, name)))
            for source, mine in tables
            for name in source._fields
            if name not in _SPACE | _FIXED
        ]

    def reset(self) -> None:
        """Copy the arrays of the continuation."""
        for mine, source in self._pairs:
            np.copyto(mine, source)


def _like(table: Table) -> Table:
    """Return a table of arrays of the same shapes, which shares those that no run writes."""
    arrays = {name: np.empty_like(getattr(table, name)) for name in table._fields if name not in _FIXED}
    return table._replace(**arrays)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the memory of an array as bytes: records are then copied in one block and not field by field."""
    return array.reshape(-1).view(np.uint8)


def _course(state: State, count: int, horizon_time: float) -> Course:
    jobs = state.jobs[:count]
    # A job without GPUs keeps its size.
    run_s = jobs["work_s"] * jobs["work_gpus"] / np.maximum(1, jobs["gpus"])
    run_s = np.where(jobs["gpus"] == 0, jobs["work_s"], run_s)
    unfinished = np.where(jobs["phase"] == RUNNING, jobs["finish_time"], horizon_time + run_s)
    # Jobs that can never start have no end.
    has_ended = (jobs["phase"] == ENDED) & np.isfinite(jobs["end_time"])
    is_stopped = has_ended & (jobs["end"] == End.TIME_LIMIT)
    missing_s = np.where(is_stopped, jobs["left_s"] / np.where(is_stopped, jobs["rate"], 1.0), 0.0)
    return Course(
        start_time=np.where((jobs["phase"] == RUNNING) | has_ended, jobs["start_time"], np.nan),
        end_time=np.where(has_ended, jobs["end_time"], np.nan),
        completion_time=np.where(has_ended, jobs["end_time"] + missing_s, unfinished),
    )
