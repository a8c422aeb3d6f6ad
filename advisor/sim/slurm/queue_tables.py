"""The tables of a cluster file on partitions, QOS and associations: how a site orders and limits its queue."""

from dataclasses import fields
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as validated

_STRICT: Final = ConfigDict(extra="forbid", strict=True, defer_build=True)
_LARGEST: Final = 1_000_000_000

Limit = Annotated[int, Field(ge=0, le=_LARGEST)] | None
Name = Annotated[str, Field(min_length=1, max_length=256)]
Seconds = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None
NotNegative = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Shares = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]

PreemptType = Literal["none", "partition_prio", "qos"]
PreemptMode = Literal["off", "requeue", "cancel"]

ALL_NODES: Final = "ALL"


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class PartitionTable:
    """A partition by the names of slurm.conf; `qos` is the partition's QOS, whose limits go before the job's.

    Its `preempt_mode` and `grace_s` hold for its running jobs under preempt/partition_prio; None is the cluster's mode.
    """

    name: Name
    nodes: str = ALL_NODES
    priority_tier: Annotated[int, Field(ge=0, le=65_533)] = 1
    priority_job_factor: Annotated[int, Field(ge=0, le=65_533)] = 1
    max_time_s: Seconds = None
    max_nodes: Annotated[int, Field(ge=1, le=_LARGEST)] | None = None
    default: bool = False
    state: Literal["up", "down"] = "up"
    qos: str = ""
    preempt_mode: PreemptMode | None = None
    grace_s: NotNegative = 0.0


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class GroupLimits:
    """Limits that a QOS and an association can both have; None is no limit.

    `group_` counts all jobs of the QOS, or of the association and those below it (Grp in sacctmgr); the others are for
    one job. Minutes count GPUs times time: those used so far, and those that running jobs can still use.
    """

    group_gpus: Limit = None
    group_cpus: Limit = None
    group_jobs: Limit = None
    group_submit: Limit = None
    group_gpu_minutes: Limit = None
    group_gpu_run_minutes: Limit = None
    max_gpus_per_job: Limit = None
    max_nodes_per_job: Limit = None
    max_wall_s: Seconds = None


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class QosTable(GroupLimits):
    """A QOS; its priority counts against the largest of all.

    Under preempt/qos its jobs preempt running jobs of the QOS that `preempts` names; `preempt_mode`, `grace_s` and
    `preempt_exempt_s` hold for its own running jobs; None is what the cluster has.
    """

    name: Name
    priority: NotNegative = 0.0
    max_gpus_per_user: Limit = None
    max_cpus_per_user: Limit = None
    max_jobs_per_user: Limit = None
    max_submit_per_user: Limit = None
    max_gpus_per_account: Limit = None
    max_jobs_per_account: Limit = None
    preempts: tuple[str, ...] = ()
    preempt_mode: PreemptMode | None = None
    preempt_exempt_s: NotNegative | None = None
    grace_s: NotNegative = 0.0


@validated(frozen=True, slots=True, kw_only=True, config=_STRICT)
class AssociationTable(GroupLimits):
    """An account (`user` is empty) or a user of one; `max_` limits hold for the accounts and users below, too."""

    account: Name
    user: str = ""
    parent: str = ""
    shares: Shares = 1.0
    priority: NotNegative = 0.0
    max_jobs: Limit = None
    max_submit: Limit = None


def has_limits(table: GroupLimits) -> bool:
    """Return whether a QOS or an association limits anything."""
    return any(
        getattr(table, entry.name) is not None for entry in fields(table) if entry.name.startswith(("group_", "max_"))
    )


def contradiction(
    partitions: tuple[PartitionTable, ...], qos: tuple[QosTable, ...], associations: tuple[AssociationTable, ...]
) -> str:
    """Return what is wrong among the tables, empty if nothing is."""
    for kind, names in (
        ("partitions.name", [table.name for table in partitions]),
        ("qos.name", [table.name for table in qos]),
        ("associations", [f"{table.account}/{table.user}" for table in associations]),
    ):
        if twice := next((name for name in names if names.count(name) > 1), ""):
            return f"{kind}: {twice.rstrip('/')!r} stands twice"
    if sum(table.default for table in partitions) > 1:
        return "partitions.default: more than one is the default"
    named = [
        *(("qos.preempts", name, f"QOS {table.name}") for table in qos for name in table.preempts),
        *(("partitions.qos", table.qos, f"partition {table.name}") for table in partitions if table.qos),
    ]
    known = {table.name for table in qos}
    if unknown := next((each for each in named if each[1] not in known), None):
        where, name, owner = unknown
        return f"{where}: {name!r} of {owner} is not among the QOS"
    parents = {table.account: table.parent for table in associations if not table.user}
    for account in parents:
        above = [account]
        while (parent := parents.get(above[-1], "")) and parent not in above:
            above.append(parent)
        if parent:
            return f"associations.parent: {account!r} stands below itself"
    if odd := next((table for table in associations if table.user and table.parent), None):
        return f"associations.parent: {odd.user!r} is a user of {odd.account}, which is its parent"
    return ""
