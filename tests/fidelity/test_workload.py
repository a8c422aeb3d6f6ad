import pytest

from tools.fidelity.live import request_options
from tools.fidelity.recording import JobRequest
from tools.fidelity.workloads import LONG, SHORT, Size, draw_workload

SIZES = [pytest.param(LONG, id="long"), pytest.param(SHORT, id="short")]


def job(*, gpus: int = 4, nodes: int | None = 1, switches_wait_s: float = 0.0) -> JobRequest:
    return JobRequest(
        name="a",
        user="games",
        submit_time=0.0,
        gpus=gpus,
        nodes=nodes,
        time_limit_s=120.0,
        sleep_s=20.0,
        switches_wait_s=switches_wait_s,
    )


@pytest.mark.parametrize("size", SIZES)
def test_seed_decides_the_workload(size: Size) -> None:
    first, again, other = draw_workload(1, size), draw_workload(1, size), draw_workload(2, size)

    assert first == again
    assert first.jobs != other.jobs


@pytest.mark.parametrize("seed", range(1, 6))
def test_long_workload_has_all_that_is_compared(seed: int) -> None:
    workload = draw_workload(seed, LONG)

    assert len(workload.jobs) >= 60
    assert len({job.user for job in workload.jobs}) == 3
    assert {1, 16} <= {job.gpus for job in workload.jobs}
    assert any(job.switches_wait_s and job.nodes == 2 for job in workload.jobs)
    assert any(job.nodes is None for job in workload.jobs)
    assert {60.0, 300.0} <= {job.time_limit_s for job in workload.jobs}
    assert workload.changes


@pytest.mark.parametrize(
    ("size", "overrunning"), [pytest.param(LONG, 1, id="long"), pytest.param(SHORT, 0, id="short")]
)
def test_no_job_comes_near_its_limit_but_those_that_are_meant_to(size: Size, overrunning: int) -> None:
    jobs = draw_workload(3, size).jobs

    assert sum(job.sleep_s > job.time_limit_s for job in jobs) == overrunning
    assert all(job.sleep_s + 5.0 < job.time_limit_s for job in jobs if job.sleep_s < job.time_limit_s)


@pytest.mark.parametrize("size", SIZES)
def test_nice_changes_after_the_submission_of_its_job(size: Size) -> None:
    workload = draw_workload(4, size)
    submit_times = {job.name: job.submit_time for job in workload.jobs}

    assert all(change.time > submit_times[change.name] for change in workload.changes)


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        pytest.param(job(gpus=4), {"--nodes=1", "--gres=gpu:4", "--ntasks-per-node=4"}, id="one node"),
        pytest.param(job(gpus=16, nodes=2), {"--nodes=2", "--gres=gpu:8", "--ntasks-per-node=8"}, id="two nodes"),
        pytest.param(job(gpus=12, nodes=None), {"--gpus=12", "--ntasks=12"}, id="open node count"),
        pytest.param(job(gpus=8, nodes=2, switches_wait_s=60.0), {"--gres=gpu:4", "--switches=1@1"}, id="switches"),
    ],
)
def test_request_is_spelled_for_sbatch(request_: JobRequest, options: set[str]) -> None:
    spelled = set(request_options(request_))

    assert options <= spelled
    assert "--time=2" in spelled
