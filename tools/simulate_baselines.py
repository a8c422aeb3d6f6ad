"""Simulate every policy on the published traces, and write the page of results.

    python -m tools.simulate_baselines [--data DIR] [--workers N] [--store FOLDER] [-o docs/results.md]

DIR is a folder with `traces/ms_itp` and `traces/philly`, by default SADVISE_DATA. Every trace runs on the cluster that
`tools/simulated_traces.py` chooses for it. With `--store`, finished runs are kept, and the same command goes on where
it was interrupted; a change of the simulator makes them anew.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Final

import advisor
from advisor.errors import AdvisorError
from advisor.planning.words import plural
from advisor.sim.cell import Cell, Progress
from advisor.sim.comparison import PairedDifference, by_policy, compare, ends_of, mean_of
from advisor.sim.policies import POLICIES
from advisor.sim.result import RunResult
from advisor.sim.runner import Options, known_policy
from advisor.sim.sweep import SweepInterrupted, run_sweep
from advisor.sim.wording import change_in_words, shown, verdict
from tools.simulated_traces import ITP, LOAD_RATIO, PHILLY, Workload, add_data_option, data_folder, read_workload

PAGE: Final = Path(__file__).parent.parent / "docs" / "results.md"
TRACES: Final = (*(f"itp {name}" for name in ITP), *(f"philly {name}" for name in PHILLY))
# A cycle of the advisor takes milliseconds, and more the more jobs are pending: whole traces would take hours.
FIRST_JOBS: Final = 2000
SLOW: Final = ("rules", "forecast", "forecast-noisy", "forecast-oracle")
METRICS: Final = ("mean_jct_s", "p99_jct_s", "mean_queueing_delay_s", "mean_bounded_slowdown")
METRIC: Final = METRICS[0]
VERDICTS: Final = ("lower", "higher", "no clear difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A workload, whole or its first jobs, and the policies that run on it, the first being the one compared with."""

    workload: Workload
    policies: Sequence[str]
    is_whole: bool

    def cells(self, seeds: Sequence[int]) -> Iterator[Cell]:
        """Yield its runs."""
        cluster = self.workload.cluster()
        for seed in seeds:
            for policy in self.policies:
                yield Cell(trace=self.workload.trace, cluster=cluster, policy=policy, seed=seed, options=Options())


def parts_of(workloads: Sequence[Workload], policies: Sequence[str], first_jobs: int) -> list[Part]:
    """Let every policy run on whole traces; slow ones, with the first beside them, on the first jobs of long traces."""
    quick = [policy for policy in policies if policy not in SLOW or policy == policies[0]]
    slow = [policy for policy in policies if policy not in quick]
    parts = []
    for workload in workloads:
        count = len(workload.trace)
        if not slow or not 0 < first_jobs < count:
            parts.append(Part(workload=workload, policies=policies, is_whole=True))
            continue
        short = workload.first(first_jobs)
        short = replace(short, trace=replace(short.trace, name=f"{short.trace.name} (first {first_jobs})"))
        parts.append(Part(workload=workload, policies=quick, is_whole=True))
        parts.append(Part(workload=short, policies=[policies[0], *slow], is_whole=False))
    return parts


def run_parts(
    parts: Sequence[Part], seeds: Sequence[int], *, store: Path | None, workers: int
) -> dict[str, list[RunResult]]:
    """Run all parts, the slow policies first, and return the results by the name of the trace."""
    cells = [cell for part in parts for cell in part.cells(seeds)]
    # What takes longest first, so that no worker is left alone with it at the end.
    cells.sort(key=lambda cell: (cell.policy not in SLOW, -len(cell.trace)))
    results = run_sweep(cells, store=store, workers=workers, progress=told(len(cells)))
    order = list(POLICIES)
    results.sort(key=lambda result: (order.index(result.summary.policy), result.cell.seed))
    return {
        part.workload.trace.name: sorted(
            (each for each in results if each.summary.trace == part.workload.trace.name),
            key=lambda each: each.summary.policy != part.policies[0],
        )
        for part in parts
    }


def page(parts: Sequence[Part], results: Mapping[str, Sequence[RunResult]], seeds: Sequence[int]) -> str:
    """Return the page of results."""
    differences = {
        name: {each.policy: each for each in compare(own, seed=0, metrics=(METRIC,))} for name, own in results.items()
    }
    lines = [*_head(parts, results, seeds), *_record(parts, results, differences)]
    for part in parts:
        name = part.workload.trace.name
        lines += _section(part, results[name], differences[name])
    return "\n".join(lines) + "\n"


