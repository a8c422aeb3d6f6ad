"""Proposes to preempt: stops running jobs, which restart from a checkpoint, so that a gang gets a close place.

The rules stand in `preemption.py`. Only pending gangs get places; only the simulator moves running ones. The snapshot
shows the service and the slowdown of a job only since its last start.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

import numpy as np

from advisor.domain.actions import Reason, Requeue
from advisor.domain.facts import UNPUBLISHED, Facts
from advisor.domain.gang import GpuScope
from advisor.domain.job import Job, JobState, Sensitivity
from advisor.domain.lease import stopped_since
from advisor.domain.plan import Expected, Kind, Recommendation, clipped
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.capacity import Fitter
from advisor.features.queue import QueueTable, SlurmsPlace, competes_now, slurms_place
from advisor.planning.case import Case
from advisor.planning.earliest import without
from advisor.planning.preemption import (
    KEY_MARGIN,
    REQUEUE_HOLD_S,
    give_way,
    keys,
    lost_work_s,
    pays,
    stopping_cost_s,
)
from advisor.settings import APART_S

# The number of nodes or leaves that are searched: those where the fewest jobs would have to stop.
TRIES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GangNeedsThePlace(Facts):
    """The gain of a gang for which jobs are stopped, the cost to these jobs, and the cost to the job in question."""

    reason = Reason.GANG_NEEDS_THE_PLACE

    gang_job_id: int
    gang_gpus: int
    place: str
    tier: LocalityTier
    victims: int
    gain_s: float
    cost_s: float
    lost_work_s: float
    key: float
    key_needed_above: float
    run_s: float = field(metadata=UNPUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The jobs to stop so that a gang fits on one node or leaf; `place` is its name."""

    tier: LocalityTier
    place: str
    victims: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """A gang with its gain from a start at a tier now, and its run time there, in seconds."""

    job: Job
    tier: LocalityTier
    gain_s: float
    run_s: float
    run_s_low: float
    run_s_high: float


def recommendations(case: Case, _so_far: Sequence[Recommendation] = ()) -> Iterator[Recommendation]:
    """Propose the jobs to stop for the first gang in the line of each pool, where that pays.

    The freed GPUs go to the job that Slurm considers first, so only that job can gain. No gang gets room twice in an
    hour.
    """
    queue, stoppable = case.queue, case.permits.stoppable
    if not stoppable:
        return
    now = case.snapshot.taken_at
    served = {stop.for_job_id for stop in stopped_since(case.memory.leases, now - APART_S)}
    key_by_job = _keys(case)
    left = case.limits.max_changes
    for pool in range(len(queue.pool_gpus)):
        rows = queue.rows_of(pool)
        gang = queue.jobs[rows[0]] if len(rows) else None
        if gang is None or gang.job_id in served or not _may_get_room(gang) or _stands_behind(gang, case.snapshot):
            continue
        candidates = _candidates(case, gang, key_by_job)
        for stake in _stakes(case, queue, int(rows[0])):
            room = _room(case, stake, candidates, key_by_job)
            if room is None or len(room.victims) > left or not _pays(case, stake, room):
                continue
            left -= len(room.victims)
            yield from (_recommendation(case, stake, room, victim, key_by_job) for victim in room.victims)
            break


def _candidates(case: Case, gang: Job, key_by_job: Mapping[int, float]) -> Mapping[int, Job]:
    """Map job ids to the jobs that can be stopped for a pending gang, whose key is 0."""
    known = [
        case.snapshot.jobs_by_id[job_id]
        for job_id in sorted(case.permits.stoppable & key_by_job.keys())
        if _remaining_known(case, job_id)
    ]
    can_go = give_way(
        np.array([key_by_job[job.job_id] for job in known]),
        np.array([_sensitivity(case, job) for job in known]),
        gang_key=0.0,
        gang_sensitivity=_sensitivity(case, gang),
    )
    return {job.job_id: job for job, goes in zip(known, can_go.tolist(), strict=True) if goes}


