"""Converts the limits, shares and priorities that slurmctld shows to the tables of a cluster."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from advisor.domain.dataclass import dataclass
from advisor.domain.units import MINUTE_S
from advisor.sim.slurm.queue_tables import AssociationTable, QosTable

if TYPE_CHECKING:
    from advisor.backends.assoc_text import Amounts, Association, AssociationState, QosLimits

# Limits on a TRES by their names in Slurm: the GPUs and CPUs that they bind in the model.
_OF_ALL: Final[Mapping[tuple[str, str], str]] = {
    ("GrpTRES", "gres/gpu"): "group_gpus",
    ("GrpTRES", "cpu"): "group_cpus",
    ("GrpTRESMins", "gres/gpu"): "group_gpu_minutes",
    ("GrpTRESRunMins", "gres/gpu"): "group_gpu_run_minutes",
    ("MaxTRESPJ", "gres/gpu"): "max_gpus_per_job",
}
_OF_USER: Final[Mapping[tuple[str, str], str]] = {
    ("MaxTRESPU", "gres/gpu"): "max_gpus_per_user",
    ("MaxTRESPU", "cpu"): "max_cpus_per_user",
}
_OF_ACCOUNT: Final[Mapping[tuple[str, str], str]] = {("MaxTRESPA", "gres/gpu"): "max_gpus_per_account"}
_COUNTS: Final[dict[str, str]] = {"GrpJobs": "group_jobs", "GrpSubmitJobs": "group_submit"}
_COUNTS_OF_ASSOCIATION: Final[dict[str, str]] = {"MaxJobs": "max_jobs", "MaxSubmitJobs": "max_submit"}
_COUNTS_OF_QOS: Final[dict[str, str]] = {
    "MaxJobsPU": "max_jobs_per_user",
    "MaxSubmitJobsPU": "max_submit_per_user",
    "MaxJobsPA": "max_jobs_per_account",
}
_WALL: Final = "MaxWallPJ"
_LARGEST: Final = 1_000_000_000
_LEAST_SHARES: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitTables:
    """The tables of a cluster; `notes` are plain sentences on what is not in them."""

    qos: tuple[QosTable, ...] = ()
    associations: tuple[AssociationTable, ...] = ()
    notes: tuple[str, ...] = ()


def limit_tables(state: "AssociationState", *, are_enforced: bool) -> LimitTables:
    """Return the tables of what slurmctld shows; limits that are not enforced are left out."""
    unknown: list[str] = []
    listed = [each for each in state.associations if not each.partition]
    notes = _notes(state, listed, are_enforced=are_enforced)
    tables = LimitTables(
        qos=tuple(_qos_table(qos, unknown, are_enforced=are_enforced) for qos in state.qos),
        associations=tuple(_association_tables(listed, unknown, are_enforced=are_enforced)),
    )
    if unknown and are_enforced:
        names = ", ".join(dict.fromkeys(unknown))
        notes.append(f"limits that the what-if model does not know are left out: {names}")
    return LimitTables(qos=tables.qos, associations=tables.associations, notes=tuple(notes))


def _notes(state: "AssociationState", listed: "list[Association]", *, are_enforced: bool) -> list[str]:
    notes = []
    if left_out := len(state.associations) - len(listed):
        notes.append(f"{left_out} associations for one partition only are left out")
    if followers := sum(each.shares is None for each in listed):
        notes.append(f"{followers} associations with the shares of their parent have one share of their own")
    if not are_enforced:
        return [*notes, "AccountingStorageEnforce has no limits: those that are set do not count"]
    if idle := [qos.name for qos in state.qos if not qos.by_uid and not qos.by_account]:
        shown = f"{', '.join(idle[:5])}{' and others' if idle[5:] else ''}"
        notes.append(f"slurmctld shows limits for each user and account only of a QOS in use, so not of {shown}")
    return notes


def _qos_table(qos: "QosLimits", unknown: list[str], *, are_enforced: bool) -> QosTable:
    values: dict[str, Any] = {"name": qos.name, "priority": float(qos.priority)}
    if are_enforced:
        values |= _bounds(qos.amounts, _OF_ALL, unknown) | _counted(qos.counts, _COUNTS | _COUNTS_OF_QOS, unknown)
        for names, holders in ((_OF_USER, qos.by_uid), (_OF_ACCOUNT, qos.by_account)):
            # The limit is the same for each of them.
            values |= _bounds(next(iter(holders.values()), {}), names, unknown)
    return QosTable(**values)


def _association_tables(
    listed: "Iterable[Association]", unknown: list[str], *, are_enforced: bool
) -> Iterable[AssociationTable]:
    associations = list(listed)
    account_by_id = {each.association_id: each.account for each in associations if not each.user}
    seen = set[tuple[str, str]]()
    for each in associations:
        if (each.account, each.user) in seen:
            continue
        seen.add((each.account, each.user))
        limits: dict[str, Any] = {}
        if are_enforced:
            names = _COUNTS | _COUNTS_OF_ASSOCIATION
            limits = _bounds(each.amounts, _OF_ALL, unknown) | _counted(each.counts, names, unknown)
        yield AssociationTable(
            account=each.account,
            user=each.user,
            parent="" if each.user or each.parent_id is None else account_by_id.get(each.parent_id, ""),
            shares=max(_LEAST_SHARES, float(1 if each.shares is None else each.shares)),
            priority=float(each.priority),
            **limits,
        )


def _bounds(
    limits: "Mapping[str, Amounts]", names: Mapping[tuple[str, str], str], unknown: list[str]
) -> dict[str, int]:
    """Return the limits on TRES by the model's names; adds the others to `unknown`."""
    bounds = {}
    for limit, amounts in limits.items():
        for tres, amount in amounts.items():
            if amount.most is None:
                continue
            if (limit, tres) in names:
                bounds[names[limit, tres]] = min(_LARGEST, amount.most)
            else:
                unknown.append(f"{limit}={tres}")
    return bounds


def _counted(counts: Mapping[str, int], names: Mapping[str, str], unknown: list[str]) -> dict[str, Any]:
    """Return the limits that are not on a TRES by the model's names; adds the others to `unknown`."""
    bounds: dict[str, Any] = {}
    for limit, most in counts.items():
        if limit == _WALL and most:
            bounds["max_wall_s"] = most * MINUTE_S
        elif limit in names:
            bounds[names[limit]] = min(_LARGEST, most)
        else:
            unknown.append(limit)
    return bounds
