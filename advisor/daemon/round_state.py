"""Holds the state of the daemon between rounds: breakers, followed jobs, the accuracy of its forecasts."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from advisor.apply.step import Step
from advisor.config import Config
from advisor.cycle import StartForecaster
from advisor.daemon.breaker_events import acknowledged_since, read_breakers, write_breakers
from advisor.domain.load import ControllerLoad
from advisor.domain.outcome import JobOutcome
from advisor.domain.probation import NOTHING_ENDED, Coverage
from advisor.domain.units import DAY_S
from advisor.errors import JournalError
from advisor.guard.breakers import ALL_CLOSED, BreakerState, Vitals, judged
from advisor.journal import SqliteJournal
from advisor.journal.base import PROVEN
from advisor.metrics.round import Forecasted
from advisor.settings import BreakerSettings
from advisor.trial.accuracy import Accuracy, Judge, RecentAccuracy, coverage_by_model, judged_run_time, judged_start
from advisor.trial.follower import Follower
from advisor.view.breaker_words import breaker_lines

# The window of the measurement of forecast accuracy.
_JUDGED_OVER_S: Final = 3 * DAY_S
# How far back a new daemon looks for the jobs that prove a model.
_PROBATION_OVER_S: Final = 30 * DAY_S
# On a large cluster more jobs end in a day than are needed in memory at once.
_MOST_JUDGED: Final = 2000
# A breaker that is closed by a person counts again from then.
_DRIFT: Final = "forecast_drift"
_OBJECT: Final = "people_object"
_EXPERIMENT: Final = "experiment"


class RoundState:
    """The state that survives a round; state that must survive the daemon is in the journal."""

    def __init__(self) -> None:
        """Start empty; `begin` loads the state."""
        self._breakers = ALL_CLOSED
        # What the journal holds of the breakers; None until it has been read.
        self._written: Hashable = None
        self._follower: Follower | None = None
        self._experiment = ""
        self._paused = False
        self._notes: list[tuple[str, Mapping[str, str | int | float]]] = []
        self._recent: Mapping[Forecasted, RecentAccuracy] | None = None
        self._coverage: dict[str, Coverage] = {}
        self._audited = 0

    def note(self, event: str, **detail: str | float) -> None:
        """Queue an event, to be written into the audit as soon as the journal is open."""
        self._notes.append((event, detail))

    def begin(self, journal: SqliteJournal, config: Config, now: float, *, paused: str) -> None:
        """Begin a round: load the state of an earlier daemon, and write the queued events into the audit."""
        if self._written is None:
            self._breakers, self._audited = read_breakers(journal)
            self._written = _noted(self._breakers)
        if self._follower is None:
            self._follower = Follower(journal.open_outcomes(), seen_at=journal.observed_until())
        if self._recent is None:
            self._recent = _nothing_judged()
            self._judge(journal.outcomes(now - _PROBATION_OVER_S, most=_MOST_JUDGED), now)
        self._follower.experiment = config.experiment
        if bool(paused) is not self._paused:
            self._paused = bool(paused)
            self.note("paused" if paused else "resumed", **({"said": paused} if paused else {}))
        digest = config.experiment.digest
        if digest != self._experiment:
            if digest and not _registered(journal, digest):
                self._notes.append((_EXPERIMENT, config.experiment.registration()))
            self._experiment = digest
        while self._notes:
            event, detail = self._notes[0]
            journal.note(now, event, detail)
            del self._notes[0]

    @property
    def accuracy(self) -> Mapping[Forecasted, Accuracy]:
        """The accuracy of the forecasts of the jobs that ended lately."""
        return {} if self._recent is None else {of: recent.accuracy for of, recent in self._recent.items()}

    def heed(self, journal: SqliteJournal) -> frozenset[str]:
        """Close the breakers that people acknowledged since the last round, and return their names."""
        before = self._breakers.counted_since
        self._breakers, self._audited = acknowledged_since(journal, self._breakers, self._audited)
        after = self._breakers.counted_since
        return frozenset(name for name in after if after[name] != before.get(name))

    def judged(
        self, journal: SqliteJournal, health: Vitals, loads: Sequence[ControllerLoad], settings: BreakerSettings
    ) -> Mapping[str, str]:
        """Judge the breakers by every load since the last look; map the open ones to their lines."""
        since = self._breakers.counted_since
        self._forget(health.now)
        run_times = self.accuracy.get("run_time")
        known = replace(
            health,
            coverage_ratio=None if run_times is None or not run_times.jobs else run_times.coverage_ratio,
            ended_jobs=0 if run_times is None else run_times.jobs,
            leases=(*journal.closed((), since=health.now - settings.objections_window_s), *journal.leases()),
            objected_since=since.get(_OBJECT, -math.inf),
        )
        for load in loads:
            self._breakers = judged(self._breakers, replace(known, load=load), settings)
        # Compared with the written state, not with the last known one, so that a failed write is repeated each round.
        if _noted(self._breakers) != self._written:
            write_breakers(journal, self._breakers, settings, health.now)
            self._written = _noted(self._breakers)
        return breaker_lines(self._breakers, settings)

    def follow(self, journal: SqliteJournal, step: Step, forecaster: StartForecaster, *, probation_jobs: int) -> None:
        """Follow the jobs through a step, and judge the forecasts by the jobs that ended in it.

        A model on probation that covers what it claims of at least `probation_jobs` jobs is proven from then on.
        """
        now = step.record.snapshot.taken_at
        if self._follower is None:
            return
        changed = self._follower.follow_step(step, forecaster)
        if changed:
            try:
                journal.keep_outcomes(changed)
            except JournalError:
                # The follower's state could not be written: the next round starts from the journal again.
                self._follower = None
                raise
        self._judge([outcome for outcome in changed if outcome.end_time is not None], now)
        for model in step.record.forecasts.on_probation:
            coverage = self._coverage.get(model, NOTHING_ENDED)
            if coverage.proves(probation_jobs):
                journal.note(now, PROVEN, {"model": model, "jobs": coverage.jobs, "inside": coverage.inside})

    def _judge(self, ended: Sequence[JobOutcome], now: float) -> None:
        """Count jobs that ended; those of long ago prove a model, and say nothing of its accuracy now."""
        for recent in (self._recent or {}).values():
            recent.add(ended)
        for model, coverage in coverage_by_model(ended).items():
            self._coverage[model] = self._coverage.get(model, NOTHING_ENDED) + coverage
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Leave the jobs out that ended before the window, or before a person acknowledged the drift of forecasts."""
        for recent in (self._recent or {}).values():
            recent.forget(max(now - _JUDGED_OVER_S, self._breakers.counted_since.get(_DRIFT, -math.inf)))


def coverage_so_far(journal: SqliteJournal, now: float) -> Mapping[str, Coverage]:
    """Map run-time models to how their forecasts held on the jobs that ended lately, by a journal."""
    return coverage_by_model(journal.outcomes(now - _PROBATION_OVER_S, most=_MOST_JUDGED))


def _nothing_judged() -> Mapping[Forecasted, RecentAccuracy]:
    judges: Mapping[Forecasted, Judge] = {"start": judged_start, "run_time": judged_run_time}
    return {of: RecentAccuracy(judge, _MOST_JUDGED) for of, judge in judges.items()}


def _noted(breakers: BreakerState) -> Hashable:
    """Return what is written into the audit when it changes; figures change in every round."""
    return tuple(breaker.name for breaker in breakers.open), tuple(sorted(breakers.counted_since.items()))


def _registered(journal: SqliteJournal, digest: str) -> bool:
    row = journal.last(_EXPERIMENT)
    return row is not None and row.detail.get("digest") == digest
