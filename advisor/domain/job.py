"""Defines jobs."""

from enum import StrEnum

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import MOST, GangRequest, GpuCount, GpuScope

# Slurm's ids, priorities and nices have 32 bits or fewer, and some of their arithmetic is wider.
_LARGEST_ID = 2**53
LATEST_TIME = 1e11
# Array expressions are compressed; a longer one is damage.
_LONGEST_TASKS = 100_000


class JobState(StrEnum):
    """The states that matter to a plan; every other one of Slurm's is OTHER."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"
    OTHER = "other"


class Sensitivity(StrEnum):
    """The sensitivity of a job to spreading, as its user declares it."""

    LOW = "low"
    HIGH = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRange:
    """The GPU counts a job declares it can run on, both ends included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= MOST:
            raise ValueError(f"GPU range {self.low}-{self.high} is not a range of counts from 1 to {MOST}")

    @property
    def sizes(self) -> list[int]:
        """The sizes worth trying, ascending: both ends and the powers of two between."""
        powers = {1 << exponent for exponent in range(self.high.bit_length())}
        return sorted(size for size in powers | {self.low, self.high} if self.low <= size <= self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHints:
    """The user's hints in `--comment` after `sadvise:`; `unknown` holds the words that are not hints.

    `step_s` is the time of a training step that a running job states, in seconds. `wants_mail` asks for a mail about
    changes of the job. `deadline_time` is the instant by which the job is to have ended. The submit script
    has held the gang to `pinned` nodes at most.
    """

    model: str | None = None
    gpus: GpuRange | None = None
    checkpoint_s: float | None = None
    step_s: float | None = None
    sensitivity: Sensitivity | None = None
    opted_out: bool = False
    wants_mail: bool = False
    deadline_time: float | None = None
    pinned: int | None = None
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.deadline_time is not None and not 0.0 <= self.deadline_time <= LATEST_TIME:
            raise ValueError(f"the deadline {self.deadline_time} is no time")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayRecord:
    """A record of a job array: one task (`task_id` set) or all tasks not yet split off (`waiting` set)."""

    array_job_id: int
    task_id: int | None = None
    waiting: str = ""
    max_running: int | None = None


def waiting_tasks(text: str) -> int:
    """Count the tasks of an array expression such as `3-6`, `1,4-10:2`; at least one."""
    count = 0
    for part in text[:_LONGEST_TASKS].split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if low.isdecimal() and high.isdecimal() and max(len(low), len(high), len(step)) <= 9:
            count += max(0, (int(high) - int(low)) // (int(step) if step.isdecimal() and int(step) else 1) + 1)
        else:
            count += 1
    return max(1, min(count, MOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class HetRecord:
    """A component of a heterogeneous job."""

    het_job_id: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a started job holds: nodes in name order and whole GPUs over all of them (empty where unknown)."""

    nodes: tuple[str, ...]
    gpus: tuple[GpuCount, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One record of the queue.

    Times are POSIX seconds, None if Slurm does not know them. `start_time` of a pending job is the start that Slurm
    expects. `time_limit_s` None means unlimited. `priority` None means unknown; 0 marks a held job. `unseen` names the
    fields that the reader could not read, whose values above are then defaults.
    """

    job_id: int
    state: JobState
    reason: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partitions: tuple[str, ...] = ()
    qos: str = ""
    gang: GangRequest
    allocation: Allocation | None = None
    hints: JobHints = JobHints()
    array: ArrayRecord | None = None
    het: HetRecord | None = None
    submit_time: float
    eligible_time: float | None = None
    start_time: float | None = None
    end_time: float | None = None
    time_limit_s: float | None = None
    time_min_s: float | None = None
    priority: int | None = None
    nice: int = 0
    held: bool = False
    dependency: str = ""
    reservation: str = ""
    requeueable: bool = False
    cron: bool = False
    unseen: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.job_id <= 0:
            raise ValueError(f"job id {self.job_id} is not a positive number")
        if self.job_id > _LARGEST_ID:
            raise ValueError(f"job id {self.job_id} is beyond Slurm's numbers")
        if not 0 <= (self.priority or 0) <= _LARGEST_ID or abs(self.nice) > _LARGEST_ID:
            raise ValueError(f"priority {self.priority} with nice {self.nice} is beyond Slurm's numbers")
        # NaN is no time either: it compares with nothing.
        for instant in (self.submit_time, self.eligible_time, self.start_time, self.end_time):
            if instant is not None and not abs(instant) <= LATEST_TIME:
                raise ValueError(f"a time of job {self.job_id} is beyond the year 5000")
        for limit_s in (self.time_limit_s, self.time_min_s):
            if limit_s is not None and not 0 <= limit_s <= LATEST_TIME:
                raise ValueError(f"a time limit of job {self.job_id} is negative or beyond the year 5000")

    @property
    def is_pending(self) -> bool:
        """Whether the job has not started."""
        return self.state is JobState.PENDING

    @property
    def leaves_nodes_open(self) -> bool:
        """Whether its user left the node count open, so that the submit script held it to few nodes."""
        return self.hints.pinned is not None and self.gang.scope in (GpuScope.JOB, GpuScope.TASK)

    @property
    def is_split_off(self) -> bool:
        """Whether the job is a task of an array with a record of its own: it has started once, or was changed alone."""
        return self.array is not None and self.array.array_job_id != self.job_id

    def is_planned_after(self, now: float) -> bool:
        """Return whether slurmctld's own plan has a start for a pending job, and that is later."""
        return self.start_time is not None and self.start_time > now

    @property
    def waits_since(self) -> float:
        """The instant at which the job became eligible; that of its submission where it is not known."""
        return self.submit_time if self.eligible_time is None else self.eligible_time

    def is_below(self, priority: int) -> bool:
        """Return whether the job is known to have a lower priority."""
        return self.priority is not None and self.priority < priority

    def queueing_delay_s(self, now: float) -> float:
        """Return how long the job has been eligible without starting; 0 before it is."""
        return max(0.0, now - self.waits_since)


def tasks_of(job: Job) -> int:
    """Return how many tasks wait behind a record: those of an array that is not split, 1 for other jobs."""
    return waiting_tasks(job.array.waiting) if job.array and job.array.task_id is None else 1
