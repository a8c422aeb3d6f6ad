"""Following jobs from snapshot to snapshot: what was seen is told once, what nobody saw is not made up."""

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pytest

from advisor.apply.applier import Applier
from advisor.cycle import Cycle, NoForecaster
from advisor.domain.actions import Lever, SetNice, SetNodeRange
from advisor.domain.experiment import ExperimentSettings
from advisor.domain.forecast import NO_FORECASTS, Forecasts, Interval, JobForecast, RunTime
from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.job import Allocation, ArrayRecord, Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.outcome import LONGEST_GAP_S, Arm, JobOutcome, SeenForecast
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import DAY_S
from advisor.trial.follower import Follower
from tests.builders import HOUR_S, TAKEN_AT, make_gang, make_job, make_node, make_snapshot
from tests.fake_cluster import HOLD, fragmented

CYCLE_S = 60.0
STEP_BACK = SetNice(job_id=1, before=0, after=100)
FORECASTS = Forecasts(
    by_job={
        1: JobForecast(
            run_time=RunTime(interval_s=Interval(low=60.0, median=600.0, high=6000.0), mean_s=700.0),
            start_s=Interval(low=0.0, median=120.0, high=600.0),
        )
    },
    models=("run_time 1", "start_time 1"),
)


def seen(jobs: Iterable[Job], cycle: float = 0) -> Snapshot:
    """What is in the queue so many cycles later."""
    return replace(make_snapshot(list(jobs)), taken_at=TAKEN_AT + cycle * CYCLE_S)


def running(job_id: int = 1, *, cycle: float = 1, **fields: float) -> Job:
    """A job that started in a cycle."""
    return replace(make_job(job_id, running_on=["n1"]), start_time=TAKEN_AT + cycle * CYCLE_S, **fields)  # type: ignore[arg-type]


def followed(*queues: Sequence[Job], follower: Follower | None = None) -> list[tuple[JobOutcome, ...]]:
    """What is told of queues that follow each other by one cycle."""
    at_work = follower or Follower()
    return [at_work.follow(seen(queue, cycle), NO_FORECASTS) for cycle, queue in enumerate(queues)]


def test_a_job_is_told_as_it_comes_starts_and_goes() -> None:
    came, nothing, started, still_nothing, went = followed(
        [make_job()], [make_job()], [running(cycle=1.5)], [running(cycle=1.5)], []
    )

    assert (nothing, still_nothing) == ((), ())
    assert [(each.start_time, each.end_time) for each in (*came, *started)] == [
        (None, None),
        (TAKEN_AT + 90.0, None),
    ]
    (outcome,) = went
    assert (outcome.user, outcome.account, outcome.partition, outcome.gpus) == ("alice", "lab", "gpu", 1)
    assert (outcome.last_seen_time, outcome.end_time) == (TAKEN_AT + 180.0, TAKEN_AT + 240.0)
    assert outcome.queueing_delay_s == HOUR_S + 90.0
    assert outcome.jct_s == HOUR_S + 240.0


@pytest.mark.parametrize(
    ("gang", "gpus"),
    [
        pytest.param(make_gang(1), 1, id="as asked"),
        pytest.param(make_gang(1, exclusive=True), 8, id="whole nodes"),
        pytest.param(make_gang(1, cpus=64), 4, id="half of the CPUs"),
        pytest.param(make_gang(0, gpus_known=False), 0, id="not shown"),
    ],
)
def test_a_job_counts_with_the_gpus_that_it_keeps_from_others(gang: GangRequest, gpus: int) -> None:
    nodes = [make_node("n1", cpus=128), make_node("n2", cpus=128)]
    snapshot = make_snapshot([make_job(1, gang=gang), make_job(2)], nodes=nodes)

    outcomes = {each.job_id: each.gpus for each in Follower().follow(snapshot, NO_FORECASTS)}

    assert outcomes.get(1, 0) == gpus


def test_slurms_expectations_are_no_starts() -> None:
    (_, outcomes) = followed([make_job()], [make_job(start_time=TAKEN_AT + 5000.0)])

    assert outcomes == ()


