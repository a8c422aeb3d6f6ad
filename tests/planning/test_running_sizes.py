"""Which running jobs are stopped to restart with more GPUs, and the sizes that they get while Slurm holds them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Lever, Reason, Requeue, SetGpus
from advisor.domain.forecast import JobForecast
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.node import GpuPool
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.policy import Policy
from advisor.planning.plan_trial import is_tried
from advisor.planning.preemption import REQUEUE_HOLD_S
from advisor.planning.restarts import GROWTH_LEASE_S, SHORTEST_REST_S
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import assumption, sentence
from tests.builders import (
    HOUR_S,
    MINUTE_S,
    TAKEN_AT,
    gpu_counts,
    make_hints,
    make_job,
    make_node,
    make_nodes,
    make_snapshot,
    size_of,
)
from tests.planning.test_policies import Scripted
from tests.planning.test_with_forecasts import FixedForecaster, runs

ON = PlanningSettings(resize_running=True)
ALLOWED = Limits(preempt_partitions="gpu")
SAVES = make_hints(gpus=(1, 8), checkpoint_s=600.0)
STOPPED_AGO_S = 60.0


def running(job_id: int = 1, *nodes: str, gpus: int = 4, **fields: object) -> Job:
    """A job that has run for 2 hours, saves its work every 10 minutes and takes 1 to 8 GPUs."""
    given = {"hints": SAVES, "requeueable": True, "started_ago_s": 2 * HOUR_S, "submitted_ago_s": 3 * HOUR_S, **fields}
    return make_job(job_id, gpus=gpus, running_on=nodes or ("n01",), **given)  # type: ignore[arg-type]


def cluster(*jobs: Job, nodes: Iterable[str] = ("n01",)) -> Snapshot:
    """Nodes of 8 GPUs, in use as far as the jobs hold them."""
    return make_snapshot(jobs, make_nodes(nodes, jobs))


def judged(
    snapshot: Snapshot,
    *,
    hours: Mapping[int, float] | float = 12.0,
    planning: PlanningSettings = ON,
    limits: Limits = ALLOWED,
    leases: Iterable[Lease] = (),
    policy: Policy | None = None,
) -> CycleRecord:
    """Run a cycle in which jobs are forecast to run for some hours; those that are not named have no forecast."""
    by_job = hours if isinstance(hours, Mapping) else dict.fromkeys(snapshot.jobs_by_id, hours)
    forecasts = {job_id: JobForecast(run_time=runs(value)) for job_id, value in by_job.items()}
    cycle = Cycle(planning=planning, limits=limits, forecaster=FixedForecaster(by_job=forecasts), policy=policy)
    return cycle.judge(snapshot, Memory(leases=tuple(leases)))


def stops(record: CycleRecord) -> list[Recommendation]:
    """Return the accepted proposals to stop a job."""
    return [change for change in record.recommendations if isinstance(change.action, Requeue)]


def grown(record: CycleRecord) -> dict[int, int]:
    """Map the jobs that are to be stopped to the GPUs that they are stopped for."""
    return {change.job_id: change.action.gpus_after or 0 for change in stops(record)}  # type: ignore[union-attr]


def stop_lease(job_id: int = 1, gpus: int = 8, *, ago_s: float = STOPPED_AGO_S, started: float | None = None) -> Lease:
    """Return the lease of a job that was stopped to restart with more GPUs."""
    action = Requeue(job_id=job_id, for_job_id=job_id, before=TAKEN_AT - 2 * HOUR_S, gpus_after=gpus)
    lease = intended(action, TAKEN_AT - ago_s, added_delay_s=REQUEUE_HOLD_S)
    return replace(lease.ended(Ending.DONE_FOR_GOOD, TAKEN_AT - ago_s), start_time=started)


def held(job_id: int = 1, gpus: int = 4, **fields: object) -> Job:
    """A job as Slurm holds it since it was stopped."""
    given = {
        "reason": "BeginTime",
        "hints": SAVES,
        "eligible_time": TAKEN_AT + REQUEUE_HOLD_S - STOPPED_AGO_S,
        "requeueable": True,
        "submitted_ago_s": STOPPED_AGO_S,
        **fields,
    }
    return make_job(job_id, gpus=gpus, **given)  # type: ignore[arg-type]


def sizes(record: CycleRecord) -> dict[int, int]:
    """Map jobs to the sizes that they are given."""
    return {
        change.job_id: change.action.after.count
        for change in record.recommendations
        if isinstance(change.action, SetGpus)
    }


def restarts() -> tuple[CycleRecord, ...]:
    """Return a cycle that stops a job, and two that give one its size, all of it and a part."""
    beside = make_job(2, gpus=2, running_on=["n01"])
    return (
        judged(cluster(running())),
        judged(cluster(held()), leases=[stop_lease()]),
        judged(cluster(held(), beside), leases=[stop_lease()]),
    )


def test_job_is_stopped_for_idle_gpus_where_that_saves_far_more_than_it_costs() -> None:
    record = judged(cluster(running()))

    (stop,) = stops(record)
    assert stop.action == Requeue(job_id=1, for_job_id=1, before=TAKEN_AT - 2 * HOUR_S, gpus_after=8)
    assert stop.reason is Reason.RESTART_WITH_MORE_GPUS
    # 10 h are left, and take 10 h x (4/8)^0.9 on 8; half of 10 min is lost, and 1 min goes to the restart.
    assert stop.evidence["saved_s"] == pytest.approx(10 * HOUR_S * (1 - 0.5**0.9), abs=1.0)
    assert stop.evidence["cost_s"] == 5 * MINUTE_S + MINUTE_S + REQUEUE_HOLD_S
    assert stop.expected.saved_s_low == -stop.evidence["cost_s"]
    assert stop.expected.added_delay_max_s == REQUEUE_HOLD_S
    assert "with 8 instead of 4 GPUs, it saves 4.6 h of the 10.0 h left" in sentence(stop)
    assert "to the power 0.9" in assumption(stop)


@pytest.mark.parametrize(
    ("planning", "limits"),
    [(PlanningSettings(), ALLOWED), (PlanningSettings(preempt=True), ALLOWED), (ON, Limits())],
    ids=["off by default", "preemption alone", "no partition"],
)
def test_no_job_is_stopped_unless_the_site_says_so(planning: PlanningSettings, limits: Limits) -> None:
    assert stops(judged(cluster(running()), planning=planning, limits=limits)) == []


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(running(hints=make_hints(gpus=(1, 8))), id="no checkpoint"),
        pytest.param(running(hints=make_hints(checkpoint_s=600.0)), id="no range"),
        pytest.param(running(hints=make_hints(gpus=(1, 4), checkpoint_s=600.0)), id="at its largest size"),
        pytest.param(running(hints=make_hints(gpus=(1, 8), checkpoint_s=600.0, opted_out=True)), id="opted out"),
        pytest.param(running(requeueable=False), id="not requeueable"),
        pytest.param(running(started_ago_s=10 * MINUTE_S), id="just started"),
        pytest.param(running(reservation="class"), id="reserved"),
        pytest.param(running(array=ArrayRecord(array_job_id=1, task_id=1)), id="array"),
        pytest.param(running(state=JobState.SUSPENDED), id="suspended"),
        pytest.param(
            running(
                hints=make_hints(gpus=(1, 8), checkpoint_s=8 * HOUR_S),
                started_ago_s=3 * HOUR_S,
                submitted_ago_s=4 * HOUR_S,
            ),
            id="all its work would be lost",
        ),
    ],
)
def test_job_that_cannot_restart_larger_is_left_alone(job: Job) -> None:
    assert stops(judged(cluster(job))) == []


def test_job_without_a_forecast_of_its_run_time_is_left_alone() -> None:
    assert stops(judged(cluster(running()), hours={})) == []


def test_saving_must_be_more_than_twice_the_cost_and_the_rest_not_short() -> None:
    cost_s = 6 * MINUTE_S + REQUEUE_HOLD_S
    needed_h = 2 * cost_s / (1 - 0.5**0.9) / HOUR_S

    # What is left after 2 hours.
    assert grown(judged(cluster(running()), hours=2 + needed_h * 1.01)) == {1: 8}
    assert grown(judged(cluster(running()), hours=2 + needed_h * 0.99)) == {}
    quick = PlanningSettings(resize_running=True, restart_s=0.0)
    often = running(hints=make_hints(gpus=(1, 8), checkpoint_s=1.0))
    assert grown(judged(cluster(often), hours=2 + SHORTEST_REST_S / HOUR_S, planning=quick)) == {1: 8}
    assert grown(judged(cluster(often), hours=2 + (SHORTEST_REST_S - 1) / HOUR_S, planning=quick)) == {}


def test_gpus_that_pending_jobs_ask_for_are_not_taken() -> None:
    def with_pending(gpus: int, **fields: object) -> dict[int, int]:
        pending = make_job(9, gpus=gpus, time_limit_s=HOUR_S, **fields)  # type: ignore[arg-type]
        return grown(judged(cluster(running(), pending)))

    assert with_pending(2) == {1: 6}
    assert with_pending(4) == {}
    # Slurm holds it for a minute, and then it starts.
    assert with_pending(2, reason="BeginTime", eligible_time=TAKEN_AT + 60.0) == {}
    assert with_pending(2, reason="BeginTime", eligible_time=TAKEN_AT + HOUR_S) == {1: 8}
    assert with_pending(2, reason="JobHeldUser", priority=0) == {1: 8}


def test_gpus_that_a_pending_job_grows_onto_are_not_taken() -> None:
    pending = make_job(9, gpus=1, hints=make_hints(gpus=(1, 3)))

    record = judged(cluster(running(), pending))

    assert sizes(record) == {9: 3}
    assert grown(record) == {1: 5}


def test_size_that_would_not_fit_on_the_closest_nodes_is_not_chosen() -> None:
    beside, elsewhere = (running(number, f"n0{number - 1}", gpus=2, hints=make_hints()) for number in (2, 3))

    # Eight GPUs are idle, of which two stand beside the job: more than six are not on one node.
    assert grown(judged(cluster(running(), beside, elsewhere, nodes=("n01", "n02")))) == {1: 6}


def test_one_job_of_a_pool_is_stopped_at_a_time_that_which_gains_most() -> None:
    jobs = [running(number, f"n0{number}") for number in (1, 2, 3)]

    record = judged(cluster(*jobs, nodes=("n01", "n02", "n03")), hours={1: 12.0, 2: 20.0, 3: 12.0})

    assert list(grown(record)) == [2]


def test_no_job_is_stopped_while_another_has_not_started_again() -> None:
    snapshot = cluster(running(2, "n02"), held(1), nodes=("n01", "n02"))

    assert grown(judged(snapshot, leases=[stop_lease()])) == {}
    assert grown(judged(cluster(running(2, "n02"), running(), nodes=("n01", "n02")), leases=[stop_lease(started=1.0)]))


def test_job_is_stopped_to_grow_once() -> None:
    assert (
        grown(judged(cluster(running()), leases=[stop_lease(ago_s=90 * HOUR_S, started=TAKEN_AT - 89 * HOUR_S)])) == {}
    )


def test_job_of_any_type_is_left_alone_where_types_differ() -> None:
    nodes = [replace(make_node("n01", used=4), gpus=(GpuPool(gpu_type="a100", total=8, used=4),)), make_node("n02")]
    job = running()
    allocation = replace(job.allocation, gpus=gpu_counts(4, "a100"))  # type: ignore[type-var]

    assert stops(judged(make_snapshot([replace(job, allocation=allocation)], nodes))) == []


def test_policy_chooses_the_size_and_the_rule_where_it_fails() -> None:
    snapshot = cluster(running())

    assert grown(judged(snapshot, policy=Scripted(1.0))) == {1: 8}
    assert grown(judged(snapshot, policy=Scripted(0.0))) == {}
    failed = judged(snapshot, policy=Scripted(ModelError("no")))
    assert grown(failed) == {1: 8} and failed.policy_fault == "no"


def test_policy_sees_the_jobs_that_run_as_if_they_waited() -> None:
    policy = Scripted(0.0)

    judged(cluster(running(3), running(4, gpus=2)), policy=policy)

    (board,), (options,) = policy.boards, policy.asked
    assert board.job_id.tolist() == [3, 4]
    assert set(options.job.tolist()) == {0, 1}


def test_job_that_was_stopped_to_grow_gets_its_size_while_slurm_holds_it() -> None:
    record = judged(cluster(held()), leases=[stop_lease()])

    (change,) = record.recommendations
    assert change.action == SetGpus(
        job_id=1,
        scope=change.action.scope,  # type: ignore[union-attr]
        before=size_of(*gpu_counts(4), limit_s=24 * HOUR_S),
        after=size_of(*gpu_counts(8), limit_s=24 * HOUR_S),
    )
    assert (change.reason, change.revert_after_s) == (Reason.SIZE_OF_RESTART, GROWTH_LEASE_S)
    assert not is_tried(change)
    assert sentence(change) == (
        "It was stopped to restart with 8 GPUs instead of 4. If it has not started in 5 min, it gets its own size back"
    )


def test_job_that_slurm_holds_for_another_reason_gets_no_size() -> None:
    assert sizes(judged(cluster(held()))) == {}
    # It has started since, and was requeued by somebody else.
    assert sizes(judged(cluster(held()), leases=[stop_lease(started=TAKEN_AT - 30.0)])) == {}


def test_job_gets_what_is_left_of_the_gpus_it_was_stopped_for_or_keeps_its_size() -> None:
    def with_others(gpus: int) -> CycleRecord:
        return judged(cluster(held(), make_job(2, gpus=gpus, running_on=["n01"])), leases=[stop_lease()])

    assert sizes(with_others(2)) == {1: 6}
    assert "6 GPUs instead of 4, as not all of the 8 planned are idle" in sentence(with_others(2).recommendations[0])
    assert sizes(with_others(4)) == {}


def test_job_that_has_got_its_size_gets_no_other_one() -> None:
    action = SetGpus(
        job_id=1,
        scope=GpuScope.JOB,
        before=size_of(*gpu_counts(4), limit_s=24 * HOUR_S),
        after=size_of(*gpu_counts(6), limit_s=24 * HOUR_S),
    )
    size = intended(action, TAKEN_AT - 30.0, after_s=GROWTH_LEASE_S)
    out, given_back = replace(size, state=LeaseState.OUT), size.ended(Ending.TAKEN_BACK, TAKEN_AT)

    assert sizes(judged(cluster(held(gpus=6)), leases=[stop_lease(), out])) == {}
    assert sizes(judged(cluster(held()), leases=[stop_lease(), given_back])) == {}
    # slurmctld refused it, so that it is tried again.
    refused = size.ended(Ending.NOT_APPLIED, TAKEN_AT - 30.0)
    assert sizes(judged(cluster(held()), leases=[stop_lease(), refused])) == {1: 8}


def test_without_the_lever_for_stops_none_is_made_and_sizes_are_still_given() -> None:
    forecaster = FixedForecaster(by_job={1: JobForecast(run_time=runs(12.0))})
    cycle = Cycle(planning=ON, limits=ALLOWED, forecaster=forecaster, levers=frozenset({Lever.GPU_COUNT}))

    assert stops(cycle.judge(cluster(running()))) == []


@pytest.mark.parametrize("seed", range(60))
def test_stops_keep_their_promises_on_random_clusters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"n{number:02}" for number in range(1, 5)]
    jobs: list[Job] = []
    for number, name in enumerate(names, 1):
        gpus = int(rng.integers(1, 9))
        low, high = sorted(int(size) for size in rng.integers(1, 17, 2))
        hints = make_hints(
            gpus=(min(low, gpus), max(high, gpus)) if rng.random() < 0.8 else None,
            checkpoint_s=float(rng.choice([60.0, 1800.0])) if rng.random() < 0.7 else None,
        )
        jobs.append(running(number, name, gpus=gpus, hints=hints, requeueable=bool(rng.random() < 0.8)))
    jobs += [
        make_job(number, gpus=int(rng.integers(1, 9)), hints=make_hints(gpus=(1, 8)))
        for number in range(10, 10 + int(rng.integers(0, 3)))
    ]
    snapshot = cluster(*jobs, nodes=names)
    idle = 8 * len(names) - sum(job.gang.gpu_count or 0 for job in jobs if not job.is_pending)
    waiting = sum(job.gang.gpu_count or 0 for job in jobs if job.is_pending)

    record = judged(snapshot, hours={job.job_id: float(rng.uniform(2, 30)) for job in jobs if rng.random() < 0.9})

    added = 0
    for change in record.judged:
        job = snapshot.jobs_by_id[change.job_id]
        if isinstance(change.action, Requeue):
            assert change.refused_by is None
            assert job.hints.checkpoint_s and job.requeueable and job.hints.gpus is not None
            assert (job.gang.gpu_count or 0) < (change.action.gpus_after or 0) <= job.hints.gpus.high
            added += (change.action.gpus_after or 0) - (job.gang.gpu_count or 0)
        elif isinstance(change.action, SetGpus) and job.is_pending:
            waiting += max(0, change.action.after.count - change.action.before.count)
    assert added == 0 or added <= idle - waiting
    assert len(stops(record)) <= 1
    assert judged(snapshot, planning=PlanningSettings()).judged == tuple(
        change for change in judged(snapshot).judged if not isinstance(change.action, Requeue)
    )
