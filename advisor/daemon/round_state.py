"""Holds the state of the daemon between rounds: breakers, followed jobs, the accuracy of its forecasts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from pydantic import TypeAdapter, ValidationError

from advisor.apply.step import Step
from advisor.config import Config
from advisor.cycle import StartForecaster
from advisor.domain.load import ControllerLoad
from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import JournalError
from advisor.guard.breakers import ALL_CLOSED, BreakerState, Vitals, judged
from advisor.journal import SqliteJournal
from advisor.metrics.round import Forecasted
from advisor.settings import BreakerSettings
from advisor.trial.accuracy import Accuracy, run_time_accuracy, start_accuracy
from advisor.trial.follower import Follower

# The window and the interval of the measurement of forecast accuracy.
_JUDGED_OVER_S: Final = 3 * DAY_S
_JUDGED_EVERY_S: Final = HOUR_S
# On a large cluster more jobs end in a day than are needed in memory at once.
_MOST_JUDGED: Final = 2000
_BREAKERS: Final = "breakers"
_EXPERIMENT: Final = "experiment"


class RoundState:
    """The state that survives a round; state that must survive the daemon is in the journal."""

    def __init__(self) -> None:
        """Start empty; `begin` loads the state."""
        self._breakers = ALL_CLOSED
        # The open breakers according to the journal; None until it has been read.
        self._written: tuple[str, ...] | None = None
        self._follower: Follower | None = None
        self._experiment = ""
        self._paused = False
        self._notes: list[tuple[str, Mapping[str, str | int | float]]] = []
        self._judged_time = float("-inf")
        self.accuracy: Mapping[Forecasted, Accuracy] = {}

    def note(self, event: str, **detail: str | float) -> None:
        """Queue an event, to be written into the audit as soon as the journal is open."""
        self._notes.append((event, detail))

    def begin(self, journal: SqliteJournal, config: Config, now: float, *, paused: str) -> None:
        """Begin a round: load the state of an earlier daemon, and write the queued events into the audit."""
        if self._written is None:
            self._breakers = _kept_state(journal)
            self._written = _names(self._breakers)
        if self._follower is None:
            self._follower = Follower(journal.open_outcomes(), seen_at=journal.observed_until())
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

    def judged(
        self, journal: SqliteJournal, health: Vitals, loads: Sequence[ControllerLoad], settings: BreakerSettings
    ) -> Mapping[str, str]:
        """Judge the breakers by every load since the last look; map the open ones to their sentences."""
        run_times = self.accuracy.get("run_time")
        known = replace(
            health,
            coverage_ratio=None if run_times is None else run_times.coverage_ratio,
            ended_jobs=0 if run_times is None else run_times.jobs,
            leases=(*journal.closed((), since=health.now - settings.objections_window_s), *journal.leases()),
        )
        for load in loads:
            self._breakers = judged(self._breakers, replace(known, load=load), settings)
        sentences = self._breakers.sentences(settings)
        # Compared with the written state, not with the last known one, so that a failed write is repeated each round.
        if _names(self._breakers) != self._written:
            journal.note(health.now, _BREAKERS, {**sentences, "state": _states().dump_json(self._breakers).decode()})
            self._written = _names(self._breakers)
        return sentences

    def follow(self, journal: SqliteJournal, step: Step, forecaster: StartForecaster) -> None:
        """Follow the jobs through a step, and measure the forecasts periodically by the jobs that ended."""
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
        if not 0 <= now - self._judged_time < _JUDGED_EVERY_S:
            ended = journal.outcomes(now - _JUDGED_OVER_S, most=_MOST_JUDGED)
            self.accuracy = {"start": start_accuracy(ended), "run_time": run_time_accuracy(ended)}
            self._judged_time = now


def _names(breakers: BreakerState) -> tuple[str, ...]:
    return tuple(breaker.name for breaker in breakers.open)


def _kept_state(journal: SqliteJournal) -> BreakerState:
    """Return the breakers of the last daemon, or none if their state cannot be read."""
    row = journal.last(_BREAKERS)
    if row is None:
        return ALL_CLOSED
    try:
        return _states().validate_json(str(row.detail.get("state", "")), strict=True)
    except ValidationError:
        return ALL_CLOSED


def _registered(journal: SqliteJournal, digest: str) -> bool:
    row = journal.last(_EXPERIMENT)
    return row is not None and row.detail.get("digest") == digest


@cache
def _states() -> TypeAdapter[BreakerState]:
    return TypeAdapter(BreakerState)
