"""What the page about delay timers and sizes on top of lifts runs, and what it shows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.sim.study.result import RunResult, result_of
from tests.sim.building import make_trace
from tests.sim.runs import make_run
from tools.pages.__main__ import main
from tools.pages.holds import LIMITS_RATIO, Group, Page, page, tasks_of
from tools.pages.page_experiment import Experiment

POLICIES = ("slurm", "lift-oracle", "lift+dally")
EXPERIMENT = Experiment(
    page="holds",
    summary="",
    policies=POLICIES,
    loads=(0.9,),
    jobs=20,
    oversubscription=(1.0, 10.0),
    seeds=2,
    max_switch_wait_s=86_400.0,
)
JOBS = 60


def results_by_group(jct_s: Mapping[str, float]) -> dict[Group, list[RunResult]]:
    """Return the results of two workloads in which every job takes as long as its policy says."""
    results: dict[Group, list[RunResult]] = {}
    for name in ("one", "two"):
        trace = replace(make_trace([{"gpus": 2}] * JOBS), name=name)
        results[10.0, name] = [
            result_of(make_run(trace, [(0.0, end_s + row % 3) for row in range(JOBS)], policy=policy))
            for policy, end_s in jct_s.items()
        ]
    return results


def test_every_policy_runs_the_same_jobs_of_a_seed_with_roomy_limits() -> None:
    tasks = tasks_of(EXPERIMENT, None)

    assert [task.group for task in tasks] == [(1.0, "load 0.9")] * 6 + [(10.0, "load 0.9")] * 6
    assert [task.cell.policy for task in tasks[:3]] == list(POLICIES)
    assert len({id(task.cell.trace) for task in tasks[:3]}) == 1
    assert len({id(task.cell.trace) for task in tasks[:6]}) == EXPERIMENT.seeds
    assert {task.cell.cluster.network.oversubscription for task in tasks[6:]} == {10.0}
    assert {task.cell.cluster.slurm.max_switch_wait_s for task in tasks} == {86_400.0}
    jobs = tasks[0].cell.trace.jobs
    assert (jobs["time_limit_s"] >= LIMITS_RATIO * jobs["run_time_s"]).all()


def test_page_shows_each_policy_against_slurm_and_a_lever_against_the_policy_without_it() -> None:
    results = results_by_group({"slurm": 200.0, "lift-oracle": 100.0, "lift+dally": 80.0})

    text = page(Page(results=results, experiment=oversubscribed(10.0)), "the command")

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    against_slurm = next(row for row in rows if row[0] == "`lift+dally`" and row[1] != "`lift-oracle`")
    against_lift = next(row for row in rows if row[:2] == ["`lift+dally`", "`lift-oracle`"])
    assert [cell.split()[0] for cell in against_slurm[1:4]] == ["-59.7"] * 3
    assert against_slurm[4:] == ["0.00 to 0.00", "100.0 %"]
    assert [cell.split()[0] for cell in against_lift[2:]] == ["-19.8"] * 3
    assert "Asleep" not in text
    assert "Written by `the command`" in text and "## Oversubscription 10:1" in text


def test_a_lever_that_changed_no_job_is_said_to_sleep() -> None:
    results = results_by_group({"slurm": 200.0, "lift-oracle": 100.0, "lift+dally": 100.0})

    text = page(Page(results=results, experiment=oversubscribed(10.0)), "the command")

    assert text.rstrip().endswith("Asleep, every job as without it: `lift+dally`.")


def oversubscribed(ratio: float) -> Experiment:
    """Return the experiment on clusters of one oversubscription."""
    return EXPERIMENT.model_copy(update={"oversubscription": (ratio,)})


def test_a_policy_without_another_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["holds", "--policies", "slurm", "--data", str(tmp_path)])

    assert status == 1
    assert capsys.readouterr().err == "--policies slurm: give two or more, the first plain Slurm\n"
