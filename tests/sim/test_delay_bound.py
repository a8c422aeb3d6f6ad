"""The bound on added delay against an adversary, who submits a long job of one GPU right after each change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.domain.lease import Ending, Lease
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.policies.advised import AdvisedSlurm, no_forecasts
from advisor.sim.run_outcome import Run
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem, SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.traces.trace import Trace
from tests.examples import examples
from tests.sim.building import make_trace, run_of

BOUND_S, EVERY_S = 1200.0, 30.0
LONG_S = 20_000.0
CLUSTER = Cluster(
    nodes=(NodeGroup(count=4, gpus=4),),
    # A job that arrives stands behind all others, so that none slips between a lowered job and its own place.
    slurm=SlurmParameters(
        priority_weight_fairshare=0.0,
        priority_weight_age=1e7,
        priority_calc_period_s=EVERY_S,
        bf_window_s=4 * LONG_S,
        max_switch_wait_s=3600.0,
    ),
)
OPTIONS = SimulationOptions(
    execution="ideal",
    # Gangs are so sensitive to their place that they wait for it.
    planning=PlanningSettings(
        min_saving_s=1.0, leaf_inflation=4.0, spine_inflation=8.0, node_timer_s=60.0, leaf_timer_s=60.0
    ),
    # No job is lifted but one that is late: the bound is on what its own changes cost a job.
    limits=Limits(min_job_age_s=0.0, cooldown_s=60.0, max_added_delay_s=BOUND_S, fairness="user"),
    advise_every_s=EVERY_S,
)


@dataclass(frozen=True, kw_only=True)
class Advised(AdvisedSlurm):
    """Advised Slurm that keeps its journal for the test to read."""

    journals: list[MemoryJournal] = field(default_factory=list)

    def advisor(self, problem: Problem) -> tuple[Applier, SimulatedSlurm]:
        applier, cluster = AdvisedSlurm.advisor(self, problem)
        assert isinstance(applier.journal, MemoryJournal)
        self.journals.append(applier.journal)
        return applier, cluster


def delaying(jobs: Sequence[dict[str, Any]]) -> tuple[list[Lease], dict[int, float]]:
    """Run a trace, and return the changes that can have delayed their jobs, and when the jobs started."""
    policy = Advised(name="advised", summary="", forecaster=no_forecasts)
    run = simulate(make_trace(sorted(jobs, key=lambda job: job["submit_time"])), CLUSTER, policy, options=OPTIONS)
    (journal,) = policy.journals
    starts = {job_id: float(row["start_time"]) for job_id, row in enumerate(run.outcomes, start=1)}
    leases = [lease for lease in (*journal.closed(list(starts)), *journal.leases()) if lease.added_delay_s > 0.0]
    return [lease for lease in leases if lease.ending is not Ending.NOT_APPLIED], starts


def queue(seed: int) -> list[dict[str, Any]]:
    """Jobs of two users that keep a small cluster full for hours; a third user submits nothing."""
    rng = np.random.default_rng(seed)
    jobs = []
    for submit_time in np.sort(rng.uniform(0.0, 4000.0, 60)).tolist():
        limit_s = float(rng.choice([120.0, 300.0, 600.0, 900.0]))
        jobs.append(
            {
                "submit_time": submit_time,
                "gpus": int(rng.choice([1, 2, 4, 8])),
                "run_time_s": limit_s * float(rng.uniform(0.1, 1.0)),
                "time_limit_s": limit_s,
                "nodes_max": 4,
                "user": str(rng.choice(["ann", "bob"])),
            }
        )
    return jobs


def attacked(jobs: list[dict[str, Any]], gpus: int, most: int) -> Iterator[tuple[list[Lease], dict[int, float]]]:
    """Run again and again, each time with one more long job, submitted right after the next change."""
    last = -1.0
    for _ in range(most):
        leases, starts = delaying(jobs)
        yield leases, starts
        following = min((lease.applied_time for lease in leases if lease.applied_time > last), default=None)
        if following is None:
            return
        last = following
        attack = {"submit_time": following + 1.0, "gpus": gpus, "run_time_s": LONG_S, "time_limit_s": LONG_S}
        jobs = [*jobs, {**attack, "user": "cy"}]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_changed_job_starts_later_than_the_bound_after_its_planned_start(seed: int) -> None:
    touched = 0

    for leases, starts in attacked(queue(seed), 1, 6):
        touched += len(leases)
        late = [starts[lease.job_id] - due_start(lease) for lease in leases]
        assert max(late, default=0.0) <= BOUND_S

    assert touched > 0


def due_start(lease: Lease) -> float:
    """Return when a job was to start as submitted: by time limits as planned, or later if it could not have."""
    return max(instant for instant in (lease.planned_start, lease.would_start_time, 0.0) if instant is not None)


TWO_GPUS = "nodes=1,gpus=2"
CYCLE_S = 60.0
BOUND_S = 1200.0
# slurmctld starts jobs at its next pass.
PASS_S = 61.0
USERS = ("full", "long", "short", "other")
WEIGHED = SimulationOptions(
    execution="ideal",
    planning=PlanningSettings(priority_decades=0.0, lift_places=3),
    limits=Limits(max_lateness_s=BOUND_S, max_lateness_ratio=0.5, min_job_age_s=0.0),
    advise_every_s=CYCLE_S,
)


@st.composite
def attacks(draw: st.DrawFn) -> Trace:
    """Draw long jobs of one user, and short ones of others that keep coming for hours."""
    full: list[dict[str, Any]] = [{"user": "full", "run_time_s": 1000.0, "time_limit_s": 1200.0} for _ in range(2)]
    long: list[dict[str, Any]] = [
        {"user": "long", "submit_time": 10.0 + number, "run_time_s": 5000.0, "time_limit_s": 6000.0}
        for number in range(draw(st.integers(1, 3)))
    ]
    short = [
        {
            "user": draw(st.sampled_from(["short", "other"])),
            "submit_time": 20.0 + number * draw(st.sampled_from([100.0, 150.0, 200.0])),
            "run_time_s": draw(st.sampled_from([200.0, 400.0])),
            "time_limit_s": 600.0,
        }
        for number in range(draw(st.integers(10, 60)))
    ]
    rows = sorted([*full, *long, *short], key=lambda job: float(job.get("submit_time", 0.0)))
    return make_trace([{"gpus": 1, **row} for row in rows], users=USERS)


def due_s(plain: Run) -> np.ndarray:
    """Return when each job is overdue, `(n_jobs,)`."""
    start_time, submit_time = plain.outcomes["start_time"], plain.trace.jobs["submit_time"]
    return np.asarray(start_time + np.maximum(BOUND_S, 0.5 * (start_time - submit_time)))


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=attacks())
def test_only_overdue_jobs_start_before_an_overdue_one(trace: Trace) -> None:
    plain, advised = (run_of(trace, TWO_GPUS, policy, WEIGHED) for policy in ("slurm", "lift"))
    due, start_time = due_s(plain), advised.outcomes["start_time"]

    for row in np.flatnonzero(start_time > due + CYCLE_S + PASS_S).tolist():
        since_then = (start_time > due[row] + CYCLE_S + PASS_S) & (start_time < start_time[row])
        assert (start_time[since_then] > due[since_then]).all()


def test_bound_shortens_the_longest_delay() -> None:
    long = {"user": "long", "submit_time": 10.0, "gpus": 1, "run_time_s": 5000.0, "time_limit_s": 6000.0}
    short = [
        {"user": "short", "submit_time": 20.0 + 150.0 * n, "gpus": 1, "run_time_s": 400.0, "time_limit_s": 600.0}
        for n in range(80)
    ]
    full = {"user": "full", "gpus": 1, "run_time_s": 1000.0, "time_limit_s": 1200.0}
    trace = make_trace([full, full, long, *short], users=USERS)
    loose = replace(WEIGHED, limits=replace(WEIGHED.limits, max_lateness_s=1e9))

    plain, unbounded, bounded = (
        run_of(trace, TWO_GPUS, policy, options).outcomes["start_time"][2]
        for policy, options in (("slurm", WEIGHED), ("lift", loose), ("lift", WEIGHED))
    )

    assert unbounded > plain + 2 * BOUND_S
    # Once it is overdue it waits for a GPU, the longest job of which takes 600 s, and for the next cycle.
    assert bounded <= plain + BOUND_S + 600.0 + CYCLE_S + PASS_S
