"""Proposes to lift the jobs that should start next above the jobs that stand before them.

The jobs of a pool are one line for all its GPUs. `objective` gives each job its key, and `lifts` chooses the jobs and
their new priorities; the simulated policy `lift` calls the same two on the arrays of the simulation. What a lift saves,
as `lift_gain` estimates it, is counted over all jobs whose order it changes, those that it delays included. A lift that
is expected to lose is not proposed, unless it makes up for a wait: that of a late job, or of a user who is owed one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Reason, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Ending
from advisor.domain.mark import marked_below
from advisor.domain.plan import UNPUBLISHED, Expected, Facts, Kind, Recommendation
from advisor.features.queue import ANY_TYPE, QueueTable, by_place
from advisor.planning.beliefs import Basis
from advisor.planning.case import Case
from advisor.planning.interactive import interactive_nice
from advisor.planning.lift_gain import Outlook
from advisor.planning.lifts import Bounds, Stakes, lifts
from advisor.planning.objective import Floats, Waiting, is_overdue, objective_of, owed_to, waiting_of
from advisor.settings import Limits

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsNext(Facts):
    """The expected GPU-time of a job and of the jobs that it passes, and what the lift costs each of those at most.

    `turnaround_s` is that from submission to end in the site's own order; `gpu_hours_ahead` and `gpu_hours_ahead_after`
    are those of the jobs before it that want its GPUs. `sooner_s_low` and `sooner_s_high` are by how much it starts
    sooner than on a cluster without advice, in four of five cases. `basis` is what its run time rests on.
    `passed` are the jobs passed.
    """

    reason = Reason.SHORT_WORK_FIRST

    gpu_hours: float
    jobs_passed: int
    gpu_hours_ahead: float
    gpu_hours_ahead_after: float
    others_delayed_s_max: float
    priority: int
    priority_after: int
    queueing_delay_s: float
    turnaround_s: float
    basis: Basis
    sooner_s_low: float
    sooner_s_high: float
    outlook: Outlook = field(metadata=UNPUBLISHED)
    used_limit_ratio_low: float = field(metadata=UNPUBLISHED)
    passed: tuple[int, ...] = field(default=(), metadata=UNPUBLISHED)


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose lifts, pool by pool, in the order in which Slurm considers the jobs now."""
    if not case.limits.lifts_pass_others:
        return
    queue = case.whole_queue
    done = (case.untouchable - case.permits.nice_only) | {change.job_id for change in so_far}
    advised_s = max((case.snapshot.taken_at - lease.applied_time for lease in case.memory.leases), default=0.0)
    for pool, rows in enumerate(map(queue.rows_of, range(len(queue.pool_gpus)))):
        known = rows[np.isfinite(queue.run.expected_s[rows])]
        capacity = float(queue.pool_capacity[pool].sum())
        if len(known) > 1 and capacity > 0.0:
            yield from _Line.of(case, queue, known, capacity, advised_s).lifts(case, done)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """The jobs of one pool whose run times are known, in their present order; all arrays `(n_jobs,)`."""

    queue: QueueTable
    rows: Rows
    waiting: Waiting
    turnaround_s: NDArray[np.float64]  # as submitted
    ours: NDArray[np.int64]  # the part of the nice that we added
    run_s: float  # the mean expected run time, each GPU counted once
    advised_s: float  # since the first change that is known

    @classmethod
    def of(cls, case: Case, queue: QueueTable, rows: Rows, capacity: float, advised_s: float) -> "_Line":
        jobs = [queue.jobs[row] for row in rows.tolist()]
        ours = np.array([case.nice_of_ours.get(job.job_id, 0) for job in jobs], dtype=np.int64)
        waiting = replace(
            waiting_of(queue, rows, ours, capacity), owed=_owed(case, jobs), is_overdue=late_jobs(case, jobs)
        )
        return cls(
            queue=queue,
            rows=rows,
            waiting=waiting,
            turnaround_s=waiting.turnaround_s(),
            ours=ours,
            run_s=float(waiting.work_gpu_s.sum() / queue.width[rows].sum()),
            advised_s=advised_s,
        )

    def stakes(self, case: Case) -> Stakes:
        """Return what each job counts if it is lifted, and in a lane what was lifted lately."""
        users = [self.queue.jobs[row].user for row in self.rows.tolist()]
        spent = self._spent(case) if case.limits.is_lane else None
        names, user = np.unique([*users, *(spent or ())], return_inverse=True)
        return Stakes(
            gpu_s=lifted_gpu_s(self.queue, case.limits)[self.rows],
            tasks=self.waiting.tasks,
            user=user[: len(users)],
            spent=None if spent is None else np.array([spent.get(name, 0.0) for name in names.tolist()]),
        )

    def _spent(self, case: Case) -> dict[str, float]:
        """Return the GPU-time that was lifted in this line within the window, by user."""
        since, pool = case.snapshot.taken_at - case.limits.fairness_window_s, self.queue.pool[self.rows[0]]
        spent: dict[str, float] = {}
        # Interactive jobs have a share of their own.
        interactive = interactive_nice(case.limits)
        for lease in case.memory.leases:
            asked = lease.request
            if (
                not lease.is_lift
                or lease.action.after == interactive
                or lease.applied_time <= since
                or lease.ending is Ending.NOT_APPLIED
                or asked is None
            ):
                continue
            # Of partitions that no job names any more: it could be this line.
            if self.queue.pool_by_partitions.get(asked.partitions, pool) == pool:
                spent[lease.user] = spent.get(lease.user, 0.0) + (asked.gpu_s or 0.0)
        return spent

    def lifts(self, case: Case, done: frozenset[int]) -> Iterator[Recommendation]:
        """Propose the lifts of this line."""
        objective = objective_of(case.snapshot.config, case.settings, case.limits)
        jobs, stakes = [self.queue.jobs[row] for row in self.rows.tolist()], self.stakes(case)
        chosen = lifts(
            objective.keys(self.waiting),
            self.queue.priority[self.rows].astype(np.float64),
            self.ours < 0,
            np.array([job.job_id not in done for job in jobs], dtype=np.bool_),
            stakes,
            bounds=Bounds.of(case.settings, case.limits, self.waiting.capacity),
            scale=objective.scale,
        )
        before, nice_after = self.queue.priority[self.rows], np.array([job.nice for job in jobs], dtype=np.int64)
        priority_after = before.copy()
        for place, priority in zip(chosen.row.tolist(), chosen.priority.astype(np.int64).tolist(), strict=True):
            nice = marked_below(jobs[place].nice - (priority - int(before[place])))
            if nice >= case.limits.nice_min:
                priority_after[place] += jobs[place].nice - nice
                nice_after[place] = nice
        ranked = _ranker(self.queue, self.rows)
        priority_after, rank_by_place = self._worth_rising(before, priority_after, ranked)
        rank_as_submitted = ranked(before + self.ours)
        rises = self._rises(rank_by_place, ranked(priority_after), rank_as_submitted)
        makes_up = self.waiting.is_overdue | (self.waiting.owed > 0.0)
        while losing := [rise.place for rise in rises if rise.loses and not makes_up[rise.place]]:
            priority_after[losing] = before[losing]
            rank_by_place = {place: rank for place, rank in rank_by_place.items() if place not in losing}
            rises = self._rises(rank_by_place, ranked(priority_after), rank_as_submitted)
        for rise in rises:
            yield self._lift(case, rise, int(nice_after[rise.place]), float(stakes.gpu_s[rise.place]))

    def _rises(self, rank_by_place: Mapping[int, Rows], rank_after: Rows, rank_as_submitted: Rows) -> list["_Rise"]:
        """Return the jobs that rise; `rank_by_place` is the order before each, `rank_after` that after all of them."""
        rises = []
        for place, rank in rank_by_place.items():
            ahead, ahead_after, ahead_as_submitted = (
                self._ahead(place, order) for order in (rank, rank_after, rank_as_submitted)
            )
            outlook = self._outlook(place, ahead, ahead_after, ahead_as_submitted)
            rises.append(_Rise(place=place, ahead=ahead, ahead_after=ahead_after, outlook=outlook))
        return rises

    def _worth_rising(
        self, before: NDArray[np.int64], raised: NDArray[np.int64], ranked: Callable[[NDArray[np.int64]], Rows]
    ) -> tuple[NDArray[np.int64], dict[int, Rows]]:
        """Return the priorities of those that rise and pass another job by that, and by place the order before it.

        An overdue job rises also to stay ahead of the others that rise: the order before it is that with these.
        """
        rank, rising = ranked(before), np.flatnonzero(raised > before)
        rank_raised = ranked(raised)
        rank_by_place = {place: rank for place in rising.tolist() if self._passes(place, rank, rank_raised)}
        after = before.copy()
        after[list(rank_by_place)] = raised[list(rank_by_place)]
        for place in rising.tolist():
            if place in rank_by_place or not self.waiting.is_overdue[place]:
                continue
            rank_without = ranked(after)
            after[place] = raised[place]
            if self._passes(place, rank_without, ranked(after)):
                rank_by_place[place] = rank_without
            else:
                after[place] = before[place]
        return after, dict(sorted(rank_by_place.items()))

    def _passes(self, place: int, rank: Rows, rank_after: Rows) -> bool:
        """Return whether a job passes another one from an order to the one after it."""
        return bool((self._ahead(place, rank) & ~self._ahead(place, rank_after)).any())

    def _ahead(self, place: int, rank: Rows) -> Flags:
        """Return the jobs before a job that can have some of the GPUs that it can have."""
        reach = self.queue.reach[self.rows]
        return np.asarray(self.queue.reaches_meet[reach[place], reach] & (rank < rank[place]))

    def _outlook(self, place: int, ahead: Flags, ahead_after: Flags, ahead_as_submitted: Flags) -> Outlook:
        row, work_gpu_s = int(self.rows[place]), self.waiting.work_gpu_s
        capacity = self._capacity(row)
        return Outlook(
            site_ahead_s=float(work_gpu_s[ahead_as_submitted].sum()) / capacity,
            ahead_s=float(work_gpu_s[ahead_after].sum()) / capacity,
            own_s=float(work_gpu_s[place]) / capacity,
            advised_s=min(float(self.queue.wait_s[row]), self.advised_s),
            run_s=self.run_s,
            jobs_passed=int(np.count_nonzero(ahead & ~ahead_after)),
        )

    def _lift(self, case: Case, rise: "_Rise", nice: int, gpu_s: float) -> Recommendation:
        place, ahead, ahead_after, outlook = rise.place, rise.ahead, rise.ahead_after, rise.outlook
        queue, row = self.queue, int(self.rows[place])
        job = queue.jobs[row]
        gpu_hours_ahead, gpu_hours_ahead_after = (
            float(self.waiting.work_gpu_s[places].sum()) / 3600 for places in (ahead, ahead & ahead_after)
        )
        sooner_s_low, sooner_s_high = outlook.sooner_s
        saved_s_low, saved_s_high = outlook.saved_s
        return Recommendation(
            kind=Kind.REORDER,
            action=SetNice(job_id=job.job_id, before=job.nice, after=nice),
            facts=StartsNext(
                gpu_hours=float(self.waiting.work_gpu_s[place]) / 3600,
                jobs_passed=outlook.jobs_passed,
                gpu_hours_ahead=gpu_hours_ahead,
                gpu_hours_ahead_after=gpu_hours_ahead_after,
                others_delayed_s_max=float(queue.width[row] * queue.run.high_s[row]) / self._capacity(row),
                priority=int(queue.priority[row]),
                priority_after=int(queue.priority[row]) + job.nice - nice,
                queueing_delay_s=float(queue.wait_s[row]),
                turnaround_s=float(self.turnaround_s[place]),
                basis=Basis.FORECAST if queue.run.by_model[row] else Basis.RULE,
                sooner_s_low=sooner_s_low,
                sooner_s_high=sooner_s_high,
                outlook=outlook,
                used_limit_ratio_low=case.settings.used_limit_ratio_low,
                passed=tuple(queue.jobs[passed].job_id for passed in self.rows[ahead & ~ahead_after].tolist()),
            ),
            expected=Expected(
                saved_s=outlook.saved_s_mean,
                saved_s_low=saved_s_low,
                saved_s_high=saved_s_high,
                jobs_helped=1,
                added_delay_max_s=0.0,
            ),
            revert_after_s=case.settings.lift_lease_s,
            gpu_s=gpu_s,
        )

    def _capacity(self, row: int) -> float:
        """Return the number of GPUs that the job of a row can run on."""
        totals, gpu_type = self.queue.pool_capacity[self.queue.pool[row]], int(self.queue.gpu_type[row])
        return float(totals.sum() if gpu_type == ANY_TYPE else totals[gpu_type])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rise:
    """A job that rises, by its place in the line, the jobs ahead of it before and after, and what that changes."""

    place: int
    ahead: Flags
    ahead_after: Flags
    outlook: Outlook

    @property
    def loses(self) -> bool:
        """Whether the jobs that it passes lose more than it gains, on average."""
        return self.outlook.saved_s_mean < 0.0


