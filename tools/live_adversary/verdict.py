"""Judges pairs of jobs, of the adversary and of its twin, and which others start before late jobs.

Pure but for the watch, so that each rule is tested without a cluster. A job is late when its start without advice, by
plain Slurm beside the cluster, is further away than the bound allows. From the next rounds on only late jobs can be
lifted above it. Jobs that stand behind it start before it by backfill.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import SetNice
from advisor.domain.lease import Ending, Lease
from advisor.errors import JournalError
from advisor.journal import SqliteJournal
from advisor.planning.objective import Floats, bound_s
from advisor.settings import Limits
from advisor.stats import standard_error, t_quantile
from tools.live_adversary.gambits import GROWING, HONEST

# Some sixteen rows of tricks are judged: each by an interval as much wider, so that 5 % is the chance of a false alarm.
WIDER: Final = 1.5
ALL: Final = "all tricks"
GROWN: Final = "all that grow"
MOST_BLOCKS: Final = 20


class PairKind(StrEnum):
    """Names what a pair can show."""

    COMPARED = "compared"
    WINDOW = "started between growing and the next round"
    EARLY = "one of both started before the adversary was done"
    REFUSED = "Slurm refused what the adversary did"
    RESIZED = "started on fewer GPUs than the twin"
    UNFINISHED = "neither has started"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerSide:
    """The jobs of one of both: the first start of any, and the mean instant at which their work began.

    That is the last start less the work done in earlier runs; None where not all have started by the end.
    """

    first_start: float | None
    began: float | None
    least_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GambitOutcome:
    """A pair; `advantage_s` is how much sooner the adversary began, the time so far where one has not."""

    tricks: tuple[str, ...]
    kind: PairKind
    advantage_s: float
    gpu_hours: float = 0.0  # by its limit

    @property
    def is_honest(self) -> bool:
        """Whether the adversary used no trick."""
        return self.tricks == (HONEST,)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrickRow:
    """The mean advantage of some pairs, with its 95 % interval, NaN for less than four."""

    name: str
    pairs: int
    mean_s: float
    low_s: float
    high_s: float

    @property
    def surely_s(self) -> float:
        """The lower bound of the wider interval."""
        return self.mean_s - WIDER * (self.mean_s - self.low_s)


def judged(  # noqa: PLR0913 -- each is a fact about the pair
    tricks: tuple[str, ...],
    adversary: PlayerSide,
    twin: PlayerSide,
    *,
    shaped_time: float,
    grown_time: float | None,
    window_s: float,
    refused: bool,
    gpus: int,
    gpu_hours: float,
    until: float,
) -> GambitOutcome:
    """Judge a pair; `shaped_time` is when the adversary's job had become what it is.

    Both sides are judged alike: a pair is left out where either has started before that, or within the window after
    it where the job grew, so that leaving out favours neither.
    """
    starts = [side.first_start for side in (adversary, twin) if side.first_start is not None]
    if not starts:
        kind = PairKind.UNFINISHED
    elif min(starts) <= shaped_time:
        kind = PairKind.EARLY
    elif refused:
        kind = PairKind.REFUSED
    elif adversary.least_gpus is not None and adversary.least_gpus < gpus:
        kind = PairKind.RESIZED
    elif grown_time is not None and min(starts) <= grown_time + window_s:
        kind = PairKind.WINDOW
    else:
        kind = PairKind.COMPARED
    began = [until if side.began is None else side.began for side in (twin, adversary)]
    return GambitOutcome(tricks=tricks, kind=kind, advantage_s=began[0] - began[1], gpu_hours=gpu_hours)


def interval(seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, Student's over the means of blocks of consecutive jobs; NaN below two.

    Jobs that were submitted after each other meet the same congestion.
    """
    blocks = min(int(len(seconds) ** 0.5), MOST_BLOCKS)
    if blocks < 2:
        return float("nan"), float("nan")
    means = np.array([block.mean() for block in np.array_split(seconds, blocks)])
    reach = t_quantile(blocks - 1) * standard_error(means)
    return float(seconds.mean()) - reach, float(seconds.mean()) + reach


def row_of(name: str, outcomes: Sequence[GambitOutcome]) -> TrickRow:
    """Sum up some pairs."""
    seconds = np.array([outcome.advantage_s for outcome in outcomes])
    low_s, high_s = interval(seconds)
    mean_s = float(seconds.mean()) if len(seconds) else float("nan")
    return TrickRow(name=name, pairs=len(seconds), mean_s=mean_s, low_s=low_s, high_s=high_s)


def rows_of(outcomes: Iterable[GambitOutcome]) -> list[TrickRow]:
    """Return all pairs with tricks, those of jobs that grow, those without tricks, and those with each trick."""
    compared = [outcome for outcome in outcomes if outcome.kind is PairKind.COMPARED]
    tricky = [outcome for outcome in compared if not outcome.is_honest]
    names = sorted({trick for outcome in tricky for trick in outcome.tricks})
    return [
        row_of(ALL, tricky),
        row_of(GROWN, [outcome for outcome in tricky if set(GROWING) & set(outcome.tricks)]),
        row_of(HONEST, [outcome for outcome in compared if outcome.is_honest]),
        *(row_of(name, [outcome for outcome in tricky if name in outcome.tricks]) for name in names),
    ]


def gains(rows: Iterable[TrickRow]) -> Iterator[str]:
    """Yield where the adversary gains beyond noise."""
    for row in rows:
        if row.name == HONEST:
            continue
        low_s = row.low_s if row.name in (ALL, GROWN) else row.surely_s
        if low_s > 0.0:
            yield f"{row.name}: the adversary starts {row.mean_s:.0f} s before its twin, {low_s:.0f} s at least"


