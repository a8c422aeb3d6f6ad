"""Checks the promises on what both clusters did and on the journal: pure, so that each check is tested by itself."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.domain.lease import Lease, LeaseState
from advisor.stats import standard_error, t_quantile
from tools.live_twins.both_clusters import Pair, Twin
from tools.live_twins.twin_jobs import ATTACKER
from tools.stage.lateness import NO_LATE, LateRun
from tools.stage.watch import can_delay, touched

# A change whose purpose is gone is reverted by the next round, and can have to wait for the one that runs.
MOST_ROUNDS: Final = 2
# A run in which one of these groups of changes is empty shows nothing about it.
LIFT: Final = "lift"
GROUPS: Final[Mapping[str, frozenset[Lever]]] = {
    LIFT: frozenset({Lever.NICE}),
    "delay timer": frozenset({Lever.NODE_RANGE, Lever.SWITCHES}),
}
# Blocks of jobs that were submitted after each other, which meet the same congestion.
MOST_BLOCKS: Final = 20


class DelaySide(StrEnum):
    """Says what is known of a difference of starts: itself, or a bound, because one job has not started."""

    KNOWN = ""
    LEAST = ">="
    MOST = "<="


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Says how much later a job started with sadvise than without, or than it was due, in seconds."""

    seconds: float
    side: DelaySide = DelaySide.KNOWN

    def __str__(self) -> str:
        return f"{self.side}{self.seconds:.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinFacts:
    """Holds what a run left: jobs, changes, and the instants of the rounds and of the last look at the clusters."""

    pairs: Sequence[Pair]
    leases: Sequence[Lease]
    rounds: Sequence[float]
    until: float
    bound_s: float
    tolerance_s: float
    late_run: LateRun = NO_LATE

    def pair_of(self, lease: Lease) -> Pair:
        """Return the job that was changed."""
        return next(pair for pair in self.pairs if pair.job_id[Twin.ADVISED] == lease.job_id)


def paired_delay(pair: Pair, until: float) -> Delay | None:
    """Return how much later a job started on the advised cluster; None if it has started on neither."""
    without, advised = pair.stay[Twin.PLAIN].start_time, pair.stay[Twin.ADVISED].start_time
    if without is None and advised is None:
        return None
    if without is None:
        return Delay(seconds=(advised or 0.0) - _waited_until(pair, Twin.PLAIN, until), side=DelaySide.MOST)
    if advised is None:
        return Delay(seconds=_waited_until(pair, Twin.ADVISED, until) - without, side=DelaySide.LEAST)
    return Delay(seconds=advised - without)


def due_start(lease: Lease) -> float | None:
    """Return when a job was to start as submitted: as planned, or later if it could not have; None if not known."""
    return max(
        (instant for instant in (lease.planned_start, lease.would_start_time) if instant is not None), default=None
    )


def lateness(lease: Lease, pair: Pair, until: float) -> Delay | None:
    """Return how much later than due a changed job started; None if its due start is not known."""
    due = due_start(lease)
    if due is None:
        return None
    start_time = pair.stay[Twin.ADVISED].start_time
    if start_time is None:
        return Delay(seconds=_waited_until(pair, Twin.ADVISED, until) - due, side=DelaySide.LEAST)
    return Delay(seconds=start_time - due)


def purpose_gone(lease: Lease, pairs: Mapping[int, Pair]) -> float | None:
    """Return since when a change serves nothing; None while it does.

    Its job has started or left, or its time is over.
    """
    return min(
        (instant for instant in (_left_line(pairs[lease.job_id]), lease.due_time) if instant is not None), default=None
    )


def faults(facts: TwinFacts) -> Iterator[str]:
    """Yield what does not hold, one line each."""
    leases = touched(facts.leases)
    yield from _nothing_shown(leases)
    yield from _later_on_average(facts)
    yield from _later_than_due(facts, leases)
    yield from _still_out(facts, leases)
    yield from _late_passed(facts.late_run)
    yield from _ended_badly(facts.pairs)


def _nothing_shown(leases: Sequence[Lease]) -> Iterator[str]:
    for name, levers in GROUPS.items():
        if not any(lease.lever in levers for lease in leases):
            yield f"no job was changed by a {name}, so that the run shows nothing about it"


def _later_on_average(facts: TwinFacts) -> Iterator[str]:
    # Lifts move waits between jobs, so that one can start later where all together start earlier.
    found = differences(facts.pairs, facts.until, facts.tolerance_s)
    if found.low_s > 0.0:
        yield f"jobs started {found.mean_s:.0f} s later on average, at least {found.low_s:.0f} s, than without sadvise"


