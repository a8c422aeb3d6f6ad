"""Applying as a state machine: whatever people, Slurm, the clock and kills do, every change is owned or taken back."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from advisor.apply.applier import INTENT_GRACE_S, Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import Reconciled, Step, StepJournal
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, Lever, NodeRange, SetNice, SetNodeList, SetNodeRange, SetTimeMin
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.memory import NOTHING_KNOWN, Memory, Wait
from advisor.domain.plan import Receipt, Recommendation
from advisor.domain.probation import Trust
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import Standings, Stretch
from advisor.errors import SlurmUnavailableError
from advisor.journal import SqliteJournal
from tests.builders import make_gang, make_job, make_recommendation
from tests.examples import examples
from tests.fake_cluster import FakeCluster

JOBS = (1, 2)
LEVERS = (Lever.NICE, Lever.NODE_RANGE, Lever.TIME_MIN, Lever.NODE_LIST)
HALF_DAY_S = 43_200.0
Key = tuple[int, Lever]


class Killed(BaseException):
    """Stands for kill -9."""


@dataclass
class Life:
    """How many fault points a process passes before it is killed; None for one that is not."""

    left: int | None = None

    def pass_by(self) -> None:
        """Pass a fault point or die there."""
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1


# What Slurm may do to all that is sent in one life of the advisor.
FAULTS = ("unreachable", "is_lost", "lags", "does_nothing", "failing")
# Most lives go well, some end by a kill, and in some Slurm fails.
MISHAPS = st.one_of(st.none(), st.integers(0, 9), st.integers(0, 9), st.sampled_from(FAULTS))
PROPOSALS = st.tuples(st.sampled_from(JOBS), st.sampled_from(LEVERS), st.integers(1, 3), st.sampled_from([None, 600.0]))
Mishap = int | str | None


@contextmanager
def all_or_nothing(journal: StepJournal) -> Iterator[None]:
    """Write together, also in memory, where a death would leave the first half."""
    before = dict(vars(journal)) if isinstance(journal, MemoryJournal) else {}
    before = {name: copy(value) for name, value in before.items()}
    try:
        with journal.together():
            yield
    except BaseException:
        vars(journal).update(before)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Mortal:
    """A journal and an actuator with a fault point before and after every write and every change."""

    journal: StepJournal
    cluster: FakeCluster
    life: Life

    def claim(self, cluster: str) -> None:
        self._around(lambda: self.journal.claim(cluster))

    @contextmanager
    def together(self) -> Iterator[None]:
        self.life.pass_by()
        with all_or_nothing(self.journal):
            yield
            self.life.pass_by()
        self.life.pass_by()

    def keep(self, lease: Lease) -> None:
        self._around(lambda: self.journal.keep(lease))

    def close(self, lease: Lease, ending: Ending, ended_time: float) -> None:
        self._around(lambda: self.journal.close(lease, ending, ended_time))

    def started(self, start_times: Mapping[int, float]) -> None:
        self._around(lambda: self.journal.started(start_times))

    def would_start(self, times: Mapping[int, float]) -> None:
        self._around(lambda: self.journal.would_start(times))

    def leases(self) -> tuple[Lease, ...]:
        return self.journal.leases()

    def closed(self, job_ids: Iterable[int], since: float | None = None) -> tuple[Lease, ...]:
        return self.journal.closed(frozenset(job_ids), since)

    def add_waits(self, waits: Iterable[Wait], observed_until: float) -> None:
        self._around(lambda: self.journal.add_waits(waits, observed_until))

    def waits(self, since: float) -> tuple[Wait, ...]:
        return self.journal.waits(since)

    def keep_stretch(self, stretch: Stretch) -> None:
        self._around(lambda: self.journal.keep_stretch(stretch))

    def standings(self, since: float) -> Standings:
        return self.journal.standings(since)

    def observed_until(self) -> float | None:
        return self.journal.observed_until()

    def record(self, record: CycleRecord, cycle: Cycle) -> int:
        self.life.pass_by()
        cycle_id = self.journal.record(record, cycle)
        self.life.pass_by()
        return cycle_id

    def receipts(self, cycle_id: int, step: Step) -> None:
        self._around(lambda: self.journal.receipts(cycle_id, step))

    def returns(self, time: float, reconciled: Reconciled) -> None:
        self._around(lambda: self.journal.returns(time, reconciled))

    def trust(self) -> Trust | None:
        return self.journal.trust()

    def apply(self, action: Action) -> Receipt:
        self.life.pass_by()
        receipt = self.cluster.apply(action)
        self.life.pass_by()
        return receipt

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        return tuple(map(self.apply, changes))

    def hides_range_end(self, job_id: int) -> bool:
        return self.cluster.hides_range_end(job_id)

    def _around(self, write: Callable[[], None]) -> None:
        self.life.pass_by()
        write()
        self.life.pass_by()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted(Cycle):
    """A cycle that recommends what it is told, for jobs with no change under way."""

    changes: tuple[Recommendation, ...] = ()

    def judge(self, snapshot: Snapshot, memory: Memory = NOTHING_KNOWN) -> CycleRecord:
        return CycleRecord(
            snapshot=snapshot,
            memory=memory,
            forecasts=NO_FORECASTS,
            judged=tuple(change for change in self.changes if change.job_id not in memory.outstanding),
            left_alone={},
        )


@contextmanager
def failing(cluster: FakeCluster, mishap: Mishap) -> Iterator[None]:
    """Have Slurm stop answering, lose answers, take its time, do nothing, or refuse, for as long as the block lasts."""
    if mishap == "failing":
        cluster.failing = dict.fromkeys((SetNice, SetNodeRange, SetNodeList), "no")
    elif isinstance(mishap, str):
        setattr(cluster, mishap, True)
    yield
    cluster.failing = {}
    cluster.unreachable = cluster.is_lost = cluster.lags = cluster.does_nothing = False


def new_job(job_id: int, nodes_max: int) -> Job:
    return make_job(job_id, gang=make_gang(4, nodes_min=1, nodes_max=nodes_max))


def setting(job: Job, lever: Lever, number: int) -> Action:
    """Set a field of a job to a value that stands for a number."""
    match lever:
        case Lever.NICE:
            return SetNice(job_id=job.job_id, before=job.nice, after=-number)
        case Lever.TIME_MIN:
            return SetTimeMin(job_id=job.job_id, before=job.time_min_s, after=60.0 * number)
        case Lever.NODE_LIST:
            return SetNodeList(job_id=job.job_id, before=job.gang.required_nodes, after=(f"n{number:02}",))
        case _:
            held = NodeRange(low=job.gang.nodes_min, high=job.gang.nodes_max or 0)
            return SetNodeRange(job_id=job.job_id, before=held, after=NodeRange(low=1, high=number))


def value(job: Job, lever: Lever) -> object:
    return setting(job, lever, 1).held_by(job)


class Applying(RuleBasedStateMachine):
    """Two worlds, one with a journal in memory and one with a file, to which the same happens."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.clusters = [FakeCluster(jobs={}) for _ in range(2)]
        self.journals: list[MemoryJournal | SqliteJournal] = [MemoryJournal(), self.opened()]
        # What people last left in each field, and where they did so over a change of ours.
        self.truth: dict[Key, object] = {}
        self.objected: set[Key] = set()
        # People never choose what somebody has chosen before: nobody could tell that from doing nothing.
        self.numbers = 4
        self.back: set[int] = set()
        # Jobs whose node range people changed since the advisor last looked.
        self.new_ranges: set[int] = set()
        for job_id in JOBS:
            self.arrive(job_id)

    def teardown(self) -> None:
        self.file.close_file()
        shutil.rmtree(self.folder)

    def opened(self) -> SqliteJournal:
        self.file = SqliteJournal(self.folder / "journal.sqlite")
        return self.file

    @property
    def jobs(self) -> dict[int, Job]:
        return self.clusters[0].jobs

    def arrive(self, job_id: int) -> None:
        self.numbers += 1
        for cluster in self.clusters:
            cluster.jobs[job_id] = new_job(job_id, self.numbers)
        for lever in LEVERS:
            self.truth[job_id, lever] = value(self.jobs[job_id], lever)

    def live(
        self, work: Callable[[Applier], object], mishap: Mishap = None, changes: tuple[Recommendation, ...] = ()
    ) -> None:
        """Let the advisor work in both worlds, to the end or to a mishap."""
        came_to_an_end = True
        for cluster, journal in zip(self.clusters, self.journals, strict=True):
            mortal = Mortal(journal=journal, cluster=cluster, life=Life(mishap if isinstance(mishap, int) else None))
            at_work = Applier(source=cluster, actuator=mortal, cycle=Scripted(changes=changes), journal=mortal)
            with failing(cluster, mishap):
                try:
                    work(at_work)
                except (Killed, SlurmUnavailableError):
                    came_to_an_end = False
        if isinstance(mishap, int):
            self.restart()
        if came_to_an_end:
            self.back.clear()
            self.new_ranges.clear()

    def restart(self) -> None:
        self.file.close_file()
        self.journals[1] = self.opened()

    @rule(proposals=st.lists(PROPOSALS, min_size=1, max_size=2, unique_by=lambda each: each[0]), mishap=MISHAPS)
    def step(self, proposals: list[tuple[int, Lever, int, float | None]], mishap: Mishap) -> None:
        """The advisor runs a cycle that recommends changes."""
        changes = []
        for job_id, lever, number, due in proposals:
            job = self.clusters[0].shown(self.jobs[job_id]) if job_id in self.jobs else None
            # Those whose change somebody overruled are left alone by the guard.
            if job is None or not job.is_pending or any(key[0] == job_id for key in self.objected):
                continue
            action = setting(job, lever, number)
            tightens = not isinstance(action, SetNodeRange) or action.after.high < action.before.high
            if action.before != action.after and tightens:
                changes.append(make_recommendation(action, revert_after_s=due))
        self.live(lambda at_work: at_work.step(), mishap, tuple(changes))

    @rule(job_ids=st.none() | st.sampled_from(JOBS), mishap=MISHAPS)
    def something_is_taken_back(self, job_ids: int | None, mishap: Mishap) -> None:
        """A person has the changes to a job taken back, or the daemon ends in order."""

        def take_back(at_work: Applier) -> None:
            if job_ids is None:
                at_work.leave(at_work.source.snapshot())
            else:
                at_work.revert(at_work.source.snapshot(), [job_ids])

        self.live(take_back, mishap)

    @rule()
    def revert_all(self) -> None:
        """A person has everything taken back from a Slurm that answers, after which every job is its user's."""
        self.arrives()

        def revert() -> None:
            self.live(lambda at_work: at_work.revert(at_work.source.snapshot()))

        revert()
        # Intents are settled once nothing can still be under way.
        self.pass_time(INTENT_GRACE_S)
        revert()
        for job in self.jobs.values():
            for lever in LEVERS:
                assert not job.is_pending or value(job, lever) == self.truth[job.job_id, lever]
        for journal in self.journals:
            assert {lease.state for lease in journal.leases()} <= {LeaseState.HANDS_OFF}

    @rule(job_id=st.sampled_from(JOBS), lever=st.sampled_from(LEVERS), back=st.booleans())
    def person_changes(self, job_id: int, lever: Lever, back: bool) -> None:
        """The user or an administrator changes a field, perhaps back to what it was."""
        # What is under way would otherwise overwrite them: Slurm compares nothing.
        self.arrives()
        job = self.jobs.get(job_id)
        key = (job_id, lever)
        if job is None or not job.is_pending or (lever is Lever.NODE_RANGE and job_id in self.clusters[0].ends_hidden):
            return
        self.numbers += 1
        action = setting(job, lever, self.numbers)
        if back:
            action = replace(action, after=self.truth[key])  # type: ignore[arg-type]  # of the same field
        if action.after == action.before:
            return
        for cluster in self.clusters:
            cluster.jobs[job_id] = action.applied_to(cluster.jobs[job_id])
        self.truth[key] = action.after
        if lever is Lever.NODE_RANGE:
            self.new_ranges.add(job_id)
        lease = {(lease.job_id, lease.lever): lease for lease in self.journals[0].leases()}.get(key)
        # A field put back before the advisor saw its own change there looks as if that had come to nothing.
        unseen = lease is not None and lease.state is LeaseState.INTENDED and action.after == lease.action.before
        if lease is not None and not unseen:
            self.objected.add(key)

    @rule(job_id=st.sampled_from(JOBS))
    def user_asks_for_more(self, job_id: int) -> None:
        """A user raises the time limit of a pending job, which loses what puts it ahead in the next round."""
        self.arrives()
        for cluster in self.clusters:
            job = cluster.jobs.get(job_id)
            if job is not None and job.is_pending:
                cluster.jobs[job_id] = replace(job, time_limit_s=(job.time_limit_s or 0.0) + 3600.0)
        self.live(lambda at_work: at_work.step())
        if job_id in self.jobs and self.jobs[job_id].is_pending:
            left = [lease for lease in self.journals[0].leases() if lease.job_id == job_id and lease.favours]
            assert not any(lease.is_in_effect for lease in left), left

    @rule(seconds=st.sampled_from([1.0, 60.0, INTENT_GRACE_S, 700.0]))
    def pass_time(self, seconds: float) -> None:
        """Time passes; what was under way for so long has arrived."""
        self.arrives()
        for cluster in self.clusters:
            cluster.now += seconds

    @rule(seconds=st.sampled_from([-HALF_DAY_S, -600.0, -5.0, 600.0, HALF_DAY_S]))
    def clock_jumps(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self.pass_time(seconds)

    def arrives(self) -> None:
        """What was under way takes effect."""
        for cluster in self.clusters:
            cluster.arrive()

    @rule()
    def slurmctld_restarts(self) -> None:
        """slurmctld restarts, keeps every value, and shows ranges of nodes by their lower end."""
        self.looks_at_new_ranges()
        for cluster in self.clusters:
            cluster.ends_hidden |= cluster.jobs.keys()

    @rule(job_id=st.sampled_from(JOBS), seen=st.booleans(), mishap=MISHAPS)
    def job_runs_and_is_requeued(self, job_id: int, seen: bool, mishap: Mishap) -> None:
        """A job starts, the advisor sees that or not, and the job comes back."""
        self.looks_at_new_ranges()
        self.job_starts(job_id)
        if seen:
            self.live(lambda at_work: at_work.step(), mishap)
        self.job_is_requeued(job_id)
        self.live(lambda at_work: at_work.step())

    def job_starts(self, job_id: int) -> None:
        """A job starts with whatever it holds."""
        for cluster in self.clusters:
            job = cluster.jobs.get(job_id)
            if job is not None and job.is_pending:
                run = make_job(job_id, gpus=4, running_on=["n01"])
                cluster.jobs[job_id] = replace(job, state=run.state, allocation=run.allocation, start_time=cluster.now)

    def looks_at_new_ranges(self) -> None:
        """The advisor looks before Slurm hides what people have just made of a node range: nobody could tell later."""
        if self.new_ranges:
            self.live(lambda at_work: at_work.reconcile(at_work.source.snapshot()))

    def job_is_requeued(self, job_id: int) -> None:
        """A running job is pending again, with what it held, and shows its range by the lower end."""
        for cluster in self.clusters:
            job = cluster.jobs.get(job_id)
            if job is not None and not job.is_pending:
                cluster.jobs[job_id] = replace(
                    job, state=make_job().state, allocation=None, start_time=None, submit_time=cluster.now
                )
                cluster.ends_hidden.add(job_id)
                self.back.add(job_id)

    @precondition(lambda self: len(self.jobs) == len(JOBS) and self.numbers > 15)
    @rule(job_id=st.sampled_from(JOBS))
    def job_ends(self, job_id: int) -> None:
        """A job ends or is cancelled, and Slurm forgets it."""
        for cluster in self.clusters:
            cluster.jobs.pop(job_id, None)

    @invariant()
    def every_field_is_its_users_or_owned(self) -> None:
        """No field differs from what people left there without an open lease of ours, one for each field at most."""
        leases = self.journals[0].leases()
        owned = {(lease.job_id, lease.lever): lease for lease in leases}
        assert len(owned) == len(leases)
        for job in self.jobs.values():
            for lever in LEVERS if job.is_pending and job.job_id not in self.back else ():
                self.check_field(job, lever, owned.get((job.job_id, lever)))

    def check_field(self, job: Job, lever: Lever, lease: Lease | None) -> None:
        key, held = (job.job_id, lever), value(job, lever)
        if held == self.truth[key]:
            return
        assert key not in self.objected, f"{key}: what a person left, {self.truth[key]}, was overwritten by {held}"
        assert lease is not None, f"{key} holds {held}, its user left {self.truth[key]}, and nobody owns that"
        assert lease.state is not LeaseState.HANDS_OFF, f"{key} was left with {held}, not {self.truth[key]}"
        assert held in (lease.action.after, lease.action.before)

    @invariant()
    def both_journals_agree(self) -> None:
        """What happened is written down alike in memory and in the file."""
        memory, file = self.journals
        assert memory.leases() == file.leases()
        assert memory.closed(JOBS, since=0.0) == file.closed(JOBS, since=0.0)
        assert self.clusters[0].sent == self.clusters[1].sent


@pytest.mark.no_cover
def test_every_change_is_owned_or_taken_back_whatever_happens() -> None:
    run_state_machine_as_test(
        Applying, settings=settings(max_examples=examples(100), stateful_step_count=30, deadline=None)
    )
