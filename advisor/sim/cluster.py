"""The simulated cluster: node groups, network, Slurm parameters and costs, from a TOML file or a short form."""

import json
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as validated

from advisor.backends.spelling import node_names
from advisor.domain.dataclass import dataclass
from advisor.domain.releases import releases_tested
from advisor.domain.units import DAY_S
from advisor.errors import DecodeError, SimulationError
from advisor.files import parse_toml, read_bounded
from advisor.sim.slurm.queue_tables import (
    AssociationTable,
    NotNegative,
    PartitionTable,
    PreemptMode,
    PreemptType,
    QosTable,
    contradiction,
)
from advisor.sim.slurm.slurm_settings import SCHEDULER_WORDS_LEFT_OUT, PriorityFlag

# The GPU type of nodes that run jobs of every type.
ANY_TYPE: Final = "any"

# The release that most of the model was observed on.
_MODELLED_RELEASE: Final = releases_tested()[0]

_STRICT = ConfigDict(extra="forbid", strict=True, defer_build=True)
_LARGEST = 1_000_000
_LARGEST_FILE_BYTES = 2**20

Count = Annotated[int, Field(ge=1, le=_LARGEST)]
Unlimited = Annotated[int, Field(ge=0, le=_LARGEST)]
Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Oversubscription = Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)]


class NodeState(StrEnum):
    """The state of nodes at the beginning; drained nodes start no jobs."""

    UP = "up"
    DRAINED = "drained"


