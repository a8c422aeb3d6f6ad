"""Determines the health of the daemon: when its last good cycle was, and what holds it back."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from advisor.apply.step import Step
from advisor.domain.mode import Mode
from advisor.domain.plan import Outcome
from advisor.domain.units import plural
from advisor.metrics.catalogue import JOURNAL, PAUSED
from advisor.metrics.round import Round

# A round can be late, or fail once, without an alert.
STALE_INTERVALS: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """The answer of `/healthz`; `last_cycle_age_s` None means that there was no good cycle yet.

    `status` is degraded where the last round made no plan, the journal failed, a change is overdue, or the preferred
    reader failed; `fault` says why. `reader` is the one of the last good cycle. `held_to` maps each cause that keeps
    the daemon from applying to its reason, `on_probation` maps run-time models that plans set aside to why and what to
    do. `overdue` counts the changes that should have been reverted.
    """

    status: str
    last_cycle_age_s: float | None
    mode: str
    paused: bool
    breakers: tuple[str, ...]
    reader: str = ""
    fault: str = ""
    held_to: Mapping[str, str] = field(default_factory=dict)
    on_probation: Mapping[str, str] = field(default_factory=dict)
    overdue: int = 0

    @property
    def is_well(self) -> bool:
        """Whether the daemon works as configured."""
        return self.status != "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The parts of past rounds that health depends on; instants on the monotonic clock."""

    good_at: float | None
    interval_s: float
    mode: Mode | None = None
    paused: bool = False
    breakers: tuple[str, ...] = ()
    reader: str = ""
    fault: str = ""
    held_to: Mapping[str, str] = field(default_factory=dict)
    on_probation: Mapping[str, str] = field(default_factory=dict)
    overdue: int = 0


class Health:
    """Follows the rounds; any thread can read the health."""

    def __init__(
        self, *, interval_s: float, breakers: Collection[str] = (), monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Start to wait for the first good cycle."""
        self._monotonic = monotonic
        self._breakers = frozenset(breakers)
        self._started_at = monotonic()
        self._seen = _Seen(good_at=None, interval_s=interval_s)

    def observe(self, done: Round) -> None:
        """Update from a round that has just ended."""
        # One assignment, so that another thread never sees half of it.
        self._seen = _Seen(
            good_at=self._seen.good_at if done.step is None else self._monotonic(),
            interval_s=done.interval_s,
            mode=done.mode,
            paused=PAUSED in done.held_to,
            breakers=tuple(sorted(self._breakers.intersection(done.held_to))),
            reader=self._seen.reader if done.step is None else done.step.record.snapshot.source,
            fault=_fault(done),
            held_to=dict(done.held_to),
            on_probation=self._seen.on_probation if done.step is None else dict(done.on_probation),
            overdue=done.overdue,
        )

    def report(self) -> HealthReport:
        """Return the present health."""
        seen, now = self._seen, self._monotonic()
        since = self._started_at if seen.good_at is None else seen.good_at
        well = "degraded" if seen.fault else "starting" if seen.good_at is None else "ok"
        return HealthReport(
            status="stale" if now - since > STALE_INTERVALS * seen.interval_s else well,
            last_cycle_age_s=None if seen.good_at is None else round(now - seen.good_at, 1),
            mode="unknown" if seen.mode is None else str(seen.mode),
            paused=seen.paused,
            breakers=seen.breakers,
            reader=seen.reader,
            fault=seen.fault,
            held_to=seen.held_to,
            on_probation=seen.on_probation,
            overdue=seen.overdue,
        )


def _fault(done: Round) -> str:
    """Return what is wrong after a round, the worst first; empty if nothing is."""
    if done.step is None:
        return done.fault
    overdue = f"{plural(done.overdue, 'change')} overdue: {_why_overdue(done.step)}" if done.overdue else ""
    return done.held_to.get(JOURNAL, "") or overdue or done.step.record.snapshot.reader_fault


def _why_overdue(step: Step) -> str:
    failed = (receipt.text for receipt in step.reconciled.taken_back if receipt.outcome is Outcome.FAILED)
    put_off = (receipt.text for receipt in step.reconciled.put_off)
    return next(chain(put_off, failed), "not tried in the last round")
