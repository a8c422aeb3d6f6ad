"""Decodes the values of jobs, nodes and partitions that the child process read with pyslurm.

pyslurm shows how many GPUs a job asks for with `--gpus` only where the site counts GPUs as TRES, of which type only
where that type is counted, and never in which form. What it does not show is unknown here, never none
(docs/decisions/slurm.md).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Final

from advisor.backends.records import JobRecord, NodeRecord, leaves_nodes_open, takes_jobs
from advisor.backends.spelling import NO_LIMIT, names, node_names, optional_text, signed, unreadable
from advisor.backends.tres import GPU, Gres, Tres, counts_of, gres_list
from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.domain.units import MINUTE_S
from advisor.errors import DecodeError

Values = Mapping[str, Any]

_TOO_LARGE: Final = 1 << 64
# A record without these is not a job.
_NEEDED: Final = frozenset(("id", "state", "submit_time"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """The values of one record, and the names of those that could not be read."""

    values: Values
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why the child process gave no answer: the type of the error and its text."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PyslurmAnswer:
    """The records of every job, node and partition, pyslurm's own version, and whether it shows forms of requests."""

    version: str
    shows_forms: bool = False
    jobs: tuple[Raw, ...] = ()
    nodes: tuple[Raw, ...] = ()
    partitions: tuple[Raw, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the site counts as TRES, of which pyslurm shows no more: GPUs at all, and the type of each GPU.

    `uncounted` holds the types of GPUs that are present and not counted.
    """

    gpus: bool
    uncounted: frozenset[str] = frozenset()
    several_types: bool = False

    @property
    def types_known(self) -> bool:
        """Whether a request for GPUs of one type differs visibly from one for any type, or need not."""
        return self.gpus and (not self.uncounted or not self.several_types)


def counted(accounting_tres: Iterable[str], nodes: Iterable[Raw]) -> Counted:
    """Return what a site counts of the GPUs that its nodes have."""
    words = frozenset(accounting_tres)
    types = {gres.gres_type for raw in nodes for gres in _gres(raw.values, "configured_gres") if gres.name == GPU}
    named = frozenset(gpu_type for gpu_type in types if gpu_type is not None)
    return Counted(
        gpus=f"gres/{GPU}" in words,
        uncounted=frozenset(gpu_type for gpu_type in named if f"gres/{GPU}:{gpu_type}".lower() not in words),
        several_types=len(types) > 1,
    )


def fault(answer: bytes) -> Fault | None:
    """Return the error that the child process printed in place of an answer, None where it printed none."""
    last = answer.rstrip(b"\n").rpartition(b"\n")[2]
    if not last.startswith(b'{"kind": "error"'):
        return None
    try:
        line = json.loads(last)
        return Fault(kind=str(line["type"]), text=str(line["text"]))
    except (ValueError, KeyError) as err:
        raise DecodeError("pyslurm gave no whole answer: try again, or --source text") from err


def parse(answer: bytes) -> PyslurmAnswer:
    """Parse the lines of the child process; raises `DecodeError` unless they are all there."""
    try:
        lines = [json.loads(line) for line in answer.decode("ascii").splitlines()]
        kinds = [line.get("kind", "version") for line in lines]
        whole = kinds[:1] == ["version"] and lines[-1] == {"kind": "end", "lines": len(lines) - 2}
        if not whole:
            raise DecodeError("pyslurm gave an incomplete answer: try again, or --source text")
        records: dict[str, list[Raw]] = {}
        for line in lines[1:-1]:
            raw = Raw(values=line["values"], unseen=tuple(map(str, line.get("unseen", ()))))
            records.setdefault(line["kind"], []).append(raw)
    except (ValueError, AttributeError, KeyError, TypeError) as err:
        raise DecodeError("pyslurm gave no whole answer: try again, or --source text") from err
    return PyslurmAnswer(
        version=str(lines[0].get("version", "")),
        shows_forms=lines[0].get("forms") is True,
        jobs=tuple(records.get("job", ())),
        nodes=tuple(records.get("node", ())),
        partitions=tuple(records.get("partition", ())),
    )


def job_record(raw: Raw, *, tres_counted: Counted, sharing_tells_exclusive: bool = True) -> JobRecord:
    """Read one job; raises `DecodeError` for one without an id, a state or a submit time, and for a damaged value."""
    _check_seen("job", raw, _NEEDED)
    values, state = raw.values, _text(raw.values, "state")
    allocated, requested = _tres(values, "allocated_tres"), _tres(values, "requested_tres")
    request = _request(values, requested or Tres(), tres_counted, pending=state == "PENDING")
    cpus_per_gpu = _number(values, "cpus_per_gpu")
    unseen = {
        *raw.unseen,
        # Only `--cpus-per-gpu` leaves a job without CPUs per task, and pyslurm does not show how many it asks for.
        *(("cpus_per_gpu",) if values.get("cpus_per_task") is None and cpus_per_gpu is None else ()),
        # The least node count stands there only.
        *(("requested_tres",) if requested is None else ()),
    }
    eligible_time = _instant(values, "eligible_time")
    return JobRecord(
        job_id=_number(values, "id") or 0,
        state=state,
        reason=_text(values, "state_reason"),
        name=optional_text(_text(values, "name")),
        user=optional_text(_text(values, "user_name")),
        account=optional_text(_text(values, "account")),
        partitions=names(_text(values, "partition")),
        qos=optional_text(_text(values, "qos")),
        comment=optional_text(_text(values, "comment")),
        nodes_shown=_number(values, "num_nodes") or 1,
        nodes_max=_number(values, "max_nodes") or 0,
        nodes_open=leaves_nodes_open(
            (_number(values, "max_nodes") or 0) if "max_nodes" in values else None, eligible_time
        ),
        tasks=max(1, _number(values, "ntasks") or 1),
        cpus=_number(values, "cpus") or 0,
        tres=allocated or requested or Tres(),
        requests=request.gres,
        gpus_known=request.is_known and not unseen & _GPU_ATTRIBUTES,
        cpus_per_gres=(Gres(name=GPU, gres_type=None, count=cpus_per_gpu),) if cpus_per_gpu else (),
        exclusive=sharing_tells_exclusive and _text(values, "resource_sharing").upper() == "NO",
        switch_count=_number(values, "required_switches") or 0,
        switch_wait_s=float(_number(values, "max_wait_time_switches") or 0),
        features=",".join(_strings(values, "constraints")),
        required_nodes=_nodes(values, "required_nodes"),
        excluded_nodes=_nodes(values, "excluded_nodes"),
        nodes=_nodes(values, "allocated_nodes"),
        array=_array(values),
        het=_het(values),
        submit_time=_instant(values, "submit_time"),
        eligible_time=eligible_time,
        start_time=_instant(values, "start_time"),
        end_time=_instant(values, "end_time"),
        limit_s=_minutes(values, "time_limit"),
        limit_min_s=_minutes(values, "time_limit_min"),
        priority=_number(values, "priority"),
        nice=signed(_number(values, "nice") or 0),
        dependency=_dependency(values),
        reservation=optional_text(_text(values, "reservation")),
        requeueable=values.get("is_requeueable") is True,
        cron=values.get("is_cronjob") is True,
        unseen=tuple(sorted(unseen)),
    )


def node_record(raw: Raw, *, gpus_counted: bool) -> NodeRecord:
    """Read one node; raises `DecodeError` for one of which a value is missing.

    Its GPUs in use are known only where they are counted as TRES; what is not listed there is not in use.
    """
    _check_seen("node", raw)
    values = raw.values
    configured = _gres(values, "configured_gres")
    return NodeRecord(
        name=_text(values, "name"),
        states=tuple(_text(values, "state").upper().split("+")),
        reason=_text(values, "reason"),
        cpus=_number(values, "total_cpus") or 0,
        cpus_used=_number(values, "allocated_cpus") or 0,
        memory_mib=_number(values, "real_memory") or 0,
        memory_used_mib=_number(values, "allocated_memory") or 0,
        gres=configured,
        gres_used=_in_use(configured, _gres(values, "allocated_tres")) if gpus_counted else (),
        partitions=_strings(values, "partitions"),
        features=_strings(values, "active_features"),
        weight=_number(values, "weight") or 0,
    )


def partition(raw: Raw) -> Partition:
    """Read one partition; raises `DecodeError` for one of which a value is missing."""
    _check_seen("partition", raw)
    values = raw.values
    return Partition(
        name=_text(values, "name"),
        is_up=takes_jobs(_text(values, "state")),
        nodes=_nodes(values, "nodes"),
        max_time_s=_minutes(values, "max_time"),
        default_time_s=_minutes(values, "default_time"),
        priority_tier=_number(values, "priority_tier") or 0,
        min_nodes_per_job=_number(values, "min_nodes") or 1,
        max_nodes_per_job=_number(values, "max_nodes"),
        priority_job_factor=_number(values, "priority_job_factor") or 0,
        is_default=values.get("is_default") is True,
        qos=_text(values, "qos"),
        over_subscribe=_text(values, "oversubscribe").upper() or "NO",
        max_cpus_per_node=_number(values, "max_cpus_per_node"),
    )


def _check_seen(what: str, raw: Raw, needed: frozenset[str] | None = None) -> None:
    """Raise `DecodeError` for a record of which something needed could not be read; None needs all of it."""
    missing = [name for name in raw.unseen if needed is None or name in needed]
    if missing:
        raise DecodeError(f"pyslurm does not show {', '.join(missing)} of a {what}: use --source text")


# Without these the GPUs that a job asks for are not known.
_GPU_ATTRIBUTES: Final = frozenset(("gres_per_node", "tres_per_task", "requested_tres", "sockets_per_node"))
# The forms in which pyslurm shows a request; the others it shows as none at all.
_SHOWN_FORMS: Final[Mapping[GpuScope, str]] = {
    GpuScope.JOB: "tres_per_job",
    GpuScope.SOCKET: "tres_per_socket",
    GpuScope.TASK: "tres_per_task",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What a job asks for by form; `is_known` is whether it is all that the job asks for, its form set aside."""

    gres: Mapping[GpuScope, tuple[Gres, ...]] = field(default_factory=dict)
    is_known: bool = True


def _request(values: Values, requested: Tres, tres_counted: Counted, *, pending: bool) -> _Request:
    """Read which GPUs a job asks for; `requested` is their total where it is counted."""
    shown = {scope: _listed(values, key) for scope, key in _SHOWN_FORMS.items()}
    shown[GpuScope.NODE] = _gres(values, "gres_per_node")
    total = sum(gpu.count for gpu in requested.gpus or ())
    if any(gres.name == GPU for listed in shown.values() for gres in listed):
        asked = _total(shown, nodes=requested.nodes or 1, tasks=_number(values, "ntasks") or 1)
        # Another total than the forms come to means that one of them is not shown.
        return _Request(gres=shown, is_known=not (pending and tres_counted.gpus) or asked == total)
    if not total:
        return _Request(gres=shown, is_known=tres_counted.gpus)
    # Counted, and in no form that is shown: `--gpus`, or else `--gpus-per-socket`, which takes a count of sockets.
    if values.get("sockets_per_node") is not None or not tres_counted.types_known:
        return _Request(gres=shown, is_known=False)
    gpus = tuple(Gres(name=GPU, gres_type=gpu.gpu_type, count=gpu.count) for gpu in requested.gpus or ())
    return _Request(gres={**shown, GpuScope.JOB: gpus})


def _total(shown: Mapping[GpuScope, tuple[Gres, ...]], *, nodes: int, tasks: int) -> int:
    """Return the GPU count of the forms that are shown, from the first one, since all of them have to agree."""
    times = {GpuScope.JOB: 1, GpuScope.NODE: nodes, GpuScope.TASK: tasks}
    totals = (sum(gres.count for gres in shown[scope] if gres.name == GPU) * factor for scope, factor in times.items())
    return next((total for total in totals if total), 0)


def _in_use(configured: tuple[Gres, ...], used: tuple[Gres, ...]) -> tuple[Gres, ...]:
    """Return the GRES of a node that are in use, 0 of those that are not listed.

    Where only the total is counted and in use, the type is not known.
    """
    typed = {gres.name for gres in used if gres.gres_type is not None}
    listed = tuple(gres for gres in used if gres.gres_type is not None or gres.name not in typed)
    whole = {gres.name for gres in listed if gres.gres_type is None and gres.count}
    there = {(gres.name, gres.gres_type) for gres in listed}
    idle = (
        Gres(name=gres.name, gres_type=gres.gres_type, count=0)
        for gres in configured
        if gres.name not in whole and (gres.name, gres.gres_type) not in there
    )
    return (*listed, *idle)


def _tres(values: Values, key: str) -> Tres | None:
    value = _mapping(values, key)
    if value is None:
        return None
    gpus: dict[str | None, int] = {}
    for gres in _listed(values, key):
        if gres.name == GPU:
            gpus[gres.gres_type] = gpus.get(gres.gres_type, 0) + gres.count
    if None in gpus:
        gpus[None] -= sum(number for gpu_type, number in gpus.items() if gpu_type is not None)
    return Tres(
        cpus=_number(value, "cpu"),
        memory_mib=_number(value, "mem"),
        nodes=_number(value, "node"),
        gpus=counts_of(gpus) if gpus else None,
    )


def _listed(values: Values, key: str) -> tuple[Gres, ...]:
    """Return the GRES that a TRES value holds, by name and type."""
    value = _mapping(values, key)
    return () if value is None else _gres(value, "gres")


def _mapping(values: Values, key: str) -> Values | None:
    """Return a mapping, None where there is none; raises `DecodeError` for anything else, such as a text."""
    value = values.get(key)
    if value is not None and not isinstance(value, dict):
        raise unreadable(f"pyslurm {key}", str(value)[:80], "a TRES")
    return value


def _gres(values: Values, key: str) -> tuple[Gres, ...]:
    """Return the GRES of a mapping of names to numbers (`{"gres/gpu:a100": 4}`, `{"gpu:a100": 8}`)."""
    value = _mapping(values, key) or {}
    named = (_named(str(name).removeprefix("gres/"), _number(value, name) or 0) for name in value)
    return tuple(gres for gres in named if gres is not None)


def _named(name: str, number: int) -> Gres | None:
    return next((replace(gres, count=number) for gres in gres_list(f"{name}:{number}", field="pyslurm GRES")), None)


def _dependency(raw: Values) -> str:
    """Spell pyslurm's dependencies as Slurm does: `afterok:1(failed),singleton`."""
    value = raw.get("dependencies")
    if not isinstance(value, dict):
        return ""
    parts = [f"{kind}:{job}" for kind, jobs in value.items() if isinstance(jobs, list) for job in jobs]
    separator = "?" if value.get("satisfy") == "any" else ","
    return separator.join([*parts, *(("singleton",) if value.get("singleton") is True else ())])


def _array(raw: Values) -> ArrayRecord | None:
    array_job_id = _number(raw, "array_id")
    if not array_job_id:
        return None
    waiting = _text(raw, "array_tasks_waiting").partition("%")[0]
    if not waiting:
        return ArrayRecord(array_job_id=array_job_id, task_id=_number(raw, "array_task_id"))
    return ArrayRecord(
        array_job_id=array_job_id, waiting=waiting, max_running=_number(raw, "array_tasks_parallel") or None
    )


def _het(raw: Values) -> HetRecord | None:
    het_job_id = _number(raw, "heterogeneous_id")
    return HetRecord(het_job_id=het_job_id, offset=_number(raw, "heterogeneous_offset") or 0) if het_job_id else None


def _nodes(raw: Values, key: str) -> tuple[str, ...]:
    return node_names(",".join(_strings(raw, key)), field=f"pyslurm {key}")


def _strings(raw: Values, key: str) -> tuple[str, ...]:
    value = raw.get(key)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise unreadable(f"pyslurm {key}", str(value), "a list of names")
    return tuple(value)


def _text(raw: Values, key: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise unreadable(f"pyslurm {key}", str(value), "a text")
    return value.encode("utf-8", "backslashreplace").decode()


def _number(raw: Values, key: str) -> int | None:
    """Return a whole number; None where there is none or no limit."""
    value = raw.get(key)
    if value is None or (isinstance(value, str) and value.lower() in NO_LIMIT):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _TOO_LARGE:
        raise unreadable(f"pyslurm {key}", str(value)[:80], "a whole number")
    return value


def _minutes(raw: Values, key: str) -> float | None:
    minutes = _number(raw, key)
    return None if minutes is None else float(minutes) * MINUTE_S


def _instant(raw: Values, key: str) -> float | None:
    return float(_number(raw, key) or 0) or None
