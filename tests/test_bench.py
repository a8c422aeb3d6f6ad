"""The benchmarks: one entry, the journal, the soak and the simulator."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.published_traces import write_traces
from tools.bench import simulate
from tools.bench.__main__ import BENCHES, main
from tools.bench.measuring import Stages
from tools.bench.simulate import SimulationFigures, SimulationTask, judged, logarithmic, measure, measured
from tools.bench.soak import Changing, configured, soak


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_lists_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])

    assert ended.value.code == 0
    assert f"usage: python -m tools.bench {name}" in capsys.readouterr().out


def test_a_name_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["soaks"])

    assert ended.value.code == 2
    assert "invalid choice: 'soaks'" in capsys.readouterr().err


def test_a_stage_within_another_counts_for_itself_alone() -> None:
    stages = Stages()

    with stages.timed("outer"):
        _spend()
        with stages.timed("inner"):
            _spend()
            _spend()

    assert 0.0 < stages.cpu_s["outer"] < stages.cpu_s["inner"]


def test_a_method_is_counted_only_within_the_block() -> None:
    class Worker:
        def work(self) -> int:
            _spend()
            return 7

    stages = Stages()

    with stages.counting(Worker, "work", "working"):
        inside = Worker().work()
    counted_s = stages.cpu_s["working"]
    Worker().work()

    assert inside == 7
    assert stages.cpu_s["working"] == counted_s > 0.0


@pytest.mark.slow
def test_commands_are_measured_on_a_queue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["commands", "--jobs", "12", "--nodes", "4", "--repeat", "1", "--json"]) == 0

    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["command"] for row in rows] == ["--version", "recommend --demo", "recommend", "explain"]
    assert all(row["cpu_s"] > 0.0 for row in rows)


def _spend() -> None:
    """Spend some milliseconds of CPU."""
    sum(range(200_000))


def test_records_after_the_first_are_smaller_and_the_replay_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    main(["journal", "--size", "120:12", "--cycles", "3", "--changed", "0.05"])

    line = capsys.readouterr().out
    first_kb, next_kb = map(int, re.findall(r"(\d+) kB", line))
    assert line.startswith("120 pending jobs, 5% changed per cycle, 3 cycles: first ")
    assert line.endswith(", the same\n") and line.count("\n") == 1
    assert 0 < next_kb < first_kb


GROWN_MIB = 8.0


@pytest.mark.slow
def test_memory_stays_flat_over_rounds_in_which_changes_come_and_go(tmp_path: Path) -> None:
    cluster = Changing.made(jobs=150, nodes=20, turnover=0.05, seed=1)
    stages = Stages()

    rows = list(soak(cluster, configured(tmp_path, with_models=False), hours=3.0, interval_s=180.0, stages=stages))

    assert [row.hour for row in rows] == [1, 2, 3]
    assert sum(row.applied for row in rows) > 10
    assert rows[-1].journal_mib > 0
    assert rows[-1].resident_mib - rows[0].resident_mib < GROWN_MIB
    assert {"judge", "journal, writing", "journal, reading"} <= stages.cpu_s.keys()


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

    figures = measure(SimulationTask(folder=folder, trace="itp 04", policy="fifo", jobs=5, times=2, cut=9, runs=2))

    assert (figures.jobs, figures.runs, figures.done_ratio) == (9, 2, 1.0)
    assert figures.jobs_per_s > 0 and figures.job_us == pytest.approx(1e6 / figures.jobs_per_s)
    assert figures.read_s > 0


def test_a_run_without_time_says_how_far_it_came(tmp_path: Path) -> None:
    folder = str(write_traces(tmp_path, jobs=40))

    figures = measure(SimulationTask(folder=folder, trace="itp 04", policy="fifo", seconds=1e-9))

    assert figures.runs == 0
    assert figures.done_ratio < 1.0


def test_a_process_of_its_own_answers(tmp_path: Path) -> None:
    folder = str(write_traces(tmp_path, jobs=4))

    figures = measured(SimulationTask(folder=folder, trace="itp 04", policy="fifo", runs=1))

    assert figures.jobs == 4
    assert figures.import_s > 0 and figures.peak_rss_mib > 10


def test_every_policy_has_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_traces(tmp_path, jobs=6)
    # The processes are tested above; here they would only take time.
    monkeypatch.setattr(simulate, "measured", made_up)

    status = main(["simulate", "--data", str(tmp_path), "--traces", "itp 04", "--policies", "fifo,rules"])

    printed = capsys.readouterr().out
    assert status == 0
    assert "short by 80% (50,000)" in printed
    assert "reached (4,000)" in printed
    assert "rules: the first 1000 jobs of each trace only" in printed
    assert "fifo       500 MiB  reached (1,024)" in printed
    # Twice the time for a job at four times the jobs, where the logarithm grows by a fifth.
    assert "2.00  above by 67%" in printed


def made_up(task: SimulationTask) -> SimulationFigures:
    """Return 10,000 jobs per second, and half as many per second on a repeated trace."""
    figures = SimulationFigures(
        trace=task.trace, policy=task.policy, execution=task.execution, jobs=1000, nodes=1, load_ratio=0.8, wall_s=0.1,
        peak_rss_mib=500.0, import_s=1.0, read_s=1.0,
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

    status = main(["simulate", "--data", str(tmp_path), "--traces", "itp 04", "--policies", "nosuch"])

    assert status == 1
    assert capsys.readouterr().err.startswith("itp 04 under nosuch: the process failed: policy 'nosuch' is not known")
