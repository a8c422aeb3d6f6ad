"""Reads a live cluster as JSON: squeue for jobs, scontrol for nodes and partitions, four requests to slurmctld."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from advisor.backends import json_decode, scontrol_text
from advisor.backends.assembly import assemble
from advisor.backends.process import Commands, text_of
from advisor.backends.records import JobRecord, NodeRecord, UnreadJob, UnreadRow, row_or_unread
from advisor.backends.reservations import read_reservations
from advisor.backends.site_reader import SiteReader
from advisor.clock import Clock
from advisor.domain.actions import Lever
from advisor.domain.releases import Traits
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot

# A job is about eight thousand bytes of JSON.
LIMIT_BYTES: Final = 512 << 20

NO_SWITCHES: Final = "the JSON of this release does not tell which jobs wait for few switches"
NO_EXCLUSIVE: Final = "the JSON of this release does not tell which jobs want whole nodes for themselves"


class JsonSource:
    """The cluster as Slurm's commands dump it."""

    name = "json"

    def __init__(self, commands: Commands, clock: Clock, site: SiteReader) -> None:
        self._commands = commands
        self._clock = clock
        self._site = site

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""
        site = self._site.read()
        traits = site.config.traits
        taken_at = self._clock.now()
        # Jobs first: a job that starts in between then shows on its node and is not promised its GPUs twice.
        jobs = json_decode.parse(self._ask("squeue", "-a", "--json"), command="squeue --json", key="jobs")
        nodes = self._nodes(traits)
        partitions, exclusive = self._partitions(traits)
        return assemble(
            source=self.name,
            reservations=lambda: read_reservations(self._commands),
            taken_at=taken_at,
            site=site,
            jobs=(_as_its_partitions(json_decode.job_or_unread(raw), exclusive) for raw in jobs),
            nodes=nodes,
            partitions=partitions,
            hidden_levers=() if traits.switches_in_json else (Lever.SWITCHES,),
            hides_bars=not (traits.switches_in_json and traits.sharing_tells_exclusive),
            unread=(
                *(() if traits.switches_in_json else (NO_SWITCHES,)),
                *(() if traits.sharing_tells_exclusive else (NO_EXCLUSIVE,)),
            ),
        )

    def _nodes(self, traits: Traits) -> Iterable[NodeRecord | UnreadRow]:
        if traits.scontrol_json:
            command, answer = "scontrol show node --json", self._ask("scontrol", "-a", "show", "node", "--json")
        else:
            command, answer = "sinfo --json", self._ask("sinfo", "-a", "--json")
        listed = json_decode.parse(answer, command=command, key="nodes")
        return [row_or_unread(partial(json_decode.node_record, raw), raw.get("name")) for raw in listed]

    def _partitions(self, traits: Traits) -> tuple[Sequence[Partition | UnreadRow], Mapping[str, str]]:
        """Read the partitions, and by name what the jobs of each share with no others, where it is shown."""
        if not traits.scontrol_json:
            return tuple(scontrol_text.partitions(text_of(self._ask("scontrol", "-a", "show", "partition")))), {}
        answer = self._ask("scontrol", "-a", "show", "partition", "--json")
        listed = list(json_decode.parse(answer, command="scontrol show partition --json", key="partitions"))
        rows = [row_or_unread(partial(json_decode.partition, raw), raw.get("name")) for raw in listed]
        read = ((row, raw) for row, raw in zip(rows, listed, strict=True) if isinstance(row, Partition))
        return rows, {row.name: json_decode.partition_exclusive(raw) for row, raw in read}

    def _ask(self, program: str, *arguments: str) -> bytes:
        return self._commands.ask(program, *arguments).output


def _as_its_partitions(job: JobRecord | UnreadJob, exclusive: Mapping[str, str]) -> JobRecord | UnreadJob:
    """Return a job with what its partitions keep from others, which the job itself shows but in the JSON of 26.05."""
    if isinstance(job, JobRecord) and exclusive:
        kept = {exclusive.get(name, "") for name in job.partitions}
        job.only_user |= "USER" in kept
        job.exclusive |= kept == {"NODE"}
    return job
