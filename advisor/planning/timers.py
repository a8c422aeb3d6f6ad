"""Chooses the closer place for which a gang waits, and how long: delay scheduling with timers that tune themselves.

A gang that could start now, or soon, only on a worse tier than it could have waits for the better one until its timer
ends: first for few nodes, then for one leaf switch. Our interpretation of Dally, whose timers are not published. Open
timers of a job are explained as if they were chosen now.
"""

from collections.abc import Iterator
from dataclasses import field, replace

from advisor.domain.actions import Lever, SetNodeRange
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts, Interval
from advisor.domain.gang import GangRequest, GpuScope
from advisor.domain.job import Job, Sensitivity
from advisor.domain.lease import LeaseState
from advisor.domain.memory import Memory
from advisor.domain.plan import UNPUBLISHED, Facts
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.domain.units import MINUTE_S
from advisor.features.capacity import Fit, Fitter
from advisor.features.queue import QueueTable
from advisor.planning import tuning
from advisor.planning.beliefs import Basis
from advisor.planning.case import Case
from advisor.planning.observing import timer_s, timer_tier
from advisor.settings import Limits, PlanningSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer(Facts):
    """The length of a gang's wait for a place, how gangs fared that waited for one, and the cost of staying spread.

    `nodes` is the number of nodes that it waits for, None for one leaf switch.
    """

    gpus: int
    timer_s: float
    gangs_seen: int
    gangs_got: int
    within_s: float
    assumed_wait_s: float
    spread_cost_s: float
    spread_cost_s_low: float
    spread_cost_s_high: float
    nodes: int | None = field(metadata=UNPUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A closer place that a gang could wait for, beside where it would start otherwise.

    `tier` says whose timer it is: NODE for few nodes, LEAF for one leaf switch. `gang` asks for no more nodes than the
    place has.
    """

    tier: LocalityTier
    gang: GangRequest
    closest: LocalityTier
    spread: LocalityTier
    inflation: Interval
    inflation_there: Interval


def closer_places(case: Case, job: Job, fit: Fit, fitter: Fitter) -> Iterator[Place]:
    """Find the closer places that a lever can make a gang wait for, the closest first; each is waited for once.

    `fitter` computes where gangs fit at the turn of this one, and `fit` where it fits itself.
    """
    if job.hints.sensitivity is Sensitivity.LOW:
        return
    spread = LocalityTier.SPINE if fit.tier_now is None else fit.tier_now
    past = case.past_of(job.job_id)
    if LocalityTier.NODE not in past.tiers and Lever.NODE_RANGE not in case.missing:
        held = _held(job, fit, fitter)
        if held is not None:
            yield _place(case, job, LocalityTier.NODE, held, fit.best_tier, spread)
    if (
        LocalityTier.LEAF not in past.tiers
        and Lever.SWITCHES not in case.missing
        and job.gang.switches is None
        and job.gang.nodes_max != 1
        and fit.best_tier <= LocalityTier.LEAF < spread
    ):
        yield _place(case, job, LocalityTier.LEAF, job.gang, LocalityTier.LEAF, spread)


def timer_for(case: Case, queue: QueueTable, row: int, place: Place, *, is_first: bool) -> Timer | None:
    """Return the timer of a gang that begins to wait now, in whole minutes as Slurm counts them; None for none.

    It is never longer than the run time that the place saves to this very job, than half of what the bound on added
    delay has left for it, and than its lever grants. The first in line waits only for what fitted forecasts say, and
    counts with the lower ends of their intervals.
    """
    job, settings = queue.jobs[row], case.beliefs.settings
    if is_first and not _is_forecast(case, queue, row, place):
        return None
    # A job that declares itself sensitive vouches for its whole limit.
    sensitive = job.hints.sensitivity is Sensitivity.HIGH
    run_s = queue.run.low_s if is_first else queue.run.high_s if sensitive else queue.run.expected_s
    # The other half is for what follows a wait that ended without a place.
    left_s = case.delay_left_of(job.job_id) / 2
    # The clock of Slurm's own wait starts with the update, as long as the job never had one.
    cap_s = case.snapshot.config.max_switch_wait_s if place.tier is LocalityTier.LEAF else float("inf")
    gpus = int(queue.gpus[row])
    there, tuner = place.inflation_there.median, case.tuner
    tuned_s = tuning.timer_s(
        tuner.rates(gpus, place.tier),
        float(run_s[row]),
        place.inflation.low if is_first else place.inflation.median,
        there,
        settings.insensitive_inflation * there,
        min(left_s, cap_s, tuner.most_s(gpus, place.tier)),
    )
    wait_s = round(tuned_s, 3) // MINUTE_S * MINUTE_S
    return timer_of(case, queue, row, place, wait_s) if wait_s >= MINUTE_S else None


def _is_forecast(case: Case, queue: QueueTable, row: int, place: Place) -> bool:
    """Return whether the saving of a place is forecast by models: the run time, and the inflation where it starts."""
    if place.spread <= place.closest or not queue.run.by_model[row]:
        return False
    return case.beliefs.inflation_basis(queue.jobs[row], place.spread) is Basis.FORECAST


def timer_of(case: Case, queue: QueueTable, row: int, place: Place, wait_s: float) -> Timer:
    """Return a timer of a given length with the reasons for it."""
    gpus, settings = int(queue.gpus[row]), case.beliefs.settings
    there = place.inflation_there.median
    expected_cost_s = float(queue.run.expected_s[row]) * max(0.0, place.inflation.median - there)
    high_cost_s = float(queue.run.high_s[row]) * max(0.0, place.inflation.high - there)
    seen = case.tuner.seen(gpus, place.tier)
    return Timer(
        gpus=gpus,
        timer_s=wait_s,
        gangs_seen=seen.gangs,
        gangs_got=seen.got,
        within_s=seen.within_s,
        assumed_wait_s=settings.node_timer_s if place.tier is LocalityTier.NODE else settings.leaf_timer_s,
        spread_cost_s=expected_cost_s,
        spread_cost_s_low=float(queue.run.low_s[row]) * max(0.0, place.inflation.low - there),
        # The mean of a run time with a long tail can lie above its 80 % interval.
        spread_cost_s_high=max(high_cost_s, expected_cost_s),
        nodes=place.gang.nodes_max if place.tier is LocalityTier.NODE else None,
    )


def _held(job: Job, fit: Fit, fitter: Fitter) -> GangRequest | None:
    """Return the request of a gang held to the fewest nodes that could take it; None where that asks nothing of it.

    Only a range that the user gave can be narrowed and restored exactly. Counted per node, fewer nodes would mean
    fewer GPUs.
    """
    gang = job.gang
    if gang.scope not in (GpuScope.JOB, GpuScope.TASK) or gang.nodes_max is None or gang.nodes_min >= gang.nodes_max:
        return None
    fewest = fitter.fewest_nodes(gang, job.partitions)
    if fewest is None or fewest >= gang.nodes_max:
        return None
    narrowed = replace(gang, nodes_max=fewest, nodes_open=False)
    at_fewest = fitter.fit_in_service(narrowed, job.partitions)
    return None if at_fewest.fits_now or at_fewest.best_tier > fit.best_tier else narrowed


def _place(
    case: Case, job: Job, tier: LocalityTier, gang: GangRequest, closest: LocalityTier, spread: LocalityTier
) -> Place:
    beliefs, best = case.beliefs, min(closest, spread)
    same = spread <= closest
    return Place(
        tier=tier,
        gang=gang,
        closest=closest,
        spread=spread,
        inflation=beliefs.inflation_on_more_nodes(job, closest) if same else beliefs.inflation(job, spread, best),
        inflation_there=beliefs.inflation(job, closest, best),
    )


_IN_FORCE = frozenset({LeaseState.OUT, LeaseState.RETURNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerOut:
    """A timer of ours that makes a pending job wait for a place: since when, for how long, and how much is left of it.

    `nodes` is the number of nodes that it waits for, None for one leaf switch. `timer` is the timer as it would
    be chosen now, None where the job would no longer wait for that place.
    """

    nodes: int | None
    began_time: float
    length_s: float
    left_s: float
    timer: Timer | None

    @property
    def ends_time(self) -> float:
        """Return the end of the wait."""
        return self.began_time + self.length_s


def timers_out(
    snapshot: Snapshot,
    job_id: int,
    settings: PlanningSettings,
    limits: Limits,
    forecasts: Forecasts,
    memory: Memory,
) -> tuple[TimerOut, ...]:
    """Return the timers that are out for a pending job by its open leases, in the order in which they began."""
    job = snapshot.jobs_by_id.get(job_id)
    if job is None or not job.is_pending:
        return ()
    out: list[TimerOut] = []
    for lease in sorted(memory.leases, key=lambda lease: lease.applied_time):
        tier = timer_tier(lease.action)
        if lease.job_id != job_id or lease.ending is not None or lease.state not in _IN_FORCE or tier is None:
            continue
        asked = lease.undo.applied_to(job)
        before = replace(snapshot, jobs=tuple(asked if other is job else other for other in snapshot.jobs))
        case = Case(
            snapshot=before, settings=settings, limits=limits, forecasts=forecasts, memory=Memory(waits=memory.waits)
        )
        out.append(
            TimerOut(
                nodes=lease.action.after.high if isinstance(lease.action, SetNodeRange) else None,
                began_time=lease.applied_time,
                length_s=timer_s(lease),
                left_s=lease.applied_time + timer_s(lease) - snapshot.taken_at,
                timer=_timer_now(case, asked, tier, timer_s(lease)),
            )
        )
    return tuple(out)


def _timer_now(case: Case, job: Job, tier: LocalityTier, length_s: float) -> Timer | None:
    """Return a timer of a job with its present reasons; None where the job would no longer wait for that place."""
    queue = case.queue
    row = next((row for row, other in enumerate(queue.jobs) if other.job_id == job.job_id), None)
    if row is None:
        return None
    fit = case.fitter.fit_in_service(job.gang, job.partitions)
    place = next((place for place in closer_places(case, job, fit, case.fitter) if place.tier is tier), None)
    return None if place is None else timer_of(case, queue, row, place, length_s)
