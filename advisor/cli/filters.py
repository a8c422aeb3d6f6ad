"""Parses the filter options, which are spelled as squeue's, and applies them."""

import pwd
import re
from collections.abc import Sequence
from typing import Annotated

from advisor.backends.spelling import node_names
from advisor.cli.options import FILTERS, OptionGroup, shared
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.errors import ConfigError, DecodeError, OptionsError

_JOB = re.compile(r"(?P<id>\d{1,10})(?:_(?P<task>\d{1,9}|\[[\d,\-:]{1,1000}\])|\+(?P<offset>\d{1,9}))?", re.ASCII)
_MOST_TASKS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobName:
    """A job as a user's `word` names it: a record, some tasks of an array, or a component of a heterogeneous job."""

    word: str
    job_id: int
    tasks: frozenset[int] | None = None
    offset: int | None = None

    def names(self, job: Job) -> bool:
        """Return whether a record of the queue is, or holds, the named job."""
        if self.offset is not None:
            return job.het is not None and (job.het.het_job_id, job.het.offset) == (self.job_id, self.offset)
        if self.tasks is not None:
            if job.array is None or job.array.array_job_id != self.job_id:
                return False
            held = {job.array.task_id} if job.array.task_id is not None else _tasks(job.array.waiting)
            return bool(self.tasks & held)
        in_array = job.array is not None and job.array.array_job_id == self.job_id
        in_het = job.het is not None and job.het.het_job_id == self.job_id
        return job.job_id == self.job_id or in_array or in_het


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """The conditions that shown jobs satisfy; None means any."""

    partitions: frozenset[str] | None = None
    users: frozenset[str] | None = None
    accounts: frozenset[str] | None = None
    jobs: tuple[JobName, ...] | None = None
    nodes: frozenset[str] | None = None

    def keeps(self, job: Job, snapshot: Snapshot) -> bool:
        """Return whether a job satisfies the filters."""
        return (
            (self.partitions is None or not self.partitions.isdisjoint(job.partitions))
            and (self.users is None or job.user in self.users)
            and (self.accounts is None or job.account in self.accounts)
            and (self.jobs is None or any(name.names(job) for name in self.jobs))
            and (self.nodes is None or self._meets_nodes(job, snapshot))
        )

    def check(self, snapshot: Snapshot) -> None:
        """Raise `ConfigError` for a partition, node, user, account or job that the cluster does not have."""
        self.check_partitions_and_nodes(snapshot)
        self.check_jobs([snapshot])

    def check_jobs(self, snapshots: Sequence[Snapshot]) -> None:
        """Raise `ConfigError` for a user, an account or a job that none of the queues has."""
        jobs = [job for snapshot in snapshots for job in snapshot.jobs]
        where = ", ".join(snapshot.config.cluster or "this cluster" for snapshot in snapshots)
        # As squeue has it, a user without jobs is no error, and a name that no user has is one.
        users = {user for user in self.users or () if _is_user_here(user)}
        groups = (
            ("-u", "user", self.users, {job.user for job in jobs} | users),
            ("-A", "account", self.accounts, {job.account for job in jobs}),
        )
        for option, kind, wanted, there in groups:
            for name in sorted((wanted or frozenset()) - there):
                raise ConfigError(f"{option} {name!r}: no job of this {kind} is in the queue of {where}")
        for job in self.jobs or ():
            if not any(map(job.names, jobs)):
                raise ConfigError(f"-j {job.word}: this job is not in the queue of {where}")

    def check_partitions_and_nodes(self, snapshot: Snapshot) -> None:
        """Raise `ConfigError` for a partition or node that the cluster does not have."""
        unknown = sorted((self.partitions or frozenset()) - snapshot.partitions_by_name.keys())
        if unknown:
            known = ", ".join(sorted(snapshot.partitions_by_name))
            raise ConfigError(f"-p {unknown[0]!r} is not a partition of this cluster: known are {known or 'none'}")
        unknown = sorted((self.nodes or frozenset()) - {node.name for node in snapshot.nodes})
        if unknown:
            raise ConfigError(f"-w {unknown[0]!r} is not a node of this cluster: see sinfo -N")

    def _meets_nodes(self, job: Job, snapshot: Snapshot) -> bool:
        wanted = self.nodes or frozenset()
        by_name = snapshot.partitions_by_name
        return any(not wanted.isdisjoint(by_name[name].nodes) for name in job.partitions if name in by_name)


def _is_user_here(name: str) -> bool:
    """Return whether this host knows a user of that name."""
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


Partitions = Annotated[str | None, shared("-p --partition LIST", "Only jobs of these partitions.", FILTERS)]
Users = Annotated[str | None, shared("-u --user LIST", "Only jobs of these users.", FILTERS)]
Accounts = Annotated[str | None, shared("-A --account LIST", "Only jobs of these accounts.", FILTERS)]
Jobs = Annotated[str | None, shared("-j --jobs LIST", "Only these jobs: 123, 123_4, 123_[1-9] or 123+1.", FILTERS)]
Nodes = Annotated[
    str | None, shared("-w --nodelist HOSTLIST", "Only jobs whose partitions contain one of these nodes.", FILTERS)
]


def job_filter(
    partitions: Partitions = None,
    users: Users = None,
    accounts: Accounts = None,
    jobs: Jobs = None,
    nodes: Nodes = None,
) -> JobFilter:
    """Parse the filter options; raises `OptionsError` for a word that is not a job or a node."""
    return JobFilter(
        partitions=_names(partitions, "-p"),
        users=_names(users, "-u"),
        accounts=_names(accounts, "-A"),
        jobs=None if jobs is None else tuple(job_name(word) for word in sorted(_names(jobs, "-j") or ())),
        nodes=None if nodes is None else _nodes(nodes),
    )


# The jobs that a command is about.
Wanted = Annotated[JobFilter, OptionGroup(job_filter)]


def job_name(word: str) -> JobName:
    """Parse a job in squeue's spelling."""
    match = _JOB.fullmatch(word)
    if match is None:
        raise OptionsError(f"{word!r} is not a job: give 123, 123_4, 123_[1-9] or 123+1")
    task, offset = match["task"], match["offset"]
    return JobName(
        word=word,
        job_id=int(match["id"]),
        tasks=None if task is None else _tasks(task.strip("[]")),
        offset=None if offset is None else int(offset),
    )


def _tasks(text: str) -> frozenset[int]:
    """Parse an array expression such as `1-9:2,12`, without the parts that are not numbers.

    Raises `OptionsError` if it has more tasks than an array can have.
    """
    tasks: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition(":")
        low, dash, high = span.partition("-")
        if low.isdecimal() and (not dash or high.isdecimal()):
            if max(int(low), int(high or low)) > _MOST_TASKS:
                raise OptionsError(f"{part!r} names more tasks than an array can have")
            tasks.update(range(int(low), int(high or low) + 1, max(1, int(step)) if step.isdecimal() else 1))
    return frozenset(tasks)


def _names(text: str | None, option: str) -> frozenset[str] | None:
    if text is None:
        return None
    words = frozenset(_words(text))
    if not words:
        raise OptionsError(f"{option} names nothing: an unset variable? leave it out to see all")
    return words


def _words(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return [word for word in re.split(r",(?![^\[]*\])", text) if word.strip()]


def _nodes(text: str) -> frozenset[str]:
    try:
        names = node_names(text, field="-w")
    except DecodeError as err:
        raise OptionsError(f"-w {text[:80]!r} is not a host list: give names such as n01,n[03-08]") from err
    if not names:
        raise OptionsError("-w names nothing: an unset variable? leave it out to see all")
    return frozenset(names)
