"""Forecasts the GPU jobs of a snapshot with every model in use, and states what the forecasts of a job rest on."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final, TypeVar

import numpy as np

from advisor.domain.forecast import MOST_RATIO, ForecastBasis, Forecasts, Interval, JobForecast, RunTime
from advisor.domain.job import LATEST_TIME, Job
from advisor.domain.probation import Proof
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.backlog import backlog_table
from advisor.predict import start_time, throughput
from advisor.predict.interference import InterferenceForecaster, NeighbourTable
from advisor.predict.interference_items import Shared
from advisor.predict.intervals import listed
from advisor.predict.library import PERFORMANCE, Held, Library, opened, verify
from advisor.predict.memo import Memo
from advisor.predict.onnx_model import Bundle
from advisor.predict.queue_run_times import EndedSeen, QueueRunTimes, run_time_table
from advisor.predict.queue_speeds import MOST_NEIGHBOURS, PlacementIndex, QueueSpeeds, Speeds
from advisor.predict.run_time import WIDE_FACTOR, EndedJobs, RunTimeForecaster, is_wide
from advisor.predict.start_time import StartTimeForecaster
from advisor.predict.throughput import ThroughputForecaster
from advisor.predict.throughput_site import Evidence, no_points

PREDICTORS: Mapping[str, Callable[[Bundle], Any]] = {
    "run_time": RunTimeForecaster.from_bundle,
    "throughput": ThroughputForecaster.from_bundle,
    "interference": InterferenceForecaster.from_bundle,
    "start_time": StartTimeForecaster.from_bundle,
}
# What asks a predictor about a queue, round after round.
QUEUES: Mapping[str, Callable[[Any], Any]] = {"run_time": QueueRunTimes, "throughput": QueueSpeeds}

Answer = TypeVar("Answer")

# The fewest jobs of this site, kept aside from a fit, that prove its model.
LEAST_TESTED = 100

_OUTSIDE = "lies outside of what the model was fitted on"
_RUN_TIME_UNKNOWN = f"run time: its request {_OUTSIDE}"
_RUN_TIME_WIDE = f"run time: its interval is wider than a factor of {WIDE_FACTOR:g}"
# What is missing, by what is known of a family of jobs.
_SPEED_UNKNOWN = {
    Evidence.NONE: "speed: jobs of its model stated step times of too few sizes here, or of none",
    Evidence.ONE_NODE: "speed: jobs of its model stated step times on one node only",
    Evidence.SPREAD: f"speed: a size or placement of it {_OUTSIDE}",
}
_NEIGHBOURS_UNKNOWN = f"neighbours: its model, or one of theirs, {_OUTSIDE}"
_START_UNKNOWN = f"start time: the state of this queue {_OUTSIDE}"
_START_BOUND = "start time: it waits for another job or for a reservation"
# What the models answered for one job: a value, the reason why there is none, or None if no model was asked.
_Answer = Interval | str | None
_Answers = tuple[RunTime | str | None, tuple[Speeds | None, _Answer], _Answer]
# From the least to the most that can be known: what a forecast rests on, and what brings the next step.
_RUN_TIME: Final = (
    ("its request alone: no job of its user or account has ended here", "a job of its user that ends"),
    (
        "the last jobs of its user or account",
        "a job of its user that ends, with the same GPUs, CPUs, nodes, memory and time limit",
    ),
    ("the last jobs of its user with this request", "one of them that ends while it waits"),
    ("jobs of its user with this request that ended since it was submitted", ""),
)
_STATED: Final = "running jobs of its model that state sadvise: model=NAME step=SECONDS in their comment,"
_STATED_SIZES: Final = f"{_STATED} on three numbers of GPUs of a node, or on two and over several nodes"
_SPEED: Final = (
    ("what measured models have in common", _STATED_SIZES),
    ("its model as measured elsewhere, or step times of too few sizes here", _STATED_SIZES),
    ("step times of its model on one node here", f"{_STATED} on several nodes"),
    ("step times of its model on one node and on several of this network", ""),
)
_BESIDE: Final = (
    ("what measured models have in common", "sadvise: model=NAME in its comment, if its model was measured"),
    ("its model as measured beside others", ""),
)
_STEP_BY_EVIDENCE: Final = {Evidence.ONE_NODE: 2, Evidence.SPREAD: 3}


def is_tested(proof: Proof | None) -> bool:
    """Return whether jobs of this site that were kept aside from a fit prove its model."""
    return proof is not None and proof.holds(LEAST_TESTED)


def checked(held: Held) -> None:
    """Open a model, as the forecaster does, or a policy; raises `ModelError` if it is invalid."""
    if held.entry.is_policy:
        verify(held)
    elif held.entry.kind == PERFORMANCE:
        # Only policies look at it.
        from advisor.predict.performance import PerformanceModel

        PerformanceModel.opened(held)
    else:
        _predictor(opened(held))


def _predictor(bundle: Bundle) -> Any:
    if bundle.kind not in PREDICTORS:
        raise ModelError(f"model {bundle.kind} {bundle.version}: there is no predictor of this kind")
    return PREDICTORS[bundle.kind](bundle)


class ModelForecaster:
    """Forecasts with the models in use; a note names each model that is missing, damaged or returns invalid values."""

    def __init__(
        self, library: Library, *, start_times: bool = True, network: str | None = None, learns: bool = False
    ) -> None:
        """Take the models of a library; they are opened when they are first needed.

        With `start_times` False starts are not forecast: plans do not use them, and each depends on all other jobs.
        `with_starts` then forecasts those of some jobs. `network` names the measured network that is this site's. With
        `learns` run times are learnt from the jobs that end from one snapshot to the next.
        """
        self._library = library
        self._network = network
        self._ended = EndedSeen() if learns else None
        self._kinds = [kind for kind in PREDICTORS if start_times or kind != start_time.KIND]
        self._opened: dict[str, Any] = {}
        self._versions: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        # The models that were tested on jobs of this site when they were fitted.
        self._tested: set[str] = set()
        self._forecasts = Memo[int, _Answers, JobForecast | None]()

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast the GPU jobs of a snapshot that are pending or running.

        A job that did not change since the last snapshot keeps its forecast.
        """
        pending, running = snapshot.pending_gpu_jobs, snapshot.running_gpu_jobs
        kinds = self._kinds
        for kind in kinds:
            self._model(kind)
        if self._ended is not None:
            self.add_ended(self._ended.since_last(snapshot))
        cluster = PlacementIndex(snapshot)
        # The models of speeds are asked about one job of each kind. Readers share equal requests and hints, so that
        # comparing identities finds most equal ones at hardly any cost.
        kinds_asked = [(id(job.gang), id(job.hints), job.partitions) for job in pending]
        job_by_kind = dict(zip(kinds_asked, pending, strict=True))
        alike = list(job_by_kind.values())
        run_times: Sequence[RunTime | None] = self._ask(
            "run_time", lambda model: model.forecast(pending, running, snapshot), ()
        )
        speeds: Sequence[Speeds | None] = self._ask(
            "throughput", lambda model: model.forecast(alike, cluster, running), ()
        )
        beside: Sequence[Interval | str | None] = self._ask(
            "interference", lambda model: _beside(model, cluster, alike), ()
        )
        starts_s = self._starts_s(snapshot) if start_time.KIND in kinds else {}
        unasked = (None,) * len(alike)
        by_kind = dict(zip(job_by_kind, zip(speeds or unasked, beside or unasked, strict=True), strict=True))
        job_ids = [job.job_id for job in (*pending, *running)]
        answers = zip(
            [run_time or _RUN_TIME_UNKNOWN for run_time in run_times] or repeat(None),
            # For running jobs only run times are forecast.
            [*(by_kind[kind] for kind in kinds_asked), *((None, None) for _ in running)],
            map(starts_s.get, job_ids),
            strict=False,
        )
        forecasts = self._forecasts.fill(job_ids, answers, lambda fresh: _shared(fresh.values()))
        return Forecasts(
            by_job={job_id: of_job for job_id, of_job in zip(job_ids, forecasts, strict=True) if of_job is not None},
            models=self._named(kinds),
            notes=self._distinct_notes,
            on_probation=tuple(name for name in self._named(("run_time",)) if name not in self._tested),
        )

    def with_starts(self, forecasts: Forecasts, snapshot: Snapshot, job_ids: Collection[int]) -> Forecasts:
        """Return the forecasts of some jobs, with the starts of the pending ones, without other jobs."""
        if start_time.KIND in self._kinds:
            return forecasts
        starts_s = self._starts_s(snapshot, job_ids)
        by_job: dict[int, JobForecast] = {}
        for job_id in sorted(job_ids):
            forecast, start_s = forecasts.of(job_id), starts_s.get(job_id)
            if isinstance(start_s, str):
                forecast = replace(forecast, unknown=(*forecast.unknown, start_s))
            elif start_s is not None:
                forecast = replace(forecast, start_s=start_s)
            by_job[job_id] = forecast
        models = (*forecasts.models, *self._named((start_time.KIND,)))
        return replace(forecasts, by_job=by_job, models=models, notes=self._distinct_notes)

    def bases(self, job: Job, snapshot: Snapshot) -> tuple[ForecastBasis, ...]:
        """Return what the forecasts of a GPU job rest on, after those of the snapshot."""
        asked: dict[str, Callable[[Any], ForecastBasis]] = {
            "run_time": lambda queue: _basis(
                "run time", _RUN_TIME, int(queue.model.forecast(run_time_table([job], snapshot)).group[0])
            )
        }
        if (job.gang.gpu_count or 0) > 1 or job.hints.gpus is not None:
            asked["throughput"] = lambda queue: _of_speed(queue.model, job)
            asked["interference"] = lambda model: _basis(
                "neighbours", _BESIDE, int(model.codes([job.hints.model or ""])[0] >= 0)
            )
        answers = [self._ask(kind, work, None) for kind, work in asked.items()]
        return tuple(basis for basis in answers if basis is not None)

    @property
    def _distinct_notes(self) -> tuple[str, ...]:
        """Return the notes; a fault of the folder is one note, though it keeps every model away."""
        return tuple(dict.fromkeys(self._notes.values()))

    def _starts_s(self, snapshot: Snapshot, job_ids: Collection[int] | None = None) -> Mapping[int, Interval | str]:
        return self._ask(start_time.KIND, lambda model: _starts_s(model, snapshot, job_ids), {})

    def _named(self, kinds: Sequence[str]) -> tuple[str, ...]:
        """Name the models of some kinds that are in use."""
        return tuple(f"{kind} {self._versions[kind]}" for kind in kinds if self._model(kind) is not None)

    def _ask(self, kind: str, work: Callable[[Any], Answer], nothing: Answer) -> Answer:
        """Return the answer of a model, or `nothing` if it is absent or its answer is invalid."""
        model = self._model(kind)
        if model is None:
            return nothing
        try:
            return work(model)
        except ModelError as err:
            # The model is not used from now on.
            self._opened[kind] = None
            self._notes[kind] = str(err)
            return nothing

    def add_ended(self, ended: EndedJobs) -> None:
        """Update the run-time model with ended jobs."""
        model = self._model("run_time")
        if model is not None and len(ended):
            model.model.add_ended(ended)

    def _model(self, kind: str) -> Any:
        """Return a model, opened at its first use; None if there is no valid one."""
        if kind not in self._opened:
            self._opened[kind] = None
            try:
                bundle = self._library.load(kind)
                predictor = _predictor(bundle)
                if kind == throughput.KIND and self._network is not None:
                    predictor = predictor.at_site(self._network, no_points())
                self._opened[kind] = QUEUES[kind](predictor) if kind in QUEUES else predictor
                self._versions[kind] = bundle.version
                if is_tested(bundle.tested):
                    self._tested.add(f"{kind} {bundle.version}")
            except ModelError as err:
                self._notes[kind] = str(err)
        return self._opened[kind]


