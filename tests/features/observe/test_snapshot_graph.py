"""The facts of the cluster graph from a snapshot: who holds what where, as far as Slurm shows it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.domain.job import Job
from advisor.features.nodes import node_table
from advisor.features.observe.graph import Residents, Rows, Servers
from advisor.features.observe.snapshot_graph import residents_of_jobs, servers_of_table
from advisor.sim.cluster import parse_cluster
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from tests.sim.building import make_trace
from tests.sim.drawn_queues import go_on, started


def first_model(names: Sequence[str]) -> Rows:
    """Return the rows of models, of which there is one."""
    return np.zeros(len(names), np.intp)


def unknown_s(_job: Job) -> float:
    return np.nan


def facts(simulated: SimulatedSlurm) -> tuple[Servers, Residents]:
    snapshot = simulated.snapshot()
    table = node_table(snapshot)
    return servers_of_table(table), residents_of_jobs(snapshot, table, first_model, unknown_s)


def uneven(gpus: Sequence[int], **first: int) -> SimulatedSlurm:
    """Return three nodes of 4 GPUs after a minute, with jobs that leave their node counts open."""
    jobs = [{"gpus": count, "nodes_max": 0, "run_time_s": 9000, "model": "bert"} for count in gpus]
    simulated = started(make_trace([{**jobs[0], **first}, *jobs[1:]]), parse_cluster("nodes=3,gpus=4,leaf=2"))
    go_on(simulated, 60.0)
    return simulated


def test_gang_with_different_numbers_on_its_servers_holds_what_is_in_use_there() -> None:
    servers, residents = facts(uneven([1, 6, 2]))

    assert servers.gpus.tolist() == [4, 4, 4]
    taken = np.bincount(residents.server, residents.held, minlength=3)
    assert taken.tolist() == (servers.gpus - servers.free).tolist()
    assert residents.held.sum() == 9


def test_exclusive_gang_holds_all_gpus_of_its_servers() -> None:
    _servers, residents = facts(uneven([5], exclusive=1))

    assert residents.held.tolist() == [4, 4]
    assert residents.gpus.tolist() == [8]


def test_nodes_under_no_leaf_switch_count_as_one_leaf() -> None:
    snapshot = uneven([5]).snapshot()
    flat = replace(snapshot, topology=replace(snapshot.topology, switches=()))

    servers = servers_of_table(node_table(flat))

    assert servers.leaf.tolist() == [0, 0, 0]
    assert servers.leaves == 1
