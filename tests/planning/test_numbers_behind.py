"""The numbers behind a recommendation or a check, and the bounds at their exact value."""

from dataclasses import replace

import pytest

from advisor.cycle import Cycle
from advisor.diagnose.site_checks import site_checks
from advisor.diagnose.survey import overview
from advisor.domain.actions import NodeRange, SetNice
from advisor.domain.diagnosis import Cause
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement
from advisor.domain.gang import GpuScope
from advisor.domain.topology import LocalityTier
from advisor.planning.beliefs import Basis, Beliefs
from advisor.planning.case import Case
from advisor.planning.placement import PlaceWorthWaiting
from advisor.settings import Limits, PlanningSettings
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_holders,
    make_job,
    make_node,
    make_recommendation,
    make_snapshot,
    make_topology,
)
from tests.diagnose.diagnosing import causes, diagnosis
from tests.diagnose.test_causes import APART
from tests.diagnose.test_causes import TWO_NODES as ONE_LEAF
from tests.diagnose.test_site_checks import FULL
from tests.diagnose.test_survey import idle
from tests.planning.queues import busy
from tests.planning.test_placement import ahead, waiting
from tests.planning.test_soft_limit import SMALL, blocked, proposed, run_time


def test_usable_lever_is_called_usable_and_costs_nothing() -> None:
    levers = [check for check in site_checks(FULL, Limits()) if check.name.startswith("lever ")]

    assert {(check.text, check.cost) for check in levers} == {("usable", "")}


def test_job_that_backfill_starts_at_once_gets_no_soft_limit_even_if_any_saving_is_worth_it() -> None:
    in_the_hole = blocked(replace(SMALL, time_limit_s=0.75 * HOUR_S))
    forecasts = Forecasts(by_job={1: run_time(60.0, 120.0, 300.0)})

    assert proposed(in_the_hole, forecasts, settings=PlanningSettings(min_saving_s=0.0)) == []


def test_lifted_jobs_stand_before_those_they_pass_for_all_that_follows() -> None:
    jobs = [make_job(number, gpus=4, priority=1000 - number) for number in (1, 2, 3)]
    case = Case(snapshot=busy(*jobs))
    lifted = make_recommendation(SetNice(job_id=3, before=0, after=-2))

    assert [job.job_id for job in case.queue_after(()).jobs] == [1, 2, 3]
    assert [job.job_id for job in case.queue_after((lifted,)).jobs] == [1, 3, 2]


def test_gang_on_more_nodes_of_its_closest_tier_is_judged_by_rule() -> None:
    gang = make_gang(16, nodes_min=1, nodes_max=4)
    nodes = [make_node(f"n0{number}", used=4) for number in range(1, 5)]
    topology = make_topology({"leaf1": [node.name for node in nodes], "leaf2": ["n05"]})
    nodes.append(make_node("n05", used=8))
    snapshot = make_snapshot([waiting(gang), ahead("n05"), *make_holders(nodes)], nodes, topology=topology)

    (change,) = Cycle().judge(snapshot).recommendations

    # It needs two nodes of the leaf, and would start on all four.
    assert change.action.after == NodeRange(low=1, high=2)
    assert isinstance(change.facts, PlaceWorthWaiting)
    assert (change.facts.basis, change.facts.best_tier) == (Basis.RULE_FOR_MORE_NODES, LocalityTier.NODE)
    assert change.facts.inflation == pytest.approx(1.21)
    assert change.facts.inflation_there == 1.1


@pytest.mark.parametrize(("ago_s", "blamed"), [(2 * HOUR_S, True), (2 * HOUR_S + 1, False)])
def test_wait_for_one_leaf_is_blamed_until_its_last_second(ago_s: float, blamed: bool) -> None:
    found = diagnosis(make_job(1, gang=ONE_LEAF, submitted_ago_s=ago_s, reason="Resources"), APART)

    assert (Cause.SWITCHES in causes(found)) is blamed


