"""Jobs of one user or account that change places, as proposed and judged."""

import math
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Lever, Reason, SetNice, exchanged_with
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import Ending, Lease, LeaseState, intended
from advisor.domain.mark import MARK_SPAN, is_marked
from advisor.domain.memory import Memory
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import standings_of
from advisor.features.queue import slurms_place
from advisor.planning.exchange import GAINED_SHARE, LATER, SOONER, Exchanged, exchanges, recommendations
from advisor.planning.objective import bound_s
from advisor.settings import Fairness, Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters, parse_cluster
from advisor.sim.policies import advised
from advisor.sim.runner import SimulationOptions, simulate
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import read_trace
from advisor.view.sentences import assumption, sentence
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_hints, make_job, make_stretch
from tests.examples import examples
from tests.planning.queues import busy, lifts_of, simulated_rounds
from tests.sim.building import make_trace

USER = Limits(fairness="user")
LONG = make_job(1, gpus=16, priority=5000, time_limit_s=40 * HOUR_S)
OTHER = make_job(2, gpus=4, priority=4000, time_limit_s=20 * HOUR_S, user="bob")
SHORT = make_job(3, gpus=2, priority=3000, time_limit_s=HOUR_S)


def exchanged(snapshot: Snapshot, limits: Limits = USER, memory: Memory | None = None, **planning: Any) -> set[Any]:
    """The pairs that change places, as accepted."""
    cycle = Cycle(limits=limits, planning=PlanningSettings(**planning))
    record = cycle.judge(snapshot, memory or Memory())
    assert all(change.refused_by is None for change in record.judged)
    return {tuple(sorted((change.job_id, exchanged_with(change.action) or 0))) for change in record.recommendations}


def places(snapshot: Snapshot, changes: dict[int, Recommendation]) -> list[int]:
    """The pending jobs in the order of Slurm, once changes have taken effect."""
    after = [changes[job.job_id].action.applied_to(job) if job.job_id in changes else job for job in snapshot.pending]
    return [job.job_id for job in sorted(after, key=lambda job: slurms_place(job, 1))]


DUE = replace(make_job(4, gpus=4, priority=2000, time_limit_s=2 * HOUR_S), hints=make_hints(by=TAKEN_AT + DAY_S))


@pytest.mark.parametrize(
    ("jobs", "pairs"),
    [
        ((LONG, OTHER, SHORT, DUE), {(1, 4)}),
        ((replace(LONG, hints=make_hints(by=TAKEN_AT + HOUR_S)), OTHER, SHORT, DUE), set()),
        ((LONG, OTHER, SHORT, replace(DUE, hints=make_hints(by=TAKEN_AT - HOUR_S))), {(1, 3)}),
        ((LONG, OTHER, SHORT, replace(DUE, user="carol")), {(1, 3)}),
        ((SHORT, OTHER, replace(LONG, priority=2000, hints=DUE.hints)), set()),
    ],
    ids=["goes first", "before a later one", "that has passed", "of another user", "of a larger job"],
)
def test_deadlines_order_the_jobs_of_their_user_alone(jobs: tuple[Job, ...], pairs: set[Any]) -> None:
    assert exchanged(busy(*jobs), lift_places=1) == pairs


@pytest.mark.parametrize("fairness", ["trade", "site", "account"])
def test_deadlines_change_no_plan_in_which_jobs_of_several_users_move(fairness: Fairness) -> None:
    jobs = (LONG, OTHER, SHORT, DUE)
    cycle = Cycle(limits=Limits(fairness=fairness))

    plain = cycle.judge(busy(*(replace(job, hints=make_hints()) for job in jobs)))

    assert lifts_of(cycle.judge(busy(*jobs))) == lifts_of(plain)


def test_short_job_and_long_one_of_its_user_change_places_and_no_other_job_moves() -> None:
    snapshot = busy(LONG, OTHER, SHORT)

    changes = lifts_of(Cycle(limits=USER).judge(snapshot))

    assert places(snapshot, {}) == [1, 2, 3]
    assert places(snapshot, changes) == [3, 2, 1]
    assert {job_id: change.reason for job_id, change in changes.items()} == {
        1: Reason.GIVES_PLACE_TO_SMALLER,
        3: Reason.TAKES_PLACE_OF_LARGER,
    }
    assert {job_id: change.revert_after_s for job_id, change in changes.items()} == {
        3: PlanningSettings().lift_lease_s,
        1: Limits().max_lateness_s,
    }
    for change in changes.values():
        assert isinstance(change.action, SetNice) and is_marked(change.action.after)


