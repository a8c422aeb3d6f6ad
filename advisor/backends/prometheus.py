"""Asks a Prometheus which GPUs are measured, and for how long each has been idle."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from advisor.backends.child import run_module
from advisor.backends.process import Deadline, printable
from advisor.domain.idle_gpus import MEASURED_S, GpuReading, UtilisationSettings
from advisor.domain.notice import check_url
from advisor.errors import AdvisorError, SlurmUnavailableError, UtilisationError
from advisor.files import read_bounded

_MODULE: Final = "advisor.backends.prometheus_child"
# The process takes this long to start and to end.
_SPARE_S: Final = 3.0
_MOST_BYTES: Final = 4096
# Above it the times of Prometheus are not compared with those of Slurm.
_MOST_CLOCK_DIFFERENCE_S: Final = 300.0
_STEP: Final = "5m"
_INDEX: Final = re.compile(r"(?:/dev/)?(?:nvidia|gpu)?([0-9]{1,4})", re.ASCII)
_JOB: Final = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)
_CHECKED: Final = ConfigDict(frozen=True, defer_build=True)


class _Sample(BaseModel):
    """One series of a vector: its labels, and an instant with the value as text."""

    model_config = _CHECKED

    metric: dict[str, str]
    value: tuple[float, str]


class _Vector(BaseModel):
    """The data of an answer to an instant query."""

    model_config = _CHECKED

    resultType: Literal["vector"]  # noqa: N815  (Prometheus's name)
    result: list[_Sample]


class _Response(BaseModel):
    """An answer of the HTTP API."""

    model_config = _CHECKED

    status: Literal["success"]
    data: _Vector


def queries_of(settings: UtilisationSettings) -> tuple[str, str]:
    """Return the queries for the GPUs that are measured now, and for when each was last busy or not measured.

    The second takes for idle only the steps in which every sample is at most `idle_percent`, so that short bursts count
    as busy; a step without samples is a gap. It holds no GPU that has been idle for all of `MEASURED_S`.
    """
    labels = ", ".join(filter(None, (settings.node_label, settings.gpu_label, settings.job_label)))
    by, metric = f"by ({labels})", settings.metric
    idle = f"max {by} (max_over_time({metric}[{_STEP}])) <= {settings.idle_percent:.10g}"
    last = f"timestamp(count {by} ({metric} @ end()) unless ({idle}))"
    return f"count {by} ({metric})", f"max_over_time({last}[{MEASURED_S:.0f}s:{_STEP}])"


def read_gpus(settings: UtilisationSettings, now: float, patience: Deadline | None = None) -> tuple[GpuReading, ...]:
    """Return the GPUs that are measured now; raises `UtilisationError`.

    One whose labels cannot be read is left out, and so is one that two nodes of the same short name have.
    """
    url = prometheus_url(settings.prometheus)
    host = urlsplit(url).hostname or ""
    measured, last = (_samples(answer, host) for answer in _answers(url, host, settings, patience))
    if not measured:
        raise UtilisationError(f"prometheus: {host} has no series {settings.metric} now: check utilisation.metric")
    asked_time = measured[0].value[0]
    if not abs(asked_time - now) <= _MOST_CLOCK_DIFFERENCE_S:
        raise UtilisationError(f"prometheus: the clock of {host} and that of this host differ by more than 5 min")
    text_by_key = {_key(sample, settings): sample.value[1] for sample in last}
    found: dict[tuple[str, int, int | None], tuple[str, GpuReading]] = {}
    doubted = set()
    for sample in measured:
        key = _key(sample, settings)
        for full, reading in _reading(key, _idle_s(asked_time, text_by_key.get(key))):
            place = reading.node, reading.index, reading.job_id
            if found.setdefault(place, (full, reading)) != (full, reading):
                doubted.add(place[:2])
    return tuple(reading for place, (_, reading) in sorted(found.items(), key=str) if place[:2] not in doubted)


def prometheus_url(setting: str) -> str:
    """Return the URL that a setting holds, or the file that it names; raises `UtilisationError` where there is none."""
    if not setting.startswith("/"):
        return setting
    try:
        url = read_bounded(Path(setting), _MOST_BYTES).decode().strip()
        check_url(url, "prometheus", "", with_user=True)
    except OSError as err:
        raise UtilisationError(f"prometheus: {setting}: cannot be read: {err.strerror}") from err
    except ValueError as err:
        # Not the reason of the parser, which can quote the URL.
        raise UtilisationError(
            f"prometheus: {setting}: holds no URL that is https, or http on a loopback address"
        ) from err
    return url


def _answers(url: str, host: str, settings: UtilisationSettings, patience: Deadline | None) -> list[str]:
    """Return the answers to the queries, from a process that is killed at the time limit."""
    task = json.dumps({"url": url, "queries": queries_of(settings), "timeout_s": settings.timeout_s}).encode()
    try:
        done = json.loads(run_module(_MODULE, task, patience, limit_s=settings.timeout_s + _SPARE_S))
    except SlurmUnavailableError as err:
        raise UtilisationError(f"prometheus: {host}: gave no answer within {settings.timeout_s:g} s") from err
    except (AdvisorError, ValueError) as err:
        raise UtilisationError(f"prometheus: the process that asks {host} failed") from err
    if fault := done["fault"]:
        raise UtilisationError(f"prometheus: {host}: {printable(str(fault))}: check utilisation.prometheus")
    answers: list[str] = done["answers"]
    return answers


def _samples(answer: str, host: str) -> list[_Sample]:
    try:
        return _Response.model_validate_json(answer).data.result
    except ValidationError as err:
        raise UtilisationError(
            f"prometheus: {host} answers, but not as Prometheus does: check utilisation.prometheus"
        ) from err


def _key(sample: _Sample, settings: UtilisationSettings) -> tuple[str, str, str]:
    """Return the node, the GPU and the job as the labels of a sample spell them."""
    labels = sample.metric
    return (
        labels.get(settings.node_label, ""),
        labels.get(settings.gpu_label, ""),
        labels.get(settings.job_label, "") if settings.job_label else "",
    )


def _reading(key: tuple[str, str, str], idle_s: float) -> Iterator[tuple[str, GpuReading]]:
    """Yield the name of the node in full and the GPU of some labels, if they can be read."""
    node, gpu, job = key
    index, short = _INDEX.fullmatch(gpu), re.split(r"[.:]", node, maxsplit=1)[0]
    if index is None or not short:
        return
    full = node.partition(":")[0]
    job_id = int(job) if _JOB.fullmatch(job) else None
    yield full, GpuReading(node=short, index=int(index[1]), idle_s=idle_s, job_id=job_id)


def _idle_s(now: float, last: str | None) -> float:
    """Return for how long a GPU has been idle, by the text of when it last was not; 0 for one that is no such time."""
    if last is None:
        return MEASURED_S
    try:
        idle_s = now - float(last)
    except ValueError:
        return 0.0
    return idle_s if 0.0 <= idle_s <= MEASURED_S else 0.0
