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
from advisor.journal import SqliteJournal
from tests.builders import HOUR_S, make_config, make_gang, make_hints, make_job, make_node, make_snapshot, make_topology
from tests.fit.performance_jobs import MODELS, TYPES, Truth

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
