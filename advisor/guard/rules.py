"""Judges changes by the rules; a refusal names the first rule that does not hold."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from advisor.domain.actions import Lever, SetNice, exchanged_with
from advisor.domain.job import Job
from advisor.domain.plan import Permits, Plan, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.guard.caps import CAPS, Accepted
from advisor.guard.change_rules import CHANGE_RULES, lifts
from advisor.guard.circumstances import Circumstances, delays_left_s
from advisor.guard.exchange_rules import EXCHANGE_RULES
from advisor.guard.job_rules import (
    JOB_RULES,
    NICE_RULES,
    OWED_RULES,
    JobRule,
)

ALL_OR_NONE = "all_or_none"


def refusals(snapshot: Snapshot, circumstances: Circumstances) -> Mapping[int, str]:
    """Map each pending GPU job that must not be changed to the first rule that forbids it; see also `nice_only`."""
    refused = {}
    for job in snapshot.pending:
        if job.gang.wants_gpus or not job.gang.gpus_known:
            rule = _broken_by(job, circumstances)
            if rule is not None:
                refused[job.job_id] = rule
    return refused


def nice_only(snapshot: Snapshot, circumstances: Circumstances, refused: Mapping[int, str]) -> frozenset[int]:
    """Return the ids of those refused jobs whose nice can still be changed: arrays of which tasks have started."""
    return frozenset(
        job_id for job_id in refused if _broken_by(snapshot.jobs_by_id[job_id], circumstances, NICE_RULES) is None
    )


def late_s(snapshot: Snapshot, circumstances: Circumstances) -> Mapping[int, float]:
    """Map the jobs that can be lifted, since our changes have delayed them, to their realised delay."""
    jobs = (snapshot.jobs_by_id.get(job_id) for job_id in circumstances.ledger.realised_s_by_job)
    return {
        job.job_id: circumstances.late_s(job)
        for job in jobs
        if job is not None and circumstances.late_s(job) > 0.0 and _broken_by(job, circumstances, OWED_RULES) is None
    }


def permitted(snapshot: Snapshot, circumstances: Circumstances) -> Permits:
    """Return what a plan for a snapshot can touch."""
    refused = refusals(snapshot, circumstances)
    return Permits(
        left_alone=refused,
        nice_only=nice_only(snapshot, circumstances, refused),
        delay_left_s=delays_left_s(snapshot, circumstances),
        late_s=late_s(snapshot, circumstances),
    )


def judge(plan: Plan, snapshot: Snapshot, circumstances: Circumstances) -> tuple[Recommendation, ...]:
    """Return the recommendations of a plan, each judged by every rule.

    If a cap binds, those with the largest expected saving are accepted; ties are broken by job id. Two jobs that
    change places are accepted or refused together. The order is that of the plan.
    """
    changes = plan.recommendations
    refused = {
        place: rule
        for place, change in enumerate(changes)
        if (rule := _refusal(change, snapshot.jobs_by_id.get(change.job_id), circumstances)) is not None
    }
    accepted = Accepted()
    for places in _best_first(changes):
        if not refused.keys() & set(places) and (rule := _exchange_refusal(changes, places, snapshot, circumstances)):
            refused |= dict.fromkeys(places, rule)
        if refused.keys() & set(places):
            refused |= {place: ALL_OR_NONE for place in places if place not in refused}
            continue
        tried = accepted.copy()
        for place in places:
            change, job = changes[place], snapshot.jobs_by_id[changes[place].job_id]
            cap = next((name for name, holds in CAPS.items() if not holds(change, job, tried, circumstances)), None)
            if cap is not None:
                refused |= {position: cap if position == place else ALL_OR_NONE for position in places}
                break
            tried.add(change, job)
        else:
            accepted = tried
    return tuple(replace(change, refused_by=refused.get(place)) for place, change in enumerate(changes))


def _best_first(changes: Sequence[Recommendation]) -> Iterator[Sequence[int]]:
    """Yield the positions of recommendations that are accepted together, largest expected saving first."""
    together: dict[tuple[Lever, int] | int, list[int]] = {}
    for place, change in enumerate(changes):
        together.setdefault(change.action.all_or_none or place, []).append(place)

    def worth(places: Sequence[int]) -> tuple[float, int, int]:
        saved_s = sum(changes[place].expected.saved_s_low + changes[place].expected.saved_s_high for place in places)
        return -saved_s / 2, min(changes[place].job_id for place in places), places[0]

    yield from sorted(together.values(), key=worth)


def _exchange_refusal(
    changes: Sequence[Recommendation], places: Sequence[int], snapshot: Snapshot, circumstances: Circumstances
) -> str | None:
    """Return the first rule about both halves of an exchange that does not hold; None for other changes."""
    if all(exchanged_with(changes[place].action) is None for place in places):
        return None
    halves = [(changes[place], snapshot.jobs_by_id[changes[place].job_id]) for place in places]
    return next((name for name, holds in EXCHANGE_RULES.items() if not holds(halves, circumstances)), None)


def _refusal(change: Recommendation, job: Job | None, circumstances: Circumstances) -> str | None:
    """Return the first rule that a change breaks by itself; None if all hold."""
    if job is None:
        return "job_still_pending"
    broken = _broken_by(job, circumstances, _rules_for(change, job, circumstances))
    return broken or next((name for name, holds in CHANGE_RULES.items() if not holds(change, job, circumstances)), None)


def _rules_for(change: Recommendation, job: Job, circumstances: Circumstances) -> Mapping[str, JobRule]:
    """Return the rules that the job of a change has to meet."""
    if lifts(change) and circumstances.late_s(job) > 0.0:
        return OWED_RULES
    return NICE_RULES if isinstance(change.action, SetNice) else JOB_RULES


def _broken_by(job: Job, circumstances: Circumstances, rules: Mapping[str, JobRule] = JOB_RULES) -> str | None:
    """Return the first job rule that a job breaks; a plain loop, as it runs for every pending job."""
    for name, holds in rules.items():
        if not holds(job, circumstances):
            return name
    return None
