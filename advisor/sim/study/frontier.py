"""What each setting that was tried costs and gains, measured on the same perturbed copies of a trace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.sim.study.perturbation import PerturbedTrace
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName, RelativeChange, paired_difference
from advisor.sim.study.tried_settings import Family, TriedSetting
from advisor.sim.study.user_losses import UserLoss, user_losses

Floats = NDArray[np.float64]

_TAIL: Final = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedRuns:
    """The runs of one setting on the copies of a trace; arrays are `(n_copies, n_jobs)` in the trace's own order."""

    jct_s: Floats
    queueing_delay_s: Floats
    changes: int

    @classmethod
    def of(cls, results: Sequence[RunResult], copies: Sequence[PerturbedTrace]) -> "CopiedRuns":
        """Collect the results of the copies."""
        pairs = list(zip(results, copies, strict=True))
        return cls(
            jct_s=np.stack([copy.in_original_order(result.jct_s) for result, copy in pairs]),
            queueing_delay_s=np.stack([copy.in_original_order(result.queueing_delay_s) for result, copy in pairs]),
            changes=sum(result.summary.changes for result in results),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting on the frontier; figures are means over the copies, and compared with Slurm as it is.

    `change` is that of the mean JCT. `late_jobs` start later than under plain Slurm by more than the bound; those of
    plain Slurm itself are counted between one copy and the next, which shows what chance does. `losses` are those of
    the users with enough jobs, worst first.
    """

    setting: TriedSetting
    mean_jct_s: float
    change: RelativeChange
    p99_jct_s: float
    longest_wait_s: float
    late_jobs: float
    losses: tuple[UserLoss, ...]
    changes_per_job: float
    is_dominated: bool = False

    @property
    def users_worse(self) -> int:
        """How many users lose more than the allowance."""
        return sum(loss.is_worse for loss in self.losses)

    @property
    def users_beyond_chance(self) -> int:
        """How many users lose beyond chance."""
        return sum(loss.is_beyond_chance for loss in self.losses)

    @property
    def worst(self) -> UserLoss | None:
        """The user who loses most; None where no user does or none has enough jobs."""
        return next((loss for loss in self.losses[:1] if loss.loss_s > 0.0), None)

    @property
    def figures(self) -> tuple[float, ...]:
        """The columns by which points are weighed against each other; in all of them lower is better."""
        return (
            self.mean_jct_s,
            self.p99_jct_s,
            self.longest_wait_s,
            self.late_jobs,
            float(self.users_worse),
            float(self.users_beyond_chance),
            0.0 if self.worst is None else self.worst.loss_s / self.worst.allowed_s,
            self.changes_per_job,
        )


def point_of(
    setting: TriedSetting, runs: CopiedRuns, plain: CopiedRuns, user: NDArray[np.int32], *, late_s: float, seed: int
) -> Point:
    """Compare the runs of a setting with those of plain Slurm; `user` is `(n_jobs,)`, `seed` that of the intervals."""
    baseline = np.roll(plain.queueing_delay_s, 1, axis=0) if runs is plain else plain.queueing_delay_s
    with np.errstate(invalid="ignore"):
        late = runs.queueing_delay_s - baseline > late_s
    cell = CellName("", seed)
    return Point(
        setting=setting,
        mean_jct_s=_mean(runs.jct_s),
        # Blocks of jobs are drawn, of which every job has its mean over the copies.
        change=paired_difference({cell: plain.jct_s.mean(axis=0)}, {cell: runs.jct_s.mean(axis=0)}, seed=seed),
        p99_jct_s=_mean_of_copies(runs.jct_s, _TAIL),
        longest_wait_s=_mean_of_copies(runs.queueing_delay_s, 1.0),
        late_jobs=float(late.sum(axis=1).mean()),
        losses=tuple(user_losses(plain.jct_s, runs.jct_s, user)),
        changes_per_job=runs.changes / runs.jct_s.size,
    )


def marked(points: Sequence[Point]) -> list[Point]:
    """Mark the points that another point beats; Slurm as it is, and what no site can set, neither beat nor are beaten.

    A point beats another if no column of it is worse, and one is better or it comes first.
    """
    return [replace(point, is_dominated=_is_beaten(place, points)) for place, point in enumerate(points)]


def chosen_lift(points: Sequence[Point]) -> Point:
    """Return the lift with the fewest users worse beyond chance, and of those the one with the lowest mean JCT."""
    lifts = [point for point in points if point.setting.family is Family.LIFT]
    return min(lifts, key=lambda point: (point.users_beyond_chance, point.mean_jct_s))


def _is_beaten(place: int, points: Sequence[Point]) -> bool:
    """Return whether another point beats the one at a place."""
    point = points[place]
    if point.setting.family is Family.PLAIN or not point.setting.can_be_set:
        return False
    return any(
        other is not point
        and other.setting.can_be_set
        and all(theirs <= own for theirs, own in zip(other.figures, point.figures, strict=True))
        and (other.figures != point.figures or rank < place)
        for rank, other in enumerate(points)
    )


def _mean(values: Floats) -> float:
    """Return the mean of what is known, NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _mean_of_copies(values: Floats, share: float) -> float:
    """Return the mean over the copies of their quantile at `share`; NaN where no job has a value."""
    known = [copy[np.isfinite(copy)] for copy in values]
    quantiles = [float(np.quantile(copy, share)) for copy in known if len(copy)]
    return float(np.mean(quantiles)) if quantiles else float("nan")
