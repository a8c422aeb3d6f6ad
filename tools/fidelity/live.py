"""Runs a workload on a real slurmctld and records what it does."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.backends.spelling import duration_s
from advisor.sim.slurm.queue_tables import QosTable
from tools.fidelity.recording import (
    ControllerLog,
    DependencyType,
    JobRequest,
    NiceChange,
    Pass,
    Priority,
    RecordedJob,
    RecordedNodeEvent,
    RecordedPartition,
    RecordedWorkload,
    Recording,
    StoppedRun,
    WorkloadKind,
    read_log,
)
from tools.fidelity.workloads import ACCOUNTS, PARTITION_LINES, PREEMPTING_QOS, QOS, TIER_LINES
from tools.stage import LiveCluster, LiveSlurmError, uniform_cluster
from tools.stage.conf_files import CPUS_PER_NODE, MEMORY_MIB

DEFAULT_RELEASE = "22.05"
NODE_COUNT, GPUS_PER_NODE, NODES_PER_LEAF = 8, 8, 4
SWITCH_WAIT_S = 86400
# How long the last job may take to end after the last action.
DRAIN_DEADLINE_S = 900.0
RECORDED_PARAMETERS = re.compile(
    r"^(Priority\w+|Scheduler\w+|SelectType\w*|TopologyPlugin|TopologyParam|CompleteWait|KillWait|OverTimeLimit"
    r"|PreemptType|PreemptMode|PreemptExemptTime|EnforcePartLimits|FairShareDampeningFactor|AccountingStorageEnforce|AccountingStorageTRES"
    r"|DefMemPer(CPU|Node)|DependencyParameters|MinJobAge)$"
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
    "bf_job_part_count_reserve": 0,
    "bf_min_age_reserve": 0,
    "bf_min_prio_reserve": 0,
    "max_switch_wait": SWITCH_WAIT_S,
}
# The short workload is over before the backfill scheduler of the others has run three times.
SHORT_OVERRIDES: Mapping[str, int] = {"bf_interval": 10}
PRIORITY_LINES = (
    "PriorityWeightAge=1000",
    "PriorityMaxAge=00:30:00",
    "PriorityWeightFairshare=2000",
    "PriorityWeightJobSize=500",
    # Slurm rounds this up to whole minutes.
    "PriorityCalcPeriod=00:01:00",
    "PriorityDecayHalfLife=00:10:00",
)
LOG_LINES = ("SlurmctldDebug=debug2", "DebugFlags=Backfill")
FACTORS_OF_NO_WEIGHT = ("PriorityWeightQOS=0", "PriorityWeightPartition=0")
KIND_LINES: Mapping[WorkloadKind, Sequence[str]] = {
    WorkloadKind.PARTITIONS: ("PriorityWeightQOS=0", "PriorityWeightPartition=800", *PARTITION_LINES),
    WorkloadKind.QOS: ("PriorityWeightQOS=800", "PriorityWeightPartition=0", "AccountingStorageEnforce=limits,qos"),
    WorkloadKind.TIERS: (
        *FACTORS_OF_NO_WEIGHT,
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        *TIER_LINES,
    ),
    WorkloadKind.PREEMPTING_QOS: (
        "PriorityWeightQOS=800",
        "PriorityWeightPartition=0",
        "PreemptType=preempt/qos",
        "PreemptMode=CANCEL",
        "PreemptExemptTime=00:00:20",
    ),
}
KIND_QOS: Mapping[WorkloadKind, Sequence[QosTable]] = {
    WorkloadKind.QOS: QOS,
    WorkloadKind.PREEMPTING_QOS: PREEMPTING_QOS,
}
TRES_LIMIT = "gres/gpu"


Action = JobRequest | NiceChange | RecordedNodeEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedJob:
    """Holds what sacct says of one job or array task, times in POSIX seconds."""

    job_id: int
    array_task: int | None
    nodes: str
    eligible_time: int
    start_time: int
    end_time: int
    state: str


def record(
    workload: RecordedWorkload,
    *,
    release: str = DEFAULT_RELEASE,
    overrides: Mapping[str, int] | None = None,
    log_file: Path | None = None,
) -> Recording:
    """Start a cluster, run the workload on it and return what happened.

    `overrides` are SchedulerParameters; `log_file` gets the log of slurmctld, with the plans of backfill in it.
    """
    with new_cluster(overrides or {}, workload.kind, release) as cluster:
        return record_on(cluster, workload, log_file)


def new_cluster(
    overrides: Mapping[str, int], kind: WorkloadKind = WorkloadKind.PLAIN, release: str = DEFAULT_RELEASE
) -> LiveCluster:
    """Make the cluster, not yet started, that workloads of one kind are drawn for."""
    parameters = {**SCHEDULER_PARAMETERS, **overrides}
    return uniform_cluster(
        release,
        NODE_COUNT,
        gpus_per_node=GPUS_PER_NODE,
        scheduler_parameters=",".join(f"{name}={value}" for name, value in parameters.items()),
        extra_lines=(*PRIORITY_LINES, *LOG_LINES, *KIND_LINES.get(kind, FACTORS_OF_NO_WEIGHT)),
        accounting=True,
    )


def record_on(cluster: LiveCluster, workload: RecordedWorkload, log_file: Path | None = None) -> Recording:
    """Run the workload on a cluster that has just been started and return what happened; `log_file` gets the log."""
    for account in ACCOUNTS:
        cluster.add_account(account.name, account.user, shares=account.shares)
    if workload.kind in KIND_QOS:
        _add_qos(cluster, KIND_QOS[workload.kind])
    # A slurmctld that learns of new users has no fair-share for them before the next recalculation.
    cluster.reset()
    return _Run(cluster, workload, log_file).record()


class _Run:
    """One run of a workload on a fresh cluster."""

    def __init__(self, cluster: LiveCluster, workload: RecordedWorkload, log_file: Path | None) -> None:
        self._cluster = cluster
        self._log_file = log_file
        self._workload = workload
        self._ids: dict[str, int] = {}
        self._factors: dict[int, Priority] = {}
        self._changes: list[tuple[float, NiceChange]] = []
        self._node_events: list[tuple[float, RecordedNodeEvent]] = []

    def record(self) -> Recording:
        """Submit, change, wait for the end, and put together what is known."""
        workload = self._workload
        # Sorting keeps the order of what happens at the same time.
        actions: list[Action] = [*workload.node_events, *workload.jobs, *workload.changes]
        zero_time = time.time()
        for action in sorted(actions, key=_moment):
            time.sleep(max(0.0, zero_time + _moment(action) - time.time()))
            match action:
                case JobRequest():
                    self._submit(action)
                case NiceChange():
                    self._change(action)
                case RecordedNodeEvent():
                    self._set_node(action)
        self._cluster.wait_for(
            lambda: not self._cluster.run("squeue", "-h", "-a"), DRAIN_DEADLINE_S, what="every job has ended"
        )
        text = (self._cluster.folder / "slurmctld.log").read_text(errors="replace")
        if self._log_file is not None:
            self._log_file.write_text(text)
        return self._put_together(read_log(text.splitlines()), zero_time)

    def _submit(self, job: JobRequest) -> None:
        options = [*request_options(job), *dependency_options(job, self._ids)]
        job_id = self._cluster.submit(*options, script=f"sleep {job.sleep_s:g}", user=job.user)
        self._ids[job.name] = job_id
        printed = self._cluster.run("sprio", "-h", "-j", str(job_id), "-o", "%Y %A %F %J %N %P %Q", check=False).split()
        # For a job that is not eligible yet sprio prints a sentence.
        if len(printed) == 7 and printed[0].isdigit():
            total, age, fair_share, job_size, nice, partition, qos = map(int, printed)
            self._factors[job_id] = Priority(
                total=total,
                age=age,
                fair_share=fair_share,
                job_size=job_size,
                nice=nice,
                partition=partition,
                qos=qos,
            )

    def _change(self, change: NiceChange) -> None:
        job_id = self._ids[change.name]
        if self._cluster.state_of(job_id) == "PENDING":
            self._cluster.ask("scontrol", "update", f"JobId={job_id}", f"Nice={change.nice}")
            self._changes.append((time.time(), change))

    def _set_node(self, event: RecordedNodeEvent) -> None:
        self._cluster.run("scontrol", "update", f"NodeName={event.node}", f"State={event.state}", "Reason=recorded")
        self._node_events.append((time.time(), event))

    def _put_together(self, log: ControllerLog, zero_time: float) -> Recording:
        parameters, nodes = _parameters(self._cluster), self._cluster.shape.nodes()
        names = tuple(node.name for node in nodes)

        def since(moment: float) -> float:
            return round(moment - zero_time, 3)

        return Recording(
            release=self._cluster.release,
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
            partitions=tuple(_partitions(self._cluster)),
            qos=tuple(_qos(self._cluster)),
            node_events_made=tuple(replace(event, time=since(moment)) for moment, event in self._node_events),
            memory_mib_per_node=MEMORY_MIB,
        )

    def _jobs(self, log: ControllerLog, since: Callable[[float], float]) -> tuple[RecordedJob, ...]:
        accounted = _accounted(self._cluster)
        records = []
        for request in self._workload.jobs:
            submitted_id = self._ids[request.name]
            for row in accounted[submitted_id]:
                if row.job_id not in log.starts:
                    raise LiveSlurmError(f"job {request.name} never ran: {row.state}")
                start, submit_time = log.starts[row.job_id], log.submits[submitted_id]
                records.append(
                    RecordedJob(
                        request=request,
                        job_id=row.job_id,
                        submit_time=since(submit_time),
                        eligible_time=since(max(row.eligible_time, submit_time)),
                        start_time=since(start.time),
                        # A job that its limit ends is not logged like the others.
                        end_time=since(log.ends.get(row.job_id, row.end_time)),
                        started_by=start.scheduler,
                        state=row.state,
                        nodes=tuple(self._cluster.run("scontrol", "show", "hostnames", row.nodes).split()),
                        priority=self._factors.get(submitted_id),
                        array_task=row.array_task,
                        stopped=tuple(
                            StoppedRun(start_time=since(began.time), end_time=since(ended), started_by=began.scheduler)
                            for began, ended in log.stopped.get(row.job_id, ())
                        ),
                    )
                )
        return tuple(records)


def request_options(job: JobRequest) -> list[str]:
    """Spell a request for sbatch, all but what it waits for."""
    options = [
        f"--job-name={job.shared_name or job.name}",
        f"--time={math.ceil(job.time_limit_s / 60)}",
        # Memory must not decide unless it is meant to.
        f"--mem={job.memory_mib}" if job.memory_mib else "--mem-per-cpu=10",
        f"--nice={job.nice}",
        *_size_options(job),
    ]
    if job.switches_wait_s:
        # In minutes here, unlike in scontrol.
        options.append(f"--switches=1@{math.ceil(job.switches_wait_s / 60)}")
    if job.partition:
        options.append(f"--partition={job.partition}")
    if job.qos:
        options.append(f"--qos={job.qos}")
    if job.array_size:
        limit = f"%{job.array_limit}" if job.array_limit else ""
        options.append(f"--array=0-{job.array_size - 1}{limit}")
    if job.begin_delay_s:
        options.append(f"--begin=now+{math.ceil(job.begin_delay_s)}")
    if job.exclusive:
        options.append("--exclusive")
    return options


def dependency_options(job: JobRequest, ids: Mapping[str, int]) -> list[str]:
    """Spell for sbatch what a job waits for; `ids` are those of the jobs submitted before it, by name."""
    if job.dependency is None:
        return []
    if job.dependency.type is DependencyType.SINGLETON:
        return ["--dependency=singleton"]
    return [f"--dependency={':'.join([job.dependency.type, *(str(ids[name]) for name in job.dependency.names)])}"]


def _size_options(job: JobRequest) -> list[str]:
    if job.nodes is None:
        return [f"--gpus={job.gpus}", f"--ntasks={job.gpus}"]
    if not job.gpus:
        return [f"--nodes={job.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={job.cpus}"]
    per_node = job.gpus // job.nodes
    options = [f"--nodes={job.nodes}", f"--gres=gpu:{per_node}"]
    if job.cpus_per_gpu:
        return [*options, "--ntasks-per-node=1", f"--cpus-per-gpu={job.cpus_per_gpu}"]
    return [*options, f"--ntasks-per-node={per_node}"]


def _moment(action: Action) -> float:
    """Return when to do something, in seconds after the start of the workload."""
    return action.submit_time if isinstance(action, JobRequest) else action.time


def _add_qos(cluster: LiveCluster, made: Sequence[QosTable]) -> None:
    """Make QOS and let every account use them."""
    for qos in made:
        limits = {
            "Priority": f"{qos.priority:g}",
            "MaxTRESPerUser": _tres_limit(qos.max_gpus_per_user),
            "MaxJobsPerUser": qos.max_jobs_per_user,
            "GrpTRES": _tres_limit(qos.group_gpus),
            "Preempt": ",".join(qos.preempts) or None,
            "GraceTime": f"{qos.grace_s:g}" if qos.grace_s else None,
        }
        spelled = [f"{name}={value}" for name, value in limits.items() if value is not None]
        # Slurm has a QOS normal from the start; adding it again changes nothing.
        cluster.ask("sacctmgr", "-i", "add", "qos", qos.name)
        cluster.run("sacctmgr", "-i", "modify", "qos", qos.name, "set", *spelled)
    names = ",".join(qos.name for qos in made)
    for account in ACCOUNTS:
        cluster.run("sacctmgr", "-i", "modify", "account", account.name, "set", f"qos={names}", "DefaultQOS=normal")


def _tres_limit(gpus: int | None) -> str | None:
    return None if gpus is None else f"{TRES_LIMIT}={gpus}"


def _qos(cluster: LiveCluster) -> Iterator[QosTable]:
    """Read every QOS back from slurmdbd."""
    fields = "Name,Priority,MaxTRESPU,MaxJobsPU,GrpTRES,Preempt,GraceTime"
    for line in cluster.run("sacctmgr", "-n", "-P", "show", "qos", f"format={fields}").splitlines():
        name, priority, per_user, jobs, group, preempts, grace = line.split("|")
        yield QosTable(
            name=name,
            priority=float(priority or 0),
            max_gpus_per_user=_gpus_of(per_user),
            max_jobs_per_user=int(jobs) if jobs else None,
            group_gpus=_gpus_of(group),
            preempts=tuple(each for each in preempts.split(",") if each),
            grace_s=duration_s(grace, field="GraceTime") or 0.0,
        )


def _gpus_of(tres: str) -> int | None:
    """Read the GPUs of a limit such as `cpu=4,gres/gpu=16`; None without one."""
    limits = dict(part.split("=", maxsplit=1) for part in tres.split(",") if part)
    return int(limits[TRES_LIMIT]) if TRES_LIMIT in limits else None


def _partitions(cluster: LiveCluster) -> Iterator[RecordedPartition]:
    """Read every partition back from slurmctld."""
    for line in cluster.run("scontrol", "-o", "show", "partition").splitlines():
        fields = dict(part.split("=", maxsplit=1) for part in line.split() if "=" in part)
        yield RecordedPartition(
            name=fields["PartitionName"],
            nodes=tuple(cluster.run("scontrol", "show", "hostnames", fields["Nodes"]).split()),
            priority_tier=int(fields["PriorityTier"]),
            priority_job_factor=int(fields["PriorityJobFactor"]),
            max_time_s=duration_s(fields["MaxTime"], field="MaxTime"),
            default=fields["Default"] == "YES",
        )


def _parameters(cluster: LiveCluster) -> dict[str, str]:
    """Read the parameters that decide back from slurmctld."""
    pairs = (line.partition("=") for line in cluster.run("scontrol", "show", "config").splitlines())
    known = {key.strip(): value.strip() for key, _, value in pairs}
    return {key: value for key, value in known.items() if RECORDED_PARAMETERS.match(key)}


def _sacct(cluster: LiveCluster, fields: Sequence[str]) -> Iterator[list[str]]:
    argv = ["env", "SLURM_TIME_FORMAT=%s", "sacct", "-n", "-a", "-X", "-P", "-S", "now-1hour", "-o", ",".join(fields)]
    for line in cluster.run(*argv).splitlines():
        yield line.split("|")


def _accounted(cluster: LiveCluster) -> dict[int, list[AccountedJob]]:
    """Ask sacct for every job by the id of its submission, once all ends have reached the database."""
    fields = ("JobID", "JobIDRaw", "Eligible", "Start", "End", "State", "NodeList")

    def all_ended() -> bool:
        return all(end.isdigit() for _, _, _, _, end, _, _ in _sacct(cluster, fields))

    cluster.wait_for(all_ended, 30.0, what="sacct knows the end of every job")
    rows: dict[int, list[AccountedJob]] = {}
    for label, job_id, eligible, start, end, state, nodes in _sacct(cluster, fields):
        submitted_id, _, task = label.partition("_")
        rows.setdefault(int(submitted_id), []).append(
            AccountedJob(
                job_id=int(job_id),
                array_task=int(task) if task else None,
                eligible_time=int(eligible),
                start_time=int(start),
                end_time=int(end),
                state=state.split()[0],
                nodes=nodes,
            )
        )
    return {key: sorted(tasks, key=lambda row: row.array_task or 0) for key, tasks in rows.items()}
