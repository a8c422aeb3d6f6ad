"""What the rules look at beside the job, collected once in a cycle."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from advisor.domain.actions import Lever
from advisor.domain.job import Job
from advisor.domain.lease import Lease, stopped_since
from advisor.domain.mode import EVERYTHING, Mode, Modes
from advisor.domain.releases import Traits
from advisor.domain.snapshot import Snapshot
from advisor.guard.ledger import NOTHING_BOOKED, Ledger, ledger_of
from advisor.settings import APART_S, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The instant, the bounds, what is under way, and what advice has cost so far.

    `preempts` says whether running jobs may be stopped at all, `stopped` names those stopped within the last hour.
    `observed` holds the partitions with the account of jobs that are only observed. `hidden_levers` are those whose
    field the reader does not show.
    """

    now: float
    limits: Limits
    traits: Traits
    takes_soft_limits: bool
    split_arrays: frozenset[int]
    outstanding: frozenset[int]
    preempts: bool = False
    stopped: frozenset[int] = frozenset()
    observed: frozenset[tuple[tuple[str, ...], str]] = frozenset()
    ledger: Ledger = NOTHING_BOOKED
    hidden_levers: tuple[Lever, ...] = ()

    def user_delay_left_s(self, job: Job) -> float:
        """Return how much longer the jobs of a job's user may be delayed within the window; infinity if unknown."""
        if not job.user:
            return float("inf")
        return self.limits.max_user_delay_s - self.ledger.delay_s_by_user.get(job.user, 0.0)

    def account_delay_left_s(self, job: Job) -> float:
        """Return how much longer the jobs of a job's account may be delayed within the window; infinity for none."""
        if not job.account:
            return float("inf")
        return self.limits.max_account_delay_s - self.ledger.delay_s_by_account.get(job.account, 0.0)

    def job_delay_left_s(self, job: Job) -> float:
        """Return how much longer a job itself may be delayed."""
        return self.limits.max_added_delay_s - self.ledger.delay_s_by_job.get(job.job_id, 0.0)


def circumstances(
    snapshot: Snapshot,
    limits: Limits,
    outstanding: frozenset[int] = frozenset(),
    *,
    preempts: bool = False,
    leases: Iterable[Lease] = (),
    modes: Modes = EVERYTHING,
) -> Circumstances:
    """Collect what the rules look at; `outstanding` names the jobs with a change under way.

    `preempts` says whether running jobs may be stopped, `leases` are those of the jobs at hand and of any job within
    the fairness window.
    """
    known = tuple(leases)  # read more than once
    return Circumstances(
        now=snapshot.taken_at,
        limits=limits,
        traits=snapshot.config.traits,
        takes_soft_limits=snapshot.config.takes_soft_limits,
        split_arrays=_split_arrays(snapshot),
        outstanding=outstanding,
        preempts=preempts,
        stopped=frozenset(stop.job_id for stop in stopped_since(known, snapshot.taken_at - APART_S)),
        observed=_observed(snapshot, modes),
        ledger=ledger_of(known, snapshot.taken_at, limits),
        hidden_levers=snapshot.hidden_levers,
    )


def delays_left_s(snapshot: Snapshot, around: Circumstances) -> Mapping[int, float]:
    """Map pending jobs to how much longer they may be delayed; absent are those that the full bound is left for."""
    limits, booked = around.limits, around.ledger.delay_s_by_job
    if not booked and limits.max_added_delay_s <= min(limits.max_user_delay_s, limits.max_account_delay_s):
        return {}
    left: dict[int, float] = {}
    left_by_owner: dict[tuple[str, str], float] = {}  # many jobs share few users and accounts
    for job in snapshot.pending:
        owner = (job.user, job.account)
        left_s = left_by_owner.get(owner)
        if left_s is None:
            left_s = left_by_owner[owner] = min(around.user_delay_left_s(job), around.account_delay_left_s(job))
        if job.job_id in booked:
            left_s = min(left_s, around.job_delay_left_s(job))
        if left_s < limits.max_added_delay_s:
            left[job.job_id] = max(0.0, left_s)
    return left


def _split_arrays(snapshot: Snapshot) -> frozenset[int]:
    """Name the arrays with several records, or all where the reader cannot tell."""
    seen: set[int] = set()
    split: set[int] = set()
    for job in snapshot.jobs:
        if job.array is not None:
            unseen = snapshot.splits_told and job.array.array_job_id not in seen
            (seen if unseen else split).add(job.array.array_job_id)
    return frozenset(split)


def _observed(snapshot: Snapshot, modes: Modes) -> frozenset[tuple[tuple[str, ...], str]]:
    """Return the partitions with the account of jobs that are only observed; many jobs share few of them."""
    if modes == EVERYTHING:
        return frozenset()
    one_of_each = {(job.partitions, job.account): job for job in snapshot.jobs}
    return frozenset(key for key, job in one_of_each.items() if modes.of(job) is Mode.OBSERVE)
