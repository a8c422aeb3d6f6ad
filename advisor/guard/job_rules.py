"""Defines the rules about a job: whether it can be changed at all."""

from collections.abc import Callable, Mapping

from advisor.domain.job import Job
from advisor.guard.circumstances import Circumstances

# In a federation the bits of a job id above these 26 say on which cluster it was submitted.
LARGEST_LOCAL_ID = 2**26 - 1

JobRule = Callable[[Job, Circumstances], bool]


def job_still_pending(job: Job, _circumstances: Circumstances) -> bool:
    """Only pending jobs are changed."""
    return job.is_pending


def not_held(job: Job, _circumstances: Circumstances) -> bool:
    """A held job waits for a person, not for GPUs."""
    return not job.held


def not_dependent(job: Job, _circumstances: Circumstances) -> bool:
    """A job that depends on others is left alone until the dependency is satisfied."""
    return not job.dependency


def not_deferred(job: Job, circumstances: Circumstances) -> bool:
    """A job whose begin time is in the future is left alone."""
    return job.reason != "BeginTime" and not (job.eligible_time is not None and job.eligible_time > circumstances.now)


def array_not_split(job: Job, circumstances: Circumstances) -> bool:
    """An array is changed as a whole or not at all, but for its nice: its id also stands for the tasks that run."""
    return job.array is None or (job.array.task_id is None and job.array.array_job_id not in circumstances.split_arrays)


def not_split_off(job: Job, _circumstances: Circumstances) -> bool:
    """A nice is written to all waiting tasks of an array; a task with a record of its own gets no other one."""
    return not job.is_split_off


def not_heterogeneous(job: Job, _circumstances: Circumstances) -> bool:
    """Slurm updates the components of a heterogeneous job one by one and hides early errors."""
    return job.het is None


def not_federated(job: Job, _circumstances: Circumstances) -> bool:
    """A job of a federation can start on another cluster, whose copy an update here does not reach."""
    return job.job_id <= LARGEST_LOCAL_ID


def not_cron(job: Job, _circumstances: Circumstances) -> bool:
    """Slurm refuses every change of a scrontab job."""
    return not job.cron


def not_reserved(job: Job, _circumstances: Circumstances) -> bool:
    """A job in a reservation already has its place."""
    return not job.reservation


def not_opted_out(job: Job, _circumstances: Circumstances) -> bool:
    """The user opted out with `sadvise: off`."""
    return not job.hints.opted_out


def old_enough(job: Job, circumstances: Circumstances) -> bool:
    """A job that was just submitted may not be stored by Slurm yet."""
    return circumstances.now - job.submit_time >= circumstances.limits.min_job_age_s


def no_person_objected(job: Job, circumstances: Circumstances) -> bool:
    """A job whose change a person reverted or overruled is never changed again."""
    return job.job_id not in circumstances.ledger.objected


def cooldown_over(job: Job, circumstances: Circumstances) -> bool:
    """A job is left alone for a while after it was changed, or a change to it was refused or reverted."""
    return job.job_id not in circumstances.ledger.resting


def no_change_outstanding(job: Job, circumstances: Circumstances) -> bool:
    """A job has one outstanding change."""
    return job.job_id not in circumstances.outstanding


def gpus_known(job: Job, _circumstances: Circumstances) -> bool:
    """A job whose GPU request the reader could not read is not changed."""
    return job.gang.gpus_known


def nothing_unseen(job: Job, _circumstances: Circumstances) -> bool:
    """A job with a field that the reader could not read is not changed."""
    return not job.unseen


def no_bar(job: Job, circumstances: Circumstances) -> bool:
    """A job that is excluded from nodes with free GPUs, for example by `--exclude`, would gain nothing by a change."""
    return job.job_id not in circumstances.barred


def update_has_no_side_effect(job: Job, circumstances: Circumstances) -> bool:
    """A job regains its old priority when an update is reverted.

    The first update changes it for good for jobs with a node range and GPUs per node, and, on old releases, for jobs
    with `--cpus-per-gpu`.
    """
    gang = job.gang
    ranged_per_node = bool(gang.per_node) and gang.nodes_max is not None and gang.nodes_min < gang.nodes_max
    return not ranged_per_node and (
        gang.cpus_per_gpu is None or circumstances.traits.cpus_per_gpu_update_keeps_priority
    )


def mode_allows_advice(job: Job, circumstances: Circumstances) -> bool:
    """Jobs in mode observe, by partition or account, get no recommendations."""
    return not circumstances.observed or (job.partitions, job.account) not in circumstances.observed


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
    "no_bar": no_bar,
    "update_has_no_side_effect": update_has_no_side_effect,
    "mode_allows_advice": mode_allows_advice,
    "no_person_objected": no_person_objected,
    "no_change_outstanding": no_change_outstanding,
    "cooldown_over": cooldown_over,
}

# The rules for a change of the nice, which reaches the waiting tasks of an array also once others have started.
NICE_RULES: Mapping[str, JobRule] = {
    ("not_split_off" if name == "array_not_split" else name): (not_split_off if name == "array_not_split" else rule)
    for name, rule in JOB_RULES.items()
}

# The rules for a job that is lifted because our changes have delayed it; what it is owed does not wait.
OWED_RULES: Mapping[str, JobRule] = {name: rule for name, rule in NICE_RULES.items() if name != "cooldown_over"}
