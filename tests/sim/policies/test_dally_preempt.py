"""Network-sensitive preemption on cases small enough to compute by hand."""

from typing import Any

import numpy as np
import pytest

from advisor.domain.topology import LocalityTier
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup
from advisor.sim.policies.dally_preempt import KEY_MARGIN, DallyPreempt, give_way, keys, pays, stopping_cost_s
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import SimulationOptions
from tests.sim.building import make_trace, run_of, starts_and_ends, times_of
from tests.sim.offering import INSENSITIVE, SENSITIVE, slower
from tests.sim.watching import run_decision

ONE = "nodes=1,gpus=4,nic_gbps=10"
TWO = "nodes=2,gpus=4,nic_gbps=10"
MEASURED = SimulationOptions()
RESTART_S = 60.0
LONG_S = 100_000.0
# The network slows it, by less than `SENSITIVE`, or by more.
LITTLE, VERY = "transformer", "llama7"
# Whoever may decline nothing starts at once, on whatever place there is.
IMPATIENT = SimulationOptions(limits=Limits(max_added_delay_s=0.0))
# Two GPUs on two nodes run so much longer, of their run time.
COST = slower(2, 2, 10.0, 2, np.inf) - 1.0


def job(submit_time: float, run_time_s: float = LONG_S, *, gpus: int = 4, model: str = SENSITIVE) -> dict[str, Any]:
    return {"submit_time": submit_time, "run_time_s": run_time_s, "gpus": gpus, "nodes_max": 0, "model": model}


def ticks(*times: float) -> list[dict[str, Any]]:
    """Build jobs whose submission makes the policy look; one GPU pushes no gang aside that the network slows."""
    return [job(at, 1.0, gpus=1) for at in times]


def simulate(*jobs: dict[str, Any], cluster: str | Cluster = ONE, options: SimulationOptions = MEASURED) -> Run:
    return run_of(sorted(jobs, key=lambda each: float(each["submit_time"])), cluster, "dally+preempt", options)


def start_of(run: Run, submit_time: float) -> float:
    """Return the first start of the job submitted then."""
    found = run.outcomes["start_time"][run.trace.jobs["submit_time"] == submit_time]
    return float(found[0])


def stretches(run: Run, row: int) -> list[tuple[float, int, int]]:
    """List when a job started, on how many nodes, and at which tier."""
    mine = run.segments[run.segments["job"] == row]
    return [(float(each["start_time"]), int(each["nodes"]), int(each["tier"])) for each in mine]


def test_a_gang_that_waits_pushes_aside_one_that_had_more() -> None:
    run = simulate(job(0), job(0), job(5000, 1000.0), cluster=TWO)

    assert starts_and_ends(run) == [(0, LONG_S + 1000 + RESTART_S), (0, LONG_S), (5000, 6000)]
    assert run.outcomes["preemptions"].tolist() == [1, 0, 0]


def test_without_preemption_it_waits() -> None:
    jobs = [job(0), job(0), job(5000, 1000.0)]

    assert times_of(jobs, TWO, "dally", SimulationOptions())[2] == (LONG_S, LONG_S + 1000)


def test_nobody_is_stopped_where_a_place_is_free() -> None:
    run = simulate(job(0), job(5000, 1000.0), cluster=TWO)

    assert start_of(run, 5000) == 5000
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_who_has_just_started_has_its_quantum() -> None:
    run = simulate(job(0), job(890, 1000.0), *ticks(1190, 1490))

    # It could go at 1200 s, and every 300 s somebody looks.
    assert start_of(run, 890) == 1490


def test_rounds_are_five_minutes_apart() -> None:
    run = simulate(job(0), *ticks(4900), job(5000, 1000.0), *ticks(5199, 5200))

    assert start_of(run, 5000) == 5200


def test_who_was_stopped_is_not_stopped_again_within_the_hour() -> None:
    run = simulate(job(0), job(5000, 1000.0), job(7500, 1000.0), *ticks(8590, 8890))

    # Stopped at 5000 s, and on again since 6000.
    assert start_of(run, 7500) == 8890
    assert run.outcomes["preemptions"][0] == 2


@pytest.mark.parametrize(
    ("model", "start_time"),
    [
        pytest.param(INSENSITIVE, 5000.0, id="less sensitive"),
        pytest.param(SENSITIVE, 5000.0, id="as sensitive"),
        pytest.param(VERY, LONG_S, id="more sensitive"),
    ],
)
def test_nobody_makes_room_for_a_gang_that_the_network_slows_less(model: str, start_time: float) -> None:
    run = simulate(job(0, model=model), job(5000, 1000.0))

    assert start_of(run, 5000) == start_time


