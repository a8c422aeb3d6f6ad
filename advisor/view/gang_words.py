"""Words the gangs that starve and the GPUs that idle because small jobs are scattered."""

from collections.abc import Iterator
from typing import Final

from advisor.diagnose.starving import Passing
from advisor.domain.job import Job
from advisor.domain.units import HOUR_S, duration, gpu_time, plural
from advisor.domain.waiting_gangs import GangLook, StarvedGang, WeekOfGangs
from advisor.view.documents import shell
from advisor.view.terminal import instant

_MOST_NAMED: Final = 3
# How long a reservation lasts; a gang that starts in it can run beyond its end (FLEX).
_LASTS_MIN: Final = 30
# It goes once it has begun and nothing has run in it for this time.
_PURGED_AFTER: Final = "00:05:00"


def starved_sentence(look: GangLook) -> str:
    """Return in one line which gangs starve; "" for none."""
    first = look.starved[:_MOST_NAMED]
    if not first:
        return ""
    named = ", ".join(f"job {gang.job_id} (for {duration(look.looked_time - gang.since_time)})" for gang in first)
    others = f" and {len(look.starved) - len(first)} more" if len(look.starved) > len(first) else ""
    return f"{named}{others}; `sadvise explain {first[0].job_id}` says who passed it and what would end it"


def scattered_sentence(look: GangLook) -> str:
    """Return in one line how many GPUs idle because small jobs are scattered; "" for none."""
    gpus, nodes = sum(count for _, count in look.scattered), ", ".join(name for name, _ in look.scattered[:_MOST_NAMED])
    if not gpus:
        return ""
    where = f"{nodes} and others" if len(look.scattered) > _MOST_NAMED else nodes
    return f"{plural(gpus, 'GPU')} idle beside small jobs on {where}: gangs would start if these stood on fewer nodes"


def starved_lines(gang: StarvedGang, seen: Passing, job: Job, now: float) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about a gang that starves: since when, who passes it, and what would end it."""
    runs, users = plural(gang.passed_by, "run"), plural(gang.users, "other user")
    had, asked = gpu_time(gang.passed_gpu_s / HOUR_S), gpu_time(gang.work_gpu_s / HOUR_S)
    waited = f"since {instant(gang.since_time)}: eligible for {duration(now - gang.eligible_time)}"
    yield "starved", f"{waited}; {runs} of {users}, eligible later, had {had} on its nodes, and it asks for {asked}"
    if seen.running:
        named = [f"{user} ({plural(jobs, 'job')}, {plural(gpus, 'GPU')})" for user, jobs, gpus in seen.running]
        more = f" and {plural(len(named) - _MOST_NAMED, 'more user')}" if len(named) > _MOST_NAMED else ""
        yield "", f"running now of those: {', '.join(named[:_MOST_NAMED])}{more}"
    if seen.planned_time is not None:
        yield "", f"Slurm plans its start for {instant(seen.planned_time)}"
    for why in _openings(seen):
        yield "", f"backfill keeps no nodes for it: {why}"
    if seen.fits_time is not None and seen.nodes:
        until = f"what starts there has to end by {instant(seen.fits_time)}"
        yield "to do", f"an operator can keep {plural(len(seen.nodes), 'node')} for jobs of its user; {until}:"
        yield "", shell(["scontrol", "create", "reservation", *_reservation(seen, job)])


def week_lines(week: WeekOfGangs) -> Iterator[str]:
    """Yield the lines of a digest, without names of users."""
    if week.starved:
        jobs = ", ".join(str(job_id) for job_id, _ in week.starved[:_MOST_NAMED])
        others = " and others" if len(week.starved) > _MOST_NAMED else ""
        yield f"Gangs: {len(week.starved)} starved, jobs {jobs}{others}; `sadvise explain` says of one who passed it."
    if week.scattered:
        most = ", ".join(f"{name} ({hours:.0f})" for name, hours in week.scattered[:_MOST_NAMED])
        hours = gpu_time(sum(hours for _, hours in week.scattered))
        yield f"Fragments: {hours} idle beside small jobs, with which waiting gangs would have started; most on {most}."


def _openings(seen: Passing) -> Iterator[str]:
    """Yield the settings by which backfill lets others pass."""
    if seen.depth is not None:
        yield f"it looks at the first {seen.depth} jobs alone (bf_max_job_test)"
    if seen.low is not None:
        yield f"the priority of the job is below {seen.low} (bf_min_prio_reserve)"
    if seen.young_s is not None:
        yield f"the job is younger than {duration(seen.young_s)} (bf_min_age_reserve)"
    if seen.kept is not None:
        kept = "the first job" if seen.kept == 1 else f"the first {seen.kept} jobs"
        yield f"it keeps some for {kept} of each partition alone (bf_job_part_count_reserve)"
    if seen.window_s is not None:
        yield f"it looks {duration(seen.window_s)} ahead, and the job fits later (bf_window)"


def _reservation(seen: Passing, job: Job) -> list[str]:
    """Return the words of a reservation that begins once the nodes are free; what it is for starts before, if it can.

    Jobs use it without asking for it (MAGNETIC), as Slurm holds those that ask for one that ends.
    """
    return [
        f"ReservationName=gang_{job.job_id}",
        f"Users={job.user}",
        f"Nodes={','.join(seen.nodes)}",
        f"StartTime={instant(seen.fits_time or 0.0)}",
        f"Duration={_LASTS_MIN}",
        f"Flags=FLEX,MAGNETIC,PURGE_COMP={_PURGED_AFTER}",
    ]
