"""Starts two identical clusters, gives both the same jobs in the same second, and follows when they start and end."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

from tools.live_twins.twin_jobs import NODES, TwinRequest
from tools.stage import uniform_cluster
from tools.stage.lateness import InLine
from tools.stage.watch import LiveStay, stays

# Both look for jobs to start every second, so that what differs between them is not the phase of a timer.
SCHEDULER_PARAMETERS: Final = "sched_interval=1,bf_interval=1"
# In the partition `rush` a job stands ahead of all others, or with a nice value of its own wherever its user likes.
RUSH_PRIORITY: Final = 100_000
# The jobs of a run stand by their submission, at POINTS_PER_S each, and a range of age of this many points is what the
# advisor weighs them by.
AGE_POINTS: Final = 10_000
PRIORITY_LINES: Final = (
    f"PriorityWeightAge={AGE_POINTS}",
    "PriorityWeightJobSize=0",
    f"PriorityWeightPartition={RUSH_PRIORITY}",
    "PartitionName=rush Nodes=ALL MaxTime=UNLIMITED PriorityJobFactor=10 State=UP",
)


class Twin(StrEnum):
    """One of the two clusters."""

    PLAIN = "plain"
    ADVISED = "advised"


@dataclass(slots=True, kw_only=True, eq=False)
class Pair:
    """A job on both clusters."""

    request: TwinRequest
    submit_time: float
    job_id: Mapping[Twin, int]
    stay: dict[Twin, LiveStay] = field(default_factory=lambda: {twin: LiveStay() for twin in Twin})

    @property
    def name(self) -> str:
        """The name of the job, the same on both."""
        return self.request.name


def line_of(pairs: Iterable[Pair]) -> list[InLine]:
    """Return the jobs as they stand in line on the advised cluster."""
    return [
        InLine(
            name=pair.name,
            job_id=pair.job_id[Twin.ADVISED],
            submit_time=pair.submit_time,
            start_time=pair.stay[Twin.ADVISED].start_time,
            nice=pair.request.nice,
        )
        for pair in pairs
    ]


class Twins:
    """The two clusters, from entry to exit; whatever is done is done to both at once."""

    def __init__(self, release: str) -> None:
        self.clusters = {
            twin: uniform_cluster(release, NODES, scheduler_parameters=SCHEDULER_PARAMETERS, extra_lines=PRIORITY_LINES)
            for twin in Twin
        }
        self.pairs: list[Pair] = []
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(len(Twin))

    def __enter__(self) -> Self:
        """Start both clusters."""
        with ExitStack() as stack:
            stack.enter_context(self._pool)
            list(self._pool.map(stack.enter_context, self.clusters.values()))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop both clusters."""
        self._stack.__exit__(kind, error, trace)

    def submit(self, request: TwinRequest, now: float) -> Pair:
        """Submit a job to both clusters at once."""

        def submit_to(twin: Twin) -> int:
            script = f"sleep {request.run_s}"
            return self.clusters[twin].submit(*request.sbatch_options(), script=script, user=request.user)

        pair = Pair(
            request=request,
            submit_time=now,
            job_id=dict(zip(Twin, self._pool.map(submit_to, Twin), strict=True)),
        )
        self.pairs.append(pair)
        return pair

    def cancel(self, pair: Pair) -> None:
        """Cancel a job on both clusters at once."""
        list(self._pool.map(lambda twin: self.clusters[twin].ask("scancel", str(pair.job_id[twin])), Twin))

    @property
    def all_ended(self) -> bool:
        """Whether every job so far was seen to have left both clusters."""
        return all(stay.end_time is not None for pair in self.pairs for stay in pair.stay.values())

    def look(self) -> None:
        """Read from both clusters when jobs started and ended; Slurm forgets a job minutes after its end."""
        seen_on = dict(zip(Twin, self._pool.map(lambda twin: dict(stays(self.clusters[twin])), Twin), strict=True))
        for pair in self.pairs:
            for twin, seen in seen_on.items():
                pair.stay[twin] = seen.get(pair.job_id[twin], pair.stay[twin])
