"""Reads jobs by their ids with squeue: whatever else is in the queue costs neither memory nor the answer."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from advisor.backends.process import Commands
from advisor.backends.records import JobRecord, jobs_of
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_source import job_records, new_delimiter
from advisor.clock import Clock
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError, SlurmRefusedError

# The kernel passes no argument of more than 128 KiB, and an id has up to ten digits.
IDS_PER_COMMAND: Final = 10_000
UNREADABLE: Final = "squeue prints fields of this job that cannot be read"

_NO_SUCH_JOB: Final = "invalid job id"
# Slurm's marks for "no value" and "no limit" where a release writes the bare number.
_NO_VALUES: Final = frozenset((0xFFFFFFFE, 0xFFFFFFFF))


def read_jobs(commands: Commands, job_ids: Collection[int], delimiter: Callable[[], str] = new_delimiter) -> list[Job]:
    """Return the jobs of some ids that Slurm knows, by id; raises `SlurmError`, or `DecodeError` for a cut answer.

    With an array come those of its tasks that squeue shows with an id of their own. A job of which a field cannot be
    read lists that in `unseen`; the others are read all the same.
    """
    wanted = sorted(set(job_ids))
    jobs: dict[int, Job] = {}
    for start in range(0, len(wanted), IDS_PER_COMMAND):
        for record in _records(commands, wanted[start : start + IDS_PER_COMMAND], delimiter()):
            jobs |= {job.job_id: job for job in _job(record)}
    tasks = [job for job in jobs.values() if job.array is not None and job.array.array_job_id in job_ids]
    return [jobs[job_id] for job_id in sorted({*wanted, *(task.job_id for task in tasks)}) if job_id in jobs]


def hidden_ends(commands: Commands, job_ids: Collection[int]) -> dict[int, bool]:
    """Map pending jobs to whether squeue shows the lower end of their node range for both; without those not known.

    Slurm then holds no upper end in the field that squeue prints; only its JSON shows that field as it is.
    """
    if not job_ids:
        return {}
    ids = ",".join(map(str, sorted(job_ids)))
    try:
        answer = commands.ask("squeue", "-a", "--json", "-j", ids).output
        # Slurm copies the bytes of users as they are, control characters and what is no UTF-8 too.
        document = json.loads(answer.decode("utf-8", "replace"), strict=False)
    except (SlurmRefusedError, DecodeError, ValueError, RecursionError):
        # A Slurm without JSON, a damaged answer, or a release that dumps the whole queue and a queue that is too long.
        return {}
    ends = {
        job_id: _upper_end(raw)
        for raw in _listed(document)
        if isinstance(job_id := raw.get("job_id"), int) and job_id in job_ids
    }
    return {job_id: end == 0 for job_id, end in ends.items() if end is not None}


def names_no_job(err: SlurmRefusedError) -> bool:
    """Return whether squeue refused a single id that Slurm does not know; of a list it leaves such ids out."""
    return _NO_SUCH_JOB in str(err).lower()


class NamedJobs:
    """Snapshots of some jobs alone, for what concerns no other job, such as reverting changes."""

    def __init__(self, commands: Commands, clock: Clock, site: SiteReader) -> None:
        """Take the commands, the clock, and the reader of the site's configuration."""
        self._commands = commands
        self._clock = clock
        self._site = site

    def snapshot_of(self, job_ids: Collection[int]) -> Snapshot:
        """Read the jobs of some ids as they are now."""
        site = self._site.read()
        taken_at = self._clock.now()
        return Snapshot(
            taken_at=taken_at,
            source="text",
            config=site.config,
            topology=site.topology,
            partitions=(),
            nodes=(),
            jobs=tuple(read_jobs(self._commands, job_ids)),
        )


def _listed(document: Any) -> list[dict[str, Any]]:
    """Return the jobs of an answer of `squeue --json`; none if it does not list them."""
    listed = document.get("jobs") if isinstance(document, dict) else None
    return [raw for raw in listed if isinstance(raw, dict)] if isinstance(listed, list) else []


def _upper_end(raw: Mapping[str, Any]) -> int | None:
    """Return the most nodes that a pending job accepts, 0 where Slurm holds no number; None for other jobs and answers.

    22.05 writes a plain number and one state, later releases `{"set", "infinite", "number"}` and a list of states.
    """
    if "PENDING" not in str(raw.get("job_state")).upper():
        return None
    most = raw.get("max_nodes")
    if isinstance(most, dict):
        most = most.get("number") if most.get("set") and not most.get("infinite") else None
    return most if type(most) is int and most not in _NO_VALUES else None


def _records(commands: Commands, job_ids: Iterable[int], delimiter: str) -> Iterator[JobRecord]:
    ids = ",".join(map(str, job_ids))
    try:
        records = list(job_records(commands, delimiter, "-j", ids))
    except SlurmRefusedError as err:
        if names_no_job(err):
            return
        raise
    for record in records:
        if isinstance(record, JobRecord):
            yield record
        elif record.job_id:
            yield _unread(record.job_id, "PENDING")


def _job(record: JobRecord) -> tuple[Job, ...]:
    """Return the job of a record; none if it has ended."""
    try:
        return jobs_of((record,), ())
    except DecodeError:
        return jobs_of((_unread(record.job_id, record.state),), ())


def _unread(job_id: int, state: str) -> JobRecord:
    """Return the record of a job of which no more than its state could be read."""
    return JobRecord(job_id=job_id, state=state, submit_time=0.0, unseen=(UNREADABLE,))