def test_two_exchanges_at_once_keep_the_order_of_users() -> None:
    line = [("ann", 320, 10.0), ("bob", 230, 10.0), ("bob", 224, 1.0), ("ann", 214, 1.0)]
    jobs = [
        make_job(number, gpus=1, user=user, priority=priority, time_limit_s=hours * HOUR_S)
        for number, (user, priority, hours) in enumerate(line, start=1)
    ]
    snapshot = busy(*jobs)

    after = places(snapshot, lifts_of(Cycle(limits=USER).judge(snapshot)))

    assert [snapshot.jobs_by_id[job_id].user for job_id in after] == ["ann", "bob", "bob", "ann"]


def test_facts_and_gain_of_an_exchange() -> None:
    changes = lifts_of(Cycle(limits=USER).judge(busy(LONG, OTHER, SHORT)))

    up, down = changes[3], changes[1]
    assert isinstance(up.facts, Exchanged) and isinstance(down.facts, Exchanged)
    assert (up.facts.gpu_hours, up.facts.gpu_hours_of_other, up.facts.jobs_between) == pytest.approx((0.4, 128.0, 1))
    # By rule a fifth of the limits, on 32 GPUs: 16 x 8 h and 4 x 4 h are passed, 2 x 0.2 h and 4 x 4 h let ahead.
    run_s = (128 + 16 + 0.4) / 22 * HOUR_S
    sooner, later = SOONER.of(144 / 32 * HOUR_S, run_s), LATER.of(16.4 / 32 * HOUR_S, run_s)
    assert sooner == pytest.approx(
        (-SOONER.back * run_s, 4.5 * HOUR_S, 4.5 * SOONER.between * HOUR_S + SOONER.run * run_s)
    )
    assert (up.facts.sooner_s_low, up.facts.sooner_s_mean, up.facts.sooner_s_high) == pytest.approx(sooner)
    assert (-down.facts.sooner_s_high, -down.facts.sooner_s_mean, -down.facts.sooner_s_low) == pytest.approx(later)
    assert up.expected.saved_s == pytest.approx(GAINED_SHARE * 2 * (128 - 0.4) / 32 * HOUR_S)
    assert (up.expected.saved_s_low, up.expected.saved_s_high) == pytest.approx(
        (sooner[0] - later[2], sooner[2] - later[0])
    )
    assert (down.expected.saved_s_low, down.expected.saved_s_high, down.expected.jobs_helped) == (0.0, 0.0, 0)
    assert "job 1 of the same user 128.0 GPU-hours. They change places" in sentence(up)
    assert (
        "job 3 of the same user 0.4 GPU-hours. They change places for up to 14.0 d: it starts 43 min later on average"
        in sentence(down)
    )
    assert "counted once for both jobs" in assumption(up)


@pytest.mark.parametrize(
    ("fairness", "pairs"), [("user", {(1, 3)}), ("account", {(1, 4)}), ("trade", None), ("site", None)]
)
def test_fairness_names_the_group(fairness: Any, pairs: set[Any] | None) -> None:
    smaller = make_job(4, gpus=1, priority=2000, time_limit_s=HOUR_S, user="cy")
    far = replace(OTHER, account="other")

    changes = Cycle(limits=Limits(fairness=fairness)).judge(busy(LONG, far, SHORT, smaller)).recommendations

    got = {
        tuple(sorted((change.job_id, other)))
        for change in changes
        if (other := exchanged_with(change.action)) is not None
    }
    assert got == (pairs or set())
    assert pairs is not None or changes


def test_nobody_without_an_owner_changes_places() -> None:
    nameless = [replace(job, account="") for job in (LONG, SHORT)]

    assert exchanged(busy(*nameless), Limits(fairness="account")) == set()


