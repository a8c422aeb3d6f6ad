"""A short workload on a real slurmctld, recorded anew."""

import itertools

import pytest

from tests.live.conftest import started
from tools.fidelity.__main__ import comparison_of
from tools.fidelity.live import SHORT_OVERRIDES, new_cluster, record_on
from tools.fidelity.recording import Recording, Scheduler
from tools.fidelity.replay import replay
from tools.fidelity.workloads import SHORT, draw_workload

# The workload needs accounting, which is installed beside the host's own Slurm only.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.needs("slurmdbd")]

SEED = 1


def recorded() -> Recording:
    """What the slurmctld of this machine does with the short workload."""
    with started(new_cluster(SHORT_OVERRIDES)) as live:
        return record_on(live, draw_workload(SEED, SHORT))


@pytest.fixture(scope="module")
def recording(release: str) -> Recording:
    """A recording that the tests share."""
    return recorded()


def test_every_job_of_the_short_workload_completes(recording: Recording) -> None:
    assert len(recording.jobs) == SHORT.jobs
    assert {job.state for job in recording.jobs} == {"COMPLETED"}


def test_slurmctld_runs_with_the_parameters_that_were_asked_for(recording: Recording) -> None:
    assert recording.stated.bf_interval_s == SHORT_OVERRIDES["bf_interval"]
    assert recording.parameters["PriorityWeightFairShare"] == "2000"
    assert recording.parameters["TopologyPlugin"] == "topology/tree"


def test_jobs_queue_and_both_schedulers_start_some(recording: Recording) -> None:
    starters = [job.started_by for job in recording.jobs]

    assert {starters.count(scheduler) > 0 for scheduler in Scheduler} == {True}
    assert max(job.queueing_delay_s for job in recording.jobs) > 10


def test_every_start_falls_into_a_pass_of_its_scheduler(recording: Recording) -> None:
    for job in recording.jobs:
        times = [each.time for each in recording.passes if each.scheduler == job.started_by]
        assert min(abs(job.start_time - time) for time in times) < 0.5, job


def test_gang_that_waits_for_its_switch_gets_one_leaf_or_waits_its_time(recording: Recording) -> None:
    gangs = [job for job in recording.jobs if job.request.switches_wait_s]

    assert gangs
    for job in gangs:
        leaves = {rank for rank, node in itertools.product(range(2), job.nodes) if node in recording.leaves[rank]}
        assert len(leaves) == 1 or job.queueing_delay_s >= job.request.switches_wait_s - 1


def test_the_model_starts_the_jobs_as_slurmctld_does(recording: Recording) -> None:
    comparison = comparison_of(recording, replay(recording))
    if not comparison.passed:
        # On a busy machine a job that ends a moment later may leave its place to another one: recorded once more.
        print(f"the first recording does not agree: {comparison}")
        again = recorded()
        comparison = comparison_of(again, replay(again))

    assert comparison.passed, comparison
