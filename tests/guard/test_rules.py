"""Every rule about a job and about a change to it, by the case it is there for."""

import math
from dataclasses import fields, replace

import pytest

from advisor.domain.actions import Lever, NodeRange, SetNodeList, SetNodeRange
from advisor.domain.gang import GpuScope
from advisor.domain.job import ArrayRecord, HetRecord, Job, JobState
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.mode import Mode, Modes
from advisor.domain.plan import Kind, Plan, Recommendation
from advisor.domain.site import SiteConfig
from advisor.guard.change_rules import CHANGE_RULES
from advisor.guard.circumstances import circumstances
from advisor.guard.job_rules import LARGEST_LOCAL_ID, NICE_RULES
from advisor.guard.rules import judge, permitted, refusals
from advisor.settings import Fairness, Limits
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
)
from tests.guard.proposals import PLAIN, SOFT, gpus, lent, nice, refused_by, soft_limit, timer


def test_plain_change_passes() -> None:
    assert refused_by(timer(), PLAIN) is None


@pytest.mark.parametrize(
    ("rule", "job"),
    [
        ("job_still_pending", replace(PLAIN, state=JobState.RUNNING)),
        ("gpus_known", replace(PLAIN, gang=make_gang(4, gpus_known=False))),
        ("nothing_unseen", replace(PLAIN, unseen=("comment",))),
        ("not_held", replace(PLAIN, held=True)),
        ("not_dependent", replace(PLAIN, dependency="afterok:7")),
        ("not_deferred", replace(PLAIN, eligible_time=TAKEN_AT + 60)),
        ("not_deferred", replace(PLAIN, reason="BeginTime")),
        ("not_split_off", replace(PLAIN, array=ArrayRecord(array_job_id=7, task_id=3))),
        ("not_heterogeneous", replace(PLAIN, het=HetRecord(het_job_id=1, offset=0))),
        ("not_federated", replace(PLAIN, job_id=LARGEST_LOCAL_ID + 1)),
        ("not_cron", replace(PLAIN, cron=True)),
        ("not_reserved", replace(PLAIN, reservation="class")),
        ("not_opted_out", replace(PLAIN, hints=make_hints(opted_out=True))),
        ("old_enough", replace(PLAIN, submit_time=TAKEN_AT - 59)),
    ],
)
def test_job_that_must_not_be_touched_is_refused_by_name(rule: str, job: Job) -> None:
    change = nice(job.job_id) if rule == "not_split_off" else timer(job.job_id)

    assert refused_by(change, job) == rule


def test_every_job_rule_has_a_case() -> None:
    marks = test_job_that_must_not_be_touched_is_refused_by_name.pytestmark  # type: ignore[attr-defined]
    cases = {case[0] for mark in marks for case in mark.args[1]}

    assert set(NICE_RULES) == cases | {
        "no_bar",
        "no_change_outstanding",
        "update_has_no_side_effect",
        "mode_allows_advice",
        "no_person_objected",
        "cooldown_over",
    }


def test_lifted_job_is_lifted_again_only_once_it_is_too_late() -> None:
    snapshot = make_snapshot([PLAIN])
    lifted = circumstances(snapshot, Limits(), lifted=frozenset({1}))
    overdue = circumstances(snapshot, Limits(), lifted=frozenset({1}), overdue=frozenset({1}))

    (again,) = judge(Plan(recommendations=(nice(1),)), snapshot, lifted)
    (timed,) = judge(Plan(recommendations=(timer(1),)), snapshot, lifted)
    (late,) = judge(Plan(recommendations=(nice(1),)), snapshot, overdue)

    assert (again.refused_by, timed.refused_by, late.refused_by) == ("lifted_once", None, None)


@pytest.mark.parametrize(("late_s", "rule"), [(0.0, "lifted_once"), (1.0, None)])
def test_lifted_job_that_is_a_second_late_by_our_changes_is_lifted_again(late_s: float, rule: str | None) -> None:
    snapshot = make_snapshot([PLAIN])
    back = replace(lent(ending=Ending.TAKEN_BACK, ended_ago_s=DAY_S), would_start_time=TAKEN_AT - late_s)
    around = circumstances(snapshot, Limits(), lifted=frozenset({1}), leases=[back])

    (verdict,) = judge(Plan(recommendations=(nice(1),)), snapshot, around)

    assert verdict.refused_by == rule
    assert permitted(snapshot, around).late_s == ({1: late_s} if late_s else {})


