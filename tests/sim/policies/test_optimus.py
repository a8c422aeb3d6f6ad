"""Optimus on cases small enough to compute by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from advisor.sim.policies.optimus import believed_curve, fitted, settle
from advisor.sim.profiles import step_s
from advisor.sim.simulated_policy import SimulationOptions
from tests.sim.building import make_trace, profile, run_of, starts_and_ends
from tests.sim.watching import seen_at_first, sizes_of

LM = {"model": "lm", "gpus": 2, "gpus_min": 1, "gpus_max": 8}


def true_curve() -> list[float]:
    """Return the time per step of the model LM on 1 to 8 GPUs, over that on 2."""
    row = profile("lm")
    return [step_s(row, size) / step_s(row, 2) for size in range(1, 9)]


def curve_believed(options: SimulationOptions) -> list[float]:
    """Return what is believed of it."""
    return seen_at_first(make_trace([LM]), "nodes=1,gpus=8", lambda view: believed_curve(view, 0), options)


def test_rigid_jobs_go_by_the_time_left_and_preempt() -> None:
    jobs = [{"run_time_s": 1000}, {"submit_time": 100, "run_time_s": 100}]

    run = run_of(jobs, "nodes=1,gpus=1", "optimus")

    assert starts_and_ends(run) == [(0, 1300), (300, 400)]
    assert run.outcomes["preemptions"].tolist() == [1, 0]


def test_a_gpu_goes_where_it_saves_the_most_time() -> None:
    job = {"gpus": 1, "gpus_min": 1, "gpus_max": 6}
    jobs = [{**job, "run_time_s": 400}, {**job, "run_time_s": 100}]

    # The second GPU saves 200 s to the first job and 50 s to the second, the third 67 s and 17 s, the fourth 33 s.
    assert sizes_of(run_of(jobs, "nodes=1,gpus=6", "optimus")) == [[4], [2]]


def test_a_job_that_takes_more_of_the_memory_gets_less() -> None:
    job = {"gpus": 1, "gpus_min": 1, "gpus_max": 5, "run_time_s": 100}
    jobs = [{**job, "memory_mib_per_gpu": 400}, job]

    # Time saved by share, GPU after GPU: 50 * 3, 17 * 3 for the first job and 50 * 5, 17 * 5, 8 * 5 for the second.
    assert sizes_of(run_of(jobs, "nodes=1,gpus=5,memory_mib=1200", "optimus")) == [[2], [3]]


def test_an_idle_gpu_is_left_idle_where_it_saves_nothing() -> None:
    curve = true_curve()

    run = run_of([LM], "nodes=1,gpus=8", "optimus", SimulationOptions())

    assert sizes_of(run) == [[1 + int(np.argmin(curve))]]
    assert np.argmin(curve) < 7


def test_a_fitted_curve_tells_of_such_a_size_too() -> None:
    run = run_of([LM], "nodes=1,gpus=8", "optimus", SimulationOptions(speeds="estimated"))

    (sizes,) = sizes_of(run)
    assert len(sizes) == 1 and sizes[0] < 8


def test_the_oracle_knows_the_curve() -> None:
    assert curve_believed(SimulationOptions()) == pytest.approx(true_curve())


def test_a_noisy_curve_is_off_by_its_percentage_at_every_size_but_the_one_asked() -> None:
    ratios = np.array(true_curve()) / np.array(curve_believed(SimulationOptions(speeds="noisy=20")))

    assert ratios[1] == pytest.approx(1.0)
    assert {round(float(ratio), 9) for ratio in np.delete(ratios, 1)} == {0.8, 1.2}


def test_a_fitted_curve_is_close_to_the_truth() -> None:
    believed = curve_believed(SimulationOptions(speeds="estimated"))

    assert believed[1] == 1.0
    assert believed == pytest.approx(true_curve(), rel=0.25)
    assert believed != pytest.approx(true_curve(), rel=1e-3)


def test_a_rigid_job_has_a_curve_of_one_size() -> None:
    trace = make_trace([{"gpus": 3, "model": "lm"}])

    assert seen_at_first(trace, "nodes=1,gpus=8", lambda view: believed_curve(view, 0)) == [1.0]


def test_a_fit_finds_the_numbers_behind_exact_times() -> None:
    sizes, others = np.array([1, 2, 4, 8]), np.array([3, 16])

    times = fitted(sizes, 2.0 / sizes + 0.5 + 0.1 * sizes, others)

    assert times == pytest.approx(2.0 / others + 0.5 + 0.1 * others)


def test_a_fit_has_no_negative_number() -> None:
    sizes = np.array([1, 2, 4, 8])
    falling = 1.0 / sizes**2

    times = fitted(sizes, falling, np.array([1, 100]))

    # Free numbers would go below 0 far out. Of a / n alone the best is a = sum(t / n) / sum(1 / n^2).
    best = float((falling / sizes).sum() / (1.0 / sizes**2).sum())
    assert times == pytest.approx([best, best / 100])


@pytest.mark.parametrize(
    ("work_s", "held", "target", "gpus_free", "settled"),
    [
        pytest.param([300], [2], [3], 1, [2], id="growth that saves 50 s is not worth a restart of 60 s"),
        pytest.param([600], [2], [3], 1, [3], id="growth that saves 100 s is"),
        pytest.param([800, 800, 100], [4, 4, 0], [2, 3, 1], 0, [4, 3, 1], id="who loses least makes room, no other"),
        pytest.param([800, 800, 100], [4, 4, 0], [2, 3, 3], 0, [2, 3, 3], id="all make room where it takes all"),
        pytest.param([800, 800, 100], [4, 4, 0], [2, 3, 1], 1, [4, 4, 1], id="nobody makes room for what fits"),
        pytest.param([1000, 900], [3, 3], [4, 2], 0, [3, 3], id="23 s saved for 210 s lost"),
        pytest.param([10_000, 100], [3, 3], [4, 2], 0, [4, 2], id="773 s saved for 77 s lost"),
        pytest.param([1000, 1000], [2, 2], [0, 4], 0, [0, 4], id="GPUs of a stopped job are free"),
        pytest.param([9999, 9999, 100], [2, 2, 2], [3, 3, 1], 0, [3, 2, 1], id="nobody gives twice"),
        pytest.param(
            [10_000, 10_000, 10_000],
            [2, 2, 2],
            [3, 1, 3],
            1,
            [3, 2, 2],
            id="one grows into what is free, the other stays",
        ),
    ],
)
def test_running_jobs_change_only_where_it_is_worth_it(
    work_s: Sequence[float], held: Sequence[int], target: Sequence[int], gpus_free: int, settled: Sequence[int]
) -> None:
    found = settle(np.array(held), np.array(target), gpus_free, 60.0, lambda place, size: work_s[place] / size)

    assert found.tolist() == settled


def test_a_running_job_grows_into_gpus_that_fall_free() -> None:
    jobs = [{"gpus": 2, "gpus_max": 4, "run_time_s": 3000}, {"gpus": 2, "run_time_s": 600}]

    run = run_of(jobs, "nodes=1,gpus=4", "optimus")

    # 2,400 s of work are left at 600 s, at twice the speed.
    assert starts_and_ends(run) == [(0, 1800), (0, 600)]
    assert run.outcomes["resizes"].tolist() == [1, 0]


def test_a_running_job_shrinks_for_one_that_waits() -> None:
    jobs = [{"gpus": 4, "gpus_min": 2, "run_time_s": 3000}, {"submit_time": 100, "gpus": 2, "run_time_s": 600}]

    run = run_of(jobs, "nodes=1,gpus=4", "optimus")

    # 300 s alone, 600 s at half the speed, and the rest alone again.
    assert starts_and_ends(run) == [(0, 900 + 2400), (300, 900)]
    assert sizes_of(run) == [[4, 2, 4], [2]]
    assert run.outcomes["preemptions"].tolist() == [0, 0]


def test_a_running_job_does_not_grow_for_less_than_a_restart() -> None:
    jobs = [{"gpus": 2, "gpus_max": 3, "run_time_s": 400}, {"gpus": 1, "run_time_s": 200}]

    run = run_of(jobs, "nodes=1,gpus=3,restart_s=60", "optimus", SimulationOptions())

    assert starts_and_ends(run) == [(0, 400), (0, 200)]
    assert run.outcomes["resizes"].tolist() == [0, 0]


def test_a_running_job_does_not_grow_by_a_part_that_is_not_worth_a_restart() -> None:
    filler = {"run_time_s": 100, "memory_mib_per_gpu": 100}
    jobs = [
        {"gpus": 2, "gpus_max": 4, "run_time_s": 455},
        {"gpus": 1, "run_time_s": 10_000},
        {"gpus": 3, "run_time_s": 20_000},
        filler,
        filler,
    ]

    run = run_of(jobs, "nodes=2,gpus=4,memory_mib=100,restart_s=60", "optimus", SimulationOptions())

    # At 300 s one GPU is free on each node. Of the 155 s left, 4 GPUs would save 61 s but do not fit, and 3 save 41 s.
    assert starts_and_ends(run)[0] == (0, 455)
    assert run.outcomes["resizes"].tolist() == [0] * 5
