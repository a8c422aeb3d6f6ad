"""Forecasts the speeds of the jobs of a queue at chosen sizes and places; equal requests are forecast once."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import MOST_RATIO, Interval, Placement
from advisor.domain.job import GpuRange, Job, JobState
from advisor.domain.node import Node
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.predict.interference_items import name_key
from advisor.predict.intervals import listed
from advisor.predict.memo import Memo
from advisor.predict.throughput import PlacementTable, ThroughputForecaster
from advisor.predict.throughput_site import Evidence, SitePoints

# What the speeds of a job depend on: its model, the GPUs on the largest node there is for it, the GPUs it asks for, and
# its range.
_Asked = tuple[str | None, int, int | None, GpuRange | None]
# The model, the GPUs and the nodes of a job.
_Point = tuple[str, int, int]
# Steps of one placement scatter by 4 to 9 %.
_SCATTER: Final = 0.08
# Fitting again takes longer the more points there are, and no user displaces the points of others.
_MOST_POINTS: Final = 200
_MOST_OF_USER: Final = 20
# The largest number of neighbours that are counted for a spread gang.
MOST_NEIGHBOURS = 3


class _Step(NamedTuple):
    """A step time in seconds, and the user whose job states it."""

    step_s: float
    user: str


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of a job by placement; `all_known` is False where the model does not know some of them.

    `evidence` is what its model showed on this network.
    """

    by_placement: Mapping[Placement, Interval]
    all_known: bool
    evidence: Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A placement of a job: the size and tier as the planner asks for them, and the nodes taken for it."""

    placement: Placement
    nodes: int


class PlacementIndex:
    """The part of a snapshot that determines the placements of its jobs."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Collect the usable nodes, and the gangs that span nodes."""
        self._nodes = [node for node in snapshot.nodes if node.is_usable]
        # Many nodes share few sets of partitions.
        self._most: dict[tuple[str, ...], dict[str | None, int]] = {}
        for node in self._nodes:
            most = self._most.setdefault(node.partitions, {})
            for pool in node.gpus:
                most[pool.gpu_type] = max(most.get(pool.gpu_type, 0), pool.total)
        self._largest: dict[tuple[tuple[str, ...], str | None], int] = {}
        self._crowded: dict[tuple[tuple[str, ...], str | None], tuple[Job, ...]] = {}
        self._spanning = [
            job
            for job in snapshot.jobs
            if job.state is JobState.RUNNING and job.allocation is not None and len(job.allocation.nodes) > 1
        ]
        spanned = {name for job in self._spanning if job.allocation is not None for name in job.allocation.nodes}
        self._spanned = [node for node in self._nodes if node.name in spanned]

    def neighbours(self, job: Job) -> tuple[Job, ...]:
        """Return the gangs over several nodes that run on nodes with idle GPUs for this one, most frequent first.

        Which nodes Slurm would choose is unknown; this is an assumption.
        """
        key = (job.partitions, job.gang.gpu_type)
        if key not in self._crowded:
            idle = {
                node.name for node in self._spanned if self._serves(node.partitions, key[0]) and _idle(node, key[1])
            }
            met = Counter[int]()
            by_id = {}
            for other in self._spanning:
                there = idle.intersection(other.allocation.nodes if other.allocation else ())
                if there:
                    met[other.job_id] = len(there)
                    by_id[other.job_id] = other
            ranked = sorted(met, key=lambda job_id: (-met[job_id], job_id))
            self._crowded[key] = tuple(by_id[job_id] for job_id in ranked[:MOST_NEIGHBOURS])
        return self._crowded[key]

    def gpus_on_node(self, job: Job) -> int:
        """Return the most GPUs of a job's type that a usable node of its partitions has, 0 for none."""
        key = (job.partitions, job.gang.gpu_type)
        if key not in self._largest:
            self._largest[key] = max(
                (
                    total
                    for partitions, most in self._most.items()
                    if self._serves(partitions, key[0])
                    for gpu_type, total in most.items()
                    if key[1] in (None, gpu_type)
                ),
                default=0,
            )
        return self._largest[key]

    @staticmethod
    def _serves(node_partitions: tuple[str, ...], partitions: tuple[str, ...]) -> bool:
        return not set(node_partitions).isdisjoint(partitions)