def _may_get_room(job: Job) -> bool:
    """Return whether a pending job is a gang that starts together and is no part of an array or heterogeneous job."""
    return (
        (job.gang.gpu_count or 0) >= 2
        and not job.gang.has_slices
        and job.gang.scope is not GpuScope.SOCKET
        and job.array is None
        and job.het is None
        and not (job.reservation or job.hints.opted_out)
    )


def _stands_behind(gang: Job, snapshot: Snapshot) -> bool:
    """Return whether a job stands before a gang that can take GPUs of the same nodes."""
    wanted = _nodes_of(gang, snapshot)
    return any(
        other.job_id != gang.job_id
        and (competes_now(other, snapshot.taken_at) or _takes_parts(other))
        and _place(other, snapshot) < _place(gang, snapshot)
        and not wanted.isdisjoint(_nodes_of(other, snapshot))
        for other in snapshot.jobs
        if other.is_pending
    )


def _takes_parts(job: Job) -> bool:
    """Return whether a pending job can start on GPUs that cannot be counted."""
    return not job.held and (bool(job.gang.shares) or not job.gang.gpus_known)


def _nodes_of(job: Job, snapshot: Snapshot) -> frozenset[str]:
    named = frozenset(job.partitions)
    listed = (part.nodes for part in snapshot.partitions if part.name in named)
    assigned = (node.name for node in snapshot.nodes if named.intersection(node.partitions))
    return frozenset(name for nodes in listed for name in nodes).union(assigned)


def _place(job: Job, snapshot: Snapshot) -> SlurmsPlace:
    """Return the place of a job in Slurm's line."""
    partitions = (snapshot.partitions_by_name.get(name) for name in job.partitions)
    tier = max((partition.priority_tier for partition in partitions if partition is not None), default=0)
    return slurms_place(job, tier)


def _keys(case: Case) -> Mapping[int, float]:
    """Map the running GPU jobs to their keys; a pending job has the key 0, as the snapshot shows no service of it."""
    snapshot = case.snapshot
    held = [
        (job, snapshot.taken_at - job.start_time, sum(gpu.count for gpu in job.allocation.gpus))
        for job in snapshot.jobs
        if job.state is JobState.RUNNING and job.start_time is not None and job.allocation is not None
    ]
    held_s = np.array([max(0.0, elapsed_s) for _, elapsed_s, _ in held])
    inflation = np.array([_inflation_here(case, job) for job, *_ in held])
    gpus = np.array([count for *_, count in held], dtype=np.float64)
    key_values = keys(held_s / inflation, held_s, held_s * gpus)
    return {job.job_id: float(key) for (job, *_), key in zip(held, key_values, strict=True)}


def _inflation_here(case: Case, job: Job) -> float:
    """Return the inflation of a running job on its placement, over the one on its best place."""
    if job.allocation is None or (job.gang.gpu_count or 0) < 2:
        return 1.0
    return _inflation(case, job, case.snapshot.topology.tier_of(job.allocation.nodes))


def _inflation(case: Case, job: Job, tier: LocalityTier) -> float:
    """Return the inflation of a gang at a tier over the one on its best place, at least 1."""
    best = case.fitter.fit(job.gang, job.partitions).best_tier
    there, alone = (case.beliefs.inflation(job, tier_used, best).median for tier_used in (max(tier, best), best))
    return max(1.0, there / alone)


def _sensitivity(case: Case, job: Job) -> float:
    """Return the inflation of a job spread over leaves, or the one its user declares."""
    match job.hints.sensitivity:
        case Sensitivity.HIGH:
            return float("inf")
        case Sensitivity.LOW:
            return 1.0
        case None:
            return _inflation(case, job, LocalityTier.SPINE) if (job.gang.gpu_count or 0) > 1 else 1.0


def _remaining_known(case: Case, job_id: int) -> bool:
    """Return whether the remaining run time of a running job is forecast."""
    return case.beliefs.forecasts.of(job_id).run_time is not None and job_id in case.remaining_s


