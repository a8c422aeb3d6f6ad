"""How fast pending jobs run on the places and at the sizes that a rollout gives them, as the planner believes.

A drawn run time is that of the job at the size it asks for, on its closest place. On another place it is multiplied by
the inflation there over that on the closest one, at another size by the stretch; both come from `Beliefs`, as the
timers and sizes that are judged do. A draw has one uniform number for each job, which stands for where in all of its
intervals the job lies, the same under every plan. Running jobs keep the pace of their places, and a job that starts
does not change the pace of others.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import SetGpus
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import MOST_RATIO, Interval
from advisor.domain.job import Job
from advisor.domain.topology import LocalityTier
from advisor.planning.case import Case
from advisor.sim.live.draws import quantile
from advisor.sim.live.snapshot_model import SnapshotModel
from advisor.sim.state import PACES

Floats = NDArray[np.float64]

# The tiers of the engine, the closest first.
_TIERS = (LocalityTier.NODE, LocalityTier.LEAF, LocalityTier.SPINE)
_ONE = Interval(low=1.0, median=1.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """A job at another size: its run time over that at the size it asks for, and its paces `(6,)`."""

    stretch: float
    pace: Floats
    best_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """The paces of the jobs of a snapshot: work per second by tier, on the fewest nodes and on more.

    `pace` is `(n_draws, n_jobs, 6)`, as `State.pace`; `best_nodes`, `(n_jobs,)`, are the fewest nodes that each job can
    have, 0 where it is not known.
    """

    case: Case
    uniform: Floats  # (n_draws, n_jobs)
    pace: Floats
    best_nodes: NDArray[np.int32]

    @classmethod
    def of(cls, case: Case, model: SnapshotModel, uniform: Floats) -> "Paces":
        """Draw the paces of the pending jobs of several GPUs; the others have a pace of 1."""
        pace = np.ones((len(uniform), len(model.trace), PACES))
        best_nodes = np.zeros(len(model.trace), dtype=np.int32)
        inflations: list[tuple[Interval, ...]] = []
        fewest: list[int] = []
        drawn: list[int] = []
        for job_id, of_job in model.rows_by_id.items():
            job = case.snapshot.jobs_by_id[job_id]
            if not job.is_pending or (job.gang.gpu_count or 0) < 2:
                continue
            drawn += of_job
            inflations += [_inflations(case, job)] * len(of_job)
            fewest += [_fewest_nodes(case, job)] * len(of_job)
        if drawn:
            rows = np.array(drawn, dtype=np.intp)
            pace[:, rows] = _pace(inflations, uniform[:, rows])
            best_nodes[rows] = fewest
        return cls(case=case, uniform=uniform, pace=pace, best_nodes=best_nodes)

    def resized(self, action: SetGpus, draw: int, row: int) -> Resized:
        """Return a job in a draw after a change of its size."""
        job, uniform = self.case.snapshot.jobs_by_id[action.job_id], self.uniform[draw, row]
        changed = action.applied_to(job)
        size = changed.gang.gpu_count or 1
        stretch = _quantiles([self.case.beliefs.stretch(job, size)], np.array([[uniform]]))[0, 0]
        return Resized(
            stretch=float(stretch),
            pace=_pace([_inflations(self.case, changed)], np.array([[uniform]]))[0, 0],
            best_nodes=_fewest_nodes(self.case, changed),
        )


def _inflations(case: Case, job: Job) -> tuple[Interval, ...]:
    """Return the inflations of a gang by tier, on the fewest nodes and on more, and that of its closest place."""
    beliefs = case.beliefs
    closest = min(case.fitter.fit_in_service(job.gang, job.partitions).best_tier, LocalityTier.SPINE)
    there = beliefs.inflation(job, closest, closest)
    inflations: list[Interval] = []
    for tier in _TIERS:
        if tier < closest:
            inflations += [there, there]
        elif tier == closest:
            more = _ONE if tier is LocalityTier.NODE else beliefs.inflation_on_more_nodes(job, tier)
            inflations += [there, more]
        else:
            inflations += [beliefs.inflation(job, tier, closest)] * 2
    return (*inflations, there)


def _fewest_nodes(case: Case, job: Job) -> int:
    """Return the fewest nodes that a gang can have; 0 if that is not known."""
    fewest = case.fitter.fewest_nodes(job.gang, job.partitions)
    return 0 if fewest is None else max(fewest, job.gang.nodes_min)


def _pace(inflations: Sequence[tuple[Interval, ...]], uniform: Floats) -> Floats:
    """Return the paces of jobs, `(n_draws, n_jobs, 6)`, at uniform numbers, `(n_draws, n_jobs)`."""
    columns = [_quantiles(of_place, uniform) for of_place in zip(*inflations, strict=True)]
    paces = np.stack([columns[-1] / column for column in columns[:-1]], axis=2)
    return np.asarray(np.clip(paces, 1.0 / MOST_RATIO, MOST_RATIO))


def _quantiles(intervals: Sequence[Interval], uniform: Floats) -> Floats:
    """Return where uniform numbers, `(n_draws, n_jobs)`, lie in the intervals of jobs."""
    ends = np.log([(interval.low, interval.median, interval.high) for interval in intervals])
    return quantile(np.clip(uniform, 1e-3, 1.0 - 1e-3), *ends.T)
