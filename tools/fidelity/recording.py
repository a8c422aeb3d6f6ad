"""Holds what a real slurmctld did with a workload, read from its own log: as values and as a file."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from advisor.backends.site_config import site_config
from advisor.sim.cluster import SlurmParameters
from advisor.sim.slurm.queue_tables import QosTable
from advisor.sim.slurm.site_cluster import parameters_of


class RecordingError(RuntimeError):
    """A recording cannot be read or replayed; the text is one line for a person."""


class Scheduler(StrEnum):
    """Which of slurmctld's two schedulers."""

    MAIN = "main"
    BACKFILL = "backfill"


class WorkloadKind(StrEnum):
    """Names what a workload is about; `plain` and the longer `saturated` have one partition, no QOS and GPUs alone."""

    PLAIN = "plain"
    PARTITIONS = "partitions"
    QOS = "qos"
    ARRAYS = "arrays"
    DRAINED = "drained"
    CPU = "cpu"
    SATURATED = "saturated"
    TIERS = "tiers"
    PREEMPTING_QOS = "preempting-qos"


class DependencyType(StrEnum):
    """Names what a job waits for, as sbatch spells it."""

    AFTER_OK = "afterok"
    AFTER_ANY = "afterany"
    SINGLETON = "singleton"


class RecordedNodeState(StrEnum):
    """Names what an administrator sets a node to, as scontrol spells it."""

    DRAIN = "DRAIN"
    RESUME = "RESUME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Says what a job waits for: `names` of other jobs, none for a singleton."""

    type: DependencyType
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job or job array as it is submitted.

    `nodes` is None for `--gpus` without a node count. `switches_wait_s` is 0 for a job that does not ask for one
    leaf switch. Times are seconds after the start of the workload. `name` is unique in the workload; `shared_name` is
    what Slurm knows the jobs of a singleton by. An empty partition or QOS is the cluster's default. `array_size` is 0
    for a single job, `array_limit` the number of tasks that may run at once, 0 for all. `begin_delay_s` counts from the
    submission. `cpus` are those of each node of a job without GPUs; a job with GPUs gets `cpus_per_gpu`, and one
    CPU with each GPU if that is 0. `memory_mib` is per node; 0 asks for so little that memory never decides.
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
    partition: str = ""
    qos: str = ""
    shared_name: str = ""
    array_size: int = 0
    array_limit: int = 0
    dependency: Dependency | None = None
    begin_delay_s: float = 0.0
    cpus: int = 0
    cpus_per_gpu: int = 0
    memory_mib: int = 0
    exclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NiceChange:
    """One `scontrol update Nice=` while the job may be pending; without effect on a job that has started."""

    name: str
    time: float
    nice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedNodeEvent:
    """One `scontrol update NodeName= State=`; at the same time as a submission it comes first."""

    node: str
    time: float
    state: RecordedNodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWorkload:
    """Says what happens to the cluster, and when."""

    seed: int
    jobs: tuple[JobRequest, ...]
    changes: tuple[NiceChange, ...]
    kind: WorkloadKind = WorkloadKind.PLAIN
    node_events: tuple[RecordedNodeEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A job's priority right after its submission, and the factors that `sprio` splits it into."""

    total: int
    age: int
    fair_share: int
    job_size: int
    nice: int
    partition: int = 0
    qos: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedRun:
    """A run of a job that was preempted, and then requeued."""

    start_time: float
    end_time: float
    started_by: Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """Says what became of one job or array task; times are seconds after the start of the workload, to the millisecond.

    `eligible_time` is cut to whole seconds unless it is the submission. `array_task` is None for a single job. The
    start, the end and the nodes are those of the last run, before which came those that were `stopped`.
    """

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
    array_task: int | None = None
    stopped: tuple[StoppedRun, ...] = ()

    @property
    def queueing_delay_s(self) -> float:
        """Time from the moment at which the job is eligible to its start, at least 0."""
        return max(0.0, self.start_time - self.eligible_time)

    @property
    def begins(self) -> dict[tuple[int, int], tuple[float, float]]:
        """When each of its runs could begin and began, by the id of the job and the number of the run."""
        could = [self.submit_time, *(run.end_time for run in self.stopped)]
        began = [*(run.start_time for run in self.stopped), self.start_time]
        return {(self.job_id, number): pair for number, pair in enumerate(zip(could, began, strict=True))}


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
class RecordedPartition:
    """A partition as slurmctld reads it; the factor counts against the largest of all, no time limit is None."""

    name: str
    nodes: tuple[str, ...]
    priority_tier: int
    priority_job_factor: int
    max_time_s: float | None
    default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A workload and what a real slurmctld did with it.

    `parameters` are lines of `scontrol show config`, `leaves` the nodes below each leaf switch, `recalculations` the
    times at which slurmctld computed every priority again. `controller_start_time` is when slurmctld came up, which all
    its timers count from; it is negative. `zero_time` is the start of the workload in POSIX seconds: slurmctld rounds
    some instants to whole minutes of that clock. Partitions, QOS and `memory_mib_per_node` are missing from the first
    recordings, where they decide nothing.
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
    workload: RecordedWorkload
    changes_made: tuple[NiceChange, ...]
    jobs: tuple[RecordedJob, ...]
    passes: tuple[Pass, ...]
    recalculations: tuple[float, ...]
    partitions: tuple[RecordedPartition, ...] = ()
    qos: tuple[QosTable, ...] = ()
    node_events_made: tuple[RecordedNodeEvent, ...] = ()
    memory_mib_per_node: int | None = None

    @property
    def stated(self) -> SlurmParameters:
        """What its slurm.conf states, as `simulate --cluster live` reads it of a site."""
        shown = {name.lower(): value for name, value in self.parameters.items()}
        return parameters_of(site_config(shown, version=self.version))


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


STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\] (.*)$")
UP = re.compile(r"slurmctld version \S+ started on cluster")
# A task of an array is written as 5_2(7), with its own id last.
JOB = r"JobId=(?:\d+_\w+\()?(\d+)\)?"
SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+)")
STARTED_BY_MAIN = re.compile(rf"sched: Allocate {JOB} ")
STARTED_BY_BACKFILL = re.compile(rf"_start_job: Started {JOB} in ")
# What 26.05 writes of a start by backfill; a start by the main scheduler writes the line above first.
LAUNCHED = re.compile(rf"slurm_cred_create: creating credential for {JOB}")
ENDED = re.compile(rf"_job_complete: {JOB} done")
PREEMPTED = re.compile(rf"preempted {JOB} has been (requeued|killed) to reclaim resources")
MAIN_PASS = re.compile(r"Running job scheduler for (?:default depth|full queue)")
BACKFILL_PASS = re.compile(r"_attempt_backfill: beginning")
RECALCULATED = re.compile(r"decay_apply_weighted_factors: priority for job")
# Priorities are computed again once a minute, all within milliseconds.
SAME_RECALCULATION_S = 1.0