def _stakes(case: Case, queue: QueueTable, row: int) -> Iterator[Stake]:
    """Yield the gain of a gang on one node, then under one leaf, where its run time is forecast.

    Without preemption it would start at the tier with the least waiting and run time.
    """
    job, fit = queue.jobs[row], case.fitter.fit(queue.jobs[row].gang, queue.jobs[row].partitions)
    if fit.restricted or not queue.run.by_model[row]:
        return
    run_s, tier_now = float(queue.run.expected_s[row]), fit.tier_now
    for tier in (LocalityTier.NODE, LocalityTier.LEAF):
        if tier < fit.best_tier or (tier_now is not None and tier_now <= tier):
            continue
        inflation = _inflation(case, job, tier)
        otherwise_s = min(
            (0.0 if tier_now is not None and tier_now <= other else case.wait_for_s(job, other))
            + run_s * (_inflation(case, job, other) - inflation)
            for other in LocalityTier
            if other >= tier
        )
        yield Stake(
            job=job,
            tier=tier,
            gain_s=otherwise_s,
            run_s=run_s * inflation,
            run_s_low=float(queue.run.low_s[row]) * inflation,
            run_s_high=float(queue.run.high_s[row]) * inflation,
        )


def _room(case: Case, stake: Stake, candidates: Mapping[int, Job], key_by_job: Mapping[int, float]) -> Room | None:
    """Return the place where the fewest candidates have to stop, and among these the one with the fewest GPUs."""
    held = _held_by_row(case, candidates)
    tries = []
    for place, rows in _places(case, stake.tier):
        short = (stake.job.gang.gpu_count or 0) - int(case.table.gpus_startable[rows].sum())
        line = _in_line(held, rows, key_by_job)
        freed = np.cumsum([0, *(gpus for _, gpus in line)])
        if line and freed[-1] >= short:
            # A lower bound on the jobs to stop: the request can want more than GPUs.
            tries.append((max(1, int(np.searchsorted(freed, short))), place, rows, line, short))
    best: Room | None = None
    for least, place, rows, line, short in sorted(tries, key=itemgetter(0, 1))[:TRIES]:
        if best is not None and least > len(best.victims):
            break
        alone = [candidates[job_id] for job_id, gpus in line if gpus >= short]
        jobs = [candidates[job_id] for job_id, _ in line]
        victims = _one_alone(case, stake, rows, alone) or _several(case, stake, rows, jobs, least)
        if victims and (best is None or _burden(victims) < _burden(best.victims)):
            best = Room(tier=stake.tier, place=place, victims=tuple(sorted(victims, key=lambda job: job.job_id)))
    return best


def _places(case: Case, tier: LocalityTier) -> Iterator[tuple[str, list[int]]]:
    """Yield the nodes in service, or the leaves, as their names and the rows of their nodes."""
    table = case.table
    if tier is LocalityTier.NODE:
        yield from ((table.names[row], [row]) for row in np.flatnonzero(table.usable).tolist())
        return
    for number in np.unique(table.leaf[table.leaf >= 0]).tolist():
        rows = np.flatnonzero((table.leaf == number) & table.usable).tolist()
        yield case.snapshot.topology.switches[number].name, rows


def _held_by_row(case: Case, candidates: Mapping[int, Job]) -> Mapping[int, Mapping[int, int]]:
    """Map rows of nodes to the GPUs of each candidate there."""
    holdings, gpus_by_row = case.holdings, defaultdict[int, Counter[int]](Counter)
    held = zip(holdings.job_id.tolist(), holdings.row.tolist(), holdings.gpus.sum(axis=1).tolist(), strict=True)
    for job_id, row, gpus in held:
        if job_id in candidates:
            gpus_by_row[row][job_id] += gpus
    return gpus_by_row


def _in_line(
    held: Mapping[int, Mapping[int, int]], rows: list[int], key_by_job: Mapping[int, float]
) -> list[tuple[int, int]]:
    """Return the candidates on some nodes with their GPUs there, sorted by most GPUs, then by highest key."""
    gpus = Counter[int]()
    for row in rows:
        gpus.update(held.get(row, {}))
    return sorted(gpus.items(), key=lambda item: (-item[1], -key_by_job[item[0]], item[0]))