def test_field_that_the_reader_does_not_show_is_not_changed() -> None:
    hidden = replace(make_snapshot([PLAIN]), hidden_levers=(Lever.NICE,))

    verdicts = judge(Plan(recommendations=(nice(1),)), hidden, circumstances(hidden, Limits()))

    assert [verdict.refused_by for verdict in verdicts] == ["field_shown"]


def test_whole_array_may_be_changed_but_once_a_task_has_split_off_only_its_nice() -> None:
    whole = replace(PLAIN, array=ArrayRecord(array_job_id=1, waiting="3-6"))
    task = make_job(7, gpus=4, array=ArrayRecord(array_job_id=1, task_id=2), running_on=["n01"])

    assert refused_by(soft_limit(600.0), whole, config=SOFT) is None
    assert refused_by(soft_limit(600.0), whole, task, config=SOFT) == "array_not_split"
    assert refused_by(timer(), whole) is None
    assert refused_by(timer(), whole, task) == "array_not_split"
    assert refused_by(nice(), whole, task) is None


def test_last_waiting_task_of_an_array_has_the_record_of_the_array() -> None:
    last = replace(PLAIN, array=ArrayRecord(array_job_id=1, task_id=6))
    task = make_job(7, gpus=4, array=ArrayRecord(array_job_id=1, task_id=2), running_on=["n01"])

    assert refused_by(nice(), last, task) is None


def test_permits_name_the_arrays_whose_nice_alone_can_be_changed() -> None:
    started = replace(PLAIN, array=ArrayRecord(array_job_id=1, waiting="3-6"))
    running = make_job(7, gpus=4, array=ArrayRecord(array_job_id=1, task_id=2), running_on=["n01"])
    requeued = make_job(8, gpus=4, array=ArrayRecord(array_job_id=1, task_id=1))
    held = make_job(9, gpus=4, held=True, array=ArrayRecord(array_job_id=9, waiting="0-3"))
    snapshot = replace(make_snapshot([started, running, requeued, held]), splits_told=False)

    permits = permitted(snapshot, circumstances(snapshot, Limits()))

    assert permits.left_alone == {1: "array_not_split", 8: "array_not_split", 9: "not_held"}
    assert permits.nice_only == {1}


def test_no_array_is_changed_but_by_its_nice_where_splits_do_not_show() -> None:
    whole = replace(PLAIN, array=ArrayRecord(array_job_id=1, waiting="3-6"))
    snapshot = replace(make_snapshot([whole]), splits_told=False)

    assert refusals(snapshot, circumstances(snapshot, Limits())) == {1: "array_not_split"}
    assert judge(Plan(recommendations=(nice(),)), snapshot, circumstances(snapshot, Limits()))[0].refused_by is None


def test_job_with_cpus_per_gpu_is_left_alone_on_the_release_that_weighs_it_anew() -> None:
    job = replace(PLAIN, gang=make_gang(4, cpus_per_gpu=2))

    for version, refused in (("22.05.8", {1: "update_has_no_side_effect"}), ("24.11.5", {})):
        snapshot = make_snapshot([job], config=make_config(slurm_version=version))
        assert refusals(snapshot, circumstances(snapshot, Limits())) == refused


def test_job_that_left_the_queue_is_refused() -> None:
    assert refused_by(timer(job_id=99), PLAIN) == "job_still_pending"


def test_job_with_a_change_under_way_is_refused() -> None:
    snapshot = make_snapshot([PLAIN])
    around = circumstances(snapshot, Limits(), frozenset({1}))

    assert judge(Plan(recommendations=(timer(),)), snapshot, around)[0].refused_by == "no_change_outstanding"
    assert refusals(snapshot, around) == {1: "no_change_outstanding"}


