"""Lifts in simulations: what users are owed, and the same choices as the planner's own functions make."""

from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.planning.lifts import Bounds, Stakes, lifts
from advisor.planning.objective import Objective, Waiting, is_overdue
from advisor.settings import Fairness, Limits, PlanningSettings
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.engine_calls import count_owed
from advisor.sim.policies.lifted import RUN_TIMES, Known
from advisor.sim.policies.mover import WINDOW_S, Mover, changed_slurm
from advisor.sim.slurm.slurmctld import prioritise
from advisor.sim.state import PENDING, State
from tests.builders import DAY_S, HOUR_S
from tests.examples import examples
from tests.planning.queues import make_mover
from tests.sim.building import make_trace
from tests.sim.internals import insert

CLUSTER: Final = parse_cluster("nodes=2,gpus=4")
NOW: Final = 30 * DAY_S


def owed_at(mover: Mover, state: State, now: float) -> list[float]:
    """Return what users are owed at an instant."""
    count_owed(state, mover.moves, now)
    waits = mover.moves.waits["owed"]
    return [float(value) for value in waits]


def two_users(plain_start_time: list[float], start_time: Any) -> tuple[Mover, State]:
    """Return three jobs, two of one user and one of another, submitted at 0, with their starts."""
    trace = make_trace([{"gpus": 1, "run_time_s": HOUR_S, "user": user} for user in ("ann", "ann", "bob")])
    mover, state = make_mover(trace, CLUSTER, limits=Limits(), plain_start_time=plain_start_time)
    state.jobs["start_time"] = start_time
    return mover, state


def test_only_what_plain_slurm_has_done_by_now_counts() -> None:
    mover, state = two_users([HOUR_S, 2 * HOUR_S, 9 * HOUR_S], [np.nan, 0.0, np.nan])

    early, late = (owed_at(mover, state, hours * HOUR_S) for hours in (1, 3))

    # After an hour: the first job waits as under plain Slurm, the second started an hour sooner.
    assert early == [-HOUR_S / (2 * Limits().agreed_delay_s), 0.0]
    # After three: the first has waited two hours longer, the second two hours less.
    assert late == [0.0, 0.0]


def test_old_jobs_drop_out() -> None:
    mover, state = two_users([1.0, 1.0, 1.0], np.nan)

    assert min(owed_at(mover, state, HOUR_S)) > 0.0
    assert owed_at(mover, state, HOUR_S + WINDOW_S) == [0.0, 0.0]


def test_waits_are_added_up_every_so_often() -> None:
    mover, state = two_users([1.0, 1.0, 1.0], np.nan)
    waiting(mover, state, [0.0, 0.0, 0.0], HOUR_S)
    settings_of, seen = mover.moves.settings, []

    for now in (HOUR_S, HOUR_S + 599.0, HOUR_S + 600.0):
        mover.cycle(state, now)
        seen.append(float(settings_of["counted_time"][0]))

    assert seen == [HOUR_S, HOUR_S, HOUR_S + 600.0]


def waiting(mover: Mover, state: State, nice: list[float], now: float) -> None:
    """Put all jobs into the line with some nice values."""
    state.jobs["phase"] = PENDING
    state.jobs["nice"] = nice
    for row in range(len(state.jobs)):
        mover.slurm.eligible_time[row] = state.jobs["submit_time"][row]
        prioritise(state, mover.slurm, row, now)
        insert(state, mover.slurm, row)


def chosen_by_planner(mover: Mover, state: State, owed: list[float]) -> dict[int, float]:
    """Return the nice that the planner's functions give the jobs of the line, in place of `engine/moves.c`."""
    jobs, moves, limits, planning = state.jobs, mover.moves, mover.limits, mover.planning
    control, rows = moves.settings[0], mover.rows(state)
    due = rows[(mover.until[rows] > 0.0) & (mover.until[rows] <= NOW)]
    nice = {int(row): float(mover.nice[row]) for row in due}
    put_back = np.array([prioritised(mover, state, int(row), nice.get(int(row))) for row in rows])
    present = np.array([nice.get(int(row), float(jobs["nice"][row])) for row in rows])
    run_s, taken, limit_s = moves.run_s[rows], mover.taken[rows], jobs["limit_s"][rows]
    weighed = bool(control["is_weighed"])
    is_late = is_overdue(NOW, moves.plain_start_time[rows], moves.submit_time[rows], limits)
    line = Waiting(
        priority=put_back + (present - mover.nice[rows]),
        gpu_s=run_s * taken,
        tasks=np.ones(len(rows)),
        run_s=run_s,
        waited_s=NOW - mover.slurm.eligible_time[rows],
        owed=np.array(owed)[jobs["user"][rows]],
        is_overdue=is_late & weighed,
        capacity=float(mover.capacity[0]),
    )
    objective = Objective(
        decades=planning.priority_decades, scale=float(control["scale"]), patience_s=planning.patience_s,
        max_credit=planning.max_credit, is_weighed=weighed,
    )  # fmt: skip
    stakes = Stakes(
        gpu_s=line.gpu_s if limits.is_lane else taken * np.where(np.isfinite(limit_s), limit_s, run_s),
        tasks=line.tasks,
        user=jobs["user"][rows].astype(np.intp),
        spent=np.zeros(len(owed)) if limits.is_lane else None,
    )
    is_lifted = (mover.until[rows] > 0.0) & ~np.isin(rows, due)
    bounds = Bounds.of(planning, limits, line.capacity)
    is_old = NOW - jobs["submit_time"][rows] >= limits.min_job_age_s
    chosen = lifts(objective.keys(line), put_back, is_lifted, is_old, stakes, bounds=bounds, scale=objective.scale)
    for at, priority in zip(chosen.row, chosen.priority, strict=True):
        nice[int(rows[at])] = float(np.trunc(present[at] + put_back[at] - priority))
    return nice


