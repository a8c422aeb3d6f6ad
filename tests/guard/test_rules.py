"""Every rule, by the case it is there for."""

from dataclasses import replace

import pytest

from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import ArrayRecord, HetRecord, Job, JobState
from advisor.domain.lease import Ending, LeaseState, intended
from advisor.domain.limits import APART_S, QUANTUM_S, Limits
from advisor.domain.plan import (
    Expected,
    Kind,
    NodeRange,
    Plan,
    Reason,
    Recommendation,
    Requeue,
    SetGpus,
    SetNice,
    SetNodeRange,
    SetTimeMin,
)
from advisor.domain.site import SiteConfig
from advisor.guard.rules import (
    CHANGE_RULES,
    JOB_RULES,
    VICTIM_RULES,
    Circumstances,
    circumstances,
    judge,
    refusals,
    stoppable,
)
from tests.builders import TAKEN_AT, make_config, make_gang, make_hints, make_job, make_snapshot

PLAIN = make_job(1, gpus=4)


def nice(job_id: int = 1, *, before: int = 0, after: int = 50, delay_s: float = 600.0) -> Recommendation:
    """Propose a nice."""
    return Recommendation(
        kind=Kind.REORDER,
        action=SetNice(job_id=job_id, before=before, after=after),
        reason=Reason.LONG_WORK_AHEAD,
        text="",
        expected=Expected(
            saved_s_low=1.0, saved_s_high=2.0, jobs_helped=1, added_delay_max_s=delay_s, assumes="nothing"
        ),
        evidence={},
    )


def gpus(before: int, after: int) -> Recommendation:
    """Propose a total GPU count."""
    action = SetGpus(job_id=1, scope=GpuScope.JOB, before=(GpuCount(count=before),), after=(GpuCount(count=after),))
    return replace(nice(delay_s=0.0), kind=Kind.RESIZE, action=action)


def soft_limit(after: float | None, *, before: float | None = None) -> Recommendation:
    """Propose a soft limit in seconds."""
    return replace(nice(delay_s=0.0), action=SetTimeMin(job_id=1, before=before, after=after))


SOFT = make_config(scheduler_parameters={"time_min_as_soft_limit": ""})


def refused_by(
    change: Recommendation, *jobs: Job, limits: Limits | None = None, config: SiteConfig | None = None
) -> str | None:
    """Judge one change to a queue."""
    snapshot = make_snapshot(jobs, config=config)
    verdicts = judge(Plan(recommendations=(change,)), snapshot, circumstances(snapshot, limits or Limits()))
    return verdicts[0].refused_by


def test_plain_change_passes() -> None:
    assert refused_by(nice(), PLAIN) is None


@pytest.mark.parametrize(
    ("rule", "job"),
    [
        ("job_still_pending", replace(PLAIN, state=JobState.RUNNING)),
        ("gpus_known", replace(PLAIN, gang=make_gang(4, gpus_known=False))),
        ("not_held", replace(PLAIN, held=True)),
        ("not_dependent", replace(PLAIN, dependency="afterok:7")),
        ("not_deferred", replace(PLAIN, eligible_time=TAKEN_AT + 60)),
        ("not_deferred", replace(PLAIN, reason="BeginTime")),
        ("array_not_split", replace(PLAIN, array=ArrayRecord(array_job_id=1, task_id=3))),
        ("not_heterogeneous", replace(PLAIN, het=HetRecord(het_job_id=1, offset=0))),
        ("not_cron", replace(PLAIN, cron=True)),
        ("not_reserved", replace(PLAIN, reservation="class")),
        ("not_opted_out", replace(PLAIN, hints=make_hints(opted_out=True))),
        ("old_enough", replace(PLAIN, submit_time=TAKEN_AT - 59)),
    ],
)
def test_job_that_must_not_be_touched_is_refused_by_name(rule: str, job: Job) -> None:
    assert refused_by(nice(), job) == rule


def test_every_job_rule_has_a_case() -> None:
    marks = test_job_that_must_not_be_touched_is_refused_by_name.pytestmark  # type: ignore[attr-defined]
    cases = {case[0] for mark in marks for case in mark.args[1]}

    assert set(JOB_RULES) == cases | {"no_change_outstanding", "update_has_no_side_effect"}
    assert set(CHANGE_RULES) == {
        "before_still_true",
        "nice_within_limits",
        "delay_within_limits",
        "long_waiter_not_delayed",
        "gpus_unchanged_by_nodes",
        "size_within_range",
        "shrinking_survives_limit",
        "soft_limit_is_soft",
        "soft_limit_within_limit",
        "users_time_min_kept",
    }


