"""Judges pairs of jobs, of the adversary and of its twin: pure, so that each rule is tested without a cluster."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
