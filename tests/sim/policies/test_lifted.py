"""Lifts on the model of slurmctld: which jobs they move, and how many changes that takes."""

from dataclasses import replace

from advisor.settings import Limits
from advisor.sim.metrics import summarise
from advisor.sim.simulated_policy import SimulationOptions
from tests.sim.building import make_trace, run_of, starts_and_ends

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
