"""Finds strays: pending jobs that look as if sadvise had changed them, although the journal knows of no such change.

They remain when a journal is lost or replaced by an earlier copy. A person can have set them, so that they are listed
and only reverted at the request of another person.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from advisor.domain.actions import Lever, NodeRange, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.mark import is_marked
from advisor.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The options on the command line that submitted a job; None for one that is not there.

    `nodes` has no more nodes than tasks: sbatch cuts it itself.
    """

    nice: int | None = None
    nodes: NodeRange | None = None
    has_switches: bool = False


NOT_SUBMITTED: Final[Mapping[int, Submitted]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A field of a pending job that sadvise can have set, and why it looks so, in plain words.

    `action` is the change as sadvise would have sent it, for a nice; None for other fields.
    """

    job_id: int
    lever: Lever
    text: str
    action: SetNice | None = None

    @property
    def is_lift(self) -> bool:
        """Whether it is a nice below 0, which takes an Operator."""
        return self.action is not None and self.action.after < 0


def candidates(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the pending jobs whose submit line can tell whether one of their fields was changed."""
    return tuple(
        job.job_id
        for job in snapshot.jobs
        if job.is_pending and (is_marked(job.nice) or job.gang.switches is not None or job.gang.nodes_max is not None)
    )


def strays(
    snapshot: Snapshot, leases: Collection[Lease], submitted: Mapping[int, Submitted] = NOT_SUBMITTED
) -> tuple[Stray, ...]:
    """Return the fields of pending jobs that look changed by sadvise and belong to none of `leases`, by job."""
    leased = {(lease.job_id, lease.lever) for lease in leases}
    # The lease of an array is that of its waiting tasks.
    arrays = {job.job_id: job.array.array_job_id for job in snapshot.jobs if job.array is not None}
    pending = sorted((job for job in snapshot.jobs if job.is_pending), key=lambda job: job.job_id)
    return tuple(
        stray
        for job in pending
        for stray in _of_job(job, submitted.get(job.job_id))
        if leased.isdisjoint({(stray.job_id, stray.lever), (arrays.get(stray.job_id, 0), stray.lever)})
    )


def _of_job(job: Job, submitted: Submitted | None) -> Iterator[Stray]:
    if is_marked(job.nice) and (submitted is None or submitted.nice != job.nice):
        users = 0 if submitted is None else submitted.nice or 0
        action = SetNice(job_id=job.job_id, before=users, after=job.nice)
        text = f"nice {job.nice} carries the mark of sadvise"
        yield Stray(job_id=job.job_id, lever=Lever.NICE, text=text, action=action)
    # The line of a heterogeneous job has the options of all its components.
    if submitted is None or job.het is not None:
        return
    gang = job.gang
    held = None if gang.nodes_max is None else NodeRange(low=gang.nodes_min, high=gang.nodes_max)
    if submitted.nodes is not None and held is not None and held.high < submitted.nodes.high:
        text = f"accepts {held} nodes, submitted with {submitted.nodes}"
        yield Stray(job_id=job.job_id, lever=Lever.NODE_RANGE, text=text)
    if gang.switches is not None and not submitted.has_switches:
        text = "waits for few leaf switches, which its submit line does not ask for; its script can"
        yield Stray(job_id=job.job_id, lever=Lever.SWITCHES, text=text)
