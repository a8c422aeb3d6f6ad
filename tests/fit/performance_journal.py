"""A journal of a site with known effects: a small simulation writes its cycles and the outcomes of its jobs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.forecast import NO_FORECASTS, Interval
from advisor.domain.gang import GpuCount
from advisor.domain.job import Allocation, Job
from advisor.domain.memory import Memory
from advisor.domain.outcome import JobOutcome, SeenForecast
from advisor.domain.snapshot import Snapshot
from advisor.fit.performance_fit import SitePrior, Spreads, adapted, no_samples
from advisor.fit.performance_graph import performance_exported
from advisor.fit.performance_samples import EndedJob
from advisor.fit.publish import publish_graph
from advisor.journal import SqliteJournal
from advisor.predict.library import Library
from advisor.predict.performance import KIND, PerformanceModel
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_snapshot,
    make_topology,
)
from tests.predict.shelf import TODAY

MODELS = ("bert", "resnet50", "gpt2", "vgg16")


TYPES = ("a100", "h100", "v100")


SPEEDS = {"a100": 0.0, "h100": 0.4, "v100": -0.5}


DAY_S = 86_400.0


def shipped_prior() -> SitePrior:
    """Return a prior in which types differ as in `SPEEDS`, half as much, and neighbours add little."""
    columns = np.array([*(0.5 * SPEEDS[name] for name in TYPES), 0.0])
    added = np.full((len(MODELS) + 1, len(MODELS) + 1), 0.1)
    return SitePrior(
        models=MODELS,
        gpu_types=TYPES,
        log_speed=np.tile(columns, (len(MODELS) + 1, 1)),
        added=added,
        spreads=Spreads(),
    )


def opened(prior: SitePrior) -> PerformanceModel:
    """Return the model of a prior without any samples, as it would be served."""
    exported = performance_exported(adapted(prior, no_samples(len(prior.models)), seed=1), seed=1)
    return PerformanceModel.of(exported.graph, exported.parameters)


def ship(folder: Path) -> Library:
    """Publish the prior as the model that ships, in use, and return the library of a site without models."""
    prior = shipped_prior()
    exported = performance_exported(adapted(prior, no_samples(len(MODELS)), seed=1), seed=1)
    publish_graph(exported, folder / "shipped", "default-1", today=TODAY, card=lambda entry: f"# {entry.kind}\n")
    Library(folder / "shipped", folder / "none").use(KIND, "default-1")
    return Library(folder / "site", folder / "shipped")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The effects of a site; `misjudged` is the spread of the constants of families."""

    speed: dict[str, float] = field(default_factory=lambda: dict(SPEEDS))
    place_weight: float = 1.0
    added: float = 0.4
    misjudged: float = 0.4
    noise: float = 0.2


def jobs_of(
    count: int,
    *,
    truth: Truth | None = None,
    users: int = 24,
    seed: int = 1,
    days: float = 20.0,
    until: float = TAKEN_AT,
    spoilt: Callable[[EndedJob, np.random.Generator], EndedJob] = lambda job, _: job,
) -> list[EndedJob]:
    """Return ended jobs in order of their ends, each family on all types and places."""
    truth, rng = truth or Truth(), np.random.default_rng(seed)
    constants = rng.normal(0.0, truth.misjudged, (users, len(MODELS)))
    jobs = []
    for number in range(count):
        user, model = int(rng.integers(users)), int(rng.integers(len(MODELS)))
        gpu_type = TYPES[int(rng.integers(len(TYPES)))]
        place = float(rng.choice([0.0, 0.0, 0.1, 0.26]))
        beside = {MODELS[int(rng.integers(len(MODELS)))]: float(rng.uniform(0.5, 2.0))} if rng.random() < 0.3 else {}
        expected = truth.speed[gpu_type] - truth.place_weight * place - np.log1p(truth.added * sum(beside.values()))
        job = EndedJob(
            user=f"user{user}",
            account=f"lab{user % 8}",
            model=MODELS[model],
            family=f"user{user}\n{MODELS[model]}",
            gpu_type=gpu_type,
            place=place,
            others=beside,
            log_speed=float(expected + constants[user, model] + rng.normal(0.0, truth.noise)),
            noise=0.4,
            end_time=until - days * DAY_S * (count - number) / count,
        )
        jobs.append(spoilt(job, rng))
    return jobs


def shifted(jobs: list[EndedJob], share: float, gpu_type: str, log_speed: float) -> list[EndedJob]:
    """Return jobs of which the newest share ran slower or faster on one GPU type."""
    first = round(len(jobs) * (1.0 - share))
    return [
        replace(job, log_speed=job.log_speed + log_speed) if place >= first and job.gpu_type == gpu_type else job
        for place, job in enumerate(jobs)
    ]


BEGIN = 1_800_000_000.0
TICK_S = 600.0
# Of each type four nodes of eight GPUs, two under each of its leaves.
NODES = {name: tuple(f"{name}-{number}" for number in range(4)) for name in TYPES}
LEAVES = {f"{name}-leaf{leaf}": NODES[name][2 * leaf : 2 * leaf + 2] for name in TYPES for leaf in range(2)}
PLACES = (math.log(1.1), math.log(1.3))

Spoil = Callable[[JobOutcome, np.random.Generator], JobOutcome]


@dataclass
class Run:
    """A running job of the simulation: what it has left to do at full speed, in seconds."""

    job: Job
    gpu_type: str
    place: float
    left_s: float
    forecast: SeenForecast
    neighbours: list[float] = field(default_factory=list)


