"""What every journal keeps to; run by the tests of each."""

from dataclasses import replace

import pytest

from advisor.domain.actions import (
    NodeRange,
    SetGpus,
    SetNice,
    SetNodeList,
    SetNodeRange,
    SetSwitches,
    SetTimeMin,
)
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import KEPT_S, Journal, Wait
from advisor.domain.standings import NO_STANDINGS, standings_of
from advisor.domain.topology import LocalityTier
from advisor.errors import ConfigError
from tests.builders import make_stretch, size_of

NOW = 1_800_000_000.0
SWITCHES = SetSwitches(job_id=7, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))
RANGE = SetNodeRange(job_id=5, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
NICE = SetNice(job_id=5, before=0, after=50)
ACTIONS = (
    NICE,
    RANGE,
    SetGpus(
        job_id=6,
        scope=GpuScope.JOB,
        before=size_of(GpuCount(gpu_type="a100", count=8), GpuCount(count=1)),
        after=size_of(GpuCount(gpu_type="a100", count=4)),
    ),
    SWITCHES,
    SetTimeMin(job_id=8, before=None, after=1800.0),
    SetNodeList(job_id=8, before=(), after=("n01", "n02")),
)


def wait(ended_time: float, *, got: bool = True, gpus: int = 4) -> Wait:
    """Build a wait for one node."""
    return Wait(gpus=gpus, tier=LocalityTier.NODE, waited_s=60.5, got=got, ended_time=ended_time)


def check(journal: Journal) -> None:
    """Check a journal in which nothing stands yet."""
    assert journal.leases() == journal.closed([5, 6, 7, 8]) == ()
    assert journal.waits(0.0) == ()
    assert journal.observed_until() is None
    assert journal.standings(0.0) == NO_STANDINGS
    _check_owner(journal)
    _check_leases(journal)
    _check_waits(journal)
    _check_starts(journal)
    _check_standings(journal)


def _check_owner(journal: Journal) -> None:
    journal.claim("here")
    journal.claim("here")
    with pytest.raises(ConfigError, match=r"'here', not those on 'there'.*--journal"):
        journal.claim("there")


def _check_leases(journal: Journal) -> None:
    leases = [intended(action, NOW + 0.125, after_s=600.0 if action is RANGE else None) for action in ACTIONS]
    for lease in reversed(leases):
        journal.keep(lease)
    assert sorted(journal.leases(), key=_key) == sorted(leases, key=_key)
    assert [(lease.job_id, lease.lever) for lease in journal.leases()] == [
        _key(lease) for lease in sorted(leases, key=_key)
    ]

    out = replace(leases[0], state=LeaseState.OUT)
    journal.keep(out)
    assert [lease for lease in journal.leases() if lease.lever is out.lever] == [out], "one lease for a job and field"
    second = intended(replace(NICE, before=50, after=90), NOW + 1.0, previous=out)
    journal.keep(second)
    assert [lease for lease in journal.leases() if lease.lever is out.lever] == [second]

    told = replace(
        second,
        user="al\nice",
        account="lab|1",
        added_delay_s=90.5,
        by_person=True,
        overruled_time=NOW + 1.5,
        priority=1000,
        planned_start=NOW + 60.5,
        would_start_time=NOW + 61.5,
        start_time=NOW + 62.5,
    )
    journal.keep(told)
    assert [lease for lease in journal.leases() if lease.lever is out.lever] == [told]
    journal.keep(second)

    journal.close(leases[1], Ending.NO_LONGER_PENDING, NOW + 3.0)
    journal.close(second, Ending.TAKEN_BACK, NOW + 2.0)
    journal.close(leases[3], Ending.NOT_APPLIED, NOW + 4.0)
    assert [lease.job_id for lease in journal.leases()] == [6, 8, 8]
    assert journal.closed([5]) == (
        leases[1].ended(Ending.NO_LONGER_PENDING, NOW + 3.0),
        second.ended(Ending.TAKEN_BACK, NOW + 2.0),
    ), "in the order of writing, whatever the clock said"
    assert [lease.ending for lease in journal.closed([5, 7, 999])][-1] is Ending.NOT_APPLIED
    assert journal.closed([]) == ()
    assert [lease.job_id for lease in journal.closed([], since=NOW + 2.0)] == [5, 7]
    assert [lease.job_id for lease in journal.closed([5], since=NOW + 3.0)] == [5, 5, 7], "each once, as they ended"

    again = replace(leases[1], applied_time=NOW + 5.0)
    journal.keep(again)
    assert again in journal.leases(), "a field can be changed again once its lease has ended"
    journal.close(again, Ending.TAKEN_BACK, NOW + 3.0 + KEPT_S)
    assert journal.closed([5]) == (again.ended(Ending.TAKEN_BACK, NOW + 3.0 + KEPT_S),), "ended too long ago"


def _check_waits(journal: Journal) -> None:
    late, early = wait(NOW + 20.0), wait(NOW + 10.0, got=False)
    journal.add_waits([late, early], NOW + 30.0)
    journal.add_waits([], NOW + 40.0)
    assert journal.waits(0.0) == (early, late)
    assert journal.waits(NOW + 10.0) == (late,)
    assert journal.observed_until() == NOW + 40.0

    same = wait(NOW + 20.0, gpus=8)
    journal.add_waits([same], NOW + 50.0)
    assert journal.waits(NOW) == (early, late, same)
    journal.add_waits([], NOW + 10.0 + KEPT_S)
    assert journal.waits(0.0) == (late, same), "the first ended too long ago"


def _check_starts(journal: Journal) -> None:
    first, other, second = (intended(replace(NICE, job_id=job_id), NOW) for job_id in (20, 21, 20))
    journal.keep(first)
    journal.keep(other)
    journal.close(first, Ending.TAKEN_BACK, NOW + 1.0)
    journal.keep(second)

    journal.would_start({20: NOW + 2.0})
    journal.would_start({20: NOW + 3.0})
    assert _instants(journal, 20) == [(NOW + 2.0, None), (NOW + 2.0, None)], "the first instant stays"
    assert _instants(journal, 21) == [(None, None)]

    journal.close(other, Ending.TAKEN_BACK, NOW + 3.0)
    journal.started({20: NOW + 4.0, 21: NOW + 4.0})
    journal.started({20: NOW + 5.0})
    assert _instants(journal, 20) == [(NOW + 2.0, NOW + 4.0), (NOW + 2.0, None)], "of those that have ended"

    journal.would_start({21: NOW + 6.0})
    assert _instants(journal, 21) == [(None, NOW + 4.0)], "it has started by then"


def _instants(journal: Journal, job_id: int) -> list[tuple[float | None, float | None]]:
    """Return when a job would have started, and when it started, by its leases that have ended, then the open ones."""
    leases = (*journal.closed([job_id]), *journal.leases())
    return [(lease.would_start_time, lease.start_time) for lease in leases if lease.job_id == job_id]


def _key(lease: Lease) -> tuple[int, str]:
    return lease.job_id, lease.lever


def _check_standings(journal: Journal) -> None:
    hostile = "al\nice\x1b[2J' OR 1=1"
    first = make_stretch(anchor_time=NOW, waited_s=60.0, plain_s=(90.0, 100.0), user=hostile)
    longer = make_stretch(anchor_time=NOW, until=NOW + 900.0, waited_s=90.0, plain_s=(120.0, 130.0), user=hostile)
    second = make_stretch(anchor_time=NOW + 900.0, waited_s=10.0, plain_s=(5.0, 6.0), notes=("ünknown",))

    journal.keep_stretch(first)
    journal.keep_stretch(longer)
    assert journal.standings(0.0) == standings_of([longer])
    assert set(journal.standings(0.0).by_user) == {hostile}

    journal.keep_stretch(second)
    assert journal.standings(0.0) == standings_of([longer, second])
    assert journal.standings(longer.until) == standings_of([second])
