"""What is proposed, why, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Job, JobState


class Kind(StrEnum):
    """The kinds of change, in the order in which they are judged; only the first is one to running jobs."""

    PREEMPT = "preempt"
    CONSOLIDATE = "consolidate"
    RESIZE = "resize"
    REORDER = "reorder"


class Lever(StrEnum):
    """The field or command of Slurm that carries a change."""

    SWITCHES = "switches"
    NODE_RANGE = "node_range"
    NICE = "nice"
    GPU_COUNT = "gpu_count"
    TIME_MIN = "time_min"
    CHECKPOINT_REQUEUE = "checkpoint_requeue"


class Reason(StrEnum):
    """Why a change is proposed; documented in docs/reasons.md."""

    LONG_WORK_AHEAD = "long_work_ahead"
    LEAF_WORTH_WAITING = "leaf_worth_waiting"
    NODE_WORTH_WAITING = "node_worth_waiting"
    IDLE_GPUS_TO_GROW = "idle_gpus_to_grow"
    SMALLER_STARTS_SOONER = "smaller_starts_sooner"
    RUNS_SHORTER_THAN_LIMIT = "runs_shorter_than_limit"
    GANG_NEEDS_THE_PLACE = "gang_needs_the_place"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNice:
    """Let the job step back (or return) in the order; nice counts as in Slurm."""

    job_id: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSwitches:
    """Let Slurm hold the job back for few leaf switches; it ends by itself. None means no request."""

    job_id: int
    before: SwitchRequest | None
    after: SwitchRequest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRange:
    """The least and the most nodes a job accepts."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeRange:
    """Hold the job's node count tight until the delay timer of the node tier ends."""

    job_id: int
    before: NodeRange
    after: NodeRange


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGpus:
    """Change the GPU count in the very form the user asked in."""

    job_id: int
    scope: GpuScope
    before: tuple[GpuCount, ...]
    after: tuple[GpuCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimeMin:
    """Let backfill plan with a run time below the limit, which stays; None means that it plans with the limit."""

    job_id: int
    before: float | None  # seconds
    after: float | None  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Stop a running job, which starts again from its last checkpoint, so that a gang gets its place.

    `before` is when the run began that is stopped; `after` None means that the job waits. It cannot be taken back.
    """

    job_id: int
    for_job_id: int
    before: float | None
    after: float | None = None


# What changes a field of a pending job.
Change = SetNice | SetSwitches | SetNodeRange | SetGpus | SetTimeMin
Action = Change | Requeue


def can_be_undone(action: Action) -> bool:
    """Whether an action can be taken back; a job that was stopped has lost its place and some work."""
    return not isinstance(action, Requeue)


def lever_of(action: Action) -> Lever:
    """Return the lever that carries an action."""
    match action:
        case SetNice():
            return Lever.NICE
        case SetSwitches():
            return Lever.SWITCHES
        case SetNodeRange():
            return Lever.NODE_RANGE
        case SetGpus():
            return Lever.GPU_COUNT
        case SetTimeMin():
            return Lever.TIME_MIN
        case Requeue():
            return Lever.CHECKPOINT_REQUEUE


def present_value(job: Job, action: Action) -> int | float | SwitchRequest | NodeRange | tuple[GpuCount, ...] | None:
    """Return what the job holds now in the field that an action changes; compare with its before and after."""
    match action:
        case SetNice():
            return job.nice
        case SetSwitches():
            return job.gang.switches
        case SetNodeRange():
            # An open upper end has no NodeRange; 0 is none that an action could name.
            return NodeRange(low=job.gang.nodes_min, high=job.gang.nodes_max or 0)
        case SetGpus(scope=scope):
            return job.gang.counts(scope)
        case SetTimeMin():
            return job.time_min_s
        case Requeue():
            return job.start_time if job.state is JobState.RUNNING else None


def may_hold(job: Job, action: Action, value: object) -> bool:
    """Whether a job may hold a value in the field that an action changes, as far as Slurm shows the field.

    Once a job was requeued, or from 24.11 on slurmctld restarted, it shows the lower end of a node range for both.
    """
    held = present_value(job, action)
    hides = isinstance(held, NodeRange) and isinstance(value, NodeRange) and held.low == held.high == value.low
    return hides or held == value


def undone(action: Action) -> Action:
    """Return the action that takes another back."""
    return replace(action, before=action.after, after=action.before)  # type: ignore[arg-type]  # both are of one kind


def applied(job: Job, action: Action) -> Job:
    """Return the job as it stands once the action has taken effect."""
    match action:
        case SetNice(before=before, after=after):
            priority = None if job.priority is None else max(1, job.priority - (after - before))
            return replace(job, nice=after, priority=priority)
        case SetSwitches(after=switches):
            return replace(job, gang=replace(job.gang, switches=switches))
        case SetNodeRange(after=nodes):
            return replace(job, gang=replace(job.gang, nodes_min=nodes.low, nodes_max=nodes.high))
        case SetGpus(scope=scope, after=counts):
            return replace(job, gang=job.gang.with_counts(scope, counts))
        case SetTimeMin(after=after):
            return replace(job, time_min_s=after)
        case Requeue():
            return replace(job, state=JobState.PENDING, start_time=None, end_time=None, allocation=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a change should bring: JCT saved over all jobs it helps, as a range, and what it may cost.

    `added_delay_max_s` bounds how much later the changed job itself may start. `assumes` states in words what
    the range rests on.
    """

    saved_s_low: float
    saved_s_high: float
    jobs_helped: int
    added_delay_max_s: float
    assumes: str


Evidence = str | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One proposed change to one job, with the numbers behind it.

    `revert_after_s` is how long after the apply the change has to be taken back by hand, None where it
    ends by itself or may stay.
    """

    kind: Kind
    action: Action
    reason: Reason
    text: str
    expected: Expected
    evidence: Mapping[str, Evidence]
    revert_after_s: float | None = None

    @property
    def job_id(self) -> int:
        """The job that is changed."""
        return self.action.job_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The recommendations of one cycle, sorted by kind and job id."""

    recommendations: tuple[Recommendation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A recommendation as judged by the guard; `refused_by` names the rule, None where all hold."""

    recommendation: Recommendation
    refused_by: str | None = None


class Outcome(StrEnum):
    """What became of an action that was sent."""

    APPLIED = "applied"
    ALREADY_SO = "already_so"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of an action, as read back; `text` is why it failed, in the cluster's own words.

    `is_settled` False: it was sent and nobody refused it, so it may have taken effect, or still may. `is_overruled`:
    it was not sent, because somebody else has changed the field.
    """

    action: Action
    outcome: Outcome
    text: str = ""
    is_settled: bool = True
    is_overruled: bool = False
