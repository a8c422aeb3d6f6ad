"""Changes on every lever for jobs at random, beside those of the planner, so that every kind of write is met."""

import random
from dataclasses import dataclass, field, replace
from itertools import combinations

from advisor.cycle import Cycle, CycleRecord
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
    SizeRequest,
    raised_limit_s,
)
from advisor.domain.gang import GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.plan import Expected, Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.planning.beliefs import Basis
from advisor.planning.lift import StartsNext
from advisor.planning.lift_gain import Outlook

HELD_S = 600.0
NODE_NAMES = ("n01", "n02", "n03", "n04")
MINUTE_S = 60.0
_MADE_UP = StartsNext(
    gpu_hours=0.0,
    jobs_passed=0,
    gpu_hours_ahead=0.0,
    gpu_hours_ahead_after=0.0,
    others_delayed_s_max=0.0,
    priority=0,
    priority_after=0,
    queueing_delay_s=0.0,
    turnaround_s=0.0,
    basis=Basis.RULE,
    sooner_s_low=0.0,
    sooner_s_high=0.0,
    outlook=Outlook(site_ahead_s=0.0, ahead_s=0.0, own_s=0.0, advised_s=0.0, run_s=0.0, jobs_passed=0),
    used_limit_ratio_low=0.0,
)
Value = object


def change_of(job: Job, lever: Lever, chance: random.Random) -> Action | None:
    """Make up a change of one field of a pending job to a value that Slurm takes; None where there is none."""
    gang = job.gang
    match lever:
        case Lever.NICE:
            return SetNice(job_id=job.job_id, before=job.nice, after=job.nice - chance.randint(1, 40))
        case Lever.SWITCHES:
            taken = None if gang.switches is None else gang.switches.max_wait_s
            minutes = chance.choice([number for number in range(5, 60, 5) if number * MINUTE_S != taken])
            switches = SwitchRequest(count=1, max_wait_s=minutes * MINUTE_S)
            return SetSwitches(job_id=job.job_id, before=gang.switches, after=switches)
        case Lever.NODE_RANGE if gang.nodes_max is not None and gang.per_job and gang.nodes_max > gang.nodes_min:
            nodes = NodeRange(low=gang.nodes_min, high=gang.nodes_max)
            wanted_high = chance.randrange(nodes.low, nodes.high)
            return SetNodeRange(job_id=job.job_id, before=nodes, after=NodeRange(low=nodes.low, high=wanted_high))
        case Lever.GPU_COUNT if job.hints.gpus is not None and len(gang.per_job) == 1:
            (held_gpus,) = gang.per_job
            counts = [count for count in (1, 2, 4, 8) if count != held_gpus.count]
            held = SizeRequest(gpus=gang.per_job, time_limit_s=job.time_limit_s)
            wanted = replace(held, gpus=(replace(held_gpus, count=chance.choice(counts)),))
            if job.time_limit_s is not None and wanted.count < held.count:
                wanted = replace(wanted, time_limit_s=raised_limit_s(job.time_limit_s, held.count / wanted.count))
            return SetGpus(job_id=job.job_id, scope=GpuScope.JOB, before=held, after=wanted)
        case Lever.TIME_MIN:
            minutes = chance.choice([number for number in range(10, 100, 10) if number * MINUTE_S != job.time_min_s])
            return SetTimeMin(job_id=job.job_id, before=job.time_min_s, after=minutes * MINUTE_S)
        case Lever.NODE_LIST if gang.nodes_max is not None and gang.nodes_min == gang.nodes_max:
            # As many as it needs: 22.05 holds a job for good that names more.
            held_names = tuple(sorted(gang.required_nodes))
            lists = [names for names in combinations(NODE_NAMES, gang.nodes_min) if names != held_names]
            return SetNodeList(job_id=job.job_id, before=held_names, after=chance.choice(lists))
        case _:
            return None


def field_of(job: Job, lever: Lever) -> Value:
    """Return what a job holds in the field of a lever."""
    match lever:
        case Lever.NICE:
            return job.nice
        case Lever.SWITCHES:
            return job.gang.switches
        case Lever.NODE_RANGE:
            return NodeRange(low=job.gang.nodes_min, high=job.gang.nodes_max or 0)
        case Lever.GPU_COUNT:
            return SizeRequest(gpus=job.gang.per_job, time_limit_s=job.time_limit_s)
        case Lever.TIME_MIN:
            return job.time_min_s
        case Lever.NODE_LIST:
            return tuple(sorted(job.gang.required_nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCycle(Cycle):
    """The pipeline as it is, and on top of what it recommends up to `most` changes made up by `chance`."""

    chance: random.Random = field(default_factory=random.Random)
    most: int = 4

    def judge(self, snapshot: Snapshot, memory: Memory = NOTHING_KNOWN) -> CycleRecord:
        """Plan and judge a snapshot, and add the changes made up."""
        record = Cycle.judge(self, snapshot, memory)
        taken = {change.job_id for change in record.recommendations}
        free = [
            job
            for job in snapshot.jobs
            if job.is_pending and job.job_id not in record.left_alone and job.job_id not in taken
        ]
        made_up = [
            # A change without an end may be followed by another on the same field.
            recommended(change, self.chance.choice([None, HELD_S]))
            for job in self.chance.sample(free, min(self.most, len(free)))
            if (change := change_of(job, self.chance.choice(tuple(Lever)), self.chance)) is not None
        ]
        return replace(record, judged=(*record.judged, *made_up))


def recommended(action: Action, revert_after_s: float | None) -> Recommendation:
    """Return a recommendation of an action, with facts that are made up."""
    return Recommendation(
        kind=Kind.REORDER,
        action=action,
        facts=_MADE_UP,
        expected=Expected(saved_s=0.0, saved_s_low=0.0, saved_s_high=0.0, jobs_helped=0, added_delay_max_s=0.0),
        revert_after_s=revert_after_s,
    )
