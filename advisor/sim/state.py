"""The state of a simulated cluster: arrays that the compiled loops read and write in place.

A row of `jobs` is a row of the trace. The allocation of a job is in `held_nodes` and `held_gpus`: `span` entries from
its offset `pool` on.
"""

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.sim.cluster import Cluster, Network
from advisor.sim.node_classes import NodeClasses, classes_of
from advisor.sim.profiles import PROFILE_DTYPE, Profiles
from advisor.sim.run_outcome import OUTCOME_DTYPE, SEGMENT_DTYPE, End
from advisor.sim.traces.trace import Trace


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
        ("memory_mib_per_node", np.int64),  # at least
        ("gpus", np.int32),  # asked for now; 0: CPUs alone
        ("work_gpus", np.int32),  # asked for at first: the size that work_s refers to
        ("gpus_min", np.int32),
        ("gpus_max", np.int32),
        ("nodes_min", np.int32),  # never 0
        ("nodes_max", np.int32),  # 0: open
        ("best_nodes", np.int32),
        ("node_gpus", np.int32),  # of the largest node that it can use
        ("cpus_per_gpu", np.int32),
        ("cpus_per_node", np.int32),  # at least
        ("cpus", np.int32),  # asked for in all; 0: as cpus_per_gpu says
        ("gpu_type", np.int32),
        ("node_class", np.int32),  # its row of `usable`; NONE: it can use all nodes
        ("required", np.int32),  # nodes that it names
        ("booking", np.int32),  # the reservation that it names
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
        ("idle_gpus", np.int32),  # of its exclusive nodes, beyond those it asked for
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
        ("exclusive", np.int8),  # shares no node
    ],
    align=True,
)

NODE_DTYPE = np.dtype(
    [
        ("memory_mib", np.int64),
        ("memory_free_mib", np.int64),
        ("pressure", np.float64),  # on its NIC, of the jobs here that span nodes
        ("inner_pressure", np.float64),  # on the links inside it, of the jobs of several GPUs
        ("weight", np.float64),  # nodes of lower weight are taken first
        ("gpus", np.int32),
        ("gpus_free", np.int32),
        ("cpus", np.int32),
        ("cpus_free", np.int32),
        ("gpu_type", np.int32),
        ("leaf", np.int32),
        ("running", np.int32),  # jobs here, guests included
        ("is_up", np.int8),  # takes jobs: neither failed nor drained
        ("is_failed", np.int8),
        ("is_drained", np.int8),
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
        ("pending", np.int64),  # and eligible
        ("waiting", np.int64),  # pending and not eligible
        ("faults", np.int64),  # faults before this one have happened
        ("picked", np.int64),  # nodes in the present pick
        ("gpus_free", np.int64),  # on nodes that are down, too
        ("loaded", np.int64),  # nodes under the leaves that jobs cross
        ("spine_ratio", np.float64),  # of what the loaded uplinks carry, what the spine does
        ("changes", np.int64),  # changes of pending jobs that a policy has made, those taken back included
    ],
    align=True,
)

PROFILE_ROW_DTYPE = np.dtype(PROFILE_DTYPE.descr, align=True)

# `kind` is a `NodeEvent`, see `node_events`.
FAULT_DTYPE = np.dtype([("time", np.float64), ("node", np.int32), ("kind", np.int8)], align=True)

BOOKING_DTYPE = np.dtype([("start_time", np.float64), ("end_time", np.float64)], align=True)

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
        ("binds", np.int8),  # CPUs or memory can run out before GPUs do
        ("cpus_alone", np.int8),  # there are jobs without GPUs
        ("weighs", np.int8),  # nodes differ in weight
    ],
    align=True,
)


# The columns of `State.pace`: two for each tier of the engine.
PACES: Final = 6


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
    faults: NDArray[np.void]  # (n_faults,): what happens to nodes, in order of time
    usable: NDArray[np.int8]  # (n_classes, n_nodes): 0: a class of jobs cannot use a node, 2: it requires it
    bookings: NDArray[np.void]  # (n_bookings,): reservations of administrators
    booked: NDArray[np.int8]  # (n_bookings, n_nodes): their nodes
    pace: NDArray[np.float64]  # (n_paced, 6): under ideal execution, rates by tier, on the fewest nodes and on more