def _shared(answers: Iterable[_Answers]) -> Iterator[JobForecast | None]:
    """Yield the forecast of each job; jobs whose answers are the same objects share one."""
    made: dict[tuple[int, ...], JobForecast | None] = {}
    for run_time, (speeds, beside), start_s in answers:
        key = id(run_time), id(speeds), id(beside), id(start_s)
        if key not in made:
            made[key] = _forecast(run_time, speeds, beside, start_s)
        yield made[key]


def _forecast(
    run_time: RunTime | str | None, speeds: Speeds | None, beside: _Answer, start_s: _Answer
) -> JobForecast | None:
    """Return the answers for one job as a domain value; None if no model was asked."""
    if run_time is None and speeds is None and beside is None and start_s is None:
        return None
    interval_s = run_time.interval_s if isinstance(run_time, RunTime) else None
    wide = _RUN_TIME_WIDE if interval_s and is_wide(interval_s.low, interval_s.high) else None
    speed = _SPEED_UNKNOWN[speeds.evidence] if speeds is not None and not speeds.all_known else None
    return JobForecast(
        run_time=None if isinstance(run_time, str) else run_time,
        start_s=None if isinstance(start_s, str) else start_s,
        speed_by_placement={} if speeds is None else speeds.by_placement,
        inflation_beside=None if isinstance(beside, str) else beside,
        unknown=tuple(reason for reason in (run_time, wide, speed, beside, start_s) if isinstance(reason, str)),
    )