# A round reads what the one before stored, and its changes go out after it has read the cluster.
ROUNDS_TO_ACT: Final = 3
_NEVER: Final = float("inf")

# When a start without advice became known, and that start; None where it is no longer known.
Known = tuple[float, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessBound:
    """Bounds how much later than without advice a job can start before it counts as late."""

    lateness_s: float
    ratio: float

    @classmethod
    def of(cls, lateness_s: float | None) -> "LatenessBound":
        """Return the bound of a run; None takes the daemon's default."""
        limits = Limits()
        return cls(
            lateness_s=limits.max_lateness_s if lateness_s is None else lateness_s, ratio=limits.max_lateness_ratio
        )

    def due_times(self, plain_start_time: Floats, wait_begin_time: Floats) -> Floats:
        """Return from when on jobs are late, `(n_jobs,)`."""
        limits = Limits(max_lateness_s=self.lateness_s, max_lateness_ratio=self.ratio)
        return plain_start_time + bound_s(plain_start_time - wait_begin_time, limits)

    def due_time(self, plain_start_time: float, wait_begin_time: float) -> float:
        """Return from when on a job is late."""
        return float(self.due_times(np.array([plain_start_time]), np.array([wait_begin_time]))[0])


class LateWatch:
    """Notes, while the daemon runs, when its journal holds which starts without advice."""

    def __init__(self, journal: Path) -> None:
        """Take the journal that the daemon writes."""
        self._journal = journal
        self.known: dict[int, list[Known]] = {}

    def look(self, now: float) -> None:
        """Read the journal; nothing while there is none."""
        with suppress(JournalError), SqliteJournal.read_only(self._journal) as journal:
            self.note(now, journal.standings(since=0.0).plain_start_by_job)

    def note(self, now: float, starts: Mapping[int, float]) -> None:
        """Note the starts known at an instant, as far as they are others than before."""
        for job_id in {*starts, *self.known}:
            history = self.known.setdefault(job_id, [])
            if not history or history[-1][1] != starts.get(job_id):
                history.append((now, starts.get(job_id)))


def known_at(history: Sequence[Known], at: float) -> float | None:
    """Return the start without advice that was known at an instant; None for none, as after it was withdrawn."""
    start: float | None = None
    for known_time, plain_start_time in history:
        start = plain_start_time if known_time <= at else start
    return start


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRun:
    """Names the late jobs of a run, and which others started before them, though those stood before or behind them.

    `late` are the jobs that the daemon held to be late while they waited. `passed` pairs each of them with a job that
    was not late, stood above it, and started before it; `backfilled` with those that stood behind it.
    """

    late: tuple[str, ...] = ()
    passed: tuple[tuple[str, str], ...] = ()
    backfilled: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class InLine:
    """A job of a run: its own nice, and when it was submitted and has started, None where it has not."""

    name: str
    job_id: int
    submit_time: float
    start_time: float | None = None
    nice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLine:
    """The jobs of the advised cluster, with their changes, over a run."""

    jobs: Sequence[InLine]
    leases: Sequence[Lease]
    rounds: Sequence[float]
    known: Mapping[int, Sequence[Known]]
    bound: LatenessBound

    def late_run(self, until: float) -> LateRun:
        """Return the late jobs, and the jobs that started before them."""
        late = [job for job in self.jobs if self._was_late(job, until)]
        before = [(job, other) for job in late for other in self._started_before(job, until)]
        return LateRun(
            late=tuple(job.name for job in late),
            passed=tuple((job.name, other.name) for job, other in before if self._stood_above(other, job)),
            backfilled=tuple((job.name, other.name) for job, other in before if not self._stood_above(other, job)),
        )

    def is_late(self, job: InLine, at: float) -> bool:
        """Return whether the daemon knew at an instant that a job was late then."""
        start = known_at(self.known.get(job.job_id, ()), at)
        return start is not None and at > self.bound.due_time(start, job.submit_time)

    def _was_late(self, job: InLine, until: float) -> bool:
        start_time = job.start_time or until
        return any(self.is_late(job, at) for at in self.rounds if job.submit_time < at < start_time)

    def _started_before(self, job: InLine, until: float) -> Iterator[InLine]:
        """Yield the jobs, not late themselves, that started while a job had been late for some rounds."""
        start_time = job.start_time or until
        for other in self.jobs:
            instant = other.start_time
            if other is job or instant is None or not job.submit_time < instant < start_time:
                continue
            seen = [at for at in self.rounds if at <= instant][-ROUNDS_TO_ACT:]
            known = len(seen) == ROUNDS_TO_ACT and all(self.is_late(job, at) for at in seen)
            if known and not any(self.is_late(other, at) for at in (*seen, instant)):
                yield other

    def _stood_above(self, other: InLine, job: InLine) -> bool:
        """Return whether a job stood above another one when it started."""
        instant = other.start_time or _NEVER
        places = [(self._nice(each, instant), each.job_id) for each in (other, job)]
        return places[0] < places[1]

    def _nice(self, job: InLine, at: float) -> int:
        """Return the nice of a job at an instant: the user's, or that of the change in effect."""
        nice = job.nice
        for lease in sorted(self.leases, key=lambda lease: lease.applied_time):
            if (
                lease.job_id != job.job_id
                or not isinstance(lease.action, SetNice)
                or lease.ending is Ending.NOT_APPLIED
            ):
                continue
            if lease.applied_time <= at:
                is_out = lease.ended_time is None or at <= lease.ended_time or lease.ending is Ending.NO_LONGER_PENDING
                nice = lease.action.after if is_out else job.nice
        return nice
