"""Measures how soon tuned timers follow a step: of the load in the simulator, and of how often places come free."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.topology import LocalityTier
from advisor.domain.waits import Wait
from advisor.planning.tuning import Tuner, tuning_of
from advisor.settings import PlanningSettings
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.dally import TUNED_EVERY_S
from advisor.sim.runner import SimulationOptions
from advisor.sim.study.cell import Cell
from advisor.sim.traces.trace import Trace
from tools.dally.running import TUNED_NAME, Watch, run_watched, timer_worth
from tools.dally.workload import HOUR_S, NIC_GBPS, cluster_text, make_trace

GANG_GPUS: Final = 16
LOW_LOAD, HIGH_LOAD = 0.4, 1.2
HALF_S: Final = 48 * HOUR_S
OVERSUBSCRIPTION: Final = 10.0
# More than are submitted in both halves.
DRAWN_JOBS: Final = 1500
SAVES_S: Final = (1200.0, 1800.0, 7200.0)

EVERY_S: Final = 600.0
BEFORE_S: Final = 12 * HOUR_S
LEVEL_S: Final = 24 * HOUR_S
AFTER_H: Final = (1, 2, 3)
ASKED_H: Final = 2
TARGET_RATIO: Final = 0.8
# A level that differs by less than this share of the higher one is no step.
LEAST_STEP_RATIO: Final = 0.1
RESAMPLES: Final = 10_000

FREQUENT_S, RARE_S = 600.0, 4 * HOUR_S
GANGS_PER_H: Final = (2.0, 8.0)
TICK_S: Final = 60.0

Curves = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The mean timer over seeds before a step, hours after it, and at its new level.

    `covered` is how much of the way was covered after `ASKED_H`, with both ends of a 95 % interval over seeds; all NaN
    where there is no step.
    """

    before_s: float
    after_s: Mapping[int, float]
    level_s: float
    covered: float
    low: float
    high: float


def sampled_times() -> NDArray[np.float64]:
    """Return the instants at which timers are read, `(n_times,)`; the step is at `HALF_S`."""
    return np.arange(0.0, 2.0 * HALF_S, EVERY_S)


def followed(curves: Curves) -> Followed:
    """Read timers, `(n_seeds, n_times)` at `sampled_times`, before and after the step."""
    times = sampled_times()
    before = curves[:, (times >= HALF_S - BEFORE_S) & (times < HALF_S)].mean(axis=1)
    level = curves[:, times >= 2.0 * HALF_S - LEVEL_S].mean(axis=1)
    after = {hour: curves[:, np.searchsorted(times, HALF_S + hour * HOUR_S)] for hour in AFTER_H}
    covered = low = high = float("nan")
    drawn = np.random.default_rng(0).integers(len(curves), size=(RESAMPLES, len(curves)))
    way = (level - before)[drawn].mean(axis=1)
    way_ends = np.quantile(way, (0.025, 0.975))
    least_s = LEAST_STEP_RATIO * max(before.mean(), level.mean())
    if way_ends.prod() > 0.0 and abs(level.mean() - before.mean()) >= least_s:
        done = (after[ASKED_H] - before)[drawn].mean(axis=1)
        low, high = np.quantile(done[way != 0.0] / way[way != 0.0], (0.025, 0.975)).tolist()
        covered = float((after[ASKED_H] - before).mean() / (level - before).mean())
    return Followed(
        before_s=float(before.mean()),
        after_s={hour: float(timers_s.mean()) for hour, timers_s in after.items()},
        level_s=float(level.mean()),
        covered=covered,
        low=low,
        high=high,
    )


def step_trace(seed: int, before_load: float, after_load: float) -> Trace:
    """Draw the jobs of a seed, submitted at one load up to `HALF_S` and at another for as long again."""
    trace = make_trace(seed, DRAWN_JOBS, 1.0)
    # What a load of 1 would have submitted by then is submitted by `HALF_S`.
    turn = HALF_S * before_load
    at_one = trace.jobs["submit_time"]
    times = np.where(at_one < turn, at_one / before_load, HALF_S + (at_one - turn) / after_load)
    jobs = trace.jobs.copy()
    jobs["submit_time"] = times
    return replace(trace, jobs=jobs[times < 2.0 * HALF_S])


def load_curves(seed: int, before_load: float, after_load: float) -> Curves:
    """Return the timers of a standard gang by what it saves and by tier, `(n_saves, n_tiers, n_times)`."""
    cell = Cell(
        trace=step_trace(seed, before_load, after_load),
        cluster=parse_cluster(cluster_text(OVERSUBSCRIPTION, NIC_GBPS)),
        policy=TUNED_NAME,
        seed=seed,
        options=SimulationOptions(),
    )
    watch = Watch(times=sampled_times().tolist(), gpus=GANG_GPUS, worths_s=SAVES_S)
    run_watched(cell, watch)
    return np.moveaxis(np.array(watch.timers_s), 0, -1)


def place_curve(
    seed: int, before_s: float, after_s: float, gangs_per_h: float, settings: PlanningSettings | None = None
) -> Curves:
    """Return the node timer of a standard gang where places come by chance, `(n_times,)`.

    It saves the most of `SAVES_S`. Gangs come by a Poisson process; each waits until its place comes, after `before_s`
    on average and from `HALF_S` on after `after_s`, or until its timer ends.
    """
    stream = np.random.default_rng(seed)
    tuning = tuning_of(settings or PlanningSettings())
    worth_s, timer_s = SAVES_S[-1], 0.0
    known: list[Wait] = []
    since: list[float] = []
    timers_s = []
    for now in np.arange(0.0, 2.0 * HALF_S, TICK_S).tolist():
        if now % TUNED_EVERY_S == 0.0:
            still = [
                Wait(gpus=GANG_GPUS, tier=LocalityTier.NODE, waited_s=now - begin, got=False, ended_time=now)
                for begin in since
                if begin < now
            ]
            tuner = Tuner([*known, *still], now, tuning)
            timer_s = timer_worth(tuner, GANG_GPUS, LocalityTier.NODE, worth_s)
        if now % EVERY_S == 0.0:
            timers_s.append(timer_s)
        chance = 1.0 - np.exp(-TICK_S / (before_s if now < HALF_S else after_s))
        got = stream.random(len(since)) < chance
        over = np.array([now - begin >= timer_s for begin in since], np.bool_)
        for begin, is_got in zip(np.array(since)[got | over].tolist(), got[got | over].tolist(), strict=True):
            if now > begin:
                wait = Wait(gpus=GANG_GPUS, tier=LocalityTier.NODE, waited_s=now - begin, got=is_got, ended_time=now)
                known.append(wait)
        since = [begin for begin, ends in zip(since, got | over, strict=True) if not ends]
        comes = int(stream.poisson(gangs_per_h * TICK_S / HOUR_S))
        if timer_s > 0.0:
            since += [now] * comes
    return np.array(timers_s)
