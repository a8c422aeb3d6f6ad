"""Simulate every policy on the published traces, and write the page of results.

    python -m tools.simulate_baselines [--data DIR] [--workers N] [--jobs N] [--store FOLDER] [-o docs/results.md]

DIR is a folder with `traces/ms_itp` and `traces/philly`, by default SADVISE_DATA. Every trace runs on the cluster that
`tools/simulated_traces.py` chooses for it. With `--store`, finished runs are kept, and the same command goes on where
it was interrupted; a change of the simulator makes them anew.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import advisor
from advisor.errors import AdvisorError
from advisor.planning.words import duration
from advisor.sim.cell import Cell, drawn
from advisor.sim.comparison import Difference, by_policy, compare, ends_of, mean_of
from advisor.sim.policies import POLICIES
from advisor.sim.result import RunResult
from advisor.sim.runner import Options, known_policy
from advisor.sim.sweep import SweepInterrupted, run_sweep
from advisor.sim.wording import change_in_words, shown, verdict
from tools.simulated_traces import ITP, LOAD_RATIO, PHILLY, Workload, add_data_option, data_folder, read_workloads

PAGE: Final = Path(__file__).parent.parent / "docs" / "results.md"
TRACES: Final = (*(f"itp {name}" for name in ITP), *(f"philly {name}" for name in PHILLY))
# Rounds, cycles and backfill look at every job that waits, which in a year's trace would take hours.
FIRST_JOBS: Final = 4000
METRICS: Final = ("mean_jct_s", "p99_jct_s", "mean_queueing_delay_s", "mean_bounded_slowdown")
VERDICTS: Final = ("lower", "higher", "no clear difference", "no interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What is simulated: every policy on every workload under every seed."""

    workloads: Sequence[Workload]
    whole_jobs: Mapping[str, int]
    policies: Sequence[str]
    seeds: Sequence[int]

    def cells(self) -> list[Cell]:
        """Return the runs, the slow traces first, so that no worker is left with one at the end."""
        by_length = sorted(self.workloads, key=lambda each: (-len(each.trace), each.trace.name))
        return [
            Cell(trace=each.trace, cluster=each.cluster(), policy=policy, seed=seed, options=Options())
            for each in by_length
            for seed in self.seeds
            for policy in self.policies
        ]


def make_setup(
    folder: Path, *, traces: Sequence[str], policies: Sequence[str], jobs: int, seeds: Sequence[int]
) -> Setup:
    """Read the traces, each its first `jobs` only (0: all); nodes are chosen for what is left."""
    whole = read_workloads(folder, traces)
    return Setup(
        workloads=[each.first(jobs) if jobs else each for each in whole],
        whole_jobs={each.trace.name: len(each.trace) for each in whole},
        policies=[known_policy(name).name for name in policies],
        seeds=seeds,
    )


def page(setup: Setup, results: Sequence[RunResult]) -> str:
    """Return the page of results."""
    order = {policy: place for place, policy in enumerate(setup.policies)}
    sorted_results = sorted(results, key=lambda each: (order[each.summary.policy], each.summary.trace, each.cell.seed))
    differences = compare(sorted_results, seed=0, metrics=("mean_jct_s",))
    lines = [*_head(setup, sorted_results), *_record(setup, differences)]
    for workload in setup.workloads:
        own = [each for each in sorted_results if each.summary.trace == workload.trace.name]
        lines += _section(setup, workload, own, differences)
    return "\n".join(lines) + "\n"