def test_a_completing_job_tells_its_end_to_the_second() -> None:
    completing = running(end_time=TAKEN_AT + 95.0)
    completing = replace(completing, state=JobState.COMPLETING)

    *_, (outcome,) = followed([make_job()], [running()], [completing], [])

    assert (outcome.end_time, outcome.last_seen_time) == (TAKEN_AT + 95.0, TAKEN_AT + 95.0)
    assert outcome.run_time_s == 35.0


def test_a_job_that_went_without_being_seen_to_run_has_no_start() -> None:
    _, (outcome,) = followed([make_job()], [])

    assert outcome.end_is_known and outcome.start_time is None
    assert (outcome.queueing_delay_s, outcome.jct_s, outcome.bounded_slowdown) == (None, None, None)


@pytest.mark.parametrize(
    "job",
    [
        make_job(gang=GangRequest()),
        make_job(array=ArrayRecord(array_job_id=1, waiting="0-9")),
        make_job(state=JobState.PENDING, gang=GangRequest(gpus_known=False)),
    ],
    ids=["no GPUs", "tasks that wait", "not known"],
)
def test_only_single_jobs_with_gpus_are_followed(job: Job) -> None:
    assert followed([job], [job]) == [(), ()]


def test_a_job_whose_request_does_not_tell_is_followed_from_its_start_on() -> None:
    secret = make_job(gang=GangRequest(gpus_known=False))
    told = replace(running(), gang=secret.gang, allocation=Allocation(nodes=("n1",), gpus=(GpuCount(count=4),)))

    (nothing, (outcome,)) = followed([secret], [told])

    assert (nothing, outcome.gpus) == ((), 4)


def test_the_last_task_of_an_array_is_followed_under_the_id_of_the_whole() -> None:
    whole = make_job(array=ArrayRecord(array_job_id=1, waiting="0-1"))
    first = replace(running(2), array=ArrayRecord(array_job_id=1, task_id=0))
    last = replace(running(1, cycle=2), array=ArrayRecord(array_job_id=1, task_id=1))

    told = followed([whole], [whole, first], [last, first], [])

    assert [[outcome.job_id for outcome in each] for each in told] == [[], [2], [1], [1, 2]]


def test_a_requeued_job_keeps_its_first_submission_wait_and_start() -> None:
    again = make_job(submit_time=TAKEN_AT + 130.0, eligible_time=TAKEN_AT + 250.0)

    told = followed([make_job()], [running()], [again], [again], [running(cycle=3.5)], [])

    (outcome,) = told[-1]
    assert [len(each) for each in told] == [1, 1, 1, 0, 1, 1]
    assert (outcome.submit_time, outcome.start_time) == (TAKEN_AT - HOUR_S, TAKEN_AT + 60.0)
    assert (outcome.requeues, outcome.last_start_time) == (1, TAKEN_AT + 210.0)
    assert outcome.queueing_delay_s == HOUR_S + 60.0
    assert outcome.run_time_s == 90.0 and outcome.jct_s == HOUR_S + 300.0


def test_a_requeue_between_two_looks_is_seen_by_the_later_start() -> None:
    *_, (outcome,) = followed([running(cycle=0)], [running(cycle=0.9)])

    assert (outcome.requeues, outcome.start_time, outcome.last_start_time) == (1, TAKEN_AT, TAKEN_AT + 54.0)


def test_a_pending_job_becomes_eligible_later() -> None:
    (held, released) = followed([make_job(eligible_time=None)], [make_job(eligible_time=TAKEN_AT + 30.0)])

    assert [outcome.eligible_time for outcome in (*held, *released)] == [None, TAKEN_AT + 30.0]


def test_records_that_are_neither_pending_nor_running_change_nothing() -> None:
    special = make_job(state=JobState.OTHER)

    *_, nothing, (outcome,) = followed([running(cycle=0)], [special], [])

    assert nothing == () and outcome.end_is_known