def test_whole_array_may_be_changed_but_not_once_a_task_has_split_off() -> None:
    whole = replace(PLAIN, array=ArrayRecord(array_job_id=1, waiting="3-6"))
    task = make_job(7, gpus=4, array=ArrayRecord(array_job_id=1, task_id=2), running_on=["n01"])

    assert refused_by(nice(), whole) is None
    assert refused_by(nice(), whole, task) == "array_not_split"


def test_node_range_with_gpus_per_node_is_left_alone() -> None:
    job = replace(PLAIN, gang=make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=4))

    assert refused_by(nice(), job) == "update_has_no_side_effect"


def test_no_array_is_changed_where_splits_do_not_show() -> None:
    whole = replace(PLAIN, array=ArrayRecord(array_job_id=1, waiting="3-6"))
    snapshot = replace(make_snapshot([whole]), splits_told=False)

    assert refusals(snapshot, circumstances(snapshot, Limits())) == {1: "array_not_split"}


def test_job_with_cpus_per_gpu_is_left_alone_on_the_release_that_weighs_it_anew() -> None:
    job = replace(PLAIN, gang=make_gang(4, cpus_per_gpu=2))

    for version, refused in (("22.05.8", {1: "update_has_no_side_effect"}), ("24.11.5", {})):
        snapshot = make_snapshot([job], config=make_config(slurm_version=version))
        assert refusals(snapshot, circumstances(snapshot, Limits())) == refused


def test_job_that_left_the_queue_is_refused() -> None:
    assert refused_by(nice(job_id=99), PLAIN) == "job_still_pending"


def test_job_with_a_change_under_way_is_refused() -> None:
    snapshot = make_snapshot([PLAIN])
    around = circumstances(snapshot, Limits(), frozenset({1}))

    assert judge(Plan(recommendations=(nice(),)), snapshot, around)[0].refused_by == "no_change_outstanding"
    assert refusals(snapshot, around) == {1: "no_change_outstanding"}


def test_second_change_to_one_job_is_refused() -> None:
    snapshot = make_snapshot([PLAIN])

    verdicts = judge(Plan(recommendations=(nice(), nice())), snapshot, circumstances(snapshot, Limits()))

    assert [verdict.refused_by for verdict in verdicts] == [None, "no_change_outstanding"]


def test_changes_beyond_the_cap_are_refused() -> None:
    snapshot = make_snapshot([PLAIN, make_job(2)])
    plan = Plan(recommendations=(nice(), nice(job_id=2)))

    verdicts = judge(plan, snapshot, circumstances(snapshot, Limits(max_changes=1)))

    assert [verdict.refused_by for verdict in verdicts] == [None, "changes_within_cap"]


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("before_still_true", nice(before=3)),
        ("nice_within_limits", nice(after=10_001)),
        ("nice_within_limits", nice(after=-1)),
        ("delay_within_limits", nice(delay_s=6 * 3600.0 + 1)),
        ("size_within_range", gpus(4, 9)),
        ("size_within_range", gpus(4, 1)),
        ("shrinking_survives_limit", gpus(4, 2)),
    ],
)
def test_change_out_of_bounds_is_refused_by_name(rule: str, change: Recommendation) -> None:
    job = replace(PLAIN, hints=make_hints(gpus=(2, 8)))

    assert refused_by(change, job) == rule


def test_growing_within_the_range_passes_and_shrinking_needs_a_checkpoint_or_no_limit() -> None:
    hinted = replace(PLAIN, hints=make_hints(gpus=(2, 8)))

    assert refused_by(gpus(4, 8), hinted) is None
    assert refused_by(gpus(4, 2), replace(hinted, time_limit_s=None)) is None
    assert refused_by(gpus(4, 2), replace(hinted, hints=make_hints(gpus=(2, 8), checkpoint_s=60.0))) is None


def test_narrowing_nodes_is_refused_where_gpus_are_counted_per_node() -> None:
    action = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
    change = replace(nice(), kind=Kind.CONSOLIDATE, action=action)

    per_node = replace(PLAIN, gang=make_gang(8, scope=GpuScope.SOCKET, nodes_min=1, nodes_max=4))
    in_all = replace(PLAIN, gang=make_gang(8, nodes_min=1, nodes_max=4))

    assert refused_by(change, per_node) == "gpus_unchanged_by_nodes"
    assert refused_by(change, in_all) is None


def test_soft_limit_between_a_minute_and_the_limit_passes() -> None:
    for after_s in (60.0, 3600.0, 86_400.0):
        assert refused_by(soft_limit(after_s), PLAIN, config=SOFT) is None


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(make_config(), id="without the parameter"),
        pytest.param(replace(SOFT, slurm_version="22.05.8"), id="a release that does not know it"),
        pytest.param(replace(SOFT, slurm_version=""), id="an unknown release"),
    ],
)
def test_soft_limit_is_refused_where_slurm_would_shorten_the_job(config: SiteConfig) -> None:
    assert refused_by(soft_limit(3600.0), PLAIN, config=config) == "soft_limit_is_soft"


