"""Why a plan holds no delay timer, or no new size."""

from dataclasses import replace

import pytest

from advisor.cycle import Cycle
from advisor.diagnose.unused import NO_GANG, NO_RANGE, why_unused
from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.plan import Kind, Permits, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.planning.case import Case
from tests.builders import (
    HOUR_S,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_recommendation,
    make_snapshot,
)
from tests.planning.test_placement import half_idle_nodes, waiting
from tests.planning.test_timers import across_leaves


def unused(snapshot: Snapshot, judged: tuple[Recommendation, ...] | None = None) -> dict[Kind, str]:
    """Plan for a snapshot, and ask what the plan does not hold."""
    record = Cycle().judge(snapshot)
    case = Case(snapshot=snapshot, permits=Permits(left_alone=record.left_alone))
    return dict(why_unused(case, record.judged if judged is None else judged))


def test_queue_without_gangs_and_ranges_is_named() -> None:
    assert unused(make_snapshot([make_job(1, gpus=1)])) == {Kind.CONSOLIDATE: NO_GANG, Kind.RESIZE: NO_RANGE}


def test_kind_of_which_a_change_is_proposed_is_not_named() -> None:
    assert Kind.CONSOLIDATE not in unused(across_leaves())


def test_gang_that_is_lifted_in_this_plan_is_named() -> None:
    lift = make_recommendation(SetNice(job_id=1, before=0, after=-5))

    assert unused(across_leaves(), (lift,))[Kind.CONSOLIDATE] == (
        "1 gang is lifted by this plan: a timer can follow in the next round"
    )


def full(*jobs: Job, hours: float = 20.0) -> Snapshot:
    """Jobs that wait for a node that another job holds."""
    holder = make_job(9, gpus=8, running_on=["n01"], started_ago_s=0.0, time_limit_s=hours * HOUR_S)
    return make_snapshot([*jobs, holder], [make_node("n01", used=8)])


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (
            half_idle_nodes(replace(waiting(), hints=make_hints(opted_out=True))),
            "1 gang is left alone by rules of the guard",
        ),
        (full(make_job(1, gpus=8, gang=make_gang(8))), "no gang can start now or within 10 min"),
        (make_snapshot([make_job(1, gang=make_gang(8))], [make_node("n01")]), "1 gang is near the head of the line"),
    ],
    ids=["guard", "turn", "close already"],
)
def test_reason_against_a_timer_is_named(snapshot: Snapshot, reason: str) -> None:
    assert unused(snapshot)[Kind.CONSOLIDATE].startswith(reason)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (make_job(1, gpus=8, hints=make_hints(gpus=(2, 8), opted_out=True)), "1 elastic job is left alone"),
        (make_job(1, gang=make_gang(4, tasks=4), hints=make_hints(gpus=(2, 8))), "the requests of the elastic jobs"),
        (make_job(1, gpus=8, time_limit_s=HOUR_S, hints=make_hints(gpus=(2, 8))), "no elastic job would end sooner"),
    ],
    ids=["guard", "form", "no gain"],
)
def test_reason_against_a_new_size_is_named(job: Job, reason: str) -> None:
    assert unused(full(job))[Kind.RESIZE].startswith(reason)


def test_site_without_a_lever_is_named_with_what_it_lacks() -> None:
    delays_itself = make_config(scheduler_parameters={"bf_topopt_enable": "1"})

    reasons = unused(make_snapshot([make_job(1)], config=delays_itself))

    assert reasons[Kind.CONSOLIDATE] == "SchedulerParameters=bf_topopt_enable already delays jobs for a better place"
