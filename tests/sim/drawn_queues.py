"""Draw queues and clusters in which most jobs wait, and run the model of slurmctld on them from instant to instant."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from advisor.sim.cluster import Cluster, Failures, NodeGroup, SlurmParameters
from advisor.sim.node_events import draw_faults
from advisor.sim.queueing import FULL
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import with_room
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_state, make_trace


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw jobs that come one upon the other, so that most wait; some are larger than any cluster here."""
    jobs = []
    for submit_time in sorted(draw(st.lists(st.sampled_from([0, 0, 0.5, 7, 60, 290]), min_size=6, max_size=14))):
        gpus = draw(st.sampled_from([1, 2, 3, 4, 4, 8, 40]))
        low, high = draw(st.sampled_from([(gpus, gpus), (max(1, gpus // 2), 2 * gpus), (gpus, gpus + 1)]))
        limit_s = draw(st.sampled_from([np.inf, 600.0, 3600.5]))
        jobs.append(
            {
                "submit_time": submit_time,
                "gpus": gpus,
                "gpus_min": low,
                "gpus_max": high,
                "nodes_max": draw(st.sampled_from([0, 1, 4])),
                "run_time_s": draw(st.sampled_from([300, 900, 4000])),
                "time_limit_s": limit_s,
                "time_min_s": draw(st.sampled_from([0.0, 300.0])),
                "cpus_per_gpu": draw(st.sampled_from([0, 4])),
                "gpu_type": draw(st.sampled_from([-1, 0, 1])),
                "nice": draw(st.sampled_from([0, 0, -7])),
                "user": draw(st.sampled_from(["ann", "bob"])),
            }
        )
    return replace(make_trace(jobs), gpu_types=("v100", "a100"))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw up to three kinds of nodes, with and without names; a dozen leaves or faults now and then."""
    types = draw(st.sampled_from([("",), ("v100",), ("v100", "a100"), ("v100", "", "gpu"), ("a100", "v100", "")]))
    groups = tuple(
        NodeGroup(
            count=draw(st.sampled_from([1, 2, 3])), gpus=draw(st.sampled_from([1, 4])), cpus=16, leaf=1, gpu_type=name
        )
        for name in types
    )
    many = (NodeGroup(count=9, gpus=1, cpus=16, leaf=draw(st.integers(0, 2)), gpu_type=types[0]),)
    return Cluster(
        nodes=(*groups, *(many if draw(st.booleans()) else ())),
        failures=Failures(node_mtbf_h=draw(st.sampled_from([0.0, 0.1, 0.5])), repair_h=0.1),
        slurm=SlurmParameters(priority_weight_age=draw(st.sampled_from([0.0, 1e6]))),
    )


def started(trace: Trace, cluster: Cluster, seed: int = 0) -> SimulatedSlurm:
    """Return a simulated Slurm before the first submission, with the faults of a seed."""
    state = make_state(trace, cluster)
    state = state._replace(faults=draw_faults(state, cluster, np.random.default_rng(seed)))
    return SimulatedSlurm(trace, cluster, state, build_slurm(state, trace, cluster))


def go_on(simulated: SimulatedSlurm, until: float) -> None:
    """Run the model of slurmctld up to an instant."""
    while run_slurm(simulated.state, simulated.slurm, until) == FULL:
        simulated.state = with_room(simulated.state)