@pytest.mark.parametrize(
    ("left_s", "start_time"),
    [pytest.param(2120.0, 7120.0, id="twice the cost"), pytest.param(2130.0, 5000.0, id="more than twice the cost")],
)
def test_a_gang_that_waits_gains_what_its_victim_has_left(left_s: float, start_time: float) -> None:
    run = simulate(job(0, 5000.0 + left_s), job(5000, 1000.0))

    # The victim waits for 1000 s, and takes a minute to start again.
    assert start_of(run, 5000) == start_time


def test_a_victim_has_had_more_by_a_margin() -> None:
    elder, younger = job(0, 1_000_000.0, model=VERY), job(200_000)

    run = simulate(elder, younger, job(202_000, 1000.0), *ticks(202_300), cluster=TWO)

    # A key of 0.1 means a hundredth of what the elder has had: at 202,020 s.
    assert start_of(run, 202_000) == 202_300


@pytest.mark.parametrize(
    ("models", "start_time", "preemptions"),
    [
        pytest.param([VERY, INSENSITIVE, VERY, INSENSITIVE], LONG_S, [0, 0, 0, 0, 0], id="no leaf"),
        pytest.param([VERY, INSENSITIVE, INSENSITIVE, INSENSITIVE], 5000.0, [0, 0, 1, 1, 0], id="the second leaf"),
    ],
)
def test_room_is_made_where_the_gang_is_close_together(
    models: list[str], start_time: float, preemptions: list[int]
) -> None:
    jobs = [job(0, model=model) for model in models]

    run = simulate(*jobs, job(5000, 1000.0, gpus=8), cluster="nodes=4,gpus=4,leaf=2,nic_gbps=10,oversubscription=4")

    assert start_of(run, 5000) == start_time
    assert run.outcomes["preemptions"].tolist() == preemptions


def test_jobs_that_had_less_are_offered_what_is_free_first() -> None:
    run = simulate(job(0), job(5000, 1000.0), job(5500, 10.0, model=INSENSITIVE))

    # The first was stopped at 5000 s, and had 20,000 GPU seconds; the last had none.
    assert start_of(run, 5500) == 6000
    assert stretches(run, 0)[1][0] == 6010


def test_a_wait_that_ended_by_preemption_is_one_that_got_its_place() -> None:
    made: list[DallyPreempt] = []

    def make() -> DallyPreempt:
        made.append(DallyPreempt())
        return made[-1]

    blockers = [job(0, gpus=3, model=LITTLE), job(0, gpus=3, model=LITTLE)]
    trace = make_trace([*blockers, *ticks(4900), job(5000, 1000.0, gpus=2), *ticks(5300)])

    run = run_decision(trace, TWO, make, SimulationOptions(), every_s=0.0)

    assert stretches(run, 3) == [(5300, 1, LocalityTier.NODE)]
    seen = made[-1].tuner(5300.0, PlanningSettings()).seen(2, LocalityTier.NODE)
    assert (seen.gangs, seen.got, seen.within_s) == (1, 1, 300.0)


def spread_gang(run_time_s: float, *, blocked_s: float, tick_times: tuple[float, ...] = (3600.0, 4000.0)) -> Run:
    """Run a gang of two GPUs that starts on two nodes at 10 s, and one of whose nodes is free after `blocked_s`."""
    blockers = [job(0, blocked_s, gpus=3, model=LITTLE), job(0, gpus=3, model=LITTLE)]
    return simulate(*blockers, job(10, run_time_s, gpus=2), *ticks(*tick_times), cluster=TWO, options=IMPATIENT)


def test_a_gang_that_sits_badly_is_moved_to_a_free_place_an_hour_after_it_started() -> None:
    run = spread_gang(LONG_S, blocked_s=2000.0)

    assert stretches(run, 2) == [(10, 2, LocalityTier.LEAF), (4000, 1, LocalityTier.NODE)]
    assert run.outcomes["preemptions"][:3].tolist() == [0, 0, 1]
    done_s = 3990 / (1 + COST)
    assert run.outcomes["end_time"][2] == pytest.approx(4000 + RESTART_S + LONG_S - done_s)


@pytest.mark.parametrize(
    ("saved_s", "moves"),
    [pytest.param(0.9 * RESTART_S, 0, id="too little"), pytest.param(1.1 * RESTART_S, 1, id="more")],
)
def test_a_gang_is_moved_where_that_saves_more_than_its_restart(saved_s: float, moves: int) -> None:
    done_s = 3990 / (1 + COST)

    run = spread_gang(done_s + saved_s / COST, blocked_s=2000.0)

    assert run.outcomes["preemptions"][2] == moves


