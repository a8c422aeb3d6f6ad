"""Counts, for each lever, how changes ended, whether jobs started as promised, and which places gangs got."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Ending, Lease
from advisor.domain.memory import Wait
from advisor.domain.outcome import JobOutcome, SeenChange
from advisor.domain.topology import LocalityTier
from advisor.planning.observing import gave_up_time, timer_tier

_Z: Final = 1.959964
# The state of a change that has not ended in the journal.
_OUT: Final = "out"
_RENEWED: Final = "renewed"
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A count out of `n`, with Wilson's 95 % interval of the share; NaN if `n` is 0."""

    count: int
    n: int

    @property
    def ratio(self) -> float:
        """The share itself."""
        return self.count / self.n if self.n else float("nan")

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        # For a share of 0 it is 0, of which rounding leaves a remainder.
        return min(self.ratio, self._end(-1.0))

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self._end(1.0)

    def _end(self, side: float) -> float:
        if not self.n:
            return float("nan")
        middle = self.ratio + _Z**2 / (2 * self.n)
        reach = _Z * math.sqrt(self.ratio * (1 - self.ratio) / self.n + _Z**2 / (4 * self.n**2))
        return min(1.0, max(0.0, (middle + side * reach) / (1 + _Z**2 / self.n)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverTally:
    """The changes of one lever and their outcomes.

    `applied` took effect, as read back; `not_applied` were sent without effect. Of those applied, `out` are still
    outstanding, `renewed` were replaced by a later change to the same field, `stayed` remained until the job was no
    longer pending, `taken_back` were reverted when due, `reverted` on a person's request, `overruled` were replaced by
    somebody else's change, and the end of `unknown` was not observed. Savings are sums over
    the changes that state one. `in_time`: of the jobs that a change can delay, those that started within the promised
    delay after the change, whatever else they waited for; `in_time_by_forecast`: those that started within it after the
    upper end of the forecast made right before.
    """

    lever: Lever
    applied: int
    not_applied: int
    out: int
    renewed: int
    stayed: int
    taken_back: int
    reverted: int
    overruled: int
    unknown: int
    jobs: int
    saved_s_low: float
    saved_s_high: float
    in_time: Share
    in_time_by_forecast: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesGot:
    """The share of timers for a tier that ended with a place there."""

    tier: LocalityTier
    got: Share


def lever_tallies(
    outcomes: Iterable[JobOutcome], ended: Iterable[Lease], *, since: float, now: float
) -> tuple[LeverTally, ...]:
    """Count the outcomes of each lever since an instant; `ended` are leases, for changes without effect."""
    made: dict[Lever, list[tuple[JobOutcome, SeenChange]]] = {}
    for outcome in outcomes:
        for change in outcome.changes:
            if change.applied_time >= since:
                made.setdefault(change.lever, []).append((outcome, change))
    not_applied = Counter(
        lease.lever for lease in ended if lease.ending is Ending.NOT_APPLIED and lease.applied_time >= since
    )
    return tuple(
        _tally(lever, made.get(lever, []), not_applied[lever], now)
        for lever in Lever
        if lever in made or not_applied[lever]
    )


def places_got(
    waits: Iterable[Wait],
    leases: Iterable[Lease],
    outcomes: Iterable[JobOutcome],
    *,
    since: float,
    now: float,
) -> tuple[PlacesGot, ...]:
    """Count, by tier, the gangs that got their place and the timers that ended without one since an instant.

    Gangs that gave up are counted from the leases, so that those count that still wait or never started.
    """
    by_job = {outcome.job_id: outcome for outcome in outcomes}
    got = Counter(wait.tier for wait in waits if wait.got)
    gave_up = Counter(
        timer_tier(lease.action)
        for lease in leases
        if (ended := gave_up_time(lease, _start_after(by_job.get(lease.job_id), lease.applied_time), now)) is not None
        and ended > since
    )
    return tuple(
        PlacesGot(tier=tier, got=Share(count=got[tier], n=got[tier] + gave_up[tier]))
        for tier in LocalityTier
        if got[tier] or gave_up[tier]
    )


def _tally(lever: Lever, made: Sequence[tuple[JobOutcome, SeenChange]], not_applied: int, now: float) -> LeverTally:
    kinds = Counter(_end_of(outcome, change) for outcome, change in made)
    kept: list[bool] = []
    kept_by_forecast: list[bool] = []
    for outcome, change in made:
        waited_s = _waited_s(outcome, change, now)
        if waited_s is None:
            continue
        kept.append(waited_s <= change.added_delay_s)
        latest_s = _latest_forecast_wait_s(outcome, change)
        if latest_s is not None:
            kept_by_forecast.append(waited_s <= latest_s + change.added_delay_s)
    return LeverTally(
        lever=lever,
        applied=len(made),
        not_applied=not_applied,
        out=kinds[_OUT],
        renewed=kinds[_RENEWED],
        stayed=kinds[Ending.NO_LONGER_PENDING],
        taken_back=kinds[Ending.TAKEN_BACK],
        reverted=kinds[Ending.REVERTED],
        overruled=kinds[Ending.OVERRULED],
        unknown=kinds[_UNKNOWN],
        jobs=len({(outcome.job_id, outcome.submit_time) for outcome, _ in made}),
        saved_s_low=sum(change.saved_s_low or 0.0 for _, change in made),
        saved_s_high=sum(change.saved_s_high or 0.0 for _, change in made),
        in_time=Share(count=sum(kept), n=len(kept)),
        in_time_by_forecast=Share(count=sum(kept_by_forecast), n=len(kept_by_forecast)),
    )


def _end_of(outcome: JobOutcome, change: SeenChange) -> str:
    """Return how a change ended, in a word."""
    if change.overruled_time is not None:
        return Ending.OVERRULED
    if change.ending is not None:
        return change.ending
    if _is_renewed(outcome, change):
        return _RENEWED
    return _OUT if outcome.end_time is None else _UNKNOWN


def _is_renewed(outcome: JobOutcome, change: SeenChange) -> bool:
    return any(other.lever is change.lever and other.applied_time > change.applied_time for other in outcome.changes)


def _waited_s(outcome: JobOutcome, change: SeenChange, now: float) -> float | None:
    """Return how long after a change its job started; None if nothing was promised or it is not known yet.

    A job that still waits beyond the promised delay counts as late; leaving it out would bias the share.
    """
    if change.added_delay_s <= 0.0 or _is_renewed(outcome, change):
        return None
    started = _start_after(outcome, change.applied_time)
    if started is not None:
        return started - change.applied_time
    still_waits = outcome.end_time is None and (outcome.start_time is None or outcome.requeues > 0)
    late = still_waits and now - change.applied_time > change.added_delay_s
    return math.inf if late else None


def _start_after(outcome: JobOutcome | None, time: float) -> float | None:
    """Return the first seen start of a job at an instant or later, None without one; a requeued job starts again."""
    starts = () if outcome is None else (outcome.start_time, outcome.last_start_time)
    return next((start for start in starts if start is not None and start >= time), None)


def _latest_forecast_wait_s(outcome: JobOutcome, change: SeenChange) -> float | None:
    """Return the latest start after a change, in seconds, by the forecast made before the job's first change."""
    forecast = outcome.changed_forecast
    if forecast is None or forecast.start_time is None:
        return None
    return max(0.0, forecast.start_time.high - change.applied_time)
