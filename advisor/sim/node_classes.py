"""Which nodes each job can use, by its constraint, node lists, GPU type and reservation: one row per kind of job."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, names_in
from advisor.sim.traces.trace import Trace

CLOSED, USABLE, REQUIRED = 0, 1, 2
_NONE: Final = -1
_WORD: Final = re.compile(r"\s*([&|]|[^&|\s]+)")
# What decides a class; codes of the trace.
_COLUMNS: Final = ("features", "required_nodes", "excluded_nodes", "gpu_type", "reservation", "nodes_min", "gpus")

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClasses:
    """The classes of a trace on a cluster; `of_job` is -1 for a job that can use all nodes."""

    usable: NDArray[np.int8]  # (n_classes, n_nodes)
    of_job: NDArray[np.int32]  # (n_jobs,)
    required: NDArray[np.int32]  # (n_jobs,): nodes that the job names
    booking: NDArray[np.int32]  # (n_jobs,): row of the reservation that the job names, -1: none
    refused: Flags  # (n_jobs,): jobs that name what does not exist, or what they cannot use
    booked: NDArray[np.int8]  # (n_reservations, n_nodes)


def classes_of(trace: Trace, cluster: Cluster, type_of_node: NDArray[np.int32]) -> NodeClasses:
    """Return the classes of the jobs; what the cluster does not name does not count.

    `type_of_node` `(n_nodes,)` are codes of the GPU types of the cluster. Raises `SimulationError` for a constraint or
    a node list that cannot be read.
    """
    jobs, count = trace.jobs, len(type_of_node)
    names = cluster.node_names
    booked = np.array([np.isin(names, each.node_names) for each in cluster.reservations], np.int8)
    request = np.stack([jobs[name].astype(np.int64) for name in _relevant(trace, cluster)], axis=1)
    _, first, kind = np.unique(request, axis=0, return_index=True, return_inverse=True)
    kind = kind.reshape(-1)
    of_kind, required, booking = (np.full(len(first), value, np.int32) for value in (_NONE, 0, _NONE))
    unknown = np.zeros(len(first), np.bool_)
    code_by_row: dict[bytes, int] = {}
    for place, job in enumerate(jobs[first]):
        try:
            row = _row(trace, cluster, type_of_node, job)
            booking[place] = _reservation(trace, cluster, job)
        except _UnknownNameError:
            unknown[place] = True
            continue
        if booking[place] != _NONE:
            row = np.where(booked[booking[place]] == 1, row, CLOSED).astype(np.int8)
        required[place] = np.count_nonzero(row == REQUIRED)
        if np.any(row != USABLE):
            of_kind[place] = code_by_row.setdefault(row.tobytes(), len(code_by_row))
    refused = unknown[kind]
    for code in range(len(cluster.reservations)):
        refused |= (booking[kind] == code) & ~_can_use(trace, cluster, code)
    return NodeClasses(
        usable=np.frombuffer(b"".join(code_by_row), np.int8).reshape(-1, count).copy(),
        of_job=of_kind[kind],
        required=required[kind],
        booking=booking[kind],
        refused=refused,
        booked=booked.reshape(-1, count),
    )


class _UnknownNameError(Exception):
    """A job names a node or a reservation that the cluster does not have."""


def is_readable(constraint: str) -> bool:
    """Return whether a constraint is one that the model knows."""
    try:
        for alternative in constraint.strip("[]").split("|") if constraint.startswith("[") else [constraint]:
            _evaluated(alternative, (), constraint)
    except SimulationError:
        return False
    return True


def _relevant(trace: Trace, cluster: Cluster) -> list[str]:
    """Return the columns that distinguish the jobs of the trace on this cluster; at least one."""
    sizes = _uses(trace, "features") and any("[" in text for text in trace.features)
    named = {
        "features": _uses(trace, "features") and any(group.features for group in cluster.nodes),
        "required_nodes": _uses(trace, "required_nodes") and cluster.names_nodes,
        "excluded_nodes": _uses(trace, "excluded_nodes") and cluster.names_nodes,
        "gpu_type": True,
        "reservation": _uses(trace, "reservation") and bool(cluster.reservations),
        "nodes_min": sizes,
        "gpus": sizes,
    }
    return [name for name in _COLUMNS if named[name]]


def _uses(trace: Trace, column: str) -> bool:
    table = {"features": trace.features, "reservation": trace.reservations}.get(column)
    table = table if table is not None else getattr(trace, column)
    return any(table)


def _row(trace: Trace, cluster: Cluster, type_of_node: NDArray[np.int32], job: np.void) -> NDArray[np.int8]:
    """Return what each node is to a job, `(n_nodes,)`."""
    usable = np.ones(len(type_of_node), np.bool_)
    if job["gpu_type"] >= 0 and cluster.gpu_types != ("",):
        wanted = trace.gpu_types[job["gpu_type"]]
        codes = [code for code, name in enumerate(cluster.gpu_types) if name == wanted]
        usable &= np.isin(type_of_node, codes)
    required = np.zeros(len(usable), np.bool_)
    if cluster.names_nodes:
        names = cluster.node_names
        asked = names_in(trace.required_nodes[job["required_nodes"]])
        if set(asked) - set(names):
            raise _UnknownNameError
        required = np.isin(names, asked)
        usable &= ~np.isin(names, names_in(trace.excluded_nodes[job["excluded_nodes"]]))
    text = trace.features[job["features"]]
    if text and any(group.features for group in cluster.nodes):
        usable &= _matching(text, cluster, usable, job)
    if np.any(required & ~usable):
        raise _UnknownNameError
    return np.where(required, REQUIRED, usable).astype(np.int8)


def _matching(text: str, cluster: Cluster, usable: Flags, job: np.void) -> Flags:
    """Mark the nodes that meet a constraint, `(n_nodes,)`."""
    groups = cluster.group_by_node
    if not (text.startswith("[") and text.endswith("]")):
        return _evaluated(text, [group.features for group in groups], text)
    # All nodes of the job have the same one of these: the first with which it fits an idle cluster.
    gpus = np.array([group.gpus for group in groups])
    for alternative in text[1:-1].split("|"):
        meets = _evaluated(alternative, [group.features for group in groups], text)
        nodes = meets & usable
        if np.count_nonzero(nodes) >= max(1, job["nodes_min"]) and gpus[nodes].sum() >= job["gpus"]:
            return meets
    return np.zeros(len(groups), np.bool_)


def _evaluated(text: str, features: Sequence[tuple[str, ...]], whole: str) -> Flags:
    """Evaluate names joined by & and |, from left to right as Slurm does, at every node."""
    words = _WORD.findall(text)
    if len(words) % 2 == 0 or any((word in "&|") != bool(place % 2) for place, word in enumerate(words)):
        raise _unreadable(whole)
    if any(set(word) & set("*[]()!@") for word in words):
        raise _unreadable(whole)
    met = _having(words[0], features)
    for operator, name in zip(words[1::2], words[2::2], strict=True):
        met = met & _having(name, features) if operator == "&" else met | _having(name, features)
    return met


def _having(name: str, features: Sequence[tuple[str, ...]]) -> Flags:
    return np.array([name in of_node for of_node in features], np.bool_)


def _unreadable(text: str) -> SimulationError:
    return SimulationError(
        f"constraint {text[:40]!a} is not known: write names joined by & or |, or [a|b] for one that all nodes share; "
        "counts and parentheses are not modelled"
    )


def _reservation(trace: Trace, cluster: Cluster, job: np.void) -> int:
    """Return the row of the reservation that a job names, -1 for none."""
    name = trace.reservations[job["reservation"]]
    if not name or not cluster.reservations:
        return _NONE
    for row, each in enumerate(cluster.reservations):
        if each.name == name:
            return row
    raise _UnknownNameError


def _can_use(trace: Trace, cluster: Cluster, row: int) -> Flags:
    """Mark the jobs that can use a reservation, `(n_jobs,)`."""
    reservation = cluster.reservations[row]
    if not reservation.users and not reservation.accounts:
        return np.full(len(trace), not reservation.maintenance)
    users = np.isin(trace.users, reservation.users)[trace.jobs["user"]]
    return np.asarray(users | np.isin(trace.accounts, reservation.accounts)[trace.jobs["account"]])