@pytest.mark.parametrize(
    ("change", "job"),
    [
        pytest.param(soft_limit(59.0), PLAIN, id="below a minute"),
        pytest.param(soft_limit(86_460.0), PLAIN, id="above the limit"),
        pytest.param(soft_limit(3600.0), replace(PLAIN, time_limit_s=None), id="no limit"),
        pytest.param(soft_limit(None), PLAIN, id="none"),
    ],
)
def test_soft_limit_out_of_bounds_is_refused(change: Recommendation, job: Job) -> None:
    assert refused_by(change, job, config=SOFT) == "soft_limit_within_limit"


def test_time_min_that_is_there_already_is_kept() -> None:
    job = replace(PLAIN, time_min_s=1800.0)

    assert refused_by(soft_limit(3600.0, before=1800.0), job, config=SOFT) == "users_time_min_kept"
    assert refused_by(soft_limit(3600.0), job, config=SOFT) == "before_still_true"


def test_resize_without_a_declared_range_is_refused() -> None:
    assert refused_by(gpus(4, 8), PLAIN) == "size_within_range"


def test_long_waiter_is_not_delayed_but_may_be_helped() -> None:
    old = replace(
        PLAIN, submit_time=TAKEN_AT - 200_000, eligible_time=TAKEN_AT - 200_000, hints=make_hints(gpus=(2, 8))
    )

    assert refused_by(nice(), old) == "long_waiter_not_delayed"
    assert refused_by(gpus(4, 8), old) is None


VICTIM = make_job(
    1,
    gpus=4,
    running_on=["n01"],
    started_ago_s=QUANTUM_S,
    hints=make_hints(checkpoint_s=300.0),
    requeueable=True,
)
ALLOWED = Limits(preempt_partitions="debug, gpu")


def stop(job: Job = VICTIM, *, for_job_id: int = 9, delay_s: float = 600.0) -> Recommendation:
    """Propose to stop a running job."""
    action = Requeue(job_id=job.job_id, for_job_id=for_job_id, before=job.start_time)
    return replace(nice(delay_s=delay_s), kind=Kind.PREEMPT, action=action)


def preempting(
    *jobs: Job, limits: Limits = ALLOWED, on: bool = True, stopped_ago_s: float | None = None
) -> Circumstances:
    """What the rules look at where jobs may be stopped; job 1 was stopped before if `stopped_ago_s` says when."""
    snapshot = make_snapshot(jobs)
    leases = []
    if stopped_ago_s is not None:
        action = Requeue(job_id=1, for_job_id=8, before=1.0)
        lease = replace(intended(action, TAKEN_AT - stopped_ago_s), state=LeaseState.INTENDED)
        leases.append(lease.ended(Ending.DONE_FOR_GOOD, TAKEN_AT - stopped_ago_s))
    return circumstances(snapshot, limits, preempts=on, leases=leases)


def stop_refused_by(change: Recommendation, *jobs: Job, around: Circumstances | None = None) -> str | None:
    """Judge one job that would be stopped."""
    snapshot = make_snapshot(jobs)
    return judge(Plan(recommendations=(change,)), snapshot, around or preempting(*jobs))[0].refused_by


def test_running_job_that_saves_its_work_may_be_stopped_where_the_site_allows_it() -> None:
    assert stop_refused_by(stop(), VICTIM) is None
    assert stoppable(make_snapshot([VICTIM]), preempting(VICTIM)) == {1}


@pytest.mark.parametrize(
    ("rule", "job"),
    [
        pytest.param("job_still_running", make_job(1, gpus=4, hints=VICTIM.hints, requeueable=True), id="pending"),
        pytest.param("job_still_running", replace(VICTIM, state=JobState.COMPLETING), id="completing"),
        pytest.param("job_still_running", replace(VICTIM, state=JobState.SUSPENDED), id="suspended"),
        pytest.param("job_still_running", replace(VICTIM, allocation=None), id="nowhere"),
        pytest.param("declares_checkpoint", replace(VICTIM, hints=make_hints()), id="no checkpoint"),
        pytest.param("declares_checkpoint", replace(VICTIM, hints=make_hints(checkpoint_s=0.0)), id="no interval"),
        pytest.param("requeueable", replace(VICTIM, requeueable=False), id="--no-requeue"),
        pytest.param("partition_allows_it", replace(VICTIM, partitions=("long",)), id="another partition"),
        pytest.param("partition_allows_it", replace(VICTIM, partitions=("gpu", "long")), id="one of two partitions"),
        pytest.param("partition_allows_it", replace(VICTIM, partitions=()), id="no partition"),
        pytest.param("quantum_over", replace(VICTIM, start_time=TAKEN_AT - QUANTUM_S + 1), id="just started"),
        pytest.param("array_not_split", replace(VICTIM, array=ArrayRecord(array_job_id=1, task_id=3)), id="array task"),
        pytest.param("not_heterogeneous", replace(VICTIM, het=HetRecord(het_job_id=1, offset=0)), id="het"),
        pytest.param("not_cron", replace(VICTIM, cron=True), id="cron"),
        pytest.param("not_reserved", replace(VICTIM, reservation="class"), id="reserved"),
        pytest.param(
            "not_opted_out", replace(VICTIM, hints=make_hints(checkpoint_s=300.0, opted_out=True)), id="opted out"
        ),
    ],
)
def test_running_job_that_must_not_be_stopped_is_refused_by_name(rule: str, job: Job) -> None:
    assert stop_refused_by(stop(job), job) == rule
    assert stoppable(make_snapshot([job]), preempting(job)) == frozenset()


