"""Jobs that are later than the bound allows go before all others, whatever arrives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.settings import Limits, PlanningSettings
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace
from tests.examples import examples
from tests.sim.building import make_trace, run_of

CLUSTER = "nodes=1,gpus=2"
CYCLE_S = 60.0
BOUND_S = 1200.0
# slurmctld starts jobs at its next pass.
PASS_S = 61.0
USERS = ("full", "long", "short", "other")
OPTIONS = SimulationOptions(
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
    plain, advised = (run_of(trace, CLUSTER, policy, OPTIONS) for policy in ("slurm", "lift"))
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
    loose = replace(OPTIONS, limits=replace(OPTIONS.limits, max_lateness_s=1e9))

    plain, unbounded, bounded = (
        run_of(trace, CLUSTER, policy, options).outcomes["start_time"][2]
        for policy, options in (("slurm", OPTIONS), ("lift", loose), ("lift", OPTIONS))
    )

    assert unbounded > plain + 2 * BOUND_S
    # Once it is overdue it waits for a GPU, the longest job of which takes 600 s, and for the next cycle.
    assert bounded <= plain + BOUND_S + 600.0 + CYCLE_S + PASS_S
