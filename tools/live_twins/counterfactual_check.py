"""Holds the model's plain twin against a live one.

    python -m tools.live_twins.counterfactual_check FILE...

Each file, plain or xz, is a recording of two identical live clusters of which one was advised: one JSON object a line,
first the snapshots of the advised cluster, then what `--keep` writes of each job. The model sees the snapshots alone.
With `--share` it sees the first part of them, and the run counts up to there. A job that did not start counts with the
time so far. Exits with 1 if a live difference lies outside its predicted interval.
"""

import argparse
import json
import lzma
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.backends.snapshot_file import SnapshotFile
from advisor.domain.actions import SetNice
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import Standings, standings_of
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.twin_child import TwinTask, answered
from advisor.sim.live.wait_difference import PlainStarts, WaitDifference, differences_by_user, wait_difference
from tools.fidelity.compare import spearman
from tools.live_twins.twin_jobs import POINTS_PER_S

# Lifted jobs have a nice below this.
LIFTED_NICE: Final = -40_000
DRAWS: Final = 100
_ROW: Final = "{:<24}{:>6}{:>10}{:>10}{:>16}{:>12}{:>18}{:>8}{:>10}{:>10}{:>10}"
_COLUMNS: Final = (
    "recording",
    "jobs",
    "advised",
    "plain",
    "plain, model",
    "difference",
    "predicted",
    "inside",
    "|error|",
    "rank",
    "by user",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRecording:
    """The snapshots of the advised cluster, and what became of each job on both."""

    snapshots: Sequence[Snapshot]
    jobs: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAgainst:
    """Holds what the model predicted of a pair of clusters and what was, seconds of waiting in the mean."""

    predicted: WaitDifference
    plain_low_s: float
    plain_high_s: float
    plain_s: float
    difference_s: float
    start_error_s: float
    rank_correlation: float

    @property
    def is_inside(self) -> bool:
        """Whether the live difference lies in the predicted interval."""
        return self.predicted.low_s <= self.difference_s <= self.predicted.high_s


class SubmittedNice:
    """Takes back what the script changed: the nice of a lifted job, and the priority that follows it."""

    def __init__(self) -> None:
        """Begin without any job seen."""
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


def read_recording(path: Path) -> TwinRecording:
    """Read a recording."""
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        rows = [json.loads(line) for line in lines]
    snapshots = [SnapshotFile.model_validate_json(json.dumps(row)).snapshot for row in rows if "format" in row]
    return TwinRecording(snapshots=snapshots, jobs=[row for row in rows if "format" not in row])


def first_part(recording: TwinRecording, share: float) -> TwinRecording:
    """Return a recording with the first part of its snapshots."""
    count = max(1, round(share * len(recording.snapshots)))
    return replace(recording, snapshots=recording.snapshots[:count])


def plain_starts(recording: TwinRecording, *, draws: int = DRAWS, seed: int = 0) -> PlainStarts:
    """Return the starts without advice that the model gives for a recording, once it is over."""
    twin = PlainTwin(recording.snapshots[0], SubmittedNice())
    for snapshot in recording.snapshots[1:]:
        twin.observe(snapshot)
    return twin.starts(draws=draws, seed=seed)


def over_anchors(recording: TwinRecording, anchors: int, *, draws: int = DRAWS) -> Standings:
    """Return the standings over a recording in which the anchor moves after equal parts."""
    snapshots, undo = recording.snapshots, SubmittedNice()
    twin, stretches = PlainTwin(snapshots[0], undo), []
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


def live_total_s(recording: TwinRecording) -> float:
    """Return by how much all jobs of a recording waited longer on the advised cluster."""
    return float(_live_differences_s(recording, plain_starts(recording, draws=1)).sum())


def hold(recording: TwinRecording, starts: PlainStarts) -> HeldAgainst:
    """Hold a prediction against the live plain cluster."""
    predicted = wait_difference(starts)
    if predicted is None:
        raise ValueError("the recording has no jobs that waited")
    until, live = starts.until, _live_starts(recording, starts)
    model = np.nan_to_num(starts.plain_start_time, nan=until)
    begin = starts.wait_begin_time
    plain_low_s, plain_high_s = np.percentile((model - begin).mean(axis=1), (2.5, 97.5))
    return HeldAgainst(
        predicted=predicted,
        plain_low_s=float(plain_low_s),
        plain_high_s=float(plain_high_s),
        plain_s=float(np.maximum(0.0, live - begin).mean()),
        difference_s=float(_live_differences_s(recording, starts).mean()),
        start_error_s=float(np.abs(model - live).mean()),
        rank_correlation=float(np.mean([spearman(live, row) for row in model])),
    )


def users_inside(recording: TwinRecording, starts: PlainStarts) -> Mapping[str, bool]:
    """Return for each user whether the live difference lies in the predicted interval."""
    live_s, users = _live_differences_s(recording, starts), np.array(starts.users)
    return {
        user: bool(predicted.low_s <= live_s[users == user].mean() <= predicted.high_s)
        for user, predicted in differences_by_user(starts).items()
    }


def _live_starts(recording: TwinRecording, starts: PlainStarts) -> NDArray[np.float64]:
    """Return the starts on the plain cluster, `(n_jobs,)`, at the latest the end of the run."""
    plain_by_id = {row["advised_job_id"]: row["plain_start_time"] for row in recording.jobs}
    return np.minimum([plain_by_id[job_id] or np.inf for job_id in starts.job_ids.tolist()], starts.until)


def _live_differences_s(recording: TwinRecording, starts: PlainStarts) -> NDArray[np.float64]:
    """Return the differences of waits on the two clusters, advised - plain, `(n_jobs,)`."""
    begin = starts.wait_begin_time
    advised = np.nan_to_num(starts.real_start_time, nan=starts.until)
    return np.asarray(np.maximum(begin, advised) - np.maximum(begin, _live_starts(recording, starts)))


def main() -> int:
    """Print one line for each recording."""
    parser = argparse.ArgumentParser(prog="python -m tools.live_twins.counterfactual_check")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--anchors", type=int, nargs="+", default=[], help="also: the sum over this number of anchors")
    parser.add_argument("--share", type=float, nargs="+", default=[1.0], help="share of the run, default: all")
    args = parser.parse_args()
    print("mean waits and differences (advised - plain) in seconds; |error|: of a start, mean over jobs and draws")
    print(_ROW.format(*_COLUMNS))
    inside, sentences = True, dict[str, None]()
    for path in args.recordings:
        recording = read_recording(path)
        for share in args.share:
            part = first_part(recording, share)
            starts = plain_starts(part, draws=args.draws, seed=args.seed)
            held = hold(part, starts)
            inside &= held.is_inside
            sentences.update(dict.fromkeys(starts.left_out))
            print(_ROW.format(f"{path.name} {100 * share:.0f} %", *_cells(held, users_inside(part, starts))))
        for anchors in args.anchors:
            inside &= _print_anchors(path.name, recording, anchors)
    print("\n".join(sentences))
    return 0 if inside else 1


def _print_anchors(name: str, recording: TwinRecording, anchors: int) -> bool:
    """Print the sum of the differences over several anchors; return whether the live one lies in its interval."""
    total = over_anchors(recording, anchors).total
    if total is None:
        raise ValueError("the recording has no jobs that waited")
    difference, live_s = total.difference_s, live_total_s(recording)
    is_inside = difference.low <= live_s <= difference.high
    sums = f"live {live_s:+.0f} s, predicted {difference.low:+.0f} to {difference.high:+.0f} s in all"
    print(f"{name} over {anchors} anchors: {sums}, inside: {'yes' if is_inside else 'NO'}")
    return is_inside


def _cells(held: HeldAgainst, by_user: Mapping[str, bool]) -> Iterator[str]:
    predicted = held.predicted
    yield str(predicted.jobs)
    yield f"{predicted.advised_s:.1f}"
    yield f"{held.plain_s:.1f}"
    yield f"{held.plain_low_s:.1f} to {held.plain_high_s:.1f}"
    yield f"{held.difference_s:+.1f}"
    yield f"{predicted.low_s:+.1f} to {predicted.high_s:+.1f}"
    yield "yes" if held.is_inside else "NO"
    yield f"{held.start_error_s:.1f}"
    yield f"{held.rank_correlation:.3f}"
    yield f"{sum(by_user.values())} of {len(by_user)}"


if __name__ == "__main__":
    sys.exit(main())
