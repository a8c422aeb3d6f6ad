"""Two advisors of one cluster, each with a journal of its own: neither builds on a change of the other."""

from dataclasses import replace

import pytest

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.rehearsal import rehearse
from advisor.cycle import Cycle
from tests.builders import DAY_S, make_job
from tests.fake_cluster import FakeCluster
from tests.planning.test_ordering import busy, shorts


@pytest.fixture
def cluster() -> FakeCluster:
    """A full cluster with long work ahead of six short jobs."""
    queue = busy(make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S), *shorts(6))
    return FakeCluster(jobs={job.job_id: job for job in queue.jobs})


def advisor_on(cluster: FakeCluster) -> Applier:
    return Applier(source=cluster, actuator=cluster, cycle=Cycle())


def arrive(cluster: FakeCluster) -> None:
    """Let short jobs arrive behind the job that was moved, so that it would be moved again."""
    for number, job in enumerate(shorts(6, first_priority=700), start=50):
        cluster.jobs[number] = replace(job, job_id=number)


def test_second_advisor_leaves_alone_the_job_that_the_first_has_moved(cluster: FakeCluster) -> None:
    first, second = advisor_on(cluster), advisor_on(cluster)
    first.step()
    moved_to = cluster.jobs[1].nice
    arrive(cluster)

    step = second.step()

    assert moved_to == 157
    assert step.applied == () and step.record.left_alone[1] == "no_stray_nice"
    assert cluster.jobs[1].nice == moved_to and second.journal.leases() == ()


def test_advice_without_a_journal_leaves_it_alone_too(cluster: FakeCluster) -> None:
    advisor_on(cluster).step()
    arrive(cluster)

    record = rehearse(Cycle(), MemoryJournal(), cluster.snapshot()).record

    assert record.recommendations == () and record.left_alone[1] == "no_stray_nice"


def test_first_advisor_knows_its_change_and_reverts_it(cluster: FakeCluster) -> None:
    first, second = advisor_on(cluster), advisor_on(cluster)
    first.step()
    arrive(cluster)
    second.step()
    cluster.now += DAY_S

    reconciled = first.reconcile(cluster.snapshot())

    assert [receipt.action.job_id for receipt in reconciled.taken_back] == [1]
    assert cluster.jobs[1].nice == 0
