"""Orders waiting jobs by the objective: the least weighted sum of completion times, as far as their sizes are known.

The key of a job is its size, the GPU-time that it is expected to take, over its weight; the lowest goes first. On one
machine this order is optimal for known sizes (W. E. Smith, Naval Research Logistics Quarterly 3, 1956), and for unknown
ones with their means, since a job that has started is not interrupted (M. H. Rothkopf, Management Science 12, 1966).

The weight has two parts, and both are ours. The priority that the site gives a job, by fair share, age and QOS,
counts as a power of ten: over the full range of fair share and age it is `decades` of them. And a job counts for the
more, the larger the part of its turnaround in the site's own order that it has waited already, so that a job that was
about to start is hardly passed.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.site import SiteConfig
from advisor.settings import Limits, PlanningSettings

Floats = NDArray[np.float64]

# A wait below this is no sign of a turn that comes near.
PATIENCE_S: Final = 1800.0
# The weights of PriorityWeight* that tell users apart and order jobs by their age; all others make classes.
_FAIR_WEIGHTS: Final = ("fair_share", "age")
# Sizes of jobs differ by fewer powers of ten.
_MOST_DECADES: Final = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How jobs are weighed: `decades` over `scale` points of priority; 0 decades weigh all jobs alike."""

    decades: float
    scale: float
    weighs_turn: bool

    def keys(self, line: "Waiting") -> Floats:
        """Return the key of each job, `(n_jobs,)` in GPU-seconds over weight; the lowest goes first."""
        if not self.weighs_turn:
            return line.gpu_s
        points = (line.priority - line.priority.max(initial=0.0)) * (self.decades / self.scale)
        # Beyond this many decades no size makes up for the difference.
        weight = 10.0 ** np.maximum(points, -_MOST_DECADES)
        turn = (PATIENCE_S + line.waited_s) / (PATIENCE_S + line.turnaround_s())
        return np.asarray(line.gpu_s / (weight * turn))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The jobs that wait for the same GPUs, in any order; all arrays `(n_jobs,)`.

    `priority` is that of the jobs as submitted, without changes of ours; of equal ones the first in the arrays goes
    first. `gpu_s` is the GPU-time that a job is expected to take, `run_s` its expected run time, in seconds.
    `capacity` is the number of GPUs that they wait for.
    """

    priority: Floats
    gpu_s: Floats
    run_s: Floats
    waited_s: Floats
    capacity: float

    def where(self, chosen: NDArray[np.bool_]) -> "Waiting":
        """Return the jobs that are chosen `(n_jobs,)`."""
        return Waiting(
            priority=self.priority[chosen],
            gpu_s=self.gpu_s[chosen],
            run_s=self.run_s[chosen],
            waited_s=self.waited_s[chosen],
            capacity=self.capacity,
        )

    def turnaround_s(self) -> Floats:
        """Return how long each job takes from its submission to its end in the site's own order, as expected.

        The GPU-time ahead of a job is worked off by all GPUs at once.
        """
        order = np.argsort(-self.priority, kind="stable")
        ahead = np.empty(len(order))
        ahead[order] = np.cumsum(self.gpu_s[order]) - self.gpu_s[order]
        return np.asarray(self.waited_s + ahead / self.capacity + self.run_s)


def objective_of(config: SiteConfig, planning: PlanningSettings, limits: Limits) -> Objective:
    """Return the objective of a site: at fairness `site` sizes alone decide."""
    return Objective(
        decades=planning.priority_decades,
        scale=max(1.0, float(sum(config.priority_weights.get(name, 0) for name in _FAIR_WEIGHTS))),
        weighs_turn=limits.fairness != "site",
    )
