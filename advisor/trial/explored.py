"""Counts the places that were tried to learn from them, and the GPU-time that they took of all."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from advisor.domain.actions import Reason
from advisor.domain.lease import Ending
from advisor.domain.outcome import JobOutcome, SeenChange

# After these the job got its nodes from Slurm or from a person.
_NOT_TRIED: Final = frozenset({Ending.NOT_APPLIED, Ending.TAKEN_BACK, Ending.REVERTED, Ending.OVERRULED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredTally:
    """The changes that named nodes to try, the jobs that ran on them, and their GPU-seconds out of all observed.

    GPU-seconds are those of observed runs, up to the present for jobs that still run.
    """

    changes: int = 0
    jobs: int = 0
    gpu_s: float = 0.0
    of_gpu_s: float = 0.0

    @property
    def ratio(self) -> float:
        """The share of the GPU-time; NaN where nothing ran."""
        return self.gpu_s / self.of_gpu_s if self.of_gpu_s > 0.0 else float("nan")


def explored_tally(outcomes: Iterable[JobOutcome], *, since: float, now: float) -> ExploredTally:
    """Count the places that were tried, and the GPU-time of jobs, between an instant and now."""
    changes = jobs = 0
    gpu_s = of_gpu_s = 0.0
    for outcome in outcomes:
        tried = [change for change in outcome.changes if change.reason is Reason.EXPLORE_PLACE]
        ran_s = outcome.gpus * _ran_s(outcome, since, now)
        of_gpu_s += ran_s
        changes += sum(change.applied_time >= since for change in tried)
        if ran_s > 0.0 and any(_was_tried(outcome, change) for change in tried):
            jobs += 1
            gpu_s += ran_s
    return ExploredTally(changes=changes, jobs=jobs, gpu_s=gpu_s, of_gpu_s=of_gpu_s)


def _ran_s(outcome: JobOutcome, since: float, now: float) -> float:
    """Return for how long the last run of a job lasted between two instants."""
    if outcome.last_start_time is None:
        return 0.0
    end = now if outcome.end_time is None else min(outcome.end_time, now)
    return max(0.0, end - max(outcome.last_start_time, since))


def _was_tried(outcome: JobOutcome, change: SeenChange) -> bool:
    """Return whether a job started with the nodes that a change named."""
    later = any(other.lever is change.lever and other.applied_time > change.applied_time for other in outcome.changes)
    return change.ending not in _NOT_TRIED and not later
