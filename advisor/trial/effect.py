"""Estimates the effect of an experiment: the difference between treated and control days, or partitions.

Jobs that are submitted together meet the same queue, so that a thousand jobs of one day hold hardly more information
than ten. Therefore the figures of whole days are compared, their mean or 95th percentile, and the interval follows from
the spread between blocks of days. Jobs count on the side to which they were assigned, wherever they ran: the effect
includes the dilution by jobs that cross over.

By day, the effect is the ratio of the treated figures to the control ones, with Fieller's interval: the ratios r for
which Student's test does not distinguish the mean of the differences within blocks, treated - r * control, from 0. The
order within a block is random, so that without an effect these differences are symmetric about 0 however skewed the
waits are. A mean depends on the few worst days, and takes many days to settle. The figure of the typical day, the
geometric mean of the ratios of the blocks, settles sooner and depends on no single day; one minute is added to delays,
so that days without delay have a ratio.

By partition nothing is randomised. There the ratio of treated to control is computed for every two weeks, as a
logarithm, and those of the experiment are compared with those before it: two weeks, since consecutive weeks correlate.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.experiment import LEAST_BLOCKS, ExperimentSettings
from advisor.domain.outcome import Arm, JobOutcome
from advisor.domain.units import DAY_S
from advisor.stats import standard_error, t_quantile_of_tests

# A block counts a day after its end, when its jobs had time to start and end.
SETTLE_S: Final = DAY_S
WORST_GROUPS: Final = 5
HIGH_SHARE: Final = 0.95

# By partition the logarithm is taken anyway.
FIGURES: Mapping[str, Sequence[str]] = {"day": ("mean", "p95", "typical"), "partition": ("mean", "p95")}
# Added to the delays of a typical day: the interval between snapshots.
OFFSET_S: Final = 60.0

_NAN = float("nan")

METRICS: Mapping[str, Callable[[JobOutcome], float | None]] = {
    "queueing_delay": lambda outcome: outcome.queueing_delay_s,
    "jct": lambda outcome: outcome.jct_s,
    "bounded_slowdown": lambda outcome: outcome.bounded_slowdown,
}


class Conclusion(StrEnum):
    """The conclusion from the interval of an effect; lower is better for every metric."""

    TOO_LITTLE = "too little data"
    UNCLEAR = "no clear difference"
    HELPED = "helped"
    WORSE = "made it worse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect on one figure of one metric: the mean over days of means or 95th percentiles, or a typical day.

    `percent` is the change by the treatment, below 0 for an improvement, with its 95 % interval; NaN if undefined.
    `treated` and `control` are the figures during the experiment. `blocks` counts the blocks in which both sides have
    jobs.
    """

    metric: str
    figure: str
    treated: float
    control: float
    percent: float
    low: float
    high: float
    blocks: int
    jobs: int
    verdict: Conclusion


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEffect:
    """The effect on the jobs of one account, in the figure chosen beforehand.

    `is_clear` takes into account how many accounts were examined.
    """

    account: str
    effect: Effect
    is_clear: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCount:
    """The jobs of one side, and how many of them have no figure or were not treated as assigned.

    `without_figure` counts jobs that did not start, or whose start was not observed. `crossed` counts jobs that waited
    beyond the day that decided their side; `changed` those that got a change, for control jobs after crossing over.
    """

    jobs: int = 0
    without_figure: int = 0
    crossed: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The results of an experiment so far; `other_settings` counts jobs assigned under settings changed since."""

    settings: ExperimentSettings
    effects: tuple[Effect, ...]
    worst: tuple[GroupEffect, ...]
    groups: int
    arms: Mapping[Arm, ArmCount]
    blocks_planned: int
    blocks_over: int
    other_settings: int

    @property
    def primary(self) -> Effect:
        """The effect on the metric and figure chosen beforehand."""
        chosen = (self.settings.metric, self.settings.figure)
        return next(effect for effect in self.effects if (effect.metric, effect.figure) == chosen)


def compared(outcomes: Iterable[JobOutcome], settings: ExperimentSettings, now: float) -> Comparison:
    """Compare the two sides of an experiment over the blocks that are over."""
    known = tuple(outcomes)
    length_s = settings.block_days * DAY_S
    over = max(0, math.floor((min(now - SETTLE_S, settings.end_time) - settings.start_time) / length_s))
    jobs = list(_assigned(known, settings, over))
    effects: list[Effect] = []
    for metric in METRICS:
        values = _values(jobs, metric)
        effects += [_effect(values, settings, metric, figure) for figure in FIGURES[settings.by]]
    worst, groups = _worst(jobs, settings)
    return Comparison(
        settings=settings,
        effects=tuple(effects),
        worst=worst,
        groups=groups,
        arms={arm: _count(jobs, arm, settings) for arm in (Arm.TREATED, Arm.CONTROL)},
        blocks_planned=(settings.last_day - settings.first_day + 1) // settings.block_days,
        blocks_over=over,
        other_settings=sum(1 for outcome in known if outcome.experiment and outcome.experiment != settings.digest),
    )


def ratio_interval(pairs: NDArray[np.float64], *, tests: int = 1) -> tuple[float, float, float]:
    """Return the ratio of the means of pairs `(n_blocks, 2)` with Fieller's interval; NaN if it is unbounded."""
    blocks = len(pairs)
    mean_t, mean_c = pairs.mean(axis=0).tolist()
    if mean_c <= 0.0:
        return _NAN, _NAN, _NAN
    covariance = np.cov(pairs, rowvar=False) / blocks  # (2, 2)
    squared = t_quantile_of_tests(blocks - 1, tests) ** 2
    a = mean_c**2 - squared * covariance[1, 1]
    b = mean_t * mean_c - squared * covariance[0, 1]
    c = mean_t**2 - squared * covariance[0, 0]
    if a <= 0.0:
        return mean_t / mean_c, _NAN, _NAN
    root = math.sqrt(max(0.0, b * b - a * c))
    return mean_t / mean_c, max(0.0, float((b - root) / a)), float((b + root) / a)


