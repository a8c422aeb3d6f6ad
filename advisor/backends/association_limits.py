"""Checks whether a job of another size would still fit the limits of its associations and QOS, as slurmctld has them.

Slurm accepts the new size from everyone who has the right to change the job. A job beyond a limit then waits for ever,
or, if an Operator's change lifts the limit for the job, takes resources meant for others. In doubt nothing is changed.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from advisor.backends.assoc_text import (
    Amount,
    Amounts,
    Association,
    AssociationState,
    QosLimits,
    read_associations,
    read_partition_qos,
)
from advisor.backends.process import Commands
from advisor.backends.site_reader import running_config
from advisor.domain.actions import Action, SetGpus
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GangRequest
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.domain.units import MINUTE_S
from advisor.errors import AdvisorError

# What was read serves one round; AccountingStorageEnforce takes a restart to change.
READING_KEPT_S: Final = 20.0
CONFIG_KEPT_S: Final = 600.0

_GPU: Final = "gres/gpu"
# By limit: whether what others use counts, and whether it counts minutes.
_GROUP: Final = {"GrpTRES": False, "GrpTRESMins": True, "GrpTRESRunMins": True}
_HOLDER: Final = ("MaxTRESPU", "MaxTRESPA")
_EACH_JOB: Final = {"MaxTRESPJ": False, "MaxTRESMinsPJ": True}
_EACH_NODE: Final = "MaxTRESPN"
# Of a QOS alone.
_LEAST: Final = "MinTRESPJ"
# In minutes.
_WALL: Final = "MaxWallPJ"
# All that are checked before a job gets another size.
CHECKED: Final = (*_GROUP, *_HOLDER, *_EACH_JOB, _LEAST, _EACH_NODE, _WALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The demand of a job: GPUs in all, of each type it names, and for how many minutes (None for no limit)."""

    gpus: int
    by_type: dict[str, int]
    nodes: int
    minutes: float | None
    cpus_follow: bool
    # Of changes that were let pass on the same reading.
    others: int = 0