def _starts_s(
    model: StartTimeForecaster, snapshot: Snapshot, job_ids: Collection[int] | None
) -> dict[int, Interval | str]:
    table = backlog_table(snapshot)
    if job_ids is not None:
        table = table.take(np.flatnonzero(np.isin(table.job_id, np.array(sorted(job_ids), dtype=np.int64))))
    starts_s = listed(model.forecast(table), least=0.0, most=LATEST_TIME)
    bound = {job.job_id for job in snapshot.pending_gpu_jobs if job.dependency or job.reservation}
    return {
        job_id: _START_BOUND if job_id in bound else interval or _START_UNKNOWN
        for job_id, interval in zip(table.job_id.tolist(), starts_s, strict=True)
    }


def _beside(model: InterferenceForecaster, cluster: PlacementIndex, jobs: Sequence[Job]) -> list[Interval | str | None]:
    """Return the inflation that the running gangs would cause each job; None if there are none."""
    near_by_row = [cluster.neighbours(job) if (job.gang.gpu_count or 0) > 1 else () for job in jobs]
    rows = [(job, near) for job, near in zip(jobs, near_by_row, strict=True) if near]
    if not rows:
        return []

    def padded(values: Callable[[Job], float], absent: float) -> np.ndarray:
        return np.array(
            [
                [*(values(neighbour) for neighbour in near), *[absent] * (MOST_NEIGHBOURS - len(near))]
                for _, near in rows
            ]
        )

    others = sorted({neighbour.hints.model or "" for _, near in rows for neighbour in near})
    code_of = dict(zip(others, model.codes(others).tolist(), strict=True))
    inflations = model.inflations(
        NeighbourTable(
            mine=model.codes([job.hints.model or "" for job, _ in rows]),
            gpus=np.array([job.gang.gpu_count or 1 for job, _ in rows], dtype=np.float64),
            nodes=np.full(len(rows), 2.0),
            batch=np.full(len(rows), np.nan),
            other=padded(lambda neighbour: code_of[neighbour.hints.model or ""], -2).astype(np.intp),
            other_gpus=padded(lambda neighbour: float(neighbour.gang.gpu_count or 2), np.nan),
            other_nodes=padded(
                lambda neighbour: float(len(neighbour.allocation.nodes) if neighbour.allocation else 2), np.nan
            ),
            shared=np.full(len(rows), int(Shared.NODE)),
        )
    )
    intervals = iter(listed(inflations, least=1 / MOST_RATIO, most=MOST_RATIO))
    return [(next(intervals) or _NEIGHBOURS_UNKNOWN) if near else None for near in near_by_row]


def _of_speed(model: ThroughputForecaster, job: Job) -> ForecastBasis:
    """Return what the speeds of a job rest on."""
    codes = model.codes([job.hints.model])
    measured = int(codes[0] >= 0)
    return _basis("speed", _SPEED, _STEP_BY_EVIDENCE.get(Evidence(model.evidence(codes)[0]), measured))


def _basis(forecast: str, steps: Sequence[tuple[str, str]], step: int) -> ForecastBasis:
    rests_on, next_step = steps[step]
    return ForecastBasis(forecast=forecast, step=step + 1, steps=len(steps), rests_on=rests_on, next_step=next_step)
