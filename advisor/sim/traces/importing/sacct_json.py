"""Slurm's accounting as `sacct --json` prints it, from the openapi plugins of 22.05 to data_parser v0.0.45.

Numbers are plain, null or `{"set", "infinite", "number"}`, states a word or a list of words.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from advisor.backends.spelling import optional_text
from advisor.backends.tres import Tres, tres
from advisor.domain.units import MINUTE_S
from advisor.errors import DecodeError, TraceError
from advisor.files import check_json
from advisor.sim.traces.importing.accounted import Accounted, needed
from advisor.sim.traces.importing.workload_rows import reason
from advisor.sim.traces.trace_table import BadRow

# Slurm's marks for "no value" and "no limit" where a release writes the bare number.
_NO_VALUES: Final = frozenset((0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFE))
_LARGEST: Final = 10**15

JsonObject = Mapping[str, Any]


def accounted_jobs(path: Path, stream: TextIO, first: str) -> Iterator[Accounted | BadRow]:
    """Read the jobs of an answer whose first line has been read already; bad ones go by their place in the list."""
    try:
        text = first + stream.read()
        check_json(text.encode("utf-8", "surrogateescape"))
        answer = json.loads(text, strict=False)
    except (ValueError, RecursionError) as err:
        raise TraceError(f"{path}: not whole JSON ({err}): write it again with sacct --json") from err
    jobs = answer.get("jobs") if isinstance(answer, dict) else None
    if not isinstance(jobs, list):
        raise TraceError(f"{path}: JSON without a list of jobs: write it with sacct --json")
    for place, job in enumerate(jobs, start=1):
        try:
            yield _accounted(place, _object(job, "job"))
        except DecodeError as err:
            yield BadRow(line=place, why=reason(err), unit="entry")


def _accounted(place: int, job: JsonObject) -> Accounted:
    time, resources = _object(job.get("time"), "time"), _object(job.get("tres") or {}, "tres")
    state, het = _object(job.get("state"), "state"), _object(job.get("het") or {}, "het")
    array = _object(job.get("array") or {}, "array")
    current = state.get("current")
    comment = job.get("comment")
    words = current if isinstance(current, list) else [current]
    minutes = _number(time, "limit")
    return Accounted(
        line=place,
        job_id=str(_number(job, "job_id") or ""),
        het_job_id=str(_number(het, "job_id") or ""),
        states=frozenset(str(word).upper() for word in words),
        submit_time=needed(_instant(time, "submission"), "time.submission"),
        eligible_time=_instant(time, "eligible"),
        start_time=_instant(time, "start"),
        elapsed_s=float(_number(time, "elapsed") or 0),
        limit_s=None if minutes is None else float(minutes) * MINUTE_S,
        asked=_tres(resources, "requested"),
        held=_tres(resources, "allocated"),
        nodes=_number(job, "allocation_nodes"),
        user=_text(job, "user"),
        account=_text(job, "account"),
        qos=_text(job, "qos"),
        comment=_text(comment, "job") if isinstance(comment, dict) else _text(job, "comment"),
        partition=_text(job, "partition"),
        array_id=_number(array, "job_id") or 0,
        dependency=_text(job, "dependency"),
        name=_text(job, "name"),
        features=_text(job, "constraints"),
        reservation=_reservation(job.get("reservation")),
    )


def _reservation(value: Any) -> str:
    """Return the name of a reservation; 22.05 writes the number 0 for none."""
    name = value.get("name") if isinstance(value, dict) else value
    return optional_text(name) if isinstance(name, str) else ""


def _tres(resources: JsonObject, key: str) -> Tres:
    """Decode a list of resources by spelling it as Slurm's other answers do."""
    listed = resources.get(key) or []
    if not isinstance(listed, list):
        raise DecodeError(f"tres.{key} is no list")
    items = []
    for raw in listed:
        item = _object(raw, f"tres.{key}")
        number, name = _number(item, "count"), _text(item, "name")
        if number is not None and number >= 0:
            kind = _text(item, "type")
            items.append(f"{kind}/{name}={number}" if name else f"{kind}={number}{'M' if kind == 'mem' else ''}")
    return tres(",".join(items), field=f"tres.{key}")


def _object(value: Any, key: str) -> JsonObject:
    if not isinstance(value, dict):
        raise DecodeError(f"{key} is no object")
    return value


def _text(raw: JsonObject, key: str) -> str:
    value = raw.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodeError(f"{key} is no text")
    return optional_text(value)


def _number(raw: JsonObject, key: str) -> int | None:
    """Return a whole number; None where it is not set, or without limit."""
    value = raw.get(key)
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise DecodeError(f"{key} reads {str(value)[:40]!a}, which is not a whole number")
    if value in _NO_VALUES:
        return None
    if abs(value) > _LARGEST:
        raise DecodeError(f"{key} reads {value:.3g}, which is too large")
    return value


def _instant(raw: JsonObject, key: str) -> float | None:
    return float(_number(raw, key) or 0) or None