def test_idle_gpus_are_startable_where_one_cpu_is_idle_for_a_gang_of_open_size() -> None:
    nodes = [make_node("n1", used=5, cpus_used=63)]

    assert idle(make_snapshot([make_job(1, gang=make_gang(4))], nodes)).startable == 3
    assert idle(make_snapshot([make_job(1, gang=make_gang(4, nodes_max=1, cpus=2))], nodes)).startable == 0


def test_job_that_would_start_with_one_cpu_is_offered_that() -> None:
    job = make_job(1, gang=make_gang(1, cpus=4, memory_mib_per_node=1), reason="Resources")

    found = diagnosis(job, [make_node("n1", cpus_used=63)])

    assert any("1 CPU" in remedy for remedy in found.first.remedies), found.first.remedies


@pytest.mark.parametrize(("leaves", "words"), [(1, "few nodes"), (2, "few nodes and for one leaf switch")])
def test_topology_says_what_gangs_can_wait_for(leaves: int, words: str) -> None:
    topology = make_topology({f"leaf{number}": [f"n0{number}"] for number in range(leaves)}, spine=leaves > 1)

    (check,) = (check for check in site_checks(replace(FULL, topology=topology), Limits()) if check.name == "topology")

    assert check.text == f"tree: gangs can wait for {words}"


def test_gang_that_counts_per_node_is_offered_one_gpu_where_no_more_is_idle() -> None:
    gang = make_gang(4, scope=GpuScope.NODE, nodes_min=1, nodes_max=1, memory_mib_per_node=1)

    found = diagnosis(make_job(1, gang=gang, reason="Resources"), [make_node("n1", used=7)])

    assert any("1 GPU" in remedy for remedy in found.first.remedies), found.first.remedies


def test_inflation_over_leaves_follows_from_that_on_one_leaf_with_its_whole_interval() -> None:
    on_leaf = Interval(low=0.5, median=0.8, high=1.0)
    forecast = JobForecast(speed_by_placement={Placement(gpus=4, tier=LocalityTier.LEAF): on_leaf})
    beliefs = Beliefs(forecasts=Forecasts(by_job={1: forecast}), settings=PlanningSettings())

    inflation = beliefs.inflation(make_job(1, gpus=4), LocalityTier.SPINE, LocalityTier.NODE)

    # By rule 1.3 over leaves, against 1.1 on one.
    step = 1.3 / 1.1
    assert (inflation.low, inflation.median, inflation.high) == pytest.approx((step, 1.25 * step, 2.0 * step))


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (("gres/gpu",), "counts gres/gpu, not gres/gpu:a100"),
        (("gres/gpu", "gres/gpu:a100"), "counts gres/gpu and each of its types"),
    ],
)
def test_accounting_says_which_types_it_counts(counted: tuple[str, ...], words: str) -> None:
    site = replace(FULL, nodes=(make_node(gpu_type="a100"),), config=make_config(accounting_tres=counted))

    (check,) = (check for check in site_checks(site, Limits()) if check.name == "AccountingStorageTRES")

    assert check.text == words


def test_job_that_is_eligible_now_is_not_deferred() -> None:
    jobs = [make_job(1, eligible_time=TAKEN_AT), make_job(2, eligible_time=TAKEN_AT + 1)]

    assert overview(make_snapshot(jobs)).jobs.deferred == 1


def test_just_as_many_idle_gpus_as_asked_are_not_too_few() -> None:
    gang = make_gang(8, scope=GpuScope.NODE, nodes_min=1, nodes_max=1, memory_mib_per_node=1)
    job = make_job(1, gang=gang, reason="Resources")

    # Eight are idle, on two nodes or on one.
    enough = diagnosis(job, [make_node("n1", used=4), make_node("n2", used=4)])
    too_few = diagnosis(job, [make_node("n1", used=5), make_node("n2", used=4)])

    assert (enough.first.cause, too_few.first.cause) == (Cause.FRAGMENTATION, Cause.GPUS)