@pytest.mark.parametrize(
    "modes",
    [
        pytest.param(Modes(), id="by default"),
        pytest.param(Modes(default=Mode.APPLY, partitions="gpu=observe"), id="by partition"),
        pytest.param(Modes(default=Mode.APPLY, accounts="lab=observe"), id="by account"),
    ],
)
def test_job_that_is_only_observed_gets_no_advice(modes: Modes) -> None:
    assert refused_by(timer(), PLAIN, modes=modes) == "mode_allows_advice"


def test_job_of_another_partition_and_account_than_those_observed_gets_advice() -> None:
    modes = Modes(default=Mode.OBSERVE, partitions="gpu=recommend", accounts="lab=apply")
    snapshot = make_snapshot([PLAIN, replace(PLAIN, job_id=2, account="other", partitions=("cpu",))])

    assert refusals(snapshot, circumstances(snapshot, Limits(), modes=modes)) == {2: "mode_allows_advice"}


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(lent(ending=Ending.REVERTED, ended_ago_s=900.0), id="reverted"),
        pytest.param(lent(ending=Ending.OVERRULED, ended_ago_s=900.0), id="overruled in an earlier wait"),
        pytest.param(replace(lent(), state=LeaseState.HANDS_OFF), id="overruled"),
        pytest.param(replace(lent(), state=LeaseState.RETURNING, by_person=True), id="being reverted"),
    ],
)
def test_job_whose_change_a_person_did_not_want_is_left_alone_for_good(lease: Lease) -> None:
    snapshot = make_snapshot([PLAIN])

    assert refused_by(timer(), PLAIN, leases=[lease]) == "no_person_objected"
    assert refusals(snapshot, circumstances(snapshot, Limits(), leases=[lease])) == {1: "no_person_objected"}


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(lent(ago_s=599.0), id="changed"),
        pytest.param(lent(ending=Ending.TAKEN_BACK, ended_ago_s=599.0, due_after_s=60.0), id="taken back"),
        pytest.param(lent(ending=Ending.NOT_APPLIED, ended_ago_s=599.0), id="refused by Slurm"),
        pytest.param(lent(ago_s=-3600.0), id="by a clock that went back"),
        pytest.param(lent(ago_s=599.0, ending=Ending.NO_LONGER_PENDING), id="changed in an earlier wait"),
    ],
)
def test_job_that_was_changed_lately_is_left_alone_for_a_while(lease: Lease) -> None:
    assert refused_by(timer(), PLAIN, leases=[lease]) == "cooldown_over"
    assert refused_by(timer(2), PLAIN, replace(PLAIN, job_id=2), leases=[lease]) is None


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param(lent(ago_s=600.0), id="changed"),
        pytest.param(lent(ending=Ending.TAKEN_BACK, ended_ago_s=600.0, due_after_s=60.0), id="taken back"),
        pytest.param(lent(ending=Ending.NO_LONGER_PENDING), id="back in the queue"),
    ],
)
def test_cooldown_ends(lease: Lease) -> None:
    assert refused_by(timer(), PLAIN, leases=[lease]) is None


HELD_TIGHT = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))


def test_timer_that_ran_its_course_leaves_the_job_to_the_timer_of_the_next_tier() -> None:
    over = lent(action=HELD_TIGHT, ago_s=300.0, due_after_s=300.0, ending=Ending.TAKEN_BACK)
    cut_short = replace(over, due_time=TAKEN_AT + 1.0)

    assert refused_by(timer(), PLAIN, leases=[over]) is None
    assert refused_by(timer(), PLAIN, leases=[cut_short]) == "cooldown_over"
    assert refused_by(timer(), PLAIN, leases=[over, lent(ago_s=599.0)]) == "cooldown_over"


