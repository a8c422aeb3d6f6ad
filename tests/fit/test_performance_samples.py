"""What ended jobs of a journal teach: which of them, on which place, and beside what."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.domain.actions import Lever
from advisor.domain.forecast import NO_FORECASTS, Forecasts, Interval, JobForecast, Placement
from advisor.domain.gang import GpuCount
from advisor.domain.job import Allocation, Job
from advisor.domain.outcome import JobOutcome, SeenChange, SeenForecast
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.errors import JournalError
from advisor.fit.performance_samples import (
    EndedJob,
    comparable,
    fault_of_outcome,
    place_of,
    read_ended_jobs,
    samples_of,
    type_of,
)
from advisor.journal import SqliteJournal
from advisor.planning.beliefs import Beliefs
from advisor.settings import PlanningSettings
from tests.builders import TAKEN_AT, make_gang, make_job, make_node, make_snapshot
from tests.fit.performance_journal import MODELS, TYPES, jobs_of, write_journal

START, END = TAKEN_AT + 600.0, TAKEN_AT + 4200.0
RUN = Interval(low=1800.0, median=3600.0, high=7200.0)
FORECAST = SeenForecast(made_time=TAKEN_AT, run_time_s=RUN)


def ended(**facts: Any) -> JobOutcome:
    """A job that ran for an hour, as was forecast."""
    given: dict[str, Any] = {
        "submit_time": TAKEN_AT,
        "start_time": START,
        "last_start_time": START,
        "last_seen_time": END - 30.0,
        "end_time": END,
        "first_forecast": FORECAST,
        **facts,
    }
    return JobOutcome(job_id=1, **given)


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({}, None),
        ({"time_limit_s": 7200.0}, None),
        ({"time_limit_s": 3600.0}, "ran to its limit"),
        ({"requeues": 1}, "was requeued"),
        ({"start_time": None}, "has no known start or end"),
        ({"last_seen_time": None}, "has no known start or end"),
        ({"last_seen_time": START}, "has no known start or end"),
        ({"first_forecast": None}, "has no forecast"),
        ({"first_forecast": replace(FORECAST, run_time_s=None)}, "has no forecast"),
        ({"first_forecast": replace(FORECAST, made_time=START + 1.0)}, "was forecast after its start"),
        (
            {"first_forecast": replace(FORECAST, run_time_s=Interval(low=1.0, median=math.inf, high=math.inf))},
            "has a forecast that is not finite",
        ),
        ({"last_seen_time": START + 10.0, "end_time": START + 30.0}, "ran for less than a minute"),
        ({"last_seen_time": START + 100.0, "end_time": START + 120.0}, "is 20 times off its forecast"),
        ({"changes": (SeenChange(lever=Lever.GPU_COUNT, applied_time=TAKEN_AT),)}, "was changed in size"),
        ({"changes": (SeenChange(lever=Lever.NICE, applied_time=TAKEN_AT),)}, None),
        ({"end_time": math.nan}, "has a time that is none"),
        ({"end_time": START - 1.0, "last_seen_time": START}, "ended before it was seen"),
    ],
)
def test_only_a_run_that_can_be_compared_with_its_forecast_counts(facts: dict[str, Any], fault: str | None) -> None:
    assert fault_of_outcome(ended(**facts)) == fault


def on(*nodes: str, gpus: int = 8, gpu_type: str | None = None, nodes_min: int = 1) -> Job:
    """A running job."""
    job = make_job(1, gang=make_gang(gpus, nodes_min=nodes_min), running_on=nodes)
    return replace(job, allocation=Allocation(nodes=nodes, gpus=(GpuCount(gpu_type=gpu_type, count=gpus),)))


def cluster(job: Job, **type_by_node: str) -> Snapshot:
    """Four nodes of eight GPUs under two leaves."""
    types = {f"n0{number}": "a100" for number in range(1, 5)} | type_by_node
    return make_snapshot([job], [make_node(name, gpu_type=gpu_type) for name, gpu_type in types.items()])


RULES = Beliefs(forecasts=NO_FORECASTS, settings=PlanningSettings())


@pytest.mark.parametrize(
    ("job", "inflation"),
    [
        (on("n01"), 1.0),
        (on("n01", "n02"), 1.1),
        (on("n01", "n03"), 1.3),
        (on("n01", "n02", gpus=16), 1.0),
        (on("n01", "n03", gpus=16), 1.3 / 1.1),
        (on("n01", "n02", gpus=8, nodes_min=2), 1.0),
        (on("n01", "n02", "n03", gpus=24), 1.0),
    ],
    ids=["one node", "leaf", "spine", "two nodes needed", "two needed on two leaves", "two asked", "no leaf holds it"],
)
def test_place_is_the_assumed_inflation_over_that_of_the_best_place(job: Job, inflation: float) -> None:
    assert place_of(job, cluster(job), RULES, "a100") == pytest.approx(math.log(inflation))


def test_place_is_that_of_the_forecast_where_there_is_one() -> None:
    speed = Interval(low=0.4, median=0.5, high=0.6)
    forecast = JobForecast(speed_by_placement={Placement(gpus=8, tier=LocalityTier.LEAF): speed})
    beliefs = Beliefs(forecasts=Forecasts(by_job={1: forecast}), settings=PlanningSettings())
    job = on("n01", "n02")

    assert place_of(job, cluster(job), beliefs, "a100") == pytest.approx(math.log(2.0))


@pytest.mark.parametrize(
    ("job", "gpu_type"),
    [
        (on("n01"), "a100"),
        (on("n01", gpu_type="H100"), "h100"),
        (on("n04"), "v100"),
        (on("n01", "n04"), None),
    ],
    ids=["of its node", "of its allocation", "of another node", "of two types"],
)
def test_gpu_type_is_the_one_that_a_job_runs_on(job: Job, gpu_type: str | None) -> None:
    assert type_of(job, cluster(job, n04="v100")) == gpu_type


def test_family_on_one_kind_of_place_teaches_nothing() -> None:
    jobs = jobs_of(200)
    alone = [replace(job, family="one", gpu_type="a100", place=0.0, others={}) for job in jobs[:20]]

    assert comparable(alone) == []
    assert comparable([*alone, replace(alone[0], gpu_type="h100")]) == [*alone, replace(alone[0], gpu_type="h100")]


def test_models_and_types_that_are_not_known_have_the_last_row_and_column() -> None:
    (job, *_) = jobs_of(1)
    other = replace(job, model="own", gpu_type="l4", others={"bert": 0.5, "own": 1.0, "": 0.5})

    samples = samples_of([other], MODELS, TYPES)

    assert (samples.model[0], samples.gpu_type[0]) == (len(MODELS), len(TYPES))
    assert samples.others[0].tolist() == [0.5, 0.0, 0.0, 0.0, 1.5]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of 300 ended jobs."""
    path = tmp_path_factory.mktemp("samples") / "journal.sqlite"
    write_journal(path, 300)
    return path


