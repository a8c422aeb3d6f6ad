"""Words the pending jobs that a maintenance holds up: a sentence, a table and a mail."""

from collections.abc import Sequence
from typing import Final

from advisor.diagnose.held_up import HeldUp
from advisor.domain.notice import Notice, NoticeKind
from advisor.domain.particulars import Reservation
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import duration, plural
from advisor.view.gate_words import moment, slurm_time

HEADER: Final = ("job", "user", "account", "partition", "maintenance", "limit", "fits", "then", "command")


def maintenance_sentence(maintenance: Reservation, found: Sequence[HeldUp], now: float) -> str:
    """Return when a maintenance begins, and how many jobs it holds up."""
    nodes = plural(len(maintenance.nodes), "node")
    begins = f"{maintenance.name} begins at {moment(maintenance.start_time, now)}, on {nodes}"
    jobs = [each for each in found if each.maintenance.name == maintenance.name]
    if not jobs:
        return f"{begins}; it holds up no pending job"
    users = plural(len({each.job.user for each in jobs}), "user")
    return f"{begins}; {plural(len(jobs), 'pending job')} of {users} would fit before it with a shorter limit"


def held_up_row(each: HeldUp) -> list[str]:
    """Return the fields of a job, in the order of `HEADER`."""
    job = each.job
    return [
        str(job.job_id),
        job.user,
        job.account,
        ",".join(job.partitions),
        each.maintenance.name,
        "none" if job.time_limit_s is None else slurm_time(job.time_limit_s),
        slurm_time(each.fits_s),
        "starts" if each.starts_now else "waits for nodes",
        "none: backfill shortens it" if each.by_slurm else _command(each),
    ]


def maintenance_notice(mine: Sequence[HeldUp], seen: Snapshot) -> Notice:
    """Return the mail to the user of some jobs."""
    lines = [_in_a_mail(each, seen.taken_at) for each in mine]
    return Notice(
        kind=NoticeKind.TIME_LIMIT,
        time=seen.taken_at,
        cluster=seen.config.cluster,
        user=mine[0].job.user,
        subject=f"{plural(len(mine), 'job')} of yours would fit before the maintenance with a shorter time limit",
        text="Slurm starts no job that could still run when the maintenance of its nodes begins. These limits are the "
        "longest that fit if the job starts now; while it waits, shorter ones do. Nothing was changed on your jobs.\n\n"
        + "\n".join(lines),
        figures={"jobs": len(mine)},
    )


def _in_a_mail(each: HeldUp, now: float) -> str:
    limit = "no limit" if each.job.time_limit_s is None else f"a limit of {duration(each.job.time_limit_s)}"
    begins = f"{each.maintenance.name} begins at {moment(each.maintenance.start_time, now)}"
    return f"job {each.job.job_id} has {limit}, and {begins}. If it can do with less: {_command(each)}"


def _command(each: HeldUp) -> str:
    return f"scontrol update JobId={each.job.job_id} TimeLimit={slurm_time(each.fits_s)}"