def test_lift_that_is_out_leaves_the_job_to_a_timer_and_one_put_back_does_not() -> None:
    out = lent(action=nice().action, ago_s=1.0, delay_s=0.0, due_after_s=DAY_S)
    put_back = replace(out, ending=Ending.TAKEN_BACK, ended_time=TAKEN_AT - 1.0, due_time=TAKEN_AT - 1.0)

    assert refused_by(timer(), PLAIN, leases=[out]) is None
    assert refused_by(timer(), PLAIN, leases=[put_back]) == "cooldown_over"
    assert refused_by(timer(), PLAIN, leases=[out, lent(ago_s=599.0)]) == "cooldown_over"


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("before_still_true", nice(before=3)),
        ("nice_within_limits", nice(after=-2_000_000_001)),
        ("shrinking_survives_limit", gpus(4, 2)),
    ],
)
def test_change_out_of_bounds_is_refused_by_name(rule: str, change: Recommendation) -> None:
    job = replace(PLAIN, hints=make_hints(gpus=(2, 8)))

    assert refused_by(change, job) == rule


def test_nice_of_the_users_own_can_be_lowered_and_is_not_raised() -> None:
    assert refused_by(nice(before=9_999, after=9_997), replace(PLAIN, nice=9_999)) is None
    assert refused_by(nice(before=-50, after=-47), replace(PLAIN, nice=-50)) == "lifts_only"


@pytest.mark.parametrize(
    ("latest_s", "rule"),
    [(6 * HOUR_S + 60.0, None), (6 * HOUR_S + 61.0, "starts_within_bound"), (math.inf, "starts_within_bound")],
)
def test_job_is_not_delayed_unless_running_jobs_release_its_gpus_in_time_by_their_limits(
    latest_s: float, rule: str | None
) -> None:
    change = replace(timer(), planned_start=TAKEN_AT + 60.0, latest_start=TAKEN_AT + latest_s)

    assert refused_by(change, PLAIN) == rule


def test_job_is_not_delayed_if_its_start_as_submitted_is_unknown() -> None:
    change = replace(timer(), planned_start=None, latest_start=TAKEN_AT + 60.0)

    assert refused_by(change, PLAIN) == "starts_within_bound"


@pytest.mark.parametrize(
    ("fairness", "late_s", "rule"),
    [
        ("site", 0.0, None),
        ("trade", 0.0, None),
        ("account", 0.0, "lift_within_fairness"),
        ("user", 0.0, "lift_within_fairness"),
        ("user", 1.0, None),
    ],
)
def test_jobs_of_others_are_passed_where_the_site_allows_it_or_by_a_job_that_we_delayed(
    fairness: Fairness, late_s: float, rule: str | None
) -> None:
    ended = lent(ago_s=4 * HOUR_S, ending=Ending.TAKEN_BACK, ended_ago_s=HOUR_S)
    late = replace(ended, would_start_time=TAKEN_AT - late_s)

    assert refused_by(nice(), PLAIN, limits=Limits(fairness=fairness), leases=[late]) == rule


@pytest.mark.parametrize(("after", "rule"), [(-500, None), (-501, "nice_within_limits")])
def test_job_is_lifted_as_far_as_the_least_nice(after: int, rule: str | None) -> None:
    late = replace(lent(ago_s=4 * HOUR_S, ending=Ending.TAKEN_BACK), would_start_time=TAKEN_AT - 1.0)

    assert refused_by(nice(after=after), PLAIN, limits=Limits(nice_min=-500), leases=[late]) == rule


def test_lift_of_a_job_that_was_not_delayed_waits_for_its_cooldown() -> None:
    assert refused_by(nice(), PLAIN, leases=[lent(ago_s=599.0, delay_s=0.0)]) == "cooldown_over"


def test_lift_of_a_delayed_job_does_not_wait_for_its_cooldown() -> None:
    just_back = lent(ago_s=4 * HOUR_S, ending=Ending.TAKEN_BACK, ended_ago_s=1.0)
    late = replace(just_back, would_start_time=TAKEN_AT - 3 * HOUR_S)

    assert refused_by(nice(after=-500), PLAIN, leases=[late]) is None
    assert refused_by(timer(delay_s=0.0), PLAIN, leases=[late]) == "cooldown_over"


LIMITED = replace(PLAIN, time_limit_s=HOUR_S, hints=make_hints(gpus=(2, 8)))


def sized(
    before: int, after: int, *, limit_s: float | None, limit_after_s: float | None, stretch: float = 2.0
) -> Recommendation:
    """Propose a total GPU count with a time limit; the job runs `stretch` times as long."""
    change = gpus(before, after, limits_s=(limit_s, limit_after_s))
    return replace(change, stretch=stretch)


