"""A pending gang that names nodes starts on these and on no others, and gets its own request back."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.domain.actions import SetNodeList
from advisor.domain.plan import Outcome
from advisor.sim.cluster import Cluster, NodeGroup, parse_cluster
from advisor.sim.slurm import job_update
from advisor.sim.slurm.job_update import with_room_for_lists
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.state import PENDING, RUNNING
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_state, make_trace
from tests.sim.drawn_queues import go_on

FOUR_NODES = parse_cluster("nodes=4,gpus=4,leaf=2")
# Lists of users count where the cluster file names the nodes.
NAMED = Cluster(nodes=(NodeGroup(count=4, gpus=4, leaf=2, names="n[1-4]"),))
FULL = {"gpus": 12, "nodes_min": 3, "nodes_max": 3, "run_time_s": 100, "time_limit_s": 120}
LONG = {"gpus": 2, "run_time_s": 9000, "time_limit_s": 9900}
GANG = {"submit_time": 10, "gpus": 8, "nodes_min": 2, "nodes_max": 2, "run_time_s": 500, "time_limit_s": 600}


def waiting(*gangs: dict[str, Any], cluster: Cluster = FOUR_NODES, **columns: Any) -> SimulatedSlurm:
    """Return a cluster whose first three nodes are held until 100, and gangs that wait for two of them."""
    trace = replace(make_trace([FULL, LONG, *(gangs or (GANG,))]), **columns)
    return simulated(trace, cluster)


def simulated(trace: Trace, cluster: Cluster) -> SimulatedSlurm:
    state = with_room_for_lists(make_state(trace, cluster))
    of_trace = SimulatedSlurm(trace, cluster, state, build_slurm(state, trace, cluster))
    go_on(of_trace, 50.0)
    return of_trace


def names(on: SimulatedSlurm, *nodes: str, job: int = 3) -> Outcome:
    """Let a job name nodes."""
    before = on.snapshot().jobs_by_id[job].gang.required_nodes
    return on.apply(SetNodeList(job_id=job, before=tuple(sorted(before)), after=nodes)).outcome


def held(on: SimulatedSlurm, job: int = 3) -> set[str]:
    """Return the nodes on which a job runs."""
    allocation = on.snapshot().jobs_by_id[job].allocation
    return set() if allocation is None else set(allocation.nodes)


@pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1", "n3"), ("n2", "n3")])
def test_gang_starts_on_the_nodes_that_it_names(nodes: tuple[str, ...]) -> None:
    slurm = waiting()

    outcome = names(slurm, *nodes)
    go_on(slurm, 300.0)

    assert outcome is Outcome.APPLIED
    assert held(slurm) == set(nodes)


def test_gang_waits_for_the_nodes_that_it_names_while_others_are_idle() -> None:
    slurm = waiting()

    names(slurm, "n3", "n4")
    go_on(slurm, 300.0)

    assert slurm.state.jobs["phase"][2] == PENDING
    assert slurm.snapshot().jobs_by_id[3].gang.required_nodes == ("n3", "n4")


def test_gang_that_names_none_again_starts_wherever_it_fits() -> None:
    slurm = waiting()
    own = slurm.state.jobs[["node_class", "required"]][2].copy()

    names(slurm, "n3", "n4")
    go_on(slurm, 200.0)
    outcome = names(slurm)
    go_on(slurm, 300.0)

    assert outcome is Outcome.APPLIED
    assert slurm.state.jobs[["node_class", "required"]][2] == own
    assert slurm.state.jobs["phase"][2] == RUNNING


def test_list_of_a_user_is_replaced_and_returned() -> None:
    slurm = waiting({**GANG, "required_nodes": 1}, required_nodes=("", "n3,n4"), cluster=NAMED)

    assert slurm.snapshot().jobs_by_id[3].gang.required_nodes == ("n3", "n4")
    assert names(slurm, "n1", "n2") is Outcome.APPLIED
    assert names(slurm, "n1", "n2") is Outcome.ALREADY_SO
    assert names(slurm, "n3", "n4") is Outcome.APPLIED
    assert names(slurm) is Outcome.APPLIED
    go_on(slurm, 300.0)
    assert slurm.state.jobs["phase"][2] == RUNNING


@pytest.mark.parametrize("nodes", [("n1", "n9"), ("n1", "n2")])
def test_nodes_that_are_unknown_or_excluded_are_refused(nodes: tuple[str, ...]) -> None:
    slurm = waiting({**GANG, "excluded_nodes": 1}, excluded_nodes=("", "n2"), cluster=NAMED)

    assert names(slurm, *nodes) is Outcome.FAILED
    assert slurm.snapshot().jobs_by_id[3].gang.required_nodes == ()


def test_row_for_a_list_is_used_again_when_its_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_update, "ROOM", 1)
    # The second gang waits for the node that is full for hours.
    slurm = waiting(GANG, {**GANG, "submit_time": 20, "gpus": 16, "nodes_min": 4, "nodes_max": 4})

    assert names(slurm, "n1", "n2") is Outcome.APPLIED
    assert names(slurm, "n1", "n3") is Outcome.APPLIED
    assert names(slurm, "n1", "n2", "n3", "n4", job=4) is Outcome.FAILED
    go_on(slurm, 400.0)
    assert held(slurm) == {"n1", "n3"}
    assert names(slurm, "n1", "n2", "n3", "n4", job=4) is Outcome.FAILED
    go_on(slurm, 700.0)
    assert names(slurm, "n1", "n2", "n3", "n4", job=4) is Outcome.APPLIED


def test_simulation_without_room_for_lists_refuses_them() -> None:
    trace = make_trace([FULL, LONG, GANG])
    state = make_state(trace, FOUR_NODES)
    slurm = SimulatedSlurm(trace, FOUR_NODES, state, build_slurm(state, trace, FOUR_NODES))
    go_on(slurm, 50.0)

    assert names(slurm, "n1", "n2") is Outcome.FAILED
