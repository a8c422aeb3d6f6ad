"""The part of the tuner's page about steps."""

from collections.abc import Iterator, Sequence
from math import isnan

import numpy as np
from joblib import Parallel, delayed

from advisor.planning.words import duration
from tools.bench_dally import told
from tools.dally.page import paragraph
from tools.dally.running import TIERS
from tools.dally.steps import (
    AFTER_H,
    ASKED_H,
    BEFORE_S,
    FREQUENT_S,
    GANG_GPUS,
    GANGS_PER_H,
    HALF_S,
    HIGH_LOAD,
    LEAST_STEP_RATIO,
    LEVEL_S,
    LOW_LOAD,
    OVERSUBSCRIPTION,
    RARE_S,
    SAVES_S,
    TARGET_RATIO,
    Curves,
    Followed,
    followed,
    load_curves,
    place_curve,
)

STEPS = ((LOW_LOAD, HIGH_LOAD), (HIGH_LOAD, LOW_LOAD))
PLACE_STEPS = ((FREQUENT_S, RARE_S), (RARE_S, FREQUENT_S))
HOURS = " | ".join(f"{hour} h after" for hour in AFTER_H)
HEAD = f"| before | {HOURS} | new level | covered after {ASKED_H} h | reached |"
RULE = "--:|" * (len(AFTER_H) + 2) + "--:|---|"


def step_section(seeds: int, workers: int) -> Iterator[str]:
    """Run the steps, and yield the part of the page."""
    yield "## How soon timers follow a step"
    yield ""
    yield from paragraph(
        f"""The timer is the one that `Tuner.timer_s` gives a gang of {GANG_GPUS} GPUs that saves as much as the row
        says, and waits that long at most; means over {seeds} seeds, read every 10 minutes. Before is the mean over the
        last {duration(BEFORE_S)} before the step, the new level that over the last {duration(LEVEL_S)} of the
        {duration(HALF_S)} after it. Covered is how much of the way from one to the other lies behind
        {duration(ASKED_H * 3600.0)} after the step, with the 95 % interval over seeds;
        {100 * TARGET_RATIO:g} % is asked. Where the levels differ by less than {100 * LEAST_STEP_RATIO:g} %, or
        not clearly over the seeds, there is no step to follow."""
    )
    yield from _loads(seeds, workers)
    yield from _places(seeds, workers)


def _loads(seeds: int, workers: int) -> Iterator[str]:
    yield "### Of the load, in the simulator"
    yield ""
    yield from paragraph(
        f"""The workload and the cluster of [dally.md](dally.md), oversubscription {OVERSUBSCRIPTION:g}:1, with Poisson
        arrivals at one load for {duration(HALF_S)} and at another for as long again. A cluster takes hours to fill or
        to empty after the load has changed, and the timers follow the places that come free, not the load."""
    )
    yield f"| load | saves | tier {HEAD}"
    yield f"|---|--:|---|{RULE}"
    work = [(seed, *step) for step in STEPS for seed in range(seeds)]
    found = _on_cores([delayed(load_curves)(*each) for each in work], workers)
    for place, (before, after) in enumerate(STEPS):
        curves = np.array(found[place * seeds : (place + 1) * seeds])  # (n_seeds, n_saves, n_tiers, n_times)
        for saves, saved_s in enumerate(SAVES_S):
            for column, tier in enumerate(TIERS):
                row = followed(curves[:, saves, column])
                yield f"| {before:g} to {after:g} | {duration(saved_s)} | {tier.name.lower()} {_cells(row)}"
    yield ""


def _places(seeds: int, workers: int) -> Iterator[str]:
    yield "### Of how often places come, the tuner alone"
    yield ""
    yield from paragraph(
        f"""Gangs of {GANG_GPUS} GPUs that save {duration(SAVES_S[-1])} wait for the fewest nodes, each until its place
        comes, by chance and after the mean time of the row, or until its timer ends: no cluster, so that the step is
        one. Gangs that still wait tell how long they have. Where a place takes longer on average than it saves, the
        best timer is 0; but who does not wait learns nothing, what was seen is forgotten, and gangs try again, so that
        the level lies between."""
    )
    yield f"| mean time until a place | gangs an hour {HEAD}"
    yield f"|---|--:|{RULE}"
    cases = [(*step, rate) for step in PLACE_STEPS for rate in GANGS_PER_H]
    found = _on_cores([delayed(place_curve)(seed, *case) for case in cases for seed in range(seeds)], workers)
    for place, (before_s, after_s, rate) in enumerate(cases):
        row = followed(np.array(found[place * seeds : (place + 1) * seeds]))
        yield f"| {duration(before_s)} to {duration(after_s)} | {rate:g} {_cells(row)}"
    yield ""


def _on_cores(calls: Sequence[tuple[object, ...]], workers: int) -> list[Curves]:
    """Return what the calls return, in their order, and say how many are done."""
    tell = told(len(calls))
    found = []
    for curves in Parallel(n_jobs=workers, return_as="generator")(calls):
        found.append(curves)
        tell(len(found))
    return found


def _cells(row: Followed) -> str:
    timers = [row.before_s, *row.after_s.values(), row.level_s]
    covered, said = "", "no step"
    if not isnan(row.covered):
        covered = f"{100 * row.covered:.0f} % ({100 * row.low:.0f} to {100 * row.high:.0f})"
        said = "yes" if row.covered >= TARGET_RATIO else "no"
    return f"| {' | '.join([*map(duration, timers), covered, said])} |"
