"""The page of Dally: the workload that is drawn, its figures, and its options."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.topology import LocalityTier
from advisor.sim.run_outcome import End
from advisor.sim.study.result import RunResult, result_of
from tests.sim.building import make_trace as made
from tests.sim.runs import make_run
from tools.data.dally_workload import DEMANDS, GPUS, LONGEST_S, SHORTEST_S, make_trace
from tools.pages.__main__ import main
from tools.pages.dally import UNLIMITED, Bench, Corner, best_of, change_of, page, run_bench, tasks_of
from tools.pages.page_experiment import Experiment, Runner

SEEDS = range(3)
CORNER = Corner(load_ratio=None, oversubscription=10.0)


def make_result(policy: str, seed: int, pace: float, exposed_ratio: float, end: End = End.FINISHED) -> RunResult:
    """Return a run of 8 GPUs for 100 s on one node and 16 for 300 s over leaves, times `pace` and more by the seed."""
    factor = pace * (1.0 + seed / 10.0)
    trace = made([{"gpus": 8}, {"gpus": 16}])
    times = [(0.0, 100.0 * factor), (0.0, 300.0 * factor)]
    run = make_run(
        trace, times, policy=policy, seed=seed, exposed_ratio=exposed_ratio, cluster_gpus=GPUS, ends=[End.FINISHED, end]
    )
    run.segments["tier"] = [LocalityTier.NODE, LocalityTier.SPINE]
    return result_of(run)


def make_bench(paces: Mapping[str, float], exposed_ratios: Mapping[str, float] | None = None) -> Bench:
    """Return a bench of one corner, each policy at its pace."""
    exposed = exposed_ratios or {}
    own = {
        policy: [make_result(policy, seed, pace, exposed.get(policy, 0.5)) for seed in SEEDS]
        for policy, pace in paces.items()
    }
    unlimited: dict[float | None, list[RunResult]] = {None: [make_result(UNLIMITED, seed, 0.1, 0.25) for seed in SEEDS]}
    return Bench(corners={CORNER: own}, unlimited=unlimited, nic_gbps=100.0)


def cells_of(text: str, start: str) -> list[str]:
    """Return the cells of the first table row that starts so."""
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_seed_has_the_same_jobs_under_every_arrival() -> None:
    batch, slow, quick = (make_trace(3, 50, load_ratio) for load_ratio in (None, 0.5, 1.0))

    for name in ("gpus", "run_time_s", "model"):
        assert np.array_equal(batch.jobs[name], slow.jobs[name])
        assert np.array_equal(batch.jobs[name], quick.jobs[name])
    assert not batch.jobs["submit_time"].any()
    assert slow.jobs["submit_time"] == pytest.approx(2.0 * quick.jobs["submit_time"])


def test_two_seeds_have_other_jobs() -> None:
    assert not np.array_equal(make_trace(0, 50, None).jobs["gpus"], make_trace(1, 50, None).jobs["gpus"])


def test_jobs_bring_in_the_load_that_is_asked() -> None:
    jobs = make_trace(0, 20_000, 0.9).jobs

    brought_gpu_s = float((jobs["run_time_s"] * jobs["gpus"]).sum())

    assert brought_gpu_s / float(jobs["submit_time"][-1]) / GPUS == pytest.approx(0.9, rel=0.02)


def test_jobs_are_rigid_with_a_model_an_open_node_count_and_no_limit() -> None:
    trace = make_trace(0, 200, None)

    assert set(trace.jobs["gpus"].tolist()) <= set(DEMANDS)
    assert np.array_equal(trace.jobs["gpus_min"], trace.jobs["gpus_max"])
    assert not trace.jobs["nodes_min"].any() and not trace.jobs["nodes_max"].any()
    assert np.isinf(trace.jobs["time_limit_s"]).all()
    assert (trace.jobs["model"] >= 0).all() and len(trace.models) > 10
    assert trace.jobs["run_time_s"].min() >= SHORTEST_S and trace.jobs["run_time_s"].max() <= LONGEST_S


def test_on_unlimited_gpus_every_job_starts_at_once_and_takes_its_run_time() -> None:
    experiment = Experiment(
        page="dally", summary="", policies=("fifo",), loads=(0.9,), oversubscription=(10.0,), jobs=40
    )

    bench = run_bench(experiment, Runner(store=None, workers=1))

    jobs = make_trace(0, 40, 0.9).jobs
    (alone,) = bench.unlimited[0.9]
    assert alone.jct_s == pytest.approx(jobs["run_time_s"])
    assert not alone.queueing_delay_s.any()
    assert alone.tiers.spine_gpu_s == 0.0 < alone.tiers.leaf_gpu_s
    assert alone.summary.policy == UNLIMITED


def test_all_policies_and_oversubscriptions_run_the_very_same_trace() -> None:
    experiment = Experiment(page="dally", summary="", loads=(None, 0.9), oversubscription=(1.0, 10.0), jobs=10, seeds=2)

    tasks = list(tasks_of(experiment, ["fifo", "las"], unlimited=True))

    assert len(tasks) == 2 * 2 * (1 + 2 * 2)
    assert len({id(task.cell.trace) for task in tasks}) == 4
    assert [task.cell.seed for task in tasks[:6]] == [0, 0, 0, 0, 0, 1]
    assert tasks[4].cell.cluster.network.oversubscription == 10.0


def test_a_row_has_the_figures_of_its_policy() -> None:
    text = page(make_bench({"dally": 1.0, "las": 10.0}), "the command")

    # Mean JCT 200 s, 220 s and 240 s over the seeds.
    assert cells_of(text, "| batch, 10:1 | 4 min") == ["batch, 10:1", "4 min", "-90.0 % (-90.0 to -90.0)"]
    assert cells_of(text, "| batch, 10:1 | 25.0 %") == ["batch, 10:1", "25.0 %", "50.0 %", "50.0 %"]
    assert "Written by `the command`" in text


def test_a_change_is_that_of_the_first_policy_against_the_other() -> None:
    bench = make_bench({"dally": 1.0, "las": 4.0}, {"dally": 0.1, "las": 0.2})
    own = bench.corners[CORNER]

    assert change_of(own["las"], own["dally"], "mean_jct_s").percent == pytest.approx(-75.0)
    assert change_of(own["las"], own["dally"], "communication_overhead_ratio").percent == pytest.approx(-50.0)
    assert cells_of(page(bench, ""), "| batch, 10:1 | 4 min")[2] == "-75.0 % (-75.0 to -75.0)"


def test_a_target_is_reached_where_the_change_is_as_low() -> None:
    # A quarter is 75 % lower: enough for the makespan, not for the JCT.
    text = page(make_bench({"dally": 1.0, "las": 4.0}, {"dally": 0.005, "las": 0.5}), "")

    change = "-75.0 % (-75.0 to -75.0)"
    assert cells_of(text, "| batch | las | dally |")[3:6] == [f"**{change}**", change, "**-99.0 %**"]
    assert cells_of(text, f"| batch | las | {UNLIMITED} |")[4] == "-97.5 % (-97.5 to -97.5)"
    assert "makespan, target -69 % | mean JCT, target -83 % | communication overhead, target -98 % |" in text
    assert "Reached: makespan 1 of 1, mean JCT 0 of 1, communication overhead 1 of 1." in text


def test_what_no_placement_avoids_is_left_out_of_the_avoidable_overhead() -> None:
    # Of 25 % nothing can be avoided; of the other 50 and 10 points a fifth is left.
    text = page(make_bench({"dally": 1.0, "las": 1.0}, {"dally": 0.35, "las": 0.75}), "")

    assert cells_of(text, "| batch | las | dally |")[6] == "-80.0 %"


def test_where_the_other_has_no_more_than_the_least_overhead_nothing_is_avoidable() -> None:
    text = page(make_bench({"dally": 1.0, "las": 1.0}, {"dally": 0.25, "las": 0.25}), "")

    assert cells_of(text, "| batch | las | dally |")[6] == "nothing to avoid"


def test_a_system_is_judged_wherever_it_stands() -> None:
    text = page(make_bench({"dally": 1.0, "dally+preempt": 0.5, "las": 4.0}), "")

    assert cells_of(text, "| batch | las | dally+preempt |")[3] == "**-87.5 % (-87.5 to -87.5)**"


def test_targets_are_held_against_the_most_congested_network_only() -> None:
    bench = make_bench({"dally": 1.0, "gandiva": 2.0})
    calm = Corner(load_ratio=None, oversubscription=1.0)
    both = Bench(corners={calm: bench.corners[CORNER], **bench.corners}, unlimited=bench.unlimited, nic_gbps=100.0)

    text = page(both, "")

    assert text.count("| batch | gandiva | dally |") == 1
    assert "| 10:1 | against | policy |" in text


@pytest.mark.parametrize(("pace", "within"), [(1.02, 1), (1.04, 0), (0.5, 1)], ids=["2 % longer", "4 % longer", "half"])
def test_the_first_policy_is_held_against_the_best_ablation(pace: float, within: int) -> None:
    bench = make_bench({"dally": pace, "dally-nowait": 1.5, "dally-fixed": 1.0, "las": 0.1})

    text = page(bench, "")

    assert best_of(["dally-nowait", "dally-fixed"], bench.corners[CORNER]) == "dally-fixed"
    assert f"Within 3 %: {within} of 1 corners." in " ".join(text.split())
    row = cells_of(text, "| batch, 10:1 |")
    assert [cell.startswith("**") for cell in row[2:]] == [False, True, False]


@pytest.mark.parametrize(
    ("policies", "absent"),
    [(["dally", "slurm"], "## Targets"), (["dally", "las"], "## Against the best ablation"), (["las"], "against las")],
)
def test_what_was_not_run_has_no_table(policies: list[str], absent: str) -> None:
    assert absent not in page(make_bench(dict.fromkeys(policies, 1.0)), "")


def test_jobs_that_did_not_finish_show() -> None:
    killed = [make_result("las", seed, 1.0, 0.0, End.TIME_LIMIT) for seed in SEEDS]
    bench = make_bench({"dally": 1.0})
    with_killed = Bench(
        corners={CORNER: {**bench.corners[CORNER], "las": killed}}, unlimited=bench.unlimited, nic_gbps=100.0
    )

    text = page(with_killed, "")

    assert "batch, 10:1: under `las` not all jobs finished: 3 killed by the time limit, in all over 3 seeds." in text
    assert "under `dally`" not in text


def test_the_page_is_written_and_finished_runs_are_kept(tmp_path: Path) -> None:
    output, store = tmp_path / "dally.md", tmp_path / "store"
    arguments = ["dally", "--seeds", "2", "--jobs", "30", "--policies", "fifo,las,fifo", "--loads", "batch,0.9"]
    arguments += ["--oversubscription", "10", "--workers", "1", "--store", str(store), "-o", str(output)]

    status = main(arguments)

    first = output.read_text()
    assert status == 0
    kept = (store / "results.jsonl").read_text()
    assert len(kept.splitlines()) == 12
    assert "python -m tools.pages dally --policies fifo,las,fifo --loads batch,0.9" in " ".join(first.split())
    assert "| batch, 10:1 |" in first and "| load 0.9, 10:1 |" in first
    assert "## Targets" not in first
    assert main(arguments) == 0
    assert (store / "results.jsonl").read_text() == kept
    assert output.read_text() == first


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--policies", "fifi"], "did you mean fifo?"),
        (["--loads", "batch,heavy"], "--loads heavy: input should be a valid number"),
        (["--loads", "0"], "--loads 0: input should be greater than 0"),
        (["--oversubscription", "4,"], "--oversubscription : input should be a valid number"),
        (["--oversubscription", "0.5"], "--oversubscription 0.5: input should be greater than or equal to 1"),
        (["--seeds", "0"], "--seeds 0: input should be greater than 0"),
        (["--jobs", "-5"], "--jobs -5: input should be greater than 0"),
        (["--workers", "0"], "--workers 0: give 1 or more"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["dally", *("--policies", "fifo"), *arguments, "-o", str(tmp_path / "dally.md")])

    assert status == 1
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not (tmp_path / "dally.md").exists()


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--seeds", "1", "--jobs", "5", "--policies", "fifo", "--loads", "batch", "--oversubscription", "1"]

    status = main(["dally", *quick, "--workers", "1", "-o", str(tmp_path)])

    assert status == 1
    assert f"{tmp_path}: cannot be written" in capsys.readouterr().err
