"""Full clusters with a queue, and the lifts of a cycle."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.cycle import CycleRecord
from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.memory import Memory
from advisor.domain.plan import Permits, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster
from advisor.sim.policies.lifted import RUN_TIMES, Known
from advisor.sim.policies.mover import Mover
from advisor.sim.simulated_policy import Problem, SimulationOptions, Stopwatch
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import State, outcomes
from advisor.sim.traces.trace import Trace
from tests.builders import HOUR_S, make_config, make_job, make_snapshot
from tests.sim.building import make_state

FULL = tuple(f"n0{number}" for number in range(1, 5))
# Over these points of priority the weight of a job grows by all decades.
WEIGHTED = make_config(priority_weights={"age": 1000, "fair_share": 1000})


def busy(*jobs: Job, hours: float = 10.0) -> Snapshot:
    """A cluster whose 32 GPUs are all in use for another `hours`."""
    running = [
        make_job(900 + number, gpus=8, running_on=[name], started_ago_s=0.0, time_limit_s=hours * HOUR_S)
        for number, name in enumerate(FULL)
    ]
    return make_snapshot([*jobs, *running], config=WEIGHTED)


def lifts_of(record: CycleRecord) -> dict[int, Recommendation]:
    """Map the jobs that are lifted to their changes."""
    return {change.job_id: change for change in record.recommendations if isinstance(change.action, SetNice)}


def shorts(count: int, *, first_priority: int = 900, step: int = 1) -> list[Job]:
    """Return `count` jobs of 2 GPUs and one hour, each of a priority lower by `step` than the one before."""
    return [
        make_job(10 + number, gpus=2, priority=first_priority - step * number, time_limit_s=HOUR_S)
        for number in range(count)
    ]


# Runs the policy, and returns the nice of each job after it.
RunPolicy = Callable[[], Mapping[int, int]]


def make_mover(
    trace: Trace,
    cluster: Cluster,
    *,
    limits: Limits,
    planning: PlanningSettings | None = None,
    plain_start_time: Sequence[float] = (),
    run_times: Known = "limits",
) -> tuple[Mover, State]:
    """Return what changes jobs in a simulation that has not begun, and its state; no job starts without advice."""
    state = make_state(trace, cluster)
    slurm = build_slurm(state, trace, cluster)
    plain = outcomes(state)
    plain["start_time"] = plain_start_time or np.nan
    problem = Problem(
        trace=trace,
        cluster=cluster,
        state=state,
        options=SimulationOptions(limits=limits, planning=planning or PlanningSettings()),
        rng=np.random.default_rng(0),
        tell=lambda _: None,
        watch=Stopwatch(),
        plain_outcomes=lambda: plain,
    )
    return Mover(problem, slurm, RUN_TIMES[run_times](problem, slurm)), state


def simulated_rounds(
    trace: Trace,
    cluster: Cluster,
    times: Sequence[float],
    leases: Sequence[Lease],
    *,
    limits: Limits,
    planning: PlanningSettings,
) -> Iterator[tuple[float, Case, RunPolicy]]:
    """Yield the instant, the case and the policy of each round; `leases` are read in every round.

    No plan knows of a start without advice.
    """
    mover, state = make_mover(trace, cluster, limits=limits, planning=planning)
    slurm = mover.slurm
    simulated = SimulatedSlurm(trace, cluster, state, slurm)

    def run_policy(now: float) -> Mapping[int, int]:
        mover.cycle(state, now)
        return {job.job_id: job.nice for job in simulated.snapshot().jobs}

    case = Case(snapshot=simulated.snapshot(), settings=planning, limits=limits)
    for now in times:
        run_slurm(state, slurm, now)
        snapshot = simulated.snapshot()
        young = {job.job_id: "old_enough" for job in snapshot.jobs if now - job.submit_time < limits.min_job_age_s}
        permits, memory = Permits(left_alone=young), Memory(leases=tuple(leases))
        yield (
            now,
            replace(case, snapshot=snapshot, permits=permits, memory=memory),
            lambda now=now: run_policy(now),  # type: ignore[misc]  # mypy takes the default for an argument
        )
