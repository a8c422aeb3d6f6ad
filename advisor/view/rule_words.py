"""One plain sentence for each rule that leaves jobs or changes alone: what it found, and what to type or to set."""

from collections.abc import Mapping
from dataclasses import asdict
from types import SimpleNamespace
from typing import Final

from advisor.domain.units import duration, plural
from advisor.settings import Limits, PlanningSettings

# The rules that leave pending jobs alone, in the few words that fit the cell of a table.
RULES_IN_SHORT: Final[Mapping[str, str]] = {
    "job_still_pending": "no longer pending",
    "gpus_known": "GPUs not read",
    "nothing_unseen": "not fully read",
    "not_held": "held",
    "not_dependent": "has a dependency",
    "not_deferred": "begins later",
    "array_not_split": "part of an array",
    "not_heterogeneous": "heterogeneous",
    "not_federated": "federated",
    "not_cron": "from scrontab",
    "not_reserved": "in a reservation",
    "not_opted_out": "opted out",
    "old_enough": "just submitted",
    "no_bar": "barred",
    "update_has_no_side_effect": "update has side effects",
    "mode_allows_advice": "only observed",
    "no_person_objected": "overruled",
    "no_change_outstanding": "changed already",
    "cooldown_over": "changed lately",
}

# Of one job or change; `{guard.KEY}` and `{planning.KEY}` are replaced by the value of the setting.
RULES_IN_WORDS: Final[Mapping[str, str]] = {
    # Jobs.
    "job_still_pending": "It has started or has left the queue. Nothing to do.",
    "gpus_known": "Its GPU request could not be read. To see it: `sadvise explain JOBID`.",
    "nothing_unseen": "A field of it could not be read. To see which: `sadvise explain JOBID`.",
    "not_held": "It is held. To release it: `scontrol release JOBID`.",
    "not_dependent": "It waits for another job. To see which: `squeue -j JOBID -O Dependency`.",
    "not_deferred": "Its begin time is in the future. To start it now: `scontrol update JobId=JOBID StartTime=now`.",
    "array_not_split": (
        "It is part of an array, and an update would split the array or miss some of its tasks. `--source pyslurm` can "
        "see more of arrays."
    ),
    "not_split_off": "It is a task that left its array. It changes with the waiting tasks of the array, or not at all.",
    "not_heterogeneous": "It is part of a heterogeneous job. These are never changed.",
    "not_federated": "It belongs to a federation and could start on another cluster. These are never changed.",
    "not_cron": "It comes from scrontab. These are never changed.",
    "not_reserved": "It asks for a reservation. To see it: `scontrol show reservation`.",
    "not_opted_out": "Its user wrote `sadvise: off` in its comment.",
    "old_enough": "It was submitted less than {guard.min_job_age_s} ago (guard.min_job_age_s). Wait.",
    "no_bar": (
        "Something bars it from nodes with room for it: a resource beside GPUs, or a bar that Slurm sees and sadvise "
        "cannot see. To see which: `sadvise explain JOBID`."
    ),
    "update_has_no_side_effect": "Any update would change its priority for good in this release of Slurm.",
    "mode_allows_advice": "Its partition or account is only observed. To change that, set it in [mode].",
    "no_person_objected": "A person took back or overrode a change of it. It is left alone for 30 days.",
    "no_change_outstanding": "A change of it is still in effect. To see it: `sadvise journal -j JOBID`.",
    "cooldown_over": "It was changed less than {guard.cooldown_s} ago (guard.cooldown_s). Wait.",
    "lifted_once": "It was moved ahead already, and still is. To see it: `sadvise journal -j JOBID`.",
    # Changes.
    "field_shown": "The reader does not show the field, so that the change could not be checked. Try `--source text`.",
    "before_still_true": "The job has changed since it was read. The next round plans with its new values.",
    "lifts_only": "It would put the job back without an exchange. That is never done.",
    "place_given_once": "The job gave its place once already. It does so only once.",
    "nice_within_limits": "It needs a nice below {guard.nice_min} (guard.nice_min).",
    "delay_within_limits": "It could delay its job by more than {guard.max_added_delay_s} (guard.max_added_delay_s).",
    "total_delay_within_limit": (
        "With earlier changes it could delay its job by more than {guard.max_added_delay_s} (guard.max_added_delay_s)."
    ),
    "starts_within_bound": (
        "If others took all idle GPUs, its job could start over {guard.max_added_delay_s} late "
        "(guard.max_added_delay_s)."
    ),
    "lift_within_fairness": "It would pass jobs of others, which guard.fairness = {guard.fairness} does not allow.",
    "long_waiter_not_delayed": (
        "It delays a job that has waited over {guard.max_job_wait_s} (guard.max_job_wait_s). That is never done."
    ),
    "gpus_unchanged_by_nodes": "On fewer nodes the job would get fewer GPUs, as it asks for them per node or socket.",
    "size_within_range": "The size is outside the range that the user declared. To see it: `scontrol show job JOBID`.",
    "shrinking_survives_limit": "The job would run longer with fewer GPUs, and could hit its time limit.",
    "limit_raised_within_ratio": (
        "The time limit would rise above {guard.max_limit_ratio} times the user's own (guard.max_limit_ratio)."
    ),
    "limit_within_partitions": "The partition allows no such time limit. To see it: `scontrol show partition`.",
    "soft_limit_is_soft": (
        "Slurm would shorten the job to its soft limit. That takes SchedulerParameters=time_min_as_soft_limit."
    ),
    "soft_limit_within_limit": "The soft limit is below a minute, above the time limit, or there is no time limit.",
    "users_time_min_kept": "The user set a TimeMin of their own, which stays.",
    "nodes_can_be_named": "Nodes are not named here. To allow it: planning.name_nodes = true.",
    "users_nodes_kept": "The user chose or excluded nodes, or the job is an array. That stays.",
    "node_count_fixed": "The job has no fixed number of nodes, or not as many as were chosen.",
    "named_nodes_free": "The nodes that were chosen are no longer free. The next round chooses again.",
    "nodes_named_rarely": "Nodes were named for this job three times already. Slurm chooses from now on.",
    # Changes of a cycle, together.
    "fair_to_user": (
        "Changes would delay this user's jobs by more than {guard.max_user_delay_s} in {guard.fairness_window_s} "
        "(guard.max_user_delay_s)."
    ),
    "fair_to_account": (
        "Changes would delay this account's jobs by more than {guard.max_account_delay_s} in "
        "{guard.fairness_window_s} (guard.max_account_delay_s)."
    ),
    "user_within_cap": (
        "{guard.max_changes_per_user} changes per user and round are the most (guard.max_changes_per_user). The next "
        "round goes on."
    ),
    "account_within_cap": (
        "{guard.max_changes_per_account} changes per account and round are the most (guard.max_changes_per_account). "
        "The next round goes on."
    ),
    "changes_within_cap": (
        "{guard.max_changes} changes per round are the most (guard.max_changes). The next round goes on."
    ),
    # Rollouts.
    "gains_in_rollout": "Simulated with all jobs, it gains nothing clear. For figures: `sadvise recommend --rollout`.",
    "tried_in_rollout": (
        "It was not simulated: that takes longer than {planning.rollout_deadline_s} (planning.rollout_deadline_s). "
        "A later round tries again."
    ),
    # Exchanges.
    "all_or_none": "The change needs others that were refused. It is made whole or not at all.",
    "exchange_whole": "It is no exchange of two jobs, one up and one down.",
    "exchange_within_group": "The two jobs are not of one user or account, as guard.fairness asks.",
    "places_exchanged": "After it, the jobs would not stand in each other's places.",
}


def rule_sentence(rule: str, limits: Limits, planning: PlanningSettings) -> str:
    """Return what a rule found about one job or change, with the settings in force."""
    return RULES_IN_WORDS[rule].format(guard=_in_words(limits), planning=_in_words(planning))


def rule_in_short(rule: str) -> str:
    """Return a few words for a rule that leaves a pending job alone; its name for one that only judges changes."""
    return RULES_IN_SHORT.get(rule, rule)


def rule_line(rule: str, count: int, limits: Limits, planning: PlanningSettings) -> str:
    """Return how many jobs a rule leaves alone, and what it found."""
    return f"{plural(count, 'job')}, {rule}: {rule_sentence(rule, limits, planning)}"


def _in_words(settings: Limits | PlanningSettings) -> SimpleNamespace:
    """Return the values of settings as people write them: `5 min`, `0.05`."""
    return SimpleNamespace(
        **{
            name: duration(value)
            if name.endswith("_s")
            else f"{value:.10g}"
            if isinstance(value, float)
            else str(value)
            for name, value in asdict(settings).items()
        }
    )
