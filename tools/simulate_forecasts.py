"""What forecasts bring: the advisor by rules, with the shipped models, with noisy ones and with the truth.

    python -m tools.simulate_forecasts [TRACE...] [--data DIR] [--jobs N] [--soft-limits] [-o FILE]

DIR is a folder with `traces/ms_itp` and `traces/philly`, by default SADVISE_DATA. The traces and clusters are those
of `tools/simulate_baselines.py`. With `--soft-limits` the simulated Slurm has `time_min_as_soft_limit`, so that the
advisor may also set soft limits; plain Slurm then runs the same. With `--store`, finished runs are kept.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import Final

import numpy as np

import advisor
from advisor.errors import AdvisorError
from advisor.sim.cell import Cell
from advisor.sim.comparison import PairedDifference, by_policy, compare, mean_of
from advisor.sim.result import RunResult
from advisor.sim.runner import Options
from advisor.sim.sweep import SweepInterrupted, run_sweep
from advisor.sim.wording import change_in_words, shown, verdict
from tools.simulate_baselines import FIRST_JOBS, METRIC, TRACES, told
from tools.simulated_traces import Workload, add_data_option, data_folder, read_workload

RULES: Final = "rules"
SHIPPED: Final = "forecast"
ORACLE: Final = "forecast-oracle"
POLICIES: Final = (RULES, SHIPPED, "forecast-noisy", ORACLE, "slurm")
RESAMPLES: Final = 10_000

Differences = Mapping[str, Mapping[str, PairedDifference]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The share of the oracle's gain over rules that the shipped models keep; both ends of a 95 % interval."""

    share: float
    low: float
    high: float


def cells_of(workloads: Sequence[Workload], seeds: Sequence[int], *, soft_limits: bool) -> list[Cell]:
    """Return all runs."""
    cells = []
    for workload in workloads:
        cluster = workload.cluster()
        if soft_limits:
            cluster = replace(cluster, slurm=replace(cluster.slurm, time_min_as_soft_limit=True))
        cells += [
            Cell(trace=workload.trace, cluster=cluster, policy=policy, seed=seed, options=Options())
            for seed in seeds
            for policy in POLICIES
        ]
    return cells


def kept_share(differences: Differences, *, seed: int = 0) -> Kept:
    """Return the share that is kept over all traces, with an interval over draws of traces.

    The gain of a trace is how much lower the logarithm of its mean JCT is than under the rules; gains are added up
    over the traces before they are divided.
    """
    gains = np.array(
        [
            [-np.log1p(each[policy].change.percent / 100.0) for policy in (SHIPPED, ORACLE)]
            for each in differences.values()
        ]
    )
    draws = np.random.default_rng(seed).integers(len(gains), size=(RESAMPLES, len(gains)))
    sums = gains[draws].sum(axis=1)
    shares = sums[:, 0] / sums[:, 1]
    low, high = np.quantile(shares, (0.025, 0.975))
    total = gains.sum(axis=0)
    return Kept(share=float(total[0] / total[1]), low=float(low), high=float(high))


def page(workloads: Sequence[Workload], results: Sequence[RunResult], command: str, *, soft_limits: bool) -> str:
    """Return the page."""
    own = {
        each.trace.name: sorted(
            (result for result in results if result.summary.trace == each.trace.name),
            key=lambda result: POLICIES.index(result.summary.policy),
        )
        for each in workloads
    }
    differences = {
        name: {each.policy: each for each in compare(found, seed=0, metrics=(METRIC,)) if each.trace == name}
        for name, found in own.items()
    }
    return "\n".join(
        [*_head(command, soft_limits=soft_limits), *_overall(results, differences), *_table(own, differences)]
    )