def candidates(largest: int, asked: int | None, declared: GpuRange | None) -> Iterator[Candidate]:
    """Yield the placements of a job, those of the size it asks for first, at its closest before spread out.

    `largest` is the most GPUs of its kind on one node, `declared` its range. Nothing is measured between leaves, so
    that more than one node is one tier here.
    """
    if not largest or not asked:
        return
    for gpus in (asked, *(size for size in (declared.sizes if declared else ()) if size != asked)):
        fewest = -(-gpus // largest)
        if fewest == 1:
            yield Candidate(placement=Placement(gpus=gpus, tier=LocalityTier.NODE), nodes=1)
        if gpus > 1:
            spread = max(fewest, 2)
            yield Candidate(placement=Placement(gpus=gpus, tier=LocalityTier.LEAF), nodes=spread)


class QueueSpeeds:
    """The throughput model, asked about a queue; it learns the step times that running jobs state."""

    def __init__(self, model: ThroughputForecaster) -> None:
        """Take a model, without any answers yet."""
        self._unseen = self.model = model
        self._steps: dict[_Point, _Step] = {}
        self._speeds = Memo[_Asked, ThroughputForecaster, Speeds | None]()

    def forecast(
        self, jobs: Sequence[Job], cluster: PlacementIndex, running: Sequence[Job] = ()
    ) -> list[Speeds | None]:
        """Return the speeds of pending jobs; None where there is no placement to forecast.

        Step times that running jobs state are learned, and kept when these jobs have ended.

        Raises `ModelError` if the model returns invalid values.
        """
        self._learn(running)
        asked: list[_Asked] = []
        for job in jobs:
            gang, hints = job.gang, job.hints
            asked.append((hints.model, cluster.gpus_on_node(job), gang.gpu_count, hints.gpus))
        return self._speeds.fill(asked, repeat(self.model, len(asked)), self._relative)

    def _learn(self, running: Sequence[Job]) -> None:
        """Take in the step times of running jobs; the last one counts for each model, size and number of nodes."""
        stated = dict(point for job in running if (point := _point(job)) is not None)
        # Of too many points the first of those stated now stay, so that an unchanged queue is learned from once.
        stated = _most_of_each_user(stated, _MOST_OF_USER)
        stated = dict(list(stated.items())[:_MOST_POINTS])
        if not _differ(stated, self._steps):
            return
        before = {point: step for point, step in self._steps.items() if point not in stated}
        # From the last learned to the first.
        newest_first = dict(reversed((before | stated).items()))
        kept = list(_most_of_each_user(newest_first, _MOST_OF_USER).items())[:_MOST_POINTS]
        self._steps = dict(reversed(kept))
        self.model = self._unseen.at_site(self._unseen.network, self._points())

    def _points(self) -> SitePoints:
        """Return what was learned as a table; a job is taken to fill its GPUs, whatever their number."""
        family = np.array([key for key, _, _ in self._steps], dtype=np.str_)
        gpus, nodes = (np.array([point[column] for point in self._steps], dtype=np.float64) for column in (1, 2))
        batch = self._unseen.largest_batches(self._unseen.codes(family.tolist()))
        table = PlacementTable(profile=self._unseen.codes(family.tolist()), gpus=gpus, nodes=nodes, local_batch=batch)
        step_s = np.array([step.step_s for step in self._steps.values()])
        return SitePoints(family=family, work=table.work(batch), step_s=step_s)

    def _relative(self, asked: Collection[_Asked]) -> list[Speeds | None]:
        places = {key: list(candidates(*key[1:])) for key in asked}
        rows = [(key, place) for key in asked for place in places[key]]
        if not rows:
            return [None] * len(asked)
        profile = self.model.codes([model for (model, *_), _ in rows])
        # A job that changes its size keeps its batch as a whole (DL2), which fills its GPUs as it is asked for.
        batch = self.model.largest_batches(profile)
        asked_gpus = np.array([places[key][0].placement.gpus for key, _ in rows], dtype=np.float64)
        tables = []
        for placed in ([place for _, place in rows], [places[key][0] for key, _ in rows]):
            gpus = np.array([candidate.placement.gpus for candidate in placed], dtype=np.float64)
            tables.append(
                PlacementTable(
                    profile=profile,
                    gpus=gpus,
                    nodes=np.array([candidate.nodes for candidate in placed], dtype=np.float64),
                    local_batch=batch * asked_gpus / gpus,
                )
            )
        speeds_by_key: dict[_Asked, dict[Placement, Interval]] = {key: {} for key in asked}
        ratios = listed(self.model.relative(*tables), least=1 / MOST_RATIO, most=MOST_RATIO)
        for (key, place), interval in zip(rows, ratios, strict=True):
            if interval is not None:
                speeds_by_key[key][place.placement] = interval
        evidence = dict(
            zip([key for key, _ in rows], map(Evidence, self.model.evidence(profile).tolist()), strict=True)
        )
        return [
            Speeds(by_placement=speeds, all_known=len(speeds) == len(places[key]), evidence=evidence[key])
            if places[key]
            else None
            for key, speeds in speeds_by_key.items()
        ]


def _point(job: Job) -> tuple[_Point, _Step] | None:
    """Return where a job runs and its step time in seconds; None where it does not state both model and step."""
    hints, allocation = job.hints, job.allocation
    key = name_key(hints.model)
    gpus = sum(part.count for part in allocation.gpus) if allocation else 0
    if allocation is None or hints.step_s is None or not key or gpus < len(allocation.nodes) or not allocation.nodes:
        return None
    return (key, gpus, len(allocation.nodes)), _Step(hints.step_s, job.user)


def _most_of_each_user(steps: Mapping[_Point, _Step], most: int) -> dict[_Point, _Step]:
    """Return the first points of each user, in their order."""
    count: Counter[str] = Counter()
    kept = {}
    for point, step in steps.items():
        count[step.user] += 1
        if count[step.user] <= most:
            kept[point] = step
    return kept


def _differ(steps: Mapping[_Point, _Step], before: Mapping[_Point, _Step]) -> bool:
    """Whether there is a new point, or one that moved by more than its scatter."""
    return any(
        point not in before or abs(step.step_s - before[point].step_s) > _SCATTER * step.step_s
        for point, step in steps.items()
    )


def _idle(node: Node, gpu_type: str | None) -> int:
    return sum(pool.idle for pool in node.gpus if gpu_type in (None, pool.gpu_type))
