"""Sums up by user and account how long jobs waited, and how long plain Slurm would have made them wait."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.standings import Stretch, WaitSum
from advisor.sim.live.carried_jobs import PlainStay

# By how much a start in the model differs from the live one in the mean: the bound of docs/fidelity.md.
MODEL_ERROR_S: Final = 3.0
MODEL_ERROR_RATIO: Final = 0.03
# A normal error whose absolute value is 1 in the mean is below this in 95 % of cases.
_NORMAL_95: Final = 2.45
_PERCENT: Final = (10.0, 90.0)


class PlainStarts(NamedTuple):
    """When jobs would have started without advice, and when they did; the jobs waited at the anchor or came later.

    Jobs `in_doubt` could have waited without advice as long as they did. Starts after `until` are NaN in what was seen;
    in the model they can reach a horizon beyond it. `unknown_ratio` is the share of the jobs or the GPUs that the model
    does not know, `left_out` says in plain sentences why. `carried` are the jobs that stand elsewhere at `until`
    without advice, in a number of draws. `disputed` are the ids of jobs that are not compared, since their requests
    changed while they waited or they waited where they fit.
    """

    anchor_time: float
    until: float
    job_ids: NDArray[np.int64]  # (n_jobs,)
    users: tuple[str, ...]  # (n_jobs,)
    accounts: tuple[str, ...]  # (n_jobs,)
    was_submitted_later: NDArray[np.bool_]  # (n_jobs,)
    wait_begin_time: NDArray[np.float64]  # (n_jobs,): the submission, or later if the job was not eligible then
    plain_start_time: NDArray[np.float64]  # (n_draws, n_jobs)
    real_start_time: NDArray[np.float64]  # (n_jobs,)
    in_doubt: NDArray[np.bool_]  # (n_jobs,)
    unknown_ratio: float
    left_out: tuple[str, ...]
    carried: tuple[tuple[PlainStay, ...], ...] = ()
    disputed: tuple[int, ...] = ()


def model_error_s(mean_wait_s: float, jobs: int) -> float:
    """Return by how much the model can miss the mean wait of a number of jobs.

    The mean over many jobs errs by no more than the mean error of a job; a single job errs by more than that at times.
    """
    mean_error_s = MODEL_ERROR_S + MODEL_ERROR_RATIO * mean_wait_s
    return mean_error_s * (1.0 + (_NORMAL_95 - 1.0) / float(np.sqrt(jobs)))


def waits_s(
    start_time: NDArray[np.float64], begin: NDArray[np.float64], most_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how long jobs waited from `begin` on, no longer than `most_s`, which a start that is NaN stands for."""
    waited_s = np.where(np.isnan(start_time), most_s, start_time - begin)
    return np.asarray(np.clip(waited_s, 0.0, most_s))


def stretch_of(starts: PlainStarts) -> Stretch:
    """Return the waits from the anchor on, in all and by user and account.

    What jobs waited before the anchor is the same with and without advice here, and belongs to an earlier stretch.
    """
    sums = _Sums(starts)
    return Stretch(
        anchor_time=starts.anchor_time,
        until=starts.until,
        total=sums.over(np.ones(len(starts.job_ids), dtype=np.bool_)),
        by_user=dict(sums.by_name(starts.users)),
        by_account=dict(sums.by_name(starts.accounts)),
        late=tuple(_late(starts)),
        disputed=starts.disputed,
        notes=starts.left_out,
    )


def _late(starts: PlainStarts) -> Iterator[tuple[int, float]]:
    """Yield the jobs that still wait and would have started in most draws, with the median start."""
    # A start after the last snapshot is none yet.
    plain = np.where(starts.plain_start_time <= starts.until, starts.plain_start_time, np.inf)
    if not plain.size:
        return
    median = np.median(plain, axis=0)
    for row in np.flatnonzero(np.isnan(starts.real_start_time) & np.isfinite(median)).tolist():
        yield int(starts.job_ids[row]), float(median[row])


def stretch_over(stretches: Sequence[Stretch]) -> Stretch:
    """Return the stretch of several runs over the same time whose draws are as likely."""
    first, draws = stretches[0], len(stretches[0].total.plain_s)
    if len(stretches) == 1:
        return first
    return Stretch(
        anchor_time=first.anchor_time,
        until=first.until,
        total=_pooled([stretch.total for stretch in stretches]),
        by_user=_pooled_by_name([stretch.by_user for stretch in stretches], draws),
        by_account=_pooled_by_name([stretch.by_account for stretch in stretches], draws),
        late=tuple(_late_in_most([dict(stretch.late) for stretch in stretches])),
        disputed=first.disputed,
        notes=tuple(dict.fromkeys(note for stretch in stretches for note in stretch.notes)),
    )


