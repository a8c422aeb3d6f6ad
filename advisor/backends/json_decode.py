"""Decodes Slurm's JSON, from the openapi plugins of 22.05 to data_parser v0.0.45.

Numbers are plain or `{"set", "infinite", "number"}`, states a word or a list of words. A field that a release does
not have is unknown; one that is not what it should be is a `DecodeError`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from advisor.backends.records import JobRecord, NodeRecord, UnreadJob, leaves_nodes_open, record_or_unread, takes_jobs
from advisor.backends.spelling import names, node_names, signed, unreadable
from advisor.backends.tres import gres_list, tres
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord
from advisor.domain.releases import SWITCHES_IN_JSON
from advisor.domain.site import Partition
from advisor.domain.units import MINUTE_S
from advisor.errors import DecodeError

# Slurm copies users' bytes as they are; a byte that is no UTF-8 becomes the text `\xNN`.
_STRAY_BYTE: Final = re.compile("[\udc80-\udcff]")
_REQUEST_KEYS: Final[Mapping[GpuScope, str]] = {
    GpuScope.JOB: "tres_per_job",
    GpuScope.NODE: "tres_per_node",
    GpuScope.SOCKET: "tres_per_socket",
    GpuScope.TASK: "tres_per_task",
}
# Slurm's marks for "no value" and "no limit" where a release writes the bare number.
_NO_VALUES: Final = frozenset((0xFFFF, 0xFFFE, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFE))
_TOO_LARGE: Final = 1 << 64
_ARRAY_WAITING: Final = re.compile(r"([^%]*)(?:%(\d{1,10}))?")


def parse(answer: bytes, *, command: str, key: str) -> list[dict[str, object]]:
    """Parse an answer and return its list of `key`; raises `DecodeError` unless it is whole and holds that list."""
    text = _STRAY_BYTE.sub(lambda byte: f"\\\\x{ord(byte[0]) - 0xDC00:02x}", answer.decode("utf-8", "surrogateescape"))
    try:
        document = json.loads(text, strict=False)
    except (ValueError, RecursionError) as err:
        raise DecodeError(f"{command} gave no whole JSON answer: try again, or try another --source") from err
    listed = document.get(key) if isinstance(document, dict) else None
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise DecodeError(f"{command} gave JSON without a list of {key}: try another --source")
    errors = document.get("errors")
    if errors and not listed:
        raise DecodeError(f"{command} reported errors instead of {key}: try again, or try another --source")
    return listed


def job_or_unread(raw: Mapping[str, object]) -> JobRecord | UnreadJob:
    """Read one job of `squeue --json`, or say why that cannot be done."""
    job_id = raw.get("job_id")
    return record_or_unread(lambda: job_record(raw), job_id if isinstance(job_id, int) else 0)


def _bounds_by_tasks(raw: Mapping[str, object]) -> bool:
    """Return whether the most nodes of a job are no request: 26.05 fills in the number of tasks, and says so."""
    return "JOB_IMPLICIT_MAX_NODES" in _words(raw, "flags") and (_optional(raw, "max_nodes") or 0) > 1


def job_record(raw: Mapping[str, object]) -> JobRecord:
    """Read one job of `squeue --json`."""
    allocated, requested = _text(raw, "tres_alloc_str"), _text(raw, "tres_req_str")
    eligible_time = _instant(raw, "eligible_time")
    return JobRecord(
        job_id=_number(raw, "job_id"),
        states=_words(raw, "job_state"),
        reason=_text(raw, "state_description") or _text(raw, "state_reason"),
        name=_text(raw, "name"),
        user=_text(raw, "user_name"),
        account=_text(raw, "account"),
        partitions=names(_text(raw, "partition")),
        qos=_text(raw, "qos"),
        comment=_comment(raw),
        nodes_shown=_number(raw, "node_count"),
        nodes_max=_optional(raw, "max_nodes") or 0,
        nodes_open=_bounds_by_tasks(raw) or leaves_nodes_open(_optional(raw, "max_nodes"), eligible_time),
        tasks=max(1, _optional(raw, "tasks") or 1),
        tasks_asked="EXACT_TASK_COUNT_REQUESTED" in _words(raw, "flags"),
        cpus=_optional(raw, "cpus") or 0,
        cpus_per_node=_optional(raw, "minimum_cpus_per_node") or 1,
        tasks_per_node=_optional(raw, "tasks_per_node") or 0,
        tmp_disk_mib=_optional(raw, "minimum_tmp_disk_per_node") or 0,
        tres=tres(allocated or requested, field="squeue --json tres_alloc_str"),
        requests={
            scope: gres_list(_text(raw, key), field=f"squeue --json {key}") for scope, key in _REQUEST_KEYS.items()
        },
        cpus_per_gres=gres_list(_text(raw, "cpus_per_tres"), field="squeue --json cpus_per_tres"),
        exclusive="NONE" in _words(raw, "shared"),
        only_user="USER" in _words(raw, "shared"),
        uncounted=_uncounted(raw),
        switch_count=next((_optional(raw, key) or 0 for key in SWITCHES_IN_JSON if key in raw), 0),
        switch_wait_s=float(_optional(raw, "maximum_switch_wait_time") or 0),
        features=_text(raw, "features"),
        required_nodes=node_names(_text(raw, "required_nodes"), field="squeue --json required_nodes"),
        excluded_nodes=node_names(_text(raw, "excluded_nodes"), field="squeue --json excluded_nodes"),
        nodes=node_names(_text(raw, "nodes"), field="squeue --json nodes"),
        array=_array(raw),
        het=_het(raw),
        submit_time=_instant(raw, "submit_time"),
        eligible_time=eligible_time,
        start_time=_instant(raw, "start_time"),
        end_time=_instant(raw, "end_time"),
        limit_s=_minutes(raw, "time_limit"),
        limit_min_s=_minutes(raw, "time_minimum"),
        priority=_optional(raw, "priority"),
        nice=_nice(raw),
        dependency=_text(raw, "dependency"),
        reservation=_text(raw, "resv_name"),
        requeueable=raw.get("requeue") is True,
        cron="CRON_JOB" in _words(raw, "flags") or bool(raw.get("cron")),
    )


# Options of which the fit knows nothing, by the field that shows them.
UNCOUNTED: Final[Mapping[str, str]] = {
    "sockets_per_node": "--sockets-per-node",
    "cores_per_socket": "--cores-per-socket",
    "threads_per_core": "--threads-per-core",
    "tasks_per_core": "--ntasks-per-core",
    "tasks_per_socket": "--ntasks-per-socket",
    "core_spec": "--core-spec",
}


def _uncounted(raw: Mapping[str, object]) -> tuple[str, ...]:
    """Return the options of a job that no fit counts."""
    numbers = (option for key, option in UNCOUNTED.items() if _optional(raw, key))
    contiguous = ("--contiguous",) if raw.get("contiguous") is True else ()
    return (*numbers, *contiguous, *(("--exclusive",) if {"MCS", "TOPO"} & {*_words(raw, "shared")} else ()))


def upper_end(raw: Mapping[str, object]) -> int | None:
    """Return the most nodes that a pending job accepts, 0 where Slurm does not hold them; None if it is not pending."""
    return _optional(raw, "max_nodes") if "PENDING" in _words(raw, "job_state") else None


def node_record(raw: Mapping[str, object]) -> NodeRecord:
    """Read one node of `scontrol show node --json`, or of `sinfo --json` of 22.05."""
    return NodeRecord(
        name=_text(raw, "name"),
        states=(*_words(raw, "state"), *_words(raw, "state_flags")),
        reason=_text(raw, "reason"),
        cpus=_number(raw, "cpus") if (effective := _optional(raw, "effective_cpus")) is None else effective,
        cpus_used=_number(raw, "alloc_cpus"),
        memory_mib=max(0, _number(raw, "real_memory") - (_optional(raw, "specialized_memory") or 0)),
        memory_used_mib=_number(raw, "alloc_memory"),
        gres=gres_list(_text(raw, "gres"), field="node gres"),
        gres_used=gres_list(_text(raw, "gres_used"), field="node gres_used"),
        tmp_disk_mib=_optional(raw, "temporary_disk"),
        threads_per_core=_optional(raw, "threads") or 1,
        partitions=_strings(raw, "partitions"),
        features=_strings(raw, "active_features"),
        weight=_number(raw, "weight"),
    )


def partition(raw: Mapping[str, object]) -> Partition:
    """Read one partition of `scontrol show partition --json`."""
    maximums, minimums, defaults = (_object(raw, name) for name in ("maximums", "minimums", "defaults"))
    return Partition(
        name=_text(raw, "name"),
        is_up=takes_jobs("+".join(_words(_object(raw, "partition"), "state"))),
        nodes=node_names(_text(_object(raw, "nodes"), "configured"), field="partition nodes.configured"),
        max_time_s=_minutes(maximums, "time"),
        default_time_s=_minutes(defaults, "time"),
        priority_tier=_number(_object(raw, "priority"), "tier"),
        min_nodes_per_job=_optional(minimums, "nodes") or 1,
        max_nodes_per_job=_optional(maximums, "nodes"),
        priority_job_factor=_optional(_object(raw, "priority"), "job_factor") or 0,
        # Releases before 26.05 do not show it.
        is_default="DEFAULT" in _words(raw, "flags"),
        qos=_text(qos, "assigned") if isinstance(qos := raw.get("qos"), dict) else "",
        over_subscribe=_over_subscribe(raw),
        max_cpus_per_node=_optional(maximums, "cpus_per_node"),
    )


def partition_exclusive(raw: Mapping[str, object]) -> str:
    """Return what the jobs of a partition keep from others, in capitals; 26.05 alone has a field for it."""
    shown = _object(raw, "partition").get("exclusive")
    return shown.upper() if isinstance(shown, str) else ""


def _over_subscribe(raw: Mapping[str, object]) -> str:
    """Spell how the jobs of a partition share its CPUs as scontrol does, before 26.05 whole nodes included."""
    if partition_exclusive(raw) == "NODE":
        return "EXCLUSIVE"
    shown = _object(raw, "partition").get("oversubscribe")
    if isinstance(shown, str):
        return shown.upper()
    limit = _object(raw, "maximums").get("oversubscribe")
    if not isinstance(limit, dict):
        return "NO"
    jobs = _optional(limit, "jobs") or 0
    if any(str(flag).upper() == "FORCE" for flag in limit.get("flags") or ()):
        return f"FORCE:{jobs}"
    return "EXCLUSIVE" if jobs == 0 else "NO" if jobs == 1 else f"YES:{jobs}"


def _array(raw: Mapping[str, object]) -> ArrayRecord | None:
    array_job_id = _optional(raw, "array_job_id")
    if not array_job_id:
        return None
    match = _ARRAY_WAITING.fullmatch(_text(raw, "array_task_string"))
    if match is None or not match[1]:
        return ArrayRecord(array_job_id=array_job_id, task_id=_optional(raw, "array_task_id"))
    return ArrayRecord(array_job_id=array_job_id, waiting=match[1], max_running=int(match[2]) if match[2] else None)


def _het(raw: Mapping[str, object]) -> HetRecord | None:
    het_job_id = _optional(raw, "het_job_id")
    return HetRecord(het_job_id=het_job_id, offset=_optional(raw, "het_job_offset") or 0) if het_job_id else None


def _comment(raw: Mapping[str, object]) -> str:
    """Return the user's comment; data_parser v0.0.39 keeps it beside those of others."""
    comment = raw.get("comment")
    return _text(comment, "job") if isinstance(comment, dict) else _text(raw, "comment")


