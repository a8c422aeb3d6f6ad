"""What a real slurmctld did with a workload, as values and as a file."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError


class RecordingError(RuntimeError):
    """A recording cannot be read; the text is one line for a person."""


class Scheduler(StrEnum):
    """Which of slurmctld's two schedulers."""

    MAIN = "main"
    BACKFILL = "backfill"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job as it is submitted; one CPU is asked for with each GPU.

    `nodes` is None for `--gpus` without a node count. `switches_wait_s` is 0 for a job that does not ask for one
    leaf switch. Times are seconds after the start of the workload.
    """

    name: str
    user: str
    submit_time: float
    gpus: int
    nodes: int | None
    time_limit_s: float
    sleep_s: float
    switches_wait_s: float = 0.0
    nice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NiceChange:
    """One `scontrol update Nice=` while the job may be pending; without effect on a job that has started."""

    name: str
    time: float
    nice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What happens to the cluster, and when."""

    seed: int
    jobs: tuple[JobRequest, ...]
    changes: tuple[NiceChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A job's priority right after its submission, and the factors that `sprio` splits it into."""

    total: int
    age: int
    fair_share: int
    job_size: int
    nice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What became of one job; times are seconds after the start of the workload, to the millisecond."""

    request: JobRequest
    job_id: int
    submit_time: float
    eligible_time: float
    start_time: float
    end_time: float
    started_by: Scheduler
    state: str
    nodes: tuple[str, ...]
    priority: Priority | None

    @property
    def queueing_delay_s(self) -> float:
        """Time from submission to start; none of the jobs waits for anything before it is eligible."""
        return self.start_time - self.submit_time

    @property
    def run_time_s(self) -> float:
        """Time from start to end."""
        return self.end_time - self.start_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of a scheduler."""

    scheduler: Scheduler
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account with one user and its shares among its siblings."""

    name: str
    user: str
    shares: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A workload and what a real slurmctld did with it.

    `parameters` are lines of `scontrol show config`, `leaves` the nodes below each leaf switch, `recalculations` the
    times at which slurmctld computed every priority again. `controller_start_time` is when slurmctld came up, which all
    its timers count from; it is negative. `zero_time` is the start of the workload in POSIX seconds: slurmctld rounds
    some instants to whole minutes of that clock.
    """

    release: str
    version: str
    parameters: dict[str, str]
    leaves: tuple[tuple[str, ...], ...]
    gpus_per_node: int
    cpus_per_node: int
    accounts: tuple[Account, ...]
    controller_start_time: float
    zero_time: float
    workload: Workload
    changes_made: tuple[NiceChange, ...]
    jobs: tuple[JobRecord, ...]
    passes: tuple[Pass, ...]
    recalculations: tuple[float, ...]

    def scheduler_parameter(self, name: str) -> str | None:
        """Look up one of SchedulerParameters; an empty text for a flag that is set, None for what is not there."""
        for part in self.parameters["SchedulerParameters"].split(","):
            key, _, value = part.partition("=")
            if key == name:
                return value
        return None


_FILE = TypeAdapter(Recording)


def read_recording(path: Path) -> Recording:
    """Read a recording and check its form."""
    try:
        return _FILE.validate_json(path.read_bytes())
    except OSError as err:
        raise RecordingError(f"{path}: {err.strerror}") from err
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordingError(f"{path}: not a recording: {where}: {first['msg']}") from err


def write_recording(recording: Recording, path: Path) -> None:
    """Write a recording."""
    path.write_bytes(_FILE.dump_json(recording, indent=1) + b"\n")