def _owed(case: Case, jobs: Sequence[Job]) -> Floats:
    """Return what the users of jobs are owed, by the waits with and without advice, `(n_jobs,)`."""
    standings = case.memory.standings.by_user
    owed_by_user = dict(zip(standings, owed_to(list(standings.values()), case.limits).tolist(), strict=True))
    return np.array([owed_by_user.get(job.user, 0.0) for job in jobs], dtype=np.float64)


def late_jobs(case: Case, jobs: Sequence[Job]) -> NDArray[np.bool_]:
    """Return which jobs are later than the bound on lateness allows, `(n_jobs,)`."""
    now, starts = case.snapshot.taken_at, case.memory.standings.plain_start_by_job
    if not starts:
        return np.zeros(len(jobs), dtype=np.bool_)
    plain_start_time = np.array([starts.get(job.job_id, np.inf) for job in jobs], dtype=np.float64)
    wait_begin_time = np.array([now - job.queueing_delay_s(now) for job in jobs], dtype=np.float64)
    return is_overdue(now, plain_start_time, wait_begin_time, case.limits)


def lifted_gpu_s(queue: QueueTable, limits: Limits) -> Floats:
    """Return the GPU-time that counts for each row once lifted, `(n_jobs,)`: at most, or in a lane as expected."""
    return queue.expected_gpu_s if limits.is_lane else queue.most_gpu_s


def ranks(queue: QueueTable, rows: Rows, priority: NDArray[np.int64]) -> Rows:
    """Return the place of each row in the order in which Slurm considers them with some priorities."""
    return _ranker(queue, rows)(priority)


def _ranker(queue: QueueTable, rows: Rows) -> Callable[[NDArray[np.int64]], Rows]:
    """Return a function that ranks these rows by given priorities."""
    jobs = [queue.jobs[row] for row in rows.tolist()]
    submit_time = np.array([job.submit_time for job in jobs], dtype=np.float64)
    job_id = np.array([job.job_id for job in jobs], dtype=np.int64)

    def ranked(priority: NDArray[np.int64]) -> Rows:
        places = np.empty(len(rows), dtype=np.intp)
        places[by_place(priority, submit_time, job_id)] = np.arange(len(rows))
        return places

    return ranked
