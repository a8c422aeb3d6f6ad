"""Forecasts when pending jobs start: quantiles of the remaining wait, from the backlog ahead of each job."""

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from advisor.domain.dataclass import dataclass
from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import ModelError
from advisor.features.backlog import BacklogTable, Floats
from advisor.predict.intervals import Intervals
from advisor.predict.manifest import CheckedModel, fault_of
from advisor.predict.onnx_model import Bundle, OnnxModel

KIND = "start_time"
# Shorter waits make no difference in practice, and Slurm considers its queue about as often.
FLOOR_S = 60.0
# An upper bound of any wait: limits what a damaged model can return.
LONGEST_S = 10 * 366 * DAY_S
COLUMNS = (
    "log_hours_ahead", "log_hours_ahead_in_partition", "log_hours_ahead_in_account", "log_gpus_ahead",
    "log_gpus_ahead_in_account", "log_hours_left", "running_ratio_of_account", "log_gpus", "log_limit_s",
    "log_hours_since_submit", "log_hours_since_eligible", "eligible",
)  # fmt: skip
OUTPUTS = ("log_wait", "square")
# Outputs count from here, in log10 seconds: a square of what is near 0 survives float32.
CENTRE = 4.5
_LEAST_SPREAD = 0.05
# With half, the error by burst is above that of the graph alone at three of five splits, with a quarter at none.
WAIT_SHARE = 0.25
UNKNOWN = -1.0


def model_rows(table: BacklogTable) -> NDArray[np.float32]:
    """Return the columns of the model, `(n_jobs, n_columns)`; -1, which none of them can be, where not known.

    Whatever depends on the size of a cluster is divided by the GPUs that jobs hold there, so that hours are those in
    which these GPUs would work off what stands before a job.
    """
    size = np.where(table.running.gpus > 0.0, table.running.gpus, np.nan)
    columns = (
        _log_hours(table.ahead.gpu_s / size),
        _log_hours(table.ahead_in_partition.gpu_s / size),
        _log_hours(table.ahead_in_account.gpu_s / size),
        np.log10(1.0 + table.ahead.gpus / size),
        np.log10(1.0 + table.ahead_in_account.gpus / size),
        _log_hours(table.running.gpu_s / size),
        table.running_in_account.gpus / size,
        np.log10(1.0 + table.gpus),
        np.log10(np.maximum(table.limit_s, 1.0)),
        _log_hours(table.since_submit_s),
        _log_hours(table.since_eligible_s),
        table.eligible,
    )
    rows: NDArray[np.float32] = np.nan_to_num(np.stack(columns, axis=1), nan=UNKNOWN).astype(np.float32)
    return rows


def _log_hours(seconds: Floats) -> Floats:
    logarithms: Floats = np.log10(1.0 + np.maximum(seconds, 0.0) / HOUR_S)
    return logarithms


class StartTimeParameters(CheckedModel):
    """The parameters of the graph.

    `low` and `high` are the 10 and 90 % quantiles of the error over the spread. Outside of `least` and `most` of a
    column a row is not known.
    """

    low: float = Field(le=0.0)
    high: float = Field(ge=0.0)
    least: tuple[float, ...] = Field(strict=False, min_length=len(COLUMNS), max_length=len(COLUMNS))
    most: tuple[float, ...] = Field(strict=False, min_length=len(COLUMNS), max_length=len(COLUMNS))
    by_limits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWait:
    """The output of a graph for rows, in log10 seconds: mean and standard deviation, both `(n_rows,)`."""

    mean: Floats
    spread: Floats


def log_wait_of(outputs: NDArray[np.floating], since_submit_s: Floats) -> LogWait:
    """Return the mean and the deviation from the outputs of a graph, `(n_rows, n_outputs)`, and from the waits so far.

    A job that has waited for so long waits for as long again: this rule holds when the queue is another one than that
    of the fit. The mean is `WAIT_SHARE` of the way from the graph to it, in the logarithm.
    """
    mean, square = outputs.astype(np.float64).T
    spread = np.sqrt(np.maximum(square - mean**2, _LEAST_SPREAD**2))
    as_long_again = np.log10(np.maximum(since_submit_s, FLOOR_S))
    return LogWait(mean=(1.0 - WAIT_SHARE) * (CENTRE + mean) + WAIT_SHARE * as_long_again, spread=spread)


class StartTimeForecaster:
    """Forecasts the seconds from the snapshot to the start of each job of a backlog."""

    def __init__(self, model: OnnxModel, parameters: StartTimeParameters) -> None:
        self._model = model
        self._parameters = parameters

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> "StartTimeForecaster":
        """Open a model; raises `ModelError` if it is not of this kind or its parameters are damaged."""
        name = f"{bundle.kind} {bundle.version}"
        if (bundle.kind, bundle.columns, bundle.outputs) != (KIND, COLUMNS, OUTPUTS):
            raise ModelError(f"model {name}: it was not made for the start times of this release: fit it again")
        try:
            return cls(bundle.model, StartTimeParameters.model_validate_json(bundle.parameters))
        except ValidationError as err:
            raise ModelError(f"model {name}: parameters: {fault_of(err)}; fit it again, or roll back") from err

    def forecast(self, table: BacklogTable) -> Intervals:
        """Return the wait from now on of each row, in seconds; none ends before the begin time of its job.

        Raises `ModelError` for GPU seconds of another kind than those that the model was fitted on, or for an answer
        that is not a number.
        """
        fitted = self._parameters
        if table.by_limits != fitted.by_limits:
            raise ModelError(
                f"model {self._model.name}: it was fitted on GPU-hours by "
                f"{'time limits' if fitted.by_limits else 'forecast run times'}: give it such"
            )
        rows = model_rows(table)
        log_wait = log_wait_of(self._model.run(rows), table.since_submit_s)
        return Intervals(
            low=np.maximum(_seconds(log_wait.mean + fitted.low * log_wait.spread), table.begins_in_s),
            # The mean of the logarithm: moving it to the median of the calibration's errors made it no better.
            median=np.maximum(_seconds(log_wait.mean), table.begins_in_s),
            high=np.maximum(_seconds(log_wait.mean + fitted.high * log_wait.spread), table.begins_in_s),
            known=self._supported(rows),
        )

    def _supported(self, rows: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return which rows lie within the range of the fitted rows; a row with an unknown column does not."""
        least, most = (np.array(bounds, dtype=np.float32) for bounds in (self._parameters.least, self._parameters.most))
        return np.asarray(((rows >= least) & (rows <= most)).all(axis=1), dtype=np.bool_)


def _seconds(logarithms: Floats) -> Floats:
    clipped = np.clip(logarithms, np.log10(FLOOR_S), np.log10(LONGEST_S))
    seconds: Floats = 10.0**clipped
    return seconds
