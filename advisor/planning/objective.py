"""Orders waiting jobs by the objective: the least weighted sum of completion times, as far as their sizes are known.

The key of a job is its size, the GPU-time that it is expected to take, over its weight; the lowest goes first. Tasks of
an array count one by one. On one machine this order is optimal for known sizes (W. E. Smith, Naval Research Logistics
Quarterly 3, 1956), and for unknown ones with their means, since a job that has started is not interrupted (M. H.
Rothkopf, Management Science 12, 1966).

The weight is ours, and has three parts. The priority that the site gives a job, by fair share, age and QOS, counts as a
power of ten: over the full range of fair share and age it is `decades` of them. A job counts for the more, the larger
the part of its turnaround in the site's own order that it has waited already, so that a job that was about to start is
hardly passed. And the jobs of a user who has waited longer than without advice for certain count for more until that is
repaid, within a bound.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import Standing, Standings
from advisor.features.queue import QueueTable
from advisor.settings import Limits, PlanningSettings

Floats = NDArray[np.float64]

# The weight of jobs grows by half a power of ten for each time that their user has waited longer by what is agreed.
REPAID_DECADES: Final = 0.5
# The weights of PriorityWeight* that tell users apart and order jobs by their age; all others make classes.
_FAIR_WEIGHTS: Final = ("fair_share", "age")
# Sizes of jobs differ by fewer powers of ten.
MOST_DECADES: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The jobs that wait for the same GPUs, in any order; all arrays `(n_jobs,)`.

    `priority` is that of the jobs as submitted, without changes of ours; of equal ones the first in the arrays goes
    first. `gpu_s` is the GPU-time that a job is expected to take, or each task of an array, of which `tasks` wait, and
    `run_s` its expected run time, in seconds. `owed` is the excess wait of its user, as `owed` computes it.
    `is_overdue` is whether a job is later than the bound on lateness allows.
    `capacity` is the number of GPUs that the jobs wait for.
    """

    priority: Floats
    gpu_s: Floats
    tasks: Floats
    run_s: Floats
    waited_s: Floats
    owed: Floats
    is_overdue: NDArray[np.bool_]
    capacity: float

    @property
    def work_gpu_s(self) -> Floats:
        """The GPU-time that each job takes with all its waiting tasks, `(n_jobs,)`."""
        return self.gpu_s * self.tasks

    def turnaround_s(self) -> Floats:
        """Return how long each job takes from its submission to its end in the site's own order, as expected.

        The GPU-time ahead of a job is worked off by all GPUs at once.
        """
        order = np.argsort(-self.priority, kind="stable")
        work_gpu_s = self.work_gpu_s[order]
        ahead = np.empty(len(order))
        ahead[order] = np.cumsum(work_gpu_s) - work_gpu_s
        return np.asarray(self.waited_s + ahead / self.capacity + self.run_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How jobs are weighed: by `decades` over `scale` points of priority, by their turn, and by what users are owed.

    What is owed makes jobs weigh `max_credit` times as much at most. A wait below `patience_s` is no sign of a turn
    that comes near. Where `is_weighed` is False, all jobs weigh the same.
    """

    decades: float
    scale: float
    patience_s: float
    max_credit: float
    is_weighed: bool

    def keys(self, line: Waiting) -> Floats:
        """Return the key of each job, `(n_jobs,)` in GPU-seconds over weight; the lowest goes first, 0 before all."""
        if not self.is_weighed:
            return line.gpu_s
        decades = (line.priority - line.priority.max(initial=0.0)) * (self.decades / self.scale)
        # Below the least weight no size makes up for the difference.
        decades = np.maximum(decades, -MOST_DECADES)
        turn = (self.patience_s + line.waited_s) / (self.patience_s + line.turnaround_s())
        weight = 10.0**decades * credit(line.owed, self.max_credit) * turn
        return np.where(line.is_overdue, 0.0, line.gpu_s / weight)


def scoped_keys(gpu_s: Floats, is_overdue: NDArray[np.bool_]) -> Floats:
    """Return the keys of jobs within one user or account, `(n_jobs,)`: their sizes alone, 0 for late jobs.

    What the site's order says of users stays as it is there, since no job takes the place of another group.
    """
    return np.where(is_overdue, 0.0, gpu_s)


def waiting_of(queue: QueueTable, rows: NDArray[np.intp], ours: NDArray[np.int64], capacity: float) -> Waiting:
    """Return the jobs in some rows of a queue, none of them owed or overdue; `ours` is what we added to their nice."""
    return Waiting(
        priority=(queue.priority[rows] + ours).astype(np.float64),
        gpu_s=queue.taken[rows] * queue.run.expected_s[rows],
        tasks=queue.tasks[rows].astype(np.float64),
        run_s=queue.run.expected_s[rows],
        waited_s=queue.wait_s[rows],
        owed=np.zeros(len(rows)),
        is_overdue=np.zeros(len(rows), dtype=np.bool_),
        capacity=capacity,
    )


def objective_of(config: SiteConfig, planning: PlanningSettings, limits: Limits) -> Objective:
    """Return the objective of a site: at fairness `site` and `lane` sizes alone decide."""
    return Objective(
        decades=planning.priority_decades,
        scale=fair_range(config.priority_weights.get(name, 0) for name in _FAIR_WEIGHTS),
        patience_s=planning.patience_s,
        max_credit=planning.max_credit,
        is_weighed=is_weighed(limits),
    )


def fair_range(weights: Iterable[float]) -> float:
    """Return the points of priority between the least and the most fair share and age, from their weights."""
    return max(1.0, float(sum(weights)))


def owed(given_s: Floats, plain_s: Floats, jobs: Floats, limits: Limits) -> Floats:
    """Return by how much users have waited longer than without advice, over what is agreed, `(n_users,)`.

    `given_s` is the sum over a user's jobs of how much longer they waited, below 0 where they waited less; `plain_s` is
    the sum of their waits without advice so far, `jobs` their number. `limits` say what is agreed: a share of these
    waits, or a time for each job if that is more.
    """
    agreed_s = np.maximum(limits.agreed_delay_ratio * plain_s, limits.agreed_delay_s * jobs)
    return np.asarray(given_s / np.maximum(agreed_s, 1.0))


def owed_to(standings: Sequence[Standing], limits: Limits) -> Floats:
    """Return what users are owed for certain: by the least that they can have waited longer, `(n_users,)`."""
    rows = [(known.difference_s.low, known.plain_s.high, known.jobs) for known in standings]
    given_s, plain_s, jobs = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return owed(given_s, plain_s, jobs, limits)


def credit(owed_ratio: Floats, most: float) -> Floats:
    """Return how many times as much the jobs of users weigh for what they are owed, from 1 to `most`."""
    # Beyond some decades the power alone would overflow.
    return np.asarray(np.minimum(10.0 ** (REPAID_DECADES * np.clip(owed_ratio, 0.0, MOST_DECADES)), most))


def credits_of(standings: Standings, planning: PlanningSettings, limits: Limits) -> dict[str, float]:
    """Map the users whose jobs weigh more for what they are owed to how many times as much."""
    known = standings.by_user
    weights = credit(owed_to(list(known.values()), limits), planning.max_credit).tolist()
    return {user: weight for user, weight in zip(known, weights, strict=True) if weight > 1.0 and is_weighed(limits)}


def is_weighed(limits: Limits) -> bool:
    """Return whether users count: at fairness `site` and `lane` all jobs weigh the same."""
    return limits.fairness not in ("site", "lane")


def is_overdue(now: float, plain_start_time: Floats, wait_begin_time: Floats, limits: Limits) -> NDArray[np.bool_]:
    """Return which waiting jobs are later than the bound on lateness allows, `(n_jobs,)`.

    `plain_start_time` is when each would have started without advice, infinity where it has not yet or is not known.
    """
    known = np.isfinite(plain_start_time)
    late_s = now - np.where(known, plain_start_time, now)
    plain_wait_s = np.where(known, plain_start_time, wait_begin_time) - wait_begin_time
    return np.asarray(late_s > bound_s(plain_wait_s, limits))


def overdue_jobs(snapshot: Snapshot, standings: Standings, limits: Limits) -> frozenset[int]:
    """Return the pending jobs that are later than the bound on lateness allows."""
    jobs = [job for job_id in standings.plain_start_by_job if (job := snapshot.jobs_by_id.get(job_id)) is not None]
    pending, now = [job for job in jobs if job.is_pending], snapshot.taken_at
    late = is_overdue(
        now,
        np.array([standings.plain_start_by_job[job.job_id] for job in pending], dtype=np.float64),
        np.array([now - job.queueing_delay_s(now) for job in pending], dtype=np.float64),
        limits,
    )
    return frozenset(job.job_id for job, is_late in zip(pending, late.tolist(), strict=True) if is_late)


def bound_s(plain_wait_s: Floats, limits: Limits) -> Floats:
    """Return how much later than without advice jobs can start before they go first, from their waits without it."""
    return np.maximum(limits.max_lateness_s, limits.max_lateness_ratio * plain_wait_s)
