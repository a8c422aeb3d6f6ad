"""Reads a live cluster with squeue and sinfo: two commands, four requests to slurmctld.

Most of a long queue does not change between reads, since Slurm computes priorities every few minutes. So the pending
jobs of the last read are kept: such a job depends on its row and on the GPUs that nodes have. The allocation of a
started one depends on its nodes too, so those are always decoded.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import Final

from advisor.backends.assembly import assemble
from advisor.backends.process import Commands, text_of
from advisor.backends.records import JobRecord, NodeRecord, UnreadJob, UnreadRow
from advisor.backends.reservations import read_reservations
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_decode import (
    NODE_FIELDS,
    NODE_WIDTHS,
    Row,
    field_list,
    job_format,
    job_rows,
    node_records,
    partitions_of,
    record_of,
    rows,
    unknown_fields,
)
from advisor.backends.tres import Gres
from advisor.clock import Clock
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot

_JOB_ARGUMENTS: Final = ("-h", "-a", "--noconvert")
_NODE_ARGUMENTS: Final = ("-h", "-a", "-N", "--noconvert")

# What squeue cannot say, by the field it lacks.
_UNREAD: Final = {
    "ExcNodes": "squeue of this release does not tell which nodes a job excludes",
    "CronJob": "squeue of this release does not tell scrontab jobs from others",
}
SPLIT_ARRAYS: Final = "squeue of this release shows a waiting task that was split off as a part of its array"


def new_delimiter() -> str:
    """Return a delimiter that no job name can hold but by guessing 72 random bits."""
    return f"@{secrets.token_urlsafe(9)}"


def printed_jobs(commands: Commands, delimiter: str, *arguments: str) -> tuple[Iterator[bytes], frozenset[str]]:
    """Ask squeue for jobs; return their rows as they come, and the fields that this release does not have.

    The format is not an argument: every user can read those, and could then forge rows in the name of a job.
    """
    variables = {"SQUEUE_FORMAT2": job_format(delimiter)}
    answer = commands.stream("squeue", *_JOB_ARGUMENTS, *arguments, *_local(commands), variables=variables)
    chunks = iter(answer)
    first = next(chunks, b"")
    lacking = unknown_fields(text_of(answer.complaints))
    return job_rows(chain((first,), chunks), delimiter=delimiter, heading=_heading(commands)), lacking


def job_records(commands: Commands, delimiter: str, *arguments: str) -> Iterator[JobRecord | UnreadJob]:
    """Ask squeue for jobs, such as those that `-j` names, and read each from its row."""
    printed, lacking = printed_jobs(commands, delimiter, *arguments)
    return (record_of(row, delimiter, lacking) for row in printed)


def _node_rows(commands: Commands, delimiter: str) -> list[Row]:
    fields = field_list(NODE_FIELDS, delimiter, NODE_WIDTHS)
    answer = commands.ask("sinfo", *_NODE_ARGUMENTS, *_local(commands), "-O", fields)
    return rows(
        answer.output.removeprefix(_heading(commands).encode()),
        command="sinfo",
        fields=NODE_FIELDS,
        delimiter=delimiter,
        absent=unknown_fields(text_of(answer.complaints)),
        widths=NODE_WIDTHS,
    )


def _local(commands: Commands) -> tuple[str, ...]:
    return () if commands.cluster is not None else ("--local",)


def _heading(commands: Commands) -> str:
    """Return what stands before the rows of a cluster that was asked for by its name."""
    return "" if commands.cluster is None else f"CLUSTER: {commands.cluster}\n"


class TextSource:
    """The cluster as squeue and sinfo print it."""

    name = "text"

    def __init__(
        self, commands: Commands, clock: Clock, site: SiteReader, *, delimiter: Callable[[], str] = new_delimiter
    ) -> None:
        self._commands = commands
        self._clock = clock
        self._site = site
        self._delimiter = delimiter
        self._kept = KeptRows()

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""
        site = self._site.read()
        taken_at = self._clock.now()
        # Jobs first: a job that starts in between then shows on its node and is not promised its GPUs twice.
        # Each array record as slurmctld holds it, where squeue can; one row per task would be far too many.
        unique = ("--array-unique",) if site.config.traits.squeue_array_unique else ()
        delimiter = self._delimiter()
        printed, lacking = printed_jobs(self._commands, delimiter, *unique)
        node_rows = _node_rows(self._commands, self._delimiter())
        nodes = node_records(node_rows)
        snapshot = assemble(
            source=self.name,
            reservations=lambda: read_reservations(self._commands),
            taken_at=taken_at,
            site=site,
            jobs=self._kept.read(printed, delimiter, lacking, nodes),
            nodes=nodes,
            partitions=partitions_of(node_rows),
            splits_told=bool(unique),
            hides_bars="ExcNodes" in lacking,
            unread=(
                *(() if unique else (SPLIT_ARRAYS,)),
                *(sentence for field, sentence in _UNREAD.items() if field in lacking),
            ),
        )
        self._kept.keep(snapshot.jobs)
        return snapshot


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
