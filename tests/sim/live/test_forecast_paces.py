"""Places and sizes in rollouts: a job is as fast there as the planner believes that decides about holds and sizes."""

from collections.abc import Sequence

import numpy as np
import pytest

from advisor.domain.actions import NodeRange, SetGpus, SetNodeRange, SetTimeMin
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import Job
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.case import Case
from advisor.planning.plan_trial import GAINS, TrialSize, refused_by_trial, try_plan
from advisor.planning.rollout import Scenario, TimedAction
from advisor.settings import PlanningSettings
from advisor.sim.live.slurm_rollout import SlurmRollout
from tests.builders import HOUR_S, make_cluster, make_gang, make_hints, make_job, make_recommendation, size_of

RUN_S = 10_000.0
SIZE = TrialSize(plans=6, draws=4, horizon_s=24 * HOUR_S)
LEAVES = {"leaf1": ("n01", "n02"), "leaf2": ("n03", "n04")}


def exactly(run_s: float, **speeds: float) -> JobForecast:
    """A run time without doubt, and speeds such as `leaf16=0.5` relative to the closest place of the size asked for."""
    by_placement = {
        Placement(gpus=int(name[4:]), tier=LocalityTier[name[:4].upper().replace("SPIN", "SPINE")]): Interval(
            low=speed, median=speed, high=speed
        )
        for name, speed in speeds.items()
    }
    interval_s = Interval(low=run_s, median=run_s, high=run_s)
    return JobForecast(run_time=RunTime(interval_s=interval_s, mean_s=run_s), speed_by_placement=by_placement)


def holder(job_id: int, *nodes: str, gpus: int, left_s: float) -> Job:
    """A job that runs on nodes for `left_s` more."""
    return make_job(job_id, gpus=gpus, running_on=nodes, started_ago_s=60.0, time_limit_s=left_s + 60.0)


def case_of(snapshot: Snapshot, forecasts: dict[int, JobForecast]) -> Case:
    """Return a case in which running jobs end at their limits."""
    known = {job.job_id: exactly(job.time_limit_s or 0.0) for job in snapshot.jobs if not job.is_pending}
    return Case(snapshot=snapshot, forecasts=Forecasts(by_job=known | forecasts), settings=PlanningSettings())


def run_s_of(case: Case, job_id: int, plan: Scenario = ()) -> float:
    values = SlurmRollout().values(case, [plan], horizon_s=24 * HOUR_S, draws=1)
    row = int(np.flatnonzero(values.job_ids == job_id)[0])
    return float(values.end_s[0, 0, row] - values.start_s[0, 0, row])


def refused(case: Case, changes: Sequence[Recommendation]) -> tuple[str | None, ...]:
    trial = try_plan(case, changes, SlurmRollout(), SIZE)
    return tuple(change.refused_by for change in refused_by_trial(changes, trial))


# 4 of 8 GPUs are in use on each node: a gang of 16 starts on both leaves, one of 8 on two nodes of one leaf.
HALF = tuple(holder(number, f"n0{number}", gpus=4, left_s=20 * HOUR_S) for number in range(1, 5))


def test_gang_on_a_wider_tier_than_its_closest_runs_longer_by_the_ratio_of_its_inflations() -> None:
    gang = make_job(9, gang=make_gang(16))
    case = case_of(make_cluster([*HALF, gang], leaves=LEAVES), {9: exactly(RUN_S)})

    settings = case.settings
    assert run_s_of(case, 9) == pytest.approx(RUN_S * settings.spine_inflation / settings.leaf_inflation)


def test_gang_on_its_closest_place_runs_as_long_as_is_forecast() -> None:
    gang = make_job(9, gang=make_gang(16))
    case = case_of(make_cluster([gang], leaves=LEAVES), {9: exactly(RUN_S, leaf16=1.0, spin16=0.5)})

    assert run_s_of(case, 9) == pytest.approx(RUN_S)


def test_forecast_speeds_go_before_the_rule() -> None:
    gang = make_job(9, gang=make_gang(16))
    case = case_of(make_cluster([*HALF, gang], leaves=LEAVES), {9: exactly(RUN_S, leaf16=1.0, spin16=0.5)})

    assert run_s_of(case, 9) == pytest.approx(2.0 * RUN_S)


def test_more_nodes_of_the_closest_tier_slow_a_gang_down() -> None:
    one_leaf = {"leaf1": ("n01", "n02", "n03", "n04")}
    gang = make_job(9, gang=make_gang(16))
    case = case_of(make_cluster([*HALF, gang], leaves=one_leaf), {9: exactly(RUN_S)})

    assert run_s_of(case, 9) == pytest.approx(RUN_S * case.settings.leaf_inflation)


def test_gang_that_asks_for_more_nodes_than_it_needs_is_not_slowed_down_by_them() -> None:
    asked = make_gang(2, scope=GpuScope.NODE, nodes_min=2, nodes_max=2)
    case = case_of(make_cluster([make_job(9, gang=asked)], leaves=LEAVES), {9: exactly(RUN_S)})

    assert run_s_of(case, 9) == pytest.approx(RUN_S)


