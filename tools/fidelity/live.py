"""Runs a workload on a real slurmctld and records what it does."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tools.fidelity.log import ControllerLog, read_log
from tools.fidelity.recording import JobRecord, JobRequest, NiceChange, Pass, Priority, Recording, Workload
from tools.fidelity.workload import ACCOUNTS
from tools.live_slurm import LiveCluster, LiveSlurmError
from tools.live_slurm.settings import CPUS_PER_NODE

RELEASE = "22.05"
NODE_COUNT, GPUS_PER_NODE, NODES_PER_LEAF = 8, 8, 4
SWITCH_WAIT_S = 86400
# How long the last job may take to end after the last action.
DRAIN_DEADLINE_S = 900.0
RECORDED_PARAMETERS = re.compile(
    r"^(Priority\w+|Scheduler\w+|SelectType\w*|TopologyPlugin|TopologyParam|CompleteWait|KillWait|OverTimeLimit"
    r"|PreemptType|PreemptMode|EnforcePartLimits|FairShareDampeningFactor)$"
)

# Every parameter that decides when and where a job starts is spelled out, also where it is the default.
SCHEDULER_PARAMETERS: Mapping[str, int] = {
    "sched_interval": 60,
    "batch_sched_delay": 3,
    "default_queue_depth": 100,
    "bf_interval": 30,
    "bf_resolution": 60,
    "bf_window": 1440,
    "bf_max_job_test": 500,
    "max_switch_wait": SWITCH_WAIT_S,
}
# The short workload is over before the backfill scheduler of the others has run three times.
SHORT_OVERRIDES: Mapping[str, int] = {"bf_interval": 10}
PRIORITY_LINES = (
    "PriorityWeightAge=1000",
    "PriorityMaxAge=00:30:00",
    "PriorityWeightFairshare=2000",
    "PriorityWeightJobSize=500",
    "PriorityWeightQOS=0",
    "PriorityWeightPartition=0",
    # Slurm rounds this up to whole minutes.
    "PriorityCalcPeriod=00:01:00",
    "PriorityDecayHalfLife=00:10:00",
)
LOG_LINES = ("SlurmctldDebug=debug2", "DebugFlags=Backfill")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """What sacct says of one job, times in POSIX seconds."""

    eligible_time: int
    start_time: int
    end_time: int
    state: str


def record(workload: Workload, *, overrides: Mapping[str, int] | None = None) -> Recording:
    """Start a cluster, run the workload on it and return what happened; `overrides` are SchedulerParameters."""
    with new_cluster(overrides or {}) as cluster:
        return record_on(cluster, workload)


def new_cluster(overrides: Mapping[str, int]) -> LiveCluster:
    """Make the cluster, not yet started, that workloads are drawn for."""
    parameters = {**SCHEDULER_PARAMETERS, **overrides}
    return LiveCluster(
        RELEASE,
        node_count=NODE_COUNT,
        gpus_per_node=GPUS_PER_NODE,
        gpu_types=["a100"] * NODE_COUNT,
        shards={},
        scheduler_parameters=",".join(f"{name}={value}" for name, value in parameters.items()),
        extra_lines=(*PRIORITY_LINES, *LOG_LINES),
        accounting=True,
    )


def record_on(cluster: LiveCluster, workload: Workload) -> Recording:
    """Run the workload on a cluster that has just been started and return what happened."""
    for account in ACCOUNTS:
        cluster.add_account(account.name, account.user, shares=account.shares)
    # A slurmctld that learns of new users has no fair-share for them before the next recalculation.
    cluster.reset()
    return _Run(cluster, workload).record()


class _Run:
    """One run of a workload on a fresh cluster."""

    def __init__(self, cluster: LiveCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._ids: dict[str, int] = {}
        self._factors: dict[int, Priority] = {}
        self._changes: list[tuple[float, NiceChange]] = []

    def record(self) -> Recording:
        """Submit, change, wait for the end, and put together what is known."""
        actions: list[JobRequest | NiceChange] = [*self._workload.jobs, *self._workload.changes]
        zero_time = time.time()
        for action in sorted(actions, key=_moment):
            time.sleep(max(0.0, zero_time + _moment(action) - time.time()))
            match action:
                case JobRequest():
                    self._submit(action)
                case NiceChange():
                    self._change(action)
        self._cluster.wait_for(
            lambda: not self._cluster.run("squeue", "-h", "-a"), DRAIN_DEADLINE_S, what="every job has ended"
        )
        log = read_log((self._cluster.folder / "slurmctld.log").read_text(errors="replace").splitlines())
        return self._put_together(log, zero_time)

    def _submit(self, job: JobRequest) -> None:
        job_id = self._cluster.submit(*request_options(job), script=f"sleep {job.sleep_s:g}", user=job.user)
        self._ids[job.name] = job_id
        said = self._cluster.run("sprio", "-h", "-j", str(job_id), "-o", "%Y %A %F %J %N", check=False).split()
        if len(said) == 5:
            total, age, fair_share, job_size, nice = map(int, said)
            self._factors[job_id] = Priority(total=total, age=age, fair_share=fair_share, job_size=job_size, nice=nice)

    def _change(self, change: NiceChange) -> None:
        job_id = self._ids[change.name]
        if self._cluster.run("squeue", "-h", "-j", str(job_id), "-t", "PENDING", "-o", "%A", check=False).strip():
            self._cluster.ask("scontrol", "update", f"JobId={job_id}", f"Nice={change.nice}")
            self._changes.append((time.time(), change))

    def _put_together(self, log: ControllerLog, zero_time: float) -> Recording:
        parameters, nodes = _parameters(self._cluster), self._cluster.shape.nodes()
        names = tuple(node.name for node in nodes)

        def since(moment: float) -> float:
            return round(moment - zero_time, 3)

        return Recording(
            release=RELEASE,
            version=self._cluster.version,
            parameters=parameters,
            leaves=tuple(names[start : start + NODES_PER_LEAF] for start in range(0, len(names), NODES_PER_LEAF)),
            gpus_per_node=GPUS_PER_NODE,
            cpus_per_node=CPUS_PER_NODE,
            accounts=ACCOUNTS,
            controller_start_time=since(log.start_time),
            zero_time=round(zero_time, 3),
            workload=self._workload,
            changes_made=tuple(replace(change, time=since(moment)) for moment, change in self._changes),
            jobs=self._jobs(log, since),
            passes=tuple(Pass(scheduler=each.scheduler, time=since(each.time)) for each in log.passes),
            recalculations=tuple(since(moment) for moment in log.recalculations),
        )

    def _jobs(self, log: ControllerLog, since: Callable[[float], float]) -> tuple[JobRecord, ...]:
        accounted, nodes = _accounted(self._cluster), _nodes_by_job(self._cluster)
        records = []
        for request in self._workload.jobs:
            job_id = self._ids[request.name]
            row, start = accounted[job_id], log.starts[job_id]
            records.append(
                JobRecord(
                    request=request,
                    job_id=job_id,
                    submit_time=since(log.submits[job_id]),
                    eligible_time=since(max(row.eligible_time, log.submits[job_id])),
                    start_time=since(start.time),
                    # A job that its limit ends is not logged like the others.
                    end_time=since(log.ends.get(job_id, row.end_time)),
                    started_by=start.scheduler,
                    state=row.state,
                    nodes=nodes[job_id],
                    priority=self._factors.get(job_id),
                )
            )
        return tuple(records)


def request_options(job: JobRequest) -> list[str]:
    """Spell a request for sbatch."""
    options = [
        f"--job-name={job.name}",
        f"--time={math.ceil(job.time_limit_s / 60)}",
        # Memory must never decide.
        "--mem-per-cpu=10",
        f"--nice={job.nice}",
    ]
    if job.nodes is None:
        options += [f"--gpus={job.gpus}", f"--ntasks={job.gpus}"]
    else:
        per_node = job.gpus // job.nodes
        options += [f"--nodes={job.nodes}", f"--gres=gpu:{per_node}", f"--ntasks-per-node={per_node}"]
    if job.switches_wait_s:
        # In minutes here, unlike in scontrol.
        options.append(f"--switches=1@{math.ceil(job.switches_wait_s / 60)}")
    return options


def _moment(action: JobRequest | NiceChange) -> float:
    """When to do something, in seconds after the start of the workload."""
    return action.submit_time if isinstance(action, JobRequest) else action.time


def _parameters(cluster: LiveCluster) -> dict[str, str]:
    """Read the parameters that decide back from slurmctld."""
    pairs = (line.partition("=") for line in cluster.run("scontrol", "show", "config").splitlines())
    known = {key.strip(): value.strip() for key, _, value in pairs}
    return {key: value for key, value in known.items() if RECORDED_PARAMETERS.match(key)}


def _sacct(cluster: LiveCluster, fields: Sequence[str]) -> Iterator[list[str]]:
    argv = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-n", "-a", "-X", "-P", "-S", "now-1hour", "-o", ",".join(fields)]
    for line in cluster.run(*argv).splitlines():
        yield line.split("|")


def _accounted(cluster: LiveCluster) -> dict[int, Accounted]:
    """Ask sacct for every job, once all ends have reached the database."""
    fields = ("JobID", "Eligible", "Start", "End", "State")

    def all_ended() -> bool:
        return all(end.isdigit() for _, _, _, end, _ in _sacct(cluster, fields))

    cluster.wait_for(all_ended, 30.0, what="sacct knows the end of every job")
    rows: dict[int, Accounted] = {}
    for job_id, eligible, start, end, state in _sacct(cluster, fields):
        rows[int(job_id)] = Accounted(
            eligible_time=int(eligible), start_time=int(start), end_time=int(end), state=state.split()[0]
        )
    return rows


def _nodes_by_job(cluster: LiveCluster) -> dict[int, tuple[str, ...]]:
    """Ask sacct where each job ran, and spell the node lists out."""
    names: dict[int, tuple[str, ...]] = {}
    for job_id, nodes in _sacct(cluster, ("JobID", "NodeList")):
        if nodes.startswith("None"):
            raise LiveSlurmError(f"job {job_id} never ran")
        names[int(job_id)] = tuple(cluster.run("scontrol", "show", "hostnames", nodes).split())
    return names
