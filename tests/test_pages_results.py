"""The page of results: which policy runs on what, and that losses stand there as plainly as wins."""

from pathlib import Path

import numpy as np
import pytest

from advisor.sim.study.metrics import Ends, RunSummary
from advisor.sim.study.result import GpuCurve, RunResult
from advisor.sim.study.statistics import CellName
from tests.published_traces import write_traces
from tests.test_simulated_traces import make_trace
from tools.data.simulated_traces import Workload
from tools.pages.__main__ import main
from tools.pages.page_experiment import Experiment
from tools.pages.results import page, parts_of

JOBS = 400
EXPERIMENT = Experiment(page="results", summary="made")


def make_workload(jobs: int) -> Workload:
    """Return a workload of jobs of one GPU, one a minute."""
    return Workload(trace=make_trace(*((60.0 * job, 60.0, 1) for job in range(jobs))), nodes=1)


def make_result(policy: str, mean_jct_s: float, *, finished: int = JOBS) -> RunResult:
    """Return a run whose jobs took `mean_jct_s`, some more and some less."""
    jct_s = mean_jct_s * np.linspace(0.9, 1.1, JOBS)
    jct_s[finished:] = np.nan
    summary = RunSummary(
        policy=policy, trace="made", seed=0, jobs=JOBS, finished=finished, mean_jct_s=mean_jct_s, p50_jct_s=1.0,
        p95_jct_s=1.0, p99_jct_s=1.0, makespan_s=1.0, mean_queueing_delay_s=1.0, p99_queueing_delay_s=1.0,
        max_queueing_delay_s=1.0, mean_bounded_slowdown=1.0, gpu_allocated_ratio=1.0,
        communication_overhead_ratio=0.0, preemptions=0, resizes=0, changes=0, wall_s=1.0,
        jobs_per_s=1.0, peak_rss_mib=1.0,
    )  # fmt: skip
    return RunResult(
        summary=summary,
        ends=Ends(finished=finished, time_limit=JOBS - finished, impossible=0, not_ended=0),
        cluster_gpus=8,
        curve=GpuCurve(start_time=0.0, step_s=1.0, gpus=()),
        sampled=("user",),
        per_job=np.stack([jct_s, jct_s, jct_s]),
    )


def test_slow_policies_have_the_first_jobs_and_the_first_policy_beside_them() -> None:
    whole, short = parts_of([make_workload(30)], ["slurm", "fifo", "rules"], 20)

    assert (len(whole.workload.trace), whole.policies) == (30, ["slurm", "fifo"])
    assert (len(short.workload.trace), short.policies) == (20, ["slurm", "rules"])
    assert short.workload.trace.name == "made (first 20)"
    assert short.workload.nodes == whole.workload.nodes


@pytest.mark.parametrize("first_jobs", [0, 30, 31])
def test_every_policy_has_the_whole_of_a_short_trace(first_jobs: int) -> None:
    (part,) = parts_of([make_workload(30)], ["slurm", "rules"], first_jobs)

    assert part.policies == ["slurm", "rules"]


def test_wins_and_losses_stand_in_the_record() -> None:
    parts = parts_of([make_workload(JOBS)], ["slurm", "fifo", "las", "sjf"], 0)
    results = [
        make_result("slurm", 1000.0),
        make_result("fifo", 1200.0),
        make_result("las", 800.0),
        make_result("sjf", 1000.0),
    ]

    lines = page(parts, {"made": results}, EXPERIMENT, "the command").splitlines()

    assert "| fifo | 1 | +20.0 % (+20.0 to +20.0) | 0 | 1 | 0 | 0 | 100.0 % |" in lines
    assert "| las | 1 | -20.0 % (-20.0 to -20.0) | 1 | 0 | 0 | 0 | 100.0 % |" in lines
    # A policy that changed nothing is no policy without a clear difference.
    assert "| sjf | 1 | 0.0 % (0.0 to 0.0) | 0 | 0 | 0 | 1 | 100.0 % |" in lines
    assert {"| fifo | **+20.0** |", "| las | **-20.0** |", "| sjf | 0.0 |"} <= set(lines)


