"""Defines how long users waited with advice, held against how long plain Slurm would have made them wait."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from statistics import median, quantiles
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Interval
from advisor.domain.units import DAY_S

# Stretches that ended within this time count.
WINDOW_S: Final = 7 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSum:
    """The waits of some jobs within one stretch, in seconds: with advice, and without it in each draw.

    `carried` of the jobs already waited as the stretch began. Errors of the model, and what it does not know, put the
    waits without advice up to `less_s` below the draws and up to `more_s` above them.
    """

    jobs: int
    carried: int
    waited_s: float
    plain_s: tuple[float, ...]
    less_s: float
    more_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.carried <= self.jobs:
            raise ValueError(f"{self.carried} of {self.jobs} jobs are no part of them")
        if min(self.waited_s, self.less_s, self.more_s, *self.plain_s) < 0.0 or not self.plain_s:
            raise ValueError("waits must not be negative, and need a draw at least")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What one run of plain Slurm beside the cluster gave, from its anchor up to a snapshot.

    `notes` are sentences about what the run does not know.

    `late` pairs the jobs that still wait, though plain Slurm would most likely have started them, with that start.
    `disputed` are those of which that is no longer known, as after a change of the request, here or earlier.
    """

    anchor_time: float
    until: float
    total: WaitSum
    by_user: Mapping[str, WaitSum]
    by_account: Mapping[str, WaitSum]
    late: tuple[tuple[int, float], ...] = ()
    disputed: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.anchor_time <= self.until:
            raise ValueError("a stretch ends after its anchor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How long the jobs of a user or an account waited, in seconds in all, and how long without advice."""

    jobs: int
    waited_s: float
    plain_s: Interval

    @property
    def difference_s(self) -> Interval:
        """By how much the jobs waited longer with advice; below 0 they gained."""
        plain = self.plain_s
        return Interval(
            low=self.waited_s - plain.high, median=self.waited_s - plain.median, high=self.waited_s - plain.low
        )

    @property
    def is_known(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        difference = self.difference_s
        return difference.high < 0.0 or difference.low > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The standings of users and accounts by name, and of all jobs, between two instants.

    `total` is None where nothing was compared. `notes` say what is not known. `plain_start_by_job` holds when plain
    Slurm would have started the jobs that still waited.
    """

    total: Standing | None = None
    by_user: Mapping[str, Standing] = field(default_factory=dict)
    by_account: Mapping[str, Standing] = field(default_factory=dict)
    since: float | None = None
    until: float | None = None
    notes: tuple[str, ...] = ()
    plain_start_by_job: Mapping[int, float] = field(default_factory=dict)

    def age_s(self, now: float) -> float | None:
        """Return for how long nothing was compared; None if nothing ever was."""
        return None if self.until is None else max(0.0, now - self.until)


NO_STANDINGS: Final = Standings()


def standings_of(stretches: Iterable[Stretch]) -> Standings:
    """Return the standings over stretches that follow each other.

    The draws of two stretches are independent, so that the sums of draws are draws of the sum.
    """
    ordered = sorted(stretches, key=lambda stretch: stretch.anchor_time)
    totals = [stretch.total for stretch in ordered if stretch.total.jobs]
    if not totals:
        return NO_STANDINGS
    disputed = {job_id for stretch in ordered for job_id in stretch.disputed}
    return Standings(
        total=_standing(totals),
        by_user=_by_name([stretch.by_user for stretch in ordered]),
        by_account=_by_name([stretch.by_account for stretch in ordered]),
        since=ordered[0].anchor_time,
        until=max(stretch.until for stretch in ordered),
        notes=tuple(dict.fromkeys(note for stretch in reversed(ordered) for note in stretch.notes)),
        # A later stretch counts from its own anchor, so that the first start stands.
        plain_start_by_job={
            job_id: start_time
            for stretch in reversed(ordered)
            for job_id, start_time in stretch.late
            if job_id not in disputed
        },
    )


def _by_name(tables: Iterable[Mapping[str, WaitSum]]) -> dict[str, Standing]:
    sums: dict[str, list[WaitSum]] = {}
    for table in tables:
        for name, of_stretch in table.items():
            sums.setdefault(name, []).append(of_stretch)
    return {name: _standing(sums[name]) for name in sorted(sums)}


def _standing(sums: Sequence[WaitSum]) -> Standing:
    """Return the standing over the sums of stretches, in their order; a job that waited on counts once."""
    draws = sorted(map(sum, zip(*(of_stretch.plain_s for of_stretch in sums), strict=False)))
    tenths = quantiles(draws, n=10, method="inclusive") if len(draws) > 1 else draws
    low_s = tenths[0] - sum(of_stretch.less_s for of_stretch in sums)
    high_s = tenths[-1] + sum(of_stretch.more_s for of_stretch in sums)
    return Standing(
        jobs=sums[0].carried + sum(of_stretch.jobs - of_stretch.carried for of_stretch in sums),
        waited_s=sum(of_stretch.waited_s for of_stretch in sums),
        plain_s=Interval(low=max(0.0, low_s), median=median(draws), high=high_s),
    )
