"""Fits the model of start times to polls of a queue."""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S
from advisor.errors import ConfigError
from advisor.features.backlog import BacklogTable, Floats, Rows
from advisor.features.columns import Columns
from advisor.fit.fitted import Fitted, Source
from advisor.predict.start_time import (
    CENTRE,
    COLUMNS,
    FLOOR_S,
    KIND,
    OUTPUTS,
    UNKNOWN,
    LogWait,
    StartTimeParameters,
    log_wait_of,
    model_rows,
)

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesRegressor

LEAST_ROWS: Final = 200
LEAST_POLLS: Final = 6
LOW: Final = 0.1
HIGH: Final = 0.9
# Chosen, as the columns, on polls of May 2021 alone, by the errors on held-out weeks and on later weeks.
FOREST: Final = {"n_estimators": 100, "min_weight_fraction_leaf": 0.004, "max_features": 0.5}
# Old polls say less about today: a poll weighs half as much as one that is this much later.
HALF_LIFE_S: Final = 4 * DAY_S
# The largest weight of a row, for waits that few jobs were observed long enough to show.
MOST_WEIGHT: Final = 20.0
# The later half of the polls is divided into this many parts, each forecast by a model fitted on earlier polls.
BLOCKS: Final = 4
# Beyond these quantiles of a column, widened by a factor of 1.4, there are too few rows for a forecast.
SUPPORT: Final = (0.001, 0.999)
SUPPORT_MARGIN: Final = 0.15
_PROBE_ROWS: Final = 500
_TEXT = (
    "How long a pending GPU job still waits, from the line by priority, what runs, and what the job asks for. Jobs "
    "that started before the next poll are under-represented. Polls of one cluster say little of another: fit it to "
    "polls of your own. Fair share is not a column: a snapshot lacks it, and it did not help."
)
Codes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Polls(Columns):
    """Pending jobs at polls of the queue, and the remaining wait of each; all `(n_rows,)`.

    `wait_s` is NaN for a job that was never seen to start. Rows of one poll whose jobs are alike and were submitted
    together have the same number in `burst`.
    """

    table: BacklogTable
    poll_time: Floats
    wait_s: Floats
    burst: Codes
    account: tuple[str, ...]
    partition: tuple[str, ...]

    @property
    def start_time(self) -> Floats:
        """Return the start time of each job, NaN if it was never seen to start."""
        return self.poll_time + self.wait_s

    @property
    def seen_until(self) -> float:
        """Return the time of the last poll or start."""
        return float(max(np.max(self.poll_time), np.nanmax(self.start_time, initial=-np.inf)))

    def started_by(self, instant: float) -> NDArray[np.bool_]:
        """Return which rows were polled, and their jobs started, before an instant."""
        started: NDArray[np.bool_] = (self.poll_time < instant) & (self.start_time < instant)
        return started


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutForecasts:
    """Forecasts of polls by models fitted on earlier ones, in log10 seconds, with the true waits.

    All arrays are `(n_rows,)`; `block` numbers the parts in order of time.
    """

    log_wait: LogWait
    true: Floats
    weight: Floats
    poll_time: Floats
    block: NDArray[np.int64]

    @property
    def scaled_error(self) -> Floats:
        """Return the errors of the mean in units of the forecast spread, `(n_rows,)`."""
        return np.asarray((self.true - self.log_wait.mean) / self.log_wait.spread, dtype=np.float64)


