"""Defines the actions: what can be changed about a job, and how each change is made and read back.

A new lever is a member of `Lever`, one class, and its place in the union at the end.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Self, get_args

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.units import MINUTE_S

# A value as published: keyed as in a snapshot file.
Published = Mapping[str, Any]


class Lever(StrEnum):
    """The field of Slurm that carries a change."""

    SWITCHES = "switches"
    NODE_RANGE = "node_range"
    NICE = "nice"
    GPU_COUNT = "gpu_count"
    TIME_MIN = "time_min"
    NODE_LIST = "node_list"


class Reason(StrEnum):
    """Why a change is proposed; documented in docs/reasons.md."""

    SHORT_WORK_FIRST = "short_work_first"
    LEAF_WORTH_WAITING = "leaf_worth_waiting"
    NODE_WORTH_WAITING = "node_worth_waiting"
    IDLE_GPUS_TO_GROW = "idle_gpus_to_grow"
    SMALLER_STARTS_SOONER = "smaller_starts_sooner"
    RUNS_SHORTER_THAN_LIMIT = "runs_shorter_than_limit"
    DELAYED_BY_ADVICE = "delayed_by_advice"
    TAKES_PLACE_OF_LARGER = "takes_place_of_larger"
    GIVES_PLACE_TO_SMALLER = "gives_place_to_smaller"
    PLACE_FOR_GANG = "place_for_gang"


class _Action:
    """Change a value of a pending job from `before` to `after`; every kind of action declares their types.

    What differs between kinds stands here, so that no other module lists them: whether an action `reserves_nodes` for
    a job, and `is_simulated` where a plan is tried in rollouts.
    """

    __slots__ = ()
    lever: ClassVar[Lever]
    # What it changes, as the digest names it to users.
    changes: ClassVar[str]
    reserves_nodes: ClassVar[bool] = False
    is_simulated: ClassVar[bool] = True

    job_id: int
    before: Any
    after: Any

    def swapped(self) -> Self:
        """Return the action with `before` and `after` exchanged, which reverts it."""
        return replace(self, before=self.after, after=self.before)  # type: ignore[type-var]  # every kind is a dataclass

    @property
    def all_or_none(self) -> tuple[Lever, int] | None:
        """The name of the set of actions of which all are made or none; None for an action on its own."""
        return None

    @abstractmethod
    def held_by(self, job: Job) -> object:
        """Return the value that a job holds now; compare it with `before` and `after`."""

    def can_hold(self, job: Job, value: object) -> bool:
        """Return whether a job can hold a value, as far as Slurm shows the field."""
        return self.held_by(job) == value

    @abstractmethod
    def applied_to(self, job: Job) -> Job:
        """Return the job after the action has taken effect."""

    @abstractmethod
    def arguments(self) -> tuple[str, ...]:
        """Return the field, and what changes with it, each with its new value in Slurm's spelling."""

    def command(self) -> tuple[str, ...]:
        """Return the arguments of scontrol that write the field."""
        return "update", f"JobId={self.job_id}", *self.arguments()

    def published(self) -> tuple[Published, Published]:
        """Return the values before and after as published; None stays None."""
        return self._published(self.before), self._published(self.after)

    @abstractmethod
    def _published(self, value: Any) -> Published:
        """Return a value as published."""

    @staticmethod
    @abstractmethod
    def in_words(value: Published) -> str:
        """Return a published value for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNice(_Action):
    """Change the priority of a job by its nice value, which counts as in Slurm: lower is sooner.

    `exchanged_with` is the job with which it changes places; None if it does not.
    """

    lever = Lever.NICE
    changes = "its place in the line"

    job_id: int
    before: int
    after: int
    exchanged_with: int | None = None

    @property
    def all_or_none(self) -> tuple[Lever, int] | None:
        """The name of an exchange: the lower of its job ids."""
        return None if self.exchanged_with is None else (self.lever, min(self.job_id, self.exchanged_with))

    @property
    def lifts(self) -> bool:
        """Whether it puts its job ahead of others."""
        return self.after < self.before

    def held_by(self, job: Job) -> int:
        """Return the nice value of a job."""
        return job.nice

    def applied_to(self, job: Job) -> Job:
        """Return the job with the nice value, which its priority follows."""
        priority = None if job.priority is None else max(1, job.priority - (self.after - self.before))
        return replace(job, nice=self.after, priority=priority)

    def arguments(self) -> tuple[str, ...]:
        """Return the nice value as Slurm takes it: `Nice=10`."""
        return (f"Nice={self.after}",)

    def _published(self, value: int) -> Published:
        return {"nice": value}

    @staticmethod
    def in_words(value: Published) -> str:
        """Return a nice value as `nice 10`."""
        return f"nice {value['nice']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSwitches(_Action):
    """Make Slurm delay the job for few leaf switches; the delay ends by itself. None means no request."""

    lever = Lever.SWITCHES
    changes = "a wait for one leaf switch"

    job_id: int
    before: SwitchRequest | None
    after: SwitchRequest | None

    def held_by(self, job: Job) -> SwitchRequest | None:
        """Return the switch request of a job."""
        return job.gang.switches

    def applied_to(self, job: Job) -> Job:
        """Return the job with the switch request."""
        return replace(job, gang=replace(job.gang, switches=self.after))

    def arguments(self) -> tuple[str, ...]:
        """Return the switch request as Slurm takes it: `Switches=1@30`."""
        # A plain 0 would leave the waiting time behind; the time counts in minutes.
        wanted = self.after
        if wanted is None:
            return ("Switches=0@0",)
        return (f"Switches={wanted.count}@{wanted.max_wait_s / MINUTE_S:.0f}",)

    def _published(self, value: SwitchRequest | None) -> Published:
        return {"switches": None if value is None else {"count": value.count, "max_wait_s": value.max_wait_s}}

    @staticmethod
    def in_words(value: Published) -> str:
        """Return a switch request as `1 leaf switch for up to 30 min`."""
        request = value["switches"]
        if request is None:
            return "no switch wait"
        return f"{request['count']} leaf switch for up to {request['max_wait_s'] / MINUTE_S:.0f} min"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRange:
    """The least and the most nodes a job accepts."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}-{self.high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeRange(_Action):
    """Restrict the job's node count until the delay timer of the node tier ends."""

    lever = Lever.NODE_RANGE
    changes = "a wait for fewer nodes"

    job_id: int
    before: NodeRange
    after: NodeRange

    def held_by(self, job: Job) -> NodeRange:
        """Return the node range of a job."""
        # An open upper end has no NodeRange; 0 is none that an action could name.
        return NodeRange(low=job.gang.nodes_min, high=job.gang.nodes_max or 0)

    def can_hold(self, job: Job, value: object) -> bool:
        """Return whether a job can hold a node range.

        Once a job was requeued, or from 24.11 on slurmctld restarted, Slurm shows the lower end for both.
        """
        held = self.held_by(job)
        return held == value or (isinstance(value, NodeRange) and held.low == held.high == value.low)

    def applied_to(self, job: Job) -> Job:
        """Return the job with the node range."""
        low, high = self.after.low, self.after.high
        return replace(job, gang=replace(job.gang, nodes_min=low, nodes_max=high, nodes_open=False))

    def arguments(self) -> tuple[str, ...]:
        """Return the node range as Slurm takes it: `NumNodes=1-4`."""
        # Both ends: a single number is refused for some jobs, and doubles their CPU count.
        return (f"NumNodes={self.after.low}-{self.after.high}",)

    def _published(self, value: NodeRange) -> Published:
        return {"nodes_min": value.low, "nodes_max": value.high}

    @staticmethod
    def in_words(value: Published) -> str:
        """Return a node range as `1-4 nodes`."""
        low, high = value["nodes_min"], value["nodes_max"]
        return f"{low} node" if low == high == 1 else f"{low}-{high} nodes"