def demand_of(gang: GangRequest, time_limit_s: float | None, others: int = 0) -> Demand | None:
    """Return the demand of a request, None if its number of GPUs is unknown."""
    gpus = gang.gpu_count
    if gpus is None:
        return None
    counts = gang.counts(gang.scope) if gang.scope is not None else ()
    whole = sum(part.count for part in counts) or 1
    by_type = {part.gpu_type: part.count * gpus // whole for part in counts if part.gpu_type is not None}
    return Demand(
        gpus=gpus,
        by_type=by_type,
        nodes=gang.nodes_min,
        minutes=None if time_limit_s is None else time_limit_s / MINUTE_S,
        cpus_follow=gang.cpus_per_gpu is not None,
        others=others,
    )


def exceeded(job: Job, demand: Demand, state: AssociationState, qos_names: Iterable[str]) -> str | None:
    """Return the first limit that a job would exceed, or that cannot be checked; None if it fits all of them."""
    chain = chain_of(job, state)
    if not chain:
        return f"slurmctld shows no association of user {job.user!a} in account {job.account!a}"
    by_name = {qos.name: qos for qos in state.qos}
    reason = _beyond_associations(chain, demand)
    for name in qos_names:
        reason = reason or _beyond_qos(name, by_name.get(name), job, chain[0].uid, demand)
    return reason


def _beyond_associations(chain: Sequence[Association], demand: Demand) -> str | None:
    for limit in (*_EACH_JOB, _EACH_NODE):
        nearest: dict[str, Amount] = {}
        for association in reversed(chain):
            # Of each TRES the limit that stands closest to the user counts.
            nearest |= {
                tres: amount for tres, amount in association.amounts.get(limit, {}).items() if amount.most is not None
            }
        if (reason := _beyond(limit, nearest, demand)) is not None:
            return f"{reason} of {_name(chain[0])}"
    for association in chain:
        for limit in _GROUP:
            if (reason := _beyond(limit, association.amounts.get(limit, {}), demand)) is not None:
                return f"{reason} of {_name(association)}"
    reason = _beyond_wall((association.counts for association in chain), demand)
    return None if reason is None else f"{reason} of {_name(chain[0])}"


def _beyond_wall(counts: Iterable[Mapping[str, int]], demand: Demand) -> str | None:
    """Return that the time limit would be beyond that of the first of some associations, or a QOS, which has one."""
    most = next((of_one[_WALL] for of_one in counts if _WALL in of_one), None)
    if most is None or demand.minutes is None or demand.minutes <= most:
        return None
    return f"{demand.minutes:g} would be beyond {_WALL}={most},"


def chain_of(job: Job, state: AssociationState) -> list[Association]:
    """Return the associations that bind a job, the user's first and the root last; none where one is not shown."""
    accounts = [association for association in state.associations if not association.user]
    own = [
        association
        for association in state.associations
        if association.user == job.user
        and association.account == job.account
        and association.partition in ("", *job.partitions)
    ]
    above = next((account for account in accounts if account.account == job.account), None)
    if not own or above is None:
        return []
    # One for a partition stands closer than one for all.
    chain = [*sorted(own, key=lambda association: (not association.partition, association.partition)), above]
    by_id = {account.association_id: account for account in accounts}
    while above.parent_id is not None:
        parent = by_id.get(above.parent_id)
        if parent is None or parent in chain:
            return []
        chain.append(parent)
        above = parent
    return chain


def _beyond_qos(name: str, qos: QosLimits | None, job: Job, uid: str, demand: Demand) -> str | None:
    if qos is None:
        return f"slurmctld shows no QOS {name!a}"
    for limit in (*_GROUP, *_EACH_JOB, _EACH_NODE):
        if (reason := _beyond(limit, qos.amounts.get(limit, {}), demand)) is not None:
            return f"{reason} of QOS {name}"
    reason = _below(qos.amounts.get(_LEAST, {}), demand) or _beyond_wall((qos.counts,), demand)
    if reason is not None:
        return f"{reason} of QOS {name}"
    # What binds each user or account is shown with its use, and a job that waits has given its user a place there.
    for holder, limits in ((job.account, qos.by_account.get(job.account)), (job.user, qos.by_uid.get(uid))):
        if limits is None:
            return f"slurmctld does not show what QOS {name} leaves to {holder!a}"
        for limit in _HOLDER:
            if (reason := _beyond(limit, limits.get(limit, {}), demand)) is not None:
                return f"{reason} of {holder!a} in QOS {name}"
    return None


def _beyond(limit: str, amounts: Amounts, demand: Demand) -> str | None:
    """Return that a limit would be exceeded, or that it cannot be checked."""
    for tres, amount in amounts.items():
        if amount.most is None:
            continue
        wanted = _wanted(limit, tres, demand)
        if wanted is None:
            return f"the job might not fit {limit}={tres}={amount.most}"
        if wanted == 0:
            continue
        used = float(amount.used)
        if limit in (*_GROUP, *_HOLDER):
            # Whatever their type and time limit, the others are taken to count as much for each GPU.
            used += demand.others * max(1.0, wanted / demand.gpus)
        if used + wanted > amount.most:
            in_use = f", of which {used:g} are in use" if used else ""
            return f"{wanted:g} would be beyond {limit}={tres}={amount.most}{in_use},"
    return None


def _below(amounts: Amounts, demand: Demand) -> str | None:
    """Return that a job would ask for less than its QOS takes, or that it cannot be checked."""
    for tres, amount in amounts.items():
        wanted = _wanted(_LEAST, tres, demand)
        if wanted is None:
            return f"the job might be below {_LEAST}={tres}={amount.most}"
        if amount.most is not None and 0 < wanted < amount.most:
            return f"{wanted:g} would be below {_LEAST}={tres}={amount.most},"
    return None


def _wanted(limit: str, tres: str, demand: Demand) -> float | None:
    """Return how much of a TRES a job would count for, 0 where its size has no part in it, None if unknown."""
    minutes = _GROUP.get(limit, False) or _EACH_JOB.get(limit, False)
    if tres == "cpu" and not demand.cpus_follow:
        return 0
    if not tres.startswith(_GPU) or (minutes and demand.minutes is None):
        # The billing weight of GPUs depends on the partition, and memory can depend on their number.
        return None
    kind = tres.removeprefix(f"{_GPU}:") if tres != _GPU else None
    # Without a type in the request any of the GPUs can be of this one.
    gpus = demand.gpus if kind is None or not demand.by_type else demand.by_type.get(kind, 0)
    if limit == _EACH_NODE:
        gpus = math.ceil(gpus / demand.nodes)
    return gpus * demand.minutes if minutes and demand.minutes is not None else gpus


def _name(association: Association) -> str:
    if association.user:
        return f"user {association.user!a} in account {association.account!a}"
    return f"account {association.account!a}"


class AssociationLimits:
    """Asks slurmctld for the limits of a job's user before the job gets another size; one thread.

    One reading costs slurmctld two requests, and two more every ten minutes. A smaller size is checked where
    the time limit rises with it, and always where `privileged` says so, for an Operator or root.
    """

    def __init__(
        self, commands: Commands, *, privileged: Callable[[], bool], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._privileged = privileged
        self._monotonic = monotonic
        self._enforced: tuple[float, bool] | None = None
        self._read_at = -math.inf
        self._states: dict[str, AssociationState] = {}
        self._partition_qos: dict[str, str] = {}
        self._granted = 0

    def against(self, change: Recommendation, job: Job) -> str | None:
        """Return the limit that forbids a change; None if it can be sent."""
        resized = self._resized(change.action, job)
        if resized is None:
            return None
        try:
            if not self._limits_are_enforced():
                return None
            self._forget_what_is_old()
            demand = demand_of(resized.gang, resized.time_limit_s, self._granted)
            if demand is None:
                return "limits: the number of GPUs that the job would use is unknown"
            reason = exceeded(job, demand, self._state(job.user), self._qos_of(job))
        except AdvisorError as err:
            return f"limits: they cannot be read: {err}"
        if reason is not None:
            return f"limits: {reason}"
        self._granted += demand.gpus
        return None

    def _resized(self, action: Action, job: Job) -> Job | None:
        """Return a job with the size that is checked before a change; None if none is."""
        match action:
            case SetGpus() if _grows(action) or action.changes_limit or self._privileged():
                return action.applied_to(job)
            case _:
                return None

    def _limits_are_enforced(self) -> bool:
        now = self._monotonic()
        if self._enforced is None or now - self._enforced[0] >= CONFIG_KEPT_S:
            self._enforced = now, bool({"limits", "safe"} & set(running_config(self._commands).accounting_enforce))
        return self._enforced[1]

    def _forget_what_is_old(self) -> None:
        if self._monotonic() - self._read_at >= READING_KEPT_S:
            self._states, self._partition_qos, self._granted = {}, {}, 0
            self._read_at = self._monotonic()

    def _state(self, user: str) -> AssociationState:
        if user not in self._states:
            self._states[user] = read_associations(self._commands, user)
        return self._states[user]

    def _qos_of(self, job: Job) -> Iterator[str]:
        """Return the names of the job's QOS and of its partitions' QOS; an unknown one is absent from the limits."""
        if not self._partition_qos:
            self._partition_qos = read_partition_qos(self._commands)
        yield job.qos
        for partition in job.partitions:
            name = self._partition_qos.get(partition, f"of partition {partition}")
            if name:
                yield name


def _grows(action: SetGpus) -> bool:
    before = {gpus.gpu_type: gpus.count for gpus in action.before.gpus}
    return any(gpus.count > before.get(gpus.gpu_type, 0) for gpus in action.after.gpus)
