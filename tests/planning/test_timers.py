"""How long gangs wait: what was seen, what it saves, what is left of the bounds, few nodes as a place, timers out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, Lever, NodeRange, Reason, SetNice, SetNodeRange, SetSwitches
from advisor.domain.forecast import NO_FORECASTS, Forecasts, JobForecast, Placement
from advisor.domain.gang import GangRequest, SwitchRequest
from advisor.domain.job import Job, Sensitivity
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.memory import Memory, Wait
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.planning.beliefs import Beliefs
from advisor.planning.timers import TimerOut, timers_out
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import assumption, sentence, timer_out_sentence
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_holders,
    make_job,
    make_node,
    make_snapshot,
    make_topology,
)
from tests.examples import examples
from tests.planning.test_placement import RANGE, ahead, half_idle_nodes, one_idle_node_per_leaf, timers, waiting
from tests.planning.test_planner import contended
from tests.planning.test_with_forecasts import exactly

NODE, LEAF = LocalityTier.NODE, LocalityTier.LEAF
HELD = SetNodeRange(job_id=1, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
ASKED = SetSwitches(job_id=1, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))


UNBOUNDED = Cycle(limits=Limits(max_added_delay_s=float("inf")))

# A place is assumed to take so long that three times as long leaves room for what it saves.
ROOMY = PlanningSettings(node_timer_s=3600.0, leaf_timer_s=2400.0)


def seen(count: int, waited_s: float, *, got: bool, gpus: int = 16, tier: LocalityTier = LEAF) -> tuple[Wait, ...]:
    """Some waits that have just ended."""
    return (Wait(gpus=gpus, tier=tier, waited_s=waited_s, got=got, ended_time=TAKEN_AT),) * count


def waits_of(record: CycleRecord) -> float | None:
    """How long the one gang waits, None if not at all."""
    found = [change.expected.added_delay_max_s for change in record.recommendations]
    return found[0] if found else None


def test_places_that_came_soon_make_a_short_job_wait_for_as_long_as_they_took() -> None:
    # Two hours are worth 288 s of waiting, less than the half hour that is assumed.
    snapshot = one_idle_node_per_leaf(waiting(hours=2))

    before, after = Cycle().judge(snapshot), Cycle().judge(snapshot, Memory(waits=seen(8, 120.0, got=True)))

    # All eight got it in the third minute; what comes later is worth less than it takes.
    assert waits_of(before) is None
    assert waits_of(after) == 180.0


def test_waits_in_vain_end_the_waiting() -> None:
    snapshot = one_idle_node_per_leaf(waiting())

    # Six hours in vain beside two assumed places in an hour: a place takes 3.5 hours, and the wait is worth 1.9.
    assert waits_of(Cycle().judge(snapshot)) == 90 * 60.0
    assert waits_of(Cycle().judge(snapshot, Memory(waits=seen(3, 7200.0, got=False)))) is None


def test_where_nothing_was_seen_a_gang_waits_no_longer_than_three_assumed_means() -> None:
    # It would save 115 min, and half an hour is assumed.
    snapshot = one_idle_node_per_leaf(waiting())

    assert waits_of(Cycle().judge(snapshot)) == 90 * 60.0
    assert waits_of(Cycle(planning=ROOMY).judge(snapshot)) == 115 * 60.0
    assert waits_of(Cycle().judge(snapshot, Memory(waits=seen(1, 600.0, got=True)))) == 115 * 60.0


@pytest.mark.parametrize(
    "waits",
    [
        seen(3, 7200.0, got=False, gpus=64),
        seen(3, 7200.0, got=False, tier=NODE),
        tuple(replace(wait, ended_time=TAKEN_AT - 7 * HOUR_S) for wait in seen(3, 7200.0, got=False)),
    ],
    ids=["of another class", "for another tier", "forgotten"],
)
def test_other_waits_change_nothing(waits: tuple[Wait, ...]) -> None:
    assert waits_of(Cycle().judge(one_idle_node_per_leaf(waiting()), Memory(waits=waits))) == 90 * 60.0


def test_timer_follows_contention_up_and_down_within_minutes() -> None:
    snapshot = one_idle_node_per_leaf(waiting())
    vain = seen(3, 7200.0, got=False)
    got = seen(6, 240.0, got=True)

    assert waits_of(Cycle().judge(snapshot, Memory(waits=vain))) is None
    assert waits_of(Cycle().judge(snapshot, Memory(waits=(*vain, *got)))) is not None


def test_timer_says_what_was_seen_and_what_spreading_costs() -> None:
    record = Cycle().judge(
        one_idle_node_per_leaf(waiting()), Memory(waits=(*seen(9, 660.0, got=True), *seen(3, 900.0, got=False)))
    )

    (change,) = record.recommendations
    assert sentence(change) == (
        "Its 16 GPUs fit one leaf switch, but it could start now only spread out. It waits up to 1.9 h for that, as "
        "spread out it would run 1.9 to 9.6 h longer"
    )
    assert "Of the last 12 gangs of 9 to 16 GPUs, 9 got there within 11 min" in assumption(change)
    assert {"gangs_seen": 12, "gangs_got": 9, "within_s": 660.0, "timer_s": 6900.0}.items() <= change.evidence.items()
    assert change.evidence["spread_cost_s"] == 6912.0


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ((), "No recent waits of gangs of 9 to 16 GPUs: using the default, 30 min on average (planning.leaf_timer_s)"),
        (seen(1, 60.0, got=False), "The last gang of 9 to 16 GPUs did not get there"),
        (seen(2, 60.0, got=False), "None of the last 2 gangs of 9 to 16 GPUs got there"),
        (seen(1, 60.0, got=True), "The last gang of 9 to 16 GPUs got there within 1 min"),
    ],
)
def test_timer_says_how_little_was_seen(waits: tuple[Wait, ...], words: str) -> None:
    (change,) = Cycle().judge(one_idle_node_per_leaf(waiting()), Memory(waits=waits)).recommendations

    assert words in assumption(change)


@pytest.mark.parametrize(("gpus", "words"), [(2, "gangs of 2 GPUs"), (40, "gangs of more than 32 GPUs")])
def test_timer_names_the_class_of_a_gang(gpus: int, words: str) -> None:
    nodes = [make_node(f"n{number:02}", used=4 if number > 8 else 7) for number in range(1, 17)]
    snapshot = make_snapshot([waiting(make_gang(gpus, nodes_max=16)), ahead()], nodes)
    crowded = replace(snapshot, nodes=tuple(make_node(node.name, used=7) for node in nodes))

    (change,) = UNBOUNDED.judge(snapshot if gpus > 16 else crowded).recommendations

    assert words in assumption(change)


def spread(job: Job, *, idle: int, gpus: int = 8, nodes: int = 4, leaf: int = 2) -> Snapshot:
    """Nodes with a few idle GPUs each, under leaves of a few nodes."""
    names = [f"n{number:02}" for number in range(1, nodes + 1)]
    leaves = {f"leaf{at}": names[at : at + leaf] for at in range(0, nodes, leaf)}
    table = [make_node(name, gpus, used=gpus - idle) for name in names]
    return make_snapshot([job, ahead(), *make_holders(table)], table, topology=make_topology(leaves))


@pytest.mark.parametrize(
    ("snapshot", "held", "wait_s"),
    [
        # Over three nodes and so over leaves now; two are enough: 34560 s x (1.3 - 1.1).
        (spread(waiting(make_gang(12, nodes_max=4)), idle=4), NodeRange(low=1, high=2), 115 * 60.0),
        # Over three nodes of one leaf now; two are enough: 34560 s x 1.1 x (1.1 - 1).
        (spread(waiting(make_gang(12, nodes_max=4)), idle=4, leaf=4), NodeRange(low=1, high=2), 63 * 60.0),
        # Four GPUs on each node do not divide six: two nodes hold it, three are free in part.
        (spread(waiting(make_gang(6, nodes_max=4)), idle=2, gpus=4, leaf=4), NodeRange(low=1, high=2), 63 * 60.0),
        # Larger than a leaf: three nodes instead of four, both over leaves: 34560 s x 1.3 x (1.1 - 1).
        (spread(waiting(make_gang(20, nodes_max=4)), idle=5), NodeRange(low=1, high=3), 74 * 60.0),
        # The user's least stays.
        (
            spread(waiting(make_gang(12, nodes_min=2, nodes_max=4, tasks=2)), idle=4),
            NodeRange(low=2, high=2),
            115 * 60.0,
        ),
    ],
    ids=["over leaves", "under one leaf", "not divided", "larger than a leaf", "least of two"],
)
def test_gang_larger_than_a_node_is_held_to_the_fewest_nodes(
    snapshot: Snapshot, held: NodeRange, wait_s: float
) -> None:
    record = Cycle(planning=ROOMY).judge(snapshot)

    assert timers(record) == {1: held}
    (change,) = record.recommendations
    assert change.reason is Reason.NODE_WORTH_WAITING
    assert change.revert_after_s == change.expected.added_delay_max_s == wait_s
    assert f"fit {held.high} nodes" in sentence(change)


def test_gang_is_not_held_to_few_nodes_where_more_sit_closer_together() -> None:
    # Three small nodes of one leaf hold it, or two large ones under two leaves; now it takes small ones of both leaves.
    small = [make_node(f"n0{number}", 4, used=1 if number < 4 else 0) for number in (1, 2, 3, 4)]
    large = [make_node(name, 8, used=8) for name in ("n05", "n06")]
    leaves = {"leaf1": ("n01", "n02", "n03"), "leaf2": ("n04",), "leaf3": ("n05",), "leaf4": ("n06",)}
    nodes = [*small, *large]
    jobs = [waiting(make_gang(12, nodes_max=5)), ahead("n05"), *make_holders(nodes)]
    snapshot = make_snapshot(jobs, nodes, topology=make_topology(leaves))

    assert timers(Cycle(planning=ROOMY).judge(snapshot)) == {1: SwitchRequest(count=1, max_wait_s=115 * 60.0)}


def free_in(seconds: float, gang: GangRequest) -> Snapshot:
    """A full cluster, of which all nodes but one are expected to come free."""
    running = [
        make_job(number, gpus=8, running_on=[f"n0{number}"], started_ago_s=0.0, time_limit_s=5 * seconds)
        for number in (2, 3, 4)
    ]
    nodes = [make_node(f"n0{number}", used=8) for number in range(1, 5)]
    return make_snapshot([replace(waiting(gang), job_id=9), ahead(), *running], nodes)


def test_timer_is_set_shortly_before_the_first_chance_and_not_long_before() -> None:
    gang = make_gang(16, nodes_min=2, nodes_max=2, tasks=2)

    assert set(timers(Cycle().judge(free_in(500.0, gang)))) == {9}
    assert timers(Cycle().judge(free_in(700.0, gang))) == {}


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(spread(waiting(make_gang(12, nodes_max=2)), idle=4, leaf=4), id="no room"),
        pytest.param(
            spread(waiting(make_gang(12, nodes_min=3, nodes_max=4, tasks=3)), idle=4, leaf=4),
            id="least too high",
        ),
        pytest.param(spread(waiting(make_gang(12)), idle=4, leaf=4), id="open"),
        pytest.param(spread(waiting(make_gang(40, nodes_max=4)), idle=4, leaf=4), id="fits nowhere"),
        pytest.param(spread(waiting(make_gang(12, nodes_max=4)), idle=6, leaf=4), id="fits its fewest nodes now"),
        pytest.param(free_in(500.0, make_gang(8, nodes_max=1)), id="one node only, so no leaves to wait for"),
    ],
)
def test_gang_is_not_held_to_few_nodes(snapshot: Snapshot) -> None:
    assert timers(Cycle().judge(snapshot)) == {}


def test_gang_that_no_lever_can_hold_to_one_node_waits_for_one_leaf() -> None:
    nodes = [make_node(f"n0{number}", used=4 if number in (1, 3) else 8) for number in range(1, 5)]

    record = Cycle(planning=ROOMY).judge(make_snapshot([waiting(make_gang(8)), ahead(), *make_holders(nodes)], nodes))

    # 34560 s times 1.3 - 1.1.
    assert timers(record) == {1: SwitchRequest(count=1, max_wait_s=115 * 60.0)}


def across_leaves() -> Snapshot:
    """Eight GPUs that one node could hold are free on two nodes of two leaves."""
    nodes = [make_node(f"n0{number}", used=4 if number in (1, 3) else 8) for number in range(1, 5)]
    return make_snapshot([waiting(RANGE), ahead(), *make_holders(nodes)], nodes)


def ended(action: Action, *, after_s: float, ending: Ending = Ending.TAKEN_BACK) -> Lease:
    """A change that was out until now."""
    lease = intended(action, TAKEN_AT - after_s, after_s=after_s)
    return replace(lease, state=LeaseState.OUT).ended(ending, TAKEN_AT)


def test_gang_whose_node_timer_has_ended_waits_for_one_leaf_next() -> None:
    first = Cycle(planning=ROOMY).judge(across_leaves())
    second = Cycle(planning=ROOMY).judge(across_leaves(), Memory(leases=(ended(HELD, after_s=600.0),)))

    assert timers(first) == {1: NodeRange(low=1, high=1)}
    assert timers(second) == {1: SwitchRequest(count=1, max_wait_s=115 * 60.0)}


def test_no_tier_is_waited_for_twice() -> None:
    both = (ended(HELD, after_s=600.0), ended(ASKED, after_s=700.0))

    assert timers(Cycle().judge(across_leaves(), Memory(leases=both))) == {}
    assert timers(Cycle().judge(half_idle_nodes(waiting(RANGE)), Memory(leases=both[:1]))) == {}


# Without the cooldown of the guard, to see what the planner makes of a change that has just ended.
AT_ONCE = Cycle(limits=Limits(cooldown_s=0.0))


def test_timer_that_was_cut_short_may_be_set_again_but_not_slurms_own() -> None:
    held, asked = (replace(ended(action, after_s=600.0), due_time=TAKEN_AT + 60.0) for action in (HELD, ASKED))
    requeued = replace(held, ending=Ending.NO_LONGER_PENDING)

    assert timers(AT_ONCE.judge(across_leaves(), Memory(leases=(held,)))) == {1: NodeRange(low=1, high=1)}
    assert timers(AT_ONCE.judge(half_idle_nodes(waiting(RANGE)), Memory(leases=(requeued,)))) == {}
    assert (
        timers(AT_ONCE.judge(one_idle_node_per_leaf(waiting()), Memory(leases=(replace(asked, due_time=None),)))) == {}
    )


def test_change_that_was_never_applied_counts_for_nothing() -> None:
    lease = ended(HELD, after_s=600.0, ending=Ending.NOT_APPLIED)

    assert timers(AT_ONCE.judge(across_leaves(), Memory(leases=(lease,)))) == {1: NodeRange(low=1, high=1)}


def test_lifted_gang_gets_a_timer_in_the_next_round() -> None:
    lift = intended(SetNice(job_id=1, before=0, after=-500), TAKEN_AT - 1.0, after_s=86_400.0)
    snapshot = across_leaves()
    jobs = tuple(replace(job, nice=-500) if job.job_id == 1 else job for job in snapshot.jobs)

    record = Cycle().judge(replace(snapshot, jobs=jobs), Memory(leases=(replace(lift, state=LeaseState.OUT),)))

    assert timers(record) == timers(Cycle().judge(snapshot)) != {}


STEPPED = ended(SetNice(job_id=1, before=0, after=100), after_s=1200.0)


@pytest.mark.parametrize(
    ("lease", "left_min"),
    [
        (ended(HELD, after_s=1200.0), 50),
        (ended(SetNice(job_id=1, before=0, after=100), after_s=2400.0), 40),
        (ended(SetNice(job_id=1, before=100, after=0), after_s=2400.0), 60),
        (replace(STEPPED, added_delay_s=1.0, applied_time=TAKEN_AT - 2400.0, would_start_time=TAKEN_AT - 2400.0), 40),
    ],
    ids=["by a timer", "by nice", "not by less nice", "by what was booked for it"],
)
def test_what_a_job_was_delayed_before_is_taken_off_the_bound(lease: Lease, left_min: int) -> None:
    cycle = Cycle(limits=Limits(max_added_delay_s=2 * HOUR_S, cooldown_s=0.0), levers=frozenset({Lever.SWITCHES}))

    record = cycle.judge(across_leaves(), Memory(leases=(lease,)))

    # Half of what is left of two hours.
    assert waits_of(record) == left_min * 60.0


def test_only_the_levers_that_may_be_used_are_planned_with() -> None:
    record = Cycle(levers=frozenset(Lever) - {Lever.SWITCHES}).judge(one_idle_node_per_leaf(waiting()))

    assert record.recommendations == ()


def test_cost_of_more_nodes_is_by_rule_and_no_more_than_that_of_more_leaves() -> None:
    job = make_job(1, gang=make_gang(12))
    speeds = {
        Placement(gpus=12, tier=tier): exactly(speed) for tier, speed in ((LEAF, 1.0), (LocalityTier.SPINE, 0.98))
    }
    by_job = {1: JobForecast(speed_by_placement=speeds)}

    by_rule = Beliefs(forecasts=Forecasts(by_job={}), settings=PlanningSettings())
    forecast = Beliefs(forecasts=Forecasts(by_job=by_job), settings=PlanningSettings())

    assert by_rule.inflation_on_more_nodes(job, LEAF).median == pytest.approx(1.1 * 1.1)
    assert forecast.inflation_on_more_nodes(job, LEAF).median == pytest.approx(1 / 0.98)
    assert forecast.inflation_on_more_nodes(job, LocalityTier.SPINE).median == pytest.approx(1.1 / 0.98)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Wait, ...]:
    """Draw what was seen lately."""
    wait = st.builds(
        Wait,
        gpus=st.sampled_from([2, 4, 8, 16, 48]),
        tier=st.sampled_from([NODE, LEAF]),
        waited_s=st.sampled_from([0.0, 30.0, 300.0, 5000.0, 90_000.0]),
        got=st.booleans(),
        ended_time=st.sampled_from([TAKEN_AT, TAKEN_AT - 1000.0, TAKEN_AT - 20_000.0]),
    )
    return tuple(draw(st.lists(wait, max_size=30)))


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(
    snapshot=contended(),
    waits=histories(),
    delay_s=st.sampled_from([0.0, 59.0, 600.0, 5000.0, 1e6]),
    switch_wait=st.sampled_from(["60", "300", "86400"]),
    leaf_timer_s=st.sampled_from([1.0, 600.0, 50_000.0]),
    imagined=st.sampled_from([1.0, 2.0, 50.0]),
    delayed_s=st.sampled_from([0.0, 300.0, 1e5]),
    sensitivity=st.sampled_from([None, Sensitivity.HIGH]),
)
def test_no_timer_exceeds_a_bound(
    snapshot: Snapshot,
    waits: tuple[Wait, ...],
    delay_s: float,
    switch_wait: str,
    leaf_timer_s: float,
    imagined: float,
    delayed_s: float,
    sensitivity: Sensitivity | None,
) -> None:
    jobs = tuple(replace(job, hints=replace(job.hints, sensitivity=sensitivity)) for job in snapshot.jobs)
    config = make_config(scheduler_parameters={"max_switch_wait": switch_wait})
    leases = tuple(ended(replace(HELD, job_id=job.job_id), after_s=delayed_s) for job in jobs[:3] if delayed_s)
    cycle = Cycle(
        planning=PlanningSettings(
            node_timer_s=leaf_timer_s / 2 + 1, leaf_timer_s=leaf_timer_s, timer_imagined=imagined
        ),
        limits=Limits(max_added_delay_s=delay_s, cooldown_s=0.0),
        levers=frozenset({Lever.SWITCHES, Lever.NODE_RANGE}),
    )

    record = cycle.judge(replace(snapshot, jobs=jobs, config=config), Memory(waits=waits, leases=leases))

    refused_by = {change.refused_by for change in record.judged}
    assert not refused_by & {"delay_within_limits", "total_delay_within_limit"}
    for change in record.judged:
        timer_s = change.expected.added_delay_max_s
        before_s = delayed_s if change.job_id in {lease.job_id for lease in leases} else 0.0
        # A job that calls itself sensitive vouches for its whole limit, others for a fifth of it.
        worth = "spread_cost_s" if sensitivity is None else "spread_cost_s_high"
        assert timer_s >= 60.0
        assert timer_s + before_s <= delay_s
        assert timer_s <= float(change.evidence[worth]) + 1e-3
        match change.action:
            case SetSwitches(after=SwitchRequest(max_wait_s=wait_s)):
                assert wait_s == timer_s <= config.max_switch_wait_s
            case action:
                assert isinstance(action, SetNodeRange)
                assert change.revert_after_s == timer_s


LONG_ASKED = SetSwitches(job_id=1, before=None, after=SwitchRequest(count=1, max_wait_s=840.0))


def out(action: Action, *, ago_s: float, due_s: float | None = None, state: LeaseState = LeaseState.OUT) -> Lease:
    """A change that was applied a while ago."""
    return replace(intended(action, TAKEN_AT - ago_s, after_s=due_s), state=state)


def with_changes(snapshot: Snapshot, *leases: Lease) -> Snapshot:
    """The snapshot as it stands once the changes have taken effect."""
    jobs = {job.job_id: job for job in snapshot.jobs}
    for lease in leases:
        jobs[lease.job_id] = lease.action.applied_to(jobs[lease.job_id])
    return replace(snapshot, jobs=tuple(jobs.values()))


def timers_of(snapshot: Snapshot, *leases: Lease, waits: tuple[Wait, ...] = ()) -> tuple[TimerOut, ...]:
    """Return the timers of the gang that are out."""
    return timers_out(snapshot, 1, PlanningSettings(), Limits(), NO_FORECASTS, Memory(waits=waits, leases=leases))


OVER = "The cost of staying spread out is not known now. The wait is over"


def test_wait_for_one_leaf_says_how_others_fared_and_what_spreading_costs() -> None:
    lease = out(LONG_ASKED, ago_s=300.0)
    waits = tuple(
        Wait(gpus=16, tier=LocalityTier.LEAF, waited_s=660.0, got=number < 9, ended_time=TAKEN_AT)
        for number in range(12)
    )

    (timer,) = timers_of(with_changes(one_idle_node_per_leaf(waiting()), lease), lease, waits=waits)

    assert timer_out_sentence(timer) == (
        "It waits up to 14 min for one leaf switch, as spread out it would run 1.9 to 9.6 h longer. "
        "Of the last 12 gangs of 9 to 16 GPUs, 9 got there within 11 min. 9 min of the wait are left"
    )
    assert (timer.nodes, timer.began_time, timer.ends_time) == (None, TAKEN_AT - 300.0, TAKEN_AT + 540.0)
    assert timer.timer is not None
    assert {"gangs_seen": 12, "gangs_got": 9, "timer_s": 840.0}.items() <= timer.timer.evidence.items()


def test_wait_for_few_nodes_is_explained_by_the_range_that_the_user_gave() -> None:
    lease = out(HELD, ago_s=300.0, due_s=1800.0)

    (timer,) = timers_of(with_changes(half_idle_nodes(waiting(RANGE)), lease), lease)

    assert timer_out_sentence(timer).startswith(
        "It waits up to 30 min for one node, as spread out it would run 58 min to 4.8 h longer. No recent waits of "
        "gangs of 5 to 8 GPUs"
    )
    assert timer_out_sentence(timer).endswith("25 min of the wait are left")


def test_both_timers_of_a_gang_are_told_in_their_order() -> None:
    held, asked = out(HELD, ago_s=100.0, due_s=600.0), out(LONG_ASKED, ago_s=1000.0)

    assert [timer.nodes for timer in timers_of(half_idle_nodes(waiting(RANGE)), held, asked)] == [None, 1]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            LONG_ASKED,
            f"It waits up to 14 min for one leaf switch. {OVER}",
        ),
        (HELD, f"It waits up to 14 min for one node. {OVER}"),
        (
            replace(HELD, after=NodeRange(low=1, high=2)),
            f"It waits up to 14 min for 2 nodes. {OVER}",
        ),
    ],
    ids=["leaf", "node", "nodes"],
)
def test_gang_that_is_kept_by_something_else_now_says_only_what_is_out(action: Action, words: str) -> None:
    lease = out(action, ago_s=900.0, due_s=840.0)
    fits_now = make_snapshot([waiting(make_gang(8, nodes_max=4))])
    not_in_line = make_snapshot([replace(waiting(RANGE), dependency="afterok:7")])

    assert [timer_out_sentence(timer) for timer in (*timers_of(fits_now, lease), *timers_of(not_in_line, lease))] == [
        words,
        words,
    ]


@pytest.mark.parametrize(
    ("snapshot", "lease"),
    [
        (make_snapshot(), out(LONG_ASKED, ago_s=60.0)),
        (make_snapshot([make_job(1, gpus=8, running_on=["n01"])]), out(LONG_ASKED, ago_s=60.0)),
        (half_idle_nodes(waiting(RANGE)), out(replace(LONG_ASKED, job_id=2), ago_s=60.0)),
        (half_idle_nodes(waiting(RANGE)), out(LONG_ASKED, ago_s=60.0).ended(Ending.TAKEN_BACK, TAKEN_AT)),
        (half_idle_nodes(waiting(RANGE)), out(LONG_ASKED, ago_s=60.0, state=LeaseState.HANDS_OFF)),
        (half_idle_nodes(waiting(RANGE)), out(SetNice(job_id=1, before=0, after=9), ago_s=60.0, due_s=600.0)),
    ],
    ids=["gone", "started", "of another job", "ended", "overruled", "no timer"],
)
def test_without_a_timer_in_force_nothing_is_told(snapshot: Snapshot, lease: Lease) -> None:
    assert timers_of(snapshot, lease) == ()
