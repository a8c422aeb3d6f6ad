"""Dally and its baselines on a simulated cluster of 512 GPUs, over arrivals and oversubscriptions; writes the page.

    python -m tools.bench_dally [--seeds N] [--policies P,...] [--loads batch,0.9,...] [--oversubscription 1,10,...]
                                [--nic GBPS] [--jobs N] [--store FOLDER] [--workers N] [-o docs/dally.md]

The first policy is the one whose change against each other is told. Every seed is a trace of its own, the same for all
policies and oversubscriptions. With `--store`, finished runs are kept, and the same command goes on where it was
interrupted; a change of the simulator makes them anew.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from advisor.errors import SimulationError
from advisor.sim.cell import Cell, Progress, simulate_drawn
from advisor.sim.cluster import parse_cluster
from advisor.sim.result import RunResult
from advisor.sim.runner import Options, known_policy
from advisor.sim.sweep import run_sweep
from tools.dally.page import UNLIMITED, Bench, Corner, page
from tools.dally.workload import cluster_text, make_trace, roomy_cluster_text
from tools.page_file import check_counts, command_of, exit_code_of, write_page

PAGE: Final = Path(__file__).parent.parent / "docs" / "dally.md"
POLICIES: Final = "dally,dally+preempt,dally-nowait,dally-consolidated,dally-fixed,las,gandiva,slurm"
LOADS: Final = "batch,0.7,0.9,1.1"
OVERSUBSCRIPTIONS: Final = "1,4,10"
NIC_GBPS: Final = 100.0
SEEDS: Final = 30
JOBS: Final = 500
BATCH: Final = "batch"
# Of what the options say, what decides the figures on the page.
DECIDING: Final = ("policies", "loads", "oversubscription", "nic", "jobs", "seeds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A run and the corner that it belongs to; with `corner` None it is one on the unlimited cluster."""

    load_ratio: float | None
    corner: Corner | None
    cell: Cell


def tasks_of(
    policies: Sequence[str],
    loads: Sequence[float | None],
    oversubscriptions: Sequence[float],
    seeds: int,
    jobs: int,
    nic_gbps: float = NIC_GBPS,
) -> Iterator[Task]:
    """Yield all runs, those of a seed and an arrival on one trace."""
    clusters = {each: parse_cluster(cluster_text(each, nic_gbps)) for each in oversubscriptions}
    roomy = parse_cluster(roomy_cluster_text(jobs, nic_gbps))
    for load_ratio in loads:
        for seed in range(seeds):
            trace = make_trace(seed, jobs, load_ratio)
            # Where nothing queues, any order gives the same.
            alone = Cell(trace=trace, cluster=roomy, policy="fifo", seed=seed, options=Options())
            yield Task(load_ratio=load_ratio, corner=None, cell=alone)
            for oversubscription, cluster in clusters.items():
                corner = Corner(load_ratio=load_ratio, oversubscription=oversubscription)
                for policy in policies:
                    cell = replace(alone, cluster=cluster, policy=policy)
                    yield Task(load_ratio=load_ratio, corner=corner, cell=cell)


def run_bench(tasks: Sequence[Task], *, store: Path | None, workers: int) -> Bench:
    """Run everything, and sort the results by corner and policy."""
    cells = [task.cell for task in tasks]
    results = run_sweep(cells, store=store, workers=workers, simulate=simulate_drawn, progress=told(len(cells)))
    corners: dict[Corner, dict[str, list[RunResult]]] = {}
    unlimited: dict[float | None, list[RunResult]] = {}
    for task, result in zip(tasks, results, strict=True):
        if task.corner is None:
            named = replace(result, summary=replace(result.summary, policy=UNLIMITED))
            unlimited.setdefault(task.load_ratio, []).append(named)
        else:
            corners.setdefault(task.corner, {}).setdefault(task.cell.policy, []).append(result)
    return Bench(corners=corners, unlimited=unlimited, nic_gbps=tasks[0].cell.cluster.network.nic_gbps)


def told(runs: int) -> Progress:
    """Return what says on the standard error how far the bench is, at every percent."""
    said = -1

    def tell(done: float) -> None:
        nonlocal said
        percent = int(100 * done / runs)
        if percent > said:
            said = percent
            print(f"{int(done)} of {runs} runs done ({percent} %)", file=sys.stderr, flush=True)

    return tell


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, simulate, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench_dally", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--policies", default=POLICIES, help="the first is compared with each other; default %(default)s"
    )
    parser.add_argument("--loads", default=LOADS, help="batch: all jobs at once; else Poisson; default %(default)s")
    parser.add_argument("--oversubscription", default=OVERSUBSCRIPTIONS, help="of leaf uplinks; default %(default)s")
    parser.add_argument("--nic", default=f"{NIC_GBPS:g}", help="Gb/s that a node sends at most, default %(default)s")
    parser.add_argument("--jobs", type=int, default=JOBS, help="of a trace, default %(default)s")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default %(default)s; below 3 there is no interval")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep finished runs there")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args(arguments)

    def work() -> None:
        policies = [known_policy(name).name for name in _distinct(options.policies)]
        loads = [_load_ratio(word) for word in _distinct(options.loads)]
        oversubscriptions = [_number("--oversubscription", word) for word in _distinct(options.oversubscription)]
        check_counts(options, ("jobs", "seeds", "workers"))
        nic_gbps = _number("--nic", options.nic)
        tasks = list(tasks_of(policies, loads, oversubscriptions, options.seeds, options.jobs, nic_gbps))
        bench = run_bench(tasks, store=options.store, workers=options.workers)
        write_page(options.output, page(bench, command_of(parser, options, DECIDING)))

    return exit_code_of(work)


def _distinct(words: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in words.split(",")))


def _load_ratio(word: str) -> float | None:
    return None if word == BATCH else _number("--loads", word)


def _number(option: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise SimulationError(f"{option} {word}: give numbers above 0, with commas between them")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
