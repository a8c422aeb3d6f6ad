"""Gangs are given nodes in the simulator: they start there and nowhere else, or get their own requests back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.features.observe.graph import Neighbours, Rows
from advisor.features.observe.pointer import BestFit, Choice, Chooser
from advisor.settings import Limits
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.policies.lifted import LiftedSlurm, by_limits
from advisor.sim.policies.lifter import Lifter
from advisor.sim.policies.placer import (
    BY_RULE,
    MOST_LEASES,
    SPARE_CLASSES,
    Placer,
    Places,
    with_spare_classes,
)
from advisor.sim.policies.sizer import speeds_by_rule
from advisor.sim.runner import SimulationOptions, simulate
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.state import PENDING, RUNNING
from advisor.sim.traces.trace import Trace
from tests.examples import examples
from tests.sim.building import bytes_of, make_problem, make_trace
from tests.sim.policies.test_state_board import clusters, go_on, started, traces
from tests.sim.test_engine import mixed_requests

LIMITS = Limits(min_job_age_s=0.0)
NAMES = ("node_class", "required", "nodes_min", "shape")
TIMES = st.lists(st.floats(0.0, 3000.0), min_size=2, max_size=9).map(sorted)


class LastFirst:
    """Chooses the last legal server."""

    def next_server(self, choice: Choice) -> int | None:
        legal = np.flatnonzero(choice.legal)
        return int(legal[-1]) if len(legal) else None


class Waits:
    """Leaves every gang to Slurm."""

    def next_server(self, _choice: Choice) -> int | None:
        return None


class Illegal:
    """Chooses servers that cannot be chosen."""

    def next_server(self, choice: Choice) -> int | None:
        return int(np.flatnonzero(~choice.legal)[0]) if not choice.legal.all() else None


def nothing_known(problem: Problem) -> tuple[Neighbours, Rows]:
    """Return no interference, and jobs without a model."""
    return Neighbours.of(np.zeros((1, 1))), np.zeros(len(problem.trace), np.intp)


def placed(trace: Trace, cluster: Cluster, chooser: Chooser) -> tuple[SimulatedSlurm, Placer]:
    """Return a simulated Slurm before the first submission, and what gives nodes to its gangs."""
    simulated = started(trace, cluster)
    simulated.state = with_spare_classes(simulated.state)
    problem = make_problem(trace, cluster, simulated.state, SimulationOptions(limits=LIMITS))
    mover = Lifter.of(problem, simulated.slurm, by_limits(problem, simulated.slurm))
    places = Places(speeds=speeds_by_rule, knowledge=nothing_known, make_chooser=lambda _view: chooser)
    return simulated, places.placer(problem, mover)


def held(simulated: SimulatedSlurm, row: int) -> set[int]:
    """Return the nodes of a running job."""
    job = simulated.state.jobs[row]
    return set(simulated.state.held_nodes[job["pool"] : job["pool"] + job["span"]].tolist())


@settings(max_examples=examples(60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces(), cluster=clusters(), times=TIMES, chooser=st.sampled_from([BestFit(), LastFirst()]))
def test_gang_with_nodes_starts_there_or_gets_its_request_back(
    trace: Trace, cluster: Cluster, times: list[float], chooser: Chooser
) -> None:
    simulated, placer = placed(trace, cluster, chooser)
    jobs = simulated.state.jobs
    own = jobs[list(NAMES)].copy()

    for time in times:
        go_on(simulated, time)
        now = float(simulated.state.tally["now"][0])
        placer.cycle(simulated.state, now)
        given = {row: set(lease.nodes.tolist()) for row, lease in placer.leases.items()}

        assert all(jobs["required"][row] == jobs["nodes_min"][row] == len(nodes) for row, nodes in given.items())
        go_on(simulated, now + 100.0)

        for row, nodes in given.items():
            assert jobs["phase"][row] == PENDING or held(simulated, row) == nodes or jobs["starts"][row] > 1

    go_on(simulated, 1e9)
    placer.cycle(simulated.state, 1e9)

    assert not placer.leases
    assert (jobs[list(NAMES)] == own).all()
    assert len(placer.spare) == SPARE_CLASSES


def one_gang(
    chooser: Chooser, nodes: str = "nodes=4,gpus=4,leaf=2", **asked: Any
) -> tuple[SimulatedSlurm, Placer, int]:
    """Return a cluster whose first three nodes were freed a moment ago, and a gang of 8 GPUs that can start now."""
    full = {"gpus": 12, "nodes_max": 3, "nodes_min": 3, "run_time_s": 99.4, "time_limit_s": 120}
    gang = {"submit_time": 10, "gpus": 8, "nodes_min": 2, "nodes_max": 2, "run_time_s": 500, "time_limit_s": 600}
    trace = make_trace([full, {"gpus": 2, "run_time_s": 9000, "time_limit_s": 9900}, gang | asked])
    simulated, placer = placed(trace, parse_cluster(nodes), chooser)
    go_on(simulated, 99.45 + float(simulated.state.jobs["since_time"][0]))
    assert simulated.state.jobs["phase"].tolist()[1:] == [RUNNING, PENDING]
    return simulated, placer, 2


def now_of(simulated: SimulatedSlurm) -> float:
    return float(simulated.state.tally["now"][0])


@pytest.mark.parametrize("nodes_max", [2, 0])
def test_gang_starts_on_the_nodes_that_are_chosen(nodes_max: int) -> None:
    simulated, placer, gang = one_gang(LastFirst(), nodes_min=nodes_max, nodes_max=nodes_max)

    placer.cycle(simulated.state, now_of(simulated))
    lease = placer.leases[gang]
    go_on(simulated, 200.0)

    assert simulated.state.jobs["phase"][gang] == RUNNING
    assert held(simulated, gang) == set(lease.nodes.tolist())
    assert 0 not in held(simulated, gang)


def test_rule_keeps_a_gang_under_one_leaf() -> None:
    simulated, placer, gang = one_gang(BestFit())

    placer.cycle(simulated.state, now_of(simulated))

    leaves = simulated.state.nodes["leaf"][placer.leases[gang].nodes]
    assert len(set(leaves.tolist())) == 1


def test_gang_that_has_not_started_by_the_next_cycle_gets_its_request_back_and_its_tries_are_counted() -> None:
    simulated, placer, gang = one_gang(LastFirst())
    jobs, nodes = simulated.state.jobs, simulated.state.nodes
    own = jobs[list(NAMES)][gang].copy()
    now = now_of(simulated)

    for _ in range(MOST_LEASES):
        placer.cycle(simulated.state, now)
        assert gang in placer.leases

        nodes["is_up"][:] = 0
        placer.cycle(simulated.state, now)
        assert not placer.leases
        assert jobs[list(NAMES)][gang] == own
        nodes["is_up"][:] = 1

    placer.cycle(simulated.state, now)
    assert not placer.leases


def test_gang_that_slurmctld_passes_over_is_given_no_nodes_again() -> None:
    simulated, placer, gang = one_gang(LastFirst())
    now = now_of(simulated)
    placer.cycle(simulated.state, now)

    for _ in range(5):
        placer.cycle(simulated.state, now)

    assert not placer.leases
    assert placer.given == {gang: 1}


def test_gang_that_cannot_start_on_its_nodes_starts_nowhere_else() -> None:
    simulated, placer, gang = one_gang(LastFirst())
    placer.cycle(simulated.state, now_of(simulated))
    simulated.state.nodes["is_up"][placer.leases[gang].nodes[0]] = 0

    go_on(simulated, 1000.0)

    assert simulated.state.jobs["phase"][gang] == PENDING


def test_gang_whose_nodes_never_come_back_starts_elsewhere_where_nothing_else_is_due() -> None:
    simulated, placer, gang = one_gang(LastFirst())
    placer.cycle(simulated.state, now_of(simulated))
    simulated.state.nodes["is_up"][placer.leases[gang].nodes[-1]] = 0

    placer.run(simulated.state, simulated.slurm, np.inf)

    assert simulated.state.jobs["starts"][gang] == 1
    assert not placer.leases


@pytest.mark.parametrize("asked", [{"switches": 1, "switches_wait_s": 60.0}, {"exclusive": 1}])
def test_gang_that_asks_for_a_place_itself_is_left_alone(asked: dict[str, Any]) -> None:
    simulated, placer, _gang = one_gang(BestFit(), **asked)

    placer.cycle(simulated.state, now_of(simulated))

    assert not placer.leases


@pytest.mark.parametrize("chooser", [Waits(), Illegal()])
@pytest.mark.parametrize("at_starts", [False, True])
def test_outcomes_are_those_of_lifts_where_nothing_is_chosen(chooser: Chooser, at_starts: bool) -> None:
    trace, cluster = mixed_requests()
    places = replace(BY_RULE, make_chooser=lambda _view: chooser, at_starts=at_starts)

    lifted = simulate(trace, cluster, LiftedSlurm(name="lift", summary="", run_times=by_limits))
    left = simulate(trace, cluster, LiftedSlurm(name="lift", summary="", run_times=by_limits, places=places))

    assert bytes_of(left) == bytes_of(lifted)
    assert left.changes == lifted.changes


@pytest.mark.parametrize("name", ["lift+place", "lift+plugin-oracle"])
def test_the_same_jobs_end_under_every_policy_that_gives_nodes(name: str) -> None:
    trace, cluster = mixed_requests()

    plain, run = (simulate(trace, cluster, policy) for policy in ("lift", name))

    # Whether a job starts before its reservation ends depends on the order.
    free = trace.jobs["reservation"] == 0
    assert (np.isfinite(run.outcomes["end_time"]) == np.isfinite(plain.outcomes["end_time"]))[free].all()
    assert np.isfinite(plain.outcomes["end_time"][free]).all()