def test_growing_within_the_range_passes_and_shrinking_needs_a_longer_limit_or_none() -> None:
    assert refused_by(sized(4, 8, limit_s=HOUR_S, limit_after_s=HOUR_S, stretch=0.5), LIMITED) is None
    assert refused_by(sized(4, 2, limit_s=None, limit_after_s=None), replace(LIMITED, time_limit_s=None)) is None
    assert refused_by(sized(4, 2, limit_s=HOUR_S, limit_after_s=2 * HOUR_S), LIMITED) is None
    # A forecast that the job loses no speed lowers nothing; one that it loses more raises the limit further.
    assert refused_by(sized(4, 2, limit_s=HOUR_S, limit_after_s=2 * HOUR_S, stretch=1.0), LIMITED) is None
    slower = sized(4, 2, limit_s=HOUR_S, limit_after_s=2 * HOUR_S, stretch=2.5)
    assert refused_by(slower, LIMITED) == "shrinking_survives_limit"


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        pytest.param(
            "shrinking_survives_limit",
            sized(4, 2, limit_s=HOUR_S, limit_after_s=2 * HOUR_S - 60),
            id="a minute short",
        ),
        pytest.param("shrinking_survives_limit", gpus(4, 2), id="limit not recorded"),
        pytest.param(
            "limit_raised_within_ratio",
            sized(4, 2, limit_s=HOUR_S, limit_after_s=4 * HOUR_S + 60),
            id="beyond the ratio",
        ),
        pytest.param(
            "limit_raised_within_ratio", sized(4, 8, limit_s=HOUR_S, limit_after_s=HOUR_S + 60), id="of a larger job"
        ),
        pytest.param("limit_raised_within_ratio", sized(4, 8, limit_s=HOUR_S, limit_after_s=HOUR_S - 60), id="lowered"),
    ],
)
def test_limit_is_raised_as_far_as_a_smaller_size_needs_and_never_lowered(rule: str, change: Recommendation) -> None:
    assert refused_by(change, LIMITED) == rule


def test_limit_of_a_job_without_one_is_not_set() -> None:
    change = sized(4, 2, limit_s=None, limit_after_s=HOUR_S)

    assert refused_by(change, replace(LIMITED, time_limit_s=None)) == "limit_raised_within_ratio"


def test_limit_is_not_lowered_by_a_smaller_size_either() -> None:
    lowered = sized(4, 2, limit_s=HOUR_S, limit_after_s=HOUR_S - 60, stretch=0.5)
    around = circumstances(make_snapshot([LIMITED]), Limits())

    assert not CHANGE_RULES["limit_raised_within_ratio"](lowered, LIMITED, around)


def test_limit_is_raised_as_far_as_the_ratio() -> None:
    assert refused_by(sized(4, 2, limit_s=HOUR_S, limit_after_s=4 * HOUR_S), LIMITED) is None


def test_limit_raised_twice_is_measured_by_that_of_the_user() -> None:
    first = sized(8, 4, limit_s=HOUR_S, limit_after_s=2 * HOUR_S).action
    raised = replace(LIMITED, time_limit_s=2 * HOUR_S)
    open_lease = lent(raised, action=first, ago_s=DAY_S, delay_s=0.0)
    over = replace(open_lease, ending=Ending.NO_LONGER_PENDING, ended_time=TAKEN_AT - DAY_S)
    again = sized(4, 2, limit_s=2 * HOUR_S, limit_after_s=5 * HOUR_S)

    assert refused_by(again, raised, leases=[open_lease]) == "limit_raised_within_ratio"
    assert refused_by(again, raised, leases=[over]) is None


@pytest.mark.parametrize(
    ("longest_s", "rule"), [(None, None), (2 * HOUR_S, None), (2 * HOUR_S - 60, "limit_within_partitions")]
)
def test_limit_is_raised_as_far_as_every_partition_admits(longest_s: float | None, rule: str | None) -> None:
    change = sized(4, 2, limit_s=HOUR_S, limit_after_s=2 * HOUR_S)
    partitions = [make_partition("gpu"), make_partition("short", max_time_s=longest_s)]
    snapshot = make_snapshot([replace(LIMITED, partitions=("gpu", "short"))], partitions=partitions)

    (verdict,) = judge(Plan(recommendations=(change,)), snapshot, circumstances(snapshot, Limits()))

    assert verdict.refused_by == rule


