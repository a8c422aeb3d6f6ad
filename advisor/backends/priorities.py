"""Reads the parts of pending jobs' priorities with sprio; one request to slurmctld."""

import secrets
from collections.abc import Collection, Mapping
from typing import Final

from advisor.backends.process import Commands, SlurmCommands, ask_text
from advisor.backends.spelling import count, integer, is_unset
from advisor.domain.particulars import PriorityFactors
from advisor.errors import DecodeError

# What sprio prints instead of rows where none of the jobs waits any more.
_NO_JOBS: Final = "Unable to find jobs"
_PARTS: Final[Mapping[str, str]] = {
    "site": "%S",
    "age": "%A",
    "association": "%B",
    "fair_share": "%F",
    "job_size": "%J",
    "partition": "%P",
    "qos": "%Q",
    "nice": "%N",
    "tres": "%T",
}


def read_priority_factors(
    job_ids: Collection[int], *, cluster: str | None, timeout_s: float, commands: Commands | None = None
) -> dict[int, PriorityFactors]:
    """Map the ids of those of the jobs that wait to the weighted parts of their priority."""
    wanted = sorted(set(job_ids))
    if not wanted:
        return {}
    slurm = commands or SlurmCommands(timeout_s=timeout_s, cluster=cluster)
    delimiter = f"@{secrets.token_urlsafe(9)}"
    # sprio 24.11 refuses a list of jobs; the answer about all of them is one request too.
    named = (f"-j{wanted[0]}",) if len(wanted) == 1 else ()
    local = () if slurm.cluster is not None else ("--local",)
    layout = delimiter.join(("%i", "%Y", *_PARTS.values())) + delimiter
    answer = ask_text(slurm, "sprio", "-h", *local, *named, "-o", layout)
    factors = decode_factors(answer, delimiter)
    return {job_id: factors[job_id] for job_id in wanted if job_id in factors}


def decode_factors(text: str, delimiter: str) -> dict[int, PriorityFactors]:
    """Decode sprio's rows; of a job in several partitions, the one where its priority is highest counts."""
    if not text.strip() or text.startswith(_NO_JOBS):
        return {}
    values = [value.strip() for value in text.split(delimiter)]
    width = len(_PARTS) + 2
    if values.pop() or len(values) % width:
        raise DecodeError("sprio gave an incomplete answer: try again")
    highest: dict[int, tuple[int, PriorityFactors]] = {}
    for start in range(0, len(values), width):
        job, priority, *parts = values[start : start + width]
        job_id, ranked = count(job, field="sprio %i"), count(priority, field="sprio %Y")
        if job_id not in highest or ranked > highest[job_id][0]:
            spelled = dict(zip(_PARTS, parts, strict=True))
            highest[job_id] = ranked, _factors(spelled)
    return {job_id: factors for job_id, (_, factors) in highest.items()}


def _factors(parts: Mapping[str, str]) -> PriorityFactors:
    plain = {name: _part(parts, name) for name in _PARTS if name != "tres"}
    return PriorityFactors(**plain, tres=_tres(parts["tres"]))


def _part(parts: Mapping[str, str], name: str) -> int | None:
    text = parts[name]
    return None if is_unset(text) else integer(text, field=f"sprio {_PARTS[name]}")


def _tres(text: str) -> int | None:
    """Add up the parts of TRES, which sprio lists by name (`cpu=12,gres/gpu=300`)."""
    if is_unset(text):
        return None
    return sum(integer(part.rpartition("=")[2], field="sprio %T") for part in text.split(","))