def test_every_rule_for_victims_has_a_case() -> None:
    marks = test_running_job_that_must_not_be_stopped_is_refused_by_name.pytestmark  # type: ignore[attr-defined]
    cases = {case.values[0] for mark in marks for case in mark.args[1]}

    assert set(VICTIM_RULES) == cases | {"preemption_on", "not_stopped_lately", "no_change_outstanding"}


def test_nobody_is_stopped_unless_that_is_switched_on_and_a_partition_named() -> None:
    off, nowhere = preempting(VICTIM, on=False), preempting(VICTIM, limits=Limits())

    assert stop_refused_by(stop(), VICTIM, around=off) == "preemption_on"
    assert stop_refused_by(stop(), VICTIM, around=nowhere) == "partition_allows_it"
    assert stoppable(make_snapshot([VICTIM]), off) == stoppable(make_snapshot([VICTIM]), nowhere) == frozenset()


def test_nobody_is_stopped_twice_within_an_hour() -> None:
    lately, long_ago = (preempting(VICTIM, stopped_ago_s=ago_s) for ago_s in (APART_S - 1, APART_S))

    assert stop_refused_by(stop(), VICTIM, around=lately) == "not_stopped_lately"
    assert stop_refused_by(stop(), VICTIM, around=long_ago) is None


def test_run_that_was_to_be_stopped_must_be_the_one_that_runs() -> None:
    other = replace(VICTIM, start_time=TAKEN_AT - 2 * QUANTUM_S)

    assert stop_refused_by(stop(VICTIM), other) == "before_still_true"
    assert stop_refused_by(stop(VICTIM), replace(VICTIM, job_id=2)) == "job_still_running"


def test_nobody_is_kept_waiting_beyond_the_published_bounds() -> None:
    patient = replace(VICTIM, eligible_time=VICTIM.submit_time - 47 * 3600.0)
    long_waiter = replace(VICTIM, eligible_time=VICTIM.submit_time - 49 * 3600.0)

    assert stop_refused_by(stop(delay_s=6 * 3600.0 + 1), VICTIM) == "delay_within_limits"
    assert stop_refused_by(stop(), long_waiter) == "long_waiter_not_delayed"
    # What counts is how long it waited before it started, not how long it has been running since.
    assert stop_refused_by(stop(), patient) is None


def test_of_the_jobs_in_the_way_of_one_gang_all_are_stopped_or_none() -> None:
    second, other = replace(VICTIM, job_id=2, requeueable=False), replace(VICTIM, job_id=3)
    snapshot = make_snapshot([VICTIM, second, other])
    plan = Plan(recommendations=(stop(VICTIM), stop(second), stop(other, for_job_id=8)))

    verdicts = judge(plan, snapshot, preempting(VICTIM, second, other))

    assert [verdict.refused_by for verdict in verdicts] == ["all_victims_or_none", "requeueable", None]


def test_running_jobs_are_changed_in_no_other_way() -> None:
    assert stop_refused_by(replace(nice(), action=SetNice(job_id=1, before=0, after=50)), VICTIM) == "job_still_pending"


def test_refusals_cover_pending_gpu_jobs_only() -> None:
    cpu_only = replace(make_job(2, gang=make_gang(0)), held=True)
    unknown = replace(make_job(3, gang=make_gang(0, gpus_known=False)))
    running = make_job(4, running_on=["n01"])
    snapshot = make_snapshot([PLAIN, cpu_only, unknown, running])

    assert refusals(snapshot, circumstances(snapshot, Limits())) == {3: "gpus_known"}


@pytest.mark.parametrize(
    "bounds",
    [{"min_job_age_s": -1.0}, {"max_job_wait_s": -1.0}, {"max_changes": -1}, {"nice_min": 5, "nice_max": 4}],
)
def test_senseless_limits_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must not be"):
        Limits(**bounds)  # type: ignore[arg-type]
