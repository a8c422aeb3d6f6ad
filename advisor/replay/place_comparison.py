"""Compares the nodes that a policy names for gangs with those on which they started, by its own performance model.

Rollouts cannot: the model of slurmctld does not know nodes by name. Each gang counts once, with the nodes named in the
last recorded cycle before its start, and those on which a later cycle shows it. Both places are forecast on the
snapshot of the first of these cycles, beside the gangs that ran then. Nothing of it is observed.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain.actions import SetNodeList
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.errors import ModelError
from advisor.features.observe.known_models import KnownModels
from advisor.planning.case import Case
from advisor.planning.gang_nodes import PlaceSpeeds
from advisor.stats import mean_interval

_Key = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesCompared:
    """How much longer gangs are expected to run on the named nodes than where they started, by the performance model.

    `change` is the geometric mean over `gangs` as a share of the run time, below 0 for shorter; `low` and `high` bound
    its 95 % interval, Student's. `same` of the gangs started on the nodes that the policy names. Not among `gangs` are
    `by_name` gangs, which named nodes as they started, and `unseen` gangs, whose start or nodes are not recorded.
    """

    gangs: int
    same: int
    by_name: int
    unseen: int
    change: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    job: Job
    nodes: tuple[str, ...]
    speeds: PlaceSpeeds


class PlaceComparison:
    """Follows the gangs for which one policy names nodes through recorded cycles, in the order of the cycles."""

    def __init__(self, models: KnownModels) -> None:
        """Take the models that the policy looks at; raises `ModelError` without a performance model among them."""
        if models.speeds is None:
            raise ModelError("places are compared by a performance model, and the policy looks at none")
        self._models, self._speeds = models, models.speeds
        self._waiting: dict[_Key, _Named] = {}
        self._started: set[_Key] = set()
        self._unseen: set[_Key] = set()
        self._changes: list[float] = []
        self._same = self._by_name = 0

    def add(self, case: Case, changes: Iterable[Recommendation]) -> None:
        """Add a recorded cycle, and the changes that the policy proposes in it."""
        jobs = {_key(job): job for job in case.snapshot.jobs}
        for key, named in [*self._waiting.items()]:
            job = jobs.get(key)
            if job is None or not job.is_pending:
                del self._waiting[key]
                self._follow(key, named, job)
        speeds = PlaceSpeeds(case=case, models=self._models, speeds=self._speeds)
        for change in changes:
            if isinstance(change.action, SetNodeList) and change.action.after:
                job = case.snapshot.jobs_by_id[change.job_id]
                key = _key(job)
                if key not in self._started:
                    self._unseen.discard(key)
                    self._waiting[key] = _Named(job=job, nodes=change.action.after, speeds=speeds)

    def result(self) -> PlacesCompared:
        """Return the comparison of all gangs so far."""
        found = PlacesCompared(
            gangs=len(self._changes),
            same=self._same,
            by_name=self._by_name,
            unseen=len(self._unseen) + len(self._waiting),
        )
        return _with_figures(found, self._changes) if self._changes else found

    def _follow(self, key: _Key, named: _Named, job: Job | None) -> None:
        """Take in that a gang does not wait any more, None where it is not shown either."""
        if job is None or job.allocation is None:
            self._unseen.add(key)
            return
        self._started.add(key)
        if job.gang.required_nodes:
            self._by_name += 1
        elif (change := _change(named, job.allocation.nodes)) is None:
            self._unseen.add(key)
        else:
            self._changes.append(change)
            self._same += set(job.allocation.nodes) == set(named.nodes)


def _change(named: _Named, nodes: tuple[str, ...]) -> float | None:
    """Return the logarithm of the run time on the named nodes over that on others, None where a node is not known."""
    here, there = (named.speeds.log_speed(named.job, names) for names in (named.nodes, nodes))
    return None if here is None or there is None else there - here


def _with_figures(found: PlacesCompared, changes: list[float]) -> PlacesCompared:
    values = np.array(changes)
    with_mean = replace(found, change=math.expm1(float(values.mean())))
    if len(values) < 2:
        return with_mean
    _, low, high = mean_interval(values)
    return replace(with_mean, low=math.expm1(low), high=math.expm1(high))


def _key(job: Job) -> _Key:
    return job.job_id, job.submit_time