def test_new_size_runs_by_the_speed_that_is_forecast_for_it() -> None:
    small = make_job(9, gang=make_gang(4), hints=make_hints(gpus=(4, 8)))
    case = case_of(make_cluster([small]), {9: exactly(RUN_S, node4=1.0, node8=1.25)})
    grown = SetGpus(job_id=9, scope=GpuScope.JOB, before=size_of(GpuCount(count=4)), after=size_of(GpuCount(count=8)))

    assert run_s_of(case, 9, [TimedAction(action=grown)]) == pytest.approx(RUN_S / 1.25)
    undone = [TimedAction(action=grown), TimedAction(action=grown.swapped())]
    assert run_s_of(case, 9, undone) == pytest.approx(RUN_S)


def test_stop_at_the_limit_is_no_gain() -> None:
    gang = make_job(9, gang=make_gang(16), time_limit_s=RUN_S + 60.0)
    case = case_of(make_cluster([*HALF, gang], leaves=LEAVES), {9: exactly(RUN_S, leaf16=1.0, spin16=0.5)})

    values = SlurmRollout().values(case, [()], horizon_s=24 * HOUR_S, draws=1)

    row = int(np.flatnonzero(values.job_ids == 9)[0])
    start_s, end_s, completion_s = values.start_s[0, 0, row], values.end_s[0, 0, row], values.completion_s[0, 0, row]
    assert end_s - start_s == pytest.approx(RUN_S + 60.0, abs=60.0)
    assert completion_s - start_s == pytest.approx(2.0 * RUN_S, rel=1e-3)


def hold(job_id: int, gpus_nodes: tuple[int, int], *, for_s: float) -> Recommendation:
    """Hold a gang to fewer nodes than it takes."""
    fewest, most = gpus_nodes
    return make_recommendation(
        SetNodeRange(job_id=job_id, before=NodeRange(low=1, high=most), after=NodeRange(low=1, high=fewest)),
        kind=Kind.CONSOLIDATE,
        saved_s=(0.0, 600.0),
        revert_after_s=for_s,
    )


def spread_gang(behind: Sequence[Job] = ()) -> Case:
    """A gang of 8 that can start on two half-free nodes now, where it runs 10 % longer, or on one node after 900 s."""
    running = [
        holder(1, "n01", gpus=4, left_s=900.0),
        holder(2, "n02", gpus=4, left_s=20 * HOUR_S),
        holder(3, "n03", gpus=8, left_s=20 * HOUR_S),
        holder(4, "n04", gpus=8, left_s=20 * HOUR_S),
    ]
    gang = make_job(9, gang=make_gang(8, nodes_min=1, nodes_max=2), priority=2000)
    return case_of(
        make_cluster([*running, gang, *behind], leaves=LEAVES),
        {9: exactly(RUN_S, node8=1.0, leaf8=0.9), **{job.job_id: exactly(60.0) for job in behind}},
    )


def test_hold_that_pays_goes_out() -> None:
    assert refused(spread_gang(), [hold(9, (1, 2), for_s=1800.0)]) == (None,)


def test_hold_that_ends_before_the_place_is_free_does_not_go_out() -> None:
    assert refused(spread_gang(), [hold(9, (1, 2), for_s=300.0)]) == (GAINS,)


def test_hold_that_costs_those_behind_more_than_it_gains_does_not_go_out() -> None:
    # They fit beside half of the gang, and not beside the whole of it.
    asked = make_gang(4, nodes_max=1, required_nodes=("n01",))
    behind = [make_job(20 + number, gang=asked, priority=100 - number, time_limit_s=HOUR_S) for number in range(5)]

    assert refused(spread_gang(behind), [hold(9, (1, 2), for_s=1800.0)]) == (GAINS,)


def test_growth_that_delays_others_more_than_it_gains_does_not_go_out() -> None:
    elastic = make_job(9, gang=make_gang(4), hints=make_hints(gpus=(4, 8)), priority=2000)
    behind = make_job(10, gang=make_gang(4), priority=100)
    running = [holder(number, f"n0{number}", gpus=8, left_s=20 * HOUR_S) for number in range(2, 5)]
    change = make_recommendation(
        SetGpus(job_id=9, scope=GpuScope.JOB, before=size_of(GpuCount(count=4)), after=size_of(GpuCount(count=8))),
        kind=Kind.RESIZE,
        saved_s=(0.0, 600.0),
    )
    forecasts = {9: exactly(RUN_S, node4=1.0, node8=1.25), 10: exactly(RUN_S)}

    alone = case_of(make_cluster([*running, elastic]), forecasts)
    crowded = case_of(make_cluster([*running, elastic, behind]), forecasts)

    assert refused(alone, [change]) == (None,)
    assert refused(crowded, [change]) == (GAINS,)


def test_soft_limit_that_changes_nothing_does_not_go_out() -> None:
    change = make_recommendation(SetTimeMin(job_id=9, before=None, after=600.0))

    assert refused(spread_gang(), [change]) == (GAINS,)
