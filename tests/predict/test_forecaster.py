"""The shipped models at work on a snapshot, and what happens when one of them is not sound."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.cycle import Cycle
from advisor.domain.forecast import ForecastBasis, Placement
from advisor.domain.job import Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.errors import ModelError
from advisor.features.queue import expected_limit_s
from advisor.fit.publish import publish
from advisor.predict.forecaster import ModelForecaster, checked
from advisor.predict.library import Library, shipped_folder
from advisor.predict.manifest import PARAMETERS
from advisor.predict.run_time import EndedJobs
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_gang, make_hints, make_job, make_node, make_snapshot
from tests.predict.run_time_jobs import make_ended
from tests.predict.shelf import TODAY, make_fitted, plant

KINDS = ("run_time", "throughput", "interference", "start_time")


def shipped(tmp_path: Path) -> Library:
    """A copy of the shipped models that a test may damage."""
    shutil.copytree(shipped_folder(), tmp_path / "models")
    return Library(tmp_path / "site", tmp_path / "models")


def busy() -> Snapshot:
    """A running gang over two nodes, and pending jobs of several kinds, on four nodes of eight GPUs."""
    running = make_job(90, gpus=8, running_on=["n01", "n02"], started_ago_s=HOUR_S, hints=make_hints(model="bert"))
    single = make_job(1, gpus=1, time_limit_s=HOUR_S)
    elastic = make_job(2, gpus=4, time_limit_s=DAY_S, hints=make_hints(model="bert", gpus=(2, 8)))
    gang = make_job(3, gang=make_gang(16), time_limit_s=DAY_S, hints=make_hints(model="bert"))
    nodes = [make_node(name, used=4 if name in ("n01", "n02") else 0) for name in ("n01", "n02", "n03", "n04")]
    return make_snapshot([running, single, elastic, gang], nodes)


def test_all_shipped_models_are_sound_and_in_use() -> None:
    held = Library(Path("/nonexistent")).held()

    for each in held:
        checked(each)
    assert {each.entry.kind for each in held if each.in_use} == {
        *KINDS,
        "performance",
        "policy-dl2",
        "policy-marl",
        "policy-metarl",
    }


def test_run_time_that_can_be_nearly_anything_is_among_what_is_unknown(tmp_path: Path) -> None:
    forecaster = ModelForecaster(shipped(tmp_path))
    forecaster.add_ended(make_ended([60.0, 80_000.0] * 10, user="alice", account="lab", limit_s=DAY_S))

    by_job = forecaster.forecasts(busy()).by_job

    wide = {
        job_id: run_time.interval_s.high > 30.0 * run_time.interval_s.low
        for job_id, forecast in by_job.items()
        if (run_time := forecast.run_time) is not None
    }
    said = {job_id: "run time: its interval is wider than a factor of 30" in by_job[job_id].unknown for job_id in wide}
    assert said == wide
    assert len(set(wide.values())) == 2


def test_every_gpu_job_gets_a_run_time_within_its_limit(tmp_path: Path) -> None:
    snapshot = busy()

    forecasts = ModelForecaster(shipped(tmp_path)).forecasts(snapshot)

    assert forecasts.notes == ()
    for job in snapshot.jobs:
        run_time, limit_s = forecasts.of(job.job_id).run_time, expected_limit_s(job, snapshot)
        assert run_time is not None
        assert limit_s is not None
        assert 0.0 < run_time.interval_s.low <= run_time.mean_s <= limit_s
        assert run_time.interval_s.high <= limit_s


def test_starts_told_afterwards_are_those_told_with_all_else(tmp_path: Path) -> None:
    snapshot, library = busy(), shipped(tmp_path)
    whole, later = ModelForecaster(library).forecasts(snapshot), ModelForecaster(library, start_times=False)
    some = [job.job_id for job in snapshot.jobs if job.is_pending][::2]

    bare = later.forecasts(snapshot)
    told = later.with_starts(bare, snapshot, some)

    assert any(forecast.start_s or forecast.unknown for forecast in told.by_job.values())
    assert dict(told.by_job) == {job_id: whole.of(job_id) for job_id in sorted(some)}
    assert (told.models, bare.models) == (whole.models, whole.models[:-1])
    assert all(forecast.start_s is None for forecast in bare.by_job.values())


@pytest.mark.parametrize("bond", [{"dependency": "afterok:1"}, {"reservation": "course"}], ids=["job", "reservation"])
def test_start_that_another_job_or_a_reservation_decides_is_not_known(tmp_path: Path, bond: dict[str, str]) -> None:
    snapshot = make_snapshot([make_job(1), make_job(2, **bond)], [make_node("n01", used=4)])  # type: ignore[arg-type]

    forecast = ModelForecaster(shipped(tmp_path)).forecasts(snapshot).of(2)

    assert forecast.start_s is None
    assert "start time: it waits for another job or for a reservation" in forecast.unknown


def test_running_job_is_never_forecast_to_have_ended(tmp_path: Path) -> None:
    run_time = ModelForecaster(shipped(tmp_path)).forecasts(busy()).of(90).run_time

    assert run_time is not None
    assert run_time.interval_s.low >= HOUR_S


def test_profiled_job_gets_the_speeds_of_its_sizes(tmp_path: Path) -> None:
    speeds = ModelForecaster(shipped(tmp_path)).forecasts(busy()).of(2).speed_by_placement

    two, four, eight = (speeds[Placement(gpus=gpus, tier=LocalityTier.NODE)] for gpus in (2, 4, 8))
    assert (four.low, four.median, four.high) == (1.0, 1.0, 1.0)
    assert two.median < 1.0 < eight.median
    assert two.low <= two.median <= two.high


def test_what_is_not_known_is_said_and_left_to_the_rules(tmp_path: Path) -> None:
    unknown = make_job(
        1, gang=make_gang(64), time_limit_s=300 * DAY_S, hints=make_hints(model="nobody knows", gpus=(64, 4096))
    )
    nodes = [make_node(f"n{number:04d}") for number in range(600)]

    forecast = ModelForecaster(shipped(tmp_path)).forecasts(make_snapshot([unknown], nodes)).of(1)

    assert forecast.run_time is None
    assert any(text.startswith("run time: ") for text in forecast.unknown)
    assert any(text.startswith("speed: ") for text in forecast.unknown)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_model_is_noted_and_the_cycle_goes_on(tmp_path: Path, kind: str) -> None:
    library = shipped(tmp_path)
    graph = tmp_path / "models" / kind / "default-1" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])

    record = Cycle(forecaster=ModelForecaster(library)).judge(busy())

    assert [kind in note and "not the file of its digest" in note for note in record.forecasts.notes] == [True]
    assert not any(name.startswith(kind) for name in record.forecasts.models)
    assert len(record.forecasts.models) == len(KINDS) - 1


@pytest.mark.parametrize("kind", KINDS)
def test_model_of_other_columns_is_refused_by_its_predictor(tmp_path: Path, kind: str) -> None:
    publish(make_fitted(kind), tmp_path / "models", "default-1", today=TODAY)
    library = Library(tmp_path / "site", tmp_path / "models")
    Library(tmp_path / "models", tmp_path / "none").use(kind, "default-1")

    with pytest.raises(ModelError, match="fit it again"):
        checked(library.held()[0])
    assert len(ModelForecaster(library).forecasts(busy()).notes) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_parameters_are_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    library = shipped(tmp_path)
    plant(tmp_path / "models", kind, "default-1", PARAMETERS, b'{"surprise": [1e999, null]}')

    (note,) = ModelForecaster(library).forecasts(busy()).notes

    assert kind in note or kind.replace("_", " ") in note
    assert "\n" not in note


def test_model_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    site = Library(tmp_path / "site", tmp_path / "none")
    publish(make_fitted("horoscope"), site.site, "site-1", today=TODAY)

    with pytest.raises(ModelError, match="no predictor of this kind"):
        checked(site.held()[0])


def test_forecasting_imports_no_fitting_library() -> None:
    program = (
        "import sys; from pathlib import Path; from advisor.predict.forecaster import ModelForecaster;"
        "from advisor.predict.library import Library; from advisor.backends.snapshot_file import read_snapshot;"
        "from advisor.watch.reading import demo_path;"
        "found = ModelForecaster(Library(Path('/nonexistent'))).forecasts(read_snapshot(demo_path()));"
        "assert len(found.models) == 4, found.notes;"
        "print([name for name in ('sklearn', 'scipy', 'skl2onnx', 'onnx', 'pandas') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


BETTER = "users = 12\nordered_ratio = 0.9\nlimit_ratio = 0.8\ngain_ratio = 0.1\nerror_ratio = 0.02\n"
NOT_BETTER = BETTER.replace("error_ratio = 0.02", "error_ratio = 0.08")


@pytest.mark.parametrize(
    ("tested", "marked"),
    [
        ("", ("run_time default-1",)),
        (f"[model.tested]\njobs = 100\ninside = 80\n{BETTER}", ()),
        ("[model.tested]\njobs = 200\ninside = 160\n", ("run_time default-1",)),
        (f"[model.tested]\njobs = 200\ninside = 160\n{NOT_BETTER}", ("run_time default-1",)),
        (f"[model.tested]\njobs = 200\ninside = 120\n{BETTER}", ("run_time default-1",)),
        (f"[model.tested]\njobs = 99\ninside = 80\n{BETTER}", ("run_time default-1",)),
    ],
    ids=["ships", "tested here", "order not known", "no better than limits", "failed here", "too few here"],
)
def test_run_times_are_on_probation_unless_jobs_kept_aside_from_the_fit_prove_them(
    tmp_path: Path, tested: str, marked: tuple[str, ...]
) -> None:
    library = shipped(tmp_path)
    manifest = tmp_path / "models" / "manifest.toml"
    before, kind, after = manifest.read_text().partition('[[model]]\nkind = "throughput"')
    manifest.write_text(f"{before}{tested}\n{kind}{after}")

    forecasts = ModelForecaster(library).forecasts(busy())

    assert forecasts.of(1).run_time is not None and forecasts.on_probation == marked


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
    two, third = [stating(2, ["n01"], 1), stating(3, ["n01"], 4)], stating(4, ["n01"], 2)
    spread = stating(5, ["n01", "n02"], 4)

    steps = [
        bases_of(*jobs)["speed"].step
        for jobs in ((omega,), (measured,), (omega, *two), (omega, *two, third), (omega, *two, spread))
    ]

    assert steps == [1, 2, 2, 3, 4]
    assert [bases_of(job)["neighbours"].step for job in (omega, measured)] == [1, 2]


def test_job_on_one_gpu_has_a_run_time_alone() -> None:
    assert list(bases_of(make_job(1, gang=make_gang(1)))) == ["run time"]
