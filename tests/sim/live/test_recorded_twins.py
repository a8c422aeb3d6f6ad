"""The model's plain twin against recorded pairs of identical live clusters, one of them advised.

A recording has one JSON object a line: first the snapshots of the advised cluster, which is all that the model sees,
then what became of each job on both. A job that did not start counts with the time so far.
"""

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.backends.snapshot_file import SnapshotFile
from advisor.domain.actions import SetNice
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import Standings, standings_of
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.twin_child import TwinTask, answered
from advisor.sim.live.wait_sums import PlainStarts, model_error_s, waits_s
from tools.fidelity.compare import spearman

# Each simulates a day several times.
pytestmark = pytest.mark.slow

PAIRS: Final = sorted((Path(__file__).parents[2] / "recorded" / "twins").glob("*.xz"))
# The clusters order jobs by submission, at this many points of priority a second.
POINTS_PER_S: Final = 10
# Lifted jobs have a nice below this.
LIFTED_NICE: Final = -40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRecording:
    """The snapshots of the advised cluster, and what became of each job on both."""

    snapshots: Sequence[Snapshot]
    jobs: Sequence[dict[str, Any]]


class SubmittedNice:
    """Takes back what the script changed: the nice of a lifted job, and the priority that follows it."""

    def __init__(self) -> None:
        self._nice_by_id: dict[int, int] = {}
        self._first_time: float | None = None

    def __call__(self, job: Job) -> Job:
        """Return the job as submitted: with the nice seen before the lift, or by its submit time."""
        self._first_time = job.submit_time if self._first_time is None else self._first_time
        if job.nice > LIFTED_NICE:
            self._nice_by_id.setdefault(job.job_id, job.nice)
            return job
        nice = self._nice_by_id.setdefault(job.job_id, round(POINTS_PER_S * (job.submit_time - self._first_time)))
        return SetNice(job_id=job.job_id, before=job.nice, after=nice).applied_to(job)


@cache
def read_recording(path: Path) -> TwinRecording:
    with lzma.open(path, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    snapshots = [SnapshotFile.model_validate_json(json.dumps(row)).snapshot for row in rows if "format" in row]
    return TwinRecording(snapshots=snapshots, jobs=[row for row in rows if "format" not in row])


def plain_starts(recording: TwinRecording, *, draws: int) -> PlainStarts:
    """Return the starts without advice that the model gives for a recording, once it is over."""
    twin = PlainTwin(recording.snapshots[0], SubmittedNice())
    for snapshot in recording.snapshots[1:]:
        twin.observe(snapshot)
    return twin.starts(draws=draws, seed=0)


def over_anchors(recording: TwinRecording, anchors: int, *, draws: int) -> Standings:
    """Return the standings over a recording in which the anchor moves after equal parts."""
    snapshots = recording.snapshots
    twin, stretches = PlainTwin(snapshots[0], SubmittedNice()), []
    ends = np.linspace(0, len(snapshots) - 1, anchors + 1).round().astype(int).tolist()
    for first, last in pairwise(ends):
        for snapshot in snapshots[first + 1 : last + 1]:
            twin.observe(snapshot)
        answer = answered(TwinTask(twin=twin, forecasts=NO_FORECASTS, draws=draws))
        stretches.append(answer.stretch)
        before = twin.submitted
        twin.move_anchor(snapshots[last])
        twin.carry_over(answer.queues, before)
    return standings_of(stretches)


def live_starts(recording: TwinRecording, starts: PlainStarts) -> NDArray[np.float64]:
    """Return the starts on the plain cluster, `(n_jobs,)`, at the latest the end of the run."""
    plain_by_id = {row["advised_job_id"]: row["plain_start_time"] for row in recording.jobs}
    return np.minimum([plain_by_id[job_id] or np.inf for job_id in starts.job_ids.tolist()], starts.until)


def live_differences_s(recording: TwinRecording, starts: PlainStarts) -> NDArray[np.float64]:
    """Return the differences of waits on the two clusters, advised - plain, `(n_jobs,)`."""
    begin = starts.wait_begin_time
    advised = np.nan_to_num(starts.real_start_time, nan=starts.until)
    return np.asarray(np.maximum(begin, advised) - np.maximum(begin, live_starts(recording, starts)))


def predicted_interval_s(starts: PlainStarts, chosen: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the 95 % interval of the difference of the mean waits of some jobs, advised - plain.

    It covers the draws, the error of the model, and that the jobs or GPUs which the model does not know could have made
    each wait as short or as long as can be.
    """
    begin, unknown = starts.wait_begin_time[chosen], starts.unknown_ratio
    open_s = np.maximum(0.0, starts.until - begin)
    plain_s = waits_s(starts.plain_start_time[:, chosen], begin, open_s).mean(axis=1)
    advised_s = float(waits_s(starts.real_start_time[chosen], begin, open_s).mean())
    error_s = model_error_s(float(plain_s.mean()), int(chosen.sum()))
    low_s, high_s = np.percentile(advised_s - plain_s, (2.5, 97.5)) + np.array((-error_s, error_s))
    # The plain waits that are unknown lie between nothing and all of the time.
    least_s, most_s = advised_s - float(open_s.mean()), advised_s
    return (
        min(low_s, (1.0 - unknown) * low_s + unknown * least_s),
        max(high_s, (1.0 - unknown) * high_s + unknown * most_s),
    )


def test_three_pairs_are_recorded() -> None:
    assert len(PAIRS) == 3


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.name)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_live_difference_lies_in_the_predicted_interval(path: Path, share: float) -> None:
    whole = read_recording(path)
    shown = replace(whole, snapshots=whole.snapshots[: round(share * len(whole.snapshots))])

    starts = plain_starts(shown, draws=24)
    live_s, users = live_differences_s(shown, starts), np.array(starts.users, dtype=object)
    low_s, high_s = predicted_interval_s(starts, np.ones(len(users), dtype=np.bool_))

    assert low_s <= live_s.mean() <= high_s < 0.0
    # The interval says something: it is shorter than the difference that it is about.
    assert high_s - low_s < abs(live_s.mean())
    model = np.nan_to_num(starts.plain_start_time, nan=starts.until)
    assert np.mean([spearman(live_starts(shown, starts), row) for row in model]) > 0.95
    assert len(set(starts.users)) == 4
    for user in set(starts.users):
        low_s, high_s = predicted_interval_s(starts, users == user)
        assert low_s <= live_s[users == user].mean() <= high_s


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.name)
def test_live_sum_lies_in_the_interval_over_several_anchors(path: Path) -> None:
    recording = read_recording(path)

    total = over_anchors(recording, 4, draws=32).total
    live_s = float(live_differences_s(recording, plain_starts(recording, draws=1)).sum())

    assert total is not None
    assert total.difference_s.low < live_s < total.difference_s.high < 0.0
