"""Words the GPUs that running jobs hold idle: sentences, a table and a mail."""

from collections.abc import Sequence
from typing import Final

from advisor.domain.idle_gpus import IdleJob, IdleLook, UtilisationSettings
from advisor.domain.notice import Notice, NoticeKind
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import duration, gpu_time, plural

HEADER: Final = ("job", "user", "account", "partition", "idle", "held", "for", "GPU-hours")
# What a user can do.
REMEDY: Final = (
    "check whether the job computes on its GPUs, and if it does not need them, end it or submit it again with fewer"
)


def idle_sentence(look: IdleLook, now: float) -> str:
    """Return in one line how many GPUs are idle, as of when, or why that is not known."""
    age = duration(max(0.0, now - look.looked_time))
    if look.fault:
        return f"idle GPUs are not known: {look.fault}"
    shared = f"; {unmapped_words(look)}" if look.unmapped else ""
    if not look.jobs:
        return f"no running job holds idle GPUs, {age} ago{shared}"
    gpus = f"{plural(look.idle_gpus, 'GPU')} of {plural(len(look.jobs), 'running job')} idle, {age} ago"
    return f"{gpus}{shared}; `sadvise idle` lists them"


def unmapped_words(look: IdleLook) -> str:
    """Return of how many jobs it is not known whether the idle GPUs on their nodes are theirs."""
    why = f": {look.gap}" if look.gap else ""
    return f"{plural(len(look.unmapped), 'job')} on shared nodes not mapped to GPUs{why}"


def measured_words(look: IdleLook) -> str:
    """Return how many of the GPUs of running jobs are measured."""
    return f"{look.measured} of {plural(look.gpus, 'GPU')} where GPU jobs run are measured"


def for_how_long(job: IdleJob, now: float) -> str:
    """Return for how long the idle GPUs of a job have been idle."""
    return f"{'more than ' if job.is_at_least else ''}{duration(max(0.0, now - job.since_time))}"


def job_sentence(job: IdleJob, settings: UtilisationSettings, now: float) -> str:
    """Return what the GPUs of a job have not done, and what its user can do."""
    gpus = plural(job.gpus, "GPU")
    which = f"its {gpus}" if job.idle_gpus == job.gpus else f"{job.idle_gpus} of its {gpus}"
    return f"{which} at {settings.idle_percent:g} % or less for {for_how_long(job, now)}: {REMEDY}"


def idle_row(job: IdleJob, seen: Snapshot) -> list[str]:
    """Return the fields of a job, in the order of `HEADER`."""
    held = seen.jobs_by_id[job.job_id]
    return [
        str(job.job_id),
        held.user,
        held.account,
        ",".join(held.partitions),
        str(job.idle_gpus),
        str(job.gpus),
        for_how_long(job, seen.taken_at),
        f"{job.gpu_hours(seen.taken_at):.1f}",
    ]


def idle_notice(mine: Sequence[IdleJob], seen: Snapshot, settings: UtilisationSettings) -> Notice:
    """Return the mail to the user of some jobs."""
    now = seen.taken_at
    lines = [
        f"your job {job.job_id} has held {plural(job.idle_gpus, 'GPU')} at {settings.idle_percent:g} % or less for "
        f"{for_how_long(job, now)}, of {job.gpus} in all"
        for job in mine
    ]
    gpus = sum(job.idle_gpus for job in mine)
    return Notice(
        kind=NoticeKind.IDLE_GPUS,
        time=now,
        cluster=seen.config.cluster,
        user=seen.jobs_by_id[mine[0].job_id].user,
        subject=f"{plural(gpus, 'GPU')} of {plural(len(mine), 'job')} of yours idle",
        text="\n".join(lines)
        + f"\n\nTo do: {REMEDY}. A job that loads data or waits on purpose needs nothing. Nothing was changed, and "
        "sadvise ends no job.",
        figures={
            "jobs": len(mine),
            "gpus": gpus,
            "gpu_hours": round(sum(job.gpu_hours(now) for job in mine), 1),
        },
    )


def total_words(jobs: Sequence[IdleJob], seen: Snapshot) -> str:
    """Return the sum of a table."""
    gpus, users = sum(job.idle_gpus for job in jobs), {seen.jobs_by_id[job.job_id].user for job in jobs}
    hours = sum(job.gpu_hours(seen.taken_at) for job in jobs)
    return f"{plural(gpus, 'GPU')} of {plural(len(jobs), 'job')} of {plural(len(users), 'user')}, {gpu_time(hours)}"
