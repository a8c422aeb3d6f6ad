"""What delay timers bring within Slurm: plain Slurm beside Slurm with the advisor's timers, on published traces.

    python -m tools.simulate_dally [TRACE...] [--data DIR] [--jobs N] [--oversubscription 1,10,...] [-o FILE]

DIR is a folder with `traces/ms_itp` and `traces/philly`, by default SADVISE_DATA. The traces and clusters are those
of `tools/simulate_baselines.py`, with leaf uplinks of these oversubscriptions and `max_switch_wait` of a day. With
`--store`, finished runs are kept.
"""

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

import advisor
from advisor.errors import SimulationError
from advisor.planning.words import duration
from advisor.sim.cell import Cell, drawn, simulate_drawn
from advisor.sim.cluster import Cluster
from advisor.sim.comparison import GroupDifference, by_policy, compare, compare_groups, ends_of, mean_of, traces_of
from advisor.sim.metrics import Grouping, by_gpus, by_user
from advisor.sim.result import RunResult
from advisor.sim.runner import Options, known_policy
from advisor.sim.statistics import CellName, RelativeChange, paired_difference
from advisor.sim.sweep import run_sweep
from advisor.sim.trace import Trace
from advisor.sim.wording import LABELS, change_in_words, ends_in_words, shown, verdict
from tools.dally.page import paragraph
from tools.page_file import exit_code_of, write_page
from tools.simulate_baselines import FIRST_JOBS, TRACES, VERDICTS, told
from tools.simulated_traces import Workload, add_data_option, data_folder, read_workload

SLURM: Final = "slurm"
DALLY: Final = "slurm+dally"
OVERSUBSCRIPTIONS: Final = "1,10"
MAX_SWITCH_WAIT_S: Final = 86_400.0
METRICS: Final = ("mean_jct_s", "p99_queueing_delay_s", "communication_overhead_ratio")
# A group that loses more than this is named.
LOSS_PERCENT: Final = 5.0
SEED: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """The results on clusters of one oversubscription: those of plain Slurm first, and the traces by name."""

    oversubscription: float
    results: Sequence[RunResult]
    traces: Mapping[str, Trace]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTrace:
    """How a group of jobs of one trace fared."""

    trace: str
    found: GroupDifference


def cluster_of(workload: Workload, oversubscription: float) -> Cluster:
    """Return the cluster of a workload with leaf uplinks of an oversubscription, on which timers may last a day."""
    cluster = workload.cluster()
    return replace(
        cluster,
        network=replace(cluster.network, oversubscription=oversubscription),
        slurm=replace(cluster.slurm, max_switch_wait_s=MAX_SWITCH_WAIT_S),
    )


def cells_of(workloads: Sequence[Workload], oversubscriptions: Sequence[float], policy: str) -> list[list[Cell]]:
    """Return the runs of each oversubscription; what a trace does not tell is drawn once, for all its runs alike."""
    traces = [drawn(each.trace, each.cluster(), SEED) for each in workloads]
    return [
        [
            Cell(trace=trace, cluster=cluster_of(each, oversubscription), policy=name, seed=SEED, options=Options())
            for name in (SLURM, policy)
            for each, trace in zip(workloads, traces, strict=True)
        ]
        for oversubscription in oversubscriptions
    ]


def by_size(corner: Corner) -> dict[str, RelativeChange]:
    """Return the change of the mean JCT of each size class, over traces."""
    groupings = {name: by_gpus(trace) for name, trace in corner.traces.items()}
    names = dict.fromkeys(name for grouping in groupings.values() for name in grouping.names)
    before, after = by_policy(corner.results).values()
    found = {}
    for name in sorted(names, key=lambda each: int(each.split("-")[0])):
        a, b = (_jcts_of(name, groupings, results) for results in (before, after))
        found[name] = paired_difference(a, b, seed=SEED)
    return found


def _jcts_of(
    name: str, groupings: Mapping[str, Grouping], results: Mapping[CellName, RunResult]
) -> dict[CellName, NDArray[np.float64]]:
    """Return the JCTs of a group's jobs by cell, `(n_jobs,)`, where it has any."""
    found = {}
    for cell, result in results.items():
        grouping = groupings[cell.trace]
        if name in grouping.names:
            found[cell] = result.jct_s[grouping.group_of_job == grouping.names.index(name)]
    return found


