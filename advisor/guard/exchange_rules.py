"""Defines the rules about two jobs that change places: they are of one group, and everybody else keeps theirs."""

from collections.abc import Callable, Mapping, Sequence

from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.mark import MARK_SPAN
from advisor.domain.plan import Recommendation
from advisor.guard.circumstances import Circumstances

Half = tuple[Recommendation, Job]
ExchangeRule = Callable[[Sequence[Half], Circumstances], bool]


def exchange_whole(halves: Sequence[Half], _circumstances: Circumstances) -> bool:
    """An exchange is a lift and a step back, and each names the job of the other."""
    actions = [change.action for change, _ in halves if isinstance(change.action, SetNice)]
    return (
        len(actions) == len(halves) == 2
        and actions[0].exchanged_with == actions[1].job_id
        and actions[1].exchanged_with == actions[0].job_id
        and actions[0].lifts is not actions[1].lifts
    )


def exchange_within_group(halves: Sequence[Half], circumstances: Circumstances) -> bool:
    """The two jobs are of one user where `guard.fairness` is `user`, of one account where it is `account`."""
    match circumstances.limits.fairness:
        case "user":
            owners = {job.user for _, job in halves}
        case "account":
            owners = {job.account for _, job in halves}
        case _:
            return False
    return len(owners) == 1 and "" not in owners


def places_exchanged(halves: Sequence[Half], _circumstances: Circumstances) -> bool:
    """Each job gets the priority of the other, as closely as marked nice values allow."""
    (first, second) = ((job.priority, change.action.applied_to(job).priority) for change, job in halves)
    return all(
        before is not None and after is not None and abs(before - after) < MARK_SPAN
        for before, after in ((first[0], second[1]), (second[0], first[1]))
    )


EXCHANGE_RULES: Mapping[str, ExchangeRule] = {
    "exchange_whole": exchange_whole,
    "exchange_within_group": exchange_within_group,
    "places_exchanged": places_exchanged,
}
