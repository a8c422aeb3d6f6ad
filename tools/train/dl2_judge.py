"""Judges policies for sizes on drawn workloads that no training, no choice of a policy and no card saw.

All rows run the same workloads with the same cycles, so that changes are paired by workload; the intervals
are those of `advisor.sim.study.statistics`, which draw workloads, then seeds of the training within a workload.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from advisor.domain.forecast import Interval, JobForecast
from advisor.domain.job import Job
from advisor.features.steps import Choose, Reals, Steps, Supply
from advisor.sim.policies.lifted import by_limits, by_run_times
from advisor.sim.policies.mover import Mover, changed_slurm
from advisor.sim.policies.slurm import Run as SlurmRun
from advisor.sim.policies.slurm import SlurmPolicy
from advisor.sim.run_outcome import Run
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem, SimulatedPolicy, SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State
from advisor.sim.study.cell import Cell, Progress, digest_of, program_of
from advisor.sim.study.comparison import Results, change_of, ends_of, mean_of
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName
from advisor.sim.study.sweep import run_sweep
from advisor.view.wording import shown
from tools.pages.page_text import table as markdown
from tools.train import TOOLS
from tools.train.dl2 import BOOK, VALIDATION_SEEDS, mean_jct, network_of
from tools.train.judging import beside, in_percent, numbers
from tools.train.networks import PerOption
from tools.train.runs import WARM
from tools.train.size_env import SHIFTED, TRAINING, ByRule, Ranges, SizeWorkload, workload
from tools.train.sizer import (
    Sizer,
    Sizes,
    SpeedOf,
    StepScorer,
    as_asked,
    by_gain,
    by_price,
    by_score,
    forecast_speeds,
    true_speeds,
)
from tools.train.training import draw_curves, read_curve, read_description

MakeSpeeds = Callable[[Problem, SimulatedSlurm], SpeedOf]
TRUTH: Final = "true run times and speeds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A row of the judge: a policy, what it believes as in `SimulationOptions`, and the row it is set beside.

    `weights` are those of a trained network. A slow one runs on the first `most` workloads alone.
    """

    name: str
    policy: str | SimulatedPolicy
    speeds: str = "oracle"
    beside: str = ""
    weights: bytes = b""
    most: int | None = None

    @property
    def key(self) -> str:
        """What names the policy among stored results: it differs where the programs or the weights do."""
        if isinstance(self.policy, str):
            return self.policy
        return f"{self.name} {digest_of((program_of(__name__, TOOLS), self.weights))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftAndSize:
    """Lifts jobs, and then sizes the elastic ones."""

    lifter: Mover
    sizer: Sizer
    slurm: Slurm

    def cycle(self, state: State, now: float) -> None:
        """Change jobs."""
        self.lifter.cycle(state, now)
        self.sizer.cycle(state, now)


def sized(choose: Choose, *, speeds: MakeSpeeds = forecast_speeds, is_true: bool = False) -> SlurmPolicy:
    """Return lifts with sizes; what `is_true` knows the true run times and speeds, the rest time limits."""
    sizes = Sizes(speeds=true_speeds if is_true else speeds, choose=choose, knows_run_s=is_true)

    def begin(problem: Problem, slurm: Slurm) -> SlurmRun:
        run_times = (by_run_times if is_true else by_limits)(problem, slurm)
        lifter = Mover(problem, slurm, run_times)
        changer = LiftAndSize(lifter=lifter, sizer=sizes.sizer(problem, lifter), slurm=slurm)
        return partial(changed_slurm, changer, problem.options.advise_every_s)

    return SlurmPolicy(name="sized", summary="", begin=begin)


def noisy_speeds(error: float) -> MakeSpeeds:
    """Return true speeds off by a share, up or down by a fair coin for each job and size; never at the size asked.

    Every policy meets the same errors.
    """

    def speeds(problem: Problem, cluster: SimulatedSlurm) -> SpeedOf:
        exact, seed = true_speeds(problem, cluster), int(problem.rng.integers(2**31))

        def speed_of(job: Job) -> JobForecast:
            forecast, rng = exact(job), np.random.default_rng([seed, job.job_id])
            sizes = sorted({place.gpus for place in forecast.speed_by_placement})
            factors = dict(zip(sizes, rng.choice((1.0 - error, 1.0 + error), len(sizes)).tolist(), strict=True))
            factors[job.gang.gpu_count or 0] = 1.0
            return replace(
                forecast,
                speed_by_placement={
                    place: _times(speed, factors[place.gpus]) for place, speed in forecast.speed_by_placement.items()
                },
            )

        return speed_of

    return speeds


def _times(speed: Interval, factor: float) -> Interval:
    return Interval(low=speed.low * factor, median=speed.median * factor, high=speed.high * factor)


