"""Counts how often the intervals of `sadvise report` hold the truth, on made-up queues whose truth is known.

    python -m tools.bench experiment [--worlds 1000] [--seed 1]

Every world is a made-up queue: the level of congestion goes on from day to day (autocorrelation 0.6) and varies by a
factor of 2.2 either way, weekends are half as busy, three in ten jobs do not wait, the others' delays are log-normal,
and jobs come in bursts that share their delay. An effect multiplies the delays of treated days or partitions, or takes
ten minutes off each. "covered" is the share of worlds whose 95 % interval holds the true change; one without bounds
claims nothing and counts as right. "alarms" is the share whose interval leaves out no change: the false alarms where
there is no effect, the power where there is one.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.domain.experiment import BLOCK_DAYS
from advisor.trial.effect import HIGH_SHARE, OFFSET_S, change_of_ratio, ratio_interval, typical_ratio

JOBS_A_DAY = 200
BURST = 5
MINUTE_S = 60.0
WEEK_DAYS = 7
# The truth of what is no plain ratio is that of a queue as long as this.
LONG_DAYS = 20_000
CUT = "-10 min"
# By how much the delays of the treated are multiplied.
FACTORS: Mapping[str, float] = {"none": 1.0, "-10 %": 0.9, "-30 %": 0.7, "-50 %": 0.5, "+30 %": 1.3}
EFFECTS = (*FACTORS, CUT)
DESIGNS = (("day", 8), ("day", 15), ("day", 30), ("partition", 4), ("partition", 8))

Values = NDArray[np.float64]
Interval = tuple[float, float, float]
ESTIMATES: Mapping[str, Callable[[Values], Interval]] = {
    "mean": ratio_interval,
    "p95": ratio_interval,
    "typical": lambda pairs: typical_ratio(pairs + OFFSET_S),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """The figures of the days of a queue `(n_days, 2)`, mean and 95th percentile, as they are and ten minutes less."""

    plain: Values
    cut: Values

    def under(self, effect: str, figure: str) -> Values:
        """Return one figure of every day `(n_days,)` as it is under an effect."""
        column = int(figure == "p95")
        return self.cut[:, column] if effect == CUT else FACTORS[effect] * self.plain[:, column]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--worlds", type=int, default=1000, help="worlds for each line")
    parser.add_argument("--seed", type=int, default=1)


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    print(f"{options.worlds} worlds a line, seed {options.seed}, {JOBS_A_DAY} jobs a day")
    print(f"{'by':<10} {'blocks':>6} {'effect':<8} {'figure':<8} {'covered':>8} {'alarms':>7} {'unbounded':>10}")
    truths = _truths(options.seed)
    for by, blocks in DESIGNS:
        rng = np.random.default_rng([options.seed, blocks, len(by)])
        # One world serves all effects and figures of a design.
        worlds = [drawn_intervals(by, blocks, rng) for _ in range(options.worlds)]
        for effect, figure in worlds[0]:
            low, high = np.array([intervals[effect, figure][1:] for intervals in worlds]).T
            truth, unbounded = truths[effect, figure], np.isnan(low + high)
            covered = (unbounded | ((low <= truth) & (truth <= high))).mean()
            alarms = ((low > 1.0) | (high < 1.0)).mean()
            print(
                f"{by:<10} {blocks:>6} {effect:<8} {figure:<8} {covered:>8.1%} {alarms:>7.1%} "
                f"{unbounded.mean():>10.1%}",
                flush=True,
            )
    return 0


def drawn_intervals(by: str, blocks: int, rng: np.random.Generator) -> dict[tuple[str, str], Interval]:
    """Return ratio and interval of one world, by effect and figure."""
    return _by_day(blocks, rng) if by == "day" else _by_partition(blocks, rng)


def _by_day(blocks: int, rng: np.random.Generator) -> dict[tuple[str, str], Interval]:
    """Draw a world in blocks of two days."""
    queue = _queue(rng, 2 * blocks)
    treated = 2 * np.arange(blocks) + rng.integers(2, size=blocks)
    control = treated ^ 1
    return {
        (effect, figure): estimate(
            np.stack([queue.under(effect, figure)[treated], queue.under("none", figure)[control]], axis=1)
        )
        for effect in EFFECTS
        for figure, estimate in ESTIMATES.items()
    }


def _by_partition(blocks: int, rng: np.random.Generator) -> dict[tuple[str, str], Interval]:
    """Draw a world of two partitions, with as long before the experiment as it lasts.

    What takes ten minutes off has no truth here: its ratio depends on how busy a partition is.
    """
    before = blocks * BLOCK_DAYS["partition"]
    one, other = (_queue(rng, 2 * before, level=level) for level in rng.normal(size=2))
    intervals: dict[tuple[str, str], Interval] = {}
    for effect in FACTORS:
        for figure in ("mean", "p95"):
            days = np.stack([one.under("none", figure), other.under("none", figure)], axis=1)
            days[before:, 0] = one.under(effect, figure)[before:]
            pairs = days.reshape(2 * blocks, -1, 2).mean(axis=1)
            intervals[effect, figure] = change_of_ratio(pairs[blocks:], pairs[:blocks])
    return intervals


def _queue(rng: np.random.Generator, days: int, *, level: float = 0.0) -> Days:
    """Draw the queueing delays of the jobs of each day, and return their figures."""
    state = rng.normal()
    plain, cut = [], []
    for day in range(days):
        state = 0.6 * state + 0.8 * rng.normal()
        congestion = level + 0.8 * state - (np.log(2.0) if day % WEEK_DAYS >= 5 else 0.0)
        bursts = 1 + rng.poisson(JOBS_A_DAY / BURST * np.exp(0.2 * state))
        delays = (rng.random(bursts) < 0.7) * rng.lognormal(np.log(10 * MINUTE_S), 1.2, bursts) * np.exp(congestion)
        jobs = np.sort(np.repeat(delays, rng.integers(1, 2 * BURST, size=bursts)))
        plain.append((jobs.mean(), _high_end(jobs)))
        shorter = np.maximum(0.0, jobs - 10 * MINUTE_S)
        cut.append((shorter.mean(), _high_end(shorter)))
    return Days(plain=np.array(plain), cut=np.array(cut))


def _high_end(ascending: Values) -> float:
    """Return the 95th percentile as numpy has it, without sorting again."""
    at = HIGH_SHARE * (len(ascending) - 1)
    below = int(at)
    above = min(below + 1, len(ascending) - 1)
    return float(ascending[below] + (at - below) * (ascending[above] - ascending[below]))


def _truths(seed: int) -> dict[tuple[str, str], float]:
    """Return the true ratios by effect and figure: those of a very long queue with the effect and without."""
    queue = _queue(np.random.default_rng([seed, 0]), LONG_DAYS)
    return {
        (effect, figure): estimate(np.stack([queue.under(effect, figure), queue.under("none", figure)], axis=1))[0]
        for effect in EFFECTS
        for figure, estimate in ESTIMATES.items()
    }
