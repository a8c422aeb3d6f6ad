"""Forecasts run times: quantiles from the requests of jobs and from their users' last jobs."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from advisor.domain.dataclass import dataclass
from advisor.errors import ModelError
from advisor.features.columns import Columns
from advisor.predict.history import History, Keys, burst_of, keys_of
from advisor.predict.intervals import Intervals
from advisor.predict.manifest import CheckedModel, fault_of
from advisor.predict.onnx_model import Bundle, OnnxModel
from advisor.predict.run_time_curve import AdaptiveLevels, Curves, Grid, quantiles_and_mean
from advisor.predict.run_time_features import (
    COLD,
    COLUMNS,
    LONGEST_S,
    EndedJobs,
    Features,
    Recalled,
    RunTimeTable,
    features,
)

__all__ = ["KIND", "EndedJobs", "RunTimeForecaster", "RunTimeQuantiles", "RunTimeTable", "Support"]

KIND = "run_time"
# An interval between ends this far apart says little more than the time limit does.
WIDE_FACTOR = 30.0
Floats = NDArray[np.float64]


class Support(CheckedModel):
    """The least and the most that the jobs of the fit asked for."""

    gpus: tuple[float, float] = Field(strict=False)
    cpus: tuple[float, float] = Field(strict=False)
    nodes: tuple[float, float] = Field(strict=False)
    memory_mib: tuple[float, float] = Field(strict=False)
    limit_s: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(ge=1, lt=LONGEST_S)]] = Field(strict=False)

    def holds(self, jobs: RunTimeTable) -> NDArray[np.bool_]:
        """Whether each job has a time limit and asks for no less and no more; what is not known counts as inside."""
        inside = np.ones(len(jobs), dtype=np.bool_)
        for column in ("gpus", "cpus", "nodes", "memory_mib", "limit_s"):
            low, high = getattr(self, column)
            asked = getattr(jobs, column)
            # Bounds of -1 stand for a column that was empty. Without a limit there is nothing to forecast from; what
            # else is not known leaves the forecast to the rest.
            within = np.isnan(asked) if high < 0 else (asked >= low) & (asked <= high)
            inside &= within | (np.isnan(asked) & (column != "limit_s"))
        return inside


Thresholds = Annotated[
    tuple[Annotated[float, Field(ge=-50, le=50)], ...], Field(strict=False, min_length=2, max_length=200)
]


class RunTimeParameters(CheckedModel):
    """The parameters of the graph: thresholds of the curves, how far a burst moves the levels, support, and history."""

    format: Literal["sadvise.run_time/2"] = "sadvise.run_time/2"
    over_anchor: Thresholds
    over_limit: Thresholds
    rate: Annotated[float, Field(ge=0, le=0.1)]
    step_power: Annotated[float, Field(ge=0, le=1)]
    support: Support
    history: str | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> "RunTimeParameters":
        for thresholds in (self.over_anchor, self.over_limit):
            if list(thresholds) != sorted(set(thresholds)):
                raise ValueError("thresholds have to rise")
        if self.over_limit[-1] >= 0:
            raise ValueError("thresholds over the limit have to be below 0")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeQuantiles(Columns):
    """Run times in seconds, from the start of each job: `quantiles_s` `(n_rows, 5)` at 10, 25, 50, 75 and 90 %.

    `group` says what the forecast rests on, as an index of `GROUPS`; with it, `note` can tell how good it was.
    """

    quantiles_s: Floats
    mean_s: Floats
    known: NDArray[np.bool_]
    group: NDArray[np.int64]

    def intervals(self) -> Intervals:
        """Return the 80 % intervals and medians."""
        low, median, high = self.quantiles_s[:, (0, 2, 4)].T
        return Intervals(low=low, median=median, high=high, known=self.known)

    @property
    def wide(self) -> NDArray[np.bool_]:
        """Which intervals are too wide to be called known `(n_rows,)`; their means still order jobs."""
        return np.asarray(is_wide(self.quantiles_s[:, 0], self.quantiles_s[:, -1]), dtype=np.bool_)


def is_wide(low_s: float | Floats, high_s: float | Floats) -> np.bool_ | NDArray[np.bool_]:
    """Return whether intervals of run times are wider than `WIDE_FACTOR`; below a second all are alike."""
    return np.greater(high_s, WIDE_FACTOR * np.maximum(low_s, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn(Columns):
    """The curves that the model draws for jobs, before any level is read."""

    curves: Curves
    group: NDArray[np.int64]
    elapsed_s: Floats
    known: NDArray[np.bool_]


class RunTimeForecaster:
    """A run-time model with its history; it learns from every ended job without another fit."""

    def __init__(self, model: OnnxModel, parameters: RunTimeParameters) -> None:
        """Take the parameters of the fit, and its history if there is one."""
        self.model = model
        self.grid = Grid(over_anchor=np.array(parameters.over_anchor), over_limit=np.array(parameters.over_limit))
        self.support = parameters.support
        self.levels = AdaptiveLevels(parameters.rate, parameters.step_power)
        self.history = History() if parameters.history is None else History.from_json(parameters.history)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> "RunTimeForecaster":
        """Take a checked model; raises `ModelError` if it is of another kind or its parameters are damaged."""
        if bundle.kind != KIND or bundle.columns != COLUMNS:
            raise ModelError(
                f"model {bundle.kind} {bundle.version}: is not a run_time model of this release: fit it again"
            )
        try:
            parameters = RunTimeParameters.model_validate_json(bundle.parameters)
        except ValidationError as err:
            raise ModelError(f"model run_time {bundle.version}: {fault_of(err)}: fit it again") from err
        if bundle.outputs != outputs_of(parameters.over_anchor, parameters.over_limit):
            raise ModelError(f"model run_time {bundle.version}: its outputs are not its thresholds: fit it again")
        return cls(bundle.model, parameters)

    def forecast(self, jobs: RunTimeTable) -> RunTimeQuantiles:
        """Forecast jobs from what is known now; raises `ModelError` if the model's answer is invalid."""
        return self.read(self.draw(jobs, self.history.recall(keys_of(jobs))))

    def add_ended(self, ended: EndedJobs) -> None:
        """Update the history with ended jobs, in the order of their ends.

        The levels stay as they are: a forecast made now would already know how the job's siblings ended.
        """
        self.history.add(ended)

    def note(self, ended: EndedJobs, row: int, keys: Keys, quantiles_s: Floats, group: int) -> None:
        """Keep how an ended job compares with the quantiles `(5,)` that had been forecast for it."""
        run_s, limit_s = float(ended.run_s[row]), float(ended.jobs.limit_s[row])
        self.levels.note(
            due_time=float(ended.end_time[row]) + max(limit_s - run_s, 0.0),
            group=int(group),
            burst=burst_of(keys, float(ended.jobs.submit_time[row])),
            quantiles_s=quantiles_s,
            run_s=min(max(run_s, 1.0), max(limit_s, 1.0)),
        )

    def draw(self, jobs: RunTimeTable, recalled: Recalled) -> Drawn:
        """Run the model on jobs and their recalled history."""
        limit_s = self.cap_s(jobs)
        seen = features(jobs, recalled, limit_s)
        return Drawn(
            curves=self.curves(seen, np.log(limit_s)),
            group=seen.group,
            elapsed_s=jobs.elapsed_s,
            known=(seen.group != COLD) | self.support.holds(jobs),
        )

    def curves(self, seen: Features, log_limit: Floats) -> Curves:
        """Run the model on feature rows, given the logarithm of each time limit in seconds."""
        return self.grid.curves(self.model.run(seen.rows), seen.anchor, log_limit, seen.group)

    def read(self, drawn: Drawn) -> RunTimeQuantiles:
        """Read curves at the levels that hold now."""
        quantiles_s, mean_s = quantiles_and_mean(drawn.curves, self.levels, drawn.group, drawn.elapsed_s)
        return RunTimeQuantiles(quantiles_s=quantiles_s, mean_s=mean_s, known=drawn.known, group=drawn.group)

    def cap_s(self, jobs: RunTimeTable) -> Floats:
        """Return the time limits; where there is none, the longest of the fit."""
        limit_s = jobs.limit_s
        limited = (limit_s > 0) & (limit_s < LONGEST_S)
        return np.where(limited, limit_s, self.support.limit_s[1])


def outputs_of(over_anchor: Sequence[float], over_limit: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the outputs: shares of run times below the anchor, or the limit, times e to these powers."""
    return tuple(
        f"{name}_{power:g}" for name, powers in (("anchor", over_anchor), ("limit", over_limit)) for power in powers
    )
