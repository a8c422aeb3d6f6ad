"""The cluster at a glance: which GPUs work, which stand idle and why, who waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleGpus:
    """The idle GPUs of one type on usable nodes, parted by what keeps them idle; the parts add up to all.

    `by_cpus`: the node has no idle CPU, or too few for any pending job whose GPUs are there. `by_memory`: the
    same for memory, where Slurm hands it out. `by_fragmentation`: pending GPU jobs may run on the node, but the
    least piece of every one of them needs more GPUs than are idle there. `startable`: all others, those that
    nobody pending asks for among them.
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
    """The most GPUs of one type that could start together now, with one CPU on each node.

    `under_leaf` None means that no leaf switch is known.
    """

    on_node: int
    under_leaf: int | None
    anywhere: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTypeOverview:
    """The GPUs of one type; an untyped pool is named "gpu".

    GPUs held in parts are in use. `unavailable` are those that nobody holds on nodes that start nothing. What
    depends on the use of the GPUs is None where the use of some of them is unknown. Pending jobs stand under each
    type they ask for by name; an array counts with all its waiting tasks.
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
    """How many jobs there are; an array counts with all its waiting tasks.

    `held`, `dependent` and `deferred` (to begin later) are pending ones; a job may be several of these.
    `pending_cpu_only` ask for no GPU and no part of one; `pending_gpus_unknown` cannot be read in that regard.
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
class Overview:
    """What `taken_at` looked like; `unread` says in plain words what could not be read.

    `pending_gpus` counts only jobs whose request tells how many; `pending_gpu_jobs_unsized` do not.
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