def _head(setup: Setup, results: Sequence[RunResult]) -> Iterator[str]:
    first = setup.policies[0]
    sampled = sorted({column for result in results for column in result.sampled})
    options = Options()
    seeds = ", ".join(map(str, setup.seeds))
    yield from (
        "# Results",
        "",
        "Written by `python -m tools.simulate_baselines`; do not edit. sadvise "
        f"{advisor.__version__}, execution {options.execution}, speeds {options.speeds}, seed {seeds}, "
        f"advice every {options.advise_every_s:.0f} s.",
        "",
        f"Every policy ran the same jobs on the same cluster, and is compared with `{first}`, the model of slurmctld "
        "without an advisor. How the simulator works and what it leaves out: [simulation.md](simulation.md). How far "
        "its Slurm is from the real one: [fidelity.md](fidelity.md). The policies: [policies.md](policies.md).",
        "",
        "- **Traces.** Microsoft's ITP clusters of 2021 and Philly's virtual clusters from October 2017 on. They tell "
        "when jobs were submitted, how long they ran and on how many GPUs, and no more. Drawn at random with the seed, "
        f"as [traces.md](traces.md) shows: {', '.join(sampled)}.",
        f"- **Clusters.** 8-GPU nodes, a leaf switch for every 8 of them, 100 Gb/s: as many nodes as bring the load to "
        f"{LOAD_RATIO:g}, `ceil(demand / 8 / {LOAD_RATIO:g})`, but no fewer than the largest job fills. The real "
        "clusters were larger and hardly queued. Load is the GPU-time that jobs bring in while they are submitted over "
        "what the cluster has in that time.",
        "- **Change** is that of the mean JCT over the jobs that finished under both policies; below 0 is lower, which "
        "is better. In brackets the 95 % interval: over blocks of jobs on one trace, over traces in all. Jobs that "
        "were killed by their time limit do not count as finished, and have no JCT.",
        "- A policy that is told the true run time of every job (`sjf`, `srtf`, `srsf`, `tetris`, `optimus`, "
        "`themis`) cannot be had in practice; what is left of it under false ones, `sadvise compare --speeds "
        "estimated` tells.",
        "",
    )


def _record(setup: Setup, differences: Sequence[Difference]) -> Iterator[str]:
    first, *others = setup.policies
    yield f"## Against {first}, over all traces"
    yield ""
    yield "| policy | change of mean JCT | lower on | higher on | no clear difference on |"
    yield "|---|---|---|---|---|"
    for policy in others:
        own = [each for each in differences if each.policy == policy]
        overall = next((each for each in own if each.trace is None), own[0])
        found = {kind: [str(each.trace) for each in own if each.trace and verdict(each.change) == kind] for kind in VERDICTS}
        unclear = [*found["no clear difference"], *found["no interval"]]
        cells = [", ".join(names) or "none" for names in (found["lower"], found["higher"], unclear)]
        yield f"| {policy} | {change_in_words(overall.change)} | {' | '.join(cells)} |"
    yield ""


def _section(
    setup: Setup, workload: Workload, results: Sequence[RunResult], differences: Sequence[Difference]
) -> Iterator[str]:
    name, jobs = workload.trace.name, len(workload.trace)
    whole = setup.whole_jobs[name]
    part = f"the first {jobs:,} of {whole:,} jobs" if jobs < whole else f"{jobs:,} jobs"
    yield f"## {name}"
    yield ""
    yield f"{part[0].upper()}{part[1:]} on {workload.nodes} nodes (`--cluster {workload.cluster_text()}`), load {workload.load_ratio:.2f}."
    yield ""
    yield "| policy | mean JCT | p99 JCT | mean queueing delay | bounded slowdown | finished | change of mean JCT | reads as |"
    yield "|---|--:|--:|--:|--:|--:|--:|---|"
    change_of = {each.policy: each.change for each in differences if each.trace == name}
    for policy, own in by_policy(results).items():
        change = change_of.get(policy)
        cells = [shown(metric, mean_of(metric, own)) for metric in METRICS]
        finished = f"{ends_of(own).finished / (jobs * len(own)):.1%}"
        compared = ["", ""] if change is None else [change_in_words(change), verdict(change)]
        yield f"| {' | '.join([policy, *cells, finished, *compared])} |"
    yield ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, simulate, write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate_baselines", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("traces", nargs="*", metavar="TRACE", help=f"default: {', '.join(TRACES)}")
    add_data_option(parser)
    parser.add_argument("--policies", default=",".join(POLICIES), help="the first is what the others are compared with")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument("--jobs", type=int, default=FIRST_JOBS, help="of each trace, 0 for all; default %(default)s")
    parser.add_argument("--seeds", type=int, default=1, help="default %(default)s; two are too few for an interval")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep finished runs there")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args(arguments)
    try:
        setup = make_setup(
            data_folder(options.data),
            traces=options.traces or TRACES,
            policies=options.policies.split(","),
            jobs=options.jobs,
            seeds=range(options.seeds),
        )
        results = run_sweep(setup.cells(), store=options.store, workers=options.workers, progress=_Progress())
    except SweepInterrupted as err:
        print(f"interrupted: {err}", file=sys.stderr)
        return 130
    except AdvisorError as err:
        print(err, file=sys.stderr)
        return 1
    options.output.write_text(page(setup, results), encoding="utf-8")
    return 0