def prioritised(mover: Mover, state: State, row: int, nice: float | None) -> float:
    """Return the priority of a job, or what it would be with another nice."""
    before = int(state.jobs["nice"][row])
    if nice is not None:
        state.jobs["nice"][row] = nice
        prioritise(state, mover.slurm, row, NOW)
    priority = float(state.jobs["priority"][row])
    state.jobs["nice"][row] = before
    if nice is not None:
        prioritise(state, mover.slurm, row, NOW)
    return priority


AGES_S: Final = [30.0, 90.0, 900.0, HOUR_S, 5 * HOUR_S, DAY_S, 6 * DAY_S]
CHOICES: Final[dict[str, list[Any]]] = {
    "age_s": AGES_S,
    "gpus": [1, 2, 4, 8],
    "limit_s": [600.0, 3600.0, 7200.0, 90_000.0],
    "nice": [0, 0, 0, 50, -7],
    "user": [0, 0, 0, 1, 2],
    "lift": [None, None, None, None, 100.0, -100.0],
    "plain_wait_s": [None, None, 0.0, 60.0, 4 * HOUR_S],
}


def jobs_of(seed: int) -> list[dict[str, Any]]:
    """Return jobs drawn at random, the oldest first: more and more varied ones than lists of Hypothesis hold."""
    rng = np.random.default_rng(seed)
    drawn = [
        {name: among[rng.integers(len(among))] for name, among in CHOICES.items()} for _ in range(rng.integers(2, 60))
    ]
    return sorted(drawn, key=lambda each: -float(each["age_s"]))


@settings(max_examples=examples(600), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    drawn=st.integers(0, 2**32 - 1).map(jobs_of),
    fairness=st.sampled_from(["trade", "site", "lane"]),
    users=st.sampled_from([("ann",), ("ann", "bob", "cy")]),
    lift_places=st.sampled_from([1, 4, 20]),
    lift_work_s=st.sampled_from([HOUR_S, 8 * HOUR_S, 30 * DAY_S]),
    lateness_s=st.sampled_from([0.0, HOUR_S, 14 * DAY_S]),
)
def test_lifts_are_those_of_the_planner(
    drawn: list[dict[str, Any]],
    fairness: Fairness,
    users: tuple[str, ...],
    lift_places: int,
    lift_work_s: float,
    lateness_s: float,
) -> None:
    jobs = [
        {"submit_time": NOW - each["age_s"], "time_limit_s": each["limit_s"]}
        | {"gpus": each["gpus"], "nice": each["nice"], "user": users[each["user"] % len(users)]}
        for each in drawn
    ]
    plain = [np.nan if (wait := each["plain_wait_s"]) is None else NOW - each["age_s"] + wait for each in drawn]
    limits = Limits(fairness=fairness, max_lateness_s=lateness_s, lane_ratio=0.2, fairness_window_s=lift_work_s)
    planning = PlanningSettings(lift_places=lift_places, lift_work_s=lift_work_s)
    mover, state = make_mover(make_trace(jobs), CLUSTER, limits=limits, planning=planning, plain_start_time=plain)
    lifted = [each["lift"] for each in drawn]
    waiting(mover, state, [each["nice"] - 5000 * (each["lift"] is not None) for each in drawn], NOW)
    mover.until[:] = [0.0 if lift is None else NOW + lift for lift in lifted]
    owed = owed_at(mover, state, NOW)
    expected = chosen_by_planner(mover, state, owed)
    before = state.jobs["nice"].copy()

    mover.cycle(state, NOW)

    after = state.jobs["nice"]
    assert {row: float(after[row]) for row in np.flatnonzero(after != before).tolist()} == {
        row: nice for row, nice in expected.items() if nice != before[row]
    }


@pytest.mark.parametrize("every_s", [60.0, 0.1])
@pytest.mark.parametrize("known", RUN_TIMES)
def test_rounds_of_the_compiled_loop_are_those_of_any_other(every_s: float, known: Known) -> None:
    jobs = [{"gpus": 8, "run_time_s": 3.0, "time_limit_s": 7000.0 + number} for number in range(30)]
    trace = make_trace(jobs)
    (compiled, one), (called, other) = (
        make_mover(trace, CLUSTER, limits=Limits(min_job_age_s=0.0), run_times=known) for _ in range(2)
    )

    compiled.run(every_s, one, 200.0)
    changed_slurm(called, every_s, other, 200.0)

    assert str(one.jobs[["start_time", "nice"]].tolist()) == str(other.jobs[["start_time", "nice"]].tolist())
    assert int(one.tally["changes"][0]) > 0
