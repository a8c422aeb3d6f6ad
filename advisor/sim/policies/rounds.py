"""Policies that decide about all jobs in rounds, and their loop: between rounds jobs only arrive and end."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.planning.growth import GrowthStep, grown
from advisor.sim.engine.tables import Integers, Reals, Victims, build_victims
from advisor.sim.policies.engine_calls import best_rates, pick, put_back, run_round, serve, share_gpus, start_one
from advisor.sim.queueing import ROUND
from advisor.sim.simulated_policy import Problem, drive, leave_out
from advisor.sim.state import PENDING, RUNNING, State


class Decision(Protocol):
    """The decision of a policy at the start of a round."""

    def __call__(self, view: "RoundView") -> None:
        """Read and change the cluster through the view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """The cluster at one instant, for a policy to read and change.

    Rows are rows of `jobs`. `active` holds the rows of the jobs that were pending or running at the start of the round,
    by submit time and id; every list of rows here is in that order. A job can run on any number of
    GPUs from its `gpus_min` to its `gpus_max`.
    """

    problem: Problem
    state: State
    now: float
    active: NDArray[np.intp]
    victims: Victims
    failed: Integers  # (n_shapes,): space for `serve`

    @property
    def jobs(self) -> NDArray[np.void]:
        """The job table, `(n_jobs,)` of `JOB_DTYPE`; progress is booked up to now."""
        return self.state.jobs

    @property
    def pending(self) -> NDArray[np.intp]:
        """Rows of the pending jobs."""
        return self.active[self.jobs["phase"][self.active] == PENDING]

    @property
    def running(self) -> NDArray[np.intp]:
        """Rows of the running jobs."""
        return self.active[self.jobs["phase"][self.active] == RUNNING]

    @property
    def gpus(self) -> int:
        """The total number of GPUs."""
        return self.problem.cluster.gpus

    @property
    def gpus_free(self) -> int:
        """The number of GPUs that no job holds."""
        return int(self.state.tally["gpus_free"][0])

    @property
    def restart_s(self) -> float:
        """Time without progress at every start of a job but the first."""
        return float(self.state.rules["restart_s"][0])

    @property
    def is_ideal(self) -> bool:
        """Whether jobs run without contention, and twice as fast on twice the GPUs."""
        return self.problem.options.execution == "ideal"

    def ends_slice(self, slice_s: float) -> bool:
        """Whether a time slice ends now; slices begin at the zero of the trace."""
        return self.now % slice_s == 0.0

    def serve(
        self,
        rows: NDArray[np.integer],
        gpus: NDArray[np.integer],
        least: NDArray[np.integer] | None = None,
        *,
        may_preempt: bool = False,
    ) -> None:
        """Start, resize and stop jobs to reach their sizes, in the order of `rows`; the arrays are `(n_rows,)`.

        A pending job gets as many GPUs as fit, from `gpus` down to `least`, without it down to its `gpus_min`; 0 leaves
        it where it is. If none fit, and `may_preempt`, the running jobs that come later, or are not listed, go back to
        the queue, as few as make room. A running job is stopped by the size 0, moved to a smaller size at once, and to
        a larger one if at least `least` fit; else it keeps its place.
        """
        smallest = self.jobs["gpus_min"][rows] if least is None else least
        serve(
            self.state,
            self.victims,
            _integers(rows),
            _integers(gpus),
            _integers(smallest),
            self.failed,
            self.now,
            may_preempt,
        )

    def start(self, row: int, gpus: int) -> bool:
        """Start a pending job on as many of `gpus` as fit; return False if fewer than its `gpus_min` do."""
        return start_one(self.state, row, gpus, int(self.jobs["gpus_min"][row]), self.now)

    def share(self, rows: NDArray[np.integer], hosts: NDArray[np.integer]) -> None:
        """Start pending jobs on the GPUs of running ones that hold as many and share with none, both `(n_rows,)`."""
        share_gpus(self.state, _integers(rows), _integers(hosts), self.now)

    def stop(self, rows: NDArray[np.integer]) -> None:
        """Return running jobs to the queue."""
        put_back(self.state, _integers(rows), self.now)

    def remaining_s(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the believed remaining run time at the requested size, `(n_rows,)`."""
        left: NDArray[np.float64] = (
            self.jobs["believed_s"][rows] * self.jobs["left_s"][rows] / self.jobs["work_s"][rows]
        )
        return left

    def speedup(self, rows: NDArray[np.integer], gpus: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the believed speed at a size over that at the requested size, on the best placement, `(n_rows,)`."""
        if self.problem.options.noise is None:
            linear: NDArray[np.float64] = gpus / self.jobs["work_gpus"][rows]
            return linear
        return self.measured_speedup(rows, gpus)

    def measured_speedup(self, rows: NDArray[np.integer], gpus: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the true value of `speedup`, as if measured."""
        if self.is_ideal:
            linear: NDArray[np.float64] = gpus / self.jobs["work_gpus"][rows]
            return linear
        rates = np.empty(len(rows))
        best_rates(self.state, _integers(rows), _integers(gpus), Reals(rates))
        return rates

    def shares_per_gpu(self, rows: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the shares of the cluster's GPUs, CPUs and memory that one GPU of a job takes, `(n_rows, 3)`."""
        nodes, jobs = self.state.nodes, self.jobs
        return np.stack(
            (
                np.full(len(rows), 1.0 / nodes["gpus"].sum()),
                jobs["cpus_per_gpu"][rows] / nodes["cpus"].sum(),
                jobs["memory_mib_per_gpu"][rows] / nodes["memory_mib"].sum(),
            ),
            axis=1,
        )

    def shares_free(self) -> NDArray[np.float64]:
        """Return the free shares of the cluster's GPUs, CPUs and memory, `(3,)`."""
        nodes = self.state.nodes
        up = nodes[nodes["is_up"] == 1]
        return np.array(
            [
                up[f"{name}_free{unit}"].sum() / nodes[f"{name}{unit}"].sum()
                for name, unit in (("gpus", ""), ("cpus", ""), ("memory", "_mib"))
            ]
        )


def run_rounds(problem: Problem, decide: Decision, every_s: float) -> State:
    """Run a problem with a decision every `every_s`, 0: at every event; an empty cluster needs no decision.

    Raises `RuntimeError` if a decision leaves jobs pending on an idle cluster forever.
    """
    state = problem.state
    failed = Integers(np.zeros(int(state.jobs["shape"].max()) + 1, np.int32))
    victims = build_victims(state)
    active = np.zeros(0, np.intp)
    leave_out(state, lambda row: pick(state, row, int(state.jobs["gpus"][row])))
    seen = 0

    def step(state: State, until: float) -> int:
        nonlocal active, seen
        while (stopped := run_round(state, every_s, until)) == ROUND:
            now, arrived = float(state.tally["now"][0]), int(state.tally["arrived"][0])
            active = np.concatenate((active, np.arange(seen, arrived)))
            phase = state.jobs["phase"][active]
            active = active[(phase == PENDING) | (phase == RUNNING)]
            seen = arrived
            decide(RoundView(problem=problem, state=state, now=now, active=active, victims=victims, failed=failed))
            _check_goes_on(state)
        return stopped

    return drive(problem, problem.state, step)


def _check_goes_on(state: State) -> None:
    tally = state.tally[0]
    is_last = tally["arrived"] == len(state.jobs) and tally["faults"] == len(state.faults)
    if tally["pending"] and not tally["running"] and is_last:
        raise RuntimeError(f"the policy starts none of {tally['pending']} jobs on an idle cluster")


def _integers(values: NDArray[np.integer]) -> Integers:
    return Integers(values.astype(np.int32))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPolicy:
    """A decision every `every_s` seconds; `make` makes one for each run, with what it remembers."""

    name: str
    summary: str
    make: Callable[[], Decision]
    every_s: float = 300.0

    def run(self, problem: Problem) -> State:
        """Run round after round."""
        return run_rounds(problem, self.make(), self.every_s)


def deal(
    minimum: NDArray[np.integer],
    maximum: NDArray[np.integer],
    gpus: int,
    value: Callable[[int, int], float],
) -> NDArray[np.int64]:
    """Give jobs their minimum in order, then one GPU at a time to the job that values one more the most.

    `minimum` and `maximum` are `(n_jobs,)`; `value(place, size)` is that of a GPU more to the job in that place which
    has `size`, negative infinity where it wants none. Ties go to the first. A job whose minimum is not left gets 0.
    """
    sizes, left, most = [0] * len(minimum), gpus, maximum.tolist()
    for place, least in enumerate(minimum.tolist()):
        if least <= left:
            sizes[place] = least
            left -= least

    def next_step(place: int, size: int) -> GrowthStep | None:
        if not 0 < size < most[place]:
            return None
        worth = value(place, size)
        return GrowthStep(size + 1, worth) if worth > -np.inf else None

    return np.array(grown(sizes, left, next_step), np.int64)
