"""The rules about a job: whether it may be changed at all, and whether it may be stopped for another."""

from collections.abc import Callable, Mapping

from advisor.domain.job import Job, JobState
from advisor.guard.circumstances import Circumstances
from advisor.settings import QUANTUM_S

# In a federation the bits of a job id above these 26 say on which cluster it was submitted.
LARGEST_LOCAL_ID = 2**26 - 1

JobRule = Callable[[Job, Circumstances], bool]


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


def not_federated(job: Job, _around: Circumstances) -> bool:
    """A job of a federation may start on another cluster, whose copy an update here does not reach."""
    return job.job_id <= LARGEST_LOCAL_ID


def not_cron(job: Job, _around: Circumstances) -> bool:
    """Slurm refuses every change of a scrontab job."""
    return not job.cron


def not_reserved(job: Job, _around: Circumstances) -> bool:
    """A job in a reservation has its place already."""
    return not job.reservation


def not_opted_out(job: Job, _around: Circumstances) -> bool:
    """The user opted out with `sadvise: off`."""
    return not job.hints.opted_out


def old_enough(job: Job, around: Circumstances) -> bool:
    """Slurm may still be storing a job that was submitted a moment ago."""
    return around.now - job.submit_time >= around.limits.min_job_age_s


def no_person_objected(job: Job, around: Circumstances) -> bool:
    """A job whose change a person took back or overruled is left alone for good."""
    return job.job_id not in around.ledger.objected


def cooldown_over(job: Job, around: Circumstances) -> bool:
    """A job that was changed, or whose change Slurm refused or got back, is left alone for a while."""
    return job.job_id not in around.ledger.resting


def no_change_outstanding(job: Job, around: Circumstances) -> bool:
    """One outstanding change per job."""
    return job.job_id not in around.outstanding


def gpus_known(job: Job, _around: Circumstances) -> bool:
    """Nothing is changed about a job whose GPU request the reader could not see."""
    return job.gang.gpus_known


def nothing_unseen(job: Job, _around: Circumstances) -> bool:
    """Nothing is changed about a job of which the reader could not read every field."""
    return not job.unseen


def update_has_no_side_effect(job: Job, around: Circumstances) -> bool:
    """Return whether the job has its old priority again once an update is reverted.

    The first update changes it for good where a job has a node range with GPUs per node, and on old releases where it
    has `--cpus-per-gpu`.
    """
    gang = job.gang
    ranged_per_node = bool(gang.per_node) and gang.nodes_max is not None and gang.nodes_min < gang.nodes_max
    return not ranged_per_node and (gang.cpus_per_gpu is None or around.traits.cpus_per_gpu_update_keeps_priority)


def mode_allows_advice(job: Job, around: Circumstances) -> bool:
    """Jobs whose partition or account is only observed get no advice."""
    return not around.observed or (job.partitions, job.account) not in around.observed


JOB_RULES: Mapping[str, JobRule] = {
    "job_still_pending": job_still_pending,
    "gpus_known": gpus_known,
    "nothing_unseen": nothing_unseen,
    "not_held": not_held,
    "not_dependent": not_dependent,
    "not_deferred": not_deferred,
    "array_not_split": array_not_split,
    "not_heterogeneous": not_heterogeneous,
    "not_federated": not_federated,
    "not_cron": not_cron,
    "not_reserved": not_reserved,
    "not_opted_out": not_opted_out,
    "old_enough": old_enough,
    "update_has_no_side_effect": update_has_no_side_effect,
    "mode_allows_advice": mode_allows_advice,
    "no_person_objected": no_person_objected,
    "no_change_outstanding": no_change_outstanding,
    "cooldown_over": cooldown_over,
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
            "nothing_unseen",
            "array_not_split",
            "not_heterogeneous",
            "not_federated",
            "not_cron",
            "not_reserved",
            "not_opted_out",
            "mode_allows_advice",
            "no_person_objected",
            "no_change_outstanding",
            "cooldown_over",
        )
    },
}
