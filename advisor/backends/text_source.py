"""Reads a live cluster with squeue and sinfo: two commands, four requests to slurmctld."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from advisor.backends.assembly import assemble
from advisor.backends.kept_rows import KeptRows
from advisor.backends.process import Commands, text_of
from advisor.backends.site_reader import SiteReader
from advisor.backends.text_decode import (
    JOB_FIELDS,
    NODE_FIELDS,
    field_list,
    node_records,
    partitions_of,
    printed_rows,
    row_of,
    unknown_fields,
)
from advisor.clock import Clock
from advisor.domain.snapshot import Snapshot

JOB_ARGUMENTS: Final = ("-h", "-a", "--noconvert")
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


def printed(
    commands: Commands, delimiter: str, fields: Sequence[str], command: str, *arguments: str
) -> tuple[Iterator[list[str]], frozenset[str]]:
    """Ask for fields; return the values of the rows and the fields that this release does not have."""
    local = () if commands.cluster is not None else ("--local",)
    answer = commands.ask(command, *arguments, *local, "-O", field_list(fields, delimiter))
    # The commands name a cluster that was asked for by its name before its rows.
    text = text_of(answer.output).removeprefix(f"CLUSTER: {commands.cluster}\n")
    lacking = unknown_fields(text_of(answer.complaints))
    return printed_rows(text, command=command, fields=fields, delimiter=delimiter), lacking


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
        rows, lacking = printed(self._commands, self._delimiter(), JOB_FIELDS, "squeue", *JOB_ARGUMENTS, *unique)
        jobs = self._kept.read(rows, lacking)
        rows, lacking_of_nodes = printed(self._commands, self._delimiter(), NODE_FIELDS, "sinfo", *_NODE_ARGUMENTS)
        nodes = [row_of(values, NODE_FIELDS, lacking_of_nodes) for values in rows]
        snapshot = assemble(
            source=self.name,
            taken_at=taken_at,
            site=site,
            jobs=jobs,
            nodes=node_records(nodes),
            partitions=partitions_of(nodes),
            splits_told=bool(unique),
            unread=(
                *(() if unique else (SPLIT_ARRAYS,)),
                *(sentence for field, sentence in _UNREAD.items() if field in lacking),
            ),
        )
        self._kept.keep(snapshot.jobs)
        return snapshot