def _head(command: str, *, soft_limits: bool) -> Iterator[str]:
    lever = "with" if soft_limits else "without"
    yield f"# What forecasts bring, {lever} soft limits"
    yield ""
    yield from _paragraph(
        f"""Written by `{command}`; do not edit. sadvise {advisor.__version__}. The jobs of each
        trace that its option says, the first ones. The advisor's own cycle every 300 s on a
        simulated Slurm, all its advice applied: `rules` knows time limits, `forecast` has the shipped models and learns
        from the jobs that end, `forecast-noisy` knows the truth within 30 %, `forecast-oracle` the truth. Change is
        that of the mean JCT against `rules`, over the jobs that finished under both; below 0 is better. In brackets
        the 95 % interval: on one trace over blocks of its jobs, over all traces over traces."""
    )
    yield from _paragraph(
        """Users, time limits, models, ranges and node counts are drawn at random, as [traces.md](../traces.md) shows:
        users have nothing to do with run times here, so that their history cannot help, and limits are drawn from the
        ratios of DRAC's Graham, on whose jobs the shipped run-time model was fitted. The models of the jobs are
        declared to the advisor. Real sites differ in both directions."""
    )


def _paragraph(text: str) -> Iterator[str]:
    yield from wrap(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)
    yield ""


def _overall(results: Sequence[RunResult], differences: Differences) -> Iterator[str]:
    yield "| policy | change of mean JCT over all traces | lower | higher | no clear difference |"
    yield "|---|--:|--:|--:|--:|"
    gains = False
    for policy in POLICIES[1:]:
        both = [result for result in results if result.summary.policy in (RULES, policy)]
        both.sort(key=lambda result: result.summary.policy != RULES)
        overall = compare(both, seed=0, metrics=(METRIC,))[-1]
        read = [verdict(each[policy].change) for each in differences.values()]
        counts = (read.count("lower"), read.count("higher"), len(read) - read.count("lower") - read.count("higher"))
        yield f"| {policy} | {change_in_words(overall.change)} | {' | '.join(str(count) for count in counts)} |"
        if policy == ORACLE:
            gains = overall.change.high < 0.0
    kept = kept_share(differences)
    yield ""
    if gains:
        yield (
            f"Of the oracle's gain over `rules` the shipped models keep {kept.share * 100:.0f} % "
            f"(95 % interval {kept.low * 100:.0f} to {kept.high * 100:.0f})."
        )
    else:
        interval = f"{kept.low * 100:.0f} to {kept.high * 100:.0f}"
        yield from _paragraph(
            f"""The oracle's own gain over `rules` is not clear of 0, so that the share of it which the shipped models
            keep says nothing: {kept.share * 100:.0f} % (95 % interval {interval})."""
        )
        return
    yield ""


def _table(own: Mapping[str, Sequence[RunResult]], differences: Differences) -> Iterator[str]:
    yield "| trace | rules | forecast | forecast-noisy | forecast-oracle | slurm |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, found in own.items():
        cells = [shown(METRIC, mean_of(METRIC, by_policy(found)[RULES]))]
        cells += [change_in_words(differences[name][policy].change) for policy in POLICIES[1:]]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, simulate, write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.simulate_forecasts", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("traces", nargs="*", metavar="TRACE", help=f"default: {', '.join(TRACES)}")
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument("--jobs", type=int, default=FIRST_JOBS, help="of each trace, 0 for all; default %(default)s")
    parser.add_argument("--seeds", type=int, default=1, help="default %(default)s")
    parser.add_argument("--soft-limits", action="store_true", help="let Slurm take TimeMin for a soft limit")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep finished runs there")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="instead of the standard output")
    options = parser.parse_args(arguments)
    command = f"python -m tools.simulate_forecasts --jobs {options.jobs}{' --soft-limits' * options.soft_limits}"
    try:
        folder = data_folder(options.data)
        workloads = [read_workload(folder, name) for name in options.traces or TRACES]
        if options.jobs:
            workloads = [workload.first(options.jobs) for workload in workloads]
        cells = cells_of(workloads, range(options.seeds), soft_limits=options.soft_limits)
        cells.sort(key=lambda cell: -len(cell.trace))
        results = run_sweep(cells, store=options.store, workers=options.workers, progress=told(len(cells)))
        text = page(workloads, results, command, soft_limits=options.soft_limits)
    except SweepInterrupted as err:
        print(f"interrupted: {err}", file=sys.stderr)
        return 130
    except AdvisorError as err:
        print(err, file=sys.stderr)
        return 1
    if options.output is None:
        print(text)
    else:
        options.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
