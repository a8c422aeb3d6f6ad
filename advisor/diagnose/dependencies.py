"""Reads what a job depends on: which jobs, and in what state they are."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.domain.facts import Evidence
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot

_CLAUSE = re.compile(
    r"(?P<kind>[a-z]{1,20})(?::(?P<job>\d{1,15})(?:_(?:\*|\d{1,10}))?(?:\+\d{1,10})?)?(?:\((?P<state>[a-z]{1,20})\))?",
    re.ASCII,
)
_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Prerequisite:
    """One job that another depends on: `kind` is Slurm's word, `job_id` None for one that names no job."""

    kind: str
    job_id: int | None = None
    has_failed: bool = False


def prerequisites(dependency: str) -> tuple[Prerequisite, ...]:
    """Return the jobs of a dependency such as `afterok:1(unfulfilled),afterany:6(failed)`; none of what is no such."""
    matches = [_CLAUSE.fullmatch(part) for part in re.split("[,?]", dependency)]
    return tuple(
        Prerequisite(
            kind=match["kind"],
            job_id=None if match["job"] is None else int(match["job"]),
            has_failed=match["state"] == "failed",
        )
        for match in matches
        if match is not None
    )


def dependency_evidence(snapshot: Snapshot, job: Job) -> dict[str, Evidence]:
    """Return what a job depends on, and the state of these jobs: lists of ids, as far as the queue shows them.

    `ends_time` is when the last of those that run ends by its time limit, where all that count run.
    """
    wanted = prerequisites(job.dependency)
    evidence: dict[str, Evidence] = {"dependency": job.dependency}
    if kinds := dict.fromkeys(prerequisite.kind for prerequisite in wanted):
        evidence["kinds"] = ",".join(kinds)
    if "?" in job.dependency:
        evidence["any_will_do"] = 1
    ids = dict.fromkeys(job_id for prerequisite in wanted for job_id in _ids(snapshot, job, prerequisite))
    failed = {prerequisite.job_id for prerequisite in wanted if prerequisite.has_failed}
    states: dict[str, list[int]] = {"failed": [], "running": [], "pending": [], "gone": []}
    for job_id in ids:
        states["failed" if job_id in failed else _state(snapshot, job_id)].append(job_id)
    evidence |= {f"{state}_jobs": _list(members) for state, members in states.items() if members}
    ends = [snapshot.jobs_by_id[job_id].end_time for job_id in states["running"] if job_id in snapshot.jobs_by_id]
    known = [end for end in ends if end is not None]
    if known and len(known) == len(ids):
        evidence["ends_time"] = max(known)
    return evidence


def _ids(snapshot: Snapshot, job: Job, prerequisite: Prerequisite) -> Iterator[int]:
    if prerequisite.job_id is not None:
        yield prerequisite.job_id
    elif prerequisite.kind == "singleton":
        yield from (
            other.job_id
            for other in sorted(snapshot.jobs, key=lambda other: other.job_id)
            if (other.name, other.user) == (job.name, job.user) and other.job_id < job.job_id
        )


def _state(snapshot: Snapshot, job_id: int) -> str:
    """Return the state of a job, or of an array by its first record that waits."""
    records = [
        other
        for other in snapshot.jobs
        if other.job_id == job_id or (other.array is not None and other.array.array_job_id == job_id)
    ]
    if not records:
        return "gone"
    return "pending" if any(record.is_pending for record in records) else "running"


def _list(job_ids: Sequence[int]) -> str:
    more = f" and {len(job_ids) - _NAMED} more" if len(job_ids) > _NAMED else ""
    return ", ".join(str(job_id) for job_id in job_ids[:_NAMED]) + more