@dataclass(slots=True, kw_only=True)
class ControllerLog:
    """Times in POSIX seconds, by job id where they belong to jobs."""

    start_time: float = 0.0
    submits: dict[int, float] = field(default_factory=dict)
    starts: dict[int, Pass] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    stopped: dict[int, list[tuple[Pass, float]]] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    recalculations: list[float] = field(default_factory=list)


def read_log(lines: Iterable[str]) -> ControllerLog:
    """Read a log from the last start of slurmctld on; it needs the level debug2."""
    log = ControllerLog()
    for time, text in _stamped(lines):
        if UP.search(text):
            log = ControllerLog(start_time=time)
        elif MAIN_PASS.search(text):
            log.passes.append(Pass(scheduler=Scheduler.MAIN, time=time))
        elif BACKFILL_PASS.search(text):
            log.passes.append(Pass(scheduler=Scheduler.BACKFILL, time=time))
        elif RECALCULATED.search(text):
            if not log.recalculations or time - log.recalculations[-1] > SAME_RECALCULATION_S:
                log.recalculations.append(time)
        else:
            _read_job(log, time, text)
    return log


def _read_job(log: ControllerLog, time: float, text: str) -> None:
    """Note the submission, the start or the end of a job."""
    if match := SUBMITTED.search(text):
        log.submits[int(match[1])] = time
    elif match := STARTED_BY_MAIN.search(text):
        log.starts[int(match[1])] = Pass(scheduler=Scheduler.MAIN, time=time)
    elif match := STARTED_BY_BACKFILL.search(text):
        log.starts[int(match[1])] = Pass(scheduler=Scheduler.BACKFILL, time=time)
    elif match := LAUNCHED.search(text):
        log.starts.setdefault(int(match[1]), Pass(scheduler=Scheduler.BACKFILL, time=time))
    elif match := PREEMPTED.search(text):
        if match[2] == "killed":
            log.ends[int(match[1])] = time
        else:
            log.stopped.setdefault(int(match[1]), []).append((log.starts.pop(int(match[1])), time))
    elif match := ENDED.search(text):
        log.ends[int(match[1])] = time


def _stamped(lines: Iterable[str]) -> Iterator[tuple[float, str]]:
    for line in lines:
        if match := STAMP.match(line):
            # Slurm writes local time without saying so.
            yield datetime.fromisoformat(match[1]).astimezone().timestamp(), match[2]