def build_state(trace: Trace, cluster: Cluster, profiles: Profiles, *, ideal: bool, loses_work: bool) -> State:
    """Build the state before the first submission; jobs that can never fit are marked and never submitted."""
    nodes, leaves, node_types = _nodes(cluster)
    classes = classes_of(trace, cluster, nodes["gpu_type"])
    jobs = _jobs(trace, profiles, nodes, node_types, classes)
    speed = np.ones((len(profiles.names), len(node_types)))
    for column, name in enumerate(node_types):
        if name in profiles.gpu_types:
            speed[:, column] = profiles.type_speed[:, profiles.gpu_types.index(name)]
    most = int(nodes["gpus"].max())
    wanted = np.minimum(np.maximum(jobs["gpus_max"].astype(np.int64), jobs["nodes_min"]), len(nodes))
    jobs["pool"] = np.r_[0, wanted.cumsum()[:-1]]
    jobs["reference_speed"] = speed[jobs["profile"], np.maximum(jobs["gpu_type"], 0)]
    cpus_alone = bool(np.any(jobs["gpus"] == 0))
    # Every job holds a GPU, shared by two at most, or else a CPU.
    slots = 2 * int(nodes["gpus"].sum()) + cpus_alone * min(int(nodes["cpus"].sum()), len(jobs))
    on_node = 2 * most + cpus_alone * min(int(nodes["cpus"].max()), len(jobs))
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
        node_jobs=np.full((len(nodes), on_node), NONE, np.int32),
        held_nodes=np.full(int(wanted.sum()), NONE, np.int32),
        held_gpus=np.zeros(int(wanted.sum()), np.int32),
        pick_nodes=np.full(len(nodes), NONE, np.int32),
        pick_gpus=np.zeros(len(nodes), np.int32),
        segments=np.zeros(len(jobs) + slots + 16, SEGMENT_DTYPE),
        faults=np.zeros(0, FAULT_DTYPE),
        usable=classes.usable,
        bookings=np.array([(each.start_s, each.end_s) for each in cluster.reservations], BOOKING_DTYPE),
        booked=classes.booked,
        pace=np.ones((0, PACES)),
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
    state.rules["binds"] = _binds(jobs, nodes)
    state.rules["cpus_alone"] = cpus_alone
    state.rules["weighs"] = np.ptp(nodes["weight"]) > 0.0
    return state


def _lay_links(state: State, network: Network) -> None:
    for name in ("nic_gbps", "oversubscription", "spine_oversubscription"):
        state.rules[name] = getattr(network, name)
    state.rules["node_gbps"] = network.node_gbps or np.inf
    state.rules["node_shared"] = network.node_shared and network.node_gbps > 0.0


def with_room(state: State) -> State:
    """Return the state with more room for segments."""
    return state._replace(segments=np.concatenate((state.segments, np.zeros(len(state.segments), SEGMENT_DTYPE))))


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
    first, switch = 0, ""
    for group in cluster.groups_by_switch:
        rows = nodes[first : first + group.count]
        rows["gpus"] = rows["gpus_free"] = group.gpus
        rows["cpus"] = rows["cpus_free"] = group.cpus
        rows["memory_mib"] = rows["memory_free_mib"] = group.memory_mib
        rows["gpu_type"] = types.index(group.type_name)
        rows["weight"] = group.weight
        if group.switch and group.switch == switch:
            rows["leaf"] = len(leaf_sizes) - 1
            leaf_sizes[-1] += group.count
        else:
            size = group.leaf or group.count
            rows["leaf"] = len(leaf_sizes) + np.arange(group.count) // size
            leaf_sizes += [min(size, group.count - done) for done in range(0, group.count, size)]
        switch = group.switch
        first += group.count
    nodes["is_up"] = 1
    leaves = np.zeros(len(leaf_sizes), LEAF_DTYPE)
    leaves["nodes"] = leaf_sizes
    leaves["first"] = np.r_[0, np.cumsum(leaf_sizes)[:-1]]
    leaves["gpus_free"] = np.bincount(nodes["leaf"], weights=nodes["gpus"], minlength=len(leaves)).astype(np.int32)
    return nodes, leaves, types


