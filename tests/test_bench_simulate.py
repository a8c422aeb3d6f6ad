"""The benchmark of the simulator: queue depth, verdicts, and lines of a small trace."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.sim.run_outcome import OUTCOME_DTYPE, SEGMENT_DTYPE, End, Run
from tests.published_traces import write_traces
from tests.test_simulated_traces import make_trace
from tools.bench import simulate
from tools.bench.__main__ import main
from tools.bench.simulate import Figures, Task, judged, logarithmic, measure, measured, queue_depth


def make_run(
    submitted: list[float], segments: list[tuple[int, float, float]], ends: dict[int, float], impossible: int = 0
) -> Run:
    """Return a run of jobs of one GPU; the last `impossible` never fit."""
    trace = make_trace(*((submit_time, 1.0, 1) for submit_time in submitted))
    outcomes = np.zeros(len(submitted), OUTCOME_DTYPE)
    outcomes["end"], outcomes["end_time"] = End.FINISHED, np.nan
    for job, end_time in ends.items():
        outcomes["end_time"][job] = end_time
    if impossible:
        outcomes["end"][-impossible:] = End.IMPOSSIBLE
    rows = np.zeros(len(segments), SEGMENT_DTYPE)
    for row, (job, start_time, end_time) in enumerate(segments):
        rows[row]["job"], rows[row]["start_time"], rows[row]["end_time"] = job, start_time, end_time
    return Run(
        trace=trace, policy="fifo", seed=0, cluster_gpus=8, outcomes=outcomes, segments=rows, wall_s=1.0,
        peak_rss_mib=1.0,
    )  # fmt: skip


def test_a_job_is_pending_until_it_starts() -> None:
    run = make_run([0.0, 10.0], [(0, 4.0, 20.0), (1, 20.0, 30.0)], {0: 20.0, 1: 30.0})

    # One from 0 to 4 s, none until 10 s.
    assert queue_depth(run) == (0.4, 1)


def test_a_stopped_job_is_pending_again() -> None:
    run = make_run([0.0, 10.0], [(0, 0.0, 2.0), (0, 7.0, 8.0), (1, 10.0, 11.0)], {0: 8.0, 1: 11.0})

    assert queue_depth(run) == (0.5, 1)


def test_jobs_that_never_fit_are_not_pending() -> None:
    run = make_run([0.0, 10.0, 10.0], [(0, 0.0, 5.0), (1, 10.0, 11.0)], {0: 5.0, 1: 11.0}, impossible=1)

    assert queue_depth(run) == (0.0, 0)


@pytest.mark.parametrize(
    ("value", "target", "at_most", "printed"),
    [
        (200.0, 100.0, False, "reached (100)"),
        (75.0, 100.0, False, "short by 25% (100)"),
        (1.5, 2.0, True, "reached (2)"),
        (3.0, 2.0, True, "above by 50%"),
        (1.0, None, False, "no target"),
    ],
)
def test_a_verdict_names_what_is_missing(value: float, target: float | None, at_most: bool, printed: str) -> None:
    assert judged(value, target, at_most=at_most) == printed


def test_a_logarithm_doubles_when_jobs_are_squared() -> None:
    assert logarithmic(100, 10_000) == pytest.approx(2.0)


def test_a_task_is_measured(tmp_path: Path) -> None:
    folder = str(write_traces(tmp_path, jobs=12))

    figures = measure(Task(folder=folder, trace="itp 04", policy="fifo", jobs=5, times=2, cut=9, runs=2))

    assert (figures.jobs, figures.runs, figures.done_ratio) == (9, 2, 1.0)
    assert figures.jobs_per_s > 0 and figures.job_us == pytest.approx(1e6 / figures.jobs_per_s)
    assert figures.read_s > 0


def test_a_run_without_time_says_how_far_it_came(tmp_path: Path) -> None:
    folder = str(write_traces(tmp_path, jobs=40))

    figures = measure(Task(folder=folder, trace="itp 04", policy="fifo", seconds=1e-9))

    assert figures.runs == 0
    assert figures.done_ratio < 1.0


def test_a_process_of_its_own_answers(tmp_path: Path) -> None:
    folder = str(write_traces(tmp_path, jobs=4))

    figures = measured(Task(folder=folder, trace="itp 04", policy="fifo", runs=1))

    assert figures.jobs == 4
    assert figures.import_s > 0 and figures.peak_rss_mib > 10


def test_every_policy_has_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_traces(tmp_path, jobs=6)
    # The processes are tested above; here they would only take time.
    monkeypatch.setattr(simulate, "measured", made_up)

    status = main(["simulate", "--data", str(tmp_path), "--traces", "04", "--policies", "fifo,rules"])

    printed = capsys.readouterr().out
    assert status == 0
    assert "short by 80% (50,000)" in printed
    assert "reached (4,000)" in printed
    assert "rules: the first 1000 jobs of each trace only" in printed
    assert "fifo       500 MiB  reached (1,024)" in printed
    # Twice the time for a job at four times the jobs, where the logarithm grows by a fifth.
    assert "2.00  above by 67%" in printed


def made_up(task: Task, cache: Path | None = None) -> Figures:
    """Return 10,000 jobs per second, and half as many per second on a repeated trace."""
    figures = Figures(
        trace=task.trace, policy=task.policy, execution=task.execution, jobs=1000, nodes=1, load_ratio=0.8, wall_s=0.1,
        pending_mean=1.0, pending_most=2, delay_mean_s=3.0, peak_rss_mib=500.0, import_s=1.0, read_s=1.0,
        first_run_s=1.0, runs=3, done_ratio=1.0,
    )  # fmt: skip
    return replace(figures, jobs=1000 * task.times, wall_s=(0.1 if task.times == 1 else 0.2) * task.times)


def test_missing_traces_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SADVISE_DATA", raising=False)

    status = main(["simulate"])

    assert status == 1
    assert capsys.readouterr().err == "no folder of published data: give --data DIR or set SADVISE_DATA\n"


def test_the_line_of_a_process_that_failed_names_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_traces(tmp_path)

    status = main(["simulate", "--data", str(tmp_path), "--traces", "04", "--policies", "nosuch"])

    assert status == 1
    assert capsys.readouterr().err.startswith("itp 04 under nosuch: the process failed: policy 'nosuch' is not known")