def _head(parts: Sequence[Part], results: Mapping[str, Sequence[RunResult]], seeds: Sequence[int]) -> Iterator[str]:
    options = Options()
    first = parts[0].policies[0]
    sampled = sorted({column for own in results.values() for result in own for column in result.sampled})
    numbers = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}"
    cut = sorted({policy for part in parts if not part.is_whole for policy in part.policies[1:]})
    yield "# Results"
    yield ""
    yield from _paragraph(
        f"""Written by `python -m tools.simulate_baselines`; do not edit. sadvise {advisor.__version__}, execution
        {options.execution}, speeds {options.speeds}, {numbers}, advice every {options.advise_every_s:.0f} s."""
    )
    yield from _paragraph(
        f"""Every policy ran the same jobs on the same cluster, and is compared with `{first}`. How the simulator works
        and what it leaves out: [simulation.md](simulation.md). How far its Slurm is from the real one:
        [fidelity.md](fidelity.md). The policies: [policies.md](policies.md)."""
    )
    yield from _paragraph(
        f"""Traces: Microsoft's ITP clusters of 2021 and Philly's virtual clusters from October 2017 on. They tell when
        jobs were submitted, how long they ran and on how many GPUs, and no more. The rest is drawn at random, as
        [traces.md](traces.md) shows: {", ".join(sampled)}."""
    )
    yield from _paragraph(
        f"""Clusters: 8-GPU nodes, a leaf switch for every 8 of them, 100 Gb/s; as many as bring the load of the whole
        trace to {LOAD_RATIO:g} at most, but no fewer than its largest job fills. The real clusters were larger and
        hardly queued. Load is the GPU-time that jobs bring in while they are submitted over what the cluster has in
        that time."""
    )
    yield from _paragraph(
        """Change is that of the mean JCT, over the jobs that finished under both policies; below 0 is lower, which is
        better. In brackets stands the 95 % interval: on one trace over blocks of its jobs, over all traces over
        traces. Jobs that were killed by their time limit have no JCT; the column of the finished tells of them."""
    )
    yield from _paragraph(
        f"""Speeds {options.speeds} means that policies which order by run times are told the true ones, which nobody
        has in practice. `sadvise compare --speeds estimated` tells what is left of them under the users' limits."""
    )
    if cut:
        yield from _paragraph(
            f"""`{"`, `".join(cut)}` runs the advisor's own cycle, which is no compiled loop: of long traces it has the
            first jobs only, on the nodes of the whole trace, with `{first}` once more beside it. Where that part
            holds more or less load than the whole, its line says so."""
        )


def _paragraph(text: str) -> Iterator[str]:
    yield from wrap(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)
    yield ""


def _record(
    parts: Sequence[Part],
    results: Mapping[str, Sequence[RunResult]],
    differences: Mapping[str, Mapping[str, PairedDifference]],
) -> Iterator[str]:
    first = parts[0].policies[0]
    yield f"## Against {first}, over all traces"
    yield ""
    yield "| policy | traces | change of mean JCT | lower | higher | no clear difference |"
    yield "|---|--:|--:|---|---|---|"
    for policy in dict.fromkeys(policy for part in parts for policy in part.policies if policy != first):
        own = {name: each[policy] for name, each in differences.items() if policy in each}
        both = [result for name in own for result in results[name] if result.summary.policy in {first, policy}]
        # Over one trace there is nothing beside it.
        overall = compare(sorted(both, key=lambda each: each.summary.policy != first), seed=0, metrics=(METRIC,))[-1]
        found = {verdict: [name for name, each in own.items() if _read(each) == verdict] for verdict in VERDICTS}
        cells = (", ".join(names) or "none" for names in found.values())
        yield f"| {policy} | {len(own)} | {change_in_words(overall.change)} | {' | '.join(cells)} |"
    yield ""


def _read(difference: PairedDifference) -> str:
    """Return the verdict, where a change without an interval is not clear either."""
    found = verdict(difference.change)
    return found if found in VERDICTS else VERDICTS[-1]


def _section(part: Part, results: Sequence[RunResult], differences: Mapping[str, PairedDifference]) -> Iterator[str]:
    workload = part.workload
    jobs = len(workload.trace)
    yield f"## {workload.trace.name}"
    yield ""
    yield (
        f"{jobs:,} jobs on {plural(workload.nodes, 'node')} (`--cluster {workload.cluster_text()}`), load "
        f"{workload.load_ratio:.2f}."
    )
    yield ""
    yield (
        "| policy | mean JCT | p99 JCT | mean queueing delay | bounded slowdown | finished | change of mean JCT | "
        "reads as |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|---|"
    for policy, own in by_policy(results).items():
        difference = differences.get(policy)
        cells = [shown(metric, mean_of(metric, own)) for metric in METRICS]
        finished = f"{100 * ends_of(own).finished / (jobs * len(own)):.1f} %"
        compared = ["", ""] if difference is None else [change_in_words(difference.change), verdict(difference.change)]
        yield f"| {' | '.join([policy, *cells, finished, *compared])} |"
    yield ""


def told(cells: int) -> Progress:
    """Return what says on the standard error how far the sweep is, at every cell that is done."""
    said = -1

    def tell(done: float) -> None:
        nonlocal said
        if int(done) > said:
            said = int(done)
            print(f"{said} of {cells} runs done", file=sys.stderr, flush=True)

    return tell


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, simulate, write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate_baselines", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("traces", nargs="*", metavar="TRACE", help=f"default: {', '.join(TRACES)}")
    add_data_option(parser)
    parser.add_argument("--policies", default=",".join(POLICIES), help="the first is what the others are compared with")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument(
        "--jobs", type=int, default=FIRST_JOBS, help="of each trace under rules, 0 for all; default %(default)s"
    )
    parser.add_argument("--seeds", type=int, default=1, help="default %(default)s; two are too few for an interval")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep finished runs there")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args(arguments)
    seeds = range(options.seeds)
    try:
        policies = [known_policy(name).name for name in options.policies.split(",")]
        folder = data_folder(options.data)
        workloads = [read_workload(folder, name) for name in options.traces or TRACES]
        parts = parts_of(workloads, policies, options.jobs)
        results = run_parts(parts, seeds, store=options.store, workers=options.workers)
    except SweepInterrupted as err:
        print(f"interrupted: {err}", file=sys.stderr)
        return 130
    except AdvisorError as err:
        print(err, file=sys.stderr)
        return 1
    options.output.write_text(page(parts, results, seeds), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
