"""What each setting that was tried costs and gains, measured on the same perturbed copies of a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.tune_verdict import Preset
from advisor.sim.study.cell import PerturbedTrace
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName, RelativeChange, paired_difference
from advisor.sim.study.tried_settings import Family, TriedSetting, policy_in_force
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

    `change` is that of the mean JCT, `jct_s` the JCT of each job, `(n_jobs,)`. `late_jobs` start later than under plain
    Slurm by more than the bound; those of plain Slurm itself are counted between one copy and the next, which shows
    what chance does. `lengthens_tail` if the 99th percentile of waits is longer than in any copy of plain Slurm.
    `losses` are those of the users with enough jobs, worst first.
    """

    setting: TriedSetting
    jct_s: Floats = field(repr=False, compare=False)
    mean_jct_s: float
    change: RelativeChange
    p99_jct_s: float
    p99_wait_s: float
    lengthens_tail: bool
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
            self.p99_wait_s,
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
    jct_s, p99_wait_s = runs.jct_s.mean(axis=0), _of_copies(runs.queueing_delay_s, _TAIL)
    return Point(
        setting=setting,
        jct_s=jct_s,
        mean_jct_s=_mean(runs.jct_s),
        change=_change(plain.jct_s.mean(axis=0), jct_s, seed),
        p99_jct_s=_mean(_of_copies(runs.jct_s, _TAIL)),
        p99_wait_s=_mean(p99_wait_s),
        lengthens_tail=_mean(p99_wait_s) > float(np.max(_of_copies(plain.queueing_delay_s, _TAIL), initial=0.0)),
        longest_wait_s=_mean(_of_copies(runs.queueing_delay_s, 1.0)),
        late_jobs=float(late.sum(axis=1).mean()),
        losses=tuple(user_losses(plain.jct_s, runs.jct_s, user)),
        changes_per_job=runs.changes / runs.jct_s.size,
    )


def marked(points: Sequence[Point]) -> list[Point]:
    """Mark the points that another point beats; Slurm as it is, and what no site can set, neither beat nor are beaten.

    A point beats another if no column of it is worse, and one is better or it comes first.
    """
    return [replace(point, is_dominated=_is_beaten(place, points)) for place, point in enumerate(points)]


def best_lift(points: Sequence[Point], preset: Preset) -> Point:
    """Return the lift of a preset with the fewest users worse beyond chance, then the lowest mean JCT."""
    lifts = [point for point in points if point.setting.family is Family.LIFT and point.setting.preset is preset]
    return min(lifts, key=_rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOutcome:
    """The settings that were tried, plain Slurm first, and what follows from them; `seed` is that of the intervals.

    `in_force` is the setting by which the site runs now.

    Of several settings that is best which leaves the fewest users worse beyond chance, then has the lowest mean JCT;
    one that lengthens the tail of the waits is none of them.
    """

    points: tuple[Point, ...]
    seed: int
    in_force: Point

    @property
    def presets(self) -> Mapping[Preset, Point | None]:
        """The best setting of each preset; None where each lengthens the tail of the waits, or none was tried."""
        return {preset: _best([p for p in self.points if p.setting.preset is preset]) for preset in Preset}

    @property
    def tuned_slurm(self) -> Point:
        """The best of slurm.conf alone, which can be Slurm as it is."""
        plain = self.points[0]
        return _best([plain, *(p for p in self.points if p.setting.family is Family.SLURM)]) or plain

    @property
    def advised(self) -> Point | None:
        """The best of the presets that lower the mean JCT clearly; None if none does."""
        return _best([point for point in self.presets.values() if point is not None and _gains(point)])

    def move(self, allowed: frozenset[Preset], *, forecasts: bool) -> Point | None:
        """Return the best of the lifts of some presets to which `guard` and `planning` alone can be set.

        `forecasts` is whether those are enabled, which stays so. None if none lowers the mean JCT clearly.
        """
        lifts = (p for p in self.points if p.setting.family is Family.LIFT and p.setting.preset in allowed)
        return _best(
            [
                point
                for point in lifts
                if _gains(point)
                and point.setting.policy == policy_in_force(point.setting.options.limits.fairness, forecasts=forecasts)
            ]
        )

    @property
    def named(self) -> list[Point]:
        """The best of each preset, and the best of slurm.conf alone."""
        return [*(point for point in self.presets.values() if point is not None), self.tuned_slurm]

    def beyond(self, other: Point, point: Point) -> RelativeChange:
        """Return the change of the mean JCT from another point to a point."""
        return _change(other.jct_s, point.jct_s, self.seed)


def _best(points: Sequence[Point]) -> Point | None:
    return min((point for point in points if not point.lengthens_tail), key=_rank, default=None)


def _gains(point: Point) -> bool:
    return point.change.is_clear and point.change.percent < 0.0


def _rank(point: Point) -> tuple[int, float]:
    return point.users_beyond_chance, point.mean_jct_s


def _change(before_s: Floats, after_s: Floats, seed: int) -> RelativeChange:
    """Compare the JCT of jobs, each the mean over the copies; blocks of jobs are drawn."""
    cell = CellName("", seed)
    return paired_difference({cell: before_s}, {cell: after_s}, seed=seed)


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


def _of_copies(values: Floats, share: float) -> Floats:
    """Return the quantile at `share` of each copy in which a job has a value."""
    known = [copy[np.isfinite(copy)] for copy in values]
    return np.array([np.quantile(copy, share) for copy in known if len(copy)])
