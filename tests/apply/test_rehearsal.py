"""`recommend` and `explain` plan what `apply` would: from the same memory, with what is due taken back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.rehearsal import NothingNew, RehearsedCluster, rehearse
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Journal, Wait
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.errors import ConfigError
from advisor.journal import SqliteJournal, opened
from advisor.planning.observing import observed
from advisor.settings import Limits
from tests.builders import TAKEN_AT, make_job, make_snapshot, make_stretch
from tests.fake_cluster import HOLD, FakeCluster, fragmented, gang, held
from tests.golden import random_queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a journal holds: leases that are open, leases that have ended with how and when, and waits."""

    leases: Sequence[Lease] = ()
    ended: Sequence[tuple[Lease, Ending, float]] = ()
    waits: Sequence[Wait] = ()

    def fill(self, journal: Journal, cluster: str = "test") -> None:
        """Write it into a journal."""
        journal.claim(cluster)
        for lease, ending, ended_time in self.ended:
            journal.keep(lease)
            journal.close(lease, ending, ended_time)
        for lease in self.leases:
            journal.keep(lease)
        journal.add_waits(self.waits, TAKEN_AT - 60.0)


def out(action: Action, *, ago_s: float = 600.0, due_in_s: float | None = 600.0, delay_s: float = 0.0) -> Lease:
    """Return a change that is out."""
    lease = intended(action, TAKEN_AT - ago_s, added_delay_s=delay_s)
    due_time = None if due_in_s is None else TAKEN_AT + due_in_s
    return replace(lease, state=LeaseState.OUT, due_time=due_time, user="alice", account="lab")


def delayed(action: Action, late_s: float) -> Lease:
    """Return a change without which its job would have started some time ago."""
    return replace(out(action, ago_s=late_s, delay_s=1.0), would_start_time=TAKEN_AT - late_s)


def step_back(job_id: int) -> SetNice:
    """Return a step back of a job."""
    return SetNice(job_id=job_id, before=0, after=20)


def judged(record: CycleRecord) -> tuple[object, ...]:
    """Return what a cycle came to."""
    return record.judged, record.left_alone, record.recommendations


LONG_S = 2 * Limits().max_user_delay_s
CASES = {
    "nothing": (fragmented(), Kept()),
    "open": (held(fragmented()), Kept(leases=[out(HOLD)])),
    "open and due": (held(fragmented()), Kept(leases=[out(HOLD, ago_s=3600.0, due_in_s=-60.0)])),
    "overruled": (fragmented(), Kept(leases=[out(HOLD)])),
    "overruled before": (fragmented(), Kept(leases=[replace(out(HOLD), state=LeaseState.HANDS_OFF)])),
    "taken back a moment ago": (fragmented(), Kept(ended=[(out(HOLD), Ending.TAKEN_BACK, TAKEN_AT - 30.0)])),
    "taken back by a person": (fragmented(), Kept(ended=[(out(HOLD), Ending.REVERTED, TAKEN_AT - 86_400.0)])),
    "started and requeued": (held(fragmented()), Kept(ended=[(out(HOLD), Ending.NO_LONGER_PENDING, TAKEN_AT - 900.0)])),
    "intended": (fragmented(), Kept(leases=[replace(out(HOLD, ago_s=3600.0), state=LeaseState.INTENDED)])),
    "being taken back": (held(fragmented()), Kept(leases=[replace(out(HOLD), state=LeaseState.RETURNING)])),
    "delay of another job of the user": (
        fragmented(),
        Kept(ended=[(delayed(step_back(77), LONG_S), Ending.TAKEN_BACK, TAKEN_AT - 600.0)]),
    ),
}


def mine(cluster: FakeCluster) -> FakeCluster:
    """Return a copy of a cluster whose gang belongs to the user of the leases."""
    jobs = {job_id: replace(job, user="alice", account="lab") for job_id, job in cluster.jobs.items()}
    return FakeCluster(jobs=jobs)


@pytest.mark.parametrize("case", CASES)
def test_rehearsal_comes_to_what_a_step_does(case: str, tmp_path: Path) -> None:
    cluster, kept = CASES[case]
    path = tmp_path / "journal.sqlite"
    with opened(path) as journal:
        kept.fill(journal)
    seen = mine(cluster).snapshot()

    with SqliteJournal.read_only(path) as journal:
        rehearsed = rehearse(Cycle(), journal, seen).record
    at_work = mine(cluster)
    with opened(path) as journal:
        applier = Applier(source=at_work, actuator=at_work, cycle=Cycle(), journal=journal, observe=observed)
        step = applier.step(seen)

    assert judged(rehearsed) == judged(step.record)


def test_delay_that_is_booked_on_the_user_counts_in_a_rehearsal() -> None:
    cluster, kept = CASES["delay of another job of the user"]
    free, booked = MemoryJournal(), MemoryJournal()
    kept.fill(booked)

    without = rehearse(Cycle(), free, mine(cluster).snapshot()).record
    with_it = rehearse(Cycle(), booked, mine(cluster).snapshot()).record

    assert [change.job_id for change in without.recommendations] == [9]
    assert with_it.recommendations == ()