def test_array_takes_a_place_only_if_all_its_tasks_are_smaller_together() -> None:
    few, many = (replace(SHORT, array=ArrayRecord(array_job_id=3, waiting=waiting)) for waiting in ("0-9", "0-999"))

    assert exchanged(busy(LONG, few)) == {(1, 3)}
    assert exchanged(busy(LONG, many)) == set()


def test_pair_that_no_marked_nice_keeps_between_others_stays() -> None:
    near = [replace(OTHER, job_id=20 + offset, priority=5000 + offset) for offset in (-1, 1)]

    assert exchanged(busy(LONG, *near, SHORT)) == set()


def test_job_gives_its_place_once() -> None:
    snapshot = busy(LONG, SHORT)
    gave = SetNice(job_id=1, before=0, after=2007, exchanged_with=77)
    lease = replace(intended(gave, TAKEN_AT - 9 * HOUR_S), state=LeaseState.OUT)

    def pairs(ending: Ending) -> set[Any]:
        return exchanged(snapshot, memory=Memory(leases=(lease.ended(ending, TAKEN_AT - 2 * HOUR_S),)))

    assert (pairs(Ending.TAKEN_BACK), pairs(Ending.NOT_APPLIED)) == (set(), {(1, 3)})


def test_only_the_first_places_are_filled() -> None:
    assert exchanged(busy(OTHER, replace(LONG, priority=3500), SHORT), lift_places=1) == set()
    assert exchanged(busy(OTHER, replace(LONG, priority=3500), SHORT), lift_places=2) == {(1, 3)}


def test_late_job_keeps_its_place_and_goes_first_in_its_group() -> None:
    late = make_job(4, gpus=16, priority=2000, time_limit_s=40 * HOUR_S, submitted_ago_s=40 * DAY_S)
    standings = standings_of([replace(make_stretch(), late=((4, TAKEN_AT - 30 * DAY_S),))])

    pairs = exchanged(busy(LONG, SHORT, late), memory=Memory(standings=standings))

    # The late one takes the place of the long one, though the short one is smaller.
    assert pairs == {(1, 4)}


def test_job_of_unknown_run_time_keeps_its_place_and_is_not_counted() -> None:
    endless = make_job(7, gpus=8, priority=4500, time_limit_s=None)
    snapshot = busy(LONG, endless, OTHER, SHORT)

    changes = lifts_of(Cycle(limits=USER).judge(snapshot))

    assert places(snapshot, changes) == [3, 7, 2, 1]
    assert isinstance(changes[3].facts, Exchanged) and changes[3].facts.jobs_between == 1
    assert changes[3].facts.sooner_s_mean == pytest.approx(4.5 * HOUR_S)


def test_lowest_nice_of_the_site_is_kept() -> None:
    assert exchanged(busy(LONG, SHORT), replace(USER, nice_min=-1000)) == set()


def test_no_exchange_is_proposed_where_marked_values_are_too_far_apart() -> None:
    larger = make_job(1, priority=16, nice=-7, time_limit_s=10 * HOUR_S)
    between = [make_job(number, user="cy", priority=1) for number in (2, 3)]
    snapshot = busy(larger, *between, make_job(4, priority=12, time_limit_s=HOUR_S))

    assert Cycle(limits=USER, planning=PlanningSettings(lift_places=1)).judge(snapshot).judged == ()


@st.composite
def lines(draw: st.DrawFn) -> list[Job]:
    """Draw the pending jobs of three users."""
    count = draw(st.integers(2, 12))
    priorities = draw(st.lists(st.integers(1, 400), min_size=count, max_size=count))
    return [
        make_job(
            number + 1,
            gpus=draw(st.sampled_from([1, 2, 8])),
            priority=priority * draw(st.sampled_from([1, 10])),
            time_limit_s=draw(st.sampled_from([HOUR_S, 10 * HOUR_S, 50 * HOUR_S, None])),
            user=draw(st.sampled_from(["ann", "bob", "cy"])),
            nice=draw(st.sampled_from([0, 0, 30, -7])),
            submitted_ago_s=draw(st.sampled_from([HOUR_S, 2 * HOUR_S])),
        )
        for number, priority in enumerate(priorities)
    ]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(jobs=lines(), count=st.sampled_from([1, 3, 20]))