def fit_polls(polls: Polls, *, seen_until: float, seed: int, sources: tuple[Source, ...] = ()) -> Fitted:
    """Fit the model to the polls before `seen_until` of jobs that had started by then; raises `ConfigError`."""
    started = polls.started_by(np.nextafter(seen_until, np.inf))
    days = np.unique(polls.poll_time[started])
    if started.sum() < LEAST_ROWS or len(days) < LEAST_POLLS:
        raise ConfigError(
            f"{started.sum()} rows of {len(days)} polls are too few to fit start times to: give at least "
            f"{LEAST_ROWS} rows of {LEAST_POLLS} polls of jobs that started"
        )
    calibration = calibrate(polls, seen_until=seen_until, seed=seed)
    low, high = factors(calibration)
    rows = model_rows(polls.table)[started]
    least, most = _support(rows)
    parameters = StartTimeParameters(
        low=low,
        high=high,
        least=least,
        most=most,
        by_limits=polls.table.by_limits,
    )
    return Fitted(
        kind=KIND,
        columns=COLUMNS,
        outputs=OUTPUTS,
        regressors=(fit_forest(polls, seen_until=seen_until, seed=seed),),
        parameters=parameters.model_dump_json(),
        probe=rows[:: max(1, len(rows) // _PROBE_ROWS)],
        sources=sources,
        metrics=_metrics(calibration),
        seed=seed,
        text=_TEXT,
        settings={name: str(value) for name, value in FOREST.items()},
    )


def fit_forest(polls: Polls, *, seen_until: float, seed: int) -> "ExtraTreesRegressor":
    """Fit a forest of the mean and the mean square to the polls of jobs that had started by `seen_until`."""
    from sklearn.ensemble import ExtraTreesRegressor

    started = polls.started_by(np.nextafter(seen_until, np.inf))
    rows, centred = model_rows(polls.table)[started], log_wait(polls.wait_s[started]) - CENTRE
    recency = 0.5 ** ((seen_until - polls.poll_time[started]) / HALF_LIFE_S)
    weight = weights(polls, seen_until=seen_until)[started] * recency
    targets = np.stack([centred, centred**2], axis=1).astype(np.float32)
    return ExtraTreesRegressor(random_state=seed, **FOREST).fit(rows, targets, sample_weight=weight)


def calibrate(polls: Polls, *, seen_until: float, seed: int) -> HeldOutForecasts:
    """Forecast the later half of the polls, part by part, by forests fitted on what was known before each part."""
    started = polls.started_by(np.nextafter(seen_until, np.inf))
    days = np.unique(polls.poll_time[started])
    weight = weights(polls, seen_until=seen_until)
    predictions: list[Floats] = []
    rows_of_blocks: list[Rows] = []
    for block in np.array_split(days[len(days) // 2 :], min(BLOCKS, len(days) - len(days) // 2)):
        rows = np.flatnonzero(started & (polls.poll_time >= block[0]) & (polls.poll_time <= block[-1]))
        known_before = float(np.nextafter(block[0], -np.inf))
        if not polls.started_by(block[0]).any():
            continue
        forest = fit_forest(polls, seen_until=known_before, seed=seed)
        predictions.append(forest.predict(model_rows(polls.table.take(rows))))
        rows_of_blocks.append(rows)
    if not predictions:
        raise ConfigError("no job was seen to start between the polls: give polls of a longer time to fit on")
    held_out = np.concatenate(rows_of_blocks)
    return HeldOutForecasts(
        log_wait=log_wait_of(np.concatenate(predictions), polls.table.since_submit_s[held_out]),
        true=log_wait(polls.wait_s[held_out]),
        weight=weight[held_out],
        poll_time=polls.poll_time[held_out],
        block=np.repeat(np.arange(len(rows_of_blocks)), [len(rows) for rows in rows_of_blocks]),
    )


def factors(calibration: HeldOutForecasts, chosen: NDArray[np.bool_] | None = None) -> tuple[float, float]:
    """Return the 10 % and 90 % quantiles of the errors of the mean, in units of the forecast spread.

    Normalised split-conformal prediction (Lei et al. 2018), with equal weight for each poll, because the jobs of one
    poll are not independent. The correction for small samples is omitted: with the number of polls as the sample size
    the intervals covered over 91 % of later polls of May, and its guarantee needs exchangeable days.
    """
    rows = np.ones(len(calibration.true), dtype=np.bool_) if chosen is None else chosen
    error, poll = calibration.scaled_error[rows], np.unique(calibration.poll_time[rows], return_inverse=True)[1]
    of_poll = np.bincount(poll, calibration.weight[rows])
    weight = calibration.weight[rows] / of_poll[poll]
    # The interval always contains the mean.
    low, high = np.quantile(error, (LOW, HIGH), weights=weight, method="inverted_cdf").tolist()
    return min(low, 0.0), max(high, 0.0)


def weights(polls: Polls, *, seen_until: float) -> Floats:
    """Return the weight of each row of a job that had started by `seen_until`, `(n_rows,)`.

    A burst of jobs that are alike, which tend to start together, weighs as much as one row. Only jobs that had started
    are fitted on, so that long waits are too rare: the weight of a row is inverse to the share of rows polled early
    enough to observe a wait of its length (inverse probability of censoring weights, Robins and Rotnitzky 1992).
    Observation ends at the same time for all jobs.
    """
    watched_s = np.sort(seen_until - polls.poll_time[polls.poll_time <= seen_until])
    waited_s = np.nan_to_num(polls.wait_s, nan=np.inf)
    seen_ratio = 1.0 - np.searchsorted(watched_s, waited_s, side="left") / max(1, len(watched_s))
    size = np.bincount(polls.burst)[polls.burst].astype(np.float64)
    weight: Floats = 1.0 / np.maximum(seen_ratio, 1.0 / MOST_WEIGHT) / size
    return weight


def log_wait(wait_s: Floats, floor_s: float = FLOOR_S) -> Floats:
    """Return the base-10 logarithm of waits, with shorter waits raised to the floor."""
    logarithms: Floats = np.log10(np.maximum(wait_s, floor_s))
    return logarithms


def _support(rows: NDArray[np.float32]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the bounds of each column in the rows of the fit; an empty range for a column that was never known."""
    bounds = []
    for column in rows.T:
        known = column[column != np.float32(UNKNOWN)]
        least, most = np.quantile(known, SUPPORT, method="nearest") if len(known) else (2.0, 1.0)
        bounds.append((max(0.0, float(least) - SUPPORT_MARGIN), float(most) + SUPPORT_MARGIN))
    return tuple(least for least, _ in bounds), tuple(most for _, most in bounds)


def _metrics(calibration: HeldOutForecasts) -> dict[str, float]:
    """Return the errors and the coverage on later polls, with the quantiles for each part from the other parts."""
    inside = np.zeros(len(calibration.true), dtype=np.bool_)
    errors = calibration.true - calibration.log_wait.mean
    for block in np.unique(calibration.block):
        in_block = calibration.block == block
        low, high = factors(calibration, ~in_block if (~in_block).any() else in_block)
        scaled = calibration.scaled_error[in_block]
        inside[in_block] = (scaled >= low) & (scaled <= high)
    return {
        "mean squared error of log10 wait, later polls": float(np.mean(errors**2)),
        "the same, each burst of jobs alike as one": float(np.average(errors**2, weights=calibration.weight)),
        "mean absolute error of log10 wait, later polls": float(np.mean(np.abs(errors))),
        "covered by the 80 % interval, later polls": float(np.mean(inside)),
    }


def bursts(*columns: Floats | Codes) -> Codes:
    """Number the rows `(n_rows,)`, so that rows with equal values in all columns `(n_rows,)` have the same number."""
    alike = np.column_stack([np.nan_to_num(column) for column in columns])
    return np.unique(alike, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
