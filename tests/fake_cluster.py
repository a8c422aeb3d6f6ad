"""A cluster that is what its jobs say and does what it is told, for tests of applying."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.domain.actions import Action, NodeRange, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError, SlurmUnavailableError
from tests.builders import HOUR_S, TAKEN_AT, make_gang, make_job, make_snapshot

# What the planner proposes for `fragmented`.
HOLD = SetNodeRange(job_id=9, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))


@dataclass
class FakeCluster:
    """A cluster that is what its jobs say; `failing` maps actions to what Slurm says against them.

    Of the jobs in `ends_hidden` it shows the lower end of their node range in place of the upper one, as Slurm does
    from 24.11 on once slurmctld was restarted. Where it `lags`, changes wait in `under_way` until they `arrive`.
    """

    jobs: dict[int, Job]
    now: float = TAKEN_AT
    failing: Mapping[type[Action], str] = field(default_factory=dict)
    unreachable: bool = False
    is_lost: bool = False
    lags: bool = False
    does_nothing: bool = False
    sent: list[Action] = field(default_factory=list)
    under_way: list[Action] = field(default_factory=list)
    ends_hidden: set[int] = field(default_factory=set)
    snapshots: int = 0
    # Why the queue as a whole cannot be read; the jobs of given ids still can.
    unreadable: str = ""
    read_by_id: list[frozenset[int]] = field(default_factory=list)
    name: str = "fake"

    def snapshot(self) -> Snapshot:
        """Read the cluster as it is now."""
        self.snapshots += 1
        if self.unreadable:
            raise DecodeError(self.unreadable)
        return make_snapshot(map(self.shown, self.jobs.values()), taken_at=self.now)

    def snapshot_of(self, job_ids: Collection[int]) -> Snapshot:
        """Read the jobs of some ids as they are now."""
        self.read_by_id.append(frozenset(job_ids))
        jobs = [self.shown(job) for job in self.jobs.values() if job.job_id in job_ids]
        return make_snapshot(jobs, taken_at=self.now)

    def shown(self, job: Job) -> Job:
        """Return a job as Slurm shows it."""
        if job.job_id not in self.ends_hidden or job.gang.nodes_max is None:
            return job
        return replace(job, gang=replace(job.gang, nodes_max=job.gang.nodes_min))

    def apply(self, action: Action) -> Receipt:
        """Do as Slurm would; where it is lost, the answer is, where it is unreachable, the change too."""
        self.sent.append(action)
        if self.unreachable:
            raise SlurmUnavailableError("no answer")
        job = self.jobs.get(action.job_id)
        if job is None or not job.is_pending:
            return Receipt(action=action, outcome=Outcome.FAILED, text="the job is not pending")
        if type(action) in self.failing:
            return Receipt(action=action, outcome=Outcome.FAILED, text=self.failing[type(action)])
        held = action.held_by(self.shown(job))
        if held == action.after:
            return Receipt(action=action, outcome=Outcome.ALREADY_SO)
        hides = job.job_id in self.ends_hidden and action.can_hold(self.shown(job), action.before)
        if held != action.before and not hides:
            text = "somebody else has changed the field meanwhile"
            return Receipt(action=action, outcome=Outcome.FAILED, text=text, is_overruled=True)
        if self.lags:
            self.under_way.append(action)
            raise SlurmUnavailableError("no answer yet")
        if self.does_nothing:
            return Receipt(action=action, outcome=Outcome.FAILED, text="read back another value", is_settled=False)
        self.jobs[action.job_id] = action.applied_to(job)
        if self.is_lost:
            raise SlurmUnavailableError("the answer was lost")
        return Receipt(action=action, outcome=Outcome.APPLIED)

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Make changes, one after the other."""
        return tuple(map(self.apply, changes))

    def hides_range_end(self, job_id: int) -> bool:
        """Whether the lower end of a node range stands for both."""
        return job_id in self.ends_hidden

    def arrive(self) -> None:
        """Let what is under way take effect, whatever the jobs hold by now: Slurm compares nothing."""
        for action in self.under_way:
            job = self.jobs.get(action.job_id)
            if job is not None and job.is_pending:
                self.jobs[action.job_id] = action.applied_to(job)
        self.under_way.clear()


def gang(job_id: int = 9, nodes_max: int = 4) -> Job:
    """A gang that fits one node and accepts several, of which the planner says: wait for one."""
    return make_job(
        job_id, gang=make_gang(4, nodes_min=1, nodes_max=nodes_max), submitted_ago_s=120.0, time_limit_s=HOUR_S * 24
    )


def first_in_line() -> Job:
    """A job ahead of the gang that waits for a larger node than those in service; by rule the first never waits."""
    larger = make_gang(9, nodes_max=1)
    return make_job(90, gang=larger, user="erin", priority=9000, time_limit_s=None)


def fragmented(*more: Job) -> FakeCluster:
    """A cluster whose free GPUs lie two by two, and the gang behind the first in line."""
    running = [
        make_job(number, gpus=6, running_on=[node], time_limit_s=2 * HOUR_S)
        for number, node in enumerate(("n01", "n02", "n03", "n04"), start=1)
    ]
    jobs = (*running, first_in_line(), gang(), *more)
    return FakeCluster(jobs={job.job_id: job for job in jobs})


def held(cluster: FakeCluster, action: Action = HOLD) -> FakeCluster:
    """Let a job hold the value of an action."""
    cluster.jobs[action.job_id] = action.applied_to(cluster.jobs[action.job_id])
    return cluster
