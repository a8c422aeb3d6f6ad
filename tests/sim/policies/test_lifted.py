"""Lifts on the model of slurmctld: which jobs they move, and how many changes that takes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.settings import Limits
from advisor.sim.cluster import parse_cluster
from advisor.sim.policies.mover import WINDOW_S, PlainWaits
from advisor.sim.runner import known_policy
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.metrics import summarise
from tests.sim.building import make_state, make_trace, run_of, starts_and_ends

ONE_NODE = "nodes=1,gpus=4"
HOUR_S = 3600.0
EAGER = SimulationOptions(execution="ideal", limits=Limits(fairness="site", min_job_age_s=0.0), advise_every_s=60.0)


def test_a_short_job_passes_a_long_one_with_a_single_change() -> None:
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    long = {"submit_time": 10, "gpus": 4, "run_time_s": 20 * HOUR_S, "time_limit_s": 24 * HOUR_S}
    short = {"submit_time": 20, "gpus": 4, "run_time_s": 500, "time_limit_s": 600}
    trace = make_trace([full, long, short])

    plain, lifted = (run_of(trace, ONE_NODE, policy, EAGER) for policy in ("slurm", "lift"))

    assert starts_and_ends(plain)[2][0] > starts_and_ends(plain)[1][0]
    assert starts_and_ends(lifted)[2][0] < starts_and_ends(lifted)[1][0]
    assert (plain.changes, lifted.changes) == (0, 1)
    assert summarise(lifted).changes == 1


def test_a_lift_that_is_taken_back_counts_as_another_change() -> None:
    full = {"gpus": 4, "run_time_s": 2 * HOUR_S, "time_limit_s": 3 * HOUR_S}
    long = {"submit_time": 10, "gpus": 4, "run_time_s": 20 * HOUR_S, "time_limit_s": 24 * HOUR_S}
    short = {"submit_time": 20, "gpus": 4, "run_time_s": 500, "time_limit_s": 600}
    trace = make_trace([full, long, short])
    brief = replace(EAGER, planning=replace(EAGER.planning, lift_lease_s=1800.0))

    lifted = run_of(trace, ONE_NODE, "lift", brief)

    # Within the two hours that the short job waits, three lifts end and a fourth is in effect.
    assert lifted.changes == 7
    assert starts_and_ends(lifted)[2][0] < starts_and_ends(lifted)[1][0]


def test_time_before_a_job_is_eligible_is_no_part_of_its_wait() -> None:
    first = {"gpus": 4, "run_time_s": 2 * HOUR_S, "time_limit_s": 3 * HOUR_S}
    awaited = {"gpus": 0, "cpus": 1, "nodes_min": 1, "run_time_s": 1.9 * HOUR_S, "time_limit_s": 2 * HOUR_S}
    dependent = {"gpus": 4, "run_time_s": 4 * HOUR_S, "time_limit_s": 4 * HOUR_S, "dependency": 1, "user": "bob"}
    shorter = {"submit_time": 1.85 * HOUR_S, "gpus": 4, "run_time_s": 2 * HOUR_S, "time_limit_s": 2.5 * HOUR_S}
    trace = replace(make_trace([first, awaited, dependent, shorter | {"user": "cy"}]), dependencies=("", "afterany:2"))
    trade = replace(EAGER, limits=replace(EAGER.limits, fairness="trade"))

    lifted = run_of(trace, ONE_NODE, "lift", trade)

    assert starts_and_ends(lifted)[3][0] < starts_and_ends(lifted)[2][0]


def test_jobs_without_gpus_run_and_are_not_lifted() -> None:
    cores = {"gpus": 0, "cpus": 128, "nodes_min": 1}
    trace = make_trace(
        [
            {**cores, "run_time_s": 1000, "time_limit_s": 1200},
            {**cores, "submit_time": 10, "run_time_s": 20 * HOUR_S, "time_limit_s": 24 * HOUR_S},
            {**cores, "submit_time": 20, "run_time_s": 500, "time_limit_s": 600},
        ]
    )

    lifted = run_of(trace, ONE_NODE, "lift", EAGER)

    assert lifted.changes == 0
    assert starts_and_ends(lifted) == starts_and_ends(run_of(trace, ONE_NODE, "slurm", EAGER))


FULL = {"gpus": 4, "run_time_s": 2 * HOUR_S, "time_limit_s": 3 * HOUR_S, "user": "cy"}
LONG = {"submit_time": 10, "gpus": 4, "run_time_s": 20 * HOUR_S, "time_limit_s": 24 * HOUR_S}
OTHER = {"submit_time": 20, "gpus": 4, "run_time_s": 5 * HOUR_S, "time_limit_s": 6 * HOUR_S, "user": "bob"}
SHORT = {"submit_time": 30, "gpus": 4, "run_time_s": 500, "time_limit_s": 600}
SCOPED = Limits(fairness="user", min_job_age_s=0.0, max_lateness_s=48 * HOUR_S)
# One point of priority for each second, so that no two jobs have the same.
AGED = parse_cluster(ONE_NODE)
AGED = replace(AGED, slurm=replace(AGED.slurm, priority_weight_age=604_800.0, priority_weight_fairshare=0.0))


def order_of(policy: str, *jobs: Mapping[str, Any], limits: Limits = SCOPED) -> tuple[list[int], int]:
    """The order in which jobs start, and the number of changes."""
    run = run_of(replace(make_trace(list(jobs)), accounts=("lab",)), AGED, policy, replace(EAGER, limits=limits))
    starts = [start for start, _ in starts_and_ends(run)]
    return sorted(range(len(jobs)), key=lambda row: starts[row]), run.changes


def test_jobs_of_a_user_change_places_and_others_keep_theirs() -> None:
    assert order_of("slurm", FULL, LONG, OTHER, SHORT) == ([0, 1, 2, 3], 0)
    assert order_of("lift-user", FULL, LONG, OTHER, SHORT) == ([0, 3, 2, 1], 2)
    assert order_of("lift", FULL, LONG, OTHER, SHORT) == ([0, 3, 2, 1], 2)


def test_jobs_of_other_users_change_places_within_an_account_alone() -> None:
    theirs = {**SHORT, "user": "cy"}

    assert order_of("lift-user", FULL, LONG, OTHER, theirs) == ([0, 1, 2, 3], 0)
    assert order_of("lift-account", FULL, LONG, OTHER, theirs)[0][1] == 3


def test_job_gives_its_place_once_and_gets_it_back_when_it_is_due() -> None:
    second = {**SHORT, "submit_time": 40}
    brief = replace(SCOPED, max_lateness_s=0.5 * HOUR_S, max_lateness_ratio=0.0)

    order, changes = order_of("lift-user", FULL, LONG, OTHER, SHORT, second, limits=brief)

    # Put back after half an hour, with its partner, it gives its place to no other.
    assert (order[1], changes) == (1, 4)


def test_options_of_lift_are_what_its_names_stand_for() -> None:
    named, spelled = (order_of(policy, FULL, LONG, OTHER, SHORT) for policy in ("lift-user", "lift:fairness=user"))

    assert named == spelled
    summary = known_policy("lift:run-times=forecast,fairness=site").summary
    assert summary == "lift with run times forecast, fairness site"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("lift:fairness=me", "'fairness=me' is no option of lift: known are run-times = limits, forecast, truth; "),
        ("lift:sizes=dl2", "'sizes=dl2' is no option of lift"),
        ("lift:", "'' is no option of lift"),
    ],
)
def test_option_that_is_unknown_or_does_not_fit_is_refused(name: str, fault: str) -> None:
    with pytest.raises(SimulationError, match=fault):
        known_policy(name)


EVERY_S = 600.0


def waits(start_time: list[float], limits: Limits | None = None) -> PlainWaits:
    """Return two jobs of one user and one of another, submitted at 0 and an hour long, by their plain starts."""
    starts = np.array(start_time)
    return PlainWaits(np.zeros(3), np.array([0, 0, 1]), starts, limits or Limits(), every_s=EVERY_S)


def test_only_what_plain_slurm_has_done_by_now_counts() -> None:
    state = make_state(make_trace([{"gpus": 1, "run_time_s": HOUR_S} for _ in range(3)]), "nodes=1,gpus=4")
    state.jobs["start_time"] = [np.nan, 0.0, np.nan]
    plain, rows = waits([HOUR_S, 2 * HOUR_S, 9 * HOUR_S]), np.arange(3)

    early, late = plain.owed(state, rows, HOUR_S), plain.owed(state, rows, 3 * HOUR_S)

    # After an hour: the first job waits as under plain Slurm, the second started an hour sooner.
    assert early.tolist() == [-HOUR_S / (2 * Limits().agreed_delay_s)] * 2 + [0.0]
    # After three: the first has waited two hours longer, the second two hours less.
    assert late.tolist() == [0.0, 0.0, 0.0]


def test_sums_are_kept_for_a_while_and_old_jobs_drop_out() -> None:
    state = make_state(make_trace([{"gpus": 1, "run_time_s": HOUR_S} for _ in range(3)]), "nodes=1,gpus=4")
    state.jobs["start_time"] = np.nan
    plain, rows = waits([0.0, 0.0, 0.0]), np.arange(3)

    first = plain.owed(state, rows, HOUR_S)

    assert (first > 0.0).all()
    assert plain.owed(state, rows, HOUR_S + 0.9 * EVERY_S).tolist() == first.tolist()
    assert plain.owed(state, rows, HOUR_S + WINDOW_S).tolist() == [0.0, 0.0, 0.0]


def test_jobs_are_overdue_beyond_the_larger_bound() -> None:
    limits = Limits(max_lateness_s=10 * HOUR_S, max_lateness_ratio=0.5)
    plain, rows = waits([HOUR_S, 100 * HOUR_S, np.nan], limits), np.arange(3)

    assert plain.is_overdue(rows, 11.5 * HOUR_S).tolist() == [True, False, False]
    assert plain.is_overdue(rows, 151.0 * HOUR_S).tolist() == [True, True, False]