def _jobs(
    trace: Trace,
    profiles: Profiles,
    nodes: NDArray[np.void],
    node_types: tuple[str, ...],
    classes: NodeClasses,
) -> NDArray[np.void]:
    asked = trace.jobs
    jobs = np.zeros(len(asked), JOB_DTYPE)
    same = ("submit_time", "gpus", "gpus_min", "gpus_max", "nodes_max", "cpus_per_gpu", "memory_mib_per_gpu", "user")
    for name in (*same, "account", "qos", "nice", "switches", "switches_wait_s", "cpus", "exclusive"):
        jobs[name] = asked[name]
    jobs["node_class"], jobs["required"], jobs["booking"] = classes.of_job, classes.required, classes.booking
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
    _count_nodes(jobs, asked)
    total = np.where(usable, np.array([nodes["gpus"][nodes["gpu_type"] == c].sum() for c in range(len(node_types))]), 0)
    impossible = jobs["gpus"] > total.sum(axis=1)
    impossible |= (jobs["nodes_min"] > len(nodes)) | classes.refused
    impossible |= jobs["required"] > jobs["nodes_min"]
    if node_types != ("",):
        impossible |= (jobs["gpu_type"] == NONE) & (asked["gpu_type"] != NONE)
    # Spread over as many nodes as it can take, it asks least of each.
    most_nodes = np.where(jobs["nodes_max"] == 0, np.minimum(jobs["gpus"], len(nodes)), jobs["nodes_max"])
    on_node = jobs["gpus"] / np.maximum(most_nodes, 1)
    impossible |= jobs["cpus_per_gpu"] * on_node > nodes["cpus"].max()
    impossible |= jobs["memory_mib_per_gpu"] * on_node > nodes["memory_mib"].max()
    jobs["phase"][impossible] = ENDED
    jobs["end"][impossible] = End.IMPOSSIBLE
    jobs["gpus_max"] = np.minimum(jobs["gpus_max"], np.maximum(total.sum(axis=1), jobs["gpus"]))
    number_shapes(jobs)
    for name in ("heap_slot", "queue_slot", "partner"):
        jobs[name] = NONE
    for name in ("finish_time", "watch_time", "timer"):
        jobs[name] = np.inf
    for name in ("start_time", "end_time"):
        jobs[name] = np.nan
    return jobs


def _count_nodes(jobs: NDArray[np.void], asked: NDArray[np.void]) -> None:
    """Fill in the node counts, and what a job takes of each node at least."""
    is_open = jobs["nodes_max"] == 0
    # As in Slurm, an open node count starts from one.
    least = np.where(is_open, 1, np.maximum(jobs["best_nodes"], 1))
    named = np.where(is_open, jobs["required"], np.minimum(jobs["required"], jobs["nodes_max"]))
    jobs["nodes_min"] = np.maximum.reduce([asked["nodes_min"], least, named])
    jobs["nodes_max"] = np.where(is_open, 0, np.maximum(jobs["nodes_max"], jobs["nodes_min"]))
    jobs["memory_mib_per_node"] = asked["memory_mib"]
    jobs["cpus_per_node"] = np.maximum(-(-asked["cpus"] // jobs["nodes_min"]), jobs["gpus"] == 0)


def _binds(jobs: NDArray[np.void], nodes: NDArray[np.void]) -> bool:
    """Return whether CPUs or memory could run out on some node before its GPUs do."""
    if np.any((jobs["gpus"] == 0) | (jobs["exclusive"] == 1)):
        return True
    # Of a job with an open node count a node can hold a single GPU.
    fixed = jobs["nodes_min"] == jobs["nodes_max"]
    on_node = np.maximum(np.where(fixed, jobs["gpus"] // jobs["nodes_min"], 1), 1)
    cpus = np.maximum(jobs["cpus_per_gpu"], -(-jobs["cpus_per_node"] // on_node))
    memory_mib = np.maximum(jobs["memory_mib_per_gpu"], -(-jobs["memory_mib_per_node"] // on_node))
    return bool(
        np.any(cpus.max() * nodes["gpus"] > nodes["cpus"])
        or np.any(memory_mib.max() * nodes["gpus"] > nodes["memory_mib"])
    )


def number_shapes(jobs: NDArray[np.void]) -> None:
    """Number the distinct requests, so that one failed placement rules out all equal ones."""
    columns = (
        "gpus",
        "gpu_type",
        "cpus_per_gpu",
        "memory_mib_per_gpu",
        "nodes_min",
        "nodes_max",
        "cpus_per_node",
        "memory_mib_per_node",
        "exclusive",
        "node_class",
        "booking",
    )
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
