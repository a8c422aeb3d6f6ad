"""Which submitted jobs of the model of slurmctld can run: dependencies, begin times, limits of arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.run_outcome import End, Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.queue_tables import QosTable
from advisor.sim.slurm.slurm_settings import PriorityFlag
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.traces.eligibility import Await, build_eligibility, parse_dependency
from advisor.sim.traces.trace import Trace
from tests.sim.building import FIRST_COME, bytes_of, make_trace, model_of, run_of, slurm_at, starts_and_ends
from tests.sim.watching import stepping

# The main scheduler runs at every change, and once a minute over the whole queue.
Jobs = list[dict[str, Any]]
ONE_NODE = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=FIRST_COME)


def waiting_trace(jobs: Sequence[Mapping[str, Any]]) -> Trace:
    """Build a trace of jobs with ids from 1, whose dependencies and names are given as texts."""
    dependencies = tuple(sorted({"", *(str(job.get("dependency", "")) for job in jobs)}))
    names = tuple(sorted({"", *(str(job.get("name", "")) for job in jobs)}))
    rows = [
        {
            "submit_time": float(place),
            **job,
            "dependency": dependencies.index(job.get("dependency", "")),
            "name": names.index(job.get("name", "")),
        }
        for place, job in enumerate(jobs)
    ]
    return replace(make_trace(rows), dependencies=dependencies, job_names=names)


def simulated(jobs: Sequence[Mapping[str, Any]], slurm: SlurmParameters = FIRST_COME, execution: str = "ideal") -> Run:
    cluster = replace(ONE_NODE, slurm=slurm)
    with stepping([0.5, 10.0, 100.0, 130.0]):
        return run_of(waiting_trace(jobs), cluster, "slurm", SimulationOptions(execution=execution))


def starts(jobs: Sequence[Mapping[str, Any]]) -> list[float]:
    return [start for start, _ in starts_and_ends(simulated(jobs))]


KILLED = {"run_time_s": 100.0, "time_limit_s": 60.0}


@pytest.mark.parametrize(
    ("dependency", "start"),
    [
        pytest.param("afterok:1", 100.0, id="all succeeded"),
        pytest.param("afterany:1", 100.0, id="it ended"),
        pytest.param("afterany:1:2", 150.0, id="both ended"),
        pytest.param("afterany:1,afterok:2", 150.0, id="and"),
        pytest.param("afterany:2?afterok:1", 100.0, id="or"),
        pytest.param("afterok:99", 2.0, id="job that is not there"),
        pytest.param("after:1", 2.0, id="it has started"),
        pytest.param("after:1+1", 60.0, id="and a minute passed"),
        pytest.param("expand:1", 2.0, id="what the simulator does not know"),
    ],
)
def test_job_starts_once_its_dependency_is_met(dependency: str, start: float) -> None:
    jobs: Jobs = [{}, {"run_time_s": 149.0}, {"dependency": dependency}]

    assert starts(jobs)[2] == start


@pytest.mark.parametrize(("dependency", "ends"), [("afterok:1", False), ("afternotok:1", True), ("afterany:1", True)])
def test_killed_job_has_not_succeeded(dependency: str, ends: bool) -> None:
    run = simulated(
        [KILLED, {"dependency": dependency, "run_time_s": 10.0}, {"dependency": "afterany:2"}], execution="measured"
    )

    # What can never run stays pending in Slurm, and so does what waits for it.
    assert run.outcomes["end"].tolist() == [End.TIME_LIMIT, *([End.FINISHED] * 2 if ends else [End.DEPENDENCY] * 2)]
    assert bool(np.isnan(run.outcomes["start_time"][1])) is not ends


def test_jobs_that_wait_for_each_other_end_with_the_run() -> None:
    jobs = [
        {"submit_time": 0.0, "dependency": "afterok:2"},
        {"submit_time": 0.0, "dependency": "afterok:3"},
        {"submit_time": 0.0, "dependency": "afterok:2"},
    ]

    # slurmctld does not know the second when the first is submitted.
    assert simulated(jobs).outcomes["end"].tolist() == [End.FINISHED, End.FINISHED, End.FINISHED]
    run = simulated([{"dependency": "after:1"}, {}])
    assert run.outcomes["end"].tolist() == [End.DEPENDENCY, End.FINISHED]


def test_singletons_of_a_user_and_a_name_run_one_after_the_other() -> None:
    one = {"name": "nightly", "dependency": "singleton", "run_time_s": 50.0}

    assert starts([one, one, {**one, "user": "bob"}, {**one, "name": "other"}, one]) == [0.0, 50.0, 2.0, 3.0, 100.0]


def test_singleton_without_a_name_waits_for_none() -> None:
    assert starts([{}, {"dependency": "singleton"}]) == [0.0, 1.0]


def test_nothing_wakes_slurmctld_when_a_job_starts_that_another_waits_for() -> None:
    jobs: Jobs = [{"gpus": 4}, {"gpus": 3, "run_time_s": 50.0}, {"dependency": "after:2"}]

    # The second starts at 100; the next backfill is at 120.
    assert starts(jobs) == [0.0, 100.0, 120.0]


def test_job_waits_for_its_begin_time_and_blocks_no_other() -> None:
    # Nothing wakes slurmctld at 95: the pass over the whole queue at 120 starts the first.
    assert starts([{"begin_time": 95.0, "gpus": 4}, {"run_time_s": 20.0}]) == [120.0, 1.0]
    # The end of the second does.
    assert starts([{"begin_time": 95.0, "gpus": 4}, {"run_time_s": 98.0}]) == [99.0, 1.0]


def test_no_more_tasks_run_than_the_limit_and_others_pass_them() -> None:
    task = {"submit_time": 0.0, "array_id": 1, "array_limit": 2, "run_time_s": 50.0}

    assert starts([task, task, task, task, {"submit_time": 0.0}]) == [0.0, 0.0, 50.0, 50.0, 0.0]


def test_array_without_a_limit_runs_as_it_fits() -> None:
    task = {"submit_time": 0.0, "array_id": 1, "run_time_s": 50.0}
    last = {"dependency": "afterok:1"}

    # A dependency on an array waits for all of its tasks.
    assert starts([*[task] * 6, last]) == [0.0] * 4 + [50.0] * 2 + [100.0]


def test_corresponding_tasks_wait_for_one_another() -> None:
    first = [{"submit_time": 0.0, "array_id": 1, "run_time_s": seconds} for seconds in (30.0, 70.0)]
    second = {"submit_time": 1.0, "array_id": 3, "dependency": "aftercorr:1"}

    assert starts([*first, second, second]) == [0.0, 0.0, 30.0, 70.0]


def test_age_counts_from_eligibility() -> None:
    slurm = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0, priority_calc_period_s=60.0)
    blocker: dict[str, Any] = {"gpus": 4, "run_time_s": 300.0}
    early: dict[str, Any] = {"gpus": 4, "begin_time": 200.0, "run_time_s": 10.0}
    late: dict[str, Any] = {"gpus": 4, "submit_time": 100.0, "run_time_s": 10.0}

    run = simulated([blocker, early, late], slurm)

    assert [start for start, _ in starts_and_ends(run)] == [0.0, 310.0, 300.0]


def test_what_a_trace_does_not_say_changes_nothing() -> None:
    jobs: Jobs = [{"run_time_s": 50.0, "gpus": 3}, {"gpus": 2}, {"array_id": 2, "array_limit": 0}]
    plain = make_trace([{"submit_time": float(place), **job} for place, job in enumerate(jobs)])
    met = waiting_trace([*jobs[:2], {**jobs[2], "dependency": "after:1,expand:2"}])

    assert not len(build_eligibility(plain).gates)
    assert bytes_of(run_of(plain, ONE_NODE, "slurm")) == bytes_of(run_of(met, ONE_NODE, "slurm"))


def test_simulated_slurm_shows_why_jobs_wait() -> None:
    task: dict[str, Any] = {"submit_time": 0.0, "array_id": 1, "array_limit": 1}
    trace = waiting_trace([task, task, {"dependency": "afterok:1"}, {"begin_time": 500.0}, {"gpus": 4}])

    jobs = slurm_at(50.0, trace, ONE_NODE).snapshot().jobs_by_id

    assert {job_id: job.reason for job_id, job in jobs.items()} == {
        1: "",
        2: "JobArrayTaskLimit",
        3: "Dependency",
        4: "BeginTime",
        5: "Priority",
    }
    assert jobs[2].array is not None
    assert (jobs[2].array.array_job_id, jobs[2].array.task_id, jobs[2].array.max_running) == (1, 1, 1)
    assert (jobs[3].dependency, jobs[3].eligible_time) == ("afterok:1", None)
    assert jobs[4].eligible_time == 500.0


def test_dependency_is_read_as_slurm_spells_it() -> None:
    found, needs_one = parse_dependency("afterok:12_*(unfulfilled):13,after:7+5(unfulfilled),singleton(unfulfilled)")

    assert [(one.word, one.job_id, one.delay_s) for one in found] == [
        ("afterok", 12, 0.0),
        ("afterok", 13, 0.0),
        ("after", 7, 300.0),
        ("singleton", 0, 0.0),
    ]
    assert not needs_one
    assert parse_dependency("afterany:1?afterany:2")[1]
    assert [kind.name for kind in Await] == ["START", "END", "SUCCESS", "FAILURE", "TURN"]


def test_with_accrue_always_age_counts_from_the_submission() -> None:
    trace = waiting_trace([{"begin_time": 50.0}, {"begin_time": 50.0}])
    ages = []
    for flags in ((), (PriorityFlag.ACCRUE_ALWAYS,)):
        slurm = replace(FIRST_COME, priority_flags=flags)
        state, model = model_of(trace, replace(ONE_NODE, slurm=slurm), ideal=False)
        run_slurm(state, model, 60.0)
        ages.append(model.eligible_time.tolist())

    assert ages == [[50.0, 50.0], [0.0, 1.0]]


def test_jobs_that_wait_count_as_submitted_and_only_those_in_the_line_hold_a_limit() -> None:
    slurm = replace(FIRST_COME, requeue_delay_s=121.0)
    cluster = replace(ONE_NODE, slurm=slurm, qos=(QosTable(name="normal", max_submit_per_user=2, max_jobs_per_user=1),))
    run = run_of(waiting_trace([{"begin_time": 50.0}, {}, {}]), cluster, "slurm", SimulationOptions())

    assert run.outcomes["end"].tolist() == [End.FINISHED, End.FINISHED, End.IMPOSSIBLE]
    assert run.outcomes["start_time"][:2].tolist() == [101.0, 1.0]
