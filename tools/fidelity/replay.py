"""Give the model the workload of a recording, and see when it starts each job."""

from collections.abc import Mapping

import numpy as np

from advisor.backends.spelling import duration_s
from advisor.domain.actions import SetNice
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.profiles import load_profiles
from advisor.sim.queueing import DONE
from advisor.sim.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm_state import Phases, build_slurm
from advisor.sim.slurmctld import run_slurm
from advisor.sim.state import build_state, outcomes
from advisor.sim.trace import TRACE_DTYPE, Trace
from tools.fidelity.recording import Recording, RecordingError, Scheduler

# About the time that slurmctld's background loop takes for one turn.
_TICK_S = 1.0013


def replay(recording: Recording) -> Mapping[int, float]:
    """Map job ids to the instants at which the model starts them.

    The model knows when slurmctld came up, what was submitted and changed when, and how long each job ran. A recording
    with features that the model does not know is refused.
    """
    if unknown := unknown_features(recording):
        raise RecordingError(f"the model does not know yet: {', '.join(unknown)}")
    trace, cluster = trace_of(recording), cluster_of(recording)
    state = build_state(trace, cluster, load_profiles(), ideal=True, loses_work=True)
    slurm = build_slurm(state, trace, cluster, phases_of(recording))
    model = SimulatedSlurm(trace, cluster, state, slurm)
    id_by_name = {job.request.name: job.job_id for job in recording.jobs}
    for change in sorted(recording.changes_made, key=lambda change: change.time):
        run_slurm(state, slurm, change.time + clock_of(recording))
        job = model.job_by_id(id_by_name[change.name])
        if job is not None:
            model.apply(SetNice(job_id=job.job_id, before=job.nice, after=change.nice))
    if run_slurm(state, slurm, np.inf) != DONE:
        raise RuntimeError("the model stopped before the last job had ended")
    starts = outcomes(state)["start_time"] - clock_of(recording)
    return {int(job_id): float(start) for job_id, start in zip(trace.jobs["job_id"], starts, strict=True)}


def unknown_features(recording: Recording) -> list[str]:
    """List what decided starts in the recording and is missing from the model."""
    requests = recording.workload.jobs
    features = {
        "partitions": any(job.partition for job in requests),
        "QOS limits": any(job.qos for job in requests),
        "job arrays": any(job.array_size for job in requests),
        "dependencies": any(job.dependency for job in requests),
        "begin times": any(job.begin_delay_s for job in requests),
        "drained nodes": bool(recording.node_events_made),
        "CPUs and memory": any(job.cpus or job.cpus_per_gpu or job.memory_mib for job in requests),
        "exclusive nodes": any(job.exclusive for job in requests),
    }
    return [name for name, there in features.items() if there]


def clock_of(recording: Recording) -> float:
    """Return the instant of the model's clock at which the workload starts: the second of the hour, as it was."""
    return recording.zero_time % 3600.0


def trace_of(recording: Recording) -> Trace:
    """Return the recorded workload as a trace; a job killed by its limit ran as long as it did."""
    users = tuple(account.user for account in recording.accounts)
    accounts = tuple(account.name for account in recording.accounts)
    jobs = sorted(recording.jobs, key=lambda job: (job.submit_time, job.job_id))
    rows = np.zeros(len(jobs), TRACE_DTYPE)
    for row, job in zip(rows, jobs, strict=True):
        asked = job.request
        row["job_id"] = job.job_id
        row["submit_time"] = job.submit_time + clock_of(recording)
        row["run_time_s"] = job.run_time_s
        row["gpus"] = row["gpus_min"] = row["gpus_max"] = asked.gpus
        row["nodes_min"] = row["nodes_max"] = asked.nodes or 0
        row["cpus_per_gpu"] = 1
        row["time_limit_s"] = asked.time_limit_s
        row["user"] = row["account"] = users.index(asked.user)
        row["switches"] = 1 if asked.switches_wait_s else 0
        row["switches_wait_s"] = asked.switches_wait_s
        row["nice"] = asked.nice
    rows["gpu_type"] = rows["model"] = -1
    rows["recorded_start_time"] = [job.start_time + clock_of(recording) for job in jobs]
    return Trace(name=f"seed {recording.workload.seed}", jobs=rows, users=users, accounts=accounts)


def cluster_of(recording: Recording) -> Cluster:
    """Return the recorded cluster with the parameters that its slurmctld read."""
    sizes = {len(leaf) for leaf in recording.leaves}
    count = sum(len(leaf) for leaf in recording.leaves)
    nodes = NodeGroup(count=count, gpus=recording.gpus_per_node, cpus=recording.cpus_per_node, leaf=max(sizes))
    parameters = recording.parameters

    def number(name: str) -> float:
        return float(recording.scheduler_parameter(name) or 0)

    def seconds(name: str) -> float:
        return duration_s(parameters[name], field=name) or 0.0

    slurm = SlurmParameters(
        default_queue_depth=int(number("default_queue_depth")),
        sched_interval_s=number("sched_interval"),
        batch_sched_delay_s=number("batch_sched_delay"),
        bf_interval_s=_backfills(recording)[1],
        bf_max_job_test=int(number("bf_max_job_test")),
        bf_resolution_s=number("bf_resolution"),
        bf_window_s=60.0 * number("bf_window"),
        max_switch_wait_s=number("max_switch_wait"),
        priority_weight_age=float(parameters["PriorityWeightAge"]),
        priority_weight_fairshare=float(parameters["PriorityWeightFairShare"]),
        priority_weight_job_size=float(parameters["PriorityWeightJobSize"]),
        priority_max_age_s=seconds("PriorityMaxAge"),
        priority_calc_period_s=seconds("PriorityCalcPeriod"),
        priority_decay_half_life_s=seconds("PriorityDecayHalfLife"),
        tick_s=_ticks(recording)[1],
        account_shares={account.name: float(account.shares) for account in recording.accounts},
    )
    return Cluster(nodes=(nodes,), slurm=slurm)


def phases_of(recording: Recording) -> Phases:
    """Return the instants from which the periods of the recorded slurmctld count: they depend on when it came up."""
    up = recording.controller_start_time
    clock = clock_of(recording)
    return Phases(
        main_time=clock + _ticks(recording)[0],
        backfill_time=clock + _backfills(recording)[0],
        priority_time=clock + min(recording.recalculations, default=up + 60.80) - 60.0,
    )


def _backfills(recording: Recording) -> tuple[float, float]:
    """Fit phase and period of backfill to the instants of its passes: it sleeps an interval after each."""
    interval = float(recording.scheduler_parameter("bf_interval") or 30)
    return _period(recording, Scheduler.BACKFILL, interval)


def _ticks(recording: Recording) -> tuple[float, float]:
    """Fit phase and period of the main scheduler's ticks to the instants of its passes."""
    phase, period = _period(recording, Scheduler.MAIN, _TICK_S)
    # The loop begins 0.8 s after slurmctld came up.
    turns = np.round((phase - recording.controller_start_time - 0.8) / period)
    return float(phase - turns * period), period


def _period(recording: Recording, scheduler: Scheduler, about_s: float) -> tuple[float, float]:
    """Fit phase and period of a scheduler that runs about so often; passes between are left out."""
    times = np.array(sorted(each.time for each in recording.passes if each.scheduler is scheduler))
    turns = np.round((times - times[0]) / about_s)
    regular = np.abs(times - times[0] - turns * about_s) < 0.2
    period, phase = np.polyfit(turns[regular], times[regular], 1)
    return float(phase), float(period)
