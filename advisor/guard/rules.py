"""The rules that every change must keep; a refusal names the first rule that does not hold."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from advisor.domain.job import Job, JobState
from advisor.domain.lease import Lease, stopped_since
from advisor.domain.limits import APART_S, QUANTUM_S, Limits
from advisor.domain.mode import EVERYTHING, Mode, Modes
from advisor.domain.plan import (
    Action,
    Plan,
    Recommendation,
    Requeue,
    SetGpus,
    SetNice,
    SetNodeRange,
    SetTimeMin,
    Verdict,
    present_value,
)
from advisor.domain.snapshot import Snapshot

# Slurm counts TimeMin in minutes, and 0 is none.
SHORTEST_SOFT_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the rules look at beside the job: the instant, the bounds, and what is under way.

    `preempts` says whether running jobs may be stopped at all, `stopped` names those stopped within the last hour.
    """

    now: float
    limits: Limits
    release: tuple[int, int]
    takes_soft_limits: bool
    split_arrays: frozenset[int]
    outstanding: frozenset[int]
    preempts: bool = False
    stopped: frozenset[int] = frozenset()
    modes: Modes = EVERYTHING


JobRule = Callable[[Job, Circumstances], bool]
ChangeRule = Callable[[Recommendation, Job, Circumstances], bool]


def job_still_pending(job: Job, _around: Circumstances) -> bool:
    """Only pending jobs are changed."""
    return job.is_pending


def not_held(job: Job, _around: Circumstances) -> bool:
    """A held job waits for a person, not for GPUs."""
    return not job.held


def not_dependent(job: Job, _around: Circumstances) -> bool:
    """A job that depends on others is left alone until it no longer does."""
    return not job.dependency


def not_deferred(job: Job, around: Circumstances) -> bool:
    """A job whose begin time lies ahead is left alone."""
    return job.reason != "BeginTime" and not (job.eligible_time is not None and job.eligible_time > around.now)


def array_not_split(job: Job, around: Circumstances) -> bool:
    """An array is changed as a whole or not at all: an update of one task would split the record."""
    return job.array is None or (job.array.task_id is None and job.array.array_job_id not in around.split_arrays)


def not_heterogeneous(job: Job, _around: Circumstances) -> bool:
    """Slurm updates the components of a heterogeneous job one by one and hides early errors."""
    return job.het is None


def not_cron(job: Job, _around: Circumstances) -> bool:
    """Slurm refuses every change of a scrontab job."""
    return not job.cron


def not_reserved(job: Job, _around: Circumstances) -> bool:
    """A job in a reservation has its place already."""
    return not job.reservation


def not_opted_out(job: Job, _around: Circumstances) -> bool:
    """The user said `sadvise: off`."""
    return not job.hints.opted_out


def old_enough(job: Job, around: Circumstances) -> bool:
    """Slurm may still be storing a job that was submitted a moment ago."""
    return around.now - job.submit_time >= around.limits.min_job_age_s


def no_change_outstanding(job: Job, around: Circumstances) -> bool:
    """One outstanding change per job."""
    return job.job_id not in around.outstanding


def gpus_known(job: Job, _around: Circumstances) -> bool:
    """Nothing is changed about a job whose GPU request the reader could not see."""
    return job.gang.gpus_known


def update_has_no_side_effect(job: Job, around: Circumstances) -> bool:
    """Some updates make Slurm weigh a job's size anew, so that its priority differs for good, whatever is reverted.

    That happens to a node range with GPUs per node, and on 22.05 to a job with `--cpus-per-gpu`.
    """
    gang = job.gang
    ranged_per_node = bool(gang.per_node) and gang.nodes_max is not None and gang.nodes_min < gang.nodes_max
    return not ranged_per_node and (gang.cpus_per_gpu is None or around.release > (22, 5))


def mode_allows_advice(job: Job, around: Circumstances) -> bool:
    """Jobs whose partition or account is only observed get no advice."""
    return around.modes.of(job) is not Mode.OBSERVE


JOB_RULES: Mapping[str, JobRule] = {
    "job_still_pending": job_still_pending,
    "gpus_known": gpus_known,
    "not_held": not_held,
    "not_dependent": not_dependent,
    "not_deferred": not_deferred,
    "array_not_split": array_not_split,
    "not_heterogeneous": not_heterogeneous,
    "not_cron": not_cron,
    "not_reserved": not_reserved,
    "not_opted_out": not_opted_out,
    "old_enough": old_enough,
    "update_has_no_side_effect": update_has_no_side_effect,
    "mode_allows_advice": mode_allows_advice,
    "no_change_outstanding": no_change_outstanding,
}


def preemption_on(_job: Job, around: Circumstances) -> bool:
    """No job is stopped unless the site switched that on."""
    return around.preempts


