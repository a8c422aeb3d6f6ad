"""Running elastic jobs restart with more GPUs in the simulator: when, at what cost, and when not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from advisor.cycle import Cycle
from advisor.domain.actions import Requeue
from advisor.planning.preemption import REQUEUE_HOLD_S
from advisor.planning.restarts import GROWTH_LEASE_S
from advisor.predict.library import Library
from advisor.predict.served_policy import open_policy
from advisor.settings import QUANTUM_S, Limits, PlanningSettings
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.known_forecaster import KnownForecaster
from advisor.sim.policies.learning import NOWHERE
from advisor.sim.run_outcome import Run
from advisor.sim.runner import SimulationOptions
from tests.sim.building import make_trace, run_of
from tests.sim.policies.test_state_board import go_on, started

HOUR_S = 3600.0
ONE_NODE = "nodes=1,gpus=8"
# Sized at its submission, it starts at once, before the first cycle.
ELASTIC: Mapping[str, Any] = {
    "gpus": 2,
    "gpus_min": 1,
    "gpus_max": 8,
    "run_time_s": 10 * HOUR_S,
    "time_limit_s": 24 * HOUR_S,
    "checkpoint_interval_s": 500.0,
}
MEASURED = SimulationOptions()


def sizes(run: Run, job: int = 0) -> list[int]:
    """List the GPUs of a job's stretches."""
    return [int(row["gpus"]) for row in run.segments if row["job"] == job]


def test_job_restarts_with_more_gpus_at_its_cost_and_ends_sooner() -> None:
    trace = make_trace([ELASTIC])

    without, with_restarts = (
        run_of(trace, ONE_NODE, name, MEASURED) for name in ("price-sizes-oracle", "price-running-oracle")
    )

    # Beyond six GPUs each adds less than half of the speed that it had on average.
    assert sizes(without) == [2] and sizes(with_restarts) == [2, 6]
    first, second = with_restarts.segments
    assert first["end_time"] == QUANTUM_S
    assert REQUEUE_HOLD_S <= second["start_time"] - first["end_time"] <= REQUEUE_HOLD_S + 60.0
    # Of 1,200 s two checkpoints of 500 s are kept, and a restart takes a minute.
    restart_s = PlanningSettings().restart_s
    assert with_restarts.outcomes["lost_gpu_s"][0] == pytest.approx(200.0 * 2 + restart_s * 6, rel=0.01)
    assert with_restarts.outcomes["end_time"][0] < 0.6 * without.outcomes["end_time"][0]


@pytest.mark.parametrize(
    "fields",
    [
        {"checkpoint_interval_s": 0.0},
        {"gpus_max": 2},
        {"run_time_s": QUANTUM_S + 1000.0},
        {"array_id": 7},
    ],
    ids=["no checkpoint", "at its largest size", "little is left", "array"],
)
def test_job_that_cannot_or_need_not_restart_runs_on(fields: Mapping[str, Any]) -> None:
    run = run_of(make_trace([{**ELASTIC, **fields}]), ONE_NODE, "price-running-oracle", MEASURED)

    assert sizes(run) == [2]


def test_job_restarts_once() -> None:
    # Two GPUs are idle first, and four more later.
    others = [{"gpus": 4, "run_time_s": 2 * HOUR_S, "time_limit_s": 3 * HOUR_S}]

    run = run_of(make_trace([ELASTIC, *others]), ONE_NODE, "price-running-oracle", MEASURED)

    assert len(sizes(run)) == 2


def test_gpus_that_a_pending_job_asks_for_are_left_to_it() -> None:
    # The pending job fits on no node before the other one ends, and asks for all idle GPUs.
    jobs = [ELASTIC, {"gpus": 1, "run_time_s": 9 * HOUR_S}, {"submit_time": 10.0, "gpus": 6, "run_time_s": HOUR_S}]

    run = run_of(make_trace(jobs), ONE_NODE, "price-running-oracle", MEASURED)

    stopped = [row["end_time"] for row in run.segments if row["job"] == 0][:-1]
    assert all(time >= run.outcomes["start_time"][2] for time in stopped)


def test_job_whose_gpus_are_taken_gets_its_former_size_back() -> None:
    # It arrives while the job is held, and takes six GPUs for long.
    late = {"submit_time": QUANTUM_S + 30.0, "gpus": 6, "run_time_s": 20 * HOUR_S}

    run = run_of(make_trace([ELASTIC, late]), ONE_NODE, "price-running-oracle", MEASURED)

    assert sizes(run) == [2, 2]
    first, second = (row for row in run.segments if row["job"] == 0)
    advise_s = MEASURED.advise_every_s
    assert second["start_time"] - first["end_time"] <= GROWTH_LEASE_S + advise_s + 60.0


def test_planner_stops_the_job_that_the_simulator_stops_for_the_same_size() -> None:
    second = {**ELASTIC, "run_time_s": 20 * HOUR_S}
    trace = make_trace([ELASTIC, second])
    simulated = started(trace, parse_cluster(ONE_NODE))
    go_on(simulated, QUANTUM_S)
    truth = KnownForecaster(simulated, 0.0, np.random.default_rng(0))
    cycle = Cycle(
        planning=PlanningSettings(resize_running=True),
        limits=Limits(preempt_partitions="gpu"),
        forecaster=truth,
        policy=open_policy(Library(NOWHERE), "price"),
    )

    record = cycle.judge(simulated.snapshot())
    run = run_of(trace, ONE_NODE, "price-running-oracle", MEASURED)

    (action,) = [change.action for change in record.recommendations if isinstance(change.action, Requeue)]
    first, again = (row for row in run.segments if row["job"] == 1)
    assert (action.job_id, action.gpus_after) == (simulated.job_ids[1], again["gpus"])
    assert first["end_time"] == QUANTUM_S