def _later_than_due(facts: TwinFacts, leases: Sequence[Lease]) -> Iterator[str]:
    for lease in filter(can_delay, leases):
        pair = facts.pair_of(lease)
        late = lateness(lease, pair, facts.until)
        if late is not None and late.seconds > facts.bound_s:
            yield f"{pair.name} started {late} s later than due after its change of {lease.lever}"


def _still_out(facts: TwinFacts, leases: Sequence[Lease]) -> Iterator[str]:
    pairs = {pair.job_id[Twin.ADVISED]: pair for pair in facts.pairs}
    for lease in leases:
        gone = purpose_gone(lease, pairs)
        # An intent is a change that Slurm did not confirm, as of a job that started meanwhile: nothing is in effect.
        if gone is None or lease.state in (LeaseState.HANDS_OFF, LeaseState.INTENDED):
            continue
        out_until = facts.until if lease.ended_time is None else lease.ended_time
        rounds = sum(gone < instant < out_until for instant in facts.rounds)
        if rounds > MOST_ROUNDS:
            yield (
                f"the change of {lease.lever} of {pairs[lease.job_id].name} was out for {out_until - gone:.0f} s and "
                f"{rounds} rounds after its purpose was gone"
            )


def _late_passed(late_run: LateRun) -> Iterator[str]:
    for late, other in late_run.passed:
        yield f"{other} stood above {late}, which was late, and started before it"


def _ended_badly(pairs: Iterable[Pair]) -> Iterator[str]:
    for pair in pairs:
        wanted = {"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "COMPLETED"}
        wanted |= {"CANCELLED"} if pair.request.user == ATTACKER else set()
        for twin, stay in pair.stay.items():
            if stay.state not in wanted:
                yield f"{pair.name} ended as {stay.state} on the {twin} cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The paired differences of start of all jobs but the attacks, in seconds; above 0 the advised start later.

    Where one of the two has not started, the time so far counts. `low` and `high` bound the 95 % interval of the mean.
    """

    jobs: int
    censored: int
    on_neither: int
    mean_s: float
    low_s: float
    high_s: float
    worst_s: float
    later: int
    earlier: int
    quantiles_s: Mapping[int, float]  # of the absolute difference, by percent


def differences(pairs: Iterable[Pair], until: float, tolerance_s: float) -> Differences:
    """Compare the starts of all jobs but the attacks; `later` and `earlier` count those beyond the tolerance."""
    own = [pair for pair in pairs if pair.request.user != ATTACKER]
    delays = [delay for pair in own if (delay := paired_delay(pair, until)) is not None]
    seconds = np.array([delay.seconds for delay in delays])
    low_s, high_s = interval(seconds)
    return Differences(
        jobs=len(delays),
        censored=sum(delay.side is not DelaySide.KNOWN for delay in delays),
        on_neither=len(own) - len(delays),
        mean_s=float(seconds.mean()) if len(seconds) else float("nan"),
        low_s=low_s,
        high_s=high_s,
        worst_s=float(seconds.max(initial=-np.inf)),
        later=int((seconds > tolerance_s).sum()),
        earlier=int((seconds < -tolerance_s).sum()),
        quantiles_s={
            percent: float(np.percentile(np.abs(seconds), percent)) if len(seconds) else float("nan")
            for percent in (50, 90, 95, 99, 100)
        },
    )


def interval(seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, Student's over the means of blocks of consecutive jobs; NaN below two."""
    blocks = min(int(len(seconds) ** 0.5), MOST_BLOCKS)
    if blocks < 2:
        return float("nan"), float("nan")
    means = np.array([block.mean() for block in np.array_split(seconds, blocks)])
    reach = t_quantile(blocks - 1) * standard_error(means)
    return float(seconds.mean()) - reach, float(seconds.mean()) + reach


def touched_by_lever(leases: Iterable[Lease]) -> Counter[str]:
    """Count changed jobs by lever, and apart those that could be delayed."""
    jobs_by_name: dict[str, set[int]] = {}
    for lease in touched(leases):
        jobs_by_name.setdefault(lease.lever, set()).add(lease.job_id)
        if can_delay(lease):
            jobs_by_name.setdefault(f"{lease.lever}, can delay", set()).add(lease.job_id)
    return Counter({name: len(job_ids) for name, job_ids in jobs_by_name.items()})


def _waited_until(pair: Pair, twin: Twin, until: float) -> float:
    end_time = pair.stay[twin].end_time
    return until if end_time is None else end_time


def _left_line(pair: Pair) -> float | None:
    stay = pair.stay[Twin.ADVISED]
    return stay.end_time if stay.start_time is None else stay.start_time
