"""Collects, once per cycle, what the rules need to know beside the job."""

from collections.abc import Iterable, Mapping
from dataclasses import field

from advisor.domain.actions import Lever, SetGpus
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.mode import EVERYTHING, Mode, Modes
from advisor.domain.releases import Traits
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.features.bars import NamedNodes, barred
from advisor.guard.ledger import NOTHING_BOOKED, Ledger, ledger_of
from advisor.settings import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The instant, the limits, the outstanding changes, and the delay that changes have added so far.

    `names_nodes` is whether nodes can be named for gangs, and `nodes` are the nodes of the snapshot. `observed` holds
    the pairs of partitions and account whose jobs are in mode observe. `hidden_levers` are the levers whose field the
    reader does not show. `lifted` names the jobs whose lift is in effect, but for those that have since become too
    late. `partitions` go by name. `barred` are the jobs that a bar keeps from nodes with room for them. `users_limit_s`
    are the own time limits of jobs whose size, and possibly time limit, we have changed.
    """

    now: float
    limits: Limits
    traits: Traits
    takes_soft_limits: bool
    split_arrays: frozenset[int]
    outstanding: frozenset[int]
    barred: frozenset[int] = frozenset()
    nodes: NamedNodes | None = None
    names_nodes: bool = False
    observed: frozenset[tuple[tuple[str, ...], str]] = frozenset()
    ledger: Ledger = NOTHING_BOOKED
    hidden_levers: tuple[Lever, ...] = ()
    lifted: frozenset[int] = frozenset()
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    users_limit_s: Mapping[int, float] = field(default_factory=dict)

    def user_delay_left_s(self, job: Job) -> float:
        """Return the delay left for the jobs of a job's user within the window; infinity if the user is unknown."""
        if not job.user:
            return float("inf")
        return self.limits.max_user_delay_s - self.ledger.delay_s_by_user.get(job.user, 0.0)

    def account_delay_left_s(self, job: Job) -> float:
        """Return the delay left for the jobs of a job's account within the window; infinity without an account."""
        if not job.account:
            return float("inf")
        return self.limits.max_account_delay_s - self.ledger.delay_s_by_account.get(job.account, 0.0)

    def late_s(self, job: Job) -> float:
        """Return how long a job has waited since it would have started as submitted; 0 if it would not have."""
        return self.ledger.realised_s_by_job.get(job.job_id, 0.0)

    def job_delay_left_s(self, job: Job) -> float:
        """Return the delay left for one job."""
        return self.limits.max_added_delay_s - self.ledger.delay_s_by_job.get(job.job_id, 0.0)


def circumstances(
    snapshot: Snapshot,
    limits: Limits,
    outstanding: frozenset[int] = frozenset(),
    *,
    names_nodes: bool = False,
    leases: Iterable[Lease] = (),
    modes: Modes = EVERYTHING,
    lifted: frozenset[int] = frozenset(),
    overdue: frozenset[int] = frozenset(),
) -> Circumstances:
    """Collect the circumstances of a snapshot; `outstanding` names the jobs that get no further change.

    `names_nodes` is whether nodes can be named for gangs; `leases` are those of the jobs in the snapshot, and of any
    job within the fairness window. `lifted` are the jobs whose lift is in effect, `overdue` those that are later than
    the bound on lateness allows.
    """
    known = tuple(leases)  # read more than once
    return Circumstances(
        now=snapshot.taken_at,
        limits=limits,
        traits=snapshot.config.traits,
        takes_soft_limits=snapshot.config.takes_soft_limits,
        split_arrays=_split_arrays(snapshot),
        outstanding=outstanding,
        barred=barred(snapshot),
        nodes=NamedNodes(snapshot=snapshot),
        names_nodes=names_nodes,
        observed=_observed(snapshot, modes),
        ledger=ledger_of(known, snapshot.taken_at, limits, overdue),
        hidden_levers=snapshot.hidden_levers,
        lifted=lifted - overdue,
        partitions=snapshot.partitions_by_name,
        users_limit_s=_users_limit_s(known),
    )


def delays_left_s(snapshot: Snapshot, circumstances: Circumstances) -> Mapping[int, float]:
    """Map pending jobs to the delay left for them, without those for which the full bound is left."""
    limits, booked = circumstances.limits, circumstances.ledger.delay_s_by_job
    if not booked and limits.max_added_delay_s <= min(limits.max_user_delay_s, limits.max_account_delay_s):
        return {}
    left: dict[int, float] = {}
    left_by_owner: dict[tuple[str, str], float] = {}  # many jobs share few users and accounts
    for job in snapshot.pending:
        owner = (job.user, job.account)
        left_s = left_by_owner.get(owner)
        if left_s is None:
            left_s = left_by_owner[owner] = min(
                circumstances.user_delay_left_s(job), circumstances.account_delay_left_s(job)
            )
        if job.job_id in booked:
            left_s = min(left_s, circumstances.job_delay_left_s(job))
        if left_s < limits.max_added_delay_s:
            left[job.job_id] = max(0.0, left_s)
    return left


def _users_limit_s(leases: Iterable[Lease]) -> dict[int, float]:
    """Map the jobs whose size we have changed to the time limits that their users gave them."""
    return {
        lease.job_id: lease.undo.after.time_limit_s
        for lease in leases
        if lease.ending is None and isinstance(lease.undo, SetGpus) and lease.undo.after.time_limit_s is not None
    }


def _split_arrays(snapshot: Snapshot) -> frozenset[int]:
    """Return the ids of arrays with several records, or of all arrays if the reader cannot tell."""
    seen: set[int] = set()
    split: set[int] = set()
    for job in snapshot.jobs:
        if job.array is not None:
            unseen = snapshot.splits_told and job.array.array_job_id not in seen
            (seen if unseen else split).add(job.array.array_job_id)
    return frozenset(split)


def _observed(snapshot: Snapshot, modes: Modes) -> frozenset[tuple[tuple[str, ...], str]]:
    """Return the pairs of partitions and account of jobs in mode observe; many jobs share few of them."""
    if modes == EVERYTHING:
        return frozenset()
    one_of_each = {(job.partitions, job.account): job for job in snapshot.jobs}
    return frozenset(key for key, job in one_of_each.items() if modes.of(job) is Mode.OBSERVE)
