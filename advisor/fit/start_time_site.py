"""Fits start times to the polls of a site, and judges the fit on later polls beside what is served without it."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S
from advisor.errors import ConfigError, ModelError
from advisor.features.backlog import Floats
from advisor.fit.fitted import Fitted, Source, bundled
from advisor.fit.start_time_fit import LEAST_ROWS, Polls, fit_polls, log_wait
from advisor.fit.start_time_journal import JournalPolls
from advisor.predict.intervals import Intervals
from advisor.predict.start_time import StartTimeForecaster, model_rows

LEAST_DAYS: Final = 4.0
# The share of the days that the fit is judged on, the last ones.
_JUDGED_SHARE: Final = 0.25
OURS, SHIPPED, BOTH, SO_FAR = "this fit", "shipped model", "mean of both", "wait so far"
_TEXT = (
    "How long a pending GPU job still waits, from the line by priority, what runs, and what the job asks for; fitted "
    "on polls of this site from the journal of the daemon. The digest is that of their rows. Errors are of the log10 "
    "of the wait on the last days, by a fit of what was known before; a burst of jobs that are alike counts as one. "
    "The model in this folder is then fitted on all days. The mean of both, in the logarithm, is not served."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The errors of forecasts on later polls: mean squares of log10 seconds, by burst, by name of the forecast.

    `known_ratio` is the share of the rows within what was fitted on, `shipped_ratio` that of the shipped model.
    """

    rows: int
    bursts: int
    polls: int
    days: float
    squared: Mapping[str, float]
    coverage: float
    known_ratio: float
    shipped_ratio: float | None = None

    @property
    def fault(self) -> str | None:
        """Why the fit is not to be served; None if it is better than what is there without it."""
        for name in (SHIPPED, SO_FAR):
            if name in self.squared and not self.squared[OURS] < self.squared[name]:
                return f"squared error {self.squared[OURS]:.3f}, and {self.squared[name]:.3f} by the {name}"
        return None

    @property
    def metrics(self) -> dict[str, float]:
        """The figures of the card."""
        return {
            "last days, judged by a fit of what was known before": self.days,
            "rows of these days": float(self.rows),
            "bursts of jobs alike in them": float(self.bursts),
            "polls in them": float(self.polls),
            **{f"squared error by burst, {name}": error for name, error in self.squared.items()},
            "covered by the 80 % interval": self.coverage,
            "share of these rows that it knows": self.known_ratio,
            **({} if self.shipped_ratio is None else {"share that the shipped model knows": self.shipped_ratio}),
        }


def fit_site(
    read: JournalPolls, name: str, *, shipped: StartTimeForecaster | None, seed: int
) -> tuple[Fitted, Judgement]:
    """Judge a fit of the earlier polls on the later ones, then fit to all of them; `name` is that of the journal.

    Raises `ConfigError` if there are too few polls, `ModelError` if the later polls show no gain.
    """
    polls = read.polls
    seen_until = float(polls.poll_time.max(initial=-np.inf))
    split_time = _split_time(polls, seen_until)
    judgement = judge(polls, split_time=split_time, seen_until=seen_until, shipped=shipped, seed=seed)
    if judgement.fault is not None:
        raise ModelError(
            f"start_time: not published: on the last {judgement.days:.1f} days it is no better than without it: "
            f"{judgement.fault}; fit again when the journal holds more days"
        )
    fitted = fit_polls(polls, seen_until=seen_until, seed=seed, sources=(_source(name, polls),))
    return replace(fitted, text=_TEXT, metrics={**judgement.metrics, **fitted.metrics}), judgement


def judge(
    polls: Polls, *, split_time: float, seen_until: float, shipped: StartTimeForecaster | None, seed: int
) -> Judgement:
    """Fit to what was known before an instant, and judge the fit on the later rows with a known wait."""
    later = polls.take((polls.poll_time >= split_time) & np.isfinite(polls.wait_s))
    if not len(later):
        raise ConfigError(
            f"start_time: no job polled in the last {(seen_until - split_time) / DAY_S:.1f} days was seen to start: "
            "nothing to judge a fit on; try again in some days"
        )
    before = float(np.nextafter(split_time, -np.inf))
    earlier = fit_polls(polls.take(polls.poll_time <= before), seen_until=before, seed=seed)
    forecast = StartTimeForecaster.from_bundle(bundled(earlier)).forecast(later.table)
    other = None if shipped is None else shipped.forecast(later.table)
    middles = {OURS: log_wait(forecast.median)}
    if other is not None:
        middles[SHIPPED] = log_wait(other.median)
        middles[BOTH] = (middles[OURS] + middles[SHIPPED]) / 2.0
    middles[SO_FAR] = log_wait(later.table.since_submit_s)
    weight = 1.0 / np.bincount(later.burst)[later.burst]
    true = log_wait(later.wait_s)
    return Judgement(
        rows=len(later),
        bursts=len(np.unique(later.burst)),
        polls=len(np.unique(later.poll_time)),
        days=(seen_until - split_time) / DAY_S,
        squared={name: float(np.average((middle - true) ** 2, weights=weight)) for name, middle in middles.items()},
        coverage=float(np.mean(_inside(forecast, true))),
        known_ratio=float(np.mean(forecast.known)),
        shipped_ratio=None if other is None else float(np.mean(other.known)),
    )


def _inside(forecast: Intervals, true: Floats) -> NDArray[np.bool_]:
    return np.asarray((true >= log_wait(forecast.low)) & (true <= log_wait(forecast.high)), dtype=np.bool_)


def _split_time(polls: Polls, seen_until: float) -> float:
    """Return when the days begin that a fit is judged on; raises `ConfigError` if there is too little before."""
    first = float(polls.poll_time.min(initial=seen_until))
    days = (seen_until - first) / DAY_S if len(polls) else 0.0
    split_time = seen_until - _JUDGED_SHARE * days * DAY_S
    started = int(np.count_nonzero(polls.started_by(split_time)))
    if started < LEAST_ROWS or days < LEAST_DAYS:
        raise ConfigError(
            f"start_time: {started:,} rows of jobs that started in the first three quarters of {days:.1f} days are too "
            f"few to fit to: let the daemon run until there are {LEAST_ROWS}, and {LEAST_DAYS:.0f} days"
        )
    return split_time


def _source(name: str, polls: Polls) -> Source:
    rows = hashlib.sha256(model_rows(polls.table).tobytes() + polls.poll_time.tobytes() + polls.wait_s.tobytes())
    return Source(name=name, sha256=rows.hexdigest(), rows=len(polls))
