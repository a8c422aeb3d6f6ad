"""The graph of the simulator's arrays is that of its snapshot, to the bit."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.domain.job import Job
from advisor.features.nodes import node_table
from advisor.features.observe.graph import ClusterGraph, Neighbours, Residents, Rows, Servers, graph_of
from advisor.features.observe.known_models import KnownModels
from advisor.features.observe.snapshot_graph import residents_of_jobs, servers_of_table
from advisor.sim.cluster import Cluster, NodeGroup, parse_cluster
from advisor.sim.policies.state_graph import gpus_on_each, model_rows_of, residents_of, servers_of
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_placement import per_node
from advisor.sim.traces.trace import Trace
from tests.examples import examples
from tests.sim.building import make_trace
from tests.sim.policies.test_state_board import clusters, go_on, started, traces

MODELS = ("bert", "resnet50", "vgg16")
TIMES = st.lists(st.floats(0.0, 3000.0), min_size=2, max_size=6).map(sorted)


def code_of(names: Sequence[str]) -> Rows:
    """Return the rows of the models, -1 for others."""
    return np.array([MODELS.index(name) if name in MODELS else -1 for name in names], np.intp)


def table_of_neighbours(seed: int) -> Neighbours:
    """Return what the models add to each other."""
    shape = (len(MODELS) + 1, len(MODELS) + 1)
    added = np.random.default_rng(seed).random(shape)
    return Neighbours.of(added)


KNOWN = KnownModels(codes=code_of, neighbours=table_of_neighbours(0))


def left_s(job: Job, now: float) -> float:
    """Return the time up to the limit of a running job, NaN without one."""
    return job.end_time - now if job.end_time is not None else np.nan


def on_arrays(simulated: SimulatedSlurm, trace: Trace) -> tuple[Servers, Residents]:
    state = simulated.state
    jobs, now = state.jobs, simulated.now
    limit_s = np.where(np.isfinite(jobs["limit_s"]), jobs["since_time"] + jobs["limit_s"] - now, np.nan)
    return servers_of(state), residents_of(state, model_rows_of(trace, KNOWN), limit_s)


def on_snapshot(simulated: SimulatedSlurm) -> tuple[Servers, Residents]:
    snapshot = simulated.snapshot()
    table = node_table(snapshot)
    now = snapshot.taken_at
    residents = residents_of_jobs(snapshot, table, KNOWN.rows, lambda job: left_s(job, now))
    return servers_of_table(table), residents


def graphs(simulated: SimulatedSlurm, trace: Trace, seed: int) -> tuple[ClusterGraph, ClusterGraph]:
    """Return the graph of the arrays, and that of the snapshot."""
    neighbours = table_of_neighbours(seed)
    ours, theirs = on_arrays(simulated, trace), on_snapshot(simulated)
    return graph_of(*ours, neighbours), graph_of(*theirs, neighbours)


@pytest.mark.slow
@settings(max_examples=examples(120), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces(), cluster=clusters(), times=TIMES, draws=st.integers(0, 99))
def test_graph_of_the_arrays_is_that_of_the_snapshot(
    trace: Trace, cluster: Cluster, times: list[float], draws: int
) -> None:
    rng = np.random.default_rng(draws)
    trace = replace(trace, models=(*MODELS, "other"))
    trace.jobs["model"] = rng.integers(-1, 4, len(trace))
    trace.jobs["exclusive"] = rng.random(len(trace)) < 0.2
    simulated = started(trace, cluster)

    for time in times:
        go_on(simulated, time)
        ours, theirs = graphs(simulated, trace, draws)

        assert ours.equals(theirs)
        assert ours.leaf.tolist() == theirs.leaf.tolist()


def uneven(gpus: Sequence[int], **first: int) -> tuple[SimulatedSlurm, Trace]:
    """Return three nodes of 4 GPUs after a minute, with jobs that leave their node counts open."""
    jobs = [{"gpus": count, "nodes_max": 0, "run_time_s": 9000, "model": "bert"} for count in gpus]
    trace = make_trace([{**jobs[0], **first}, *jobs[1:]])
    simulated = started(trace, parse_cluster("nodes=3,gpus=4,leaf=2"))
    go_on(simulated, 60.0)
    return simulated, trace


def test_gang_with_different_numbers_on_its_servers_holds_what_is_in_use_there() -> None:
    simulated, trace = uneven([1, 6, 2])

    servers, residents = on_snapshot(simulated)
    ours, theirs = graphs(simulated, trace, 0)

    assert servers.gpus.tolist() == [4, 4, 4]
    taken = np.bincount(residents.server, residents.held, minlength=3)
    assert taken.tolist() == (servers.gpus - servers.free).tolist()
    assert residents.held.sum() == 9
    assert ours.equals(theirs)


def test_exclusive_gang_holds_all_gpus_of_its_servers() -> None:
    simulated, _trace = uneven([5], exclusive=1)

    _servers, residents = on_snapshot(simulated)

    assert residents.held.tolist() == [4, 4]
    assert residents.gpus.tolist() == [8]


def test_nodes_under_no_leaf_switch_count_as_one_leaf() -> None:
    simulated, _trace = uneven([5])
    snapshot = simulated.snapshot()
    flat = replace(snapshot, topology=replace(snapshot.topology, switches=()))

    servers = servers_of_table(node_table(flat))

    assert servers.leaf.tolist() == [0, 0, 0]
    assert servers.leaves == 1


@pytest.mark.parametrize("nodes", [(1, 1), (2, 2), (1, 4), (3, 3), (1, 0)])
@pytest.mark.parametrize("gpus", [0, 1, 6, 7, 8])
def test_gpus_on_each_node_are_those_of_the_engine(gpus: int, nodes: tuple[int, int]) -> None:
    cluster = Cluster(nodes=(NodeGroup(count=4, gpus=8, cpus=16),))
    simulated = started(make_trace([{"gpus": gpus, "cpus": 4}]), cluster)
    simulated.state.jobs["nodes_min"], simulated.state.jobs["nodes_max"] = nodes

    assert gpus_on_each(simulated.state.jobs).tolist() == [per_node(simulated.state, 0)]