def _late_in_most(runs: Sequence[Mapping[int, float]]) -> Iterator[tuple[int, float]]:
    """Yield the jobs that are late in most runs, with the median of their starts."""
    for job_id in sorted(set().union(*runs)):
        start_times = [run[job_id] for run in runs if job_id in run]
        if 2 * len(start_times) > len(runs):
            yield job_id, float(np.median(start_times))


def _pooled_by_name(tables: Sequence[Mapping[str, WaitSum]], draws: int) -> dict[str, WaitSum]:
    names = sorted(set().union(*tables))
    none = WaitSum(jobs=0, carried=0, waited_s=0.0, plain_s=(0.0,) * draws, less_s=0.0, more_s=0.0)
    return {name: _pooled([table.get(name, none) for table in tables]) for name in names}


def _pooled(sums: Sequence[WaitSum]) -> WaitSum:
    """Return the draws of all runs as those of one; a job that waits in one run alone did not wait in reality."""
    most = max(sums, key=lambda of_run: of_run.jobs)
    return WaitSum(
        jobs=most.jobs,
        carried=most.carried,
        waited_s=max(of_run.waited_s for of_run in sums),
        plain_s=tuple(chain.from_iterable(of_run.plain_s for of_run in sums)),
        less_s=max(of_run.less_s for of_run in sums),
        more_s=max(of_run.more_s for of_run in sums),
    )


class _Sums:
    """The waits of the jobs of one run, from the anchor on."""

    def __init__(self, starts: PlainStarts) -> None:
        begin = np.maximum(starts.wait_begin_time, starts.anchor_time)
        self._carried = ~starts.was_submitted_later
        self._open_s = np.maximum(0.0, starts.until - begin)
        self._waited_s = waits_s(starts.real_start_time, begin, self._open_s)
        self._plain_s = waits_s(starts.plain_start_time, begin, self._open_s)  # (n_draws, n_jobs)
        self._in_doubt = starts.in_doubt
        self._unknown_ratio = starts.unknown_ratio

    def by_name(self, names: Sequence[str]) -> Iterator[tuple[str, WaitSum]]:
        """Yield the sums over the jobs of each name."""
        rows_by_name: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows_by_name.setdefault(name, []).append(row)
        for name, rows in sorted(rows_by_name.items()):
            yield name, self.over(np.array(rows, dtype=np.intp))

    def over(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> WaitSum:
        """Return the sums over some jobs."""
        plain_s = self._plain_s[:, rows].sum(axis=1)
        jobs, open_s = int(self._open_s[rows].size), float(self._open_s[rows].sum())
        low_s, high_s = np.percentile(plain_s, _PERCENT)
        error_s = jobs * model_error_s(float(plain_s.mean()) / jobs, jobs) if jobs else 0.0
        # The waits that the model does not know lie between nothing and all of the time.
        known = 1.0 - self._unknown_ratio
        least_s = max(0.0, known * (float(low_s) - error_s))
        most_s = min(open_s, float(high_s) + error_s)
        most_s = max(most_s, known * most_s + self._unknown_ratio * open_s)
        gained_s, given_s = self._doubts_s(rows)
        return WaitSum(
            jobs=jobs,
            carried=int(self._carried[rows].sum()),
            waited_s=float(self._waited_s[rows].sum()),
            plain_s=tuple(plain_s.tolist()),
            less_s=max(0.0, float(low_s) - least_s) + gained_s,
            more_s=max(0.0, most_s - float(high_s)) + given_s,
        )

    def _doubts_s(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> tuple[float, float]:
        """Return by how much plain waits can be shorter and longer if jobs in doubt waited then as they did in reality.

        No draw without advice is then better or worse for them than what was.
        """
        later_s = np.where(self._in_doubt[rows], self._waited_s[rows] - self._plain_s[:, rows], 0.0)
        return float(-np.minimum(later_s, 0.0).sum(axis=1).min()), float(np.maximum(later_s, 0.0).sum(axis=1).max())
