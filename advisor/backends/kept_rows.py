"""Keeps the pending jobs of the last read, so that a row of squeue that did not change is not decoded again.

Most of a long queue does not change between reads, since Slurm computes priorities every few minutes. A pending job
depends on its row and on the GPUs that nodes have; the allocation of a started one depends on its nodes too, so those
are always decoded.
"""

import secrets
from collections.abc import Iterable
from hashlib import blake2b

from advisor.backends.records import JobRecord, NodeRecord, UnreadJob, UnreadRow
from advisor.backends.text_decode import record_of
from advisor.backends.tres import Gres
from advisor.domain.job import Job


class KeptRows:
    """The pending jobs of the last read by the digests of their rows."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        # No job name can make the fields of one row look like those of another.
        self._between = f"\x1f{secrets.token_urlsafe(9)}\x1f".encode()
        # The fields that squeue did not print, and the GPUs of nodes.
        self._read_with: tuple[frozenset[str], frozenset[tuple[Gres, ...]]] = (frozenset(), frozenset())
        self._jobs: dict[bytes, Job] = {}
        self._digests: dict[int, bytes] = {}

    def read(
        self, rows: Iterable[bytes], delimiter: str, absent: frozenset[str], nodes: Iterable[NodeRecord | UnreadRow]
    ) -> list[JobRecord | Job | UnreadJob]:
        """Return a job for each known row, and what `record_of` reads from each other one."""
        read_with = absent, frozenset(node.gres for node in nodes if isinstance(node, NodeRecord))
        if read_with != self._read_with:
            self._read_with, self._jobs = read_with, {}
        records: list[JobRecord | Job | UnreadJob] = []
        self._digests = {}
        end = delimiter.encode()
        for row in rows:
            digest = blake2b(row.replace(end, self._between), digest_size=16).digest()
            job = self._jobs.get(digest) or record_of(row, delimiter, absent)
            # Which of two rows a job was made of is not known afterwards.
            self._digests[job.job_id] = b"" if job.job_id in self._digests else digest
            records.append(job)
        return records

    def keep(self, jobs: Iterable[Job]) -> None:
        """Keep the pending jobs of the last read."""
        self._jobs = {self._digests[job.job_id]: job for job in jobs if job.is_pending and self._digests[job.job_id]}
