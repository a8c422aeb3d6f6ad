"""Defines the rules about all changes of one cycle: how many, to whose jobs, and how much delay they add."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field

from advisor.domain.actions import SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.guard.circumstances import Circumstances


@dataclass(slots=True, kw_only=True)
class Accepted:
    """The changes accepted so far in a cycle: their jobs, those of each user and account, and the delay booked.

    Lifts are not counted by user and account, as they delay no job of theirs, nor are jobs that change places.
    """

    jobs: set[int] = field(default_factory=set)
    changes_by_user: Counter[str] = field(default_factory=Counter)
    changes_by_account: Counter[str] = field(default_factory=Counter)
    delay_s_by_user: dict[str, float] = field(default_factory=dict)
    delay_s_by_account: dict[str, float] = field(default_factory=dict)

    def add(self, change: Recommendation, job: Job) -> None:
        """Count one more change."""
        delay_s = max(0.0, change.expected.added_delay_max_s)
        self.jobs.add(job.job_id)
        if not _reorders(change):
            self.changes_by_user[job.user] += 1
            self.changes_by_account[job.account] += 1
        self.delay_s_by_user[job.user] = self.delay_s_by_user.get(job.user, 0.0) + delay_s
        self.delay_s_by_account[job.account] = self.delay_s_by_account.get(job.account, 0.0) + delay_s

    def copy(self) -> "Accepted":
        """Return an independent copy."""
        return Accepted(
            jobs=set(self.jobs),
            changes_by_user=self.changes_by_user.copy(),
            changes_by_account=self.changes_by_account.copy(),
            delay_s_by_user=dict(self.delay_s_by_user),
            delay_s_by_account=dict(self.delay_s_by_account),
        )


Cap = Callable[[Recommendation, Job, Accepted, Circumstances], bool]


def no_change_outstanding(_change: Recommendation, job: Job, accepted: Accepted, _circumstances: Circumstances) -> bool:
    """One change per job and cycle."""
    return job.job_id not in accepted.jobs


def changes_within_cap(_change: Recommendation, _job: Job, accepted: Accepted, circumstances: Circumstances) -> bool:
    """No more changes in one cycle than the site wants."""
    return len(accepted.jobs) < circumstances.limits.max_changes


def user_within_cap(change: Recommendation, job: Job, accepted: Accepted, circumstances: Circumstances) -> bool:
    """No more changes to the jobs of one user in one cycle, lifts and exchanges apart."""
    if _reorders(change) or not job.user:
        return True
    return accepted.changes_by_user[job.user] < circumstances.limits.max_changes_per_user


def account_within_cap(change: Recommendation, job: Job, accepted: Accepted, circumstances: Circumstances) -> bool:
    """No more changes to the jobs of one account in one cycle, lifts and exchanges apart."""
    if _reorders(change) or not job.account:
        return True
    return accepted.changes_by_account[job.account] < circumstances.limits.max_changes_per_account


def fair_to_user(change: Recommendation, job: Job, accepted: Accepted, circumstances: Circumstances) -> bool:
    """Within the window, the delays of all jobs of one user add up to no more than a bound."""
    added_s = change.expected.added_delay_max_s
    return added_s <= 0 or accepted.delay_s_by_user.get(job.user, 0.0) + added_s <= circumstances.user_delay_left_s(job)


def fair_to_account(change: Recommendation, job: Job, accepted: Accepted, circumstances: Circumstances) -> bool:
    """Within the window, the delays of all jobs of one account add up to no more than a bound."""
    added_s = change.expected.added_delay_max_s
    booked_s = accepted.delay_s_by_account.get(job.account, 0.0)
    return added_s <= 0 or booked_s + added_s <= circumstances.account_delay_left_s(job)


def _reorders(change: Recommendation) -> bool:
    """Return whether a change lifts its job, or is part of an exchange: other rules refuse any other nice."""
    return isinstance(change.action, SetNice)


CAPS: Mapping[str, Cap] = {
    "no_change_outstanding": no_change_outstanding,
    "fair_to_user": fair_to_user,
    "fair_to_account": fair_to_account,
    "user_within_cap": user_within_cap,
    "account_within_cap": account_within_cap,
    "changes_within_cap": changes_within_cap,
}
