"""The bound on added delay against an adversary, who submits a long job of one GPU right after each change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.domain.lease import Ending, Lease
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.policies.advised import AdvisedSlurm, no_forecasts
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem, SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from tests.sim.building import make_trace

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