def typical_ratio(pairs: NDArray[np.float64], *, tests: int = 1) -> tuple[float, float, float]:
    """Return the geometric mean of the ratios of pairs above 0 `(n_blocks, 2)`, with Student's interval."""
    logs = np.log(pairs[:, 0]) - np.log(pairs[:, 1])
    middle, reach = float(logs.mean()), t_quantile_of_tests(len(logs) - 1, tests) * standard_error(logs)
    return math.exp(middle), math.exp(middle - reach), math.exp(middle + reach)


def change_of_ratio(
    inside: NDArray[np.float64], before: NDArray[np.float64], *, tests: int = 1
) -> tuple[float, float, float]:
    """Return by how much the ratio of treated to control changed, with Welch's interval; pairs are `(n_blocks, 2)`.

    NaN if a block has no wait at all, and so no ratio.
    """
    if not (np.all(inside > 0.0) and np.all(before > 0.0)):
        return _NAN, _NAN, _NAN
    logs = [np.log(pairs[:, 0]) - np.log(pairs[:, 1]) for pairs in (inside, before)]
    change = float(logs[0].mean() - logs[1].mean())
    errors = [float(log.var(ddof=1)) / len(log) for log in logs]
    if sum(errors) <= 0.0:
        return math.exp(change), math.exp(change), math.exp(change)
    # Welch and Satterthwaite's degrees of freedom, rounded down to be conservative.
    freedom = sum(errors) ** 2 / sum(error**2 / (len(log) - 1) for error, log in zip(errors, logs, strict=True))
    reach = t_quantile_of_tests(max(1, int(freedom)), tests) * math.sqrt(sum(errors))
    return math.exp(change), math.exp(change - reach), math.exp(change + reach)


class _Assigned(NamedTuple):
    """A job with its side and its day, 0 being the first of the experiment."""

    outcome: JobOutcome
    arm: Arm
    day: int


class _Value(NamedTuple):
    """One job's value of a metric, with its side and day."""

    arm: Arm
    day: int
    value: float


def _assigned(outcomes: Iterable[JobOutcome], settings: ExperimentSettings, over: int) -> Iterator[_Assigned]:
    """Yield the compared jobs: those of the finished blocks, and by partition of as many blocks before the first."""
    before = -over if settings.by == "partition" else 0
    for outcome in outcomes:
        block = settings.block_of(outcome.submit_time)
        if not before <= block < over:
            continue
        if block < 0:
            arm = settings.side_of(outcome.partition.split(","))
        else:
            arm = outcome.arm if outcome.experiment == settings.digest else Arm.NONE
        if arm:
            yield _Assigned(outcome, arm, settings.day_of(outcome.submit_time) - settings.first_day)


def _values(jobs: Iterable[_Assigned], metric: str) -> list[_Value]:
    values = ((job, METRICS[metric](job.outcome)) for job in jobs)
    return [_Value(job.arm, job.day, value) for job, value in values if value is not None]