def of_users(corner: Corner) -> list[OfTrace]:
    """Compare the users of each trace."""
    before, after = by_policy(corner.results).values()
    return [
        OfTrace(trace=name, found=found)
        for name, trace in corner.traces.items()
        for found in compare_groups(
            {cell: result for cell, result in before.items() if cell.trace == name},
            {cell: result for cell, result in after.items() if cell.trace == name},
            by_user(trace),
            seed=SEED,
        )
    ]


def page(corners: Sequence[Corner], command: str) -> str:
    """Return the page."""
    lines = list(_head(corners, command))
    for corner in corners:
        lines += [f"## Oversubscription {corner.oversubscription:g}:1", ""]
        lines += [*_overall(corner), *_traces(corner), *_sizes(corner), *_users(corner)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(corners: Sequence[Corner], command: str) -> Iterator[str]:
    policy = list(by_policy(corners[0].results))[1]
    yield "# Delay timers within Slurm"
    yield ""
    yield from paragraph(f"Written by `{command}`; do not edit. sadvise {advisor.__version__}.")
    yield from paragraph(
        f"""`{policy}` against `{SLURM}`: {known_policy(policy).summary}. Both run the first jobs of each trace, as many
        as the command says, on the model of slurmctld ([simulation.md](simulation.md)), with `max_switch_wait` of
        {duration(MAX_SWITCH_WAIT_S)}; the advisor's cycle runs every {Options().advise_every_s:g} s, and it is told the
        true run times and what a placement costs. Clusters are those of [results.md](results.md), 8-GPU nodes with a
        leaf switch for every 8 of them; where there are no more than 8 nodes, no gang can be spread over leaves."""
    )
    yield from paragraph(
        """The traces tell when jobs were submitted, how long they ran and on how many GPUs. Users, models, time limits
        and node counts are drawn at random, as [traces.md](traces.md) shows: users here are samples of jobs, not
        people who ask for the same thing again and again."""
    )
    yield from paragraph(
        """Change is that from plain Slurm; below 0 is lower, which is better. In brackets stands the 95 % interval: on
        one trace over blocks of its jobs, over all traces over traces. Mean JCT and queueing delay are over the jobs
        that have one under both policies. Communication overhead is exposed communication time over GPU-holding time,
        one figure for a trace, which alone has no interval."""
    )


def _overall(corner: Corner) -> Iterator[str]:
    differences = compare(corner.results, seed=SEED, metrics=METRICS)
    yield "| over all traces | change | lower | higher | no clear difference |"
    yield "|---|--:|--:|--:|--:|"
    for metric in METRICS:
        own = [each for each in differences if each.metric == metric]
        # Over one trace there is nothing beside it.
        read = [verdict(each.change) for each in own if each.trace is not None]
        counts = [str(read.count(word)) for word in VERDICTS]
        counts = counts if metric != METRICS[-1] else [""] * len(counts)
        yield f"| {LABELS[metric]} | {change_in_words(own[-1].change)} | {' | '.join(counts)} |"
    yield ""
    left = [
        f"under `{name}` {ends_in_words(ends_of(own)) or 'all did'}" for name, own in by_policy(corner.results).items()
    ]
    yield from paragraph(f"Jobs that did not finish: {', '.join(left)}.")


def _traces(corner: Corner) -> Iterator[str]:
    differences = compare(corner.results, seed=SEED, metrics=METRICS)
    policies = by_policy(corner.results)
    yield "| trace | jobs | " + " | ".join(f"{LABELS[metric]}, {SLURM} | change" for metric in METRICS) + " |"
    yield f"|---|--:|{'--:|--:|' * len(METRICS)}"
    for name in traces_of(corner.results):
        cells = [name, f"{len(corner.traces[name]):,}"]
        for metric in METRICS:
            before = {cell: result for cell, result in policies[SLURM].items() if cell.trace == name}
            (change,) = (each.change for each in differences if (each.trace, each.metric) == (name, metric))
            cells += [shown(metric, mean_of(metric, before)), change_in_words(change)]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _sizes(corner: Corner) -> Iterator[str]:
    yield "Mean JCT by the GPUs that jobs ask for, over the traces that have such jobs:"
    yield ""
    yield "| GPUs | jobs | traces | change of mean JCT | reads as |"
    yield "|---|--:|--:|--:|---|"
    for name, change in by_size(corner).items():
        held = [by_gpus(trace) for trace in corner.traces.values()]
        traces = sum(name in grouping.names for grouping in held)
        yield f"| {name} | {change.pairs:,} | {traces} | {change_in_words(change)} | {verdict(change)} |"
    yield ""


def _users(corner: Corner) -> Iterator[str]:
    users = of_users(corner)
    told_of = [each for each in users if verdict(each.found.change) in VERDICTS]
    losers = [each for each in told_of if each.found.change.percent > LOSS_PERCENT]
    clear = [each for each in losers if each.found.change.is_clear]
    winners = [each for each in told_of if each.found.change.percent < -LOSS_PERCENT]
    yield from paragraph(
        f"""Of {len(users)} users, {len(told_of)} have jobs enough for an interval. The mean JCT of {len(winners)} of
        them is more than {LOSS_PERCENT:g} % lower, clearly that of
        {sum(each.found.change.is_clear for each in winners)}; of {len(losers)} it is more than {LOSS_PERCENT:g} %
        higher, clearly that of {len(clear)}. Among so many, about {0.025 * len(told_of):.0f} would read as clearly
        higher by chance alone."""
    )
    if not clear:
        return
    yield "| trace | user | jobs | before | after | change of mean JCT |"
    yield "|---|---|--:|--:|--:|--:|"
    for each in sorted(clear, key=lambda each: -each.found.change.percent):
        found = each.found
        means = [shown("mean_jct_s", value) for value in (found.before_s, found.after_s)]
        cells = (each.trace, found.group, f"{found.jobs:,}", *means, change_in_words(found.change))
        yield f"| {' | '.join(cells)} |"
    yield ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, simulate, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.simulate_dally", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="*", metavar="TRACE", help=f"default: {', '.join(TRACES)}")
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument("--jobs", type=int, default=FIRST_JOBS, help="of each trace, 0 for all; default %(default)s")
    parser.add_argument("--oversubscription", default=OVERSUBSCRIPTIONS, help="of leaf uplinks; default %(default)s")
    parser.add_argument("--policy", default=DALLY, help=f"held against {SLURM}; default %(default)s")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep finished runs there")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="instead of the standard output")
    options = parser.parse_args(arguments)

    def work() -> None:
        policy = known_policy(options.policy).name
        oversubscriptions = [_ratio(word) for word in options.oversubscription.split(",")]
        folder = data_folder(options.data)
        workloads = [read_workload(folder, name) for name in options.traces or TRACES]
        if options.jobs:
            workloads = [workload.first(options.jobs) for workload in workloads]
        corners = run_corners(workloads, oversubscriptions, policy, store=options.store, workers=options.workers)
        write_page(options.output, page(corners, _command(options)))

    return exit_code_of(work)


def run_corners(
    workloads: Sequence[Workload],
    oversubscriptions: Sequence[float],
    policy: str,
    *,
    store: Path | None,
    workers: int,
) -> list[Corner]:
    """Run everything, and sort the results by oversubscription."""
    cells = cells_of(workloads, oversubscriptions, policy)
    flat = [cell for own in cells for cell in own]
    results = run_sweep(flat, store=store, workers=workers, simulate=simulate_drawn, progress=told(len(flat)))
    count = len(cells[0])
    return [
        Corner(
            oversubscription=oversubscription,
            results=results[place * count : (place + 1) * count],
            traces={cell.trace.name: cell.trace for cell in cells[place]},
        )
        for place, oversubscription in enumerate(oversubscriptions)
    ]


def _command(options: argparse.Namespace) -> str:
    """Return the command that makes the page again."""
    given = [*options.traces, "--jobs", str(options.jobs), "--oversubscription", options.oversubscription]
    if options.policy != DALLY:
        given += ["--policy", options.policy]
    return f"python -m tools.simulate_dally {shlex.join(given)}"


def _ratio(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 1.0 <= value < float("inf"):
        raise SimulationError(f"--oversubscription {word}: give numbers of 1 and more, with commas between them")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
