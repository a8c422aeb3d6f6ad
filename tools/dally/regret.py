"""How much longer jobs take under tuned timers than under the best fixed ones, which only hindsight tells."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Final

from advisor.planning.words import duration
from advisor.sim.comparison import mean_of
from advisor.sim.policies.dally import Timers
from advisor.sim.result import RunResult
from advisor.sim.sweep import run_sweep
from advisor.sim.wording import change_in_words, shown
from tools.bench_dally import tasks_of, told
from tools.dally.page import Corner, best_of, change_of, paragraph
from tools.dally.running import TUNED_NAME, name_of, simulate_timers, timers_of

LOADS: Final = (None, 0.7, 0.9, 1.1)
OVERSUBSCRIPTIONS: Final = (1.0, 4.0, 10.0)
# Timers for the fewest nodes and for one leaf; the second is never shorter.
GRID_S: Final = (0.0, 300.0, 1200.0, 3600.0, 14_400.0, 86_400.0)
TARGET_PERCENT: Final = 10.0
METRIC: Final = "mean_jct_s"

# By corner and name: one result for each seed.
Regrets = Mapping[Corner, Mapping[str, Sequence[RunResult]]]


def pairs(lengths_s: Sequence[float]) -> list[Timers]:
    """Return all pairs of timers for the fewest nodes and for one leaf."""
    return list(combinations_with_replacement(sorted(lengths_s), 2))


def run_regrets(
    seeds: int,
    jobs: int,
    *,
    lengths_s: Sequence[float] = GRID_S,
    loads: Sequence[float | None] = LOADS,
    oversubscriptions: Sequence[float] = OVERSUBSCRIPTIONS,
    store: Path | None,
    workers: int,
) -> Regrets:
    """Run every corner under tuned timers and under all fixed ones."""
    names = [TUNED_NAME, *(name_of(timers) for timers in pairs(lengths_s))]
    tasks = [(task.corner, task.cell) for task in tasks_of(names, loads, oversubscriptions, seeds, jobs) if task.corner]
    cells = [cell for _, cell in tasks]
    results = run_sweep(cells, store=store, workers=workers, simulate=simulate_timers, progress=told(len(cells)))
    found: dict[Corner, dict[str, list[RunResult]]] = {}
    for (corner, cell), result in zip(tasks, results, strict=True):
        found.setdefault(corner, {}).setdefault(cell.policy, []).append(result)
    return found


def regret_section(regrets: Regrets) -> Iterator[str]:
    """Yield the part of the page."""
    fixed = [name for name in next(iter(regrets.values())) if name != TUNED_NAME]
    yield "## Against the best fixed timers"
    yield ""
    yield from paragraph(
        f"""Fixed timers are the same for every gang that the network slows, however much. Every pair of
        {", ".join(duration(length_s) for length_s in lengths_of(fixed))} was run, the first for the fewest nodes, the
        second, never shorter, for one leaf: {len(fixed)} pairs. The best is the one with the lowest mean JCT over the
        seeds of its row, known only afterwards and chosen by the very runs it is judged by, which favours it. Regret
        is the change of the mean JCT from it to tuned timers: at most {TARGET_PERCENT:g} % is asked. How
        much longer jobs take under the worst pair tells what is at stake."""
    )
    yield "| corner | best fixed | its mean JCT | tuned | regret | reached | worst fixed | its change |"
    yield "|---|---|--:|--:|--:|---|---|--:|"
    within = 0
    for corner, own in regrets.items():
        best, worst = best_of(fixed, own), max(fixed, key=lambda name: mean_jct_s(own[name]))
        regret = change_of(own[best], own[TUNED_NAME], METRIC)
        is_within = regret.percent <= TARGET_PERCENT
        within += is_within
        cells = (
            corner.name,
            pair_in_words(best),
            shown(METRIC, mean_jct_s(own[best])),
            shown(METRIC, mean_jct_s(own[TUNED_NAME])),
            change_in_words(regret),
            "yes" if is_within else "no",
            pair_in_words(worst),
            "none" if worst == best else change_in_words(change_of(own[best], own[worst], METRIC)),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from paragraph(f"Within {TARGET_PERCENT:g} %: {within} of {len(regrets)} corners.")
    yield from _one_pair(regrets, fixed)


def _one_pair(regrets: Regrets, fixed: Sequence[str]) -> Iterator[str]:
    """Yield what the best pair for all corners would cost, since a site has to choose one."""

    def largest(name: str) -> float:
        return max(_regret_percent(own, fixed, name) for own in regrets.values())

    chosen = min(fixed, key=largest)
    yield from paragraph(
        f"""A site that fixes its timers has to choose one pair for all. The one whose largest regret over the corners
        is least is {pair_in_words(chosen)}: {largest(chosen):.1f} %. That of tuned timers is
        {largest(TUNED_NAME):.1f} %."""
    )


def _regret_percent(own: Mapping[str, Sequence[RunResult]], fixed: Sequence[str], name: str) -> float:
    best = best_of(fixed, own)
    return 0.0 if name == best else change_of(own[best], own[name], METRIC).percent


def lengths_of(names: Sequence[str]) -> list[float]:
    """Return the lengths of all timers in names, shortest first."""
    return sorted({length_s for name in names for length_s in timers_of(name)})


def pair_in_words(name: str) -> str:
    """Return the timers of a name."""
    return " / ".join(duration(timer_s) for timer_s in timers_of(name))


def mean_jct_s(results: Sequence[RunResult]) -> float:
    """Return the mean over seeds of the mean JCT."""
    return mean_of(METRIC, {result.cell: result for result in results})