def _effect(
    values: Sequence[_Value], settings: ExperimentSettings, metric: str, figure: str, *, tests: int = 1
) -> Effect:
    """Return the effect on one figure; its interval is corrected for `tests` simultaneous tests."""
    pairs = _pairs_by_block(values, settings.block_days, figure)
    inside = np.array([pairs[block] for block in sorted(pairs) if block >= 0]).reshape(-1, 2)
    before = np.array([pairs[block] for block in sorted(pairs) if block < 0]).reshape(-1, 2)
    blocks = len(inside) if settings.by == "day" else min(len(inside), len(before))
    ratio, low, high = _NAN, _NAN, _NAN
    if blocks >= LEAST_BLOCKS and settings.by == "day":
        if figure == "typical":
            ratio, low, high = typical_ratio(inside + (OFFSET_S if metric == "queueing_delay" else 0.0), tests=tests)
        else:
            ratio, low, high = ratio_interval(inside, tests=tests)
    elif blocks >= LEAST_BLOCKS:
        ratio, low, high = change_of_ratio(inside, before, tests=tests)
    treated, control = inside.mean(axis=0).tolist() if len(inside) else (_NAN, _NAN)
    return Effect(
        metric=metric,
        figure=figure,
        treated=treated,
        control=control,
        percent=100 * (ratio - 1),
        low=100 * (low - 1),
        high=100 * (high - 1),
        blocks=blocks,
        jobs=sum(value.day >= 0 for value in values),
        verdict=_verdict(low, high, blocks, settings.min_blocks),
    )


def _pairs_by_block(values: Iterable[_Value], block_days: int, figure: str) -> dict[int, tuple[float, float]]:
    """Map blocks to their figures, treated and control: means over their days, of blocks with jobs on both sides."""
    by_day: dict[tuple[int, Arm], list[float]] = defaultdict(list)
    for arm, day, value in values:
        by_day[day, arm].append(value)
    by_block: dict[tuple[int, Arm], list[float]] = defaultdict(list)
    for (day, arm), of_day in by_day.items():
        known = np.array(of_day)
        figure_of_day = np.quantile(known, HIGH_SHARE) if figure == "p95" else known.mean()
        by_block[day // block_days, arm].append(float(figure_of_day))
    return {
        block: (fmean(by_block[block, Arm.TREATED]), fmean(by_block[block, Arm.CONTROL]))
        for block in {block for block, _ in by_block}
        if (block, Arm.TREATED) in by_block and (block, Arm.CONTROL) in by_block
    }


def _worst(jobs: Iterable[_Assigned], settings: ExperimentSettings) -> tuple[tuple[GroupEffect, ...], int]:
    """Return the accounts that lost most in the metric of the settings, and how many accounts were examined."""
    by_account: dict[str, list[_Assigned]] = defaultdict(list)
    for job in jobs:
        by_account[job.outcome.account].append(job)
    values = {account: _values(of_account, settings.metric) for account, of_account in by_account.items()}
    known = {
        account: effect
        for account in sorted(values)
        if not math.isnan((effect := _effect(values[account], settings, settings.metric, settings.figure)).percent)
        and effect.verdict is not Conclusion.TOO_LITTLE
    }
    lost = sorted(known, key=lambda account: (-known[account].percent, account))[:WORST_GROUPS]
    worst = []
    for account in lost:
        strict = _effect(values[account], settings, settings.metric, settings.figure, tests=len(known))
        if known[account].percent > 0.0:
            is_clear = strict.verdict is Conclusion.WORSE
            worst.append(GroupEffect(account=account, effect=known[account], is_clear=is_clear))
    return tuple(worst), len(known)


def _count(jobs: Iterable[_Assigned], arm: Arm, settings: ExperimentSettings) -> ArmCount:
    counted = [job.outcome for job in jobs if job.arm is arm and job.day >= 0]
    return ArmCount(
        jobs=len(counted),
        without_figure=sum(METRICS[settings.metric](outcome) is None for outcome in counted),
        crossed=sum(_crossed(outcome, settings) for outcome in counted) if settings.by == "day" else 0,
        changed=sum(bool(outcome.changes) for outcome in counted),
    )


def _crossed(outcome: JobOutcome, settings: ExperimentSettings) -> bool:
    """Return whether a job still waited at the end of the day that decided its side."""
    over = settings.start_of(settings.day_of(outcome.submit_time) + 1)
    waited_until = outcome.end_time if outcome.start_time is None else outcome.start_time
    return waited_until is None or waited_until >= over


def _verdict(low: float, high: float, blocks: int, min_blocks: int) -> Conclusion:
    if blocks < min_blocks or math.isnan(low + high):
        return Conclusion.TOO_LITTLE
    if high < 1.0:
        return Conclusion.HELPED
    return Conclusion.WORSE if low > 1.0 else Conclusion.UNCLEAR
