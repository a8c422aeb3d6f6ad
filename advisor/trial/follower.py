"""Follows every GPU job from snapshot to snapshot, and returns the outcomes that are new or have changed."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from advisor.apply.step import Step
from advisor.cycle import NoForecaster, StartForecaster
from advisor.domain.experiment import NO_EXPERIMENT, ExperimentSettings
from advisor.domain.forecast import Forecasts, Interval
from advisor.domain.job import Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.outcome import JobOutcome, SeenChange, SeenForecast
from advisor.domain.plan import Outcome, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import node_table
from advisor.features.queue import gpus_taken_by

_STARTED = frozenset({JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETING})
# Changes in these states are not known to have taken effect.
_TOOK_EFFECT = frozenset({LeaseState.OUT, LeaseState.RETURNING, LeaseState.HANDS_OFF})


NO_FORECASTER = NoForecaster()


class _Mark(NamedTuple):
    """What an outcome depends on in a job's record; while it stays the same, so does the outcome."""

    state: JobState
    submit_time: float
    eligible_time: float | None
    start_time: float | None
    end_time: float | None


class Follower:
    """The GPU jobs that have not ended.

    Nothing is assumed about what was not observed: a job that left the queue between two snapshots ended between them,
    and `JobOutcome.end_is_known` is whether they are close enough together.
    """

    def __init__(
        self,
        open_outcomes: Iterable[JobOutcome] = (),
        *,
        experiment: ExperimentSettings = NO_EXPERIMENT,
        seen_at: float | None = None,
    ) -> None:
        """Continue with the open outcomes of an earlier follower; `seen_at` is its last snapshot, None if unknown."""
        self._open = {outcome.job_id: outcome for outcome in open_outcomes}
        self._marks: dict[int, _Mark] = {}
        # The records from which the marks were made, so that few of them are made again.
        self._facts: dict[int, tuple[object, ...]] = {}
        self._no_gpus: set[int] = set()
        self._seen_at = seen_at
        self._clock_went_back = False
        self.experiment = experiment

    @property
    def open_outcomes(self) -> tuple[JobOutcome, ...]:
        """The jobs that have not ended, by job id."""
        return tuple(self._open[job_id] for job_id in sorted(self._open))

    def follow_step(self, step: Step, forecaster: StartForecaster = NO_FORECASTER) -> tuple[JobOutcome, ...]:
        """Follow the jobs through one step of the daemon.

        `forecaster` forecasts the starts of the jobs whose forecast is kept: the new ones and those that were changed.
        """
        taken = {receipt.action for receipt in step.applied if receipt.outcome is Outcome.APPLIED}
        record = step.record
        applied = [change for change in record.recommendations if change.action in taken]
        unseen = record.snapshot.jobs_by_id.keys() - self._open.keys() - self._no_gpus
        kept = unseen | {change.job_id for change in applied}
        forecasts = forecaster.with_starts(record.forecasts, record.snapshot, kept)
        return self.follow(record.snapshot, forecasts, applied=applied, leases=record.memory.leases)

    def follow(
        self,
        snapshot: Snapshot,
        forecasts: Forecasts,
        *,
        applied: Sequence[Recommendation] = (),
        leases: Iterable[Lease] = (),
    ) -> tuple[JobOutcome, ...]:
        """Return the outcomes that are new or have changed, by job id and submission.

        `applied` took effect right after the snapshot; `leases` are the open ones and those that ended lately.
        """
        now = snapshot.taken_at
        before = dict(self._open)
        over: list[JobOutcome] = []
        for job in snapshot.jobs:
            facts = _facts(job)
            if self._facts.get(job.job_id) != facts:
                over += self._look_at(job, facts, now, forecasts)
        self._count_gpus(snapshot, before)
        for lease in leases:
            self._record_lease(lease)
        for change in applied:
            self._add(change, now, forecasts)
        over += self._gone(snapshot)
        self._no_gpus &= snapshot.jobs_by_id.keys()
        changed = [outcome for job_id, outcome in self._open.items() if before.get(job_id) is not outcome]
        return tuple(sorted((*over, *changed), key=lambda outcome: (outcome.job_id, outcome.submit_time)))

    def _look_at(self, job: Job, facts: tuple[object, ...], now: float, forecasts: Forecasts) -> Iterator[JobOutcome]:
        """Update the outcome of one record; yield the outcome of an earlier job with the same id."""
        job_id = job.job_id
        # Tasks that wait inside an array are not jobs yet; the last of them that starts gets their record's id.
        if job_id in self._no_gpus or (job.array is not None and job.array.task_id is None):
            return
        mark = _mark(job)
        if self._marks.get(job_id) == mark:
            self._facts[job_id] = facts
            return
        known = self._open.get(job_id)
        if known is not None and known.user != job.user:
            # Slurm's ids wrapped around between the snapshots.
            yield _ended(known, now, last_seen_time=None)
            del self._open[job_id]
            known = None
        if known is None and not _asks_for_gpus(job):
            if job.gang.gpus_known:
                self._no_gpus.add(job_id)
            return
        self._marks[job_id], self._facts[job_id] = mark, facts
        fresh = self._first_seen(job, now, forecasts) if known is None else known
        seen = _seen(fresh, job)
        if seen != known:
            self._open[job_id] = seen

    def _count_gpus(self, snapshot: Snapshot, before: Mapping[int, JobOutcome]) -> None:
        """Count the GPUs that the jobs seen for the first time keep from others: at least those that they ask for."""
        known = snapshot.jobs_by_id
        jobs = [known[job_id] for job_id in self._open if before.get(job_id) is None and job_id in known]
        if jobs:
            for job, taken in zip(jobs, gpus_taken_by(jobs, snapshot, node_table(snapshot)).tolist(), strict=True):
                outcome = self._open[job.job_id]
                self._open[job.job_id] = replace(outcome, gpus=max(outcome.gpus, math.ceil(taken)))

    def _first_seen(self, job: Job, now: float, forecasts: Forecasts) -> JobOutcome:
        arm = self.experiment.arm_at(job.submit_time, job.partitions)
        return JobOutcome(
            job_id=job.job_id,
            submit_time=job.submit_time,
            user=job.user,
            account=job.account,
            partition=",".join(job.partitions),
            gpus=_gpus(job),
            wants_mail=job.hints.wants_mail,
            time_limit_s=job.time_limit_s,
            eligible_time=job.eligible_time,
            arm=arm,
            experiment=self.experiment.digest if arm else "",
            first_forecast=_forecast(job.job_id, now, forecasts),
        )

    def _record_lease(self, lease: Lease) -> None:
        """Note what the journal says of one change."""
        outcome = self._open.get(lease.job_id)
        if outcome is None or lease.ending is Ending.NOT_APPLIED or lease.applied_time < outcome.submit_time:
            return
        if lease.state not in _TOOK_EFFECT:
            return
        position = _change_of(outcome, lease)
        if position is None:
            # It was applied by a person, or by an earlier daemon that was killed before it recorded the change.
            change = SeenChange(lever=lease.lever, applied_time=lease.applied_time, added_delay_s=lease.added_delay_s)
            self._open[lease.job_id] = outcome = replace(outcome, changes=(*outcome.changes, change))
            position = len(outcome.changes) - 1
        known = outcome.changes[position]
        change = replace(known, ending=lease.ending, ended_time=lease.ended_time, overruled_time=lease.overruled_time)
        if change != known:
            changes = (*outcome.changes[:position], change, *outcome.changes[position + 1 :])
            self._open[lease.job_id] = replace(outcome, changes=changes)

    def _add(self, change: Recommendation, now: float, forecasts: Forecasts) -> None:
        """Note a change that took effect."""
        outcome = self._open.get(change.job_id)
        if outcome is None:
            return
        made = SeenChange(
            lever=change.action.lever,
            applied_time=now,
            reason=str(change.reason),
            saved_s_low=change.expected.saved_s_low,
            saved_s_high=change.expected.saved_s_high,
            added_delay_s=change.expected.added_delay_max_s,
        )
        self._open[change.job_id] = replace(
            outcome,
            changes=(*outcome.changes, made),
            changed_forecast=outcome.changed_forecast or _forecast(change.job_id, now, forecasts),
        )

    def _gone(self, snapshot: Snapshot) -> list[JobOutcome]:
        """Remove the jobs that have left the queue, and return their outcomes."""
        now, before = snapshot.taken_at, self._seen_at
        self._seen_at = now
        if before is not None and now < before:
            # An old snapshot shows fewer jobs; after the clock was set back, the next snapshot decides.
            self._clock_went_back = True
            return []
        if self._clock_went_back:
            before, self._clock_went_back = None, False
        over: list[JobOutcome] = []
        for job_id in sorted(self._open.keys() - snapshot.jobs_by_id.keys()):
            mark = self._marks.pop(job_id, None)
            self._facts.pop(job_id, None)
            exact = None if mark is None else mark.end_time
            outcome = self._open.pop(job_id)
            over.append(_ended(outcome, now, before) if exact is None else _ended(outcome, exact, exact))
        return over