def _one_alone(case: Case, stake: Stake, rows: list[int], line: list[Job]) -> list[Job]:
    """Return the one candidate with the fewest GPUs whose GPUs make the gang fit on some nodes; empty if none."""
    # The sort is stable: among equals the job with the highest key is stopped.
    ascending = sorted(line, key=lambda job: _burden([job]))
    return next(([job] for job in ascending if _fits(case, stake, rows, [job])), [])


def _several(case: Case, stake: Stake, rows: list[int], line: list[Job], least: int) -> list[Job]:
    """Return a minimal set of candidates whose GPUs make the gang fit on some nodes; empty where it never fits."""
    counts = range(max(2, least), len(line) + 1)
    chosen = next((line[:count] for count in counts if _fits(case, stake, rows, line[:count])), [])
    for victim in reversed(chosen):
        others = [job for job in chosen if job is not victim]
        if others and _fits(case, stake, rows, others):
            chosen = others
    return chosen


def _fits(case: Case, stake: Stake, rows: list[int], gone: list[Job]) -> bool:
    """Return whether a gang fits on some nodes once some jobs are stopped."""
    table = without(case.table, case.holdings, np.isin(case.holdings.job_id, [job.job_id for job in gone]))
    only = np.zeros_like(table.usable)
    only[rows] = table.usable[rows]
    fit = Fitter(case.snapshot, replace(table, usable=only)).fit(stake.job.gang, stake.job.partitions)
    return fit.tier_now is not None and fit.tier_now <= stake.tier


def _burden(victims: Iterable[Job]) -> tuple[int, int]:
    """Return the number of jobs to stop and the number of their GPUs."""
    held = [sum(gpu.count for gpu in job.allocation.gpus) for job in victims if job.allocation is not None]
    return len(held), sum(held)


def _pays(case: Case, stake: Stake, room: Room) -> bool:
    """Return whether a gang gains more than twice the loss of its victims and delays none of them for too long."""
    within = max(REQUEUE_HOLD_S, stake.run_s_high) <= case.limits.max_added_delay_s
    return within and pays(stake.gain_s, _cost_s(case, room, stake.run_s))


def _cost_s(case: Case, room: Room, run_s: float) -> float:
    """Return the loss of the victims: work, the restart, and the `run_s` for which the gang runs in their place."""
    lost_s = [_lost_s(case, victim) for victim in room.victims]
    return stopping_cost_s(lost_s, max(REQUEUE_HOLD_S, run_s), case.beliefs.settings.restart_s)


def _lost_s(case: Case, job: Job) -> float:
    """Return the expected lost work of a job."""
    return lost_work_s(case.snapshot.taken_at - (job.start_time or 0.0), job.hints.checkpoint_s or float("inf"))


def _recommendation(
    case: Case, stake: Stake, room: Room, victim: Job, key_by_job: Mapping[int, float]
) -> Recommendation:
    gang, count = stake.job, len(room.victims)
    cost_s = _cost_s(case, room, stake.run_s)
    low_s, high_s = (stake.gain_s - _cost_s(case, room, run_s) for run_s in (stake.run_s_high, stake.run_s_low))
    return Recommendation(
        kind=Kind.PREEMPT,
        action=Requeue(job_id=victim.job_id, for_job_id=gang.job_id, before=victim.start_time),
        facts=GangNeedsThePlace(
            gang_job_id=gang.job_id,
            gang_gpus=gang.gang.gpu_count or 0,
            place=room.place,
            tier=room.tier,
            victims=count,
            gain_s=stake.gain_s,
            cost_s=cost_s,
            lost_work_s=_lost_s(case, victim),
            key=key_by_job[victim.job_id],
            key_needed_above=KEY_MARGIN,
            run_s=stake.run_s,
        ),
        expected=Expected(
            saved_s=clipped(stake.gain_s - cost_s, min(low_s, high_s), high_s) / count,
            saved_s_low=min(low_s, high_s) / count,
            saved_s_high=high_s / count,
            jobs_helped=1,
            added_delay_max_s=max(REQUEUE_HOLD_S, stake.run_s_high),
        ),
    )
