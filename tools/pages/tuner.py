"""The page of the auto-tuner: against the best fixed timers, which only hindsight finds, and after a step."""

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from math import isnan
from pathlib import Path
from typing import Final

import numpy as np
from joblib import Parallel, delayed

import advisor
from advisor.domain.units import duration
from advisor.sim.policies.dally import Timers
from advisor.sim.study.result import RunResult
from advisor.view.wording import change_in_words, shown
from tools.dally import load_steps
from tools.dally.load_steps import AFTER_H, FREQUENT_S, HIGH_LOAD, LOW_LOAD, RARE_S, Followed
from tools.dally.running import TIERS, TUNED_NAME, name_of, simulate_timers, timers_of
from tools.pages.dally import Corner, best_of, by_name, change_of, mean_over_seeds, tasks_of
from tools.pages.page_experiment import Experiment, Runner
from tools.pages.page_text import render, table

TARGET_PERCENT: Final = 10.0
METRIC: Final = "mean_jct_s"
LOAD_STEPS: Final = ((LOW_LOAD, HIGH_LOAD), (HIGH_LOAD, LOW_LOAD))
PLACE_STEPS: Final = ((FREQUENT_S, RARE_S), (RARE_S, FREQUENT_S))
STEP_HEADS: Final = (
    "before:",
    *(f"{hour} h after:" for hour in AFTER_H),
    "new level:",
    f"covered after {load_steps.ASKED_H} h:",
    "reached",
)

# By corner and name: one result for each seed.
Regrets = Mapping[Corner, Mapping[str, Sequence[RunResult]]]


def make(experiment: Experiment, runner: Runner, command: str, data: Path | None) -> str:  # noqa: ARG001 - draws its own
    """Simulate, and return the page."""
    head = render("tuner", command=command, version=advisor.__version__, jobs=experiment.jobs, seeds=experiment.seeds)
    regrets = regret_section(run_regrets(experiment, runner))
    return "\n\n".join([head, regrets, step_section(experiment.seeds, runner.workers)]) + "\n"


def pairs(lengths_s: Sequence[float]) -> list[Timers]:
    """Return all pairs of timers for the fewest nodes and for one leaf."""
    return list(combinations_with_replacement(sorted(lengths_s), 2))


def run_regrets(experiment: Experiment, runner: Runner) -> Regrets:
    """Run every corner under tuned timers and under all fixed ones."""
    names = [TUNED_NAME, *(name_of(timers) for timers in pairs(experiment.timers_s))]
    results = runner.results(list(tasks_of(experiment, names, unlimited=False)), simulate_timers)
    return {corner: by_name(own) for corner, own in results.items()}


def regret_section(regrets: Regrets) -> str:
    """Return the part of the page about fixed timers."""
    fixed = [name for name in next(iter(regrets.values())) if name != TUNED_NAME]
    within = 0
    rows = []
    for corner, own in regrets.items():
        best, worst = best_of(fixed, own), max(fixed, key=lambda name: mean_over_seeds(METRIC, own[name]))
        regret = change_of(own[best], own[TUNED_NAME], METRIC)
        is_within = regret.percent <= TARGET_PERCENT
        within += is_within
        rows.append(
            [
                corner.name,
                pair_in_words(best),
                shown(METRIC, mean_over_seeds(METRIC, own[best])),
                shown(METRIC, mean_over_seeds(METRIC, own[TUNED_NAME])),
                change_in_words(regret),
                "yes" if is_within else "no",
                pair_in_words(worst),
                "none" if worst == best else change_in_words(change_of(own[best], own[worst], METRIC)),
            ]
        )

    def largest(name: str) -> float:
        return max(_regret_percent(own, fixed, name) for own in regrets.values())

    chosen = min(fixed, key=largest)
    lengths_s = sorted({length_s for name in fixed for length_s in timers_of(name)})
    heads = ("best fixed", "its mean JCT:", "tuned:", "regret:", "reached", "worst fixed", "its change:")
    return render(
        "tuner",
        "regret",
        lengths=", ".join(map(duration, lengths_s)),
        pairs=len(fixed),
        target=TARGET_PERCENT,
        table=table(("corner", *heads), rows),
        within=within,
        corners=len(regrets),
        chosen=pair_in_words(chosen),
        largest=largest(chosen),
        largest_tuned=largest(TUNED_NAME),
    )


def _regret_percent(own: Mapping[str, Sequence[RunResult]], fixed: Sequence[str], name: str) -> float:
    best = best_of(fixed, own)
    return 0.0 if name == best else change_of(own[best], own[name], METRIC).percent


def pair_in_words(name: str) -> str:
    """Return the timers of a name."""
    return " / ".join(duration(timer_s) for timer_s in timers_of(name))


def step_section(seeds: int, workers: int) -> str:
    """Run the steps, and return the part of the page about them."""
    return render(
        "tuner",
        "steps",
        seeds=seeds,
        s=load_steps,
        asked_s=load_steps.ASKED_H * 3600.0,
        target=100 * load_steps.TARGET_RATIO,
        least=100 * load_steps.LEAST_STEP_RATIO,
        most_s=load_steps.SAVES_S[-1],
        loads=_loads(seeds, workers),
        places=_places(seeds, workers),
    )


def _loads(seeds: int, workers: int) -> str:
    calls = [delayed(load_steps.load_curves)(seed, *step) for step in LOAD_STEPS for seed in range(seeds)]
    curves = np.array(Parallel(n_jobs=workers)(calls))
    rows = []
    for (before, after), of_step in zip(LOAD_STEPS, np.split(curves, len(LOAD_STEPS)), strict=True):
        # `of_step` is (n_seeds, n_saves, n_tiers, n_times).
        for saves, saved_s in enumerate(load_steps.SAVES_S):
            for column, tier in enumerate(TIERS):
                cells = _cells(load_steps.followed(of_step[:, saves, column]))
                rows.append([f"{before:g} to {after:g}", duration(saved_s), tier.name.lower(), *cells])
    return table(("load", "saves:", "tier", *STEP_HEADS), rows)


def _places(seeds: int, workers: int) -> str:
    cases = [(*step, rate) for step in PLACE_STEPS for rate in load_steps.GANGS_PER_H]
    calls = [delayed(load_steps.place_curve)(seed, *case) for case in cases for seed in range(seeds)]
    curves = np.array(Parallel(n_jobs=workers)(calls))
    rows = (
        [f"{duration(before_s)} to {duration(after_s)}", f"{rate:g}", *_cells(load_steps.followed(of_case))]
        for (before_s, after_s, rate), of_case in zip(cases, np.split(curves, len(cases)), strict=True)
    )
    return table(("mean time until a place", "gangs an hour:", *STEP_HEADS), rows)


def _cells(row: Followed) -> list[str]:
    timers = map(duration, [row.before_s, *row.after_s.values(), row.level_s])
    if isnan(row.covered):
        return [*timers, "", "no step"]
    covered = f"{100 * row.covered:.0f} % ({100 * row.low:.0f} to {100 * row.high:.0f})"
    return [*timers, covered, "yes" if row.covered >= load_steps.TARGET_RATIO else "no"]
