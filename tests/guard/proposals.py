"""Changes to judge, and the judging of one of them."""

from collections.abc import Iterable
from dataclasses import replace

from advisor.domain.actions import Action, SetGpus, SetNice, SetSwitches, SetTimeMin
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.mode import EVERYTHING, Modes
from advisor.domain.plan import Kind, Plan, Recommendation
from advisor.domain.site import SiteConfig
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge
from advisor.settings import Limits
from tests.builders import HOUR_S, TAKEN_AT, make_config, make_job, make_recommendation, make_snapshot, size_of

PLAIN = make_job(1, gpus=4)
FOR_A_LEAF = SwitchRequest(count=1, max_wait_s=600.0)


def timer(job_id: int = 1, *, delay_s: float = 600.0, saved_s: float = 1.5) -> Recommendation:
    """Propose a wait for one leaf switch, which delays the job."""
    action = SetSwitches(job_id=job_id, before=None, after=FOR_A_LEAF)
    return make_recommendation(action, kind=Kind.CONSOLIDATE, saved_s=(saved_s, saved_s), delay_s=delay_s)


def nice(job_id: int = 1, *, before: int = 0, after: int = -57, saved_s: float = 1.5) -> Recommendation:
    """Propose a nice, by default a lift."""
    return make_recommendation(SetNice(job_id=job_id, before=before, after=after), saved_s=(saved_s, saved_s))


def gpus(before: int, after: int, *, limits_s: tuple[float | None, float | None] = (None, None)) -> Recommendation:
    """Propose a total GPU count, with the time limit before and after."""
    held, wanted = (
        size_of(GpuCount(count=count), limit_s=limit_s)
        for count, limit_s in zip((before, after), limits_s, strict=True)
    )
    action = SetGpus(job_id=1, scope=GpuScope.JOB, before=held, after=wanted)
    return replace(timer(delay_s=0.0), kind=Kind.RESIZE, action=action)


def soft_limit(after: float | None, *, before: float | None = None) -> Recommendation:
    """Propose a soft limit in seconds."""
    return replace(timer(delay_s=0.0), action=SetTimeMin(job_id=1, before=before, after=after))


SOFT = make_config(scheduler_parameters={"time_min_as_soft_limit": ""})


def refused_by(
    change: Recommendation,
    *jobs: Job,
    limits: Limits | None = None,
    config: SiteConfig | None = None,
    leases: Iterable[Lease] = (),
    modes: Modes = EVERYTHING,
) -> str | None:
    """Judge one change to a queue."""
    snapshot = make_snapshot(jobs, config=config)
    around = circumstances(snapshot, limits or Limits(), leases=leases, modes=modes)
    return judge(Plan(recommendations=(change,)), snapshot, around)[0].refused_by


def lent(
    job: Job = PLAIN,
    *,
    ago_s: float = HOUR_S,
    delay_s: float = 600.0,
    ending: Ending | None = None,
    ended_ago_s: float = 0.0,
    due_after_s: float | None = None,
    action: Action | None = None,
) -> Lease:
    """A change given to a job some time ago, a wait for a leaf unless `action` says otherwise."""
    change = SetSwitches(job_id=job.job_id, before=None, after=FOR_A_LEAF) if action is None else action
    lease = intended(change, TAKEN_AT - ago_s, after_s=due_after_s, job=job, added_delay_s=delay_s)
    lease = replace(lease, state=LeaseState.OUT)
    return lease if ending is None else lease.ended(ending, TAKEN_AT - ended_ago_s)
