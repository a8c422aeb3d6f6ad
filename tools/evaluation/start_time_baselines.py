"""What the forecast of start times is held against; each sees just what the forecast was fitted on."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from advisor.features.backlog import Floats
from advisor.fit.start_time_files import Polls
from advisor.fit.start_time_fit import HIGH, LOW, log_wait

BINS = 10
_QUANTILES = (LOW, 0.5, HIGH)
LEAST_IN_BIN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A baseline's answer, in log10 seconds, row by row; `low` and `high` are None where it states no interval."""

    name: str
    middle: Floats
    low: Floats | None = None
    high: Floats | None = None


def baselines(train: Polls, test: Polls) -> tuple[Guess, ...]:
    """Return the baselines for the rows of `test`, from rows of jobs that had started."""
    return (
        _mean(train, test),
        _wait_so_far(test),
        _work_ahead(train, test),
        _by_partition(train, test),
        _by_account(train, test),
        _by_bin_of_work(train, test),
    )


def _mean(train: Polls, test: Polls) -> Guess:
    true = log_wait(train.wait_s)
    low, high = (np.full(len(test), np.quantile(true, quantile)) for quantile in (LOW, HIGH))
    return Guess(name="training mean", middle=np.full(len(test), true.mean()), low=low, high=high)


def _wait_so_far(test: Polls) -> Guess:
    """Lindy: what has waited for so long will wait for as long again."""
    return Guess(name="wait so far", middle=log_wait(test.table.since_submit_s))


def _work_ahead(train: Polls, test: Polls) -> Guess:
    """Take the line before a job to be worked off by all GPUs that jobs hold."""
    ahead_s = _ahead_s(test)
    middle = np.where(np.isfinite(ahead_s), log_wait(ahead_s), log_wait(train.wait_s).mean())
    return Guess(name="GPU-hours ahead / GPUs running", middle=middle)


def _by_partition(train: Polls, test: Polls) -> Guess:
    true = log_wait(train.wait_s)
    rows_by_partition = _rows_by_key(train.partition)
    medians = {name: float(np.median(true[rows])) for name, rows in rows_by_partition.items()}
    middle = np.array([medians.get(name, float(np.median(true))) for name in test.partition])
    return Guess(name="median of the partition", middle=middle)


def _by_account(train: Polls, test: Polls) -> Guess:
    """Take the wait, at its poll, of the job of the account that started last."""
    true = log_wait(train.wait_s)
    last = {
        name: float(true[rows[np.lexsort((true[rows], train.start_time[rows]))[-1]]])
        for name, rows in _rows_by_key(train.account).items()
    }
    return Guess(
        name="last wait of the account", middle=np.array([last.get(name, true.mean()) for name in test.account])
    )


def _by_bin_of_work(train: Polls, test: Polls) -> Guess:
    """Give the quantiles of the waits in the same tenth of GPU-hours ahead; those of all where few are in it."""
    true = log_wait(train.wait_s)
    ours, theirs = _ahead_s(train), _ahead_s(test)
    edges: Floats = np.empty(0)
    if np.isfinite(ours).any():
        edges = np.quantile(ours[np.isfinite(ours)], np.linspace(0.0, 1.0, BINS + 1)[1:-1])
    bin_of_train, bin_of_test = (np.searchsorted(edges, each, side="right") for each in (ours, theirs))
    found = np.tile(np.quantile(true, _QUANTILES), (len(test), 1))
    for number in range(BINS):
        inside = np.isfinite(ours) & (bin_of_train == number)
        if inside.sum() >= LEAST_IN_BIN:
            found[np.isfinite(theirs) & (bin_of_test == number)] = np.quantile(true[inside], _QUANTILES)
    low, middle, high = found.T
    return Guess(name="quantiles by GPU-hours ahead", middle=middle, low=low, high=high)


def _ahead_s(polls: Polls) -> Floats:
    running = np.where(polls.table.running.gpus > 0.0, polls.table.running.gpus, np.nan)
    return np.asarray(polls.table.ahead.gpu_s / running, dtype=np.float64)


def _rows_by_key(keys: Iterable[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows
