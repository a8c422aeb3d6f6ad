"""Traces and clusters for tests of the simulator: a test names what matters to it and nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from advisor.sim.cluster import Cluster, SlurmParameters, parse_cluster
from advisor.sim.profiles import load_profiles
from advisor.sim.run_outcome import Run
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem, SimulatedPolicy, SimulationOptions, Stopwatch
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import PENDING, State, build_state
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from tests.sim.internals import end, expired, start

PROFILES = load_profiles()
IDEAL = SimulationOptions(execution="ideal")
# First come, first served, with passes at every instant.
FIRST_COME = SlurmParameters(
    priority_weight_age=0.0,
    priority_weight_fairshare=0.0,
    tick_s=0.0,
    batch_sched_delay_s=0.0,
    limit_check_s=0.0,
    bf_resolution_s=1.0,
)


def make_trace(jobs: Sequence[Mapping[str, Any]], *, users: tuple[str, ...] = ("ann", "bob", "cy")) -> Trace:
    """Build a trace from the columns that matter; every job takes one GPU for 100 s and has no limit, unless told.

    `model` and `user` are given by name. A job takes the fewest nodes that hold it; `nodes_max` 0 leaves that open.
    """
    rows = np.zeros(len(jobs), TRACE_DTYPE)
    rows["job_id"] = np.arange(1, len(jobs) + 1)
    rows["run_time_s"] = 100.0
    rows["gpus"] = rows["nodes_max"] = 1
    rows["time_limit_s"] = np.inf
    rows["gpu_type"] = rows["model"] = -1
    rows["recorded_start_time"] = np.nan
    models = tuple(dict.fromkeys(str(job["model"]) for job in jobs if "model" in job))
    for row, job in zip(rows, jobs, strict=True):
        for name, value in job.items():
            match name:
                case "model":
                    row[name] = models.index(str(value))
                case "user":
                    row[name] = users.index(str(value))
                case _:
                    row[name] = value
        row["gpus_min"] = row["gpus_min"] or row["gpus"]
        row["gpus_max"] = row["gpus_max"] or row["gpus"]
    return Trace(name="made", jobs=rows, users=users, models=models)


def starts_and_ends(run: Run) -> list[tuple[float, float]]:
    """List the first start and the end of every job."""
    return [(float(row["start_time"]), float(row["end_time"])) for row in run.outcomes]


def run_of(
    jobs: Trace | Sequence[Mapping[str, Any]],
    cluster: str | Cluster,
    policy: str | SimulatedPolicy,
    options: SimulationOptions = IDEAL,
    seed: int = 0,
) -> Run:
    """Simulate, by default without inflation and restart cost."""
    trace = jobs if isinstance(jobs, Trace) else make_trace(jobs)
    where = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    return simulate(trace, where, policy, seed=seed, options=options)


def times_of(
    jobs: Trace | Sequence[Mapping[str, Any]],
    cluster: str | Cluster,
    policy: str | SimulatedPolicy,
    options: SimulationOptions = IDEAL,
) -> list[tuple[float, float]]:
    """Simulate; list the first start and the end of every job."""
    return starts_and_ends(run_of(jobs, cluster, policy, options))


def profile(name: str) -> np.void:
    """Return the row of a profile."""
    row: np.void = PROFILES.rows[PROFILES.names.index(name)]
    return row


def make_state(trace: Trace, cluster: str | Cluster, *, ideal: bool = False, loses_work: bool = False) -> State:
    """Build the arrays of a run before the first submission."""
    where = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    return build_state(trace, where, PROFILES, ideal=ideal, loses_work=loses_work)


def model_of(trace: Trace, cluster: Cluster, *, ideal: bool = True) -> tuple[State, Slurm]:
    """Build the arrays of a run under the model of slurmctld before the first submission."""
    state = make_state(trace, cluster, ideal=ideal)
    return state, build_slurm(state, trace, cluster)


def slurm_at(until: float, trace: Trace, cluster: Cluster, *, ideal: bool = True) -> SimulatedSlurm:
    """Run the model of slurmctld up to an instant, and return the cluster that shows it."""
    state, slurm = model_of(trace, cluster, ideal=ideal)
    run_slurm(state, slurm, until)
    return SimulatedSlurm(trace, cluster, state, slurm)


def submit(state: State, row: int, now: float) -> None:
    """Let a job be pending, as a loop does at its submission."""
    state.jobs["phase"][row] = PENDING
    state.jobs["since_time"][row] = now
    state.tally["pending"] += 1


def place(state: State, row: int, gpus_by_node: Mapping[int, int], now: float) -> None:
    """Start a job, which is submitted first if need be, on these nodes; nodes of a leaf stand together."""
    if state.jobs["phase"][row] != PENDING:
        submit(state, row, now)
    pick_of(state, gpus_by_node)
    start(state, row, now)


def pick_of(state: State, gpus_by_node: Mapping[int, int]) -> None:
    """Let these nodes be the present pick."""
    state.tally["picked"] = count = len(gpus_by_node)
    state.pick_nodes[:count] = list(gpus_by_node)
    state.pick_gpus[:count] = list(gpus_by_node.values())


def run_out(state: State) -> None:
    """Let the running jobs end, each when its time comes."""
    while state.tally["timers"][0]:
        row = int(state.timers[0])
        end(state, row, float(state.jobs["timer"][row]), expired(state, row))


def ended(
    jobs: Trace | Sequence[Mapping[str, Any]],
    cluster: str | Cluster,
    *gpus_by_node: Mapping[int, int],
    at: Sequence[float] = (),
    ideal: bool = False,
    loses_work: bool = False,
) -> State:
    """Start each job on its nodes, at 0 or at its own time, and let all run to their ends."""
    trace = jobs if isinstance(jobs, Trace) else make_trace(jobs)
    state = make_state(trace, cluster, ideal=ideal, loses_work=loses_work)
    for row, gpus in enumerate(gpus_by_node):
        place(state, row, gpus, at[row] if at else 0.0)
    run_out(state)
    return state


def ends(state: State) -> list[float]:
    """List the end of every job."""
    return [float(at) for at in state.jobs["end_time"]]


def occupy(state: State, gpus_in_use: Sequence[int]) -> None:
    """Count GPUs of each node as in use, by nobody in particular."""
    used = np.array(gpus_in_use, np.int32)
    state.nodes["gpus_free"] -= used
    np.subtract.at(state.leaves["gpus_free"], state.nodes["leaf"], used)
    state.tally["gpus_free"] -= used.sum()


def picked(state: State) -> dict[int, int]:
    """Return the GPUs of the present pick by node, in its order."""
    count = int(state.tally["picked"][0])
    nodes, gpus = state.pick_nodes[:count].tolist(), state.pick_gpus[:count].tolist()
    return dict(zip(nodes, gpus, strict=True))


def bytes_of(run: Run) -> bytes:
    """Return the bytes of all that a run found out; those between the fields of a record are anybody's."""
    tables = (run.outcomes, run.segments)
    return b"".join(table[name].tobytes() for table in tables for name in table.dtype.names or ())


def contended_gbps(bandwidth_gbps: float, pressure: float) -> float:
    """Return what a link leaves to a gang beside others whose `node_pressure` sums up to `pressure`."""
    return bandwidth_gbps / (1.0 + pressure)


def make_problem(trace: Trace, cluster: Cluster, state: State, options: SimulationOptions) -> Problem:
    """Build a problem that is ready to run from a state, with plain Slurm beside it."""
    return Problem(
        trace=trace,
        cluster=cluster,
        state=state,
        options=options,
        rng=np.random.default_rng(0),
        tell=lambda _: None,
        watch=Stopwatch(),
        plain_outcomes=lambda: simulate(trace, cluster, "slurm", options=options).outcomes,
    )
