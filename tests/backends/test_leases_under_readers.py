"""A change that was written down under one reader is judged and taken back under any other."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from advisor.apply.applier import INTENT_GRACE_S, Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import Reconciled
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.pyslurm_source import PyslurmSource
from advisor.backends.text_source import TextSource
from advisor.clock import ManualClock
from advisor.cycle import ClusterSource, Cycle
from advisor.domain.actions import (
    Action,
    Lever,
    NodeRange,
    SetGpus,
    SetNice,
    SetNodeList,
    SetNodeRange,
    SetSwitches,
    SetTimeMin,
)
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.lease import Ending, LeaseState, intended
from advisor.domain.plan import Outcome
from tests.backends.fake_slurm import root_site
from tests.backends.one_queue import JOB_ID, OneQueue
from tests.builders import size_of

READERS = ("text", "pyslurm")
NOW = 1_795_353_900.0

# One change of each lever to a field of a pending job, from what the queue holds at first.
CHANGES: Mapping[Lever, Action] = {
    Lever.NICE: SetNice(job_id=JOB_ID, before=0, after=40),
    Lever.SWITCHES: SetSwitches(job_id=JOB_ID, before=None, after=SwitchRequest(count=1, max_wait_s=1800.0)),
    Lever.NODE_RANGE: SetNodeRange(job_id=JOB_ID, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1)),
    Lever.GPU_COUNT: SetGpus(
        job_id=JOB_ID,
        scope=GpuScope.JOB,
        before=size_of(GpuCount(gpu_type="a100", count=8), limit_s=3600.0),
        after=size_of(GpuCount(gpu_type="a100", count=4), limit_s=6780.0),
    ),
    Lever.TIME_MIN: SetTimeMin(job_id=JOB_ID, before=None, after=3600.0),
    Lever.NODE_LIST: SetNodeList(job_id=JOB_ID, before=(), after=("n01", "n02")),
}


@pytest.fixture(autouse=True)
def _conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=fake\nAccountingStorageTRES=gres/gpu\n")
    monkeypatch.setenv("SLURM_CONF", str(path))


def opened(reader: str, queue: OneQueue) -> ClusterSource:
    """Open a reader of the queue."""
    clock = ManualClock(NOW)
    site = root_site(queue, clock)
    return TextSource(queue, clock, site) if reader == "text" else PyslurmSource(clock, site, queue)


def reconciled(reader: str, queue: OneQueue, journal: MemoryJournal) -> Reconciled:
    """Take back what is due, as a reader shows the queue."""
    source = opened(reader, queue)
    applier = Applier(source=source, actuator=ScontrolActuator(queue), cycle=Cycle(), journal=journal)
    return applier.reconcile(source.snapshot())


def test_every_lever_is_among_the_changes() -> None:
    assert set(CHANGES) == set(Lever)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("lever", CHANGES)
def test_readers_show_the_same_value_or_say_that_they_show_none(reader: str, lever: Lever) -> None:
    change, queue = CHANGES[lever], OneQueue()

    before = opened(reader, queue).snapshot()
    ScontrolActuator(queue).apply(change)
    after = opened(reader, queue).snapshot()

    if before.shows(before.jobs_by_id[JOB_ID], lever):
        assert change.held_by(before.jobs_by_id[JOB_ID]) == change.before
        assert change.held_by(after.jobs_by_id[JOB_ID]) == change.after
    else:
        assert (reader, lever) == ("pyslurm", Lever.GPU_COUNT)


@pytest.mark.parametrize("state", [LeaseState.INTENDED, LeaseState.OUT, LeaseState.RETURNING])
@pytest.mark.parametrize(("writer", "reader"), list(product(READERS, READERS)))
@pytest.mark.parametrize("lever", CHANGES)
def test_change_is_taken_back_under_any_reader(lever: Lever, writer: str, reader: str, state: LeaseState) -> None:
    change, queue, journal = CHANGES[lever], OneQueue(), MemoryJournal()
    held = queue.held()
    written = opened(writer, queue).snapshot()
    if not written.shows(written.jobs_by_id[JOB_ID], lever):
        # The guard lets no such change pass under this reader.
        return
    lease = intended(change, NOW - 2 * INTENT_GRACE_S, after_s=60.0, job=written.jobs_by_id[JOB_ID])
    journal.keep(replace(lease, state=state))
    assert ScontrolActuator(queue).apply(change).text == ""

    done = reconciled(reader, queue, journal)

    assert queue.held() == held
    assert (done.overruled, journal.leases()) == ((), ())
    assert [ended.ending for ended in journal.closed([JOB_ID])] == [Ending.TAKEN_BACK]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("lever", CHANGES)
def test_value_of_somebody_else_stays_under_any_reader(lever: Lever, reader: str) -> None:
    change, queue, journal = (
        CHANGES[lever],
        OneQueue(nice=3, nodes=(2, 3), switches="2@10", time_min=7, named="n03"),
        MemoryJournal(),
    )
    queue.gpus = "gres/gpu:a100:2"
    held = queue.held()
    lease = intended(change, NOW - 2 * INTENT_GRACE_S, after_s=60.0)
    journal.keep(replace(lease, state=LeaseState.OUT))

    reconciled(reader, queue, journal)

    assert queue.held() == held
    assert [each.state for each in journal.leases()] == [LeaseState.HANDS_OFF]


@pytest.mark.parametrize("state", [LeaseState.OUT, LeaseState.RETURNING])
@pytest.mark.parametrize("limit", [30, 90, 600])
def test_limit_that_a_person_set_stays_with_the_size(state: LeaseState, limit: int) -> None:
    change, queue, journal = CHANGES[Lever.GPU_COUNT], OneQueue(), MemoryJournal()
    lease = intended(change, NOW - 2 * INTENT_GRACE_S, after_s=60.0)
    journal.keep(replace(lease, state=state))
    assert ScontrolActuator(queue).apply(change).text == ""
    queue.limit = limit
    held, sent = queue.held(), tuple(queue.sent)

    reconciled("text", queue, journal)

    assert (queue.held(), tuple(queue.sent)) == (held, sent)
    assert [each.state for each in journal.leases()] == [LeaseState.HANDS_OFF]


def test_limit_that_a_person_set_between_reading_and_sending_stays() -> None:
    queue = OneQueue(limit=90)

    receipt = ScontrolActuator(queue).apply(CHANGES[Lever.GPU_COUNT])

    assert (receipt.outcome, receipt.is_overruled, queue.sent) == (Outcome.FAILED, True, [])


@pytest.mark.parametrize("lever", CHANGES)
@pytest.mark.parametrize("unseen", ["nice", "requested_tres", "required_switches", "time_limit_min", "comment"])
def test_change_is_taken_back_where_a_field_of_its_job_was_not_read(lever: Lever, unseen: str) -> None:
    change, queue, journal = CHANGES[lever], OneQueue(unseen=(unseen,)), MemoryJournal()
    held = queue.held()
    journal.keep(replace(intended(change, NOW - 600.0, after_s=60.0), state=LeaseState.OUT))
    ScontrolActuator(queue).apply(change)

    reconciled("pyslurm", queue, journal)

    assert queue.held() == held
    assert journal.leases() == ()


def test_change_that_was_not_read_and_is_not_due_stays_out() -> None:
    change, queue, journal = CHANGES[Lever.GPU_COUNT], OneQueue(), MemoryJournal()
    ScontrolActuator(queue).apply(change)
    kept = replace(intended(change, NOW - 60.0, after_s=3600.0), state=LeaseState.OUT)
    journal.keep(kept)

    reconciled("pyslurm", queue, journal)

    assert journal.leases() == (kept,)
    assert queue.sent == ["TresPerJob=gres:gpu:a100:4", "TimeLimit=113"]


def test_field_that_was_not_read_of_a_requeued_job_is_owned_again_until_it_was() -> None:
    change, queue, journal = CHANGES[Lever.GPU_COUNT], OneQueue(), MemoryJournal()
    held = queue.held()
    lease = replace(intended(change, NOW - 3600.0, after_s=60.0), state=LeaseState.OUT)
    journal.keep(lease)
    journal.close(lease, Ending.NO_LONGER_PENDING, NOW - 1800.0)
    ScontrolActuator(queue).apply(change)

    reconciled("pyslurm", queue, journal)

    assert queue.held() == held
    assert [ended.ending for ended in journal.closed([JOB_ID])] == [Ending.NO_LONGER_PENDING, Ending.TAKEN_BACK]