@pytest.mark.parametrize("partitions", [("elsewhere",), ()])
def test_limit_is_not_raised_in_an_unknown_partition(partitions: tuple[str, ...]) -> None:
    change = sized(4, 2, limit_s=HOUR_S, limit_after_s=2 * HOUR_S)

    assert refused_by(change, replace(LIMITED, partitions=partitions)) == "limit_within_partitions"


def test_narrowing_nodes_is_refused_where_gpus_are_counted_per_node() -> None:
    action = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
    change = replace(timer(), kind=Kind.CONSOLIDATE, action=action)

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

    assert refused_by(timer(), old) == "long_waiter_not_delayed"
    assert refused_by(gpus(4, 8), old) is None


def test_refusals_cover_pending_gpu_jobs_only() -> None:
    cpu_only = replace(make_job(2, gang=make_gang(0)), held=True)
    unknown = replace(make_job(3, gang=make_gang(0, gpus_known=False)))
    running = make_job(4, running_on=["n01"])
    snapshot = make_snapshot([PLAIN, cpu_only, unknown, running])

    assert refusals(snapshot, circumstances(snapshot, Limits())) == {3: "gpus_known"}


def test_delays_of_one_job_add_up() -> None:
    before = lent(delay_s=4 * 3600.0)

    assert refused_by(timer(delay_s=2 * 3600.0), PLAIN, leases=[before]) is None
    assert refused_by(timer(delay_s=2 * 3600.0 + 1), PLAIN, leases=[before]) == "total_delay_within_limit"
    assert refused_by(timer(delay_s=0.0), PLAIN, leases=[replace(before, added_delay_s=7 * 3600.0)]) is None


@pytest.mark.parametrize(
    "name",
    [
        each.name
        for each in fields(Limits)
        if each.name[:5] not in ("nice_", "preem", "fairn") and each.name != "max_limit_ratio"
    ],
)
def test_no_bound_is_negative(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must not be negative"):
        Limits(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", [0.99, math.nan])
def test_ratio_by_which_limits_are_raised_does_not_lower_them(ratio: float) -> None:
    with pytest.raises(ValueError, match="max_limit_ratio must be at least 1"):
        Limits(max_limit_ratio=ratio)


@pytest.mark.parametrize("nice", [1, -(2**31)])
def test_lowest_nice_is_one_that_lifts_and_that_slurm_takes(nice: int) -> None:
    with pytest.raises(ValueError, match="nice_min must not be above 0, nor below -2147483645"):
        Limits(nice_min=nice)


GANG_OF_TWO = make_job(1, gang=make_gang(16, nodes_min=2, nodes_max=2))


@pytest.mark.parametrize(
    ("rule", "names", "gang"),
    [
        ("users_nodes_kept", ("n01", "n02"), {"excluded_nodes": ("n03",)}),
        ("node_count_fixed", ("n01",), {}),
        ("node_count_fixed", ("n01", "n02"), {"nodes_max": 4}),
        ("named_nodes_free", ("n01", "n09"), {}),
    ],
)
def test_list_of_nodes_is_refused_by_name(rule: str, names: tuple[str, ...], gang: dict[str, object]) -> None:
    job = replace(GANG_OF_TWO, gang=replace(GANG_OF_TWO.gang, **gang))  # type: ignore[arg-type]
    change = replace(timer(1, delay_s=0.0), action=SetNodeList(job_id=1, before=(), after=names), revert_after_s=120.0)
    snapshot = make_snapshot([job], [make_node(f"n0{number}") for number in range(1, 5)])

    allowed, not_allowed = (
        judge(Plan(recommendations=(change,)), snapshot, circumstances(snapshot, Limits(), names_nodes=on))[
            0
        ].refused_by
        for on in (True, False)
    )

    assert (allowed, not_allowed) == (rule, "nodes_can_be_named")