# The fields of a mark.
_facts: Callable[[Job], tuple[object, ...]] = attrgetter(*_Mark._fields)


def _mark(job: Job) -> _Mark:
    """Return the parts of a record that an outcome depends on, without the start and end that Slurm expects."""
    return _Mark(
        job.state,
        job.submit_time,
        job.eligible_time,
        job.start_time if job.state in _STARTED else None,
        job.end_time if job.state is JobState.COMPLETING else None,
    )


def _gpus(job: Job) -> int:
    """Return the GPU count of a job, from its request or else its allocation; 0 if neither determines it."""
    held = () if job.allocation is None else job.allocation.gpus
    return job.gang.gpu_count or sum(gpu.count for gpu in held)


def _asks_for_gpus(job: Job) -> bool:
    return job.gang.scope is not None or _gpus(job) > 0


def _seen(outcome: JobOutcome, job: Job) -> JobOutcome:
    """Return an outcome updated from a record of its job; a requeue keeps the first submission, wait and start."""
    if job.is_pending:
        if outcome.last_start_time is not None:
            return replace(outcome, last_start_time=None, requeues=outcome.requeues + 1)
        if outcome.requeues == 0 and outcome.eligible_time != job.eligible_time:
            return replace(outcome, eligible_time=job.eligible_time)
    elif job.state in _STARTED and job.start_time is not None and outcome.last_start_time != job.start_time:
        first = outcome.start_time is None
        return replace(
            outcome,
            eligible_time=job.eligible_time if first else outcome.eligible_time,
            start_time=job.start_time if first else outcome.start_time,
            last_start_time=job.start_time,
            requeues=outcome.requeues + (outcome.last_start_time is not None),
            nodes=() if job.allocation is None else job.allocation.nodes,
        )
    return outcome


