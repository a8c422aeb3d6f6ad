"""Optimus: elastic jobs get GPUs where they shorten the time left the most.

    gain = (T(n) - T(n + 1)) / dominant share of one GPU,  T(n) = believed time left on n GPUs

Every round all jobs get their `gpus_min`, the one with the least time left first, and then GPU after GPU goes to the
highest gain, as long as it is above 0. Rigid jobs are so served by remaining time, with preemption.

Source: Peng et al., EuroSys 2018; the greedy rule as in the baseline released with DL2 (arXiv 1909.06040), without
parameter servers. Speeds: with `oracle` the profile's own; with `noisy=X` each is X percent off, up or down by a fair
coin for each job and size, where the coin of the size asked is that of the believed run time; with `estimated` the
published form for synchronous training, time per step = a / n + b + c n, is fitted by non-negative least squares to
five sizes of the job's range, each measured with a normal error of 5 %.
Our interpretation: the order of the minima is by the time left at the size asked; a running job grows only where that
saves more than its restart and what others lose by it, and shrinks only where its GPUs are needed.
"""

from collections.abc import Callable
from dataclasses import field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.sim.policies.rounds import RoundPolicy, RoundView, deal

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]

SAMPLES = 5
MEASURING_ERROR = 0.05


@dataclass(slots=True)
class Optimus:
    """The policy, with what it believes of the elastic jobs that it has seen."""

    _curves: dict[int, list[float]] = field(default_factory=dict)

    def __call__(self, view: RoundView) -> None:
        """Deal out all GPUs again, and change what is worth its cost."""
        jobs, rows = view.jobs, view.active
        rows = rows[np.argsort(view.remaining_s(rows), kind="stable")]
        minimum, maximum = jobs["gpus_min"][rows], jobs["gpus_max"][rows]
        if (minimum == maximum).all():
            if len(view.pending):
                view.serve(rows, minimum, may_preempt=True)
            return
        left_s = self._times_left(view, rows)
        share = view.shares_per_gpu(rows).max(axis=1).tolist()

        def gain(place: int, size: int) -> float:
            saved_s = left_s(place, size) - left_s(place, size + 1)
            return saved_s / share[place] if saved_s > 0.0 else -np.inf

        held = jobs["held"][rows].astype(np.int64)
        target = deal(minimum, maximum, view.gpus, gain)
        target = settle(held, target, view.gpus_free, view.restart_s, left_s)
        least = minimum.astype(np.int64)
        for place in np.flatnonzero((held > 0) & (target > held)).tolist():
            now_s = left_s(place, int(held[place]))
            sizes = range(int(held[place]) + 1, int(target[place]))
            worth = (size for size in sizes if now_s - left_s(place, size) > view.restart_s)
            least[place] = next(worth, int(target[place]))
        # Placement can leave room for jobs that the count leaves out: all are tried.
        view.serve(rows, np.where(target > 0, target, np.maximum(held, minimum)), least, may_preempt=True)

    def _times_left(self, view: RoundView, rows: NDArray[np.intp]) -> Callable[[int, int], float]:
        """Return the believed time left of the job in a place of `rows` at a size, as a function."""
        known = self._curves
        if len(known) > 2 * len(rows):
            self._curves = known = {row: known[row] for row in rows.tolist() if row in known}
        for row in rows.tolist():
            if row not in known:
                known[row] = believed_curve(view, row)
        curves = [known[row] for row in rows.tolist()]
        first = view.jobs["gpus_min"][rows].tolist()
        remaining_s = view.remaining_s(rows).tolist()

        def left_s(place: int, size: int) -> float:
            return float(remaining_s[place] * curves[place][size - first[place]])

        return left_s


def believed_curve(view: RoundView, row: int) -> list[float]:
    """Return the time per step at every size from `gpus_min` to `gpus_max` over that at the size asked."""
    job, noise = view.jobs[row], view.problem.options.noise
    sizes = np.arange(job["gpus_min"], job["gpus_max"] + 1)
    if len(sizes) == 1:
        return [1.0]
    times = 1.0 / view.measured_speedup(np.full(len(sizes), row), sizes)
    asked = job["gpus"] - job["gpus_min"]
    if noise is None:
        sampled = np.unique(np.geomspace(1, len(sizes), SAMPLES).round().astype(np.int64)) - 1
        errors = 1.0 + MEASURING_ERROR * view.problem.rng.standard_normal(len(sampled))
        times = fitted(sizes[sampled], times[sampled] * errors, sizes)
        times /= times[asked]
    elif noise > 0.0:
        coins = view.problem.rng.choice((1.0 - noise, 1.0 + noise), len(sizes))
        coins[asked] = 1.0
        times /= coins
    return [float(time) for time in times]


def fitted(sizes: Sizes, times: Floats, at: Sizes) -> Floats:
    """Fit a / n + b + c n with none of them negative to times at sizes, and return it at others."""
    best, least = np.zeros(3), np.inf
    # With three numbers the best fit is the best one among those that set some of them to 0.
    for chosen in (list(pick) for count in (1, 2, 3) for pick in combinations(range(3), count)):
        columns = _terms(sizes)[:, chosen]
        numbers = np.linalg.lstsq(columns, times, rcond=None)[0]
        error = float(((columns @ numbers - times) ** 2).sum())
        if (numbers >= 0.0).all() and error < least:
            best, least = np.zeros(3), error
            best[chosen] = numbers
    curve: Floats = _terms(at) @ best
    return curve


def _terms(sizes: Sizes) -> Floats:
    return np.stack((1.0 / sizes, np.ones(len(sizes)), sizes.astype(np.float64)), axis=1)


def settle(held: Sizes, target: Sizes, gpus_free: int, restart_s: float, left_s: Callable[[int, int], float]) -> Sizes:
    """Return the target without what is not worth a restart, `(n_jobs,)`; 0 held is a pending job, 0 wanted none."""
    settled = np.where((held > 0) & (target > 0), held, target)
    spare = gpus_free + int(held.sum() - settled.sum())

    def loss_s(place: int) -> float:
        return left_s(place, int(target[place])) + restart_s - left_s(place, int(held[place]))

    shrinking = np.flatnonzero((target > 0) & (target < held)).tolist()
    shrinking.sort(key=lambda place: loss_s(place) / int(held[place] - target[place]), reverse=True)
    while spare < 0 and shrinking:
        place = shrinking.pop()
        settled[place] = target[place]
        spare += int(held[place] - target[place])
    growing = np.flatnonzero((held > 0) & (target > held)).tolist()
    # The loss of one that grows is what it saves, below 0.
    for place in sorted(growing, key=lambda place: loss_s(place) / int(target[place] - held[place])):
        need = int(target[place] - held[place])
        givers: list[int] = []
        while spare + sum(int(held[giver] - target[giver]) for giver in givers) < need and len(givers) < len(shrinking):
            givers.append(shrinking[-1 - len(givers)])
        freed = sum(int(held[giver] - target[giver]) for giver in givers)
        if spare + freed >= need and loss_s(place) + sum(loss_s(giver) for giver in givers) < 0.0:
            for changed in (place, *givers):
                settled[changed] = target[changed]
            del shrinking[len(shrinking) - len(givers) :]
            spare += freed - need
    return settled


POLICY = RoundPolicy(
    name="optimus", summary="elastic: each GPU where it shortens the time left the most (Optimus)", make=Optimus
)
