"""The plans for random and for recorded queues."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from advisor.backends.snapshot_file import read_snapshot
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.forecast import NO_FORECASTS, Forecasts
from advisor.domain.memory import Memory
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from advisor.settings import Limits
from tests.backends import recorded, recorded_pyslurm
from tests.golden import random_queues
from tests.golden.numbers import fields

DEMO: Final = Path(__file__).parents[2] / "advisor" / "demo"
RANDOM_QUEUES: Final = 300
HOUR_S: Final = 3600.0
# Every job of a recorded queue is old enough to be touched by then.
LATER_S: Final = 2 * HOUR_S

# The queues that were recorded, as each reader shows them.
RECORDED: Final[Mapping[str, Callable[[], Snapshot]]] = {
    "demo": functools.partial(read_snapshot, DEMO / "snapshot.json"),
    **{f"{release}-text": functools.partial(recorded.printed_snapshot, release) for release in recorded.LIVE_RELEASES},
    "25.11-text": recorded.text_snapshot,
    "25.11-pyslurm": recorded_pyslurm.uncounted_snapshot,
    "25.11-tres-text": recorded_pyslurm.text_snapshot,
    "25.11-tres-pyslurm": recorded_pyslurm.counted_snapshot,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenForecaster:
    """A forecaster that gives forecasts made elsewhere."""

    given: Forecasts

    def forecasts(self, snapshot: Snapshot) -> Forecasts:  # noqa: ARG002  (the protocol's)
        """Return them."""
        return self.given


# The sentences are read from the same queues.
@functools.cache
def random_record(seed: int, limits: Limits | None = None) -> CycleRecord:
    """Plan for a queue drawn by a seed: by rules and with forecasts, by turns."""
    rng = np.random.default_rng(seed)
    seen = random_queues.snapshot(rng)
    leases, waits = random_queues.leases(rng, seen), random_queues.waits(rng)
    believed = random_queues.forecasts(rng, seen) if seed % 2 else NO_FORECASTS
    cycle = Cycle(limits=limits or Limits(), forecaster=GivenForecaster(given=believed))
    return cycle.judge(seen, Memory(waits=waits, leases=leases))


@functools.cache
def recorded_record(name: str, *, with_models: bool) -> CycleRecord:
    """Plan for a recorded queue, once every job of it is old enough to be touched."""
    seen = RECORDED[name]()
    last = max((job.submit_time for job in seen.jobs), default=0.0)
    cycle = Cycle(forecaster=ModelForecaster(Library(DEMO))) if with_models else Cycle()
    return cycle.judge(replace(seen, taken_at=last + LATER_S))


def plan(record: CycleRecord) -> str:
    """Return what a cycle came to: the changes with their numbers, what refused them, and which jobs are left alone."""
    lines = [line for change in record.judged for line in _verdict(change)]
    for rule in sorted(set(record.left_alone.values())):
        jobs = [str(job_id) for job_id, by in sorted(record.left_alone.items()) if by == rule]
        lines.append(f"left_alone {rule}: {' '.join(jobs)}")
    return "".join(f"{line}\n" for line in lines)


def _verdict(change: Recommendation) -> Iterator[str]:
    action = {name: value for name, value in asdict(change.action).items() if name != "job_id"}
    judged = {"refused_by": change.refused_by, "revert_after_s": change.revert_after_s}
    made = f"{type(change.action).__name__} {fields(action)}"
    yield f"job {change.action.job_id} {change.kind} {change.reason} {made} {fields(judged)}".rstrip()
    yield f"  expected {fields(change.expected.decides)}"
    yield f"  evidence {fields(change.evidence)}"