def test_what_went_while_the_daemon_was_down_has_no_known_end() -> None:
    left = JobOutcome(job_id=1, submit_time=TAKEN_AT - DAY_S, user="alice", last_start_time=TAKEN_AT - HOUR_S)

    (outcome,) = Follower([left]).follow(seen([]), NO_FORECASTS)

    assert outcome.end_time == TAKEN_AT
    assert not outcome.end_is_known and outcome.jct_s is None


def test_a_daemon_that_was_down_for_a_moment_goes_on() -> None:
    at_work = Follower()
    at_work.follow(seen([make_job(), make_job(2)]), NO_FORECASTS)
    next_one = Follower(at_work.open_outcomes, seen_at=TAKEN_AT)

    (outcome,) = next_one.follow(seen([make_job()], 1), NO_FORECASTS)

    assert (outcome.job_id, outcome.end_is_known) == (2, True)


def test_an_end_within_a_long_gap_is_not_known() -> None:
    at_work = Follower()
    at_work.follow(seen([running(cycle=0)]), NO_FORECASTS)

    (outcome,) = at_work.follow(seen([], 1 + LONGEST_GAP_S / CYCLE_S), NO_FORECASTS)

    assert not outcome.end_is_known


def test_a_snapshot_older_than_the_last_ends_nothing() -> None:
    at_work = Follower()
    at_work.follow(seen([make_job(), make_job(2)], 10), NO_FORECASTS)

    old = at_work.follow(seen([make_job()], 3), NO_FORECASTS)
    next_one = at_work.follow(seen([make_job(), make_job(2)], 11), NO_FORECASTS)

    assert (old, next_one) == ((), ())


def test_after_a_clock_was_set_back_ends_are_not_known_and_never_before_a_start() -> None:
    at_work = Follower()
    at_work.follow(seen([running(cycle=9)], 10), NO_FORECASTS)
    at_work.follow(seen([], 3), NO_FORECASTS)

    (outcome,) = at_work.follow(seen([], 4), NO_FORECASTS)

    assert not outcome.end_is_known
    assert outcome.end_time == outcome.last_start_time == TAKEN_AT + 9 * CYCLE_S


def test_an_id_that_went_round_is_another_job() -> None:
    left = JobOutcome(job_id=1, submit_time=0.0, user="mallory")
    at_work = Follower([left])

    earlier, later = at_work.follow(seen([make_job()]), NO_FORECASTS)

    assert (earlier.user, earlier.end_time, earlier.end_is_known) == ("mallory", TAKEN_AT, False)
    assert (later.user, later.end_time) == ("alice", None)
    assert at_work.open_outcomes == (later,)


def test_an_id_that_went_round_to_a_job_without_gpus_is_dropped() -> None:
    at_work = Follower([JobOutcome(job_id=1, submit_time=0.0, user="mallory")])

    (earlier,) = at_work.follow(seen([make_job(gang=GangRequest())]), NO_FORECASTS)

    assert earlier.user == "mallory" and at_work.open_outcomes == ()


def test_the_first_forecast_is_kept_and_made_an_instant() -> None:
    at_work = Follower()
    (outcome,) = at_work.follow(seen([make_job()]), FORECASTS)
    at_work.follow(seen([make_job()], 1), NO_FORECASTS)

    assert outcome.first_forecast == SeenForecast(
        made_time=TAKEN_AT,
        start_time=Interval(low=TAKEN_AT, median=TAKEN_AT + 120.0, high=TAKEN_AT + 600.0),
        run_time_s=Interval(low=60.0, median=600.0, high=6000.0),
        run_mean_s=700.0,
        models=FORECASTS.models,
    )
    assert at_work.open_outcomes == (outcome,)


def test_a_job_is_in_the_arm_of_its_submission_wherever_it_runs() -> None:
    settings = ExperimentSettings(by="day", name="spring", start="2001-01-01", end="2101-01-01")
    arm = settings.arm_at(TAKEN_AT - HOUR_S)

    (outcome,) = Follower(experiment=settings).follow(seen([make_job()]), NO_FORECASTS)
    (other,) = Follower(experiment=settings).follow(seen([make_job(submitted_ago_s=HOUR_S + DAY_S)]), NO_FORECASTS)
    (outside,) = Follower(experiment=settings).follow(seen([make_job(submit_time=0.0)]), NO_FORECASTS)

    assert arm and (outcome.arm, outcome.experiment) == (arm, settings.digest)
    assert other.arm is not Arm.NONE
    assert (outside.arm, outside.experiment) == (Arm.NONE, "")


