"""The nice values of jobs that arrive: what the next round would lift is lifted, and nothing else."""

from dataclasses import replace

import pytest

from advisor.domain.actions import SetNice
from advisor.domain.job import Job
from advisor.domain.lease import LeaseState, intended
from advisor.domain.mark import is_marked
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.planning.newcomers import MOST_CLASSES, Ladder, Newcomers, newcomers
from advisor.settings import Limits, PlanningSettings
from tests.builders import HOUR_S, TAKEN_AT, make_config, make_job, make_partition, make_snapshot

BY_SIZE = Limits(fairness="site")
PLANNING = PlanningSettings(used_limit_ratio_low=0.5, lift_places=2)


def waiting(*hours: float, user: str = "ada", priority: int = 1000) -> list[Job]:
    """Return jobs of one GPU with some time limits."""
    return [
        make_job(number, gpus=1, time_limit_s=limit * HOUR_S, priority=priority - number, user=user, reason="Priority")
        for number, limit in enumerate(hours, start=10)
    ]


def of(snapshot: Snapshot, *, limits: Limits = BY_SIZE, memory: Memory = Memory()) -> Newcomers:  # noqa: B008  (frozen)
    """Return the values of the only partition."""
    (only,) = newcomers(snapshot, PLANNING, limits, memory=memory)
    return only


def test_bound_is_the_size_of_the_last_job_that_lifts_keep_at_the_head() -> None:
    arriving = of(make_snapshot(waiting(8.0, 1.0, 4.0, 2.0)))

    # Two places: the jobs of one hour and of two, of which half is used.
    assert arriving.others.gpu_s == pytest.approx(HOUR_S)
    assert arriving.bounds["ada"].gpu_s == pytest.approx(HOUR_S)
    assert arriving.others.used_limit_ratio == arriving.bounds["ada"].used_limit_ratio == 0.5


def test_arrival_gets_a_priority_above_all_jobs_and_by_its_size() -> None:
    arriving = of(make_snapshot(waiting(8.0, 1.0, 4.0)))

    ladder = arriving.ladder
    assert 990 - ladder.nice > 1000
    assert ladder.step > 0 and ladder.classes == MOST_CLASSES
    assert all(is_marked(ladder.nice - ladder.step * number) for number in range(ladder.classes + 1))


def test_arrival_gets_the_priority_of_a_lifted_job_of_its_size() -> None:
    ladder = of(make_snapshot(waiting(8.0, 1.0, 4.0, priority=100_000))).ladder

    # A lifted job of 2 hours, which is up to 2^13 GPU-seconds, stands 31 times 1000 points above a power of two.
    assert 0 < (99_988 - ladder.nice) - (131_072 + 31 * 1000) < ladder.step


def test_partition_of_whole_nodes_gets_no_values_since_the_script_counts_gpus_alone() -> None:
    whole = replace(make_partition(), over_subscribe="EXCLUSIVE")

    snapshot = make_snapshot(waiting(8.0, 1.0), partitions=[whole])

    assert list(newcomers(snapshot, PLANNING, BY_SIZE)) == []


def test_job_of_a_user_with_less_priority_has_to_be_smaller() -> None:
    jobs = [*waiting(8.0, 1.0), replace(make_job(50, gpus=1, time_limit_s=4 * HOUR_S, reason="Priority"), user="bob")]
    jobs[2] = replace(jobs[2], priority=10)
    snapshot = make_snapshot(jobs, config=replace(make_config(), priority_weights={"fair_share": 1000}))

    arriving = of(snapshot, limits=Limits(fairness="trade"))

    assert arriving.bounds["bob"].gpu_s < arriving.bounds["ada"].gpu_s
    assert arriving.others.gpu_s == arriving.bounds["bob"].gpu_s


def test_values_stay_while_jobs_age_and_others_are_lifted() -> None:
    jobs = waiting(8.0, 1.0, 4.0)
    before = of(make_snapshot(jobs)).ladder
    lifted = SetNice(job_id=11, before=0, after=-5007)
    lease = replace(intended(lifted, TAKEN_AT, after_s=HOUR_S), state=LeaseState.OUT)
    after = [
        lifted.applied_to(job) if job.job_id == 11 else replace(job, priority=(job.priority or 0) + 3) for job in jobs
    ]

    again = of(make_snapshot(after), memory=Memory(leases=(lease,))).ladder

    assert again == before


@pytest.mark.parametrize("fairness", ["user", "account"])
def test_nothing_is_lifted_where_jobs_pass_no_others(fairness: str) -> None:
    limits = Limits(fairness=fairness)  # type: ignore[arg-type]  # of the parameters

    assert list(newcomers(make_snapshot(waiting(8.0, 1.0)), PLANNING, limits)) == []


def test_partitions_without_a_line_of_their_own_are_left_out() -> None:
    partitions = [make_partition("cpu", nodes=["n04"]), make_partition("gpu", nodes=["n01", "n02", "n03"])]
    jobs = [
        *waiting(8.0, 1.0),
        make_job(40, gpus=1, partitions=("gpu", "cpu"), reason="Priority"),
        make_job(41, gpus=1, partitions=("cpu",), reason="Dependency"),
    ]

    arriving = list(newcomers(make_snapshot(jobs, partitions=partitions), PLANNING, BY_SIZE))

    assert [each.partition for each in arriving] == ["gpu"]


def test_nothing_is_lifted_without_a_line_without_factors_or_above_the_lowest_nice() -> None:
    jobs = waiting(8.0, 1.0)

    assert list(newcomers(make_snapshot([]), PLANNING, BY_SIZE)) == []
    assert (
        list(
            newcomers(
                make_snapshot(jobs, config=replace(make_config(), priority_type="priority/basic")), PLANNING, BY_SIZE
            )
        )
        == []
    )
    assert list(newcomers(make_snapshot(jobs), PLANNING, replace(BY_SIZE, nice_min=-100))) == []


@pytest.mark.parametrize(
    ("nice", "holds"), [(-17, True), (-27, True), (-37, True), (-47, False), (-7, False), (-20, False), (0, False)]
)
def test_ladder_holds_its_classes(nice: int, holds: bool) -> None:
    assert Ladder(nice=-17, step=10, classes=2).holds(nice) is holds
