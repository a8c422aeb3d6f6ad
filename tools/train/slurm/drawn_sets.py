"""Judges policies for sizes on drawn workloads that no training, no choice of a policy and no card saw.

All rows run the same workloads with the same cycles, so that changes are paired by workload; the intervals
are those of `advisor.sim.study.statistics`, which draw workloads, then seeds of the training within a workload.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.sim.run_outcome import Run
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import Cell, Progress
from advisor.sim.study.comparison import Results, change_of, ends_of, mean_of
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName
from advisor.sim.study.sweep import run_sweep
from advisor.view.wording import shown
from tools.pages.text import table as markdown
from tools.train.curves import draw_curves, read_curve
from tools.train.published.training import ABLATIONS
from tools.train.slurm.env import ByRule
from tools.train.slurm.rivals import DEFAULT, PRICE, RULES, TRUTH, Rival, learned
from tools.train.slurm.scorers import as_asked, by_price
from tools.train.slurm.training import RECIPE, VALIDATION_SEEDS, mean_jct
from tools.train.slurm.workload import SHIFTED, TRAINING, Ranges, Workload, workload
from tools.train.verdicts import WARM, RecipeBook, beside, in_percent, numbers, read_description

BOOK: Final = RecipeBook(recipes={"dl2": RECIPE}, ablations=ABLATIONS, teacher="price")
# Sites have a cycle each minute; drawn workloads last weeks.
OPTIONS: Final = SimulationOptions(advise_every_s=600.0)
METRICS: Final = ("mean_jct_s", "p99_jct_s", "mean_queueing_delay_s", "makespan_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSet:
    """Workloads to judge on."""

    words: str
    seeds: range
    ranges: Ranges


SETS: Final[Mapping[str, DrawnSet]] = {
    "drawn": DrawnSet(words="workloads", seeds=range(4_000_000, 4_000_064), ranges=TRAINING),
    "shifted": DrawnSet(words="shifted workloads", seeds=range(5_000_000, 5_000_040), ranges=SHIFTED),
}


def judged(
    name: str,
    runs: Sequence[Path],
    *,
    most: int | None = None,
    store: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the rows of a set with what they are compared with, ready for JSON; on its first `most` workloads."""
    chosen = SETS[name]
    workloads = {seed: workload(seed, chosen.ranges) for seed in chosen.seeds[:most]}
    rivals = [(0, rule) for rule in RULES] + [one for run in runs for one in _of(run)]
    # A stable sort: what knows the truth comes last.
    rivals.sort(key=lambda one: one[1].name.endswith(TRUTH))
    results: dict[str, dict[CellName, RunResult]] = {}
    besides: dict[str, str] = {}
    for seed, rival in rivals:
        tell(f"{name}: {rival.name}, seed {seed}")
        besides[rival.name] = rival.beside or _rule_beside(rival.name)
        results.setdefault(rival.name, {}).update(_results(rival, workloads, seed, store))
    rows = [_row(row, results, besides[row]) for row in results]
    return {
        "workloads": len(workloads),
        "words": chosen.words,
        "jobs": chosen.ranges.jobs,
        "every_s": OPTIONS.advise_every_s,
        "rows": rows,
    }


def draw(runs: Sequence[Path], picture: Path) -> None:
    """Draw the validations of some runs beside the rule price on the same workloads."""
    asked, price = (mean_jct(ByRule(rule), VALIDATION_SEEDS) for rule in (as_asked, by_price))
    figure = 100.0 * float(np.log(price / asked).mean())
    curves = [read_curve(run / "curve.csv") for run in runs]
    draw_curves(picture, curves, label="mean JCT against sizes as asked, %, validation", lines=[(PRICE, figure)])


def _of(run: Path) -> list[tuple[int, Rival]]:
    """Return what a run made with the seed of its training; what a warm-up learnt is set beside its teacher."""
    described = read_description(run)
    rivals = []
    for name, file in BOOK.policies(run):
        whole, comma, _ = name.partition(", ")
        base = PRICE if not comma or name.startswith(WARM) else whole
        rivals += learned(name, run, file, base)
    return [(int(described["seed"]), rival) for rival in rivals]


def _rule_beside(name: str) -> str:
    """Return the rule price, beside which rules stand that know as much as it does."""
    return "" if name in {DEFAULT, PRICE} or name.endswith(TRUTH) else PRICE


def _results(
    rival: Rival, workloads: Mapping[int, Workload], seed: int, store: Path | None
) -> dict[CellName, RunResult]:
    """Return the runs of a rival on workloads by cell, under the seed of its training."""
    options = replace(OPTIONS, speeds=rival.speeds)
    cells = [
        Cell(trace=drawn.trace, cluster=drawn.cluster, policy=rival.key, seed=number, options=options)
        for number, drawn in list(workloads.items())[: rival.most]
    ]

    def run(cell: Cell, _progress: Progress | None) -> Run:
        return simulate(cell.trace, cell.cluster, rival.policy, seed=cell.seed, options=cell.options)

    results = run_sweep(cells, store=store, simulate=run)
    return {CellName(trace=cell.trace.name, seed=seed): result for cell, result in zip(cells, results, strict=True)}


def _row(name: str, results: Mapping[str, Results], other: str) -> dict[str, Any]:
    own = results[name]
    ends, jobs = ends_of(own), sum(result.summary.jobs for result in own.values())
    seeds = sorted({cell.seed for cell in own})
    return {
        "name": name,
        "seeds": 0 if seeds == [0] else len(seeds),
        "workloads": len({cell.trace for cell in own}),
        **{metric: mean_of(metric, own) for metric in METRICS},
        "finished_ratio": ends.finished / jobs,
        "resizes_per_job": sum(result.summary.resizes for result in own.values()) / jobs,
        "against": _changes(results[DEFAULT], own),
        "by_seed": {
            str(seed): _changes(results[DEFAULT], {cell: own[cell] for cell in own if cell.seed == seed})["mean_jct_s"]
            for seed in seeds
            if len(seeds) > 1
        },
        "beside": other or None,
        "changes": _changes(results[other], own) if other else None,
    }


def _changes(before: Results, after: Results) -> dict[str, Any]:
    """Return the change of each metric; a rule is the same under all seeds of a training."""
    if {cell.seed for cell in before} == {0}:
        before = {cell: before[CellName(trace=cell.trace, seed=0)] for cell in after}
    return {metric: numbers(change_of(before, after, metric, 0)) for metric in METRICS}


def table(results: Mapping[str, Any]) -> str:
    """Return the results of a set as a table in Markdown; the first row has figures, the others their changes."""
    heads = (f"{results['workloads']} {results['words']}", "seeds", "mean JCT", "p99 JCT", "mean wait", "makespan")
    rows = []
    for place, row in enumerate(results["rows"]):
        figures = (in_percent(row["against"][metric]) if place else shown(metric, row[metric]) for metric in METRICS)
        finished = f"{100.0 * row['finished_ratio']:.2f} %"
        against = beside(row["beside"], row["changes"]["mean_jct_s"] if row["changes"] else None)
        fewer = row["workloads"] < results["workloads"]
        name = f"{row['name']} ({row['workloads']} workloads)" if fewer else row["name"]
        rows.append([name, str(row["seeds"] or ""), *figures, finished, against])
    return markdown((*heads, "finished", "mean JCT beside"), rows)