_GPU_FIELD: Final[Mapping[GpuScope, str]] = {
    GpuScope.JOB: "TresPerJob",
    GpuScope.NODE: "TresPerNode",
    GpuScope.SOCKET: "TresPerSocket",
    GpuScope.TASK: "TresPerTask",
}


def limit_factor(gpus: float, smaller: float, stretch: float) -> float:
    """Return by how much the time limit of a job is raised that gets `smaller` GPUs in place of `gpus`.

    The limit in GPU-time stays: no forecast of speeds, that can be wrong, lets a job be killed, as jobs on half of the
    GPUs take twice as long at most. Where the job is forecast to take longer still, its limit follows that.
    """
    return max(gpus / smaller, stretch)


def raised_limit_s(limit_s: float, stretch: float) -> float:
    """Return the time limit, in whole minutes, of a job that runs `stretch` times as long; never below `limit_s`."""
    if math.isinf(limit_s):
        return limit_s
    return max(limit_s, math.ceil(limit_s * stretch / MINUTE_S) * MINUTE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRequest:
    """The GPU counts of a job with the time limit that belongs to them.

    `time_limit_s` None means that the job has none, or that an earlier version recorded the GPUs alone.
    """

    gpus: tuple[GpuCount, ...]
    time_limit_s: float | None = None

    @property
    def count(self) -> int:
        """The GPUs of all types."""
        return sum(gpus.count for gpus in self.gpus)

    def __str__(self) -> str:
        gpus = ",".join(map(str, self.gpus))
        return gpus if self.time_limit_s is None else f"{gpus}@{self.time_limit_s:.0f}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGpus(_Action):
    """Change the GPU count in the form of the user's request, and the time limit of a job that is made smaller.

    Both ends hold the job's time limit also where it stays, so that a person's change of it is noticed.
    """

    lever = Lever.GPU_COUNT
    changes = "its number of GPUs"

    job_id: int
    scope: GpuScope
    before: SizeRequest
    after: SizeRequest

    @property
    def shrinks(self) -> bool:
        """Whether it takes GPUs from the job."""
        return self.after.count < self.before.count

    @property
    def changes_limit(self) -> bool:
        """Whether it writes the time limit."""
        return self.after.time_limit_s not in (None, self.before.time_limit_s)

    def held_by(self, job: Job) -> SizeRequest:
        """Return the GPU counts of a job in the form that is changed, and its time limit where that was recorded."""
        is_recorded = self.before.time_limit_s is not None or self.after.time_limit_s is not None
        return SizeRequest(gpus=job.gang.counts(self.scope), time_limit_s=job.time_limit_s if is_recorded else None)

    def applied_to(self, job: Job) -> Job:
        """Return the job with the GPU counts and the time limit."""
        limit_s = self.after.time_limit_s if self.changes_limit else job.time_limit_s
        return replace(job, gang=job.gang.with_counts(self.scope, self.after.gpus), time_limit_s=limit_s)

    def arguments(self) -> tuple[str, ...]:
        """Return the GPU counts, and the time limit in minutes, as Slurm takes them: `TresPerJob=gres:gpu:2`."""
        gpus = f"{_GPU_FIELD[self.scope]}={','.join(map(self._gres, self.after.gpus))}"
        limit_s = self.after.time_limit_s
        if limit_s is None or not self.changes_limit:
            return (gpus,)
        return gpus, f"TimeLimit={math.ceil(limit_s / MINUTE_S)}"

    @staticmethod
    def _gres(gpus: GpuCount) -> str:
        # Only this form takes effect everywhere: 22.05 shows `gres/gpu:2` but still gives the old number, and a bare
        # `gpu:2` takes the GPUs away from a job of 26.05 although it is refused.
        return ":".join(["gres", "gpu", *([gpus.gpu_type] if gpus.gpu_type else []), str(gpus.count)])

    def _published(self, value: SizeRequest) -> Published:
        """Return GPU counts under the form they are asked in, with the time limit if that changes."""
        counts = [{"gpu_type": gpus.gpu_type, "count": gpus.count} for gpus in value.gpus]
        limit = {"time_limit_s": value.time_limit_s} if self.changes_limit else {}
        return {str(self.scope): counts, **limit}

    @staticmethod
    def in_words(value: Published) -> str:
        """Return GPU counts as `per job 8 GPUs`, or `per node 4 a100+2 h100, limit 60 min`."""
        return ", ".join(
            f"limit {counts / MINUTE_S:.0f} min"
            if scope == "time_limit_s"
            else f"{scope.replace('_', ' ')} "
            + "+".join(f"{gpus['count']} {gpus['gpu_type'] or 'GPUs'}" for gpus in counts)
            for scope, counts in value.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimeMin(_Action):
    """Make backfill plan with a run time below the limit, which stays; None means that it plans with the limit."""

    lever = Lever.TIME_MIN
    changes = "a soft time limit"

    job_id: int
    before: float | None  # seconds
    after: float | None  # seconds

    def held_by(self, job: Job) -> float | None:
        """Return the soft limit of a job in seconds."""
        return job.time_min_s

    def applied_to(self, job: Job) -> Job:
        """Return the job with the soft limit."""
        return replace(job, time_min_s=self.after)

    def arguments(self) -> tuple[str, ...]:
        """Return the soft limit as Slurm takes it: `TimeMin=60`."""
        # In minutes; 0 means none. Rounded up, since a job planned too short delays others.
        return (f"TimeMin={0 if self.after is None else math.ceil(self.after / MINUTE_S)}",)

    def _published(self, value: float | None) -> Published:
        return {"time_min_s": value}

    @staticmethod
    def in_words(value: Published) -> str:
        """Return a soft limit as `soft limit 60 min`."""
        soft_s = value["time_min_s"]
        return "no soft limit" if soft_s is None else f"soft limit {soft_s / MINUTE_S:.0f} min"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeList(_Action):
    """Name the nodes on which a gang is to start; both lists are sorted, and an empty one names none."""

    lever = Lever.NODE_LIST
    changes = "the nodes it starts on"
    reserves_nodes = True
    is_simulated = False

    job_id: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    def held_by(self, job: Job) -> tuple[str, ...]:
        """Return the nodes that a job names, sorted."""
        return tuple(sorted(set(job.gang.required_nodes)))

    def applied_to(self, job: Job) -> Job:
        """Return the job with the named nodes."""
        return replace(job, gang=replace(job.gang, required_nodes=self.after))

    def arguments(self) -> tuple[str, ...]:
        """Return the nodes as Slurm takes them: `ReqNodeList=n01,n02`, or `ReqNodeList=` for none."""
        return (f"ReqNodeList={','.join(self.after)}",)

    def _published(self, value: tuple[str, ...]) -> Published:
        return {"nodes": list(value)}

    @staticmethod
    def in_words(value: Published) -> str:
        """Return names of nodes as `on n01, n02`."""
        return f"on {', '.join(value['nodes'])}" if value["nodes"] else "on any nodes"


Action = SetNice | SetSwitches | SetNodeRange | SetGpus | SetTimeMin | SetNodeList

ACTIONS: Final[Mapping[Lever, type[Action]]] = {action.lever: action for action in get_args(Action)}


def exchanged_with(action: Action) -> int | None:
    """Return the job with which the job of an action changes places; None if it does not."""
    return action.exchanged_with if isinstance(action, SetNice) else None


def gives_place(action: Action) -> bool:
    """Return whether an action puts its job in the place of a smaller one."""
    return isinstance(action, SetNice) and action.exchanged_with is not None and not action.lifts
