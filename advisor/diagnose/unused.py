"""Says in one sentence why a plan holds no delay timer, or no new size."""

from collections.abc import Mapping, Sequence
from typing import Final

from advisor.domain.actions import SetNice
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.units import plural
from advisor.planning.case import Case
from advisor.planning.levers import missing_for
from advisor.planning.line import LINE
from advisor.planning.placement import rows_that_can_wait, turns_near_head
from advisor.planning.sizing import options
from advisor.planning.timers import closer_places, timer_for

NO_GANG: Final = "no pending job is a gang that can be spread over nodes, with a time limit or a forecast"
NO_RANGE: Final = "no pending job declares a range of sizes (--comment='sadvise: gpus=2-8')"


def why_unused(case: Case, judged: Sequence[Recommendation]) -> Mapping[Kind, str]:
    """Map delay timers and sizes to why none is among the changes of a plan, as far as they are not."""
    proposed = {change.kind for change in judged}
    reasons = {Kind.CONSOLIDATE: _no_timer, Kind.RESIZE: _no_size}
    return {
        kind: _no_lever(case, kind) or reason(case, judged) for kind, reason in reasons.items() if kind not in proposed
    }


def _no_lever(case: Case, kind: Kind) -> str | None:
    """Return what the site lacks, if it lacks every lever of a kind."""
    levers = sorted(lever for proposer in LINE if proposer.kind is kind for lever in proposer.levers)
    missing = [missing_for(lever, case.snapshot) for lever in levers]
    return None if None in missing else "; ".join(dict.fromkeys(text for text in missing if text is not None))


def _no_timer(case: Case, judged: Sequence[Recommendation]) -> str:
    queue = case.queue_after(judged)
    gangs = rows_that_can_wait(queue)
    if not gangs:
        return NO_GANG
    allowed = [row for row in gangs if queue.jobs[row].job_id not in case.untouchable]
    if not allowed:
        return f"{_are(len(gangs))} left alone by rules of the guard"
    lifted = {change.job_id for change in judged if isinstance(change.action, SetNice) and change.refused_by is None}
    wanted = [row for row in allowed if queue.jobs[row].job_id not in lifted]
    if not wanted:
        return f"{_are(len(allowed))} lifted by this plan: a timer can follow in the next round"
    near = list(turns_near_head(case, queue, wanted))
    if not near:
        return "no gang can start now or within 10 min: each waits for its turn, and a timer would end before it"
    closer = [
        (turn, place)
        for turn, fit in near
        if not fit.restricted
        for place in closer_places(case, queue.jobs[turn.row], fit, turn.fitter)
    ]
    if not closer:
        return f"{_are(len(near))} near the head of the line, and would sit no closer after a wait"
    if all(turn.is_first and not queue.run.by_model[turn.row] for turn, _ in closer):
        return "the gang that could sit closer is first in line, and waits only for what models forecast"
    if not any(timer_for(case, queue, turn.row, place, is_first=turn.is_first) for turn, place in closer):
        return "a closer place saves less run time than the wait for it is expected to cost"
    return "no closer place comes free in time, or the bounds on delay leave no room for a wait"


def _no_size(case: Case, judged: Sequence[Recommendation]) -> str:
    declared = [job for job in case.queue.jobs if job.hints.gpus is not None]
    if not declared:
        return NO_RANGE
    changed = {change.job_id for change in judged if change.refused_by is None}
    free = [job for job in declared if job.job_id not in case.untouchable | changed]
    if not free:
        return f"{_are(len(declared), 'elastic job')} left alone by rules of the guard, or lifted by this plan"
    if not any(options(job) for job in free):
        return "the requests of the elastic jobs have no form in which Slurm changes the number of GPUs"
    return (
        "no elastic job would end sooner: it grows only as it starts, onto GPUs for which no job waits, and shrinks "
        "only to what is idle, if its limit suffices"
    )


def _are(count: int, noun: str = "gang") -> str:
    """Return the subject and verb of a sentence about some jobs."""
    return f"{plural(count, noun)} {'is' if count == 1 else 'are'}"