def job_still_running(job: Job, _around: Circumstances) -> bool:
    """Only a job that runs, on nodes that are known, can be stopped for another."""
    return job.state is JobState.RUNNING and job.start_time is not None and job.allocation is not None


def declares_checkpoint(job: Job, _around: Circumstances) -> bool:
    """A job that writes no checkpoints would lose all its work."""
    return bool(job.hints.checkpoint_s)


def requeueable(job: Job, _around: Circumstances) -> bool:
    """Slurm starts no job again that was submitted with `--no-requeue`."""
    return job.requeueable


def partition_allows_it(job: Job, around: Circumstances) -> bool:
    """Jobs are stopped in partitions that the site named, and nowhere else."""
    return bool(job.partitions) and around.limits.partitions_to_preempt_in.issuperset(job.partitions)


def quantum_over(job: Job, around: Circumstances) -> bool:
    """A job that started runs for a while before it is stopped."""
    return job.start_time is not None and around.now - job.start_time >= QUANTUM_S


def not_stopped_lately(job: Job, around: Circumstances) -> bool:
    """No job is stopped twice within an hour."""
    return job.job_id not in around.stopped


# The rules for a running job that is to be stopped; none of those above lets a running job be changed otherwise.
VICTIM_RULES: Mapping[str, JobRule] = {
    "preemption_on": preemption_on,
    "job_still_running": job_still_running,
    "declares_checkpoint": declares_checkpoint,
    "requeueable": requeueable,
    "partition_allows_it": partition_allows_it,
    "quantum_over": quantum_over,
    "not_stopped_lately": not_stopped_lately,
    **{
        name: JOB_RULES[name]
        for name in (
            "array_not_split",
            "not_heterogeneous",
            "not_cron",
            "not_reserved",
            "not_opted_out",
            "mode_allows_advice",
            "no_change_outstanding",
        )
    },
}


def nice_within_limits(change: Recommendation, _job: Job, around: Circumstances) -> bool:
    """Nice stays within the site's bounds."""
    action = change.action
    return not isinstance(action, SetNice) or around.limits.nice_min <= action.after <= around.limits.nice_max


def delay_within_limits(change: Recommendation, _job: Job, around: Circumstances) -> bool:
    """No job is delayed by more than the published bound."""
    return change.expected.added_delay_max_s <= around.limits.max_added_delay_s


def long_waiter_not_delayed(change: Recommendation, job: Job, around: Circumstances) -> bool:
    """A job that has waited for very long is never delayed further."""
    waited_s = job.queueing_delay_s(around.now if job.is_pending or job.start_time is None else job.start_time)
    return change.expected.added_delay_max_s <= 0 or waited_s <= around.limits.max_job_wait_s


def size_within_range(change: Recommendation, job: Job, _around: Circumstances) -> bool:
    """A job is only resized within the range it declares."""
    if not isinstance(change.action, SetGpus):
        return True
    size = job.gang.with_counts(change.action.scope, change.action.after).gpu_count
    return job.hints.gpus is not None and size is not None and job.hints.gpus.low <= size <= job.hints.gpus.high


def shrinking_survives_limit(change: Recommendation, job: Job, _around: Circumstances) -> bool:
    """A smaller job runs longer under the same time limit, so it must have no limit or write checkpoints."""
    if not isinstance(change.action, SetGpus):
        return True
    before, after = (sum(gpu.count for gpu in counts) for counts in (change.action.before, change.action.after))
    return after >= before or job.time_limit_s is None or job.hints.checkpoint_s is not None


def gpus_unchanged_by_nodes(change: Recommendation, job: Job, _around: Circumstances) -> bool:
    """A change of the node count must not change how many GPUs the gang gets."""
    return not isinstance(change.action, SetNodeRange) or not (job.gang.per_node or job.gang.per_socket)


def soft_limit_is_soft(change: Recommendation, _job: Job, around: Circumstances) -> bool:
    """Where TimeMin is no soft limit, Slurm shortens the job to it."""
    return not isinstance(change.action, SetTimeMin) or around.takes_soft_limits


def soft_limit_within_limit(change: Recommendation, job: Job, _around: Circumstances) -> bool:
    """A soft limit lies between a minute and the time limit of the job, which must have one."""
    if not isinstance(change.action, SetTimeMin):
        return True
    after_s, limit_s = change.action.after, job.time_limit_s
    return after_s is not None and limit_s is not None and SHORTEST_SOFT_LIMIT_S <= after_s <= limit_s


def users_time_min_kept(change: Recommendation, job: Job, _around: Circumstances) -> bool:
    """A TimeMin that is there already was set by the user, or by advice that is still out."""
    return not isinstance(change.action, SetTimeMin) or (change.action.before is None and job.time_min_s is None)


