"""What holds for every plan, whatever the queue."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cycle import Cycle
from advisor.domain.actions import Lever, SetGpus, SetNice, SetNodeRange, SetSwitches
from advisor.domain.lease import Lease, LeaseState, intended
from advisor.domain.memory import Memory
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S, duration, gain
from advisor.features.queue import slurms_place
from advisor.planning.case import EVERY_LEVER
from advisor.planning.levers import missing_by_lever, need_of
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import sentence
from tests.builders import (
    make_config,
    make_gang,
    make_hints,
    make_job,
    make_node,
    make_snapshot,
    make_topology,
)
from tests.examples import examples
from tests.strategies import snapshots

# Low bounds, so that small random queues give the planner something to do.
# Without the shares of a user and an account, which leave the rest of a plan to the next cycle.
EAGER = Cycle(
    planning=PlanningSettings(min_saving_s=1.0),
    limits=Limits(
        max_added_delay_s=10 * DAY_S,
        max_changes_per_user=30,
        max_changes_per_account=30,
        max_user_delay_s=1000 * DAY_S,
        max_account_delay_s=1000 * DAY_S,
    ),
)


@st.composite
def contended(draw: st.DrawFn) -> Snapshot:
    """Draw a busy cluster with a queue of ordinary and elastic gangs."""
    nodes = [make_node(f"n{number:02}", used=draw(st.integers(0, 8))) for number in range(1, 7)]
    running = [
        make_job(500 + number, gpus=node.gpus[0].used or 0, running_on=[node.name], started_ago_s=0.0,
                 time_limit_s=draw(st.sampled_from([1800.0, HOUR_S, 10 * HOUR_S])))
        for number, node in enumerate(nodes)
        if node.gpus[0].used
    ]  # fmt: skip
    pending = []
    for job_id in range(1, draw(st.integers(2, 14))):
        gpus = draw(st.sampled_from([1, 2, 4, 8, 12, 16, 48]))
        declared = draw(st.none() | st.just((1, 16)))
        pending.append(
            make_job(
                job_id,
                gang=make_gang(gpus, nodes_min=1, nodes_max=draw(st.sampled_from([None, 1, 4])), tasks=3),
                priority=draw(st.integers(1, 3000)),
                time_limit_s=draw(st.sampled_from([600.0, HOUR_S, 5 * HOUR_S, 2 * DAY_S])),
                submitted_ago_s=draw(st.sampled_from([90.0, 600.0, HOUR_S, DAY_S])),
                hints=make_hints(gpus=declared, checkpoint_s=300.0),
            )
        )
    return make_snapshot([*running, *pending], nodes)


@pytest.mark.no_cover
@settings(max_examples=examples(150), deadline=None)
@given(snapshots())
def test_every_accepted_change_acts_on_a_job_that_may_be_changed(snapshot: Snapshot) -> None:
    record = EAGER.judge(snapshot)

    for change in record.recommendations:
        job = snapshot.jobs_by_id[change.job_id]
        assert job.is_pending
        assert not (job.held or job.dependency or job.het or job.cron or job.reservation or job.hints.opted_out)
        assert snapshot.taken_at - job.submit_time >= EAGER.limits.min_job_age_s
        assert change.action.held_by(job) == change.action.before
        assert change.action.held_by(change.action.applied_to(job)) == change.action.after


@pytest.mark.no_cover
@settings(max_examples=examples(100), deadline=None)
@given(contended(), st.randoms(use_true_random=False))
def test_listing_order_does_not_matter(snapshot: Snapshot, chance: random.Random) -> None:
    jobs, nodes = list(snapshot.jobs), list(snapshot.nodes)
    chance.shuffle(jobs)
    chance.shuffle(nodes)

    shuffled = replace(snapshot, jobs=tuple(jobs), nodes=tuple(nodes))

    assert EAGER.judge(shuffled).judged == EAGER.judge(snapshot).judged


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(contended())
def test_planning_after_applying_soon_proposes_nothing_new(snapshot: Snapshot) -> None:
    # A resize changes what other gangs find idle, which can call for a timer next.
    levers = EVERY_LEVER - {Lever.GPU_COUNT}
    eager = replace(EAGER, limits=replace(EAGER.limits, max_added_delay_s=float("inf")), levers=levers)
    leases: tuple[Lease, ...] = ()
    # A job that was first without a lift is lifted once others have been lifted above it.
    for _ in range(3):
        busy = frozenset(lease.job_id for lease in leases)
        record = eager.judge(snapshot, Memory(leases=leases, busy=busy))
        actions = {change.job_id: change.action for change in record.recommendations}
        assert not actions.keys() & busy
        snapshot = replace(
            snapshot,
            jobs=tuple(actions[job.job_id].applied_to(job) if job.job_id in actions else job for job in snapshot.jobs),
        )
        leases += tuple(
            replace(intended(action, snapshot.taken_at), state=LeaseState.OUT) for action in actions.values()
        )

    assert record.recommendations == ()


@pytest.mark.no_cover
@settings(max_examples=examples(200), deadline=None)
@given(contended())
def test_no_change_breaks_a_published_bound(snapshot: Snapshot) -> None:
    record = EAGER.judge(snapshot)

    for change in record.recommendations:
        job = snapshot.jobs_by_id[change.job_id]
        assert change.expected.added_delay_max_s <= EAGER.limits.max_added_delay_s
        assert change.expected.saved_s_low <= change.expected.saved_s <= change.expected.saved_s_high
        match change.action:
            case SetNice(before=before, after=after):
                assert before == job.nice
                assert EAGER.limits.nice_min <= after < before
            case SetGpus(scope=scope, after=after_size):
                size = job.gang.with_counts(scope, after_size.gpus).gpu_count
                assert size is not None and 1 <= size <= 16
            case SetSwitches(after=switches):
                assert switches is not None
                assert 60.0 <= switches.max_wait_s <= snapshot.config.max_switch_wait_s
                assert switches.max_wait_s == change.expected.added_delay_max_s
            case SetNodeRange(before=before, after=after):
                assert before.low == after.low <= after.high < before.high
                assert change.revert_after_s == change.expected.added_delay_max_s > 0
            case _:
                # Nothing is forecast here, and no job may be stopped.
                raise AssertionError(change)


@pytest.mark.no_cover
@settings(max_examples=examples(150), deadline=None)
@given(contended())
def test_lift_passes_just_the_jobs_it_counts(snapshot: Snapshot) -> None:
    changes = replace(EAGER, levers=frozenset({Lever.NICE})).judge(snapshot).recommendations
    lifted = {change.job_id: change.action.applied_to(snapshot.jobs_by_id[change.job_id]) for change in changes}
    # Of the whole cluster, 48 GPUs can be had at once.
    before = {job.job_id: slurms_place(job, 1) for job in snapshot.pending}
    after = before | {job_id: slurms_place(job, 1) for job_id, job in lifted.items()}

    for change in changes:
        mine = change.job_id
        passed = [other for other in before if before[other] < before[mine] and after[other] > after[mine]]
        assert passed and change.evidence["jobs_passed"] == len(passed)
        assert change.expected.added_delay_max_s == 0.0


@pytest.mark.no_cover
@settings(max_examples=examples(50), deadline=None)
@given(contended())
def test_equal_snapshots_give_equal_words(snapshot: Snapshot) -> None:
    first, second = EAGER.judge(snapshot), EAGER.judge(replace(snapshot))

    assert json.dumps([sentence(change) for change in first.recommendations]) == json.dumps(
        [sentence(change) for change in second.recommendations]
    )


def test_plan_is_sorted_by_kind_then_job() -> None:
    jobs = [
        make_job(1, gpus=32, priority=1000, time_limit_s=2 * DAY_S),
        make_job(3, gpus=2, priority=900, time_limit_s=HOUR_S),
        make_job(2, gpus=2, priority=890, time_limit_s=HOUR_S),
    ]
    nodes = [make_node(f"n0{number}", used=8) for number in range(1, 5)]

    changes = Cycle().judge(make_snapshot(jobs, nodes)).judged

    assert [change.job_id for change in changes] == [2, 3]


def test_empty_cluster_gives_an_empty_plan() -> None:
    assert Cycle().judge(make_snapshot([], [])).recommendations == ()


def site(**config: object) -> Snapshot:
    """A snapshot of a site with some other configuration."""
    return make_snapshot([], config=make_config(**config))  # type: ignore[arg-type]


SOFT = {"max_switch_wait": "86400", "time_min_as_soft_limit": ""}


def test_every_lever_is_judged_and_a_full_site_lacks_none() -> None:
    assert all(need_of(lever).cost for lever in Lever)
    assert missing_by_lever(site(scheduler_parameters=SOFT)) == {}


@pytest.mark.parametrize(
    ("lever", "snapshot", "word"),
    [
        (Lever.NICE, site(priority_type="priority/basic"), "priority/basic"),
        (Lever.NICE, site(priority_type=""), "unknown"),
        (Lever.SWITCHES, site(scheduler_parameters={"max_switch_wait": "30"}), "max_switch_wait"),
        (Lever.SWITCHES, site(scheduler_parameters={"bf_topopt_enable": ""}), "bf_topopt_enable"),
        (Lever.NODE_RANGE, site(scheduler_parameters={"bf_topopt_enable": ""}), "bf_topopt_enable"),
        (Lever.SWITCHES, replace(site(), topology=make_topology(kind=TopologyKind.BLOCK)), "block"),
        (Lever.SWITCHES, replace(site(), topology=make_topology({"leaf1": ["n01"]})), "two leaf"),
        (Lever.GPU_COUNT, replace(site(), config=SiteConfig()), "could not be read"),
        (Lever.TIME_MIN, site(), "time_min_as_soft_limit is not in SchedulerParameters"),
        (Lever.TIME_MIN, site(slurm_version="22.05.8", scheduler_parameters=SOFT), "22.05.8 knows no soft limits"),
        (Lever.TIME_MIN, site(slurm_version="", scheduler_parameters=SOFT), "an unknown release"),
        (Lever.TIME_MIN, site(scheduler_type="sched/builtin", scheduler_parameters=SOFT), "sched/builtin"),
        (Lever.TIME_MIN, site(scheduler_type="", scheduler_parameters=SOFT), "unknown"),
    ],
)
def test_missing_lever_says_what_is_missing(lever: Lever, snapshot: Snapshot, word: str) -> None:
    assert word in missing_by_lever(snapshot)[lever]


@pytest.mark.parametrize(
    ("seconds", "words"), [(45, "45 s"), (720, "12 min"), (12_600, "3.5 h"), (181_440, "2.1 d"), (-720, "-12 min")]
)
def test_durations_read_in_their_largest_fitting_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value_s", "low_s", "high_s", "words"),
    [
        pytest.param(9 * HOUR_S, -27.0, 41.4 * HOUR_S, "9.0 h (0 to 41.4)", id="little beside much is 0"),
        pytest.param(9 * HOUR_S, -0.4 * HOUR_S, 41.4 * HOUR_S, "9.0 h (-0.4 to 41.4)", id="a loss shows"),
        pytest.param(90.0, 0.0, 10 * MINUTE_S, "2 min (0 to 10)", id="minutes"),
        pytest.param(5.0, -9.0, 8.0, "5 s (-9 to 8)", id="seconds"),
        pytest.param(3 * DAY_S, HOUR_S, 4 * DAY_S, "3.0 d (0 to 4.0)", id="days"),
        pytest.param(1.5 * HOUR_S, 1.5 * HOUR_S, 1.5 * HOUR_S, "1.5 h", id="no range"),
        pytest.param(0.0, 0.0, 0.0, "0 s", id="nothing"),
    ],
)
def test_gain_reads_in_one_unit_with_its_range(value_s: float, low_s: float, high_s: float, words: str) -> None:
    assert gain(value_s, low_s, high_s) == words


@pytest.mark.parametrize(
    "values",
    [
        {"depth": 0},
        {"lift_lease_s": 0.0},
        {"used_limit_ratio_low": 0.0},
        {"soft_limit_ratio_high": 1.1},
        {"scaling_exponent": 1.1},
        {"leaf_inflation": 0.9},
        {"leaf_inflation": 1.4},
        {"min_saving_s": -1.0},
        {"spine_inflation": 1e308},
        {"lift_lease_s": 1e-300},
    ],
)
def test_senseless_planner_settings_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        PlanningSettings(**values)  # type: ignore[arg-type]
