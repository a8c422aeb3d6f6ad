"""The page of the auto-tuner: fixed timers by name, regret, steps."""

from math import isnan
from pathlib import Path

import numpy as np
import pytest

from advisor.sim.cluster import parse_cluster
from advisor.sim.runner import SimulationOptions
from advisor.sim.study.cell import Cell, simulate_drawn
from tests.test_pages_dally import CORNER, SEEDS, cells_of, make_result
from tools.dally.load_steps import (
    FREQUENT_S,
    HALF_S,
    RARE_S,
    SAVES_S,
    Curves,
    followed,
    place_curve,
    sampled_times,
    step_trace,
)
from tools.dally.running import TUNED_NAME, Watch, name_of, run_watched, simulate_timers, timers_of
from tools.dally.workload import GPUS, HOUR_S, NIC_GBPS, cluster_text, make_trace
from tools.pages.__main__ import main
from tools.pages.page_experiment import Experiment, Runner
from tools.pages.tuner import pairs, regret_section, run_regrets


def make_cell(policy: str, jobs: int = 60) -> Cell:
    """Return a batch on the congested cluster."""
    cluster = parse_cluster(cluster_text(10.0, NIC_GBPS))
    return Cell(trace=make_trace(0, jobs, None), cluster=cluster, policy=policy, seed=0, options=SimulationOptions())


def curve(before_s: float, after_two_hours_s: float, level_s: float) -> Curves:
    """Return a timer that stands still but for two jumps: at the step and a little more than two hours later."""
    times = sampled_times()
    late = times > HALF_S + 2.0 * HOUR_S
    return np.where(times < HALF_S, before_s, np.where(late, level_s, after_two_hours_s))


def test_a_leaf_timer_is_never_shorter_than_the_node_timer() -> None:
    outcome = pairs([300.0, 0.0, 60.0])

    assert outcome == [(0.0, 0.0), (0.0, 60.0), (0.0, 300.0), (60.0, 60.0), (60.0, 300.0), (300.0, 300.0)]


def test_a_name_tells_its_timers() -> None:
    assert timers_of(name_of((0.0, 86_400.0))) == (0.0, 86_400.0)
    assert all(isnan(timer_s) for timer_s in timers_of(TUNED_NAME))


@pytest.mark.parametrize(("name", "policy"), [("dally", "dally"), ("0/0", "dally-nowait"), ("600/1800", "dally-fixed")])
def test_timers_by_name_run_as_the_policy_that_has_them(name: str, policy: str) -> None:
    ours, theirs = simulate_timers(make_cell(name), None), simulate_drawn(make_cell(policy), None)

    assert np.array_equal(ours.outcomes, theirs.outcomes)
    assert np.array_equal(ours.segments, theirs.segments)


def test_a_run_is_the_same_when_its_timers_are_read() -> None:
    watch = Watch(times=[0.0, 1e9], gpus=16, worths_s=[600.0, 7200.0])

    run = run_watched(make_cell(TUNED_NAME), watch)

    assert np.array_equal(run.outcomes, simulate_timers(make_cell(TUNED_NAME), None).outcomes)
    assert np.array(watch.timers_s).shape == (2, 2, 2)
    # Before anything was seen, and when all is forgotten, a gang waits for three assumed means at most.
    assert watch.timers_s[0] == watch.timers_s[1]
    assert watch.timers_s[0][1] == [1800.0, 5400.0]
    assert watch.timers_s[0][0][1] == 0.0


def test_every_corner_has_tuned_timers_and_all_pairs_on_the_same_traces() -> None:
    experiment = Experiment(
        page="tuner", summary="", timers_s=(0.0, 60.0), loads=(None,), oversubscription=(1.0, 10.0), jobs=10, seeds=2
    )

    regrets = run_regrets(experiment, Runner(store=None, workers=1))

    assert [corner.name for corner in regrets] == ["batch, 1:1", "batch, 10:1"]
    for own in regrets.values():
        assert list(own) == ["dally", "0/0", "0/60", "60/60"]
        assert {tuple(result.summary.seed for result in results) for results in own.values()} == {(0, 1)}