def test_best_of_slurm_conf_for_each_trace_is_a_policy_of_its_own() -> None:
    parts = parts_of([make_workload(JOBS)], ["slurm", "a", "b", "fifo"], 0)
    results = [
        make_result(name, jct_s) for name, jct_s in (("slurm", 1e3), ("a", 900.0), ("b", 950.0), ("fifo", 450.0))
    ]
    experiment = EXPERIMENT.model_copy(update={"over_all": ("p99_jct_s",), "tuned": ("slurm", "a", "b")})

    text = page(parts, {"made": results}, experiment, "the command")

    assert "| slurm, tuned | 1 | -10.0 % (-10.0 to -10.0) | 1 | 0 | 0 | 0 | 100.0 % |" in text
    assert "| policy | mean JCT against slurm, tuned | 99th percentile of JCT |" in text
    assert "| fifo | -50.0 % (-50.0 to -50.0) | -55.0 %" in text
    assert "best of `slurm`, `a`, `b` for each trace" in " ".join(text.split())
    others = EXPERIMENT.model_copy(update={"tuned": ("slurm", "c")})
    assert "slurm, tuned" not in page(parts, {"made": results}, others, "the command")


def test_jobs_that_did_not_finish_show() -> None:
    parts = parts_of([make_workload(JOBS)], ["slurm", "fifo"], 0)

    text = page(
        parts,
        {"made": [make_result("slurm", 1000.0), make_result("fifo", 900.0, finished=300)]},
        EXPERIMENT,
        "the command",
    )

    assert "| 75.0 % |" in text


def test_other_figures_and_users_stand_beside_the_mean() -> None:
    user_by_cell = {CellName("made", 0): np.repeat([1, 2, 3, 4], JOBS // 4)}
    parts = parts_of([make_workload(JOBS)], ["slurm", "fifo"], 0)
    results = [make_result("slurm", 80_000.0), make_result("fifo", 96_000.0, finished=300)]

    experiment = EXPERIMENT.model_copy(update={"over_all": ("p99_jct_s",)})
    text = page(parts, {"made": results}, experiment, "the command", user_by_cell=user_by_cell)

    assert "| policy | 99th percentile of JCT | finished, points | users worse | users better |" in text
    # The fourth user has no job that finished under both.
    assert "| fifo | +20.0 % (+20.0 to +20.0) | -25.00 | 100.0 % | 0.0 % |" in text


def test_the_page_is_written_and_finished_runs_are_kept(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "data", clusters=("09",), jobs=12)
    output, store = tmp_path / "results.md", tmp_path / "store"
    arguments = ["results", "--traces", "itp 09", "--data", str(folder), "--policies", "slurm,fifo,rules"]
    arguments += ["--seeds", "1", "--workers", "1", "--first-jobs", "8", "--store", str(store), "-o", str(output)]

    status = main(arguments)

    first = output.read_text()
    assert status == 0
    kept = (store / "results.jsonl").read_text()
    assert len(kept.splitlines()) == 4
    assert "| itp 09 (first 8) | 8 |" in first
    assert "| itp 09 | 12 |" in first
    assert first.splitlines()[-1].startswith("| rules |  | ")
    assert main(arguments) == 0
    assert (store / "results.jsonl").read_text() == kept
    assert output.read_text() == first


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--policies", "fifi"], "did you mean fifo?"), (["--traces", "itp 77"], "trace 'itp 77' is not known")],
)
def test_what_is_not_known_is_one_line(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_traces(tmp_path)

    status = main(["results", *arguments, "--data", str(folder), "-o", str(tmp_path / "results.md")])

    assert status == 1
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not (tmp_path / "results.md").exists()