@dataclass
class SimulatedSite:
    """Jobs that come and go, with a snapshot every ten minutes; `truth_at` maps an hour to the effects."""

    truth_at: Callable[[float], Truth]
    users: int = 24
    seed: int = 1
    private_data: tuple[str, ...] = ()
    running: list[Run] = field(default_factory=list)
    outcomes: list[JobOutcome] = field(default_factory=list)
    started: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.constants = self.rng.normal(0.0, self.truth_at(0.0).misjudged, (self.users, len(MODELS)))
        self.free = {name: 8 for nodes in NODES.values() for name in nodes}

    def step(self, now: float) -> Snapshot:
        """Let jobs run until an instant, start others, and return the snapshot."""
        truth = self.truth_at((now - BEGIN) / HOUR_S)
        for run in [run for run in self.running if self._ends(run, truth)]:
            self.running.remove(run)
            for name in self._nodes(run):
                self.free[name] += self._held(run)
            self.outcomes.append(self._outcome(run, now))
        for _ in range(4):
            self._start(now)
        nodes = [
            make_node(name, used=8 - self.free[name], gpu_type=gpu_type)
            for gpu_type, names in NODES.items()
            for name in names
        ]
        return make_snapshot(
            [run.job for run in self.running],
            nodes,
            topology=make_topology(LEAVES),
            config=make_config(private_data=self.private_data),
            taken_at=now,
        )

    def _ends(self, run: Run, truth: Truth) -> bool:
        beside = self._beside(run)
        log_speed = truth.speed[run.gpu_type] - truth.place_weight * run.place - math.log1p(truth.added * beside)
        run.left_s -= TICK_S * math.exp(log_speed)
        return run.left_s <= 0.0

    def _beside(self, run: Run) -> int:
        """Return how many jobs that span nodes share the fullest node of one that does."""
        if len(self._nodes(run)) == 1:
            return 0
        return max(
            sum(len(self._nodes(one)) > 1 and name in self._nodes(one) and one is not run for one in self.running)
            for name in self._nodes(run)
        )

    def _start(self, now: float) -> None:
        gpu_type = TYPES[int(self.rng.integers(len(TYPES)))]
        names, spread = NODES[gpu_type], int(self.rng.integers(3))
        pairs: dict[int, list[tuple[str, ...]]] = {
            0: [(name,) for name in names],
            1: [names[:2], names[2:]],
            2: [names[0::2], names[1::2]],
        }
        need = 8 if spread == 0 else 4
        open_places = [place for place in pairs[spread] if all(self.free[name] >= need for name in place)]
        if not open_places:
            return
        place = open_places[int(self.rng.integers(len(open_places)))]
        for name in place:
            self.free[name] -= need
        user, model = int(self.rng.integers(self.users)), int(self.rng.integers(len(MODELS)))
        self.started += 1
        base_s = float(np.exp(self.rng.normal(np.log(9000.0), 0.3)))
        median = base_s * math.exp(self.constants[user, model])
        width = math.exp(1.2816 * 0.4)
        job = make_job(
            self.started,
            gang=make_gang(8),
            running_on=place,
            submit_time=now - 1200.0,
            started_ago_s=0.0,
            name=f"train-{MODELS[model]}",
            user=f"user{user}",
            account=f"lab{user % 8}",
            hints=make_hints(MODELS[model]),
        )
        job = replace(
            job,
            start_time=now,
            allocation=Allocation(nodes=tuple(sorted(place)), gpus=(GpuCount(gpu_type=gpu_type, count=8),)),
        )
        truth = self.truth_at(0.0)
        self.running.append(
            Run(
                job=job,
                gpu_type=gpu_type,
                place=0.0 if spread == 0 else PLACES[spread - 1],
                left_s=base_s * float(np.exp(self.rng.normal(0.0, truth.noise))),
                forecast=SeenForecast(
                    made_time=now - 1200.0,
                    run_time_s=Interval(low=median / width, median=median, high=median * width),
                ),
            )
        )

    def _outcome(self, run: Run, now: float) -> JobOutcome:
        return JobOutcome(
            job_id=run.job.job_id,
            submit_time=run.job.submit_time,
            user=run.job.user,
            account=run.job.account,
            gpus=8,
            start_time=run.job.start_time,
            last_start_time=run.job.start_time,
            last_seen_time=now - TICK_S,
            end_time=now,
            first_forecast=run.forecast,
        )

    @staticmethod
    def _nodes(run: Run) -> tuple[str, ...]:
        return run.job.allocation.nodes if run.job.allocation else ()

    def _held(self, run: Run) -> int:
        return 8 // len(self._nodes(run))


def write_journal(
    path: Path,
    jobs: int,
    *,
    truth_at: Callable[[float], Truth] = lambda _: Truth(),
    users: int = 24,
    seed: int = 1,
    private_data: tuple[str, ...] = (),
    spoil: Spoil = lambda outcome, _: outcome,
) -> None:
    """Write a journal in which a number of jobs end, each outcome as `spoil` returns it."""
    site = SimulatedSite(truth_at, users=users, seed=seed, private_data=private_data)
    rng, now, cycle = np.random.default_rng(seed), BEGIN, Cycle()
    with SqliteJournal(path) as journal, journal.together():
        while len(site.outcomes) < jobs:
            record = CycleRecord(
                snapshot=site.step(now), memory=Memory(), forecasts=NO_FORECASTS, judged=(), left_alone={}
            )
            journal.record(record, cycle, whole=True)
            now += TICK_S
        journal.keep_outcomes(spoil(outcome, rng) for outcome in site.outcomes[:jobs])