@pytest.mark.parametrize(("pace", "expected"), [(1.09, "yes"), (1.11, "no"), (0.9, "yes")])
def test_regret_is_held_against_the_pair_with_the_lowest_mean_jct(pace: float, expected: str) -> None:
    paces = {TUNED_NAME: pace, "0/0": 2.0, "0/300": 1.0, "300/300": 1.5}
    own = {name: [make_result(name, seed, each, 0.5) for seed in SEEDS] for name, each in paces.items()}

    lines = regret_section({CORNER: own}).splitlines()

    row = cells_of("\n".join(lines), f"| {CORNER.name} |")
    assert row[1] == "0 s / 5 min"
    assert row[4].startswith(f"{100 * (pace - 1):+.1f} %")
    assert row[5] == expected
    assert row[6:] == ["0 s / 0 s", "+100.0 % (+100.0 to +100.0)"]
    assert any(line.startswith(f"Within 10 %: {int(expected == 'yes')} of 1 corners.") for line in lines)


def test_one_pair_for_all_is_the_one_that_is_never_bad() -> None:
    calm = {"dally": 1.0, "0/0": 1.0, "0/300": 1.2, "300/300": 1.3}
    busy = {"dally": 1.0, "0/0": 3.0, "0/300": 1.1, "300/300": 1.0}
    regrets = {
        corner: {name: [make_result(name, seed, pace, 0.5) for seed in SEEDS] for name, pace in paces.items()}
        for corner, paces in ((CORNER, calm), (type(CORNER)(load_ratio=0.9, oversubscription=10.0), busy))
    }

    expected = " ".join(regret_section(regrets).split())

    assert "least is 0 s / 5 min: 20.0 %. That of tuned timers is 0.0 %." in expected


def test_a_step_brings_in_one_load_before_and_another_after() -> None:
    traces = [step_trace(seed, 0.4, 1.2) for seed in range(40)]

    loads = [
        np.mean([_load_ratio(trace.jobs[(trace.jobs["submit_time"] < HALF_S) == is_before]) for trace in traces])
        for is_before in (True, False)
    ]

    assert loads == pytest.approx([0.4, 1.2], rel=0.1)
    assert all(2.0 * HALF_S - HOUR_S < trace.jobs["submit_time"][-1] < 2.0 * HALF_S for trace in traces)


def _load_ratio(jobs: np.ndarray) -> float:
    return float((jobs["run_time_s"] * jobs["gpus"]).sum()) / HALF_S / GPUS


@pytest.mark.parametrize(
    ("before_s", "after_s", "level_s", "covered"), [(100.0, 180.0, 200.0, 0.8), (200.0, 150.0, 100.0, 0.5)]
)
def test_what_is_covered_is_a_share_of_the_way(before_s: float, after_s: float, level_s: float, covered: float) -> None:
    outcome = followed(np.array([curve(before_s, after_s, level_s)] * 3))

    assert (outcome.before_s, outcome.level_s) == (before_s, level_s)
    assert outcome.after_s == {1: after_s, 2: after_s, 3: level_s}
    assert (outcome.covered, outcome.low, outcome.high) == pytest.approx((covered, covered, covered))


@pytest.mark.parametrize(
    "levels_s", [(105.0, 105.0, 105.0), (300.0, 100.0, 20.0)], ids=["too small", "not the same over seeds"]
)
def test_where_levels_do_not_differ_there_is_no_step(levels_s: tuple[float, ...]) -> None:
    outcome = followed(np.array([curve(100.0, 100.0, level_s) for level_s in levels_s]))

    assert isnan(outcome.covered)


def test_timers_fall_where_places_become_rare_and_rise_where_they_become_frequent() -> None:
    times = sampled_times()
    rare, frequent = place_curve(0, FREQUENT_S, RARE_S, 8.0), place_curve(0, RARE_S, FREQUENT_S, 8.0)

    # A place that comes after ten minutes is worth two hours; one that comes after four is not.
    assert (rare[(times > 0.0) & (times < HALF_S)] == SAVES_S[-1]).all()
    assert rare[times >= HALF_S].mean() < 0.9 * SAVES_S[-1]
    assert (frequent[times >= HALF_S + 24.0 * HOUR_S] == SAVES_S[-1]).all()
    assert np.array_equal(rare, place_curve(0, FREQUENT_S, RARE_S, 8.0))


@pytest.mark.slow
def test_the_page_is_written(tmp_path: Path) -> None:
    output = tmp_path / "tuner.md"

    status = main(["tuner", "--seeds", "1", "--jobs", "5", "--workers", "1", "-o", str(output)])

    text = output.read_text()
    assert status == 0
    assert "Written by `python -m tools.pages tuner --jobs 5 --seeds 1`" in text
    assert text.count("| batch, ") == 3 and text.count("| load 1.1, ") == 3
    assert "| 0.4 to 1.2 | 2.0 h | node |" in text
    assert "| 10 min to 4.0 h | 8 |" in text