class NodeChange(StrEnum):
    """What an administrator does to nodes; drained nodes keep their running jobs."""

    DRAINED = "drained"
    RESUMED = "resumed"


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class NodeGroup:
    """A group of equal nodes; `leaf` of them share a leaf switch (0: all).

    Groups that name the same `switch` are together under one leaf switch. Without `names`, nodes are numbered.
    """

    count: Count
    gpus: Annotated[int, Field(ge=0, le=64)]
    gpu_type: str = ""
    cpus: Count = 128
    memory_mib: Annotated[int, Field(ge=1, le=10**12)] = 1_048_576
    leaf: Annotated[int, Field(ge=0, le=_LARGEST)] = 0
    names: str = ""
    features: tuple[str, ...] = ()
    weight: NotNegative = 1.0
    switch: str = ""
    state: NodeState = NodeState.UP

    @property
    def type_name(self) -> str:
        """The name of the GPU type; empty for GPUs without a name or of any type."""
        return "" if self.gpu_type == ANY_TYPE else self.gpu_type


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Network:
    """The bandwidths of the links, from inside a node up to the spine.

    GPUs of one node exchange `node_gbps` (0: no limit); if it is shared, the gangs on the node divide it. A node sends
    at most `nic_gbps`. An oversubscription is the incoming bandwidth over the outgoing bandwidth: of the uplinks of a
    leaf, and of the spine between all uplinks.
    """

    node_gbps: NotNegative = 0.0
    node_shared: bool = False
    nic_gbps: Positive = 100.0
    oversubscription: Oversubscription = 1.0
    spine_oversubscription: Oversubscription = 1.0


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Costs:
    """The cost of stopping a job and starting it again: `restart_s` without progress at every start but the first."""

    restart_s: NotNegative = 60.0


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Failures:
    """Random node failures; `node_mtbf_h` of 0 means none."""

    node_mtbf_h: NotNegative = 0.0
    repair_h: Positive = 4.0


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class SlurmParameters:
    """Slurm parameters by their names in slurm.conf; times and depths default to those of Slurm.

    The default priority weights are ours (those of Slurm are all 0, which is first come, first served). Two periods
    of slurmctld are not settable in slurm.conf: it checks every `tick_s` whether to run the main pass, and ends jobs
    that exceed their limits every `limit_check_s`. A requeued job is held back for `requeue_delay_s`, which follows
    from cred_expire of AuthInfo. Without words of AccountingStorageEnforce, limits are enforced if there are any.
    """

    release: Annotated[str, Field(pattern=r"^\d\d\.\d\d$")] = _MODELLED_RELEASE
    default_queue_depth: Count = 100
    partition_job_depth: Unlimited = 0
    batch_sched_delay_s: NotNegative = 3.0
    sched_interval_s: Positive = 60.0
    bf_interval_s: Positive = 30.0
    bf_max_job_test: Count = 500
    bf_max_job_user: Unlimited = 0
    bf_max_job_part: Unlimited = 0
    bf_max_job_assoc: Unlimited = 0
    bf_max_job_user_part: Unlimited = 0
    bf_max_job_start: Unlimited = 0
    bf_job_part_count_reserve: Unlimited = 0
    bf_min_prio_reserve: NotNegative = 0.0
    bf_min_age_reserve_s: NotNegative = 0.0
    bf_resolution_s: Positive = 60.0
    bf_window_s: Positive = DAY_S
    max_switch_wait_s: NotNegative = 300.0
    time_min_as_soft_limit: bool = False
    priority_weight_age: NotNegative = 1000.0
    priority_weight_fairshare: NotNegative = 10_000.0
    priority_weight_job_size: NotNegative = 0.0
    priority_weight_qos: NotNegative = 0.0
    priority_weight_partition: NotNegative = 0.0
    priority_weight_assoc: NotNegative = 0.0
    priority_weight_tres: Mapping[Literal["cpu", "mem", "gres/gpu"], NotNegative] = field(default_factory=dict)
    priority_favor_small: bool = False
    priority_flags: tuple[PriorityFlag, ...] = ()
    priority_max_age_s: Positive = 604_800.0
    priority_calc_period_s: Positive = 300.0
    priority_decay_half_life_s: NotNegative = 604_800.0
    tick_s: NotNegative = 1.0
    limit_check_s: NotNegative = 30.0
    tres_billing_weights: Mapping[Literal["cpu", "mem", "gpu"], NotNegative] = field(
        default_factory=lambda: {"gpu": 1.0}
    )
    requeue_delay_s: NotNegative = 121.0
    preempt_type: PreemptType = "none"
    preempt_mode: PreemptMode = "off"
    preempt_exempt_s: NotNegative = 0.0
    kill_wait_s: NotNegative = 30.0
    message_timeout_s: NotNegative = 10.0
    accounting_storage_enforce: tuple[Literal["associations", "limits", "nojobs", "nosteps", "qos", "safe"], ...] = ()


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class NodeReservation:
    """Nodes that an administrator sets aside for a time on the clock of the trace.

    Jobs that name the reservation run there, if their user or account is listed or neither list is given; during
    `maintenance` none does.
    """

    name: str
    nodes: str
    start_s: NotNegative
    end_s: NotNegative
    maintenance: bool = False
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of its nodes."""
        return names_in(self.nodes)


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class StateChange:
    """A change of the state of nodes at an instant on the clock of the trace."""

    nodes: str
    time_s: NotNegative
    state: NodeChange

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return names_in(self.nodes)


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class Cluster:
    """A simulated cluster as described by a cluster file."""

    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    network: Network = field(default_factory=Network)
    costs: Costs = field(default_factory=Costs)
    failures: Failures = field(default_factory=Failures)
    slurm: SlurmParameters = field(default_factory=SlurmParameters)
    partitions: tuple[PartitionTable, ...] = ()
    qos: tuple[QosTable, ...] = ()
    associations: tuple[AssociationTable, ...] = ()
    reservations: tuple[NodeReservation, ...] = ()
    events: tuple[StateChange, ...] = ()

    @property
    def groups_by_switch(self) -> tuple[NodeGroup, ...]:
        """The groups of nodes; those that share a switch follow the first of them."""
        first = {group.switch: place for place, group in reversed(list(enumerate(self.nodes)))}
        places = [first[group.switch] if group.switch else place for place, group in enumerate(self.nodes)]
        order = sorted(range(len(places)), key=lambda place: (places[place], place))
        return tuple(self.nodes[place] for place in order)

    @property
    def group_by_node(self) -> tuple[NodeGroup, ...]:
        """The group of each node, leaf by leaf."""
        return tuple(group for group in self.groups_by_switch for _ in range(group.count))

    @property
    def names_nodes(self) -> bool:
        """Whether the names of nodes are given."""
        return any(group.names for group in self.nodes)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The names of the nodes, leaf by leaf; `n1` and so on by their places unless given."""
        width = len(str(sum(group.count for group in self.nodes)))
        names: list[str] = []
        for group in self.groups_by_switch:
            numbered = tuple(f"n{len(names) + row + 1:0{width}d}" for row in range(group.count))
            names += names_in(group.names) if group.names else numbered
        return tuple(names)

    @property
    def gpus(self) -> int:
        """The total number of GPUs."""
        return sum(group.count * group.gpus for group in self.nodes)

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The distinct names of the GPU types in the order of the groups; empty for GPUs without a name."""
        return tuple(dict.fromkeys(group.type_name for group in self.nodes))

    @property
    def merges_types(self) -> bool:
        """Whether its GPUs are declared to run jobs of every type."""
        return any(group.gpu_type == ANY_TYPE for group in self.nodes)


def _truth(word: str) -> bool:
    if word not in ("true", "false"):
        raise ValueError(word)
    return word == "true"


@dataclass(frozen=True, slots=True)
class _Short:
    """A word of the short form, the table it belongs to and how its value is read."""

    table: str
    key: str
    kind: Callable[[str], object]


_SHORT = {
    "nodes": _Short("nodes", "count", int),
    "gpus": _Short("nodes", "gpus", int),
    "type": _Short("nodes", "gpu_type", str),
    "leaf": _Short("nodes", "leaf", int),
    "cpus": _Short("nodes", "cpus", int),
    "memory_mib": _Short("nodes", "memory_mib", int),
    "node_gbps": _Short("network", "node_gbps", float),
    "node_shared": _Short("network", "node_shared", _truth),
    "nic_gbps": _Short("network", "nic_gbps", float),
    "oversubscription": _Short("network", "oversubscription", float),
    "spine_oversubscription": _Short("network", "spine_oversubscription", float),
    "restart_s": _Short("costs", "restart_s", float),
}


def parse_cluster(text: str) -> Cluster:
    """Read a cluster from the short form `nodes=64,gpus=8,leaf=8`, or else from the TOML file of that name.

    Raises `SimulationError` for values that are unknown, missing or out of bounds.
    """
    if is_short_form(text):
        return _validated(_short(text), f"--cluster {text}")
    return _validated(_toml(Path(text)), text)


def is_short_form(text: str) -> bool:
    """Return whether a text describes a cluster itself, and is not the name of a file."""
    return "=" in text and not Path(text).exists()


def _short(text: str) -> dict[str, Any]:
    tables: dict[str, Any] = {"nodes": {}}
    for word in text.split(","):
        key, _, value = word.strip().partition("=")
        known = _SHORT.get(key)
        if known is None:
            raise SimulationError(f"--cluster {text}: {key!r} is not known: {_nearest(key, tuple(_SHORT))}")
        try:
            tables.setdefault(known.table, {})[known.key] = known.kind(value)
        except ValueError as err:
            wrong = "neither true nor false" if known.kind is _truth else "no number"
            raise SimulationError(f"--cluster {text}: {key}={value} is {wrong}") from err
    tables["nodes"] = [tables["nodes"]]
    return tables


def _toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_bounded(path, _LARGEST_FILE_BYTES).decode())
    except FileNotFoundError as err:
        raise SimulationError(
            f"{path}: no such cluster file; write one, or a short form such as nodes=64,gpus=8,leaf=8"
        ) from err
    except UnicodeDecodeError as err:
        raise SimulationError(f"{path}: not UTF-8 text") from err
    except OSError as err:
        raise SimulationError(f"{path}: cannot be read: {err.strerror}") from err
    except ValueError as err:
        raise SimulationError(f"{path}: not valid TOML: {err}") from err


def _validated(tables: dict[str, Any], origin: str) -> Cluster:
    for key, instead in _REPLACED.items():
        if isinstance(tables.get("slurm"), dict) and key in tables["slurm"]:
            raise SimulationError(f"{origin}: slurm.{key} is no longer read: {instead}")
    try:
        # As JSON, because in strict mode pydantic makes dataclasses of nothing else.
        cluster = _ADAPTER.validate_json(json.dumps(tables, default=str))
    except ValidationError as err:
        error = err.errors(include_url=False)[0]
        where = ".".join(str(step) for step in error["loc"])
        if error["loc"][-1] in SCHEDULER_WORDS_LEFT_OUT:
            raise SimulationError(f"{origin}: {where}: the model of slurmctld leaves this parameter out") from err
        if error["type"] == "unexpected_keyword_argument":
            hint = _nearest(str(error["loc"][-1]), _known_keys(error["loc"][:-1]))
            raise SimulationError(f"{origin}: {where} is not known: {hint}") from err
        if error["type"] == "missing":
            raise SimulationError(f"{origin}: {where} is missing") from err
        raise SimulationError(f"{origin}: {where}: {error['msg']}, not {error['input']!r}") from err
    try:
        _check_nodes(cluster)
    except SimulationError as err:
        raise SimulationError(f"{origin}: {err}") from err
    if cluster.merges_types and cluster.gpu_types != ("",):
        named = next(name for name in cluster.gpu_types if name)
        raise SimulationError(
            f"{origin}: nodes.gpu_type: {ANY_TYPE!r} stands beside {named!r}: "
            f"name the type of every group, or give {ANY_TYPE!r} to all"
        )
    if fault := contradiction(cluster.partitions, cluster.qos, cluster.associations):
        raise SimulationError(f"{origin}: {fault}")
    return cluster


@cache
def names_in(node_list: str) -> tuple[str, ...]:
    """Unfold a node list such as `n[01-08]`, sorted by name; raise `SimulationError` if it is none."""
    try:
        names = node_names(node_list, field="nodes")
    except DecodeError as err:
        raise SimulationError(f"{node_list[:40]!a} is not a node list such as n[01-08]") from err
    if node_list and not names:
        raise SimulationError(f"{node_list[:40]!a} names no node")
    return names


def _check_nodes(cluster: Cluster) -> None:
    """Raise `SimulationError` for nodes, reservations and events that contradict each other."""
    if not cluster.gpus:
        raise SimulationError("nodes.gpus: no node has a GPU")
    for group in cluster.nodes:
        named = len(names_in(group.names))
        if group.names and named != group.count:
            raise SimulationError(f"nodes.names: {group.names} are {named} nodes, and count is {group.count}")
        if group.switch and group.leaf:
            raise SimulationError(f"nodes.switch: {group.switch} stands beside leaf: give one of the two")
    _check_names(cluster)
    for reservation in cluster.reservations:
        if reservation.end_s <= reservation.start_s:
            raise SimulationError(f"reservations.end_s: {reservation.name} ends before it starts")


def _check_names(cluster: Cluster) -> None:
    known = set(cluster.node_names)
    if len(known) < len(cluster.node_names):
        raise SimulationError("nodes.names: two nodes have the same name")
    for table, named in (("reservations", cluster.reservations), ("events", cluster.events)):
        for each in named:
            if strange := [name for name in each.node_names if name not in known]:
                raise SimulationError(f"{table}.nodes: there is no node {strange[0]}")


_TABLES: Mapping[str, type] = {
    "nodes": NodeGroup,
    "network": Network,
    "costs": Costs,
    "failures": Failures,
    "slurm": SlurmParameters,
    "partitions": PartitionTable,
    "qos": QosTable,
    "associations": AssociationTable,
    "reservations": NodeReservation,
    "events": StateChange,
}
# Keys of earlier releases.
_REPLACED: Final[Mapping[str, str]] = {
    "qos_priority": 'write [[qos]] with name = "..." and priority = ... for every QOS',
    "account_shares": 'write [[associations]] with account = "..." and shares = ... for every account',
}
_ADAPTER = TypeAdapter(Cluster)


def _known_keys(path: tuple[int | str, ...]) -> tuple[str, ...]:
    if not path:
        return tuple(_TABLES)
    return tuple(key.name for key in fields(_TABLES[str(path[0])]))


def _nearest(word: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
