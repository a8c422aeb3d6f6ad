"""Which places that are to be tried the guard refuses, whatever planning says of them."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from advisor.domain.actions import Reason, SetNodeList
from advisor.domain.facts import Facts
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.plan import Kind, Plan, Recommendation
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge
from advisor.settings import Limits
from tests.builders import DAY_S, HOUR_S, MINUTE_S, TAKEN_AT, make_gang, make_hints, make_job, make_node, make_snapshot
from tests.guard.proposals import timer

GANG = make_gang(16, nodes_min=2, nodes_max=2)
# 32 GPUs over a day, of which 0.05 are 38 GPU-hours.
BUSY = [f"n0{number}" for number in range(5, 9)]
DAYS: dict[str, Any] = {"started_ago_s": 2 * DAY_S, "submitted_ago_s": 3 * DAY_S, "time_limit_s": 9 * DAY_S}
HOLDERS = [make_job(90 + number, gpus=8, running_on=[name], **DAYS) for number, name in enumerate(BUSY)]
NODES = [*(make_node(f"n0{number}") for number in range(1, 5)), *(make_node(name, used=8) for name in BUSY)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated(Facts):
    """What planning states as the reason."""

    reason: Reason = Reason.EXPLORE_PLACE


def gang(job_id: int = 1, **fields: object) -> Job:
    """Return a gang of 16 GPUs for an hour."""
    return make_job(job_id, **{"gang": GANG, "time_limit_s": HOUR_S, **fields})  # type: ignore[arg-type]


def trying(
    job_id: int = 1, nodes: tuple[str, ...] = ("n01", "n02"), gpu_h: float = 16.0, reason: Reason = Reason.EXPLORE_PLACE
) -> Recommendation:
    """Return a change that names nodes to try, with the GPU-hours that planning books for it."""
    action = SetNodeList(job_id=job_id, before=(), after=nodes, explored_gpu_s=gpu_h * HOUR_S)
    return replace(
        timer(job_id, delay_s=0.0),
        kind=Kind.CONSOLIDATE,
        action=action,
        facts=Stated(reason=reason),
        revert_after_s=120.0,
    )


def verdicts(
    *changes: Recommendation, jobs: list[Job], ratio: float = 0.05, leases: list[Lease] | None = None
) -> list[str | None]:
    """Return the rules that refuse the changes."""
    snapshot = make_snapshot([*jobs, *HOLDERS], NODES)
    around = circumstances(snapshot, Limits(), names_nodes=True, explore_ratio=ratio, leases=leases or [])
    return [change.refused_by for change in judge(Plan(recommendations=changes), snapshot, around)]


def test_place_is_tried_within_the_share() -> None:
    assert verdicts(trying(), jobs=[gang()]) == [None]


@pytest.mark.parametrize(
    ("change", "job", "ratio"),
    [
        pytest.param(trying(), gang(), 0.0, id="no share"),
        pytest.param(trying(), gang(), 0.02, id="more than the share"),
        pytest.param(trying(), gang(qos="high"), 0.05, id="names a QOS"),
        pytest.param(trying(), gang(time_limit_s=None), 0.05, id="no time limit"),
        pytest.param(trying(), gang(gang=replace(GANG, exclusive=True)), 0.05, id="whole nodes"),
        pytest.param(trying(gpu_h=15.9), gang(), 0.05, id="less booked than it can hold"),
        pytest.param(trying(gpu_h=0.0), gang(), 0.05, id="nothing booked"),
        pytest.param(trying(reason=Reason.PLACE_FOR_GANG), gang(), 0.05, id="booked without the reason"),
        pytest.param(replace(timer(1, delay_s=0.0), facts=Stated()), gang(), 0.05, id="another lever"),
    ],
)
def test_guard_does_not_trust_planning(change: Recommendation, job: Job, ratio: float) -> None:
    assert verdicts(change, jobs=[job], ratio=ratio) == ["exploration_allowed"]


@pytest.mark.parametrize(
    ("job", "rule"),
    [(gang(reservation="course"), "not_reserved"), (gang(hints=make_hints(opted_out=True)), "not_opted_out")],
)
def test_jobs_that_get_no_change_at_all_get_no_try(job: Job, rule: str) -> None:
    assert verdicts(trying(), jobs=[job]) == [rule]


def test_tries_of_one_cycle_together_stay_within_the_share() -> None:
    jobs = [gang(1), gang(2), gang(3, time_limit_s=HOUR_S / 4)]
    changes = [trying(1), trying(2, ("n03", "n04")), trying(3, ("n03", "n04"), gpu_h=16.0)]

    assert verdicts(*changes, jobs=jobs) == [None, None, "exploration_within_share"]


@pytest.mark.parametrize(
    ("ago_s", "ending", "refused"),
    [
        (HOUR_S, Ending.NO_LONGER_PENDING, "exploration_allowed"),
        (HOUR_S, Ending.TAKEN_BACK, "exploration_allowed"),
        (MINUTE_S, None, "exploration_allowed"),
        (HOUR_S, Ending.NOT_APPLIED, None),
        (2 * DAY_S, Ending.NO_LONGER_PENDING, None),
    ],
)
def test_tries_of_the_window_count(ago_s: float, ending: Ending | None, refused: str | None) -> None:
    lease = replace(intended(trying(77, gpu_h=30.0).action, TAKEN_AT - ago_s, after_s=120.0), state=LeaseState.OUT)
    lease = lease if ending is None else lease.ended(ending, lease.applied_time + MINUTE_S)

    assert verdicts(trying(), jobs=[gang()], leases=[lease]) == [refused]
