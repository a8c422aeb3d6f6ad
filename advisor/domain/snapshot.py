"""Defines the snapshot, all that a planning pass knows about the cluster."""

from collections.abc import Mapping
from functools import cached_property

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.job import LATEST_TIME, Job, JobState
from advisor.domain.node import Node
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The cluster at `taken_at` (POSIX seconds): jobs by id, nodes and partitions by name.

    `source` names the reader. `unread` lists in plain words what could not be read; nothing is concluded about it.
    `splits_told` is False if the reader shows waiting tasks that were split off an array as part of the array.
    `hidden_levers` are the levers whose field the reader does not show: a job can hold any value there.
    `hides_bars` is whether the reader does not show everything that can bar a job from nodes, as `--exclude`.
    `unread_jobs` are the ids of the jobs that could not be read and are not among `jobs`, 0 for one without an id.
    `reader_fault` is why another reader was used in place of the preferred one, "" if the preferred one was used.
    """

    taken_at: float
    source: str
    config: SiteConfig
    topology: Topology
    partitions: tuple[Partition, ...]
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    unread: tuple[str, ...] = ()
    splits_told: bool = True
    hidden_levers: tuple[Lever, ...] = ()
    reader_fault: str = ""
    unread_jobs: tuple[int, ...] = ()
    hides_bars: bool = False

    def __post_init__(self) -> None:
        if self.taken_at < 0 or self.taken_at > LATEST_TIME:
            raise ValueError(f"taken_at {self.taken_at} is no time")

    def shows(self, job: Job, lever: Lever) -> bool:
        """Return whether the field of a lever was read for a job."""
        return lever not in self.hidden_levers and not job.unseen

    def leaves_out(self, job_id: int) -> bool:
        """Return whether a job could be in the queue though it is not among `jobs`, since it could not be read."""
        return job_id not in self.jobs_by_id and (job_id in self.unread_jobs or 0 in self.unread_jobs)

    @cached_property
    def jobs_by_id(self) -> Mapping[int, Job]:
        """Map job ids to jobs."""
        return {job.job_id: job for job in self.jobs}

    @cached_property
    def partitions_by_name(self) -> Mapping[str, Partition]:
        """Map partition names to partitions."""
        return {partition.name: partition for partition in self.partitions}

    @cached_property
    def pending(self) -> tuple[Job, ...]:
        """The pending jobs, in the order of `jobs`."""
        return tuple(job for job in self.jobs if job.state is JobState.PENDING)

    @cached_property
    def pending_gpu_jobs(self) -> tuple[Job, ...]:
        """The pending jobs that ask for whole GPUs, in the order of `jobs`."""
        return tuple(job for job in self.pending if job.gang.wants_gpus)

    @cached_property
    def running_gpu_jobs(self) -> tuple[Job, ...]:
        """The running jobs that asked for whole GPUs, in the order of `jobs`."""
        return tuple(job for job in self.jobs if job.state is JobState.RUNNING and job.gang.wants_gpus)