def by_share(steps: Steps, supply: Supply) -> Reals:
    """Return DRF's score: while idle GPUs are left, the job with the fewest GPUs is next.

    On Slurm only jobs that wait share, and GPUs are the only resource that sizes change.
    """
    return np.where(_fits(steps, supply), 1.0 / steps.gpus, 0.0)


def by_fit(steps: Steps, supply: Supply) -> Reals:
    """Return Tetris' score: while idle GPUs are left, what fits them best and has little work left is next.

    Its weight makes the mean of the fits equal to that of the work, over the steps that are legal.
    """
    fit = steps.gpus_after * supply.idle / supply.capacity**2
    work = steps.gpus_after * steps.run_after_s
    legal = steps.is_legal
    weight = fit[legal].mean() / work[legal].mean() if legal.any() else 0.0
    cost = weight * work - fit
    return np.where(_fits(steps, supply), np.exp(cost.min() - cost), 0.0)


def _fits(steps: Steps, supply: Supply) -> Reals:
    """Return whether the jobs of the window fit on the idle GPUs after a step."""
    taken = steps.gpus[..., 0, :].sum(axis=-1)
    return np.asarray(taken + steps.gpus_after - steps.gpus <= supply.idle)


def by_network(network: PerOption) -> StepScorer:
    """Return the scores of a trained network for one window."""

    def score(steps: Steps, _supply: Supply) -> Reals:
        scores = np.full(steps.is_legal.shape, -np.inf)
        with torch.no_grad():
            options = torch.from_numpy(steps.columns[steps.is_legal].astype(np.float32))
            scores[steps.is_legal] = network(options).numpy()
        return scores

    return score


DEFAULT: Final = "lifts, sizes as asked"
PRICE: Final = "price"
_gain: Final[Choose] = by_score(by_gain)
_price: Final[Choose] = by_score(by_price)
# The first is the default of the advisor, with which all are compared.
RULES: Final = (
    Rival(name=DEFAULT, policy="lift"),
    Rival(name="plain Slurm", policy="slurm"),
    Rival(name="lifts and the rules for sizes", policy="lift+sizes", speeds="estimated", most=32),
    Rival(name=PRICE, policy=sized(_price)),
    Rival(name="Optimus, exact speeds", policy=sized(_gain, speeds=true_speeds)),
    Rival(name="Optimus, fitted speeds", policy=sized(_gain)),
    Rival(name="Optimus, 5 % error", policy=sized(_gain, speeds=noisy_speeds(0.05))),
    Rival(name="Optimus, 10 % error", policy=sized(_gain, speeds=noisy_speeds(0.1))),
    Rival(name="DRF", policy=sized(by_score(by_share))),
    Rival(name="Tetris", policy=sized(by_score(by_fit))),
    Rival(name=f"{DEFAULT}, {TRUTH}", policy="lift-oracle"),
    Rival(name=f"{PRICE}, {TRUTH}", policy=sized(_price, is_true=True), beside=f"{DEFAULT}, {TRUTH}"),
    Rival(name=f"Optimus, {TRUTH}", policy=sized(_gain, is_true=True), beside=f"{DEFAULT}, {TRUTH}"),
)


def learned(name: str, run: Path, file: str, beside: str) -> list[Rival]:
    """Return what a run learnt, by what sites know, and for whole recipes by the truth as well."""
    choose, weights = by_score(by_network(network_of(run, file))), (run / file).read_bytes()
    rivals = [Rival(name=name, policy=sized(choose), beside=beside, weights=weights)]
    if beside == PRICE and file == "policy.pt":
        truth = sized(choose, is_true=True)
        rivals.append(Rival(name=f"{name}, {TRUTH}", policy=truth, beside=f"{PRICE}, {TRUTH}", weights=weights))
    return rivals


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
    rival: Rival, workloads: Mapping[int, SizeWorkload], seed: int, store: Path | None
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
    heads = (f"{results['workloads']} {results['words']}", "seeds", "mean JCT", "p99 JCT")
    rows = []
    for place, row in enumerate(results["rows"]):
        figures = (
            in_percent(row["against"][metric]) if place else shown(metric, row[metric]) for metric in METRICS[:2]
        )
        finished = f"{100.0 * row['finished_ratio']:.2f} %"
        against = beside(row["beside"], row["changes"]["mean_jct_s"] if row["changes"] else None)
        fewer = row["workloads"] < results["workloads"]
        name = f"{row['name']} ({row['workloads']} workloads)" if fewer else row["name"]
        rows.append([name, str(row["seeds"] or ""), *figures, finished, against])
    return markdown((*heads, "finished", "mean JCT beside"), rows)
