"""Reads a live cluster with squeue and sinfo: two commands, four requests to slurmctld."""

import secrets
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from advisor.backends.assembly import assemble
from advisor.backends.kept_rows import KeptRows
from advisor.backends.process import Commands, text_of
from advisor.backends.records import JobRecord, UnreadJob
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
from advisor.clock import Clock
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
