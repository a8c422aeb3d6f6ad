"""Reads from a journal how fast ended jobs ran compared with their forecasts, on what they ran, and beside what.

A run time identifies little. The journal holds no steps per second, and the forecast of a run time has an error that is
the same for all jobs of one family, those of one user and one model or job name. So what a family shows is how its
jobs differ from one another: on two GPU types, on two kinds of place, with neighbours and without, up to a constant of
the family. A family whose jobs all ran on one kind of place shows nothing but that constant, and is left out. What
makes one model faster than another, or all of a site faster than another site, cannot be learnt from it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from advisor.domain.actions import Lever
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement
from advisor.domain.job import Job, JobState
from advisor.domain.outcome import LONGEST_GAP_S, JobOutcome
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.errors import JournalError
from advisor.features.observe.graph import Rows
from advisor.fit.performance_fit import Samples
from advisor.journal import SqliteJournal
from advisor.journal.cycle_record import Recorded
from advisor.planning.beliefs import Beliefs
from advisor.predict.interference_items import name_key
from advisor.trial.evidence import contradiction

# The newest ended jobs, and the newest recorded cycles, that are read: about two weeks of a cycle a minute.
MOST_OUTCOMES: Final = 50_000
MOST_CYCLES: Final = 20_000
# The width of an 80 % interval of a normal distribution, in standard deviations, and the least noise of a run time.
_WIDTH_80: Final = 2.563
LEAST_NOISE: Final = 0.1
# A job that ran for a twentieth of its forecast failed or had another task, and so did one that ran for 20 times.
_MOST_LOG_SPEED: Final = 3.0
_SHORTEST_RUN_S: Final = 60.0
# Neighbours are known if the job was seen for this share of its run.
_SEEN_SHARE: Final = 0.5
# From this average number on a job counts as beside others.
_IS_BESIDE: Final = 0.25
_LONGEST_NAME: Final = 64

_Key = tuple[int, float]
# The models of the neighbours on each node of a job.
_Beside = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """One ended job; `model` is the key of the declared name, "" without one, `others` averages neighbours by model.

    `log_speed` is the logarithm of the forecast run time over that observed, `noise` the standard deviation of that;
    `place` the logarithm of the assumed inflation of its place over that of its best.
    """

    user: str
    account: str
    model: str
    family: str
    gpu_type: str
    place: float
    others: Mapping[str, float]
    log_speed: float
    noise: float
    end_time: float

    @property
    def kind_of_place(self) -> tuple[str, float, bool]:
        """What a family has to vary in for its jobs to be compared."""
        return self.gpu_type, round(self.place, 2), sum(self.others.values()) > _IS_BESIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalJobs:
    """The ended jobs of a journal in order of their ends, and by reason how many outcomes were left out."""

    jobs: tuple[EndedJob, ...]
    outcomes: int
    cycles: int
    hides_jobs: bool
    left_out: Mapping[str, int]


def read_ended_jobs(journal: SqliteJournal, *, progress: Callable[[int, int], None] = lambda *_: None) -> JournalJobs:
    """Return the ended jobs of a journal that run times can be learnt from.

    `progress` is called with the number of cycles read, and of all. Raises `JournalError` if another program has
    changed the journal.
    """
    checked = journal.verify()
    if not checked.is_intact:
        tables = ", ".join(checked.tables) or f"the audit from row {checked.broken} on"
        raise JournalError(f"{journal.path}: another program has changed {tables}: not learnt from")
    outcomes = journal.outcomes(0.0, most=MOST_OUTCOMES)
    left_out = Counter[str]()
    usable: dict[_Key, tuple[JobOutcome, float, float]] = {}
    for outcome in outcomes:
        fault = fault_of_outcome(outcome)
        if fault is None:
            usable[outcome.job_id, outcome.submit_time] = (outcome, *_log_speed(outcome))
        else:
            left_out[fault] += 1
    watch = _Watch(usable.keys())
    ids = journal.recorded_ids(MOST_CYCLES)
    cycles, hides_jobs = 0, True
    for cycles, recorded in enumerate(journal.recorded_cycles(ids), start=1):
        watch.see(recorded)
        hides_jobs = recorded.snapshot.config.hides_jobs
        progress(cycles, len(ids))
    jobs = []
    for key, (outcome, log_speed, noise) in usable.items():
        job = watch.ended(key, outcome, log_speed, noise)
        if isinstance(job, EndedJob):
            jobs.append(job)
        else:
            left_out[job] += 1
    jobs.sort(key=lambda job: job.end_time)
    return JournalJobs(
        jobs=tuple(jobs), outcomes=len(outcomes), cycles=cycles, hides_jobs=hides_jobs, left_out=dict(left_out)
    )


def fault_of_outcome(outcome: JobOutcome) -> str | None:
    """Return why the run time of a job cannot be compared with its forecast; None if it can."""
    contradicting = contradiction(outcome)
    if contradicting is not None:
        return contradicting
    run_time_s, forecast = outcome.run_time_s, outcome.first_forecast
    if outcome.start_time is None or run_time_s is None:
        return "has no known start or end"
    if forecast is None or forecast.run_time_s is None:
        return "has no forecast"
    log_speed, noise = _log_speed(outcome)
    faults = {
        "was requeued": outcome.requeues > 0,
        "was changed in size": any(change.lever is Lever.GPU_COUNT for change in outcome.changes),
        "was forecast after its start": forecast.made_time > outcome.start_time,
        "ran for less than a minute": run_time_s < _SHORTEST_RUN_S,
        "ran to its limit": outcome.time_limit_s is not None and run_time_s >= outcome.time_limit_s,
        "has a forecast that is not finite": not (math.isfinite(log_speed) and math.isfinite(noise)),
        "is 20 times off its forecast": abs(log_speed) > _MOST_LOG_SPEED,
    }
    return next((fault for fault, holds in faults.items() if holds), None)


def _log_speed(outcome: JobOutcome) -> tuple[float, float]:
    """Return the logarithm of forecast over observed run time, and its standard deviation."""
    forecast = outcome.first_forecast.run_time_s if outcome.first_forecast else None
    interval = forecast or Interval(low=1.0, median=1.0, high=1.0)
    low, median, high = (max(value, 1.0) for value in (interval.low, interval.median, interval.high))
    run_time_s = max(outcome.run_time_s or 0.0, 1.0)
    return math.log(median / run_time_s), max(LEAST_NOISE, math.log(high / low) / _WIDTH_80)


@dataclass(slots=True)
class _Stay:
    """The run of one job as the recorded cycles show it; `beside_s` sums times with neighbours, by node and model."""

    job: Job
    gpu_type: str | None
    place: float
    seen_s: float = 0.0
    beside_s: dict[str, Counter[str]] = field(default_factory=dict)


class _Watch:
    """Follows jobs through recorded cycles, oldest first."""

    def __init__(self, wanted: Iterable[_Key]) -> None:
        self._wanted = frozenset(wanted)
        self._stays: dict[_Key, _Stay] = {}
        self._speeds: dict[_Key, Mapping[Placement, Interval]] = {}
        self._seen_time = -math.inf
        self._present: dict[_Key, _Beside] = {}
        self._spanning: tuple[_Key, ...] = ()

    def see(self, recorded: Recorded) -> None:
        """Take in one cycle."""
        snapshot = recorded.snapshot
        self._count_until(snapshot.taken_at)
        running = [job for job in snapshot.jobs if job.state is JobState.RUNNING and job.allocation is not None]
        for job in snapshot.jobs:
            key = _key(job)
            if job.is_pending and key in self._wanted and job.job_id in recorded.forecasts.by_job:
                self._speeds[key] = recorded.forecasts.by_job[job.job_id].speed_by_placement
        begun = [job for job in running if _key(job) in self._wanted and _key(job) not in self._stays]
        for job in begun:
            self._stays[_key(job)] = self._begun(job, recorded)
        spanning = [job for job in running if len(_nodes(job)) > 1]
        keys = tuple(map(_key, spanning))
        if keys != self._spanning:
            self._spanning, self._present = keys, self._beside(spanning)

    def _count_until(self, time: float) -> None:
        """Count the time since the last cycle, in which neighbours are taken to have stayed, at most half an hour."""
        passed_s = min(time - self._seen_time, LONGEST_GAP_S)
        if passed_s > 0.0:
            for key, beside in self._present.items():
                stay = self._stays[key]
                stay.seen_s += passed_s
                for node, models in beside.items():
                    counts = stay.beside_s.setdefault(node, Counter())
                    for model in models:
                        counts[model] += passed_s  # type: ignore[assignment]  # seconds, added up as counts are
        self._seen_time = time

    def _begun(self, job: Job, recorded: Recorded) -> _Stay:
        gpu_type = type_of(job, recorded.snapshot)
        if gpu_type is None:
            return _Stay(job=job, gpu_type=None, place=0.0)
        forecast = JobForecast(speed_by_placement=self._speeds.get(_key(job), {}))
        beliefs = Beliefs(forecasts=Forecasts(by_job={job.job_id: forecast}), settings=recorded.planning)
        return _Stay(job=job, gpu_type=gpu_type, place=place_of(job, recorded.snapshot, beliefs, gpu_type))

    def _beside(self, spanning: Sequence[Job]) -> dict[_Key, _Beside]:
        """Return the neighbours of each job that is followed, node by node: jobs that span nodes, as it does."""
        there: dict[str, list[tuple[int, str]]] = {}
        for job in spanning:
            for node in _nodes(job):
                there.setdefault(node, []).append((job.job_id, _model(job)))
        return {
            _key(job): {
                node: tuple(model for job_id, model in there[node] if job_id != job.job_id) for node in _nodes(job)
            }
            for job in spanning
            if _key(job) in self._wanted
        }

    def ended(self, key: _Key, outcome: JobOutcome, log_speed: float, noise: float) -> EndedJob | str:
        """Return an ended job, or why the recorded cycles do not show enough of it."""
        stay, run_time_s = self._stays.get(key), outcome.run_time_s or 0.0
        if stay is None:
            return "was not running in a recorded cycle"
        if stay.gpu_type is None:
            return "ran on several GPU types, or on none that is known"
        others: dict[str, float] = {}
        if len(_nodes(stay.job)) > 1:
            if stay.seen_s < _SEEN_SHARE * run_time_s:
                return "was seen for less than half of its run"
            # The node with most neighbours is the slowest, and the others wait for it.
            most = max(
                stay.beside_s.items(), key=lambda item: (sum(item[1].values()), item[0]), default=("", Counter())
            )
            others = {model: seconds / stay.seen_s for model, seconds in most[1].items()}
        model = _model(stay.job)
        return EndedJob(
            user=outcome.user,
            account=outcome.account,
            model=model,
            family=f"{outcome.user}\n{model or stay.job.name}",
            gpu_type=stay.gpu_type,
            place=stay.place,
            others=others,
            log_speed=log_speed,
            noise=noise,
            end_time=outcome.end_time or 0.0,
        )


def _key(job: Job) -> _Key:
    return job.job_id, job.submit_time


def _nodes(job: Job) -> tuple[str, ...]:
    return job.allocation.nodes if job.allocation is not None else ()


def _model(job: Job) -> str:
    return name_key(job.hints.model)[:_LONGEST_NAME]


def type_of(job: Job, snapshot: Snapshot) -> str | None:
    """Return the one GPU type that a job runs on, in lower case, "" where Slurm names none; None for several types."""
    held = {gpus.gpu_type for gpus in job.allocation.gpus} if job.allocation is not None else set()
    nodes = frozenset(_nodes(job))
    shown = {pool.gpu_type for node in snapshot.nodes if node.name in nodes for pool in node.gpus if pool.total}
    types = held - {None} or shown
    return (types.pop() or "").lower() if len(types) == 1 else None


def place_of(job: Job, snapshot: Snapshot, beliefs: Beliefs, gpu_type: str) -> float:
    """Return the logarithm of the assumed inflation of a job on its nodes, over that on its best place; 0 there."""
    tier, nodes = snapshot.topology.tier_of(_nodes(job)), len(_nodes(job))
    closest, fewest = closest_place(job, snapshot, gpu_type)
    best = min(tier, closest)
    if tier > best or nodes <= fewest:
        there = beliefs.inflation(job, tier, best).median
    else:
        there = beliefs.inflation_on_more_nodes(job, tier).median
    return max(0.0, math.log(there / beliefs.inflation(job, best, best).median))


def closest_place(job: Job, snapshot: Snapshot, gpu_type: str) -> tuple[LocalityTier, int]:
    """Return the closest tier of a cluster that can hold a job on a GPU type, and how many nodes it needs there."""
    sizes = {
        node.name: sum(pool.total for pool in node.gpus if (pool.gpu_type or "").lower() == gpu_type)
        for node in snapshot.nodes
    }
    allocation = job.allocation
    held = sum(gpus.count for gpus in allocation.gpus) if allocation is not None else 0
    gpus = held or job.gang.gpu_count or 1
    fewest = max(job.gang.nodes_min, -(-gpus // max(1, *sizes.values(), 1)))
    if fewest == 1:
        return LocalityTier.NODE, 1
    for switch in snapshot.topology.switches:
        there = [size for node in switch.nodes if (size := sizes.get(node, 0))]
        if len(there) >= fewest and sum(there) >= gpus:
            return LocalityTier.LEAF if switch.level == 0 else LocalityTier.SPINE, fewest
    return LocalityTier.CLUSTER, fewest


def comparable(jobs: Sequence[EndedJob]) -> list[EndedJob]:
    """Return the jobs of families that were seen on two kinds of place or more."""
    kinds: dict[str, set[tuple[str, float, bool]]] = {}
    for job in jobs:
        kinds.setdefault(job.family, set()).add(job.kind_of_place)
    return [job for job in jobs if len(kinds[job.family]) > 1]


def samples_of(jobs: Sequence[EndedJob], models: Sequence[str], gpu_types: Sequence[str]) -> Samples:
    """Return jobs as samples, coded for tables of these models and GPU types; families are numbered as they come."""
    rows = {name_key(name): row for row, name in enumerate(models)}
    columns = {name: column for column, name in enumerate(gpu_types)}
    families = {family: number for number, family in enumerate(dict.fromkeys(job.family for job in jobs))}
    others = np.zeros((len(jobs), len(models) + 1))
    for place, job in enumerate(jobs):
        for model, count in job.others.items():
            others[place, rows.get(model, len(models))] += count

    def codes(values: Iterable[int]) -> Rows:
        return np.fromiter(values, np.intp, len(jobs))

    return Samples(
        model=codes(rows.get(job.model, len(models)) for job in jobs),
        gpu_type=codes(columns.get(job.gpu_type, len(gpu_types)) for job in jobs),
        place=np.array([job.place for job in jobs]),
        others=others,
        log_speed=np.array([job.log_speed for job in jobs]),
        noise=np.array([job.noise for job in jobs]),
        family=codes(families[job.family] for job in jobs),
    )


def with_noise(samples: Samples, share: float, misfit: float) -> Samples:
    """Return samples whose noise, with the misfit of the model, is a share of that of their forecasts."""
    variance = share**2 * (samples.noise**2 + misfit**2) - misfit**2
    return replace(samples, noise=np.sqrt(np.maximum(LEAST_NOISE**2, variance)))
