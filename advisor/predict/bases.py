"""States what the forecasts of a job rest on, and what its user can add to get a better one."""

from collections.abc import Sequence
from typing import Final

from advisor.domain.forecast import ForecastBasis
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.queue_run_times import run_time_table
from advisor.predict.run_time import RunTimeForecaster
from advisor.predict.throughput import ThroughputForecaster
from advisor.predict.throughput_site import Evidence

# From the least to the most that can be known: what a forecast rests on, and what brings the next step.
_RUN_TIME: Final = (
    ("its request alone: no job of its user or account has ended here", "a job of its user that ends"),
    (
        "the last jobs of its user or account",
        "a job of its user that ends, with the same GPUs, CPUs, nodes, memory and time limit",
    ),
    ("the last jobs of its user with this request", "one of them that ends while it waits"),
    ("jobs of its user with this request that ended since it was submitted", ""),
)
_STATED: Final = "running jobs of its model that state sadvise: model=NAME step=SECONDS in their comment,"
_SPEED: Final = (
    ("what measured models have in common", f"{_STATED} on one GPU and on all GPUs of a node"),
    ("its model as measured elsewhere", f"{_STATED} on one GPU and on all GPUs of a node"),
    ("step times of its model on one node here", f"{_STATED} on several nodes"),
    ("step times of its model on one node and on several of this network", ""),
)
_BESIDE: Final = (
    ("what measured models have in common", "sadvise: model=NAME in its comment, if its model was measured"),
    ("its model as measured beside others", ""),
)
_STEP_BY_EVIDENCE: Final = {Evidence.ONE_NODE: 2, Evidence.SPREAD: 3}


def of_run_time(model: RunTimeForecaster, job: Job, snapshot: Snapshot) -> ForecastBasis:
    """Return what the run time of a job rests on; raises `ModelError` if the model returns invalid values."""
    group = model.forecast(run_time_table([job], snapshot)).group[0]
    return _basis("run time", _RUN_TIME, int(group))


def of_speed(model: ThroughputForecaster, job: Job) -> ForecastBasis:
    """Return what the speeds of a job rest on."""
    codes = model.codes([job.hints.model])
    measured = int(codes[0] >= 0)
    return _basis("speed", _SPEED, _STEP_BY_EVIDENCE.get(Evidence(model.evidence(codes)[0]), measured))


def of_neighbours(model: InterferenceForecaster, job: Job) -> ForecastBasis:
    """Return what the inflation of a job beside others rests on."""
    return _basis("neighbours", _BESIDE, int(model.codes([job.hints.model or ""])[0] >= 0))


def _basis(forecast: str, steps: Sequence[tuple[str, str]], step: int) -> ForecastBasis:
    rests_on, next_step = steps[step]
    return ForecastBasis(forecast=forecast, step=step + 1, steps=len(steps), rests_on=rests_on, next_step=next_step)
