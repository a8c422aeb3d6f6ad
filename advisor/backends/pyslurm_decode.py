"""Decodes what pyslurm's `to_dict()` says of jobs, nodes and partitions.

pyslurm does not show `--gpus` of a job, and GPUs in use on a node only where the site counts them as TRES: what it
does not show is unknown here, never none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from advisor.backends.records import JobRecord, NodeRecord
from advisor.backends.spelling import NO_LIMIT, names, node_names, unreadable
from advisor.backends.tres import GPU, SHARES, Gres, Tres, counts_of
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.site import Partition
from advisor.errors import DecodeError

Values = Mapping[str, Any]

_LARGEST: Final = 1 << 64
_REQUEST_KEYS: Final[Mapping[GpuScope, str]] = {
    GpuScope.JOB: "tres_per_job",
    GpuScope.NODE: "tres_per_node",
    GpuScope.SOCKET: "tres_per_socket",
    GpuScope.TASK: "tres_per_task",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PyslurmAnswer:
    """The values of every job, node and partition, and pyslurm's own version."""

    version: str
    jobs: tuple[Values, ...]
    nodes: tuple[Values, ...]
    partitions: tuple[Values, ...]


def parse(answer: bytes) -> PyslurmAnswer:
    """Parse the lines of the child process; raises `DecodeError` unless they are all there."""
    try:
        lines = [json.loads(line) for line in answer.decode("utf-8", "backslashreplace").splitlines()]
        kinds = [line.get("kind", "version") for line in lines]
        whole = kinds[:1] == ["version"] and lines[-1] == {"kind": "end", "lines": len(lines) - 2}
        if not whole:
            raise DecodeError("pyslurm gave an incomplete answer: try again, or --source text")
        values = {
            kind: tuple(line["values"] for line in lines if line.get("kind") == kind) for kind in set(kinds[1:-1])
        }
    except (ValueError, AttributeError, KeyError) as err:
        raise DecodeError("pyslurm gave no whole answer: try again, or --source text") from err
    return PyslurmAnswer(
        version=str(lines[0].get("version", "")),
        jobs=values.get("job", ()),
        nodes=values.get("node", ()),
        partitions=values.get("partition", ()),
    )


def job_record(raw: Values, *, gpus_counted: bool, sharing_tells_exclusive: bool = True) -> JobRecord:
    """Read one job; `gpus_counted` is whether the site counts GPUs as TRES, so that none means none."""
    allocated, requested = _tres(raw, "allocated_tres"), _tres(raw, "requested_tres")
    requests = {scope: _requested(raw, key) for scope, key in _REQUEST_KEYS.items()}
    requests[GpuScope.NODE] += _gres(raw, "gres_per_node")
    seen = any(gres.name == GPU for listed in requests.values() for gres in listed)
    if not seen and requested is not None and requested.gpus:
        # Counted but in no form that pyslurm shows: `--gpus`, or the total of another form.
        requests[GpuScope.JOB] = tuple(
            Gres(name=GPU, gres_type=gpu.gpu_type, count=gpu.count) for gpu in requested.gpus
        )
        seen = True
    cpus_per_gpu = _number(raw, "cpus_per_gpu")
    return JobRecord(
        job_id=_number(raw, "id") or 0,
        states=(_text(raw, "state"),),
        reason=_text(raw, "state_reason"),
        name=_text(raw, "name"),
        user=_text(raw, "user_name"),
        account=_text(raw, "account"),
        partitions=names(_text(raw, "partition")),
        qos=_text(raw, "qos"),
        comment=_text(raw, "comment"),
        nodes_shown=_number(raw, "num_nodes") or 1,
        nodes_max=_number(raw, "max_nodes") or 0,
        tasks=max(1, _number(raw, "ntasks") or 1),
        cpus=_number(raw, "cpus") or 0,
        tres=allocated or requested or Tres(),
        requests=requests,
        gpus_known=seen or gpus_counted,
        cpus_per_gres=(Gres(name=GPU, gres_type=None, count=cpus_per_gpu),) if cpus_per_gpu else (),
        exclusive=sharing_tells_exclusive and _text(raw, "resource_sharing").upper() == "NO",
        switch_count=_number(raw, "required_switches") or 0,
        switch_wait_s=float(_number(raw, "max_wait_time_switches") or 0),
        features=",".join(_strings(raw, "constraints")),
        required_nodes=_nodes(raw, "required_nodes"),
        excluded_nodes=_nodes(raw, "excluded_nodes"),
        nodes=_nodes(raw, "allocated_nodes"),
        array=_array(raw),
        het=_het(raw),
        submit_time=_instant(raw, "submit_time"),
        eligible_time=_instant(raw, "eligible_time"),
        start_time=_instant(raw, "start_time"),
        end_time=_instant(raw, "end_time"),
        limit_s=_minutes(raw, "time_limit"),
        limit_min_s=_minutes(raw, "time_limit_min"),
        priority=_number(raw, "priority"),
        nice=_number(raw, "nice") or 0,
        dependency=_dependency(raw),
        reservation=_text(raw, "reservation"),
        requeueable=raw.get("is_requeueable") is True,
        cron=raw.get("is_cronjob") is True,
    )


