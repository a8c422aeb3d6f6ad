"""What forecasts rest on climbs step by step with what becomes known of a job, and names what brings the next step."""

from pathlib import Path
from typing import Any

from advisor.domain.forecast import ForecastBasis
from advisor.domain.job import Job
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from advisor.predict.run_time import EndedJobs
from tests.builders import HOUR_S, TAKEN_AT, make_gang, make_hints, make_job, make_node, make_snapshot
from tests.predict.run_time_jobs import make_ended

NODES = [make_node("n01"), make_node("n02")]
GANG = make_gang(4)


def bases_of(job: Job, *running: Job, ended: EndedJobs | None = None) -> dict[str, ForecastBasis]:
    """Return what the forecasts of a job rest on, by the forecast."""
    model = ModelForecaster(Library(Path("/nonexistent")))
    if ended is not None:
        model.add_ended(ended)
    snapshot = make_snapshot([job, *running], NODES)
    model.forecasts(snapshot)
    return {basis.forecast: basis for basis in model.bases(job, snapshot)}


def stating(job_id: int, nodes: list[str], gpus: int) -> Job:
    """A running job that states its step time."""
    hints = make_hints(model="omega", step_s=1.0)
    return make_job(job_id, gang=make_gang(gpus), running_on=nodes, started_ago_s=600.0, hints=hints)


def test_run_time_rests_on_the_nearest_jobs_that_ended() -> None:
    job = make_job(1, user="ada", account="physics", name="train", gang=GANG, time_limit_s=10 * HOUR_S)
    alike: dict[str, Any] = {
        "user": "ada",
        "account": "physics",
        "name": "train",
        "gpus": 4.0,
        "cpus": float(GANG.cpus or "nan"),
        "nodes": float(GANG.nodes_min),
        "memory_mib": float("nan"),
        "limit_s": 10 * HOUR_S,
        "submit_time": 0.0,
    }
    other = {**alike, "limit_s": 5 * HOUR_S}
    before, after = [job.submit_time - 60.0], [job.submit_time + 60.0]

    steps = [
        bases_of(job, ended=ended)["run time"]
        for ended in (
            None,
            make_ended([HOUR_S], end_time=before, **other),
            make_ended([HOUR_S], end_time=before, **alike),
            make_ended([HOUR_S], end_time=after, **alike),
        )
    ]

    assert after[0] < TAKEN_AT
    assert [(basis.step, basis.steps) for basis in steps] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert "no job of its user or account" in steps[0].rests_on
    assert [bool(basis.next_step) for basis in steps] == [True, True, True, False]


def test_speed_rests_on_what_jobs_of_its_model_showed_here() -> None:
    omega = make_job(1, gang=GANG, hints=make_hints(model="omega"))
    measured = make_job(1, gang=GANG, hints=make_hints(model="resnet50"))
    one_node = [stating(2, ["n01"], 1), stating(3, ["n01"], 4)]

    steps = [
        bases_of(*jobs)["speed"].step
        for jobs in ((omega,), (measured,), (omega, *one_node), (omega, *one_node, stating(4, ["n01", "n02"], 4)))
    ]

    assert steps == [1, 2, 3, 4]
    assert [bases_of(job)["neighbours"].step for job in (omega, measured)] == [1, 2]


def test_job_on_one_gpu_has_a_run_time_alone() -> None:
    assert list(bases_of(make_job(1, gang=make_gang(1)))) == ["run time"]
