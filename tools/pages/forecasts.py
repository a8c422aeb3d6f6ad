"""The page about forecasts end to end: rules, the shipped models, noisy ones and the truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

import advisor
from advisor.sim.study.cell import Cell
from advisor.sim.study.comparison import PairedDifference, by_policy, compare, mean_of
from advisor.sim.study.result import RunResult
from advisor.view.wording import change_in_words, shown, verdict
from tools.pages.experiment import Experiment, Runner, Task, cells_of, first_of
from tools.pages.results import METRIC, VERDICTS, over_all
from tools.pages.text import render, table
from tools.simulated_traces import Workload

RULES: Final = "rules"
SHIPPED: Final = "forecast"
ORACLE: Final = "forecast-oracle"
POLICIES: Final = (RULES, SHIPPED, "forecast-noisy", ORACLE, "slurm")
RESAMPLES: Final = 10_000

Differences = Mapping[str, Mapping[str, PairedDifference]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The percentage of the oracle's gain that the shipped models keep, and both ends of its 95 % interval."""

    percent: float
    low: float
    high: float


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:
    """Simulate, and return the page."""
    tasks = [
        Task(group=workload.trace.name, cell=cell)
        for workload in first_of(experiment, data)
        for cell in cells(workload, experiment)
    ]
    return page(runner.results(tasks), experiment, command)


def cells(workload: Workload, experiment: Experiment) -> list[Cell]:
    """Return the runs of a trace."""
    return [
        replace(
            cell,
            cluster=replace(
                cell.cluster, slurm=replace(cell.cluster.slurm, time_min_as_soft_limit=experiment.soft_limits)
            ),
        )
        for cell in cells_of(workload, POLICIES, experiment.seeds)
    ]


def page(results: Mapping[str, Sequence[RunResult]], experiment: Experiment, command: str) -> str:
    """Return the page from the results by trace."""
    differences = {
        name: {difference.policy: difference for difference in compare(own, seed=0, metrics=(METRIC,))}
        for name, own in results.items()
    }
    traces = (
        [
            name,
            shown(METRIC, mean_of(METRIC, by_policy(own)[RULES])),
            *(change_in_words(differences[name][policy].change) for policy in POLICIES[1:]),
        ]
        for name, own in results.items()
    )
    everything = [result for own in results.values() for result in own]
    overall = {policy: over_all(everything, RULES, policy) for policy in POLICIES[1:]}
    kept = kept_share(differences)
    text = render(
        "forecasts",
        lever="with" if experiment.soft_limits else "without",
        cut=experiment.cut,
        command=command,
        version=advisor.__version__,
        overall=table(
            ("policy", "change of mean JCT over all traces:", *(f"{word}:" for word in VERDICTS)),
            ([policy, change_in_words(change), *_counts(policy, differences)] for policy, change in overall.items()),
        ),
        kept=render("forecasts", "kept" if overall[ORACLE].high < 0.0 else "unclear", kept=kept),
        traces=table(("trace", *(f"{policy}:" for policy in POLICIES)), traces),
    )
    return text + "\n"


def _counts(policy: str, differences: Differences) -> list[str]:
    """Return on how many traces a policy is lower, higher, and not clearly either."""
    read = [verdict(of_trace[policy].change) for of_trace in differences.values()]
    lower, higher = (read.count(word) for word in VERDICTS[:2])
    return [str(lower), str(higher), str(len(read) - lower - higher)]


def kept_share(differences: Differences, *, seed: int = 0) -> Kept:
    """Return the share of an oracle's gain that a policy keeps over all traces, with an interval over draws of traces.

    The gain of a trace is how much lower the logarithm of its mean JCT is than under the first policy; gains are added
    up over the traces before they are divided. Without any gain to keep the share is NaN.
    """
    gains = np.array(
        [
            [-np.log1p(of_trace[policy].change.percent / 100.0) for policy in (SHIPPED, ORACLE)]
            for of_trace in differences.values()
        ]
    )
    draws = np.random.default_rng(seed).integers(len(gains), size=(RESAMPLES, len(gains)))
    sums = gains[draws].sum(axis=1)
    kept, there = np.vstack([gains.sum(axis=0), sums]).T
    shares = 100.0 * np.divide(kept, there, out=np.full(len(there), np.nan), where=there != 0.0)
    low, high = np.quantile(shares[1:], (0.025, 0.975)).tolist()
    return Kept(percent=float(shares[0]), low=low, high=high)