def test_a_change_that_took_effect_is_noted_with_what_it_promised() -> None:
    cluster = fragmented()
    at_work = Applier(source=cluster, actuator=cluster, cycle=Cycle())
    follower = Follower()

    step = at_work.step()
    told = {outcome.job_id: outcome for outcome in follower.follow_step(step)}

    (recommended,) = step.record.recommendations
    (change,) = told[9].changes
    assert (change.lever, change.reason) == (Lever.NODE_RANGE, str(recommended.reason))
    assert change.applied_time == TAKEN_AT
    assert change.saved_s_high == recommended.expected.saved_s_high
    assert change.added_delay_s == recommended.expected.added_delay_max_s
    assert follower.follow_step(at_work.step()) == ()


class Asked(NoForecaster):
    """Says when jobs start, and remembers which it was asked about."""

    def __init__(self) -> None:
        self.job_ids: list[list[int]] = []

    def with_starts(self, forecasts: Forecasts, _snapshot: Snapshot, job_ids: Collection[int]) -> Forecasts:
        self.job_ids.append(sorted(job_ids))
        start_s = Interval(low=0.0, median=120.0, high=600.0)
        return replace(forecasts, by_job={job_id: JobForecast(start_s=start_s) for job_id in job_ids})


def test_starts_are_asked_for_new_jobs_and_for_changed_ones_alone() -> None:
    cluster, forecaster = fragmented(), Asked()
    at_work, follower = Applier(source=cluster, actuator=cluster, cycle=Cycle()), Follower()
    known = [outcome.job_id for outcome in follower.follow(cluster.snapshot(), NO_FORECASTS)]

    told = {outcome.job_id: outcome for outcome in follower.follow_step(at_work.step(), forecaster)}
    follower.follow_step(at_work.step(), forecaster)

    assert 9 in known and forecaster.job_ids == [[9], []]
    assert told[9].changed_forecast is not None and told[9].changed_forecast.start_time is not None
    assert told[9].first_forecast is None


def test_a_change_that_slurm_refused_is_none() -> None:
    cluster = fragmented()
    cluster.failing = {SetNodeRange: "Access/permission denied"}
    step = Applier(source=cluster, actuator=cluster, cycle=Cycle()).step()

    told = Follower().follow_step(step)

    assert step.applied and not any(outcome.changes for outcome in told)


def lent(*, state: LeaseState = LeaseState.OUT, at: float = TAKEN_AT) -> Lease:
    """A lease on the first job."""
    return replace(intended(STEP_BACK, at, added_delay_s=300.0), state=state)


@pytest.mark.parametrize(
    ("lease", "noted"),
    [
        (lent(), True),
        (lent(state=LeaseState.RETURNING), True),
        (lent(state=LeaseState.HANDS_OFF), True),
        (lent().ended(Ending.TAKEN_BACK, TAKEN_AT), True),
        (lent(state=LeaseState.INTENDED), False),
        (lent().ended(Ending.NOT_APPLIED, TAKEN_AT), False),
        (lent(at=0.0), False),
    ],
    ids=["out", "returning", "overruled", "ended", "not known", "not applied", "of an earlier job"],
)
def test_changes_that_only_the_journal_knows_are_noted_without_a_saving(lease: Lease, noted: bool) -> None:
    (outcome,) = Follower().follow(seen([make_job()]), NO_FORECASTS, leases=[lease])

    assert [(each.lever, each.added_delay_s, each.saved_s_high) for each in outcome.changes] == (
        [(Lever.NICE, 300.0, None)] if noted else []
    )


