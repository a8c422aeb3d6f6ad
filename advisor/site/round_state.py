"""Holds the state of the daemon between rounds: breakers, followed jobs, how its forecasts hold and order jobs."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

from advisor.apply.step import Step
from advisor.config import Config
from advisor.cycle import CycleRecord, StartForecaster
from advisor.domain.forecast import Forecasts
from advisor.domain.load import ControllerLoad
from advisor.domain.outcome import JobOutcome
from advisor.domain.probation import (
    NO_PROOF,
    NOTHING_ENDED,
    NOTHING_PROVEN,
    ORDER_WEEKS,
    Coverage,
    OrderLook,
    OrderProof,
    Proof,
    Trust,
)
from advisor.domain.units import DAY_S
from advisor.errors import JournalError
from advisor.guard.breakers import ALL_CLOSED, BreakerState, OpenBreaker, Vitals, judged
from advisor.journal import SqliteJournal
from advisor.journal.base import DRIFTED, ORDER_SEEN, PROVEN
from advisor.metrics.round import Forecasted
from advisor.settings import BreakerSettings
from advisor.site.breaker_events import acknowledged_since, read_breakers, write_breakers
from advisor.trial.accuracy import (
    Accuracy,
    Judge,
    RecentAccuracy,
    by_run_time_model,
    coverage_of,
    judged_run_time,
    judged_start,
    order_of,
    run_time_model,
)
from advisor.trial.follower import Follower
from advisor.view.breaker_words import breaker_lines, probation_line

_WEEK_S: Final = 7 * DAY_S
# What the last days show sets a model aside; more jobs than that are not compared in a round.
_LATELY_S: Final = 3 * DAY_S
_MOST_COMPARED: Final = 2000


class OrderLooks:
    """The last look of a daemon: one in a week at a model on probation, one in a day at another."""

    def __init__(self) -> None:
        """Begin without a look; the first use reads that of an earlier daemon."""
        self.last: OrderLook | None = None
        self._is_read = False

    def begin(self, journal: SqliteJournal) -> None:
        """Read the last look of an earlier daemon, once."""
        if not self._is_read:
            self.last, self._is_read = read_look(journal), True

    def look(
        self, journal: SqliteJournal, model: str, trust: Trust, now: float, *, is_tried: bool
    ) -> OrderProof | None:
        """Look at a model if that is due, and write what was seen into the audit; None where it is not due.

        A model that `is_tried` is on probation. Looks at such have to be rare, also where it is replaced every night:
        each is one more chance to pass.
        """
        last, rest_s = self.last, _WEEK_S if is_tried else DAY_S
        # A look of the future was written before the clock was set back.
        if last is not None and (is_tried or last.model == model) and 0.0 <= now - last.looked_time < rest_s:
            return None
        since = now - (ORDER_WEEKS * _WEEK_S if is_tried else _LATELY_S)
        ended = by_run_time_model(journal.outcomes(since, most=_MOST_COMPARED), trust)
        order = order_of(list(ended.get(model, ())))
        journal.note(now, ORDER_SEEN, {"model": model, **asdict(order)})
        self.last = OrderLook(model=model, looked_time=now, order=order)
        return order


def read_look(journal: SqliteJournal) -> OrderLook | None:
    """Return the last look in a journal; None without one, or if it cannot be read."""
    row = journal.last(ORDER_SEEN)
    if row is None:
        return None
    detail = dict(row.detail)
    try:
        model = str(detail.pop("model"))
        return OrderLook(model=model, looked_time=row.time, order=OrderProof(**detail))  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError):
        return None


# The window of the measurement of forecast accuracy.
_JUDGED_OVER_S: Final = 3 * DAY_S
# How far back a new daemon looks for the jobs that prove a model.
_PROBATION_OVER_S: Final = 30 * DAY_S
# On a large cluster more jobs end in a day than are needed in memory at once.
_MOST_JUDGED: Final = 2000
# A breaker that is closed by a person counts again from then.
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
        # What jobs that ended show of run-time models: all of them for the proof, the last ones for the drift.
        self._trust = NOTHING_PROVEN
        self._coverage: dict[str, Coverage] = {}
        self._recent_by_model: dict[str, RecentAccuracy] = {}
        self._order_looks = OrderLooks()
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
        self._heed_trust(journal.trust())
        self._order_looks.begin(journal)
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

    @property
    def order(self) -> OrderLook | None:
        """The last look at how a run-time model orders jobs; None without one."""
        return self._order_looks.last

    @property
    def breakers(self) -> tuple[OpenBreaker, ...]:
        """The open circuit breakers."""
        return self._breakers.open

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
        known = replace(
            health,
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

    def follow(self, journal: SqliteJournal, step: Step, forecaster: StartForecaster, config: Config) -> None:
        """Follow the jobs through a step, and judge the forecasts by the jobs that ended in it.

        A run-time model on probation that covers what it claims of enough jobs, and orders them better than their
        limits do, is proven from then on; another one that covers too little of the last jobs, or orders them worse,
        drifts, and is on probation from then on.
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
        self._judge_model(journal, step.record.forecasts, config, now)

    def on_probation(self, record: CycleRecord, config: Config) -> Mapping[str, str]:
        """Map the run-time models that a plan set aside to one line about each."""
        return {
            model: why_on_probation(
                model, {model: _proof(model, self._coverage, self.order)}, record.memory.trust, config
            )
            for model in record.forecasts.on_probation
        }

    def _judge_model(self, journal: SqliteJournal, forecasts: Forecasts, config: Config, now: float) -> None:
        """Write into the audit that the run-time model in use is proven, or has drifted."""
        model, order = run_time_model(forecasts.models), None
        if not model:
            return
        if model in forecasts.on_probation:
            coverage, event = self._coverage.get(model, NOTHING_ENDED), ""
            if coverage.proves(least_jobs(config)):
                order = self._order_looks.look(journal, model, self._trust, now, is_tried=True)
                event = PROVEN if order is not None and order.proves else ""
        else:
            recent = self._recent_by_model.get(model)
            coverage = NOTHING_ENDED if recent is None else recent.coverage
            # The first look at a version that is replaced every night waits for enough jobs too.
            if coverage.jobs >= max(1, config.breakers.min_ended_jobs):
                order = self._order_looks.look(journal, model, self._trust, now, is_tried=False)
            is_worse = order is not None and order.is_worse
            event = DRIFTED if is_worse or drifts(coverage, config.breakers) else ""
        if event:
            # Not earlier than what was written last, also if the clock was set back.
            since = max(now, self._trust.since(model))
            figures = {"jobs": coverage.jobs, "inside": coverage.inside}
            shares = {} if order is None else {"ordered": order.ordered_ratio, "limit_ordered": order.limit_ratio}
            journal.note(now, event, {"model": model, **figures, **shares, "since": since})

    def _heed_trust(self, trust: Trust) -> None:
        """Begin to count the jobs of those models again that were proven, drifted or are trusted again since."""
        for model, since in trust.since_by_model.items():
            if since != self._trust.since(model):
                self._coverage.pop(model, None)
                self._recent_by_model.pop(model, None)
        self._trust = trust

    def _judge(self, ended: Sequence[JobOutcome], now: float) -> None:
        """Count jobs that ended; those of long ago prove a model, and say nothing of its accuracy now."""
        for recent in (self._recent or {}).values():
            recent.add(ended)
        for model, outcomes in by_run_time_model(ended, self._trust).items():
            self._coverage[model] = self._coverage.get(model, NOTHING_ENDED) + coverage_of(outcomes)
            self._recent_by_model.setdefault(model, RecentAccuracy(judged_run_time, _MOST_JUDGED)).add(outcomes)
        for recent in (*(self._recent or {}).values(), *self._recent_by_model.values()):
            recent.forget(now - _JUDGED_OVER_S)


