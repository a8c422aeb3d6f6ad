"""Defines standing experiments: which days or partitions get changes, and which only recommendations.

By day, two consecutive days are a block: one is treated, the other is control, in an order that a hash of the seed and
the block decides. The order cannot be chosen after seeing the queue, and a trend over weeks affects both arms.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Annotated, Final, Literal

from advisor.domain.dataclass import dataclass
from advisor.domain.outcome import Arm
from advisor.domain.units import DAY_S, HOUR_S

# Days that are compared as one: one of each arm, or enough that the days after them hardly depend on them.
BLOCK_DAYS: Final = {"day": 2, "partition": 14}
# Fewer blocks give no useful interval.
LEAST_BLOCKS: Final = 3

By = Literal["", "day", "partition"]
Figure = Literal["mean", "typical"]
Metric = Literal["queueing_delay", "jct", "bounded_slowdown"]

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentSettings:
    """A standing comparison of changes with recommendations alone; to change it while it runs, restart it."""

    by: Annotated[By, 'what is assigned to treatment or control: "day", "partition", or "" for no experiment'] = ""
    name: Annotated[str, "name of the experiment in reports"] = ""
    start: Annotated[str, "first day, such as 2026-03-01; a day starts at switch_hour, UTC"] = ""
    end: Annotated[str, "last day; the effect is estimated from the days up to it"] = ""
    switch_hour: Annotated[int, "hour, UTC, at which a day starts and the arm changes"] = 0
    seed: Annotated[int, "seed of the draw that decides which of the two days of a block is treated"] = 0
    treated_partitions: Annotated[
        str, "by partition: treated partitions, separated by commas; all others are control"
    ] = ""
    metric: Annotated[Metric, "metric in which the effect is estimated: queueing_delay, jct or bounded_slowdown"] = (
        "queueing_delay"
    )
    figure: Annotated[
        Figure, "statistic of that metric: the mean over all days, or a typical day, which needs fewer days"
    ] = "mean"
    min_blocks: Annotated[int, "least number of blocks (two days; by partition two weeks) for a conclusion"] = 8

    def __post_init__(self) -> None:
        if not 0 <= self.switch_hour <= 23:
            raise ValueError("switch_hour must be an hour from 0 to 23")
        if self.min_blocks < LEAST_BLOCKS:
            raise ValueError(f"min_blocks must be at least {LEAST_BLOCKS}")
        for key in ("start", "end"):
            if getattr(self, key) and day_number(getattr(self, key)) is None:
                raise ValueError(f"{key} must be a day such as 2026-03-01")
        if not self.by:
            return
        if not (self.name and self.start and self.end):
            raise ValueError("name, start and end must be given where by is")
        if self.last_day < self.first_day:
            raise ValueError("end must not lie before start")
        if (self.by == "partition") is not bool(self.treated):
            raise ValueError("treated_partitions must be given by partition, and only then")
        if self.by == "partition" and self.figure == "typical":
            raise ValueError("figure must be mean by partition")

    @property
    def first_day(self) -> int:
        """The number of the first day."""
        return day_number(self.start) or 0

    @property
    def last_day(self) -> int:
        """The number of the last day."""
        return day_number(self.end) or 0

    @property
    def treated(self) -> frozenset[str]:
        """The treated partitions of an experiment by partition."""
        return frozenset(name.strip() for name in self.treated_partitions.split(",") if name.strip())

    @property
    def block_days(self) -> int:
        """How many days are a block."""
        return BLOCK_DAYS.get(self.by, 1)

    @property
    def start_time(self) -> float:
        """The instant at which the first day begins."""
        return self.start_of(self.first_day)

    @property
    def end_time(self) -> float:
        """The instant at which the last day is over."""
        return self.start_of(self.last_day + 1)

    def day_of(self, instant: float) -> int:
        """Return the number of the day that an instant belongs to."""
        return int((instant - self.switch_hour * HOUR_S) // DAY_S)

    def start_of(self, day: int) -> float:
        """Return the instant at which a day begins."""
        return day * DAY_S + self.switch_hour * HOUR_S

    def block_of(self, instant: float) -> int:
        """Return the block of an instant; 0 is the first of the experiment, those before it are below 0."""
        return (self.day_of(instant) - self.first_day) // self.block_days

    def arm_at(self, instant: float, partitions: Sequence[str] = ()) -> Arm:
        """Return the arm of a job at an instant by its partitions; NONE outside the experiment.

        A job that asks for partitions of both arms is in neither.
        """
        if not self.by or not self.first_day <= self.day_of(instant) <= self.last_day:
            return Arm.NONE
        if self.by == "partition":
            return self.side_of(partitions)
        day_of_block = (self.day_of(instant) - self.first_day) % self.block_days
        treated = _treated_of_block(self.seed, self.block_of(instant))
        return Arm.TREATED if day_of_block == treated else Arm.CONTROL

    def side_of(self, partitions: Sequence[str]) -> Arm:
        """Return the arm of partitions during an experiment by partition."""
        inside = [name in self.treated for name in partitions]
        if not inside or any(inside) is not all(inside):
            return Arm.NONE
        return Arm.TREATED if inside[0] else Arm.CONTROL

    def against_change(self, now: float, partitions: Sequence[str]) -> str | None:
        """Return in plain words why a job in some partitions gets no change now; None if it can."""
        if not self.by or not self.first_day <= self.day_of(now) <= self.last_day:
            return None
        match self.arm_at(now, partitions):
            case Arm.TREATED:
                return None
            case Arm.CONTROL:
                return f"it is a control {self.by} of the experiment {self.name}"
            case Arm.NONE:
                return f"it asks for partitions of both arms of the experiment {self.name}"

    @property
    def digest(self) -> str:
        """A digest of the settings; empty without an experiment."""
        return _digest(self) if self.by else ""

    def registration(self) -> dict[str, str | int]:
        """Return what is recorded at the start of the experiment: every setting, and their digest."""
        return {**asdict(self), "digest": self.digest}


NO_EXPERIMENT: Final = ExperimentSettings()


@lru_cache(maxsize=64)
def day_number(text: str) -> int | None:
    """Return the days from 1970-01-01 to a date such as 2026-03-01; None if it is not a date.

    The calendar is Hinnant's, days from civil: a year begins in March, so that the leap day is its last.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = (int(part) for part in match.groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    lengths = (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if not (year >= 1970 and 1 <= month <= 12 and 1 <= day <= lengths[month - 1]):
        return None
    from_march = year - (month <= 2)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return from_march * 365 + from_march // 4 - from_march // 100 + from_march // 400 + of_year - 719_468


@lru_cache(maxsize=8)
def _digest(settings: ExperimentSettings) -> str:
    return hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=4096)
def _treated_of_block(seed: int, block: int) -> int:
    """Return which day of a block is treated: 0 for the first, 1 for the second."""
    return hashlib.sha256(f"{seed}:{block}".encode()).digest()[0] & 1
