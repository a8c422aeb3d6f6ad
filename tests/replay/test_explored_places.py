"""What the journal keeps of a place that was tried."""

import time
from dataclasses import replace
from pathlib import Path

from advisor.cycle import Cycle
from advisor.domain.actions import SetNodeList
from advisor.domain.lease import Ending, LeaseState, intended
from advisor.journal import SqliteJournal
from advisor.journal.rows import action_of
from tests.planning.exploring_site import EXPLORING, known, pending, planned, queue, resident, site_speeds
from tests.planning.test_gang_nodes import LastFirst

CYCLE = Cycle(planning=EXPLORING, policy=LastFirst(), models=known(site_speeds()))


def test_journal_keeps_the_reason_and_the_gpu_time_of_a_try(tmp_path: Path) -> None:
    record = planned(queue(pending(), resident()))
    (change,) = record.recommendations
    lease = replace(intended(change.action, time.time(), after_s=120.0), state=LeaseState.OUT)
    store = SqliteJournal(tmp_path / "journal.sqlite")

    store.record(record, CYCLE)
    store.keep(lease)

    assert store.leases() == (lease,)
    (purpose,) = store.purposes([lease]).values()
    assert purpose.reason == "explore_place"
    store.close(lease, Ending.NO_LONGER_PENDING, lease.applied_time + 60.0)
    (ended,) = store.closed([1])
    assert ended.explored_gpu_s == 8 * 3600.0
    store.close_file()


def test_memory_holds_the_leases_of_running_jobs_where_places_are_tried(tmp_path: Path) -> None:
    snapshot = queue(pending(), resident())
    action = SetNodeList(job_id=8, before=(), after=("n01", "n02"), explored_gpu_s=1.0)
    long_ago = snapshot.taken_at - 20 * 86_400.0
    lease = replace(intended(action, long_ago, after_s=120.0), state=LeaseState.OUT)
    store = SqliteJournal(tmp_path / "journal.sqlite")
    store.keep(lease)
    store.close(lease, Ending.NO_LONGER_PENDING, long_ago + 60.0)

    tries, plain = (replace(CYCLE, planning=replace(EXPLORING, explore_ratio=ratio)) for ratio in (0.05, 0.0))

    assert [kept.job_id for kept in tries.memory(store, snapshot).leases] == [8]
    assert plain.memory(store, snapshot).leases == ()
    store.close_file()


def test_list_of_nodes_from_before_tries_is_read_as_none() -> None:
    action = action_of("node_list", '{"job_id":7,"before":[],"after":["n01","n03"]}')

    assert action == SetNodeList(job_id=7, before=(), after=("n01", "n03"))
