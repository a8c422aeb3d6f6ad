"""The models at work: from a snapshot to what is believed of its GPU jobs."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.job import Job, JobState
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.backlog import backlog_table
from advisor.features.queue import expected_limit_s
from advisor.predict.bundle import Bundle
from advisor.predict.interference import InterferenceForecaster, NeighbourTable
from advisor.predict.interference_items import Shared
from advisor.predict.intervals import Intervals
from advisor.predict.library import Held, Library, opened
from advisor.predict.placements import MOST_NEIGHBOURS, Candidate, Cluster
from advisor.predict.run_time import EndedJobs, RunTimeForecaster, RunTimeTable
from advisor.predict.start_time import StartTimeForecaster
from advisor.predict.throughput import PlacementTable, ThroughputForecaster

PREDICTORS: Mapping[str, Callable[[Bundle], Any]] = {
    "run_time": RunTimeForecaster.from_bundle,
    "throughput": ThroughputForecaster.from_bundle,
    "interference": InterferenceForecaster.from_bundle,
    "start_time": StartTimeForecaster.from_bundle,
}
_OUTSIDE = "lies outside of what the model was fitted on"


def checked(held: Held) -> None:
    """Open a model as the forecaster would; raises `ModelError` if it is not sound."""
    _predictor(opened(held))


def _predictor(bundle: Bundle) -> Any:
    if bundle.kind not in PREDICTORS:
        raise ModelError(f"model {bundle.kind} {bundle.version}: there is no predictor of this kind")
    return PREDICTORS[bundle.kind](bundle)


@dataclass(slots=True)
class _Told:
    """What is being put together for one job."""

    run_time: RunTime | None = None
    start_s: Interval | None = None
    speeds: dict[Placement, Interval] = field(default_factory=dict)
    beside: Interval | None = None
    unknown: list[str] = field(default_factory=list)

    def forecast(self) -> JobForecast:
        """Return it as it stands."""
        return JobForecast(
            run_time=self.run_time,
            start_s=self.start_s,
            speed_by_placement=self.speeds,
            inflation_beside=self.beside,
            unknown=tuple(self.unknown),
        )


class ModelForecaster:
    """Forecasts with the models in use; one that is missing, damaged or answers nonsense is left out with a note."""

    def __init__(self, library: Library) -> None:
        """Take the models of a library; they are opened when they are first needed."""
        self._library = library
        self._opened: dict[str, Any] | None = None
        self._versions: dict[str, str] = {}
        self._notes: dict[str, str] = {}

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast the GPU jobs of a snapshot that are pending or running."""
        models = self._models()
        told: defaultdict[int, _Told] = defaultdict(_Told)
        pending = [job for job in snapshot.jobs if job.is_pending and job.gang.wants_gpus]
        running = [job for job in snapshot.jobs if job.state is JobState.RUNNING and job.gang.wants_gpus]
        cluster = Cluster(snapshot)
        works: dict[str, Callable[[Any], None]] = {
            "run_time": lambda model: _tell_run_times(model, snapshot, [*pending, *running], told),
            "throughput": lambda model: _tell_speeds(model, cluster, pending, told),
            "interference": lambda model: _tell_neighbours(model, cluster, pending, told),
            "start_time": lambda model: _tell_starts(model, snapshot, told),
        }
        for kind, work in works.items():
            if kind not in models:
                continue
            try:
                work(models[kind])
            except ModelError as err:
                self._refuse(kind, err)
        return Forecasts(
            by_job={job_id: each.forecast() for job_id, each in told.items()},
            models=tuple(f"{kind} {self._versions[kind]}" for kind in self._models()),
            notes=tuple(self._notes.values()),
        )

    def add_ended(self, ended: EndedJobs) -> None:
        """Let the run-time model learn from jobs that ended."""
        model = self._models().get("run_time")
        if model is not None and len(ended):
            model.add_ended(ended)

    def _models(self) -> dict[str, Any]:
        if self._opened is None:
            self._opened = {}
            for kind in PREDICTORS:
                try:
                    bundle = self._library.load(kind)
                    self._opened[kind] = _predictor(bundle)
                    self._versions[kind] = bundle.version
                except ModelError as err:
                    self._notes[kind] = str(err)
        return self._opened

    def _refuse(self, kind: str, err: ModelError) -> None:
        """Do without a model from now on."""
        self._models().pop(kind, None)
        self._notes[kind] = str(err)


def run_time_table(jobs: Sequence[Job], snapshot: Snapshot) -> RunTimeTable:
    """Return jobs as the run-time model sees them; a running one is asked about from where it stands."""

    def numbers(values: Iterable[float | None]) -> np.ndarray:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    gangs = [job.gang for job in jobs]
    return RunTimeTable(
        user=tuple(job.user for job in jobs),
        account=tuple(job.account for job in jobs),
        name=tuple(job.name for job in jobs),
        partition=tuple(job.partitions[0] if job.partitions else "" for job in jobs),
        qos=tuple(job.qos for job in jobs),
        gpus=numbers(gang.gpu_count for gang in gangs),
        cpus=numbers(gang.cpus or None for gang in gangs),
        nodes=numbers(gang.nodes_min for gang in gangs),
        memory_mib=numbers(
            None if gang.memory_mib_per_node is None else gang.memory_mib_per_node * gang.nodes_min for gang in gangs
        ),
        limit_s=numbers(expected_limit_s(job, snapshot) for job in jobs),
        submit_time=numbers(job.submit_time for job in jobs),
        elapsed_s=numbers(
            0.0 if job.is_pending or job.start_time is None else max(0.0, snapshot.taken_at - job.start_time)
            for job in jobs
        ),
    )


