"""Determines the health of the daemon: when its last good cycle was, and what holds it back."""

import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from itertools import chain
from typing import Final

from advisor.apply.step import Step
from advisor.domain.dataclass import dataclass
from advisor.domain.plan import Outcome
from advisor.domain.units import plural
from advisor.guard.breakers import BREAKERS
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


class Health:
    """Follows the rounds; any thread can read the health."""

    def __init__(self, *, interval_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start to wait for the first good cycle."""
        self._monotonic = monotonic
        started_at = monotonic()
        # What a report says now, whether there was a good cycle, when the last one or the start was, and the interval.
        waiting = HealthReport(status="starting", last_cycle_age_s=None, mode="unknown", paused=False, breakers=())
        self._seen = waiting, False, started_at, interval_s

    def observe(self, done: Round) -> None:
        """Update from a round that has just ended."""
        last, was_good, good_at, _ = self._seen
        step, is_good = done.step, was_good or done.step is not None
        fault = _fault(done)
        report = HealthReport(
            status="degraded" if fault else "ok" if is_good else "starting",
            last_cycle_age_s=None,
            mode=str(done.mode),
            paused=PAUSED in done.held_to,
            breakers=tuple(sorted(BREAKERS & done.held_to.keys())),
            reader=last.reader if step is None else step.record.snapshot.source,
            fault=fault,
            held_to=dict(done.held_to),
            on_probation=last.on_probation if step is None else dict(done.on_probation),
            overdue=done.overdue,
        )
        # One assignment, so that another thread never sees half of it.
        self._seen = report, is_good, good_at if step is None else self._monotonic(), done.interval_s

    def report(self) -> HealthReport:
        """Return the present health."""
        report, is_good, good_at, interval_s = self._seen
        age_s = self._monotonic() - good_at
        status = "stale" if age_s > STALE_INTERVALS * interval_s else report.status
        return replace(report, status=status, last_cycle_age_s=round(age_s, 1) if is_good else None)


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
