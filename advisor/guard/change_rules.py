"""Defines the rules about one change: it keeps the site's bounds and the user's request."""

from collections.abc import Callable, Mapping

from advisor.domain.actions import (
    SetGpus,
    SetNice,
    SetNodeList,
    SetNodeRange,
    SetTimeMin,
    exchanged_with,
    gives_place,
    limit_factor,
    raised_limit_s,
)
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.domain.site import longest_limit_s
from advisor.guard.circumstances import Circumstances

# Slurm counts TimeMin in minutes, and 0 means none.
SHORTEST_SOFT_LIMIT_S = 60.0
# A gang whose named nodes were taken that often gets them from Slurm.
MOST_NAMED = 3

ChangeRule = Callable[[Recommendation, Job, Circumstances], bool]


def lifts_only(change: Recommendation, _job: Job, _circumstances: Circumstances) -> bool:
    """No job is put back but in exchange for a lift: else its nice is only lowered, and restored."""
    return not isinstance(change.action, SetNice) or lifts(change) or exchanged_with(change.action) is not None


def lifted_once(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """The nice of a lifted job is changed again only once the job is later than the bounds allow."""
    is_lifted = isinstance(change.action, SetNice) and job.job_id in circumstances.lifted
    return not is_lifted or circumstances.late_s(job) > 0.0


def place_given_once(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """A job gives its place to a smaller one once."""
    return not gives_place(change.action) or job.job_id not in circumstances.ledger.gave_place


def nice_within_limits(change: Recommendation, _job: Job, circumstances: Circumstances) -> bool:
    """A nice is lowered no further than the site allows."""
    return not isinstance(change.action, SetNice) or change.action.after >= circumstances.limits.nice_min


def lifts(change: Recommendation) -> bool:
    """Return whether a change puts its job ahead of others."""
    return isinstance(change.action, SetNice) and change.action.lifts


def lift_within_fairness(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """Jobs of other users and accounts are passed where the site allows it, or by a job that our changes delayed.

    An exchange passes none; the rules about both of its halves see to that.
    """
    is_free = circumstances.limits.lifts_pass_others or circumstances.late_s(job) > 0.0
    return not lifts(change) or is_free or exchanged_with(change.action) is not None


def starts_within_bound(change: Recommendation, _job: Job, circumstances: Circumstances) -> bool:
    """A job is delayed only if by time limits it then still starts within the bound.

    Free nodes that are named for a job go to it before the jobs behind it, so that it keeps its place.
    """
    planned, latest, bound_s = change.planned_start, change.latest_start, circumstances.limits.max_added_delay_s
    if latest is None or bound_s == float("inf") or change.action.reserves_nodes:
        return True
    return planned is not None and latest - planned <= bound_s


def delay_within_limits(change: Recommendation, _job: Job, circumstances: Circumstances) -> bool:
    """No change is expected to delay a job by more than the published bound."""
    return change.expected.added_delay_max_s <= circumstances.limits.max_added_delay_s


def total_delay_within_limit(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """All changes to a job together, with what they have delayed it already, are expected to stay within the bound."""
    added_s = change.expected.added_delay_max_s
    return added_s <= 0 or added_s <= circumstances.job_delay_left_s(job)


def long_waiter_not_delayed(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """A job that has waited for very long is never delayed further.

    Changes that help it are allowed: otherwise a rule against starvation would cause starvation.
    """
    waited_s = job.queueing_delay_s(circumstances.now if job.is_pending or job.start_time is None else job.start_time)
    return change.expected.added_delay_max_s <= 0 or waited_s <= circumstances.limits.max_job_wait_s


def size_within_range(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """A job is only resized within the range it declares."""
    if not isinstance(change.action, SetGpus):
        return True
    size = job.gang.with_counts(change.action.scope, change.action.after.gpus).gpu_count
    return job.hints.gpus is not None and size is not None and job.hints.gpus.low <= size <= job.hints.gpus.high


def shrinking_survives_limit(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """A smaller job runs longer, so that its time limit, if it has one, rises as its GPUs fall, or more."""
    action = change.action
    if not isinstance(action, SetGpus) or not action.shrinks or job.time_limit_s is None:
        return True
    after_s = action.after.time_limit_s
    before, after = (sum(gpu.count for gpu in size.gpus) for size in (action.before, action.after))
    factor = limit_factor(before, after, change.stretch)
    return after_s is not None and after_s >= raised_limit_s(job.time_limit_s, factor)


def limit_raised_within_ratio(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """A time limit is never lowered, and raised up to the site's ratio to the user's own limit, by a smaller size."""
    action = change.action
    if not isinstance(action, SetGpus) or not action.changes_limit:
        return True
    before_s, after_s = action.before.time_limit_s, action.after.time_limit_s
    if before_s is None or after_s is None or after_s < before_s or not action.shrinks:
        return False
    users_s = circumstances.users_limit_s.get(job.job_id, before_s)
    return after_s <= users_s * circumstances.limits.max_limit_ratio


def limit_within_partitions(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """A time limit is raised up to what every partition of the job admits: an Operator's change could go beyond."""
    action = change.action
    if not isinstance(action, SetGpus) or not action.changes_limit or action.after.time_limit_s is None:
        return True
    return action.after.time_limit_s <= longest_limit_s(job.partitions, circumstances.partitions)


def gpus_unchanged_by_nodes(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """A change of the node count must not change how many GPUs the gang gets."""
    return not isinstance(change.action, SetNodeRange) or not (job.gang.per_node or job.gang.per_socket)


def soft_limit_is_soft(change: Recommendation, _job: Job, circumstances: Circumstances) -> bool:
    """On releases where TimeMin is no soft limit, Slurm shortens the job to it."""
    return not isinstance(change.action, SetTimeMin) or circumstances.takes_soft_limits


def soft_limit_within_limit(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """A soft limit lies between a minute and the time limit of the job, which must have one."""
    if not isinstance(change.action, SetTimeMin):
        return True
    after_s, limit_s = change.action.after, job.time_limit_s
    return after_s is not None and limit_s is not None and SHORTEST_SOFT_LIMIT_S <= after_s <= limit_s


def users_time_min_kept(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """A TimeMin that is already set comes from the user, or from an outstanding change."""
    return not isinstance(change.action, SetTimeMin) or (change.action.before is None and job.time_min_s is None)


def nodes_can_be_named(change: Recommendation, _job: Job, circumstances: Circumstances) -> bool:
    """Nodes are named only where the site allows it, and for some minutes."""
    return not isinstance(change.action, SetNodeList) or (
        circumstances.names_nodes and change.revert_after_s is not None
    )


def users_nodes_kept(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """Nodes are named only for a job whose user names none and excludes none; an array names them for all tasks."""
    names_none = not (job.gang.required_nodes or job.gang.excluded_nodes) and job.array is None
    return not isinstance(change.action, SetNodeList) or (names_none and not change.action.before)


def node_count_fixed(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """As many nodes are named as the job has in any case: to a job that has just started a shorter list takes nodes."""
    if not isinstance(change.action, SetNodeList):
        return True
    return job.gang.nodes_min == job.gang.nodes_max == len(set(change.action.after)) == len(change.action.after)


def named_nodes_free(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """The job could start on the named nodes now: else it would wait for them."""
    nodes = circumstances.nodes
    return not isinstance(change.action, SetNodeList) or (nodes is not None and nodes.hold(job, change.action.after))


def nodes_named_rarely(change: Recommendation, job: Job, circumstances: Circumstances) -> bool:
    """Nodes are named for a job a few times at most."""
    is_named = isinstance(change.action, SetNodeList)
    return not is_named or circumstances.ledger.named_by_job.get(job.job_id, 0) < MOST_NAMED


def field_shown(change: Recommendation, _job: Job, circumstances: Circumstances) -> bool:
    """A field is changed only if the reader shows its value."""
    return change.action.lever not in circumstances.hidden_levers


def before_still_true(change: Recommendation, job: Job, _circumstances: Circumstances) -> bool:
    """The job still has the value from which the recommendation starts."""
    return change.action.before == change.action.held_by(job)


CHANGE_RULES: Mapping[str, ChangeRule] = {
    "field_shown": field_shown,
    "before_still_true": before_still_true,
    "lifts_only": lifts_only,
    "lifted_once": lifted_once,
    "place_given_once": place_given_once,
    "nice_within_limits": nice_within_limits,
    "delay_within_limits": delay_within_limits,
    "total_delay_within_limit": total_delay_within_limit,
    "starts_within_bound": starts_within_bound,
    "lift_within_fairness": lift_within_fairness,
    "long_waiter_not_delayed": long_waiter_not_delayed,
    "gpus_unchanged_by_nodes": gpus_unchanged_by_nodes,
    "size_within_range": size_within_range,
    "shrinking_survives_limit": shrinking_survives_limit,
    "limit_raised_within_ratio": limit_raised_within_ratio,
    "limit_within_partitions": limit_within_partitions,
    "soft_limit_is_soft": soft_limit_is_soft,
    "soft_limit_within_limit": soft_limit_within_limit,
    "users_time_min_kept": users_time_min_kept,
    "nodes_can_be_named": nodes_can_be_named,
    "users_nodes_kept": users_nodes_kept,
    "node_count_fixed": node_count_fixed,
    "named_nodes_free": named_nodes_free,
    "nodes_named_rarely": nodes_named_rarely,
}