def test_as_many_jobs_as_before_stand_ahead_of_every_job_of_others(jobs: list[Job], count: int) -> None:
    snapshot = busy(*jobs)
    record = Cycle(limits=USER, planning=PlanningSettings(lift_places=count)).judge(snapshot)

    changes = lifts_of(record)

    assert all(change.refused_by is None for change in record.judged)
    before, after = places(snapshot, {}), places(snapshot, changes)
    moved_users = {snapshot.jobs_by_id[job_id].user for job_id in changes}
    for job in snapshot.pending:
        if job.job_id not in changes:
            ahead = [
                {other for other in order[: order.index(job.job_id)] if snapshot.jobs_by_id[other].user != job.user}
                for order in (before, after)
            ]
            assert len(ahead[0]) == len(ahead[1])
    # Seen by the owners alone, the order is the same.
    owners = [[snapshot.jobs_by_id[job_id].user for job_id in order] for order in (before, after)]
    assert owners[0] == owners[1]
    assert len(changes) % 2 == 0 and bool(changes) == bool(moved_users)


# Twenty points for each second, so that marked nice values fit between jobs.
SLURM = SlurmParameters(
    tick_s=0.0, batch_sched_delay_s=0.0, priority_weight_age=20.0 * 604_800.0, priority_weight_fairshare=0.0
)
TWO = Cluster(nodes=(NodeGroup(count=2, gpus=4, leaf=2),), slurm=SLURM)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw two jobs that fill the cluster, and jobs that wait behind them."""
    full = {"gpus": 4, "run_time_s": 90_000, "time_limit_s": 100_000}
    seconds = draw(st.lists(st.integers(1, 3000), min_size=2, max_size=14, unique=True).map(sorted))
    waiting: list[dict[str, Any]] = [
        {
            "submit_time": float(second),
            "gpus": draw(st.sampled_from([1, 2, 4])),
            "run_time_s": 500,
            "time_limit_s": draw(st.sampled_from([600.0, 3600.0, 7200.0, 90_000.0, math.inf])),
            "user": draw(st.sampled_from(["ann", "bob", "cy"])),
        }
        for second in seconds
    ]
    return replace(make_trace([full, full, *waiting]), accounts=(draw(st.sampled_from(["", "lab"])),))


@settings(max_examples=examples(100), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    trace=traces(),
    fairness=st.sampled_from(["user", "account"]),
    lift_places=st.sampled_from([1, 3, 20]),
    cycles=st.lists(st.sampled_from([300.0, 3300.0, 3900.0, 9000.0]), min_size=1, max_size=3, unique=True).map(sorted),
)
def test_exchanges_are_those_of_the_simulated_policy(
    trace: Trace, fairness: Fairness, lift_places: int, cycles: list[float]
) -> None:
    limits, planning = Limits(fairness=fairness), PlanningSettings(lift_places=lift_places)
    leases: list[Lease] = []
    rounds = simulated_rounds(trace, TWO, cycles, leases, limits=limits, planning=planning)
    for now, case, run_policy in rounds:
        proposed = {change.job_id: change for change in recommendations(case)}

        nice_after = run_policy()

        moved = [job for job in case.snapshot.pending if nice_after[job.job_id] != job.nice]
        assert proposed.keys() == {job.job_id for job in moved}
        for job in moved:
            action = proposed[job.job_id].action
            assert isinstance(action, SetNice) and abs(action.after - nice_after[job.job_id]) < MARK_SPAN
            done = replace(action, after=nice_after[job.job_id])
            lease = intended(done, now, after_s=proposed[job.job_id].revert_after_s)
            leases.append(replace(lease, state=LeaseState.OUT))


Line = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_], int]


@st.composite
def drawn_lines(draw: st.DrawFn) -> Line:
    """Draw a line: keys, of which 0 is a late job, falling priorities, groups, what can rise and give, and places."""
    count = draw(st.integers(1, 30))

    def column(values: st.SearchStrategy[float | int | bool]) -> list[float | int | bool]:
        return draw(st.lists(values, min_size=count, max_size=count))

    priority = np.sort(np.array(column(st.integers(1, 40)), dtype=np.float64))[::-1]
    key = np.array(column(st.integers(0, 6)), dtype=np.float64)
    group = np.array(column(st.integers(0, 3)), dtype=np.int64)
    can_rise, can_give = (np.array(column(st.booleans()), dtype=np.bool_) for _ in range(2))
    return key, priority, group, can_rise, can_give & (key > 0.0), draw(st.integers(1, 30))


@given(line=drawn_lines())
def test_each_group_keeps_its_places_and_no_job_is_in_two_pairs(line: Line) -> None:
    key, priority, group, can_rise, can_give, places = line
    due = np.roll(key, 1)

    chosen = exchanges(key, priority, group, can_rise, can_give, places=places, due=due)

    after = priority.copy()
    after[chosen.up], after[chosen.down] = priority[chosen.down], priority[chosen.up]
    moved = np.r_[chosen.up, chosen.down]
    assert len(set(moved.tolist())) == len(moved)
    for name in np.unique(group):
        assert sorted(after[group == name]) == sorted(priority[group == name])
    assert can_rise[chosen.up].all() and can_give[chosen.down].all()
    assert (key[chosen.up] < key[chosen.down]).all() and (priority[chosen.up] < priority[chosen.down]).all()
    assert (due[chosen.up] <= due[chosen.down]).all()
    assert (chosen.down < places).all()


@given(line=drawn_lines())
def test_a_late_job_goes_to_the_first_place_that_its_group_can_give(line: Line) -> None:
    key, priority, group, _, can_give, places = line
    everybody = np.ones(len(key), dtype=np.bool_)

    chosen = exchanges(key, priority, group, everybody, can_give, places=places)

    for name in np.unique(group[key == 0.0]):
        given_first = [row for row in range(min(places, len(key))) if group[row] == name and can_give[row]][:1]
        late = [row for row in np.flatnonzero((group == name) & (key == 0.0)) if given_first and row > given_first[0]]
        if any(priority[row] < priority[given_first[0]] for row in late):
            place = chosen.down.tolist().index(given_first[0])
            assert key[chosen.up[place]] == 0.0


def test_of_equal_keys_the_last_goes_up_so_that_the_large_job_is_passed_by_all() -> None:
    key, priority = np.array([9.0, 1.0, 1.0, 1.0]), np.array([40.0, 30.0, 20.0, 10.0])
    everybody = np.ones(4, dtype=np.bool_)

    chosen = exchanges(key, priority, np.zeros(4, dtype=np.int64), everybody, everybody, places=4)

    assert (chosen.up.tolist(), chosen.down.tolist()) == ([3], [0])


def test_a_place_is_given_for_no_longer_than_the_bound_on_lateness() -> None:
    limits = Limits(max_lateness_s=100.0, max_lateness_ratio=0.5)

    assert bound_s(np.array([10.0, 400.0]), limits).tolist() == [100.0, 200.0]


@pytest.mark.slow
def test_intervals_hold_what_comes_of_four_of_five_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, cluster = (
        read_trace(Path(str(files("advisor") / "demo" / "trace.csv"))),
        parse_cluster("nodes=8,gpus=8,leaf=4"),
    )
    applied: dict[int, Exchanged] = {}

    def collecting(applier: Applier, _cluster: SimulatedSlurm) -> None:
        step = applier.step()
        for change in step.record.recommendations:
            if isinstance(change.facts, Exchanged):
                applied.setdefault(change.job_id, change.facts)

    monkeypatch.setattr(advised, "advise", collecting)
    policy = advised.AdvisedSlurm(
        name="exchanges", summary="", forecaster=advised.no_forecasts, levers=frozenset({Lever.NICE})
    )
    plain = simulate(trace, cluster, "slurm")
    run = simulate(trace, cluster, policy, options=SimulationOptions(limits=USER))

    sooner_s = dict(
        zip(trace.jobs["job_id"].tolist(), plain.outcomes["start_time"] - run.outcomes["start_time"], strict=True)
    )
    held = [facts.sooner_s_low <= sooner_s[job_id] <= facts.sooner_s_high for job_id, facts in applied.items()]
    assert len(held) > 50 and 0.7 < np.mean(held) < 0.95
