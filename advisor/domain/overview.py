"""Defines the overview of a cluster: which GPUs are in use, which are idle and why, which jobs wait."""

from advisor.domain.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleGpus:
    """The idle GPUs of one type on usable nodes, divided by what keeps them idle; the parts add up to all.

    `by_cpus`: the node has no idle CPU, or too few for any pending job whose GPUs are there. `by_memory`: the
    same for memory, if Slurm allocates it. `by_fragmentation`: pending GPU jobs can run on the node, but the
    smallest part of every one of them needs more GPUs than are idle there. `startable`: all others, including those
    that no pending job asks for.
    """

    startable: int
    by_cpus: int
    by_memory: int
    by_fragmentation: int

    @property
    def total(self) -> int:
        """All idle GPUs of the type on usable nodes."""
        return self.startable + self.by_cpus + self.by_memory + self.by_fragmentation


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestGang:
    """The largest number of GPUs of one type that could start together now, with one CPU on each node.

    `under_leaf` None means that no leaf switch is known.
    """

    on_node: int
    under_leaf: int | None
    anywhere: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTypeOverview:
    """The GPUs of one type; an untyped pool is named "gpu".

    GPUs held in parts are in use. `unavailable` are the free ones on nodes that start no jobs. Values that depend on
    the use of the GPUs are None if the use of some of them is unknown. Pending jobs are counted under each type that
    they name; an array counts with all its waiting tasks.
    """

    gpu_type: str
    total: int
    in_use: int | None
    unavailable: int | None
    idle: IdleGpus | None
    largest: LargestGang | None
    pending_jobs: int
    pending_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOverview:
    """Parts of GPUs of one kind ("mps" or "shard"), never mixed with whole ones."""

    kind: str
    total: int
    pending_jobs: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """Counts of jobs; an array counts with all its waiting tasks.

    `held`, `dependent` and `deferred` (to begin later) are pending ones; a job can be several of these.
    `pending_cpu_only` ask for no GPU and no part of one; the GPU request of `pending_gpus_unknown` is unknown.
    """

    running: int
    pending: int
    held: int
    dependent: int
    deferred: int
    running_cpu_only: int
    pending_cpu_only: int
    pending_gpus_unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestPending:
    """The job that has been eligible longest; one that Slurm has not made eligible does not count."""

    job_id: int
    queueing_delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedPartition:
    """A partition that starts no jobs, and what waits for it: jobs that can start in no other partition.

    `idle_gpus` are the idle GPUs on its usable nodes. `pending_gpus` counts only jobs whose request determines the
    number.
    """

    name: str
    pending_jobs: int
    pending_gpus: int
    idle_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of the cluster at `taken_at`; `unread` lists in plain words what could not be read.

    `stopped` are the partitions that are not up and for which GPU jobs wait.

    `pending_gpus` counts only jobs whose request determines the number; `pending_gpu_jobs_unsized` counts the others.
    """

    taken_at: float
    gpu_types: tuple[GpuTypeOverview, ...]
    shares: tuple[ShareOverview, ...]
    jobs: JobCounts
    pending_gpu_jobs: int
    pending_gpu_jobs_unsized: int
    pending_gpus: int
    pending_gpus_any_type: int
    oldest: OldestPending | None
    unread: tuple[str, ...] = ()
    stopped: tuple[StoppedPartition, ...] = ()
