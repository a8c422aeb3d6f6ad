"""Rounds of the daemon put together by hand, for tests of what is told of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.apply.step import Reconciled, Step
from advisor.cycle import CycleRecord
from advisor.domain.actions import SetNice
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.job import Job
from advisor.domain.lease import Lease, LeaseState
from advisor.domain.load import ControllerLoad
from advisor.domain.memory import Memory, Wait
from advisor.domain.mode import Mode
from advisor.domain.plan import Kind, Outcome, Receipt, Recommendation
from advisor.guard.breakers import OpenBreaker
from advisor.metrics.round import Round
from tests.builders import TAKEN_AT, make_job, make_recommendation, make_snapshot

ROUND_S = 60.0


def nice_action(job_id: int = 1, after: int = 100) -> SetNice:
    """Return a job's step back."""
    return SetNice(job_id=job_id, before=0, after=after)


def change(job_id: int = 1, *, kind: Kind = Kind.REORDER) -> Recommendation:
    """Return advice that a job steps back."""
    return make_recommendation(nice_action(job_id), kind=kind, saved_s=(60.0, 600.0), delay_s=30.0)


def lease(job_id: int = 1, **fields: object) -> Lease:
    """Return a change that is out since half a minute."""
    action = nice_action(job_id)
    out = Lease(action=action, undo=action.swapped(), applied_time=TAKEN_AT - 30.0, state=LeaseState.OUT)
    return replace(out, **fields)  # type: ignore[arg-type]  # the test's own


def receipt(job_id: int = 1, outcome: Outcome = Outcome.APPLIED, text: str = "") -> Receipt:
    """Return what became of a job's step back."""
    return Receipt(action=nice_action(job_id), outcome=outcome, text=text)


def put_off(job_id: int = 1, text: str = "mode: recommend for this job") -> Receipt:
    """Return a job's step back that was not sent."""
    return receipt(job_id, Outcome.HELD_BACK, text)


def step(
    *,
    jobs: Sequence[Job] = (),
    judged: Sequence[Recommendation] = (),
    left_alone: Mapping[int, str] | None = None,
    leases: Sequence[Lease] = (),
    waits: Sequence[Wait] = (),
    applied: Sequence[Receipt] = (),
    held_back: Sequence[Receipt] = (),
    reconciled: Reconciled | None = None,
) -> Step:
    """Return a cycle with what was done of it."""
    record = CycleRecord(
        snapshot=make_snapshot(jobs or [make_job(1)]),
        memory=Memory(waits=tuple(waits), leases=tuple(leases)),
        forecasts=NO_FORECASTS,
        judged=tuple(judged),
        left_alone=left_alone or {},
    )
    return Step(
        record=record,
        reconciled=reconciled or Reconciled(),
        applied=tuple(applied),
        held_back=tuple(held_back),
    )


def make_round(
    done: Step | None = None,
    *,
    number: int = 0,
    mode: Mode = Mode.APPLY,
    fault: str = "",
    interval_s: float = ROUND_S,
    held_to: Mapping[str, str] | None = None,
    load: ControllerLoad | None = None,
    rpcs: Mapping[str, int] | None = None,
    open_leases: Mapping[LeaseState, int] | None = None,
    on_probation: Mapping[str, str] | None = None,
    breakers: tuple[OpenBreaker, ...] = (),
) -> Round:
    """Return the round of a step, `number` rounds after the first; without one, a round that failed."""
    return Round(
        started_time=TAKEN_AT - 1.0 + number * ROUND_S,
        duration_s=1.5,
        cpu_s=0.25,
        mode=mode,
        interval_s=interval_s,
        step=done,
        fault=fault or ("" if done else "squeue: no answer within 30 s"),
        held_to=held_to or {},
        load=load,
        rpcs=rpcs or {},
        open_leases=open_leases or {},
        on_probation=on_probation or {},
        breakers=breakers,
    )