def proofs_so_far(journal: SqliteJournal, now: float) -> Mapping[str, Proof]:
    """Map run-time models to what the jobs that ended lately show of them, by a journal."""
    outcomes, look = journal.outcomes(now - _PROBATION_OVER_S, most=_MOST_JUDGED), read_look(journal)
    by_model = by_run_time_model(outcomes, journal.trust())
    coverage = {model: coverage_of(ended) for model, ended in by_model.items()}
    models = coverage.keys() | ({look.model} if look is not None else set())
    return {model: _proof(model, coverage, look) for model in models}


def _proof(model: str, coverage: Mapping[str, Coverage], look: OrderLook | None) -> Proof:
    order = look.order if look is not None and look.model == model else None
    return Proof(coverage=coverage.get(model, NOTHING_ENDED), order=order)


def least_jobs(config: Config) -> int:
    """Return how many jobs prove a model on probation; where no model has to prove itself first, one that drifted."""
    return config.guard.probation_jobs or max(1, config.breakers.min_ended_jobs)


def why_on_probation(model: str, proofs: Mapping[str, Proof], trust: Trust | None, config: Config) -> str:
    """Return one line about a model on probation: what plans rest on, how far its proof is, and what to do."""
    drifted = model in (trust or NOTHING_PROVEN).drifted
    return probation_line(model, proofs.get(model, NO_PROOF), least_jobs(config), drifted=drifted)


def drifts(coverage: Coverage, settings: BreakerSettings) -> bool:
    """Return whether the intervals of a model no longer hold."""
    is_known = coverage.jobs >= max(1, settings.min_ended_jobs)
    return is_known and coverage.inside < settings.min_coverage_ratio * coverage.jobs


def _nothing_judged() -> Mapping[Forecasted, RecentAccuracy]:
    judges: Mapping[Forecasted, Judge] = {"start": judged_start, "run_time": judged_run_time}
    return {of: RecentAccuracy(judge, _MOST_JUDGED) for of, judge in judges.items()}


def _noted(breakers: BreakerState) -> Hashable:
    """Return what is written into the audit when it changes; figures change in every round."""
    return tuple(breaker.name for breaker in breakers.open), tuple(sorted(breakers.counted_since.items()))


def _registered(journal: SqliteJournal, digest: str) -> bool:
    row = journal.last(_EXPERIMENT)
    return row is not None and row.detail.get("digest") == digest
