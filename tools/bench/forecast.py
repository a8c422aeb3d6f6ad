"""Measures what the forecasts of a cycle cost: CPU seconds on one core, with the models that ship.

    python -m tools.bench forecast [--jobs N] [--candidates N] [--models FOLDER]

Every row is another one, so that nothing is saved by forecasting alike rows once. Also says which fitting library was
imported, of which there must be none.
"""

import argparse
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np

from advisor.features.backlog import backlog_table
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.interference import InterferenceForecaster, NeighbourTable
from advisor.predict.interference_items import Shared
from advisor.predict.library import Library
from advisor.predict.queue_run_times import run_time_table
from advisor.predict.run_time import RunTimeForecaster
from advisor.predict.start_time import StartTimeForecaster
from advisor.predict.throughput import PlacementTable, ThroughputForecaster
from tools.bench.synthetic import synthetic

REPEATS = 5
NO_SITE = Path("/nonexistent")


def cpu_s(work: Callable[[], object]) -> float:
    """Return the median CPU time of a call, once it has run before."""
    work()
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return float(np.median(taken))


def placements(jobs: int, candidates: int, model: ThroughputForecaster) -> tuple[PlacementTable, PlacementTable]:
    """Return `candidates` placements of each job, no two alike, and what each job asks for."""
    rng = np.random.default_rng(0)
    rows = jobs * candidates

    def table(gpus: np.ndarray, nodes: np.ndarray) -> PlacementTable:
        return PlacementTable(
            profile=profile,
            gpus=gpus,
            nodes=nodes,
            local_batch=batch * asked / gpus,
        )

    profile = np.repeat(rng.integers(-1, len(model.models), jobs), candidates)
    asked = np.repeat(2.0 ** rng.integers(0, 5, jobs), candidates)
    # Batches differ from job to job, so that no two rows do not.
    batch = np.repeat(rng.uniform(8.0, 512.0, jobs), candidates)
    gpus = np.tile(2.0 ** np.arange(candidates // 2).repeat(2)[:candidates], jobs)[:rows]
    gpus = np.minimum(gpus, 64.0)
    nodes = np.where(np.arange(rows) % 2 == 0, np.ceil(gpus / 8), np.minimum(gpus, np.ceil(gpus / 8) + 1))
    return table(gpus, nodes), table(asked, np.ceil(asked / 8))


def neighbours(jobs: int, model: InterferenceForecaster) -> NeighbourTable:
    """Return jobs with two neighbours each."""
    rng = np.random.default_rng(0)
    return NeighbourTable(
        mine=rng.integers(-1, len(model.models), jobs),
        gpus=rng.integers(2, 65, jobs).astype(np.float64),
        nodes=rng.integers(2, 9, jobs).astype(np.float64),
        batch=rng.uniform(8.0, 512.0, jobs),
        other=rng.integers(-1, len(model.models), (jobs, 2)),
        other_gpus=rng.integers(2, 65, (jobs, 2)).astype(np.float64),
        other_nodes=rng.integers(2, 9, (jobs, 2)).astype(np.float64),
        shared=np.full(jobs, int(Shared.NODE)),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--candidates", type=int, default=16, help="sizes and tiers of each job")
    parser.add_argument("--models", type=Path, metavar="FOLDER", help="instead of those that ship")


def run(options: argparse.Namespace) -> int:
    """Measure and print; return 1 where a fitting library was imported."""
    library = Library(NO_SITE, options.models)
    speeds = ThroughputForecaster.from_bundle(library.load("throughput"))
    slowed = InterferenceForecaster.from_bundle(library.load("interference"))
    run_times = RunTimeForecaster.from_bundle(library.load("run_time"))
    starts = StartTimeForecaster.from_bundle(library.load("start_time"))
    asked, base = placements(options.jobs, options.candidates, speeds)
    beside = neighbours(options.jobs, slowed)
    snapshot = synthetic(options.jobs, max(1, options.jobs // 10), seed=0)
    pending = [job for job in snapshot.jobs if job.is_pending and job.gang.wants_gpus]
    whole, fresh = ModelForecaster(library), ModelForecaster(library)
    # The same number of jobs, none of them as in the cycle before.
    in_turn = cycle([snapshot, synthetic(options.jobs, max(1, options.jobs // 10), seed=1)])
    for name, rows, work in (
        ("throughput", len(asked), lambda: speeds.relative(asked, base)),
        ("interference", len(beside), lambda: slowed.inflations(beside)),
        ("run_time", len(pending), lambda: run_times.forecast(run_time_table(pending, snapshot))),
        ("start_time", len(pending), lambda: starts.forecast(backlog_table(snapshot))),
        ("a cycle's, all", len(snapshot.jobs), lambda: whole.forecasts(snapshot)),
        ("all jobs new", len(snapshot.jobs), lambda: fresh.forecasts(next(in_turn))),
    ):
        print(f"{name:15} {rows:8,} rows {cpu_s(work):7.3f} s")
    loaded = [name for name in ("sklearn", "scipy", "skl2onnx", "pandas", "torch") if name in sys.modules]
    print(f"fitting libraries imported: {', '.join(loaded) or 'none'}")
    return 1 if loaded else 0