@pytest.mark.parametrize(
    ("left_s", "stopped"),
    [pytest.param(100.0, False, id="too little is left"), pytest.param(300.0, True, id="enough is left")],
)
def test_a_gang_that_sits_badly_pushes_aside_whoever_loses_less_than_half_its_gain(
    left_s: float, stopped: bool
) -> None:
    done_s = 3990 / (1 + COST)

    run = spread_gang(done_s + left_s, blocked_s=LONG_S)

    # It gains 3.02 x what is left less 60 s, and the victim loses what is left and 60 s.
    assert 3.0 < COST < 3.05
    assert run.segments["job"][run.segments["end_time"] == 4000].tolist() == ([0, 2] if stopped else [])
    assert stretches(run, 2)[1:] == ([(4000, 1, LocalityTier.NODE)] if stopped else [])


def test_a_gang_that_sits_close_is_left_there_however_slow_its_gpus_are() -> None:
    groups = (NodeGroup(count=1, gpus=1, gpu_type="v100"), NodeGroup(count=2, gpus=1, gpu_type="k80"))
    elder, slow = job(0, gpus=1), job(0, gpus=1)

    run = simulate(elder, slow, *ticks(4000, 8000), cluster=Cluster(nodes=groups))

    # Another node of its type is free all the time, and would be no faster.
    assert run.outcomes["end_time"][1] > 2 * LONG_S
    assert run.outcomes["preemptions"].tolist() == [0, 0, 0, 0]


def keys_of(*jobs: tuple[float, float, float]) -> list[float]:
    """Return the keys of jobs given by what they did, how long that took, and their GPU-time."""
    done_s, held_s, attained_gpu_s = (np.array(column, np.float64) for column in zip(*jobs, strict=True))
    return [float(key) for key in keys(done_s, held_s, attained_gpu_s)]


def test_a_job_that_never_ran_comes_first() -> None:
    assert keys_of((0.0, 0.0, 0.0), (10.0, 100.0, 10.0))[0] == 0.0


def test_of_jobs_that_had_as_much_the_one_that_its_places_hurt_comes_first() -> None:
    # The second did a quarter of what it could have done, the third all.
    assert keys_of((0.0, 0.0, 0.0), (25.0, 100.0, 400.0), (100.0, 100.0, 400.0)) == pytest.approx([0.0, 0.5, 1.0])


def test_of_jobs_alike_hurt_the_one_that_had_less_comes_first() -> None:
    assert keys_of((100.0, 100.0, 9.0), (100.0, 100.0, 100.0)) == pytest.approx([0.3, 1.0])


def test_the_network_counts_as_much_as_the_gpu_time() -> None:
    # Half the speed and all of the GPU-time, or full speed and half of it.
    hurt, had_less = keys_of((50.0, 100.0, 100.0), (100.0, 100.0, 50.0))

    assert hurt == pytest.approx(had_less) == pytest.approx(0.5**0.5)


def test_nobody_did_better_than_on_its_best_place() -> None:
    assert keys_of((100.0, 99.0, 100.0)) == [1.0]


def test_first_seconds_of_service_count_against_each_other() -> None:
    one = np.ones(2)

    assert keys(one, one, np.array([0.125, 0.5])).tolist() == [0.5, 1.0]


def test_no_jobs_have_no_keys() -> None:
    nothing = np.zeros(0)

    assert keys(nothing, nothing, nothing).tolist() == []


@pytest.mark.parametrize(
    ("gain_s", "victims", "expected"),
    [
        pytest.param(2121.0, 1, True, id="more than twice the cost"),
        pytest.param(2120.0, 1, False, id="twice the cost"),
        pytest.param(2121.0, 2, False, id="each victim counts"),
        pytest.param(1.0, 0, True, id="any gain without victims"),
        pytest.param(0.0, 0, False, id="no gain"),
    ],
)
def test_preemption_pays_where_the_gain_is_more_than_twice_what_victims_lose(
    gain_s: float, victims: int, expected: bool
) -> None:
    # The gang runs for 1000 s, and a victim takes a minute to start again.
    assert pays(gain_s, stopping_cost_s(victims, 1000.0, 60.0)) == expected


def test_jobs_give_way_that_had_more_and_that_spreading_hurts_no_more() -> None:
    key = np.array([0.5 + KEY_MARGIN, 0.7, 0.7, 0.2])
    sensitivity = np.array([1.0, 1.3, 1.4, 1.0])

    can_go = give_way(key, sensitivity, gang_key=0.5, gang_sensitivity=1.3)

    assert can_go.tolist() == [False, True, False, False]
