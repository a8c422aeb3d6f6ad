"""CPU and bytes of recording whole cycles, at a queue of which a part changes in each cycle.

    python -m tools.bench journal [--size 10000:1000] [--cycles 61] [--changed 0.01] [--models] [--decisions 300:80]

The jobs of each cycle are new objects, as those of a reader are, so that equality is not known without a comparison.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.cycle import Cycle
from advisor.domain.actions import Lever
from advisor.domain.snapshot import Snapshot
from advisor.features.policy import Options, ScoredDecision
from advisor.journal import SqliteJournal
from advisor.journal.views import RowQuery
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from advisor.replay.deviations import replayed
from tools.bench.measuring import size_of
from tools.bench.synthetic import synthetic


def later(seen: Snapshot, fresh: Snapshot, changed: float, chance: np.random.Generator) -> Snapshot:
    """Return the queue a minute later: jobs equal to those seen, but that some changed their priority."""
    moved = chance.random(len(seen.jobs)) < changed
    jobs = tuple(
        replace(job, priority=(old.priority or 0) + int(is_moved))
        for job, old, is_moved in zip(fresh.jobs, seen.jobs, moved, strict=True)
    )
    return replace(fresh, taken_at=seen.taken_at + 60.0, jobs=jobs)


def choices(decisions: int, options: int, chance: np.random.Generator) -> tuple[ScoredDecision, ...]:
    """Return as many decisions of a learned policy as a cycle can hold, each between a number of options."""
    rows = Options(lever=Lever.GPU_COUNT, job_id=np.zeros(options, dtype=np.int64), columns={})
    return tuple(ScoredDecision.of_best(rows, chance.normal(size=options)) for _ in range(decisions))


def measure(
    jobs: int, nodes: int, cycles: int, changed: float, *, models: bool = False, decisions: tuple[int, int] = (0, 0)
) -> str:
    """Record a number of cycles, plan the last one again, and say what it cost; the first record stands by itself."""
    chance = np.random.default_rng(1)
    # A folder without models: those that ship serve.
    cycle = Cycle(forecaster=ModelForecaster(Library(Path("/nonexistent")))) if models else Cycle()
    seen = synthetic(jobs, nodes, 1)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.sqlite")
        for _ in range(cycles):
            seen = later(seen, synthetic(jobs, nodes, 1), changed, chance)
            record = replace(cycle.judge(seen), decisions=choices(*decisions, chance))
            started = time.process_time()
            journal.record(record, cycle, whole=True)
            times.append(time.process_time() - started)
        sizes = [whole.record_bytes for whole in reversed(journal.cycles(RowQuery(most=cycles)))]
        started = time.process_time()
        recorded = journal.recorded()
        is_same = replayed(recorded) == recorded.outcome
        replay_s = time.process_time() - started
        journal.close_file()
    first_kb, next_kb = sizes[0] / 1e3, sum(sizes[1:]) / (cycles - 1) / 1e3
    return (
        f"first {times[0]:.3f} s CPU and {first_kb:.0f} kB, next {sum(times[1:]) / (cycles - 1):.3f} s and "
        f"{next_kb:.0f} kB, mean {sum(times) / cycles:.3f} s; read and planned again in {replay_s:.2f} s, "
        f"{'the same' if is_same else 'NOT the same'}"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--size", default="10000:1000", metavar="JOBS:NODES", help="default 10000:1000")
    parser.add_argument("--cycles", type=int, default=61, help="default 61: the second stretch begins with the last")
    parser.add_argument("--changed", type=float, default=0.01, help="share of jobs that change in each cycle")
    parser.add_argument("--models", action="store_true", help="forecast with the models that ship")
    parser.add_argument("--decisions", default="0:0", metavar="N:OPTIONS", help="choices of a learned policy per cycle")


def run(options: argparse.Namespace) -> int:
    """Measure and print the figures."""
    jobs, nodes = size_of(options.size)
    cycles = max(2, options.cycles)
    decisions, of_each = (int(number) for number in options.decisions.split(":"))
    figures = measure(jobs, nodes, cycles, options.changed, models=options.models, decisions=(decisions, of_each))
    print(f"{jobs} pending jobs, {options.changed:.0%} changed per cycle, {cycles} cycles: {figures}")
    return 0
