"""Full clusters with a queue, and the lifts of a cycle."""

from advisor.cycle import CycleRecord
from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from tests.builders import HOUR_S, make_config, make_job, make_snapshot

FULL = tuple(f"n0{number}" for number in range(1, 5))
# Over these points of priority the weight of a job grows by all decades.
WEIGHTED = make_config(priority_weights={"age": 1000, "fair_share": 1000})


def busy(*jobs: Job, hours: float = 10.0) -> Snapshot:
    """A cluster whose 32 GPUs are all in use for another `hours`."""
    running = [
        make_job(900 + number, gpus=8, running_on=[name], started_ago_s=0.0, time_limit_s=hours * HOUR_S)
        for number, name in enumerate(FULL)
    ]
    return make_snapshot([*jobs, *running], config=WEIGHTED)


def lifts_of(record: CycleRecord) -> dict[int, Recommendation]:
    """Map the jobs that are lifted to their changes."""
    return {change.job_id: change for change in record.recommendations if isinstance(change.action, SetNice)}


def shorts(count: int, *, first_priority: int = 900, step: int = 1) -> list[Job]:
    """Return `count` jobs of 2 GPUs and one hour, each of a priority lower by `step` than the one before."""
    return [
        make_job(10 + number, gpus=2, priority=first_priority - step * number, time_limit_s=HOUR_S)
        for number in range(count)
    ]
