"""The counters of the model of slurmctld for QOS and association limits, and which jobs count in which."""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import MINUTE_S
from advisor.sim.slurm.queue_tables import AssociationTable, GroupLimits, QosTable, has_limits
from advisor.sim.state import NONE


class CounterKind(IntEnum):
    """What a counter counts, as in `engine/limits.c`."""

    JOBS = 0
    GPUS = 1
    CPUS = 2
    RUN_S = 3  # GPU-seconds that running jobs can still use
    USED_S = 4  # GPU-seconds used; the counter after it is one of RUN_S
    SUBMITTED = 5


COUNTER_DTYPE = np.dtype([("bound", np.float64), ("used", np.float64), ("kind", np.int32)], align=True)
CLAIM_DTYPE = np.dtype([("counter", np.int32), ("is_checked", np.int8)], align=True)

_GROUP: Final[Mapping[str, CounterKind]] = {
    "group_jobs": CounterKind.JOBS,
    "group_gpus": CounterKind.GPUS,
    "group_cpus": CounterKind.CPUS,
    "group_gpu_run_minutes": CounterKind.RUN_S,
    "group_gpu_minutes": CounterKind.USED_S,
    "group_submit": CounterKind.SUBMITTED,
}
_PER_USER: Final[Mapping[str, CounterKind]] = {
    "max_jobs_per_user": CounterKind.JOBS,
    "max_gpus_per_user": CounterKind.GPUS,
    "max_cpus_per_user": CounterKind.CPUS,
    "max_submit_per_user": CounterKind.SUBMITTED,
}
_PER_ACCOUNT: Final[Mapping[str, CounterKind]] = {
    "max_jobs_per_account": CounterKind.JOBS,
    "max_gpus_per_account": CounterKind.GPUS,
}
# Limits of an association for one user of it, and the limits of a QOS that are used instead.
_PER_ASSOCIATION: Final[Mapping[str, tuple[CounterKind, tuple[str, ...]]]] = {
    "max_jobs": (CounterKind.JOBS, ("max_jobs_per_user", "max_jobs_per_account")),
    "max_submit": (CounterKind.SUBMITTED, ("max_submit_per_user",)),
}
_MINUTES: Final = frozenset({CounterKind.RUN_S, CounterKind.USED_S})
# The columns of a job that have a bound for each job.
_PER_JOB: Final[Mapping[str, str]] = {
    "max_gpus_per_job": "gpus",
    "max_nodes_per_job": "nodes_min",
    "max_wall_s": "limit_s",
}


class Owner(NamedTuple):
    """What decides in which counters a job counts: names, the last of a partition's QOS."""

    account: str
    user: str
    qos: str
    partition_qos: str


class Counters(NamedTuple):
    """Counters, and the claims of classes of jobs on them: class i has those from `begin[i]` to `begin[i + 1]`."""

    counters: NDArray[np.void]  # (n_counters,)
    claims: NDArray[np.void]  # (n_claims,)
    begin: NDArray[np.int32]  # (n_classes + 1,)
    most: tuple[Mapping[str, float], ...]  # by class: the bound of one job on its columns


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """A class of jobs counts in a counter, which is shared by all claims with the same key."""

    key: tuple[str, ...]
    kind: CounterKind
    bound: float
    is_checked: bool


class LimitBook:
    """The limits of a site's QOS and associations."""

    def __init__(self, qos: Sequence[QosTable], associations: Sequence[AssociationTable]) -> None:
        """Index the tables by their names."""
        self._qos = {table.name: table for table in qos}
        self._associations = {(table.account, table.user): table for table in associations}
        self.is_empty = not any(map(has_limits, (*qos, *associations)))

    def counters(self, owners: Sequence[Owner]) -> Counters:
        """Build the counters of classes of jobs."""
        place_by_key: dict[tuple[str, ...], int] = {}
        records: list[tuple[float, float, int]] = []
        claims: list[tuple[int, bool]] = []
        begin = [0]
        for owner in owners:
            for claim in self._claims(owner):
                if claim.key not in place_by_key:
                    place_by_key[claim.key] = len(records)
                    records.append((claim.bound, 0.0, claim.kind))
                    if claim.kind is CounterKind.USED_S:
                        records.append((np.inf, 0.0, CounterKind.RUN_S))
                claims.append((place_by_key[claim.key], claim.is_checked))
                if claim.kind is CounterKind.USED_S:
                    claims.append((place_by_key[claim.key] + 1, False))
            begin.append(len(claims))
        return Counters(
            counters=np.array(records, COUNTER_DTYPE),
            claims=np.array(claims, CLAIM_DTYPE),
            begin=np.array(begin, np.int32),
            most=tuple(self._most(owner) for owner in owners),
        )

    def _claims(self, owner: Owner) -> Iterator[_Claim]:
        """List the claims of a class of jobs; where both QOS limit the same, the partition's is checked."""
        levels = self._qos_of(owner)
        for rank, qos in enumerate(levels):
            before = levels[:rank]
            for names, member in ((_GROUP, ()), (_PER_USER, (owner.user,)), (_PER_ACCOUNT, (owner.account,))):
                yield from _of_table(qos, names, ("qos", qos.name, *member), before)
        for table in self._chain(owner):
            yield from _of_table(table, _GROUP, ("association", table.account, table.user), levels)
        for name, (kind, instead) in _PER_ASSOCIATION.items():
            bound = self._inherited(owner, name)
            if bound is not None:
                is_checked = all(getattr(qos, other) is None for qos in levels for other in instead)
                key = ("user", owner.account, owner.user, name)
                yield _Claim(key=key, kind=kind, bound=bound, is_checked=is_checked)

    def _most(self, owner: Owner) -> Mapping[str, float]:
        """Return what one job can have of its columns, by their names."""
        bounds = {}
        for name, column in _PER_JOB.items():
            of_qos = (getattr(qos, name) for qos in self._qos_of(owner))
            bound = next((value for value in of_qos if value is not None), None)
            bound = self._inherited(owner, name) if bound is None else bound
            if bound is not None:
                bounds[column] = float(bound)
        return bounds

    def _qos_of(self, owner: Owner) -> list[QosTable]:
        names = dict.fromkeys((owner.partition_qos, owner.qos))
        return [self._qos[name] for name in names if name in self._qos]

    def _chain(self, owner: Owner) -> Iterator[AssociationTable]:
        """List the associations of a class that are declared: the user's, its account, and those above."""
        if owner.user and (table := self._associations.get((owner.account, owner.user))):
            yield table
        account = owner.account
        while table := self._associations.get((account, "")):
            yield table
            account = table.parent

    def _inherited(self, owner: Owner, name: str) -> float | None:
        """Return a limit of the nearest association that has it."""
        return next((value for table in self._chain(owner) if (value := getattr(table, name)) is not None), None)


