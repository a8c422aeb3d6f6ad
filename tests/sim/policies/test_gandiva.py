"""Gandiva on cases small enough to compute by hand."""

import pytest

from advisor.domain.topology import LocalityTier
from advisor.sim.simulated_policy import SimulationOptions
from tests.sim.building import make_trace, profile, run_of, starts_and_ends, times_of

MEASURED = SimulationOptions(execution="measured")


def inflation_beside_itself(model: str) -> float:
    """Return how much longer two jobs of a model run on the same GPUs."""
    row = profile(model)
    return float(row["gpu_need"] + row["gpu_pressure"])


def test_two_jobs_take_turns_on_one_gpu() -> None:
    jobs = [{"run_time_s": 3000}, {"run_time_s": 3000}]

    run = run_of(jobs, "nodes=1,gpus=1", "gandiva")

    # Slices of 1,200 s: first, second, first, second, and 600 s of each are left.
    assert starts_and_ends(run) == [(0, 5400), (1200, 6000)]
    assert run.outcomes["preemptions"].tolist() == [2, 2]


def test_nobody_takes_turns_where_there_is_room() -> None:
    jobs = [{"run_time_s": 3000}, {"run_time_s": 3000}]

    run = run_of(jobs, "nodes=1,gpus=2", "gandiva")

    assert starts_and_ends(run) == [(0, 3000), (0, 3000)]
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_a_gang_gets_its_turn() -> None:
    jobs = [{"run_time_s": 5000}, {"run_time_s": 5000}, {"submit_time": 100, "gpus": 2, "run_time_s": 600}]

    assert times_of(jobs, "nodes=1,gpus=2", "gandiva") == [(0, 5600), (0, 5600), (1200, 1800)]


def test_who_has_run_longest_makes_room() -> None:
    jobs = [{"run_time_s": 5000}, {"submit_time": 300, "run_time_s": 5000}, {"submit_time": 900, "run_time_s": 100}]

    run = run_of(jobs, "nodes=1,gpus=2", "gandiva")

    assert run.outcomes["preemptions"].tolist() == [1, 0, 0]
    assert starts_and_ends(run)[2] == (1200, 1300)


def test_a_pair_that_runs_well_stays_together() -> None:
    jobs = [{"run_time_s": 1000, "model": "lm"}] * 2
    slower = inflation_beside_itself("lm")

    run = run_of(jobs, "nodes=1,gpus=1", "gandiva", MEASURED)

    assert slower < 2.0
    assert run.outcomes["end_time"] == pytest.approx([1000 * slower] * 2)
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_a_pair_that_runs_badly_is_parted_a_round_later_and_not_tried_again() -> None:
    jobs = [{"run_time_s": 500, "model": "a3c"}] * 2
    slower = inflation_beside_itself("a3c")

    run = run_of(jobs, "nodes=1,gpus=1,restart_s=0", "gandiva", MEASURED)

    # The second starts again with the first round after the end of the first.
    left_s = 500 - 300 / slower
    assert slower > 2.0
    assert run.outcomes["start_time"].tolist() == [0, 0]
    assert run.outcomes["end_time"] == pytest.approx([300 + left_s, 900 + left_s])
    assert run.outcomes["preemptions"].tolist() == [0, 1]


def test_a_pair_is_parted_when_the_overload_ends() -> None:
    jobs = [{"run_time_s": 600, "model": "lm"}] * 2 + [{"run_time_s": 10_000, "model": "lm"}]
    shared_s = 600 / inflation_beside_itself("lm")

    run = run_of(jobs, "nodes=1,gpus=2,restart_s=60", "gandiva", MEASURED)

    # The last is put beside one of the others until the second GPU falls free, at 600 s.
    ends = sorted(end for _, end in starts_and_ends(run))
    assert ends == pytest.approx([600, 600 + 600 - shared_s, 600 + 60 + 10_000 - shared_s])
    assert run.outcomes["preemptions"].tolist() == [0, 0, 1]


def test_jobs_with_different_requests_are_not_paired() -> None:
    jobs = [{"run_time_s": 1000, "model": "lm"}, {"run_time_s": 1000, "model": "lm", "memory_mib_per_gpu": 1}]

    assert times_of(jobs, "nodes=1,gpus=1", "gandiva", MEASURED) == [(0, 1000), (1200, 2200)]


def test_no_pairs_are_made_under_ideal_execution() -> None:
    jobs = [{"run_time_s": 1000, "model": "lm"}] * 2

    assert times_of(jobs, "nodes=1,gpus=1", "gandiva") == [(0, 1000), (1200, 2200)]


def test_gang_that_its_place_slows_moves_closer_once_a_place_comes_free() -> None:
    # Two leaves have one node free each when the gang comes; the third leaf comes free at 1,000 s.
    trace = make_trace(
        [
            {"gpus": 8, "run_time_s": 9000},
            {"gpus": 8, "run_time_s": 100},
            {"gpus": 8, "run_time_s": 9000},
            {"gpus": 8, "run_time_s": 100},
            {"gpus": 16, "run_time_s": 1000, "nodes_max": 2},
            {"gpus": 16, "run_time_s": 3000, "nodes_max": 2, "submit_time": 150, "model": "bert"},
        ]
    )

    run = run_of(trace, "nodes=6,gpus=8,leaf=2,nic_gbps=10,oversubscription=10", "gandiva", MEASURED)

    stays = run.segments[run.segments["job"] == 5]
    assert stays["start_time"].tolist() == [300.0, 1200.0]
    assert stays["tier"].tolist() == [LocalityTier.SPINE, LocalityTier.LEAF]
    assert not run.outcomes["preemptions"][:5].any()


def test_gang_that_its_place_does_not_slow_stays() -> None:
    jobs = [{"gpus": 16, "run_time_s": 3000, "nodes_max": 2, "model": "bert"}]

    run = run_of(jobs, "nodes=6,gpus=8,leaf=2,nic_gbps=10,oversubscription=10", "gandiva", MEASURED)

    assert starts_and_ends(run) == [(0.0, 3000.0)]
