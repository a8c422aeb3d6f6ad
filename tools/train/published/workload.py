"""Draws the jobs of an episode: when they arrive, what they train, and for how long."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tools.train.published.setting import Published
from tools.train.published.speeds import length_epochs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """The jobs of an episode in order of arrival; all arrays `(n_jobs,)`."""

    arrival_slot: NDArray[np.int64]
    kind: NDArray[np.int64]
    epochs: Floats


def drawn(setting: Published, seed: int) -> Jobs:
    """Draw the jobs of one episode; the same seed gives the same jobs.

    In each slot at most `most_arrivals` jobs arrive, each with the probability of the pattern at this time of day; the
    first slot is a random time of day, and has a job.
    """
    rng = np.random.default_rng(seed)
    chance = daily_pattern(setting) / setting.pattern_most
    slots = int(np.ceil(4.0 * setting.jobs / (setting.most_arrivals * chance.mean()))) + setting.pattern_slots
    begin = rng.integers(setting.pattern_slots)
    arrivals = rng.binomial(setting.most_arrivals, chance[(begin + np.arange(slots)) % setting.pattern_slots])
    slot = np.repeat(np.arange(slots), arrivals)[: setting.jobs]
    ratio = np.array(setting.length_ratio)
    kind = rng.choice(len(setting.models), size=setting.jobs, p=ratio / ratio.sum())
    spread = rng.uniform(1.0 - setting.spread_ratio, 1.0 + setting.spread_ratio, setting.jobs)
    return Jobs(arrival_slot=slot - slot[0], kind=kind, epochs=length_epochs(setting)[kind] * spread)


def daily_pattern(setting: Published) -> Floats:
    """Return the relative arrivals of the slots of a day: one low and one peak, with the published moments.

    A cosine from 0 to 1, raised to the power that gives the mean, between the least and the greatest value.
    """
    wave = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(setting.pattern_slots) / setting.pattern_slots)
    wanted = (setting.pattern_mean - setting.pattern_least) / (setting.pattern_most - setting.pattern_least)
    low, high = 0.01, 100.0
    for _ in range(60):
        power = np.sqrt(low * high)
        low, high = (power, high) if (wave**power).mean() > wanted else (low, power)
    return np.asarray(setting.pattern_least + (setting.pattern_most - setting.pattern_least) * wave**power)