def test_the_end_of_a_change_is_noted_once_even_as_the_job_goes() -> None:
    at_work = Follower()
    at_work.follow(seen([make_job()]), NO_FORECASTS, leases=[lent()])
    ended = lent().ended(Ending.NO_LONGER_PENDING, TAKEN_AT + 60.0)

    (outcome,) = at_work.follow(seen([], 1), NO_FORECASTS, leases=[ended])

    assert [(each.ending, each.ended_time) for each in outcome.changes] == [(Ending.NO_LONGER_PENDING, TAKEN_AT + 60.0)]


def test_somebody_elses_change_is_noted() -> None:
    at_work = Follower()
    at_work.follow(seen([make_job()]), NO_FORECASTS, leases=[lent()])
    overruled = replace(lent(state=LeaseState.HANDS_OFF), overruled_time=TAKEN_AT + 60.0)

    (outcome,) = at_work.follow(seen([make_job()], 1), NO_FORECASTS, leases=[overruled])

    assert outcome.changes[0].overruled_time == TAKEN_AT + 60.0


def test_a_renewal_that_came_to_nothing_is_no_second_change() -> None:
    at_work = Follower()
    at_work.follow(seen([make_job()]), NO_FORECASTS, leases=[lent()])

    told = at_work.follow(seen([make_job()], 2), NO_FORECASTS, leases=[lent(at=TAKEN_AT + 60.0)])

    assert told == ()


def test_change_that_was_never_read_back_before_its_job_started_is_not_counted() -> None:
    at_work = Follower()
    at_work.follow(seen([make_job()]), NO_FORECASTS)
    unknown = lent(at=TAKEN_AT + 60.0, state=LeaseState.INTENDED).ended(Ending.NO_LONGER_PENDING, TAKEN_AT + 120.0)

    outcomes = at_work.follow(seen([make_job()], 2), NO_FORECASTS, leases=[unknown])

    assert outcomes == ()


def test_leases_of_jobs_that_are_not_followed_are_none_of_its_business() -> None:
    assert Follower().follow(seen([]), NO_FORECASTS, leases=[lent()]) == ()


def test_the_forecast_before_the_first_change_is_kept() -> None:
    cluster = fragmented()
    step = Applier(source=cluster, actuator=cluster, cycle=Cycle()).step()
    forecasts = Forecasts(by_job={9: FORECASTS.of(1)})
    at_work = Follower()

    told = at_work.follow(step.record.snapshot, forecasts, applied=step.record.recommendations)

    (changed,) = [outcome for outcome in told if outcome.changes]
    assert changed.job_id == HOLD.job_id
    assert changed.changed_forecast is not None and changed.changed_forecast.made_time == TAKEN_AT


def test_a_change_to_a_job_that_is_not_followed_is_dropped() -> None:
    cluster = fragmented()
    step = Applier(source=cluster, actuator=cluster, cycle=Cycle()).step()

    assert Follower().follow(seen([]), NO_FORECASTS, applied=step.record.recommendations) == ()


def test_ten_thousand_jobs_of_which_few_change_are_followed_in_little_time() -> None:
    gang = make_gang(4)
    jobs = [make_job(job_id, gang=gang) for job_id in range(1, 10_001)]
    at_work = Follower()
    at_work.follow(seen(jobs), NO_FORECASTS)
    later = [replace(job, start_time=TAKEN_AT + job.job_id) for job in jobs[:-100]]
    snapshot = seen(later, 1)
    assert len(snapshot.jobs_by_id) == 9_900

    began = time.process_time()
    told = at_work.follow(snapshot, NO_FORECASTS)
    took_s = time.process_time() - began

    assert len(told) == 100
    # Measured at 20 ms; the bound only tells linear from worse on a busy machine.
    assert took_s < 0.2


def test_the_nodes_of_the_latest_run_are_kept() -> None:
    moved = replace(running(cycle=3), allocation=Allocation(nodes=("n2", "n3"), gpus=(GpuCount(count=1),)))

    told = followed([make_job()], [running(cycle=1)], [make_job()], [moved], [])

    nodes = [outcome.nodes for outcomes in told for outcome in outcomes]
    assert nodes[0] == () and nodes[1] == ("n1",) and nodes[-1] == ("n2", "n3")
