"""The published traces: which jobs are taken, on how many nodes they run, how they are repeated."""

from pathlib import Path

import numpy as np
import pytest

from advisor.errors import TraceError
from advisor.sim.traces.importing.published import DRAC_COLUMNS
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from tests.published_traces import write_philly, write_traces
from tools.data.simulated_traces import Workload, data_folder, demand_gpus, nodes_of, read_workload, repeated


def make_trace(*jobs: tuple[float, float, int]) -> Trace:
    """Return a trace of jobs given by submit time, run time and GPUs."""
    rows = np.zeros(len(jobs), TRACE_DTYPE)
    for row, (submit_time, run_time_s, gpus) in enumerate(jobs):
        rows[row]["job_id"] = row + 1
        rows[row]["submit_time"], rows[row]["run_time_s"], rows[row]["gpus"] = submit_time, run_time_s, gpus
    return Trace(name="made", jobs=rows)


def test_demand_is_gpu_time_over_the_time_of_submission() -> None:
    trace = make_trace((0.0, 50.0, 8), (100.0, 25.0, 16))

    assert demand_gpus(trace) == 8.0


def test_nodes_bring_the_load_to_four_fifths() -> None:
    trace = make_trace((0.0, 100.0, 64), (100.0, 100.0, 64))

    # 128 GPUs are 16 nodes at full load, 20 at 0.8.
    assert nodes_of(trace) == 20
    assert Workload(trace=trace, nodes=20).load_ratio == pytest.approx(0.8)


def test_the_largest_job_fits() -> None:
    trace = make_trace((0.0, 1.0, 1), (1000.0, 1.0, 60))

    assert nodes_of(trace) == 8


def test_jobs_are_numbered_from_one(tmp_path: Path) -> None:
    workload = read_workload(write_traces(tmp_path, jobs=3), "itp 04")

    assert workload.trace.jobs["job_id"].tolist() == [1, 2, 3]


def test_philly_begins_in_october(tmp_path: Path) -> None:
    write_philly(
        tmp_path,
        "2017-09-30 23:59:59,10.0,1,10.0,6214e9",
        "2017-10-01 00:00:00,20.0,1,20.0,6214e9",
        "2017-10-01 00:01:00,30.0,1,30.0,6214e9",
        "2017-10-01 00:02:00,40.0,1,40.0,ee9e8c",
    )

    jobs = read_workload(tmp_path, "philly 6214e9").trace.jobs

    assert jobs["submit_time"].tolist() == [0.0, 60.0]
    assert jobs["run_time_s"].tolist() == [20.0, 30.0]


def test_graham_runs_at_the_load_in_its_name(tmp_path: Path) -> None:
    day = "2021-05-01 00:00:00"
    jobs = [f"{row},{day},{day},{day},86400,90000,7,4,1000,8,1,cpu=4" for row in range(1, 7)]
    last = "7,2021-05-02 00:00:00,2021-05-02 00:00:00,2021-05-02 00:00:00,1,60,8,4,1000,8,1,cpu=4"
    folder = tmp_path / "traces" / "drac_slurm"
    folder.mkdir(parents=True)
    text = "\n".join([",".join(DRAC_COLUMNS), *jobs, last])
    (folder / "graham_gpu_jobs_until_2021-06-14.csv.gz").write_text(text + "\n", encoding="utf-8")

    nodes = {name: read_workload(tmp_path, name).nodes for name in ("graham 0.7", "graham 1.0")}

    # 48 GPUs are in demand, and a little more.
    assert nodes == {"graham 0.7": 9, "graham 1.0": 7}


@pytest.mark.parametrize("name", ["itp 03", "philly 04", "graham", "graham 0.8", "helios", ""])
def test_an_unknown_trace_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is not known: known are itp 01"):
        read_workload(tmp_path, name)


def test_a_copy_begins_where_the_one_before_has_submitted_all() -> None:
    workload = Workload(trace=make_trace((0.0, 10.0, 1), (100.0, 10.0, 1)), nodes=1)

    jobs = repeated(workload, 2).trace.jobs

    assert jobs["submit_time"].tolist() == [0.0, 100.0, 100.0, 200.0]
    assert jobs["job_id"].tolist() == [1, 2, 3, 4]


def test_copies_of_an_overloaded_trace_stand_further_apart() -> None:
    workload = Workload(trace=make_trace((0.0, 80.0, 8), (100.0, 80.0, 8)), nodes=1)

    jobs = repeated(workload, 2).trace.jobs

    # 1280 GPU-seconds take 8 GPUs 160 seconds.
    assert jobs["submit_time"].tolist() == [0.0, 100.0, 160.0, 260.0]


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SADVISE_DATA", raising=False)

    with pytest.raises(TraceError, match="give --data DIR or set SADVISE_DATA"):
        data_folder(None)
    with pytest.raises(TraceError, match="holds no traces/ms_itp"):
        data_folder(tmp_path)


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SADVISE_DATA", str(write_traces(tmp_path)))

    assert data_folder(None) == tmp_path