def _object(raw: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = raw.get(key)
    if not isinstance(value, dict):
        raise DecodeError(f"Slurm's JSON has no object {key}: try another --source")
    return value


def _text(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise unreadable(key, str(value), "a text")
    return "" if value == "(null)" else value.encode("utf-8", "backslashreplace").decode()


def _strings(raw: Mapping[str, object], key: str) -> tuple[str, ...]:
    value = raw.get(key)
    if isinstance(value, str):
        return names(value)
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise unreadable(key, str(value), "a list of names")
    return tuple(entry for entry in value if entry)


def _words(raw: Mapping[str, object], key: str) -> tuple[str, ...]:
    """Return words in capitals, whether they stand alone, joined by `+` or in a list."""
    value = raw.get(key)
    listed: Iterable[object] = value if isinstance(value, list) else () if value is None else (value,)
    return tuple(word for text in listed for word in str(text).upper().split("+") if word)


def _number(raw: Mapping[str, object], key: str) -> int:
    value = _optional(raw, key)
    if value is None:
        raise unreadable(key, str(raw.get(key)), "a number")
    return value


def _optional(raw: Mapping[str, object], key: str) -> int | None:
    """Return a whole number; None where it is not set, or without limit."""
    value = raw.get(key)
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set"):
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= _TOO_LARGE:
        raise unreadable(key, str(value)[:80], "a whole number")
    return None if value in _NO_VALUES else value


def _nice(raw: Mapping[str, object]) -> int:
    """Return a nice; the oldest format writes null for 0, and -1 and -2 as the numbers that mean none elsewhere."""
    value = raw.get("nice")
    if isinstance(value, int) and 2**31 <= value < 2**32:
        return signed(value)
    return _optional(raw, "nice") or 0


def _minutes(raw: Mapping[str, object], key: str) -> float | None:
    minutes = _optional(raw, key)
    return None if minutes is None else float(minutes) * MINUTE_S


def _instant(raw: Mapping[str, object], key: str) -> float | None:
    return float(_optional(raw, key) or 0) or None
