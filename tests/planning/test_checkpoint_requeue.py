"""Which jobs are stopped for a gang: hand-computed cases of every rule."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Requeue
from advisor.domain.forecast import JobForecast
from advisor.domain.gang import GpuScope, ShareCount
from advisor.domain.job import ArrayRecord, HetRecord, Job, JobState, Sensitivity
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.plan import Kind, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.settings import APART_S, Limits, PlanningSettings
from advisor.view.sentences import sentence
from tests.builders import (
    DAY_S,
    HOUR_S,
    MINUTE_S,
    TAKEN_AT,
    make_cluster,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
)
from tests.planning.test_with_forecasts import FixedForecaster, exactly, runs

SAVES = make_hints(checkpoint_s=600.0)


def running(job_id: int, *nodes: str, gpus: int = 8, **fields: object) -> Job:
    """A job that has run for 10 hours of a day and saves its work every 10 minutes."""
    given = {
        "hints": SAVES,
        "requeueable": True,
        "started_ago_s": 10 * HOUR_S,
        "submitted_ago_s": 11 * HOUR_S,
        **fields,
    }
    return make_job(job_id, gpus=gpus, running_on=nodes, **given)  # type: ignore[arg-type]


def waiting(job_id: int = 9, gpus: int = 8, **fields: object) -> Job:
    """A gang for one node."""
    gang = make_gang(gpus, nodes_min=1, nodes_max=1)
    return make_job(job_id, **{"gang": gang, "priority": 5000, **fields})  # type: ignore[arg-type]


FULL = tuple(running(number, f"n0{number}") for number in range(1, 5))
GANG = waiting()
# The jobs that run end 8 hours from now, the gang runs for 30 minutes.
FORECASTS = {**{number: JobForecast(run_time=runs(18)) for number in range(1, 9)}, 9: JobForecast(run_time=runs(0.5))}
ON = PlanningSettings(preempt=True)
LIMITS = Limits(preempt_partitions="gpu")


def judged(
    snapshot: Snapshot,
    *,
    forecasts: Mapping[int, JobForecast] = FORECASTS,
    planning: PlanningSettings = ON,
    limits: Limits = LIMITS,
    leases: Iterable[Lease] = (),
) -> CycleRecord:
    """Run a cycle in which jobs may be stopped."""
    return Cycle(planning=planning, limits=limits, forecaster=FixedForecaster(by_job=forecasts)).judge(
        snapshot, Memory(leases=tuple(leases))
    )


def stops(record: CycleRecord) -> list[Recommendation]:
    """Return the recommendations to stop a job."""
    return [change for change in record.recommendations if change.kind is Kind.PREEMPT]


def stopped(*jobs: Job, **told: object) -> list[int]:
    """Name the jobs that would be stopped on the cluster of the builders."""
    return [change.job_id for change in stops(judged(make_cluster(jobs), **told))]  # type: ignore[arg-type]


def test_gang_gets_a_node_when_that_saves_far_more_than_it_costs() -> None:
    record = judged(make_cluster([*FULL, GANG]))

    (stop,) = stops(record)
    assert stop.action == Requeue(job_id=1, for_job_id=9, before=TAKEN_AT - 10 * HOUR_S)
    # It would wait 8 h; the victim loses 5 min of work, 1 min to start and waits for the 30 min of the gang.
    assert stop.evidence["gain_s"] == pytest.approx(8 * HOUR_S)
    assert stop.evidence["cost_s"] == pytest.approx(36 * MINUTE_S)
    assert stop.expected.saved_s_high == pytest.approx(8 * HOUR_S - 36 * MINUTE_S)
    assert stop.expected.added_delay_max_s == 30 * MINUTE_S
    assert (stop.evidence["place"], stop.evidence["tier"], stop.evidence["victims"]) == ("n01", "node", 1)
    assert "Job 9, first in line with 8 GPUs, would end 8.0 h sooner on node n01" in sentence(stop)


def test_while_a_job_is_stopped_nothing_else_is_changed() -> None:
    spread = waiting(8, 4, gang=make_gang(4, nodes_min=1, nodes_max=4), priority=10, submitted_ago_s=120.0)

    record = judged(make_cluster([*FULL, GANG, spread]))

    assert [change.kind for change in record.recommendations] == [Kind.PREEMPT]


@pytest.mark.parametrize(
    ("planning", "limits"),
    [(PlanningSettings(), LIMITS), (ON, Limits()), (ON, Limits(preempt_partitions="gpus, other"))],
    ids=["switched off", "no partition", "another partition"],
)
def test_nobody_is_stopped_where_the_site_did_not_say_so(planning: PlanningSettings, limits: Limits) -> None:
    assert stops(judged(make_cluster([*FULL, GANG]), planning=planning, limits=limits)) == []


def test_gain_must_be_more_than_twice_the_cost() -> None:
    def with_gang(minutes: float) -> list[int]:
        return stopped(*FULL, GANG, forecasts={**FORECASTS, 9: JobForecast(run_time=runs(minutes / 60))})

    # 2 x (5 + 1 + run time) against 480 minutes.
    assert with_gang(233.0) == [1]
    assert with_gang(235.0) == []


def test_victim_that_saved_nothing_yet_loses_all_it_did() -> None:
    rare = [replace(job, hints=make_hints(checkpoint_s=11 * HOUR_S)) for job in FULL]

    assert stopped(*rare, GANG) == []
    assert stopped(*(replace(job, hints=make_hints(checkpoint_s=1.5 * HOUR_S)) for job in FULL), GANG) == [1]


@pytest.mark.parametrize("unknown", [9, 1], ids=["gang", "victims"])
def test_without_forecasts_of_run_times_nobody_is_stopped(unknown: int) -> None:
    gone = range(1, 5) if unknown == 1 else [9]

    assert (
        stopped(*FULL, GANG, forecasts={job_id: FORECASTS[job_id] for job_id in FORECASTS if job_id not in gone}) == []
    )


def test_fewest_jobs_go_and_of_them_those_with_the_fewest_gpus() -> None:
    halves = [running(1, "n01", gpus=4), running(2, "n01", gpus=4)]
    three = [running(3, "n02", gpus=5), running(4, "n02", gpus=3)]
    whole, large = running(5, "n03"), running(6, "n04", "leaf", gpus=8)
    leaves = {"leaf1": ("n01", "n02"), "leaf2": ("n03", "n04")}
    jobs = [*halves, *three, whole, replace(large, allocation=running(6, "n04").allocation), GANG]

    record = judged(make_cluster(jobs, leaves=leaves))
    small = waiting(gpus=3)

    assert [change.job_id for change in stops(record)] == [5]
    assert stopped(*jobs[:-1], small) == [4]


def test_of_jobs_with_as_many_gpus_the_one_that_had_most_service_goes() -> None:
    served = [running(1, "n01", gpus=4), running(2, "n01", gpus=4, started_ago_s=12 * HOUR_S)]
    snapshot = make_snapshot([*served, waiting(gpus=4)], [make_node("n01", used=8)])

    assert [change.job_id for change in stops(judged(snapshot))] == [2]


def test_all_that_stand_in_the_way_on_a_node_go_together_and_one_that_need_not_stays() -> None:
    jobs = [running(1, "n01", gpus=4), running(2, "n01", gpus=2), running(3, "n01", gpus=2)]
    rest = [running(number, f"n0{number - 2}", hints=make_hints()) for number in (4, 5, 6)]
    snapshot = make_cluster([*jobs, *rest, GANG])

    all_go = stops(judged(snapshot))
    two_go = stopped(*jobs, *rest, waiting(gpus=6))

    assert [change.job_id for change in all_go] == [1, 2, 3]
    assert {change.evidence["victims"] for change in all_go} == {3}
    assert two_go == [1, 2]
    assert stops(judged(snapshot, limits=replace(LIMITS, max_changes=2))) == []


def test_job_whose_going_helps_nothing_stays() -> None:
    # All three would free enough CPUs; the last two alone do so, and enough GPUs, too.
    jobs = [
        running(1, "n01", gang=make_gang(4, cpus=4)),
        running(2, "n01", gang=make_gang(2, cpus=30)),
        running(3, "n01", gang=make_gang(2, cpus=30)),
    ]
    snapshot = make_snapshot([*jobs, waiting(gang=make_gang(4, cpus=60))], [make_node("n01", used=8, cpus_used=64)])

    assert [change.job_id for change in stops(judged(snapshot))] == [2, 3]


def test_job_of_one_gpu_sits_well_wherever_it_is() -> None:
    ones = [running(number, "n01", gpus=1) for number in range(1, 9)]
    snapshot = make_snapshot([*ones, waiting(gpus=2)], [make_node("n01", used=8)])

    assert [(change.job_id, change.evidence["key"]) for change in stops(judged(snapshot))] == [(1, 1.0), (2, 1.0)]


@pytest.mark.parametrize(("careless", "leaf", "victims"), [(1, "leaf2", [3, 4]), (3, "leaf1", [1, 2])])
def test_gang_over_nodes_gets_one_leaf(careless: int, leaf: str, victims: list[int]) -> None:
    two_nodes = make_gang(8, scope=GpuScope.NODE, nodes_min=2, nodes_max=2)
    pair = waiting(gang=two_nodes, hints=make_hints(sensitivity=Sensitivity.HIGH))
    jobs = [replace(job, hints=make_hints()) if job.job_id == careless else job for job in FULL]

    record = judged(make_cluster([*jobs, pair]))

    assert [change.job_id for change in stops(record)] == victims
    assert {change.evidence["place"] for change in stops(record)} == {leaf}
    assert f"on leaf switch {leaf}" in sentence(stops(record)[0])


def test_gang_that_could_start_spread_gains_no_more_than_spreading_costs() -> None:
    # n01 to n03 hold 6 of 8: what is free lies two by two.
    loose = [running(number, f"n0{number}", gpus=6) for number in range(1, 5)]
    ranged = waiting(gpus=4, gang=make_gang(4, nodes_min=1, nodes_max=4))
    slow = {**FORECASTS, 9: JobForecast(run_time=runs(0.5))}

    assert stopped(*loose, ranged, forecasts=slow) == []


def test_gang_that_fits_now_needs_nobody_to_go() -> None:
    assert stopped(*FULL[:3], GANG) == []


@pytest.mark.parametrize(
    "gang",
    [
        pytest.param(waiting(gpus=1), id="no gang"),
        pytest.param(replace(GANG, array=ArrayRecord(array_job_id=9, waiting="1-3")), id="array"),
        pytest.param(replace(GANG, het=HetRecord(het_job_id=9, offset=0)), id="het"),
        pytest.param(replace(GANG, hints=make_hints(opted_out=True)), id="opted out"),
        pytest.param(replace(GANG, gang=replace(GANG.gang, features="nvlink")), id="features"),
        pytest.param(replace(GANG, held=True), id="held"),
    ],
)
def test_nobody_is_stopped_for_a_job_that_is_no_gang_by_itself(gang: Job) -> None:
    assert stopped(*FULL, gang) == []


@pytest.mark.parametrize(
    ("other", "goes"),
    [
        pytest.param(waiting(8, priority=6000, hints=make_hints(opted_out=True)), [], id="a gang that gets no room"),
        pytest.param(make_job(8, gpus=1, priority=6000), [], id="one GPU"),
        pytest.param(
            make_job(8, gang=make_gang(0, shares=(ShareCount(kind="shard", count=1),)), priority=6000), [], id="shards"
        ),
        pytest.param(make_job(8, gpus=1, priority=6000, dependency="afterok:1"), [1], id="one that cannot start"),
        pytest.param(make_job(8, gpus=1, priority=4000), [1], id="one behind"),
    ],
)
def test_only_the_first_in_line_gets_room(other: Job, goes: list[int]) -> None:
    assert stopped(*FULL, GANG, other) == goes


def test_job_of_a_higher_partition_on_the_same_nodes_stands_before_the_gang() -> None:
    nodes = [make_node(f"n0{number}", used=8) for number in range(1, 5)]
    urgent = make_job(8, gpus=1, priority=1, partitions=("urgent",))

    def goes(tier: int, below: tuple[str, ...]) -> list[int]:
        partitions = [make_partition(), make_partition("urgent", below, priority_tier=tier)]
        return [
            change.job_id
            for change in stops(judged(make_snapshot([*FULL, GANG, urgent], nodes, partitions=partitions)))
        ]

    assert goes(2, ("n04",)) == []
    assert goes(0, ("n04",)) == [1]


def test_victims_that_are_more_sensitive_than_the_gang_are_spared() -> None:
    sensitive = [replace(job, hints=make_hints(checkpoint_s=600.0, sensitivity=Sensitivity.HIGH)) for job in FULL]
    robust = replace(GANG, hints=make_hints(sensitivity=Sensitivity.LOW))

    assert stopped(*sensitive, GANG) == []
    assert stopped(*FULL, robust) == []
    assert stopped(*sensitive, replace(GANG, hints=make_hints(sensitivity=Sensitivity.HIGH))) == [1]


def test_job_that_had_little_is_spared() -> None:
    # A hundredth of what another had, under the root, is the margin of 0.1.
    long_ago = [
        running(number, f"n0{number}", started_ago_s=1000 * HOUR_S, time_limit_s=1200 * HOUR_S, hints=make_hints())
        for number in (2, 3, 4)
    ]
    spread_evenly = {**FORECASTS, **{number: JobForecast(run_time=runs(1100)) for number in (2, 3, 4)}}

    assert stopped(running(1, "n01", started_ago_s=9 * HOUR_S), *long_ago, GANG, forecasts=spread_evenly) == []
    assert stopped(running(1, "n01", started_ago_s=11 * HOUR_S), *long_ago, GANG, forecasts=spread_evenly) == [1]


def test_running_job_that_sits_badly_has_a_lower_key() -> None:
    spread = running(1, "n01", "n03", gpus=16)
    close = running(2, "n02", gpus=8)
    rest = running(4, "n04", gpus=8)

    record = judged(make_cluster([spread, close, rest, GANG]))

    # Held 10 h each: the key of half the GPU-time is the root of 1/2.
    assert {change.job_id: change.evidence["key"] for change in stops(record)} == {2: 0.707}


def earlier_stop(job_id: int, for_job_id: int, ago_s: float) -> Lease:
    action = Requeue(job_id=job_id, for_job_id=for_job_id, before=TAKEN_AT - DAY_S)
    return replace(intended(action, TAKEN_AT - ago_s), state=LeaseState.INTENDED).ended(
        Ending.DONE_FOR_GOOD, TAKEN_AT - ago_s
    )


def test_within_an_hour_no_job_is_stopped_and_no_gang_served_twice() -> None:
    def goes(lease: Lease) -> list[int]:
        return stopped(*FULL, GANG, leases=[lease])

    assert goes(earlier_stop(1, 77, APART_S - 1)) == [2]
    assert goes(earlier_stop(1, 77, APART_S)) == [1]
    assert goes(earlier_stop(77, 9, APART_S - 1)) == []
    assert goes(replace(earlier_stop(77, 9, 60.0), ending=Ending.NOT_APPLIED)) == [1]


def test_nobody_is_kept_waiting_for_longer_than_the_site_allows() -> None:
    assert stops(judged(make_cluster([*FULL, GANG]), limits=replace(LIMITS, max_added_delay_s=29 * MINUTE_S))) == []


def test_second_plan_after_the_first_took_effect_stops_nobody_more() -> None:
    waits = replace(
        FULL[0], state=JobState.PENDING, allocation=None, start_time=None, end_time=None, reason="BeginTime"
    )

    assert stopped(waits, *FULL[1:], GANG) == []


def test_wide_interval_of_the_gang_shows_in_what_is_expected() -> None:
    wide = {**FORECASTS, 9: JobForecast(run_time=runs(0.5, spread=2.0), speed_by_placement={}, start_s=exactly(1.0))}

    (stop,) = stops(judged(make_cluster([*FULL, GANG]), forecasts=wide))

    assert stop.expected.added_delay_max_s == HOUR_S
    assert stop.expected.saved_s_high - stop.expected.saved_s_low == pytest.approx(45 * MINUTE_S)