def node_record(raw: Values) -> NodeRecord:
    """Read one node; its GPUs in use are known only where they are counted as TRES."""
    return NodeRecord(
        name=_text(raw, "name"),
        states=tuple(_text(raw, "state").upper().split("+")),
        reason=_text(raw, "reason"),
        cpus=_number(raw, "total_cpus") or 0,
        cpus_used=_number(raw, "allocated_cpus") or 0,
        memory_mib=_number(raw, "real_memory") or 0,
        memory_used_mib=_number(raw, "allocated_memory") or 0,
        gres=_gres(raw, "configured_gres"),
        gres_used=_without_totals(_gres(raw, "allocated_tres")),
        partitions=_strings(raw, "partitions"),
        features=_strings(raw, "active_features"),
        weight=_number(raw, "weight") or 0,
    )


def partition(raw: Values) -> Partition:
    """Read one partition."""
    return Partition(
        name=_text(raw, "name"),
        is_up=_text(raw, "state").upper() == "UP",
        nodes=_nodes(raw, "nodes"),
        max_time_s=_minutes(raw, "max_time"),
        default_time_s=_minutes(raw, "default_time"),
        priority_tier=_number(raw, "priority_tier") or 0,
        max_nodes_per_job=_number(raw, "max_nodes"),
    )


def _tres(raw: Values, key: str) -> Tres | None:
    value = raw.get(key)
    if not isinstance(value, dict):
        return None
    gpus: dict[str | None, int] = {}
    for gres in _requested(raw, key):
        if gres.name == GPU:
            gpus[gres.gres_type] = gpus.get(gres.gres_type, 0) + gres.count
    if None in gpus:
        gpus[None] -= sum(number for gpu_type, number in gpus.items() if gpu_type is not None)
    return Tres(
        cpus=_tres_count(value.get("cpu")),
        memory_mib=_tres_count(value.get("mem")),
        nodes=_tres_count(value.get("node")),
        gpus=counts_of(gpus) if gpus else None,
    )


def _tres_count(value: Any) -> int | None:
    return _number(value, "count") if isinstance(value, dict) else None


def _requested(raw: Values, key: str) -> tuple[Gres, ...]:
    """Return the GRES that a TRES object of pyslurm holds, by name and type."""
    value = raw.get(key)
    listed = value.get("gres") if isinstance(value, dict) else None
    if not isinstance(listed, dict):
        return ()
    return tuple(
        gres for name, each in listed.items() if (gres := _named(str(name), _tres_count(each) or 0)) is not None
    )


def _gres(raw: Values, key: str) -> tuple[Gres, ...]:
    """Return the GRES of a plain mapping of names to numbers (`{"gres/gpu:a100": 4}`, `{"gpu:a100": 8}`)."""
    value = raw.get(key)
    if not isinstance(value, dict):
        return ()
    return tuple(
        gres
        for name in value
        if (gres := _named(str(name).removeprefix("gres/"), _number(value, name) or 0)) is not None
    )


def _without_totals(listed: tuple[Gres, ...]) -> tuple[Gres, ...]:
    """Leave out the total of a resource whose types are counted beside it."""
    typed = {gres.name for gres in listed if gres.gres_type is not None}
    return tuple(gres for gres in listed if gres.gres_type is not None or gres.name not in typed)


def _named(name: str, number: int) -> Gres | None:
    kind, _, gres_type = name.partition(":")
    return Gres(name=kind, gres_type=gres_type or None, count=number) if kind in (GPU, *SHARES) else None


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
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
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
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST:
        raise unreadable(f"pyslurm {key}", str(value)[:80], "a whole number")
    return value


def _minutes(raw: Values, key: str) -> float | None:
    minutes = _number(raw, key)
    return None if minutes is None else float(minutes) * 60


def _instant(raw: Values, key: str) -> float | None:
    return float(_number(raw, key) or 0) or None
