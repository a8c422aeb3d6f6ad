"""Pairs the jobs of two clusters of a run: which users have lost, and which jobs were later than their bound."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.domain.units import MINUTE_S
from advisor.planning.objective import bound_s
from advisor.settings import Limits
from advisor.sim.study.comparison import Groupings, Results, compare_groups
from advisor.sim.study.statistics import CellName
from advisor.sim.study.user_losses import ALLOWED_RATIO

ALLOWED_S: Final = 5 * MINUTE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class UserChange:
    """The mean JCT of the jobs of a user in one run, on the first cluster and on another."""

    trace: str
    seed: int
    user: str
    jobs: int
    before_s: float
    after_s: float

    @property
    def loss_s(self) -> float:
        """The time by which the jobs take longer on average."""
        return self.after_s - self.before_s

    @property
    def percent(self) -> float:
        """The loss in percent of what the jobs took before."""
        return 100.0 * self.loss_s / self.before_s

    @property
    def is_worse(self) -> bool:
        """Whether the loss is above 5 % and above 5 min."""
        return self.loss_s > self._allowed_s

    @property
    def is_better(self) -> bool:
        """Whether the gain is above 5 % and above 5 min."""
        return -self.loss_s > self._allowed_s

    @property
    def _allowed_s(self) -> float:
        return max(ALLOWED_RATIO * self.before_s, ALLOWED_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Says how much later jobs started than on the first cluster, in seconds; `beyond` were later than their bound."""

    jobs: int
    later: int
    beyond: int
    p99_s: float
    worst_s: float


def user_changes(before: Results, after: Results, groupings: Groupings, *, seed: int) -> list[UserChange]:
    """Compare the users of each run, those that lost most first."""
    found = [
        UserChange(
            trace=cell.trace,
            seed=cell.seed,
            user=group.group,
            jobs=group.jobs,
            before_s=group.before_s,
            after_s=group.after_s,
        )
        for cell in sorted(before.keys() & after.keys())
        for group in compare_groups({cell: before[cell]}, {cell: after[cell]}, {cell: groupings[cell]}, seed=seed)
    ]
    return sorted(found, key=lambda user: (-user.loss_s, user.trace, user.seed, user.user))


def lateness(before: Results, after: Results, limits: Mapping[CellName, Limits]) -> Lateness:
    """Count the jobs that started later than on the first cluster; `limits` are in the time of the trace."""
    late, beyond = [], 0
    for cell in sorted(before.keys() & after.keys()):
        plain_s = before[cell].queueing_delay_s
        late_s = after[cell].queueing_delay_s - plain_s
        beyond += int((late_s > bound_s(plain_s, limits[cell])).sum())
        late.append(late_s[np.isfinite(late_s)])
    seconds = np.concatenate(late)
    return Lateness(
        jobs=len(seconds),
        later=int((seconds > ALLOWED_S).sum()),
        beyond=beyond,
        p99_s=float(np.quantile(seconds, 0.99)),
        worst_s=float(seconds.max()),
    )


def in_trace_time(limits: Limits, speedup: float) -> Limits:
    """Return the limits of a daemon whose clock runs `speedup` times as fast, as far as they bound lateness."""
    return replace(limits, max_lateness_s=limits.max_lateness_s * speedup)