def _of_table(
    table: GroupLimits, names: Mapping[str, CounterKind], owner: tuple[str, ...], before: Sequence[GroupLimits]
) -> Iterator[_Claim]:
    """List the claims on a table's limits; a limit that a table before it has is not checked."""
    for name, kind in names.items():
        bound = getattr(table, name)
        if bound is not None:
            yield _Claim(
                key=(*owner, name),
                kind=kind,
                bound=bound * (MINUTE_S if kind in _MINUTES else 1.0),
                is_checked=all(getattr(other, name) is None for other in before),
            )


def can_ever_start(jobs: NDArray[np.void], of_class: NDArray[np.integer], counters: Counters) -> NDArray[np.bool_]:
    """Return which jobs no limit keeps from starting on an idle cluster, `(n,)`; `of_class` is their class."""
    can = np.ones(len(jobs), np.bool_)
    by_gpu = jobs["gpus"].astype(np.float64) * jobs["cpus_per_gpu"]
    cpus = np.maximum(np.maximum(1.0, jobs["cpus"]), np.maximum(by_gpu, jobs["nodes_min"] * jobs["cpus_per_node"]))
    amounts = {
        CounterKind.JOBS: np.ones(len(jobs)),
        CounterKind.GPUS: jobs["gpus"].astype(np.float64),
        CounterKind.CPUS: cpus,
        CounterKind.RUN_S: jobs["gpus"] * np.minimum(jobs["limit_s"], _YEAR_S),
        CounterKind.USED_S: np.finfo(float).tiny * np.ones(len(jobs)),
        CounterKind.SUBMITTED: np.ones(len(jobs)),
    }
    for place, most in enumerate(counters.most):
        mine = of_class == place
        for column, bound in most.items():
            # A job without a time limit gets the longest that is allowed.
            can[mine] &= (jobs[column][mine] <= bound) | np.isinf(jobs[column][mine].astype(np.float64))
        for claim in counters.claims[counters.begin[place] : counters.begin[place + 1]]:
            counter = counters.counters[claim["counter"]]
            if claim["is_checked"]:
                can[mine] &= amounts[CounterKind(int(counter["kind"]))][mine] <= counter["bound"]
    return can


_YEAR_S: Final = 31_536_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTree:
    """The accounts of a trace, in its order, and those above them."""

    names: tuple[str, ...]
    shares: NDArray[np.float64]  # (n_accounts,)
    parent: NDArray[np.int32]  # (n_accounts,): -1 at the top
    depth: NDArray[np.int32]  # (n_accounts,): 1 at the top


def account_tree(accounts: Sequence[str], associations: Sequence[AssociationTable]) -> AccountTree:
    """Build the tree of the accounts of a trace; accounts that are not declared have one share, at the top."""
    tables = {table.account: table for table in associations if not table.user}
    parents = {name: tables[name].parent if name in tables else "" for name in accounts}
    waiting = [parent for parent in parents.values() if parent]
    while waiting:
        name = waiting.pop()
        if name not in parents:
            parents[name] = tables[name].parent if name in tables else ""
            waiting += [parents[name]] if parents[name] else []
    names = tuple(parents)
    code_by_name = {name: code for code, name in enumerate(names)}
    parent = np.array([code_by_name[above] if above else NONE for above in parents.values()], np.int32)
    depth = np.ones(len(names), np.int32)
    for code in range(len(names)):
        above = parent[code]
        while above != NONE:
            depth[code] += 1
            above = parent[above]
    shares = np.array([tables[name].shares if name in tables else 1.0 for name in names])
    return AccountTree(names=names, shares=shares, parent=parent, depth=depth)
