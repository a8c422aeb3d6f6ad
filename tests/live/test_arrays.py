"""Arrays on live Slurm: a nice reaches the waiting tasks and no other, their record stays whole, and its lease ends."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.named_jobs import NamedJobs, read_jobs
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.domain.actions import SetNice, SetTimeMin
from advisor.domain.lease import Ending, LeaseState, intended
from advisor.domain.plan import Outcome, Plan
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge, permitted
from advisor.journal import SqliteJournal, opened
from advisor.settings import Limits
from tests.builders import make_recommendation
from tests.live.conftest import started
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

COMMANDS = SlurmCommands(timeout_s=30.0)
# Priorities far above 1, so that none is cut off there.
PRIORITY = ("PriorityWeightAge=0", "PriorityWeightJobSize=0", "PriorityWeightPartition=50000")
ONE_GPU = ("--gres=gpu:1", "-n1", "--time=10", "--requeue")


@pytest.fixture(scope="module")
def node(release: str) -> Iterator[LiveCluster]:
    with started(
        LiveCluster(release, node_count=1, gpus_per_node=4, gpu_types=["a100"], shards={}, extra_lines=PRIORITY)
    ) as live:
        yield live


@pytest.fixture
def live(node: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> LiveCluster:
    """One node of four GPUs, empty, in the environment of this process."""
    node.reset()
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, node.env[name])
    return node


def submitted(live: LiveCluster, tasks: str, *, runs: int, script: str = "sleep 3600") -> int:
    """Submit an array, and wait until some of its tasks run."""
    array = live.submit(*ONE_GPU, f"--array={tasks}", script=script)
    wait_for_tasks(live, "RUNNING", runs)
    return array


def wait_for_tasks(live: LiveCluster, state: str, count: int) -> None:
    live.wait_for(lambda: live.run("squeue", "-h", "-r", "-t", state, "-o", "%A").count("\n") == count, 60.0)


def nice_of_tasks(live: LiveCluster, state: str) -> Mapping[int, int]:
    """Map the tasks in a state to their nice."""
    rows = live.run("squeue", "-h", "-r", "-t", state, "-o", "%K %y").split("\n")
    return {int(task): int(nice) for task, nice in (row.split() for row in rows if row)}


def records(live: LiveCluster, array: int) -> list[str]:
    """Return the records of an array as slurmctld holds them: their ids and tasks."""
    lines = live.run("scontrol", "-o", "show", "job", str(array)).splitlines()
    fields = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    return sorted(f"{row['JobId']} {row['ArrayTaskId']}" for row in fields if row["JobState"] != "CANCELLED")


def requeue(live: LiveCluster, task: str) -> None:
    """Requeue a running task, and wait until its end is done with."""
    live.run("scontrol", "requeue", task)
    live.wait_for(lambda: live.run("squeue", "-h", "-t", "COMPLETING", "-o", "%A") == "", 60.0)


def applier_on(journal: SqliteJournal) -> Applier:
    return Applier(
        source=open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()),
        actuator=ScontrolActuator(COMMANDS),
        cycle=Cycle(),
        journal=journal,
        named=NamedJobs(COMMANDS, SystemClock(), SiteReader(COMMANDS, SystemClock())),
    )


def test_a_nice_reaches_the_waiting_tasks_alone_and_its_revert_restores_their_priority(live: LiveCluster) -> None:
    array = submitted(live, "0-9%4", runs=4)
    before = read_jobs(COMMANDS, [array])[0]
    as_it_was = records(live, array)
    lift = SetNice(job_id=array, before=0, after=-1000)

    receipt = ScontrolActuator(COMMANDS).apply(lift)
    lifted, running = nice_of_tasks(live, "PENDING"), nice_of_tasks(live, "RUNNING")
    (during,) = read_jobs(COMMANDS, [array])[:1]
    undone = ScontrolActuator(COMMANDS).apply(lift.swapped())

    assert (receipt.outcome, undone.outcome) == (Outcome.APPLIED, Outcome.APPLIED)
    assert lifted == dict.fromkeys(range(4, 10), -1000) and running == dict.fromkeys(range(4), 0)
    assert records(live, array) == as_it_was
    after = read_jobs(COMMANDS, [array])[0]
    assert before.priority is not None and before.priority > 2000
    assert (during.priority, after.priority) == (before.priority + 1000, before.priority)
    assert after.array == before.array


def test_a_batch_lifts_arrays_and_jobs_alike(live: LiveCluster) -> None:
    array = submitted(live, "0-8:2", runs=4)
    whole, held = live.submit(*ONE_GPU, "--array=1-9:4"), live.submit(*ONE_GPU, "--hold")
    changes = [SetNice(job_id=job_id, before=0, after=-100 - job_id) for job_id in (array, whole, held)]

    receipts = ScontrolActuator(COMMANDS).apply_all(changes)

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 3
    nices = {job.job_id: job.nice for job in read_jobs(COMMANDS, [array, whole, held])}
    assert {job_id: nices[job_id] for job_id in (array, whole, held)} == {
        job_id: -100 - job_id for job_id in (array, whole, held)
    }
    # The last waiting task has the record of its array, whose id still stands for all of them.
    assert set(nice_of_tasks(live, "RUNNING").values()) == {0}
    assert sum(record.startswith(f"{whole} ") for record in records(live, whole)) == 1


def test_a_requeued_task_is_lifted_with_its_array_unless_a_person_gave_it_another_nice(live: LiveCluster) -> None:
    array = submitted(live, "0-9%4", runs=4)
    live.run("scontrol", "update", f"JobId={array}", "ArrayTaskThrottle=1")
    for task in (0, 1):
        requeue(live, f"{array}_{task}")
    live.run("scontrol", "update", f"JobId={array}_1", "Nice=70")
    lift = SetNice(job_id=array, before=0, after=-1000)

    ScontrolActuator(COMMANDS).apply(lift)
    lifted = nice_of_tasks(live, "PENDING")
    ScontrolActuator(COMMANDS).apply(lift.swapped())

    assert lifted == dict.fromkeys(range(4, 10), -1000) | {0: -1000, 1: 70}
    assert nice_of_tasks(live, "PENDING") == dict.fromkeys(range(4, 10), 0) | {0: 0, 1: 70}
    assert set(nice_of_tasks(live, "RUNNING").values()) == {0}


def test_a_lease_ends_with_the_start_of_the_last_task_and_a_requeued_task_loses_the_lift(
    live: LiveCluster, tmp_path: Path
) -> None:
    array = submitted(live, "0-4%2", runs=2)
    lift = SetNice(job_id=array, before=0, after=-1000)
    with opened(tmp_path / "journal.sqlite") as journal:
        journal.keep(replace(intended(lift, SystemClock().now(), after_s=3600.0), state=LeaseState.OUT))
        ScontrolActuator(COMMANDS).apply(lift)
        applier = applier_on(journal)
        live.run("scancel", f"{array}_0", f"{array}_1")
        live.wait_for(lambda: 3 in nice_of_tasks(live, "RUNNING"), 60.0)
        applier.reconcile(applier.source.snapshot())
        still_open = [lease.state for lease in journal.leases()]
        live.run("scancel", f"{array}_2")
        live.wait_for(lambda: 4 in nice_of_tasks(live, "RUNNING"), 60.0)
        lifted = nice_of_tasks(live, "RUNNING")
        applier.reconcile(applier.source.snapshot())
        ended = [lease.ending for lease in journal.closed([array])]
        requeue(live, f"{array}_3")
        applier.revert(applier.leased())
        left = journal.leases()

    assert still_open == [LeaseState.OUT]
    assert lifted == dict.fromkeys((3, 4), -1000)
    assert (ended, left) == ([Ending.NO_LONGER_PENDING], ())
    (task,) = (job for job in read_jobs(COMMANDS, [array]) if job.array is not None and job.array.task_id == 3)
    assert (task.nice, task.job_id != array) == (0, True)


def test_the_guard_allows_a_nice_of_an_array_of_which_tasks_run_and_no_other_change(
    live: LiveCluster,
) -> None:
    array = submitted(live, "0-9", runs=4)
    requeue(live, f"{array}_0")
    nice = make_recommendation(SetNice(job_id=array, before=0, after=-37))
    soft = make_recommendation(SetTimeMin(job_id=array, before=None, after=300.0))
    snapshot = open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()).snapshot()
    known = circumstances(snapshot, Limits(min_job_age_s=0.0))

    verdicts = judge(Plan(recommendations=(nice, soft)), snapshot, known)
    permits = permitted(snapshot, known)

    assert [verdict.refused_by for verdict in verdicts] == [None, "array_not_split"]
    assert array in permits.left_alone and permits.nice_only == {array}