def before_still_true(change: Recommendation, job: Job, _around: Circumstances) -> bool:
    """The job still stands as the recommendation found it."""
    return change.action.before == present_value(job, change.action)


CHANGE_RULES: Mapping[str, ChangeRule] = {
    "before_still_true": before_still_true,
    "nice_within_limits": nice_within_limits,
    "delay_within_limits": delay_within_limits,
    "long_waiter_not_delayed": long_waiter_not_delayed,
    "gpus_unchanged_by_nodes": gpus_unchanged_by_nodes,
    "size_within_range": size_within_range,
    "shrinking_survives_limit": shrinking_survives_limit,
    "soft_limit_is_soft": soft_limit_is_soft,
    "soft_limit_within_limit": soft_limit_within_limit,
    "users_time_min_kept": users_time_min_kept,
}


def circumstances(
    snapshot: Snapshot,
    limits: Limits,
    outstanding: frozenset[int] = frozenset(),
    *,
    preempts: bool = False,
    leases: Iterable[Lease] = (),
    modes: Modes = EVERYTHING,
) -> Circumstances:
    """Collect what the rules look at; `outstanding` names the jobs with a change under way.

    `preempts` says whether running jobs may be stopped, `leases` tell which were, and what else was changed.
    """
    seen: set[int] = set()
    split: set[int] = set()
    for job in snapshot.jobs:
        if job.array is not None:
            unseen = snapshot.splits_told and job.array.array_job_id not in seen
            (seen if unseen else split).add(job.array.array_job_id)
    return Circumstances(
        now=snapshot.taken_at,
        limits=limits,
        release=snapshot.config.release,
        takes_soft_limits=snapshot.config.takes_soft_limits,
        split_arrays=frozenset(split),
        outstanding=outstanding,
        preempts=preempts,
        stopped=frozenset(stop.job_id for stop in stopped_since(leases, snapshot.taken_at - APART_S)),
        modes=modes,
    )


def refusals(snapshot: Snapshot, around: Circumstances) -> Mapping[int, str]:
    """Map each pending GPU job that must not be changed at all to the first rule that says so."""
    refused = {}
    for job in snapshot.jobs:
        if job.is_pending and (job.gang.wants_gpus or not job.gang.gpus_known):
            rule = _broken_by(job, around)
            if rule is not None:
                refused[job.job_id] = rule
    return refused


def stoppable(snapshot: Snapshot, around: Circumstances) -> frozenset[int]:
    """Name the running jobs that every rule lets be stopped for a gang."""
    if not around.preempts:
        return frozenset()
    return frozenset(job.job_id for job in snapshot.jobs if _broken_by(job, around, VICTIM_RULES) is None)


def judge(plan: Plan, snapshot: Snapshot, around: Circumstances) -> tuple[Verdict, ...]:
    """Judge each recommendation, in order, by every rule; later ones also by what was accepted before.

    Of the jobs that would be stopped for one gang either all may be, or none is.
    """
    verdicts: list[Verdict] = []
    accepted: set[int] = set()
    for change in plan.recommendations:
        refused_by = _refusal(change, snapshot.jobs_by_id.get(change.job_id), around, accepted)
        if refused_by is None:
            accepted.add(change.job_id)
        verdicts.append(Verdict(recommendation=change, refused_by=refused_by))
    in_vain = {
        verdict.recommendation.action.for_job_id
        for verdict in verdicts
        if verdict.refused_by is not None and isinstance(verdict.recommendation.action, Requeue)
    }
    return tuple(
        replace(verdict, refused_by="all_victims_or_none")
        if verdict.refused_by is None and _stops_for(verdict.recommendation.action) in in_vain
        else verdict
        for verdict in verdicts
    )


def _stops_for(action: Action) -> int | None:
    """Return the gang for which an action stops a job, if it stops one."""
    return action.for_job_id if isinstance(action, Requeue) else None


def _refusal(change: Recommendation, job: Job | None, around: Circumstances, accepted: set[int]) -> str | None:
    if job is None:
        return "job_still_running" if isinstance(change.action, Requeue) else "job_still_pending"
    if job.job_id in accepted:
        return "no_change_outstanding"
    if len(accepted) >= around.limits.max_changes:
        return "changes_within_cap"
    by_change = (name for name, holds in CHANGE_RULES.items() if not holds(change, job, around))
    rules = VICTIM_RULES if isinstance(change.action, Requeue) else JOB_RULES
    return _broken_by(job, around, rules) or next(by_change, None)


def _broken_by(job: Job, around: Circumstances, rules: Mapping[str, JobRule] = JOB_RULES) -> str | None:
    """Return the first job rule that a job breaks; a plain loop, since it runs for every pending job."""
    for name, holds in rules.items():
        if not holds(job, around):
            return name
    return None
