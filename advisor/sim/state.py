"""The state of a simulated cluster: arrays that the compiled loops read and write in place.

A row of `jobs` is a row of the trace. The allocation of a job is in `held_nodes` and `held_gpus`: `span` entries from
its offset `pool` on.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import HOUR_S
from advisor.sim.cluster import Cluster, Network
from advisor.sim.profiles import PROFILE_DTYPE, Profiles
from advisor.sim.run_outcome import OUTCOME_DTYPE, SEGMENT_DTYPE, End
from advisor.sim.trace import Trace


class Phase(IntEnum):
    """The phase of a job, as stored in `JOB_DTYPE`."""

    FUTURE = 0
    PENDING = 1
    RUNNING = 2
    ENDED = 3


FUTURE, PENDING, RUNNING, ENDED = (int(phase) for phase in Phase)
NONE = -1

JOB_DTYPE = np.dtype(
    [
        # What was asked.
        ("submit_time", np.float64),
        ("work_s", np.float64),  # run time at the size asked, alone, on the best placement
        ("believed_s", np.float64),  # the run time that a policy believes in
        ("limit_s", np.float64),
        ("soft_limit_s", np.float64),  # 0: none
        ("switches_wait_s", np.float64),
        ("checkpoint_s", np.float64),
        ("reference_speed", np.float64),  # of the GPU type that the run time refers to
        ("memory_mib_per_gpu", np.int64),
        ("gpus", np.int32),  # asked for now
        ("work_gpus", np.int32),  # asked for at first: the size that work_s refers to
        ("gpus_min", np.int32),
        ("gpus_max", np.int32),
        ("nodes_min", np.int32),  # never 0
        ("nodes_max", np.int32),  # 0: open
        ("best_nodes", np.int32),
        ("node_gpus", np.int32),  # of the largest node that it can use
        ("cpus_per_gpu", np.int32),
        ("gpu_type", np.int32),
        ("profile", np.int32),
        ("user", np.int32),
        ("account", np.int32),
        ("qos", np.int32),
        ("shape", np.int32),  # jobs of one shape are placed alike
        ("nice", np.int32),
        ("switches", np.int32),
        # Where it stands.
        ("priority", np.float64),
        ("left_s", np.float64),  # work left, in the unit of work_s
        ("rate", np.float64),  # work per second
        ("booked_time", np.float64),  # up to when progress and cost have been booked
        ("progress_time", np.float64),  # from when on there is progress, after a restart
        ("since_time", np.float64),  # start of the present allocation, or of the present waiting
        ("finish_time", np.float64),
        ("watch_time", np.float64),  # when the policy wants to look again; infinity: never
        ("timer", np.float64),  # the first of what awaits the job
        ("key", np.float64),  # its place in the order of a queue policy, lower first
        ("attained_gpu_s", np.float64),
        ("exposed_ratio", np.float64),  # of the present time, in exposed communication
        ("pool", np.int64),
        ("heap_slot", np.int32),
        ("queue_slot", np.int32),
        ("held", np.int32),  # GPUs
        ("span", np.int32),  # nodes
        ("partner", np.int32),  # the job on the same GPUs
        ("starts", np.int32),
        ("preemptions", np.int32),
        ("resizes", np.int32),
        # What came of it.
        ("start_time", np.float64),
        ("end_time", np.float64),
        ("held_gpu_s", np.float64),
        ("exposed_gpu_s", np.float64),
        ("lost_gpu_s", np.float64),
        ("phase", np.int8),
        ("end", np.int8),
        ("tier", np.int8),
        ("is_guest", np.int8),  # runs on its partner's GPUs
    ],
    align=True,
)

NODE_DTYPE = np.dtype(
    [
        ("memory_mib", np.int64),
        ("memory_free_mib", np.int64),
        ("pressure", np.float64),  # on its NIC, of the jobs here that span nodes
        ("inner_pressure", np.float64),  # on the links inside it, of the jobs of several GPUs
        ("gpus", np.int32),
        ("gpus_free", np.int32),
        ("cpus", np.int32),
        ("cpus_free", np.int32),
        ("gpu_type", np.int32),
        ("leaf", np.int32),
        ("running", np.int32),  # jobs here, guests included
        ("is_up", np.int8),
    ],
    align=True,
)

LEAF_DTYPE = np.dtype(
    [
        ("first", np.int32),  # nodes of a leaf stand together
        ("nodes", np.int32),
        ("gpus_free", np.int32),
        ("crossing", np.int32),  # running jobs whose traffic leaves the leaf
    ],
    align=True,
)

TALLY_DTYPE = np.dtype(
    [
        ("now", np.float64),
        ("arrived", np.int64),  # rows of the trace before this one have been submitted
        ("ended", np.int64),
        ("segments", np.int64),
        ("timers", np.int64),  # length of the heap of timers
        ("running", np.int64),
        ("pending", np.int64),
        ("faults", np.int64),  # faults before this one have happened
        ("picked", np.int64),  # nodes in the present pick
        ("gpus_free", np.int64),  # on nodes that are down, too
        ("loaded", np.int64),  # nodes under the leaves that jobs cross
        ("spine_ratio", np.float64),  # of what the loaded uplinks carry, what the spine does
    ],
    align=True,
)

PROFILE_ROW_DTYPE = np.dtype(PROFILE_DTYPE.descr, align=True)

FAULT_DTYPE = np.dtype([("time", np.float64), ("node", np.int32), ("is_up", np.int8)], align=True)

RULES_DTYPE = np.dtype(
    [
        ("restart_s", np.float64),
        ("node_gbps", np.float64),  # infinity: no limit
        ("nic_gbps", np.float64),
        ("oversubscription", np.float64),
        ("spine_oversubscription", np.float64),
        ("limit_check_s", np.float64),  # jobs beyond their limits are ended so often; 0: at once
        ("limit_phase_time", np.float64),  # an instant at which they are
        ("most_gpus", np.int32),  # on one node
        ("leaf_nodes", np.int32),  # under the largest leaf
        ("node_shared", np.int8),  # jobs divide what a node's GPUs get from each other
        ("is_ideal", np.int8),
        ("limits_bind", np.int8),
        ("loses_work", np.int8),  # a stopped job goes back to its last checkpoint
    ],
    align=True,
)


class State(NamedTuple):
    """All arrays of one run; shapes in brackets."""

    jobs: NDArray[np.void]  # (n_jobs,)
    nodes: NDArray[np.void]  # (n_nodes,)
    leaves: NDArray[np.void]  # (n_leaves,)
    profiles: NDArray[np.void]  # (n_profiles,)
    type_speed: NDArray[np.float64]  # (n_profiles, n_node_types)
    tally: NDArray[np.void]  # (1,)
    rules: NDArray[np.void]  # (1,)
    timers: NDArray[np.int32]  # (n_jobs,): heap of job rows by timer
    running: NDArray[np.int32]  # (most_running,): rows of running jobs, in no order
    node_jobs: NDArray[np.int32]  # (n_nodes, most_jobs_on_node)
    held_nodes: NDArray[np.int32]  # (n_held,)
    held_gpus: NDArray[np.int32]  # (n_held,)
    pick_nodes: NDArray[np.int32]  # (n_nodes,)
    pick_gpus: NDArray[np.int32]  # (n_nodes,)
    segments: NDArray[np.void]  # (capacity,)
    faults: NDArray[np.void]  # (n_faults,): nodes that fail and come back, in order of time


def build_state(trace: Trace, cluster: Cluster, profiles: Profiles, *, ideal: bool, loses_work: bool) -> State:
    """Build the state before the first submission; jobs that can never fit are marked and never submitted."""
    nodes, leaves, node_types = _nodes(cluster)
    jobs = _jobs(trace, profiles, nodes, node_types)
    speed = np.ones((len(profiles.names), len(node_types)))
    for column, name in enumerate(node_types):
        if name in profiles.gpu_types:
            speed[:, column] = profiles.type_speed[:, profiles.gpu_types.index(name)]
    most = int(nodes["gpus"].max())
    wanted = np.minimum(jobs["gpus_max"].astype(np.int64), len(nodes))
    jobs["pool"] = np.r_[0, wanted.cumsum()[:-1]]
    jobs["reference_speed"] = speed[jobs["profile"], np.maximum(jobs["gpu_type"], 0)]
    slots = 2 * int(nodes["gpus"].sum())
    state = State(
        jobs=jobs,
        nodes=nodes,
        leaves=leaves,
        profiles=profiles.rows.astype(PROFILE_ROW_DTYPE),
        type_speed=speed,
        tally=np.zeros(1, TALLY_DTYPE),
        rules=np.zeros(1, RULES_DTYPE),
        timers=np.full(len(jobs), NONE, np.int32),
        running=np.full(slots, NONE, np.int32),
        node_jobs=np.full((len(nodes), 2 * most), NONE, np.int32),
        held_nodes=np.full(int(wanted.sum()), NONE, np.int32),
        held_gpus=np.zeros(int(wanted.sum()), np.int32),
        pick_nodes=np.full(len(nodes), NONE, np.int32),
        pick_gpus=np.zeros(len(nodes), np.int32),
        segments=np.zeros(len(jobs) + slots + 16, SEGMENT_DTYPE),
        faults=np.zeros(0, FAULT_DTYPE),
    )
    state.tally["gpus_free"] = nodes["gpus"].sum()
    state.tally["spine_ratio"] = 1.0
    state.rules["restart_s"] = 0.0 if ideal else cluster.costs.restart_s
    _lay_links(state, cluster.network)
    state.rules["most_gpus"] = most
    state.rules["leaf_nodes"] = leaves["nodes"].max()
    state.rules["is_ideal"] = ideal
    state.rules["limits_bind"] = not ideal
    state.rules["loses_work"] = loses_work and not ideal
    return state


def _lay_links(state: State, network: Network) -> None:
    for name in ("nic_gbps", "oversubscription", "spine_oversubscription"):
        state.rules[name] = getattr(network, name)
    state.rules["node_gbps"] = network.node_gbps or np.inf
    state.rules["node_shared"] = network.node_shared and network.node_gbps > 0.0


def with_room(state: State) -> State:
    """Return the state with more room for segments."""
    return state._replace(segments=np.concatenate((state.segments, np.zeros(len(state.segments), SEGMENT_DTYPE))))


def draw_faults(state: State, cluster: Cluster, rng: np.random.Generator) -> NDArray[np.void]:
    """Draw the failures and repairs of all nodes, `(n_faults,)`, up to twice the time in which jobs are submitted."""
    if cluster.failures.node_mtbf_h == 0.0:
        return np.zeros(0, FAULT_DTYPE)
    begin, last = state.jobs["submit_time"][[0, -1]]
    faults: list[tuple[float, int, int]] = []
    for node in range(len(state.nodes)):
        fault_time = begin
        while True:
            fault_time += rng.exponential(cluster.failures.node_mtbf_h * HOUR_S)
            if fault_time > 2.0 * last - begin:
                break
            faults.append((fault_time, node, 0))
            fault_time += cluster.failures.repair_h * HOUR_S
            faults.append((fault_time, node, 1))
    return np.array(sorted(faults), FAULT_DTYPE)


def outcomes(state: State) -> NDArray[np.void]:
    """Return the outcomes of the jobs, `(n_jobs,)` of `OUTCOME_DTYPE`."""
    table = np.zeros(len(state.jobs), OUTCOME_DTYPE)
    for name in OUTCOME_DTYPE.names or ():
        table[name] = state.jobs[name]
    return table


def _nodes(cluster: Cluster) -> tuple[NDArray[np.void], NDArray[np.void], tuple[str, ...]]:
    """Lay out the nodes, leaf by leaf, and name their GPU types in the order of the groups."""
    types = cluster.gpu_types
    nodes = np.zeros(sum(group.count for group in cluster.nodes), NODE_DTYPE)
    leaf_sizes: list[int] = []
    first = 0
    for group in cluster.nodes:
        rows = nodes[first : first + group.count]
        rows["gpus"] = rows["gpus_free"] = group.gpus
        rows["cpus"] = rows["cpus_free"] = group.cpus
        rows["memory_mib"] = rows["memory_free_mib"] = group.memory_mib
        rows["gpu_type"] = types.index(group.type_name)
        size = group.leaf or group.count
        rows["leaf"] = len(leaf_sizes) + np.arange(group.count) // size
        leaf_sizes += [min(size, group.count - done) for done in range(0, group.count, size)]
        first += group.count
    nodes["is_up"] = 1
    leaves = np.zeros(len(leaf_sizes), LEAF_DTYPE)
    leaves["nodes"] = leaf_sizes
    leaves["first"] = np.r_[0, np.cumsum(leaf_sizes)[:-1]]
    leaves["gpus_free"] = np.bincount(nodes["leaf"], weights=nodes["gpus"], minlength=len(leaves)).astype(np.int32)
    return nodes, leaves, types


def _jobs(trace: Trace, profiles: Profiles, nodes: NDArray[np.void], node_types: tuple[str, ...]) -> NDArray[np.void]:
    asked = trace.jobs
    jobs = np.zeros(len(asked), JOB_DTYPE)
    same = ("submit_time", "gpus", "gpus_min", "gpus_max", "nodes_max", "cpus_per_gpu", "memory_mib_per_gpu", "user")
    for name in (*same, "account", "qos", "nice", "switches", "switches_wait_s"):
        jobs[name] = asked[name]
    jobs["work_s"] = jobs["believed_s"] = jobs["left_s"] = asked["run_time_s"]
    jobs["work_gpus"] = asked["gpus"]
    jobs["limit_s"] = asked["time_limit_s"]
    jobs["soft_limit_s"] = asked["time_min_s"]
    jobs["checkpoint_s"] = asked["checkpoint_interval_s"]
    jobs["gpu_type"] = _node_type_codes(trace, node_types)[asked["gpu_type"]]
    model_codes = np.r_[profiles.codes(trace.models), profiles.codes(("neutral",))].astype(np.int32)
    jobs["profile"] = model_codes[asked["model"]]
    # A job of any type is placed on any node; its run time refers to the first group's type.
    usable = (jobs["gpu_type"][:, None] == NONE) | (jobs["gpu_type"][:, None] == np.arange(len(node_types))[None, :])
    most_by_type = np.array([nodes["gpus"][nodes["gpu_type"] == code].max() for code in range(len(node_types))])
    most = np.where(usable, most_by_type[None, :], 0).max(axis=1)
    jobs["node_gpus"] = np.maximum(most, 1)
    jobs["best_nodes"] = -(-jobs["gpus"] // jobs["node_gpus"])
    # As in Slurm, an open node count starts from one.
    jobs["nodes_min"] = np.maximum(asked["nodes_min"], np.where(jobs["nodes_max"] == 0, 1, jobs["best_nodes"]))
    jobs["nodes_max"] = np.where(jobs["nodes_max"] == 0, 0, np.maximum(jobs["nodes_max"], jobs["nodes_min"]))
    total = np.where(usable, np.array([nodes["gpus"][nodes["gpu_type"] == c].sum() for c in range(len(node_types))]), 0)
    impossible = jobs["gpus"] > total.sum(axis=1)
    impossible |= jobs["nodes_min"] > len(nodes)
    if node_types != ("",):
        impossible |= (jobs["gpu_type"] == NONE) & (asked["gpu_type"] != NONE)
    impossible |= jobs["cpus_per_gpu"] * (jobs["gpus"] / jobs["best_nodes"]) > nodes["cpus"].max()
    impossible |= jobs["memory_mib_per_gpu"] * (jobs["gpus"] / jobs["best_nodes"]) > nodes["memory_mib"].max()
    jobs["phase"][impossible] = ENDED
    jobs["end"][impossible] = End.IMPOSSIBLE
    jobs["gpus_max"] = np.minimum(jobs["gpus_max"], np.maximum(total.sum(axis=1), jobs["gpus"]))
    _shapes(jobs)
    for name in ("heap_slot", "queue_slot", "partner"):
        jobs[name] = NONE
    for name in ("finish_time", "watch_time", "timer"):
        jobs[name] = np.inf
    for name in ("start_time", "end_time"):
        jobs[name] = np.nan
    return jobs


def _shapes(jobs: NDArray[np.void]) -> None:
    """Number the distinct requests, so that one failed placement rules out all equal ones."""
    columns = ("gpus", "gpu_type", "cpus_per_gpu", "memory_mib_per_gpu", "nodes_min", "nodes_max")
    request = np.stack([jobs[name].astype(np.int64) for name in columns], axis=1)
    jobs["shape"] = np.unique(request, axis=0, return_inverse=True)[1].reshape(-1)


def _node_type_codes(trace: Trace, node_types: tuple[str, ...]) -> NDArray[np.int32]:
    """Map the GPU types of the trace to those of the cluster; the last entry is for jobs of any type.

    A cluster of unnamed GPUs serves every type. A type that the cluster lacks maps to none; its jobs are impossible.
    """
    if node_types == ("",):
        return np.full(len(trace.gpu_types) + 1, NONE, np.int32)
    codes = [node_types.index(name) if name in node_types else NONE for name in trace.gpu_types]
    return np.array([*codes, NONE], dtype=np.int32)
