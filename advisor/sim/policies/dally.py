"""Dally: gangs wait for a place close together as long as that pays, and leave what they decline to others.

Jobs are offered what is free in the order of submission; a job that declines blocks none behind it. A gang declines a
place that is further apart than the best it could have until its timer for a better tier ends. A timer counts the time
in which the gang had a place to decline. It comes from the auto-tuner (`advisor/planning/tuning.py`), and ends with
what the wait can save and with the bound on added delay.

Source: Sharma et al., arXiv 2401.16492; published are delay scheduling at these tiers, timers that follow past waits,
and no formulas. Our interpretation: the tuner, and that what a place costs is worked out for the nodes on offer, beside
the gangs that use their links now.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.memory import LARGEST_CLASS, Wait, gang_class
from advisor.domain.topology import LocalityTier
from advisor.planning.tuning import EDGES_S, Tuner, tuning_of
from advisor.settings import PlanningSettings
from advisor.sim.engine.tables import GangPatience, Integers
from advisor.sim.policies.engine_calls import best_tiers, offer
from advisor.sim.policies.rounds import RoundPolicy, RoundView
from advisor.sim.state import RUNNING

Rows = NDArray[np.intp]
# By tier; NaN takes the timer from the tuner.
Timers = tuple[float, float]

TUNED: Final[Timers] = (np.nan, np.nan)
TIERS: Final = (LocalityTier.NODE, LocalityTier.LEAF)
CLASSES: Final = LARGEST_CLASS.bit_length()
# How often rates are worked out, and from how many of the latest waits.
TUNED_EVERY_S: Final = 300.0
REMEMBERED: Final = 1024


@dataclass(slots=True)
class Dally:
    """The policy, with the waits that it saw; `fixed_s` are timers by tier in place of tuned ones."""

    fixed_s: Timers = TUNED
    _waits: deque[Wait] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    _still: list[Wait] = field(default_factory=list)
    _patience: GangPatience | None = None
    _tuned_time: float = -np.inf

    def __call__(self, view: RoundView) -> None:
        """Tune, make room, offer the free GPUs, and learn from the jobs that started."""
        patience = self._patience = self._patience or _patience(view, self.fixed_s)
        if view.now - self._tuned_time >= TUNED_EVERY_S and np.isnan(self.fixed_s).any():
            self._tune(view, patience)
        self.make_room(view, patience)
        pending = self.in_order(view, view.pending)
        offer(view.state, patience, Integers(pending.astype(np.int32)), view.now)
        for row in pending[view.jobs["phase"][pending] == RUNNING].tolist():
            self.learn(view, patience, row)

    def tuner(self, now: float, settings: PlanningSettings) -> Tuner:
        """Return the tuner of the waits seen up to an instant."""
        return Tuner(chain(self._waits, self._still), now, tuning_of(settings))

    def make_room(self, view: RoundView, patience: GangPatience) -> None:
        """Stop no job: a policy with preemption does."""

    def in_order(self, view: RoundView, pending: Rows) -> Rows:  # noqa: ARG002  (for policies with an order of their own)
        """Return the pending jobs in the order in which they are offered free GPUs: that of submission."""
        return pending

    def _tune(self, view: RoundView, patience: GangPatience) -> None:
        self._tuned_time = view.now
        # A wait that goes on holds as much evidence as one that was given up.
        self._still = [
            wait
            for row in view.pending[patience.declined_s[view.pending] > 0.0].tolist()
            for wait in _waits(view, row, float(patience.declined_s[row]), None)
        ]
        tuner = self.tuner(view.now, view.problem.options.planning)
        for code in range(CLASSES):
            for tier in TIERS:
                patience.rate_per_s[len(TIERS) * code + tier] = tuner.rates(1 << code, tier)

    def learn(self, view: RoundView, patience: GangPatience, row: int) -> None:
        """Remember how long a gang declined places before it started."""
        since_pass_s = view.now - patience.pass_time[0] if patience.declining[row] else 0.0
        waited_s = float(patience.declined_s[row] + since_pass_s)
        if waited_s > 0.0:
            self._waits.extend(_waits(view, row, waited_s, int(patience.reached[row])))
        patience.spent_s[row] += waited_s
        patience.declined_s[row] = 0.0
        patience.declining[row] = 0


def _waits(view: RoundView, row: int, waited_s: float, reached: int | None) -> Iterator[Wait]:
    """Yield a gang's wait for each tier, up to now; `reached` is the tier it starts at, None while it waits."""
    gpus = int(view.jobs["gpus"][row])
    for tier in TIERS:
        got = reached is not None and reached <= tier
        yield Wait(gpus=gpus, tier=tier, waited_s=waited_s, got=got, ended_time=view.now)


def _patience(view: RoundView, fixed_s: Timers) -> GangPatience:
    """Build the arrays at the first decision of a run, when no job runs yet."""
    jobs, options = view.jobs, view.problem.options
    shapes = int(jobs["shape"].max()) + 1
    patience = GangPatience(
        declined_s=np.zeros(len(jobs)),
        spent_s=np.zeros(len(jobs)),
        declining=np.zeros(len(jobs), np.int8),
        pass_time=np.array([view.now]),
        reached=np.full(len(jobs), -1, np.int8),
        gang_class=np.array([gang_class(int(gpus)).bit_length() - 1 for gpus in jobs["gpus"]], np.int32),
        edges_s=EDGES_S,
        rate_per_s=np.zeros((CLASSES * len(TIERS), len(EDGES_S) - 1)),
        fixed_s=np.array(fixed_s),
        least_inflation=np.array([options.planning.insensitive_inflation]),
        longest_s=np.array([options.limits.max_added_delay_s]),
        best_tier=np.zeros(shapes, np.int8),
        missing=np.zeros(shapes, np.int8),
    )
    one_of_each = np.unique(jobs["shape"], return_index=True)[1]
    best_tiers(view.state, patience, Integers(one_of_each.astype(np.int32)))
    return patience


def dally_policy(name: str, summary: str, make: Callable[[], Dally]) -> RoundPolicy:
    """Return a policy that decides whenever something happens."""
    return RoundPolicy(name=name, summary=summary, make=make, every_s=0.0)


POLICY = dally_policy("dally", "delay scheduling with timers that tune themselves (Dally)", Dally)