def read(path: Path) -> tuple[EndedJob, ...]:
    """The ended jobs of a journal."""
    with SqliteJournal.read_only(path) as journal:
        return read_ended_jobs(journal).jobs


def test_jobs_of_a_journal_have_their_places_and_neighbours(journal: Path) -> None:
    jobs = read(journal)

    assert len(jobs) == 300 and {job.gpu_type for job in jobs} == set(TYPES)
    assert {round(math.exp(job.place), 1) for job in jobs} == {1.0, 1.1, 1.3}
    # A job on one node has no neighbours on its links, and of the others most have.
    assert all(not job.others for job in jobs if job.place == 0.0)
    assert sum(bool(job.others) for job in jobs if job.place > 0.0) > 50
    assert max(sum(job.others.values()) for job in jobs) <= 1.0 + 1e-9
    assert {model for job in jobs for model in job.others} == set(MODELS)


def test_outcome_without_a_recorded_cycle_is_left_out(journal: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with SqliteJournal(path) as empty:
        empty.keep_outcomes([ended()])

    with SqliteJournal.read_only(path) as opened:
        found = read_ended_jobs(opened)

    assert found.jobs == () and found.left_out == {"was not running in a recorded cycle": 1}


def test_journal_that_another_program_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    write_journal(path, 20)
    with sqlite3.connect(path) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM outcomes")
    database.close()

    with pytest.raises(JournalError, match="another program has changed outcomes: not learnt from"):
        read(path)