def _tell_run_times(
    model: RunTimeForecaster, snapshot: Snapshot, jobs: list[Job], told: defaultdict[int, _Told]
) -> None:
    found = model.forecast(run_time_table(jobs, snapshot))
    intervals = _listed(found.intervals())
    for job, interval, mean_s in zip(jobs, intervals, found.mean_s.tolist(), strict=True):
        if interval is None:
            told[job.job_id].unknown.append(f"run time: its request {_OUTSIDE}")
        else:
            told[job.job_id].run_time = RunTime(interval_s=interval, mean_s=mean_s)


def _tell_starts(model: StartTimeForecaster, snapshot: Snapshot, told: defaultdict[int, _Told]) -> None:
    table = backlog_table(snapshot)
    for job_id, interval in zip(table.job_id.tolist(), _listed(model.forecast(table)), strict=True):
        if interval is None:
            told[job_id].unknown.append(f"start time: the state of this queue {_OUTSIDE}")
        else:
            told[job_id].start_s = interval


def _tell_speeds(model: ThroughputForecaster, cluster: Cluster, jobs: list[Job], told: defaultdict[int, _Told]) -> None:
    rows = [(job, candidate) for job in jobs for candidate in cluster.candidates(job)]
    if not rows:
        return
    bases: dict[int, Candidate] = {}
    for job, candidate in rows:
        bases.setdefault(job.job_id, candidate)
    profile = model.codes([job.hints.model for job, _ in rows])
    # A job that changes its size keeps its batch as a whole (DL2), which fills its GPUs as it is asked for.
    batch = model.largest_batches(profile)
    asked_gpus = np.array([bases[job.job_id].placement.gpus for job, _ in rows], dtype=np.float64)
    tables = []
    for candidates in ([each for _, each in rows], [bases[job.job_id] for job, _ in rows]):
        gpus = np.array([each.placement.gpus for each in candidates], dtype=np.float64)
        tables.append(
            PlacementTable(
                profile=profile,
                gpu_type=model.type_codes([job.gang.gpu_type for job, _ in rows]),
                gpus=gpus,
                nodes=np.array([each.nodes for each in candidates], dtype=np.float64),
                tier=np.array([each.placement.tier for each in candidates], dtype=np.int64),
                local_batch=batch * asked_gpus / gpus,
                link_gbps=np.full(len(rows), np.nan),
            )
        )
    outside = set()
    for (job, candidate), interval in zip(rows, _listed(model.relative(*tables)), strict=True):
        if interval is not None:
            told[job.job_id].speeds[candidate.placement] = interval
        elif job.job_id not in outside:
            outside.add(job.job_id)
            told[job.job_id].unknown.append(f"speed: a size or placement of it {_OUTSIDE}")


def _tell_neighbours(
    model: InterferenceForecaster, cluster: Cluster, jobs: list[Job], told: defaultdict[int, _Told]
) -> None:
    rows = [(job, near) for job in jobs if (job.gang.gpu_count or 0) > 1 and (near := cluster.neighbours(job))]
    if not rows:
        return

    def padded(values: Callable[[Job], float], nobody: float) -> np.ndarray:
        return np.array(
            [[*(values(each) for each in near), *[nobody] * (MOST_NEIGHBOURS - len(near))] for _, near in rows]
        )

    others = sorted({each.hints.model or "" for _, near in rows for each in near})
    code_of = dict(zip(others, model.codes(others).tolist(), strict=True))
    found = model.inflations(
        NeighbourTable(
            mine=model.codes([job.hints.model or "" for job, _ in rows]),
            gpus=np.array([job.gang.gpu_count or 1 for job, _ in rows], dtype=np.float64),
            nodes=np.full(len(rows), 2.0),
            batch=np.full(len(rows), np.nan),
            other=padded(lambda each: code_of[each.hints.model or ""], -2).astype(np.intp),
            other_gpus=padded(lambda each: float(each.gang.gpu_count or 2), np.nan),
            other_nodes=padded(lambda each: float(len(each.allocation.nodes) if each.allocation else 2), np.nan),
            shared=np.full(len(rows), int(Shared.NODE)),
        )
    )
    for (job, _), interval in zip(rows, _listed(found), strict=True):
        if interval is None:
            told[job.job_id].unknown.append(f"neighbours: its model, or one of theirs, {_OUTSIDE}")
        else:
            told[job.job_id].beside = interval


def _listed(found: Intervals) -> list[Interval | None]:
    """Return the intervals one by one, None where they are not to be relied on."""
    columns = (found.low.tolist(), found.median.tolist(), found.high.tolist(), found.known.tolist())
    return [
        Interval(low=min(low, median), median=median, high=max(high, median)) if known else None
        for low, median, high, known in zip(*columns, strict=True)
    ]
