"""Judges whether the measured speeds of pairs can be those of two jobs that share a GPU."""

from collections.abc import Mapping, Sequence

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.fit.interference_files import RelativeSpeeds

# Two jobs that take turns on a GPU have it all, less what switching costs: their relative speeds add up to about 1, or
# to more where neither fills the GPU. Sums far below 1 show that the speeds alone are of another set-up.
LEAST_SUM = 0.8
MOST_BELOW_RATIO = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SumOfSpeeds:
    """What the two relative speeds of a pair add up to on a GPU type, over its pairs, and how many rows it has."""

    group: str
    rows: int
    mean: float
    spread: float
    below_ratio: float

    @property
    def is_doubtful(self) -> bool:
        """Whether too many pairs add up to less than sharing a GPU explains."""
        return self.below_ratio > MOST_BELOW_RATIO

    @property
    def figures(self) -> Mapping[str, float]:
        """Return the figures for the card."""
        what = f"sum of the two speeds of a pair{f' on {self.group}' if self.group else ''}"
        return {f"{what}, mean": self.mean, f"{what}, standard deviation": self.spread}

    @property
    def sentence(self) -> str:
        """Return what the card states of a doubtful GPU type."""
        return (
            f"Not to be trusted: the {self.rows} rows{f' on {self.group}' if self.group else ''}. The speeds of a pair "
            f"add up to {self.mean:.2f} +- {self.spread:.2f}, and to less than {LEAST_SUM} in "
            f"{self.below_ratio * 100:.0f} % of the pairs, which sharing a GPU does not explain. They are left out of "
            "the fit if another GPU type was measured."
        )


def sums_of(relative: RelativeSpeeds) -> tuple[SumOfSpeeds, ...]:
    """Return the sums for each GPU type, by its name."""
    group = np.array(relative.pairs.items.group, dtype=object)[relative.pairs.mine]
    return tuple(_sum_of(name, relative.take(np.flatnonzero(group == name))) for name in sorted(set(group.tolist())))


def _sum_of(group: str, relative: RelativeSpeeds) -> SumOfSpeeds:
    _, pair = np.unique(relative.pair, return_inverse=True)
    sums = 2.0 * np.bincount(pair, relative.speed) / np.bincount(pair)
    return SumOfSpeeds(
        group=group,
        rows=len(relative),
        mean=float(sums.mean()),
        spread=float(sums.std()),
        below_ratio=float(np.mean(sums < LEAST_SUM)),
    )


def without_doubtful(relative: RelativeSpeeds, sums: Sequence[SumOfSpeeds]) -> RelativeSpeeds:
    """Return the rows on GPU types whose sums are not doubtful; all rows if every type is."""
    trusted = {each.group for each in sums if not each.is_doubtful}
    if not trusted:
        return relative
    group = [relative.pairs.items.group[row] for row in relative.pairs.mine.tolist()]
    return relative.take(np.flatnonzero([name in trusted for name in group]))
