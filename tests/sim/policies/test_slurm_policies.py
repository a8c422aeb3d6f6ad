"""Policies that sort the whole line, pins and lifts: who starts first and when, and what others pay for it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.settings import Limits
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters, parse_cluster
from advisor.sim.policies.lifted import Lift, policy_with
from advisor.sim.runner import known_policy, simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.queue_tables import PartitionTable
from advisor.sim.study.metrics import summarise
from tests.sim.building import make_trace, run_of, starts_and_ends

ONE_NODE = Cluster(
    nodes=(NodeGroup(count=1, gpus=4),),
    slurm=SlurmParameters(tick_s=0.0, batch_sched_delay_s=0.0, limit_check_s=0.0, priority_calc_period_s=60.0),
)
FULL = {"gpus": 4, "nodes_min": 1}
MINUTELY = SimulationOptions(execution="ideal", advise_every_s=60.0)


def starts(jobs: list[dict[str, object]], policy: str) -> list[float]:
    run = run_of([{**FULL, **job} for job in jobs], ONE_NODE, policy, MINUTELY)
    return [float(start) for start in run.outcomes["start_time"]]


def test_least_gpu_time_by_the_limits_starts_first() -> None:
    first, long, short = starts(
        [
            {"run_time_s": 300, "time_limit_s": 300},
            {"submit_time": 1, "run_time_s": 100, "time_limit_s": 900},
            {"submit_time": 2, "run_time_s": 200, "time_limit_s": 600},
        ],
        "order-limits",
    )

    assert first < short < long


def test_true_run_times_decide_where_they_are_known() -> None:
    first, short, long = starts(
        [
            {"run_time_s": 300, "time_limit_s": 300},
            {"submit_time": 1, "run_time_s": 100, "time_limit_s": 900},
            {"submit_time": 2, "run_time_s": 200, "time_limit_s": 600},
        ],
        "order-oracle",
    )

    assert first < short < long


def test_few_gpus_for_long_count_like_many_for_short() -> None:
    first, many, few = starts(
        [
            {"run_time_s": 300, "time_limit_s": 300},
            {"submit_time": 1, "run_time_s": 100, "time_limit_s": 100},
            {"submit_time": 2, "run_time_s": 300, "time_limit_s": 300, "gpus": 1},
        ],
        "order-limits",
    )

    assert first < few < many


def test_line_is_sorted_only_at_the_cycles() -> None:
    # The second job starts in the first minute, before the shorter third is sorted ahead of it.
    first, long, short = starts(
        [
            {"run_time_s": 30, "time_limit_s": 30},
            {"submit_time": 1, "run_time_s": 500, "time_limit_s": 500},
            {"submit_time": 2, "run_time_s": 50, "time_limit_s": 50},
        ],
        "order-limits",
    )

    assert (first, long) == (0.0, 30.0)
    assert short == 530.0


def test_user_who_used_less_goes_first_under_fair_weights() -> None:
    jobs = [
        {"run_time_s": 4000, "time_limit_s": 4000, "user": "ann", "account": 0},
        {"submit_time": 100, "run_time_s": 100, "time_limit_s": 100, "user": "ann", "account": 0},
        {"submit_time": 101, "run_time_s": 400, "time_limit_s": 400, "user": "bob", "account": 0},
    ]

    _, by_limits_short, by_limits_long = starts(jobs, "order-limits")
    _, anns_short, bobs_long = starts(jobs, "order-fair")

    assert by_limits_short < by_limits_long
    assert bobs_long < anns_short


@pytest.mark.parametrize("policy", ["order-limits", "order-oracle", "order-fair"])
def test_every_job_ends(policy: str) -> None:
    random = np.random.default_rng(3)
    jobs = [
        {"submit_time": at, "run_time_s": run_time_s, "time_limit_s": 2 * run_time_s, "gpus": gpus}
        for at, run_time_s, gpus in zip(
            np.sort(random.uniform(0, 3000, 120)), random.uniform(10, 300, 120), random.integers(1, 5, 120), strict=True
        )
    ]

    run = run_of(jobs, ONE_NODE, policy, MINUTELY)

    assert (run.outcomes["end"] == 1).all()
    assert (run.outcomes["start_time"] >= [job["submit_time"] for job in jobs]).all()


def test_in_several_partitions_tiers_come_before_the_keys() -> None:
    divided = replace(
        ONE_NODE,
        partitions=(PartitionTable(name="low", default=True), PartitionTable(name="high", priority_tier=2)),
    )
    jobs = [
        {**FULL, "run_time_s": 300, "time_limit_s": 300},
        {**FULL, "submit_time": 1, "run_time_s": 200, "time_limit_s": 900, "partition": 1},
        {**FULL, "submit_time": 2, "run_time_s": 100, "time_limit_s": 600},
        {**FULL, "submit_time": 3, "run_time_s": 150, "time_limit_s": 1200, "partition": 2},
        {**FULL, "submit_time": 4, "run_time_s": 250, "time_limit_s": 300},
    ]
    trace = replace(make_trace(jobs), partitions=("", "high", "low,high"))

    run = run_of(trace, divided, "order-limits", MINUTELY)

    assert np.argsort(run.outcomes["start_time"]).tolist() == [0, 1, 3, 4, 2]


CLUSTER = "nodes=2,gpus=8,cpus=16"
HOUR_S = 3600.0
# One on each node, of which three GPUs are left.
BUSY = ({"gpus": 5, "submit_time": 0.0, "run_time_s": HOUR_S},) * 2
GANG = {"gpus": 6, "nodes_max": 0, "submit_time": 10.0, "run_time_s": HOUR_S}


def nodes_held(policy: str, gang: Mapping[str, float]) -> int:
    """Return on how many nodes a gang runs that comes behind jobs on both nodes."""
    trace = make_trace([*BUSY, {**GANG, **gang}])
    run = simulate(trace, parse_cluster(CLUSTER), policy, seed=0)
    return int(run.segments["nodes"][run.segments["job"] == len(BUSY)][0])


@pytest.mark.parametrize("policy", ["pin", "lift-pin", "lift:run-times=truth,pin=yes"])
def test_open_gang_runs_on_the_fewest_nodes(policy: str) -> None:
    assert nodes_held("slurm", {}) == 2
    assert nodes_held(policy, {}) == 1


@pytest.mark.parametrize(
    "gang",
    [
        pytest.param({"nodes_min": 2, "nodes_max": 2}, id="fixed"),
        pytest.param({"nodes_min": 2}, id="at least two"),
        pytest.param({"cpus_per_gpu": 3}, id="needs the CPUs of two nodes"),
    ],
)
def test_other_gangs_run_as_under_plain_slurm(gang: Mapping[str, float]) -> None:
    assert nodes_held("pin", gang) == nodes_held("slurm", gang) == 2


def test_young_jobs_hold_no_nodes_in_backfill_where_the_policy_says_so() -> None:
    # Behind a job of eight GPUs that waits for a node, a small one that outlasts its start.
    busy = {"gpus": 5, "submit_time": 0.0, "run_time_s": HOUR_S, "time_limit_s": HOUR_S}
    large = {"gpus": 8, "nodes_max": 1, "submit_time": 10.0, "run_time_s": HOUR_S, "time_limit_s": HOUR_S}
    small = {"gpus": 3, "submit_time": 20.0, "run_time_s": 5 * HOUR_S, "time_limit_s": 5 * HOUR_S}
    trace, cluster = make_trace([busy, large, small]), parse_cluster("nodes=1,gpus=8,cpus=16")

    def waits(policy: str) -> bool:
        return bool(simulate(trace, cluster, policy, seed=0).outcomes["start_time"][2] > HOUR_S)

    assert waits("slurm")
    assert not waits("slurm:reserve-after=3d")
    assert waits("slurm:reserve-first=1")
    assert not waits("lift:reserve-after=6h,pin=yes")


def test_plain_slurm_beside_a_policy_has_what_the_site_sets() -> None:
    policy, counted = policy_with("lift:pin=yes,reserve-after=3d"), policy_with("slurm:reserve-first=1")

    assert policy.summary.endswith(", open gangs on the fewest nodes, bf_min_age_reserve 3.0 d")
    assert counted.summary.endswith(", bf_job_part_count_reserve 1")
    assert counted.parameters == {"bf_job_part_count_reserve": 1}
    assert policy.unadvised.begin is policy_with("slurm:pin=yes").begin
    assert (policy.unadvised.pins, policy.unadvised.parameters) == (True, {"bf_min_age_reserve_s": 72 * HOUR_S})
    with pytest.raises(SimulationError, match="is no option of slurm: known are pin = yes, no; reserve-after, "):
        policy_with("slurm:fairness=user")


def test_without_pins_the_option_changes_nothing() -> None:
    assert policy_with("lift:pin=no").begin == Lift()
    assert not policy_with("lift:pin=no").pins


FOUR_GPUS = "nodes=1,gpus=4"
EAGER = SimulationOptions(execution="ideal", limits=Limits(fairness="site", min_job_age_s=0.0), advise_every_s=60.0)


def test_a_short_job_passes_a_long_one_with_a_single_change() -> None:
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    long = {"submit_time": 10, "gpus": 4, "run_time_s": 20 * HOUR_S, "time_limit_s": 24 * HOUR_S}
    short = {"submit_time": 20, "gpus": 4, "run_time_s": 500, "time_limit_s": 600}
    trace = make_trace([full, long, short])

    plain, lifted = (run_of(trace, FOUR_GPUS, policy, EAGER) for policy in ("slurm", "lift"))

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

    lifted = run_of(trace, FOUR_GPUS, "lift", brief)

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

    lifted = run_of(trace, FOUR_GPUS, "lift", trade)

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

    lifted = run_of(trace, FOUR_GPUS, "lift", EAGER)

    assert lifted.changes == 0
    assert starts_and_ends(lifted) == starts_and_ends(run_of(trace, FOUR_GPUS, "slurm", EAGER))


BUSY_NODE = {"gpus": 4, "run_time_s": 2 * HOUR_S, "time_limit_s": 3 * HOUR_S, "user": "cy"}
LONG = {"submit_time": 10, "gpus": 4, "run_time_s": 20 * HOUR_S, "time_limit_s": 24 * HOUR_S}
OTHER = {"submit_time": 20, "gpus": 4, "run_time_s": 5 * HOUR_S, "time_limit_s": 6 * HOUR_S, "user": "bob"}
SHORT = {"submit_time": 30, "gpus": 4, "run_time_s": 500, "time_limit_s": 600}
SCOPED = Limits(fairness="user", min_job_age_s=0.0, max_lateness_s=48 * HOUR_S)
# One point of priority for each second, so that no two jobs have the same.
AGED = parse_cluster(FOUR_GPUS)
AGED = replace(AGED, slurm=replace(AGED.slurm, priority_weight_age=604_800.0, priority_weight_fairshare=0.0))


def order_of(policy: str, *jobs: Mapping[str, Any], limits: Limits = SCOPED) -> tuple[list[int], int]:
    """The order in which jobs start, and the number of changes."""
    run = run_of(replace(make_trace(list(jobs)), accounts=("lab",)), AGED, policy, replace(EAGER, limits=limits))
    starts = [start for start, _ in starts_and_ends(run)]
    return sorted(range(len(jobs)), key=lambda row: starts[row]), run.changes


def test_jobs_of_a_user_change_places_and_others_keep_theirs() -> None:
    assert order_of("slurm", BUSY_NODE, LONG, OTHER, SHORT) == ([0, 1, 2, 3], 0)
    assert order_of("lift-user", BUSY_NODE, LONG, OTHER, SHORT) == ([0, 3, 2, 1], 2)
    assert order_of("lift", BUSY_NODE, LONG, OTHER, SHORT) == ([0, 3, 2, 1], 2)


def test_jobs_of_other_users_change_places_within_an_account_alone() -> None:
    theirs = {**SHORT, "user": "cy"}

    assert order_of("lift-user", BUSY_NODE, LONG, OTHER, theirs) == ([0, 1, 2, 3], 0)
    assert order_of("lift-account", BUSY_NODE, LONG, OTHER, theirs)[0][1] == 3


def test_job_gives_its_place_once_and_gets_it_back_when_it_is_due() -> None:
    second = {**SHORT, "submit_time": 40}
    brief = replace(SCOPED, max_lateness_s=0.5 * HOUR_S, max_lateness_ratio=0.0)

    order, changes = order_of("lift-user", BUSY_NODE, LONG, OTHER, SHORT, second, limits=brief)

    # Put back after half an hour, with its partner, it gives its place to no other.
    assert (order[1], changes) == (1, 4)


def test_options_of_lift_are_what_its_names_stand_for() -> None:
    named, spelled = (order_of(policy, BUSY_NODE, LONG, OTHER, SHORT) for policy in ("lift-user", "lift:fairness=user"))

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
