"""Keeps the pending jobs of the last read, so that a row of squeue that did not change is not decoded again.

Most of a long queue does not change between reads, since Slurm computes priorities every few minutes. A pending job
depends on its row alone; the allocation of a started one depends on its nodes too, so those are always decoded.
"""

import secrets
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from advisor.backends.records import JobRecord
from advisor.backends.text_decode import JOB_FIELDS, job_record, row_of
from advisor.domain.job import Job


class KeptRows:
    """The pending jobs of the last read by the digests of their rows."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        # No job name can make the fields of one row look like those of another.
        self._between = f"\x1f{secrets.token_urlsafe(9)}\x1f"
        self._absent = frozenset[str]()
        self._jobs: dict[bytes, Job] = {}
        self._digests: dict[int, bytes] = {}

    def read(self, printed: Iterable[Sequence[str]], absent: frozenset[str]) -> list[JobRecord | Job]:
        """Return a job for each known row, and a record for each other one; `absent` as in `row_of`."""
        if absent != self._absent:
            self._absent, self._jobs = absent, {}
        records: list[JobRecord | Job] = []
        self._digests = {}
        for values in printed:
            text = self._between.join(values).encode("utf-8", "surrogateescape")
            digest = blake2b(text, digest_size=16).digest()
            job = self._jobs.get(digest) or job_record(row_of(values, JOB_FIELDS, absent))
            self._digests[job.job_id] = digest
            records.append(job)
        return records

    def keep(self, jobs: Iterable[Job]) -> None:
        """Keep the pending jobs of the last read."""
        self._jobs = {self._digests[job.job_id]: job for job in jobs if job.is_pending and job.job_id in self._digests}
