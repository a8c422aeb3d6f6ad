"""Forecasts jobs in the order of time, each from the jobs that had ended when it is asked about."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.predict.history import History, Keys, keys_of, runs_of
from advisor.predict.run_time import RunTimeForecaster, RunTimeQuantiles
from advisor.predict.run_time_features import LEVELS, EndedJobs, Recalled, Rows

Floats = NDArray[np.float64]
# Jobs whose remembered runs are held in memory at a time.
CHUNK_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Jobs that are asked about while nothing ended, `rows`, and the jobs that had ended since the step before."""

    ended: Rows
    rows: Rows


def asked_at(jobs: EndedJobs, moment: float) -> EndedJobs:
    """Return jobs as they were when part of their wait was over, `moment`: 0 at submission, 1 at the start."""
    start_time = jobs.end_time - jobs.run_s
    waited_s = np.nan_to_num(np.maximum(start_time - jobs.jobs.submit_time, 0.0)) * moment
    return replace(jobs, jobs=replace(jobs.jobs, waited_s=waited_s))


def steps(jobs: EndedJobs, wanted: NDArray[np.bool_]) -> Iterator[Asked]:
    """Yield the moments at which `wanted` jobs are asked about and the ends of usable jobs, in the order of time."""
    asked_time = jobs.jobs.submit_time + jobs.jobs.waited_s
    usable, _ = jobs.usable()
    ends = np.flatnonzero(usable)
    ends = ends[np.argsort(jobs.end_time[ends], kind="stable")]
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(asked_time[rows], kind="stable")]
    # What ends at that very second is not known yet.
    ended_before = np.searchsorted(jobs.end_time[ends], asked_time[rows], side="left")
    starts = np.flatnonzero(np.diff(ended_before, prepend=-1))
    done = 0
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        yield Asked(ended=ends[done : ended_before[start]], rows=rows[start:stop])
        done = ended_before[start]
    yield Asked(ended=ends[done:], rows=rows[:0])


def chunks(all_steps: Iterator[Asked]) -> Iterator[list[Asked]]:
    """Put steps together until they hold about `CHUNK_ROWS` jobs."""
    held: list[Asked] = []
    count = 0
    for step in all_steps:
        held.append(step)
        count += len(step.rows)
        if count >= CHUNK_ROWS:
            yield held
            held, count = [], 0
    if held:
        yield held


def recall_in_order(history: History, chunk: list[Asked], keys: list[Keys], runs: Floats) -> Recalled:
    """Fill a history step by step, and return its recall for the jobs of each step."""
    recalled = []
    for step in chunk:
        history.add_rows([keys[row] for row in step.ended.tolist()], runs[step.ended])
        if len(step.rows):
            recalled.append(history.recall([keys[row] for row in step.rows.tolist()]))
    return Recalled.join(recalled or [history.recall([])])


def replay(forecaster: RunTimeForecaster, jobs: EndedJobs, wanted: NDArray[np.bool_]) -> RunTimeQuantiles:
    """Forecast each of the `wanted` jobs once, in their order in `jobs`; learn from every job that ends.

    A job is forecast when it has waited for its `waited_s`, which is 0 at submission (`asked_at`).

    The history and the levels of the forecaster are updated as in service; nothing is fitted again.
    """
    keys, runs = keys_of(jobs.jobs), runs_of(jobs)
    asked_time = jobs.jobs.submit_time + jobs.jobs.waited_s
    size = len(jobs)
    quantiles_s, mean_s = np.full((size, len(LEVELS)), np.nan), np.full(size, np.nan)
    known, group = np.zeros(size, dtype=np.bool_), np.full(size, -1, dtype=np.int64)
    for chunk in chunks(steps(jobs, wanted)):
        recalled = recall_in_order(forecaster.history, chunk, keys, runs)
        order = np.concatenate([step.rows for step in chunk])
        drawn = forecaster.draw(jobs.jobs.take(order), recalled)
        read = 0
        for step in chunk:
            for row in step.ended[group[step.ended] >= 0].tolist():
                forecaster.note(jobs, row, keys[row], quantiles_s[row], group[row])
            if not len(step.rows):
                continue
            forecaster.levels.settle(float(asked_time[step.rows[0]]))
            answers = forecaster.read(drawn.take(slice(read, read + len(step.rows))))
            read += len(step.rows)
            quantiles_s[step.rows], mean_s[step.rows] = answers.quantiles_s, answers.mean_s
            known[step.rows], group[step.rows] = answers.known, answers.group
    rows = np.flatnonzero(wanted)
    return RunTimeQuantiles(quantiles_s=quantiles_s[rows], mean_s=mean_s[rows], known=known[rows], group=group[rows])
