"""Soft limits on live clusters: what TimeMin does, what is left once it is reverted, and where it must not be used."""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from advisor.backends.commands import apply_argv, revert_argv
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import SetTimeMin
from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.job import JobState
from advisor.domain.plan import Plan, Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge
from advisor.settings import Limits
from tests.builders import make_recommendation
from tests.live.conftest import started
from tests.live.reading import taken
from tests.live.test_advice import priority_of, sadvise, state_of
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

SOFT = "time_min_as_soft_limit"
# 22.05 knows no soft limits.
knowing = pytest.mark.releases("24.11", "26.05")
MINUTE_S, HOUR_S = 60.0, 3600.0
# Nothing here has waited a minute yet, and everything is to keep its place.
LIMITS = Limits(min_job_age_s=0.0, nice_min=0)
# What a job asks for decides nothing here but what fits.
PRIORITY_LINES = ("PriorityWeightJobSize=0", "PriorityWeightPartition=1000")


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfAnHour:
    """Forecasts that every pending job runs for half an hour at most."""

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast the pending jobs."""
        interval = Interval(low=600.0, median=1200.0, high=30 * MINUTE_S)
        known = JobForecast(run_time=RunTime(interval_s=interval, mean_s=1200.0))
        return Forecasts(by_job={job.job_id: known for job in snapshot.jobs if job.is_pending})


def two_nodes(release: str, scheduler_parameters: str) -> LiveCluster:
    """Return a small cluster, not yet started."""
    return LiveCluster(
        release,
        node_count=2,
        gpu_types=("a100", "a100"),
        shards={},
        scheduler_parameters=scheduler_parameters,
        extra_lines=PRIORITY_LINES,
    )


@pytest.fixture(scope="module")
def _soft(release: str) -> Iterator[LiveCluster]:
    with started(two_nodes(release, SOFT)) as live:
        yield live


@pytest.fixture
def soft(_soft: LiveCluster) -> LiveCluster:
    """A cluster that takes TimeMin for a soft limit, as right after its start."""
    _soft.reset()
    return _soft


@pytest.fixture(scope="module")
def hard(release: str) -> Iterator[LiveCluster]:
    """A cluster on which TimeMin shortens jobs: the parameter is not set, or means nothing to the release."""
    with started(two_nodes(release, SOFT if release == "22.05" else "")) as live:
        yield live


def advised(snapshot: Snapshot) -> CycleRecord:
    """Plan for a snapshot with forecasts that all jobs are short."""
    return Cycle(limits=LIMITS, forecaster=HalfAnHour()).judge(snapshot)


def soft_limits(record: CycleRecord) -> dict[int, Recommendation]:
    """Map jobs to their proposed soft limits, those that no rule refused."""
    return {each.job_id: each for each in record.recommendations if isinstance(each.action, SetTimeMin)}


def run(live: LiveCluster, change: Recommendation, which: str) -> subprocess.CompletedProcess[str]:
    """Run a command or a revert as `recommend` publishes it."""
    argv = {"command": apply_argv, "revert": revert_argv}[which](change.action)
    assert argv is not None
    return live.ask(*argv)


def shown(live: LiveCluster, job_id: int, field: str) -> str:
    """Return one field of `scontrol show job`."""
    words = live.run("scontrol", "show", "job", str(job_id)).split()
    return next(word.partition("=")[2] for word in words if word.startswith(f"{field}="))


def start_of(live: LiveCluster, job_id: int) -> float:
    """Return when Slurm means to start a pending job, or started it."""
    return time.mktime(time.strptime(shown(live, job_id, "StartTime"), "%Y-%m-%dT%H:%M:%S"))


def with_a_hole(live: LiveCluster) -> dict[str, int]:
    """Fill the cluster: most of n02 stays idle for an hour, then a gang takes everything for ten.

    The small job fits the hole with half an hour, but not with its limit of four.
    """
    ids = {
        "hour": live.submit("--time=01:00:00", "--gres=gpu:8", "-n1", "--nodelist=n01"),
        "half-hour": live.submit("--time=00:30:00", "--gres=gpu:2", "-n1", "--nodelist=n02"),
    }

    def both_run() -> bool:
        return {shown(live, job_id, "JobState") for job_id in ids.values()} == {"RUNNING"}

    live.wait_for(both_run, 30.0, what="the first jobs run")
    ids["gang"] = live.submit("--time=10:00:00", "-N2", "--gres=gpu:8", "-n2")
    ids["small"] = live.submit("--time=04:00:00", "--gres=gpu:4", "-n1")
    wait_until_planned(live, ids["gang"], ids["small"])
    return ids


def wait_until_planned(live: LiveCluster, *job_ids: int) -> None:
    """Wait until backfill has planned jobs, in vain for now."""
    live.wait_for(
        lambda: all(shown(live, job_id, "StartTime") != "Unknown" for job_id in job_ids), 60.0, what="backfill has run"
    )


def wait_until_running(live: LiveCluster, job_id: int) -> None:
    """Wait until a job runs."""
    live.wait_for(lambda: shown(live, job_id, "JobState") == "RUNNING", 30.0, what="the job runs")


@knowing
def test_printed_command_is_read_back_and_its_revert_leaves_nothing(soft: LiveCluster) -> None:
    ids = with_a_hole(soft)
    ids["array"] = soft.submit("--time=02:00:00", "--array=1-3", "--gpus=2", "-n1")
    ids["switches"] = soft.submit("--time=02:00:00", "-N2", "--gpus-per-node=4", "--switches=1@30:00")
    wait_until_planned(soft, ids["array"], ids["switches"])
    changes = soft_limits(advised(taken(soft)))
    # Or jobs would start, which is the purpose, but leaves nothing to revert.
    soft.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")

    # The gangs fit no hole, however short they are, and squeue does not tell whether the array is whole.
    assert set(changes) == {ids["small"]}
    array = make_recommendation(SetTimeMin(job_id=ids["array"], before=None, after=30 * MINUTE_S))
    for job_id, change in {**changes, ids["array"]: array}.items():
        before, priority = state_of(soft, job_id), priority_of(soft, job_id)
        applied = run(soft, change, "command")
        after, witness = taken(soft).jobs_by_id[job_id].time_min_s, shown(soft, job_id, "TimeMin")
        reverted = run(soft, change, "revert")
        assert (applied.returncode, applied.stderr) == (0, "")
        assert (after, witness) == (30 * MINUTE_S, "00:30:00")
        assert (reverted.returncode, reverted.stderr) == (0, "")
        assert state_of(soft, job_id) == before
        assert abs(priority_of(soft, job_id) - priority) <= 1
    assert {job.time_min_s for job in taken(soft).jobs} == {None}
    soft.run("scontrol", "update", "PartitionName=gpu", "State=UP")


@knowing
def test_job_with_a_soft_limit_starts_in_a_hole_that_its_limit_does_not_fit_and_keeps_its_limit(
    soft: LiveCluster,
) -> None:
    ids = with_a_hole(soft)
    before = taken(soft)
    change = soft_limits(advised(before))[ids["small"]]
    gang_first = start_of(soft, ids["gang"])

    run(soft, change, "command")
    wait_until_running(soft, ids["small"])

    assert before.jobs_by_id[ids["small"]].state is JobState.PENDING
    job = taken(soft).jobs_by_id[ids["small"]]
    assert (job.time_limit_s, job.time_min_s) == (4 * HOUR_S, 30 * MINUTE_S)
    assert job.start_time is not None and job.end_time is not None
    assert job.start_time + HOUR_S > gang_first - MINUTE_S  # its hour would not have fitted
    assert job.end_time - job.start_time == 4 * HOUR_S


@knowing
def test_jobs_behind_are_planned_with_the_soft_limit_where_the_release_keeps_it_in_mind(soft: LiveCluster) -> None:
    ids = with_a_hole(soft)
    first = start_of(soft, ids["gang"])
    lasting = taken(soft).config.traits.soft_limits_outlast_start
    run(soft, soft_limits(advised(taken(soft)))[ids["small"]], "command")
    wait_until_running(soft, ids["small"])

    # Time enough for several passes.
    time.sleep(12.0)
    slip_s = start_of(soft, ids["gang"]) - first
    two_hours = soft.submit("--time=02:00:00", "--gres=gpu:2", "-n1")
    time.sleep(12.0)

    # It fits before the gang only if that has slipped.
    assert shown(soft, two_hours, "JobState") == ("PENDING" if lasting else "RUNNING")
    if lasting:
        assert slip_s == 0.0
    else:
        assert 3 * HOUR_S <= slip_s < 3 * HOUR_S + 2 * MINUTE_S


# Earlier releases plan running jobs with their limits.
@pytest.mark.releases("26.05")
def test_job_past_its_soft_limit_is_planned_with_half_of_what_its_limit_leaves(soft: LiveCluster) -> None:
    assert taken(soft).config.traits.soft_limits_outlast_start
    long_one = soft.submit("--time=04:00:00", "--time-min=00:01:00", "--gres=gpu:8", "-n1")
    wait_until_running(soft, long_one)
    gang = soft.submit("--time=10:00:00", "-N2", "--gres=gpu:8", "-n2")
    wait_until_planned(soft, gang)
    began, planned = start_of(soft, long_one), start_of(soft, gang)

    # The pass at that very moment may plan it for now.
    soft.wait_for(lambda: start_of(soft, gang) > planned + HOUR_S, 120.0, what="the gang is planned anew")

    assert planned - began == MINUTE_S
    assert start_of(soft, gang) - began == pytest.approx(2 * HOUR_S, abs=2 * MINUTE_S)
    assert shown(soft, long_one, "TimeLimit") == "04:00:00"


@knowing
def test_check_finds_the_lever_where_it_is(soft: LiveCluster) -> None:
    checks = {check["name"]: check for check in json.loads(sadvise(soft, "check", "--json"))["checks"]}

    assert checks["lever time_min"]["status"] == checks[SOFT]["status"] == "ok"


def test_check_says_what_is_missing_where_there_is_no_lever(hard: LiveCluster) -> None:
    checks = {check["name"]: check for check in json.loads(sadvise(hard, "check", "--json"))["checks"]}

    assert checks["lever time_min"]["status"] == checks[SOFT]["status"] == "lacks"
    assert checks["lever time_min"]["cost"]
    assert ("22.05" if hard.release == "22.05" else SOFT) in checks["lever time_min"]["text"]


def test_soft_limit_is_neither_proposed_nor_let_through_where_it_would_shorten_the_job(hard: LiveCluster) -> None:
    hard.reset()
    ids = with_a_hole(hard)
    snapshot = taken(hard)
    record = advised(snapshot)
    change = SetTimeMin(job_id=ids["small"], before=None, after=30 * MINUTE_S)
    forced = make_recommendation(change)
    verdict = judge(Plan(recommendations=(forced,)), snapshot, circumstances(snapshot, LIMITS))[0]

    run(hard, forced, "command")
    wait_until_running(hard, ids["small"])

    assert soft_limits(record) == {}
    assert verdict.refused_by == "soft_limit_is_soft"
    # What it is refused for: Slurm has cut the limit of four hours to what fits.
    limit_s = taken(hard).jobs_by_id[ids["small"]].time_limit_s
    assert limit_s is not None and 30 * MINUTE_S <= limit_s < HOUR_S
