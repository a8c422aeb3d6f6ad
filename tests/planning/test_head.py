"""Which gangs stand near the head of the line: those that Slurm can start now or soon, planned over one picture."""

from collections.abc import Sequence

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import SetNodeRange, SetSwitches
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.view.sentences import sentence
from tests.builders import DAY_S, make_gang, make_job, make_node, make_snapshot

RANGE = make_gang(8, nodes_min=1, nodes_max=4)


def timed(record: CycleRecord) -> list[int]:
    """Return the gangs that get a timer."""
    return [change.job_id for change in record.judged if isinstance(change.action, SetSwitches | SetNodeRange)]


def startable(record: CycleRecord) -> list[int]:
    """Return the gangs that are called startable now."""
    return [change.job_id for change in record.judged if "could start now" in sentence(change)]


def half_idle(jobs: Sequence[Job]) -> Snapshot:
    """Four nodes of which a job of a day holds the half."""
    running = [
        make_job(100 + row, gpus=4, running_on=[f"n0{row}"], started_ago_s=60.0, time_limit_s=DAY_S)
        for row in range(1, 5)
    ]
    return make_snapshot([*jobs, *running], [make_node(f"n0{row}", used=4) for row in range(1, 5)])


def line(count: int, **fields: object) -> list[Job]:
    """Return gangs of one node each that come first in line."""
    return [make_job(number, gpus=8, priority=5000 - number, **fields) for number in range(10, 10 + count)]  # type: ignore[arg-type]  # fields of a job


def test_gang_behind_57_jobs_is_not_called_startable_and_gets_no_timer() -> None:
    ahead = [make_job(number, gang=make_gang(8, nodes_max=1), priority=5000 - number) for number in range(10, 67)]
    gang = make_job(1, gang=RANGE, time_limit_s=2 * DAY_S)

    record = Cycle().judge(half_idle([gang, *ahead]))

    assert (startable(record), timed(record)) == ([], [])


def test_at_most_one_of_four_gangs_of_8_is_called_startable_with_9_gpus_idle() -> None:
    nodes = [make_node(f"n0{row}", used=5 if row < 4 else 8) for row in range(1, 5)]
    ahead = make_job(9, gang=make_gang(8, required_nodes=("n04",)), priority=5000, time_limit_s=None)
    gangs = [make_job(number, gang=RANGE, time_limit_s=2 * DAY_S) for number in range(1, 5)]

    record = Cycle().judge(make_snapshot([ahead, *gangs], nodes))

    assert startable(record) == timed(record) == [1]