def test_what_users_are_owed_counts_in_a_rehearsal() -> None:
    journal = MemoryJournal()
    journal.keep_stretch(make_stretch(anchor_time=TAKEN_AT - 7200.0, until=TAKEN_AT - 60.0, user="alice"))

    memory = rehearse(Cycle(), journal, fragmented().snapshot()).record.memory

    assert list(memory.standings.by_user) == ["alice"]
    assert memory.standings == journal.standings(TAKEN_AT - 7200.0)


def test_rehearsal_changes_neither_the_journal_nor_the_snapshot() -> None:
    journal, cluster = MemoryJournal(), held(fragmented())
    CASES["open and due"][1].fill(journal)
    seen = cluster.snapshot()
    before = journal.leases()

    step = rehearse(Cycle(), journal, seen)

    assert [receipt.action for receipt in step.reconciled.taken_back] == [before[0].undo]
    assert step.applied == () and not step.record.memory.outstanding
    assert journal.leases() == before
    assert cluster.sent == [] and cluster.snapshot() == seen


@pytest.mark.parametrize("seed", range(40))
def test_rehearsal_comes_to_what_a_step_does_on_random_queues(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = random_queues.snapshot(rng)
    leases = [lease for lease in random_queues.leases(rng, seen) if rng.random() < 0.7]
    done = [lease for lease in random_queues.leases(rng, seen) if lease.job_id not in {each.job_id for each in leases}]
    endings = [Ending(rng.choice([ending.value for ending in Ending])) for _ in done]
    kept = Kept(
        leases=leases,
        ended=[(lease, ending, TAKEN_AT - 60.0) for lease, ending in zip(done, endings, strict=True)],
        waits=random_queues.waits(rng),
    )
    jobs = {job.job_id: job for job in seen.jobs}
    for lease in leases:
        if rng.random() < 0.7:
            jobs[lease.job_id] = lease.action.applied_to(jobs[lease.job_id])
    seen = replace(seen, jobs=tuple(jobs.values()))
    here, there = MemoryJournal(), MemoryJournal()
    kept.fill(here)
    kept.fill(there)

    rehearsed = rehearse(Cycle(), here, seen).record
    at_work = Drawn(jobs=jobs, drawn=seen)
    step = Applier(
        source=at_work, actuator=at_work, cycle=Cycle(), journal=there, observe=observed, gate=TakesBackOnly()
    ).step(seen)

    assert judged(rehearsed) == judged(step.record)


class TakesBackOnly(NothingNew):
    """A gate of a live step that sends nothing new, so that its cluster stays comparable."""


@dataclass
class Drawn(FakeCluster):
    """A cluster of drawn nodes."""

    drawn: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""
        assert self.drawn is not None
        return replace(self.drawn, jobs=tuple(self.jobs[job.job_id] for job in self.drawn.jobs))


def test_journal_of_another_cluster_is_not_planned_with() -> None:
    journal = MemoryJournal()
    journal.claim("elsewhere")

    with pytest.raises(ConfigError, match="elsewhere"):
        Applier(source=fragmented(), actuator=fragmented(), cycle=Cycle(), journal=journal).step()


NICE = SetNice(job_id=9, before=0, after=50)


@pytest.mark.parametrize(
    ("job", "outcome", "is_overruled"),
    [
        pytest.param(make_job(9), Outcome.APPLIED, False, id="waits"),
        pytest.param(make_job(9, nice=50), Outcome.ALREADY_SO, False, id="holds it already"),
        pytest.param(make_job(9, nice=7), Outcome.FAILED, True, id="changed by its user"),
        pytest.param(replace(make_job(9, nice=7), unseen=("nice",)), Outcome.APPLIED, False, id="not read"),
        pytest.param(make_job(9, gpus=1, running_on=["n01"]), Outcome.FAILED, False, id="runs"),
        pytest.param(make_job(8), Outcome.FAILED, False, id="gone"),
    ],
)
def test_rehearsed_change_ends_as_slurm_would_have_it(job: Job, outcome: Outcome, is_overruled: bool) -> None:
    other = make_job(10, nice=3)
    cluster = RehearsedCluster(make_snapshot([job, other]))

    receipt = cluster.apply(NICE)

    changed = 50 if outcome is Outcome.APPLIED else job.nice
    assert (receipt.outcome, receipt.is_overruled) == (outcome, is_overruled)
    assert [job.nice for job in cluster.snapshot().jobs] == [changed, 3]


def test_rehearsal_takes_a_range_that_shows_one_end_for_ours() -> None:
    cluster = fragmented()
    cluster.jobs[9] = gang(nodes_max=1)
    journal = MemoryJournal()
    two_nodes = SetNodeRange(job_id=9, before=HOLD.before, after=NodeRange(low=1, high=2))
    Kept(leases=[replace(out(two_nodes, ago_s=10.0), state=LeaseState.INTENDED)]).fill(journal)

    step = rehearse(Cycle(), journal, cluster.snapshot())

    assert [lease.state for lease in step.record.memory.leases] == [LeaseState.OUT]
