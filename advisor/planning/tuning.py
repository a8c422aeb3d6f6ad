"""Tunes delay timers: how long it pays a gang to wait for a place close together.

From the waits of gangs of one class follows at what rate places come free for them, by how long they have waited: the
piecewise exponential model of survival analysis (Friedman, Annals of Statistics 1982), in which a wait that was given
up counts for as long as it lasted and no longer. A recent wait weighs more than an old one, and a few imagined ones,
with the mean of the settings, decide where nothing was seen. The timer is the wait T that is worth most,

    worth x P(place within T) - expected wait up to T,

and no longer than what the place can still save to this very job. Our interpretation of Dally, whose tuner is not
published: a mean wait plus one standard deviation knows neither what a wait saves nor the waits that were given up.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.memory import Wait, gang_class
from advisor.domain.topology import LocalityTier
from advisor.settings import PlanningSettings

# Within these bounds of the time waited, and beyond the last, places come free at one rate.
EDGES_S = np.array([0.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, np.inf])
# A wait weighs half after the memory; beyond this number of memories it is forgotten.
MEMORIES = 6.0
# Of places that come at random, 19 in 20 come within this number of mean waits.
UNSEEN_MEANS = 3.0

Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What the tuner assumes where nothing was seen, and how it forgets.

    `expected_s` are mean waits by tier and count for `imagined` waits; one that was seen counts half after
    `memory_s`.
    """

    expected_s: Mapping[LocalityTier, float]
    imagined: float
    memory_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen lately of one class and tier: `got` of `gangs` got a place, nine in ten of these by `within_s`."""

    gangs: int
    got: int
    within_s: float


def rates(waits: Iterable[Wait], now: float, tuning: Tuning, tier: LocalityTier) -> Rates:
    """Return places per second of waiting between `EDGES_S`, `(n_edges - 1,)`, from the waits of one class and tier."""
    # In one order, so that sums agree to the last bit.
    known = sorted(waits, key=lambda wait: (wait.ended_time, wait.waited_s, wait.got))
    waited_s = np.array([wait.waited_s for wait in known])
    got = np.array([wait.got for wait in known], np.bool_)
    weight = 0.5 ** (np.array([now - wait.ended_time for wait in known]) / tuning.memory_s)
    low_s, high_s = EDGES_S[:-1, None], EDGES_S[1:, None]
    spent_s = (np.clip(waited_s, low_s, high_s) - low_s) @ weight  # (n_edges - 1,)
    places = ((low_s < waited_s) & (waited_s <= high_s) & got) @ weight
    # Where a stretch saw little, the rate over all of them decides; where all saw little, the settings.
    overall = (places.sum() + tuning.imagined) / (spent_s.sum() + tuning.imagined * tuning.expected_s[tier])
    rate_per_s: Rates = (places + tuning.imagined) / (spent_s + tuning.imagined / overall)
    return rate_per_s


def best_wait_s(rate_per_s: Rates, worth_s: float, bound_s: float) -> float:
    """Return the wait up to `bound_s` that is worth most, 0 where none is worth anything.

    `engine/delay_scheduling.c` of the simulator repeats this and `timer_s` to the byte.
    """
    best_s, most = 0.0, 0.0
    for end_s, worth in _worths(rate_per_s, worth_s, bound_s):
        if worth > most:
            best_s, most = end_s, worth
    return best_s


def mean_gain_s(rate_per_s: Rates, worth_s: float, wait_s: float) -> float:
    """Return what a wait up to `wait_s` gains on average, where a place is worth `worth_s`; below 0 for a loss."""
    gain_s = 0.0
    for _, gain_s in _worths(rate_per_s, worth_s, wait_s):  # noqa: B007  (the last is that of the whole wait)
        pass
    return gain_s


def _worths(rate_per_s: Rates, worth_s: float, bound_s: float) -> Iterator[tuple[float, float]]:
    """Yield what waits are worth that end with a stretch between `EDGES_S`, each with its length."""
    worth = 0.0
    waiting = 1.0  # the probability to be still waiting
    for stretch in range(len(rate_per_s)):
        begin_s, end_s = EDGES_S[stretch], min(EDGES_S[stretch + 1], bound_s)
        if end_s <= begin_s:
            return
        rate = rate_per_s[stretch]
        ends = 1.0 - math.exp(-rate * (end_s - begin_s))
        # A place ends the wait at this rate, so a stretch pays throughout or not at all.
        worth += waiting * ends * (worth_s - 1.0 / rate)
        waiting *= 1.0 - ends
        yield end_s, worth


def timer_s(
    rate_per_s: Rates, run_s: float, inflation: float, inflation_there: float, least_inflation: float, bound_s: float
) -> float:
    """Return how long a gang waits for a closer place up to `bound_s`, 0 where it takes the one it can have.

    It runs for `run_s` on its best place, and `inflation` times as long where it is now, `inflation_there` on the
    closer place. Below `least_inflation` it does not wait, and never for longer than what the closer place saves.
    """
    if inflation < least_inflation:
        return 0.0
    saved_s = run_s * max(0.0, inflation - inflation_there)
    return best_wait_s(rate_per_s, saved_s, min(saved_s, bound_s))


def tuning_of(settings: PlanningSettings) -> Tuning:
    """Return what the settings assume."""
    return Tuning(
        expected_s={LocalityTier.NODE: settings.node_timer_s, LocalityTier.LEAF: settings.leaf_timer_s},
        imagined=settings.timer_imagined,
        memory_s=settings.timer_memory_s,
    )


class Tuner:
    """The rates and timers that follow from the waits of all classes and tiers at one instant."""

    def __init__(self, waits: Iterable[Wait], now: float, tuning: Tuning) -> None:
        """Sort the waits that are not forgotten by class and tier."""
        self._now = now
        self._tuning = tuning
        self._waits: dict[tuple[int, LocalityTier], list[Wait]] = {}
        self._rates: dict[tuple[int, LocalityTier], Rates] = {}
        for wait in waits:
            if now - wait.ended_time <= MEMORIES * tuning.memory_s:
                self._waits.setdefault((gang_class(wait.gpus), wait.tier), []).append(wait)

    def rates(self, gpus: int, tier: LocalityTier) -> Rates:
        """Return the rates of a gang's class and a tier, as `rates` does."""
        key = (gang_class(gpus), tier)
        if key not in self._rates:
            self._rates[key] = rates(self._waits.get(key, ()), self._now, self._tuning, tier)
        return self._rates[key]

    def most_s(self, gpus: int, tier: LocalityTier) -> float:
        """Return the longest timer of a class: infinity, or what the settings bear out where none was seen."""
        is_seen = (gang_class(gpus), tier) in self._waits
        return float("inf") if is_seen else UNSEEN_MEANS * self._tuning.expected_s[tier]

    def seen(self, gpus: int, tier: LocalityTier) -> Seen:
        """Return the waits seen of a gang's class, summed up."""
        waits = self._waits.get((gang_class(gpus), tier), ())
        got_s = [wait.waited_s for wait in waits if wait.got]
        within_s = float(np.quantile(got_s, 0.9, method="higher")) if got_s else 0.0
        return Seen(gangs=len(waits), got=len(got_s), within_s=within_s)