def _ended(outcome: JobOutcome, end_time: float, last_seen_time: float | None) -> JobOutcome:
    """Return the outcome of a job that left the queue; its end is never before its start."""
    latest = max(end_time, outcome.last_start_time or outcome.submit_time)
    return replace(outcome, end_time=latest, last_seen_time=last_seen_time)


def _change_of(outcome: JobOutcome, lease: Lease) -> int | None:
    """Return the position of the change of a lease; None if it is not in the outcome yet.

    A renewal that took no effect leaves the earlier change outstanding, with the time of the later one.
    """
    of_lever = [position for position, change in enumerate(outcome.changes) if change.lever is lease.lever]
    for position in of_lever:
        if outcome.changes[position].applied_time == lease.applied_time:
            return position
    still_out = [position for position in of_lever if outcome.changes[position].ending is None]
    earlier = [position for position in still_out if outcome.changes[position].applied_time < lease.applied_time]
    return earlier[-1] if earlier else None


def _forecast(job_id: int, now: float, forecasts: Forecasts) -> SeenForecast | None:
    """Return the present forecast of a job; None if there is none."""
    forecast = forecasts.of(job_id)
    if forecast.start_s is None and forecast.run_time is None:
        return None
    start = forecast.start_s
    return SeenForecast(
        made_time=now,
        start_time=None
        if start is None
        else Interval(low=now + start.low, median=now + start.median, high=now + start.high),
        run_time_s=None if forecast.run_time is None else forecast.run_time.interval_s,
        run_mean_s=None if forecast.run_time is None else forecast.run_time.mean_s,
        models=forecasts.models,
    )
