"""Preemption on live clusters: off by default, never without a checkpoint, never where the site did not allow it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.apply.step import Step
from advisor.backends.actuator import NOT_RUNNING, ScontrolActuator
from advisor.backends.process import SlurmCommands
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.domain.actions import Requeue
from advisor.domain.forecast import JobForecast
from advisor.domain.job import Job, JobState
from advisor.domain.plan import Outcome
from advisor.journal import opened
from advisor.planning.preemption import REQUEUE_HOLD_S
from advisor.settings import QUANTUM_S, Limits, PlanningSettings
from tests.live.conftest import started
from tests.planning.test_with_forecasts import FixedForecaster, runs
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

NODE = ("--gres=gpu:h100:8", "-n8", "-N1")
LONG = ("--time=1-00:00:00", *NODE)
SAVES = "--comment=sadvise: ckpt=300"


class Ahead:
    """A clock so far ahead that jobs which just started have run their quantum."""

    def now(self) -> float:
        """Return the machine's time and a little more than a quantum."""
        return SystemClock().now() + QUANTUM_S + 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Three full nodes, one job each, and a gang that runs for some minutes and waits for hours."""

    live: LiveCluster
    journal: Path
    victim: int
    careless: int
    elsewhere: int
    gang: int

    def jobs(self) -> dict[int, Job]:
        """Read the queue."""
        return dict(open_source("text", cluster=None, timeout_s=30.0, clock=Ahead()).snapshot().jobs_by_id)

    def step(self, *, on: bool, gangs: tuple[int, ...] = ()) -> Step:
        """Run one step; `gangs` are short jobs submitted since."""
        long, short = JobForecast(run_time=runs(20)), JobForecast(run_time=runs(0.1))
        told = dict.fromkeys((self.victim, self.careless, self.elsewhere), long)
        switched = (PlanningSettings(preempt=True), "gpu") if on else (PlanningSettings(), "")
        with opened(self.journal) as journal:
            return Applier(
                source=open_source("text", cluster=None, timeout_s=30.0, clock=Ahead()),
                actuator=ScontrolActuator(SlurmCommands(timeout_s=30.0)),
                cycle=Cycle(
                    planning=switched[0],
                    limits=Limits(preempt_partitions=switched[1]),
                    forecaster=FixedForecaster(by_job={**told, **dict.fromkeys((self.gang, *gangs), short)}),
                ),
                journal=journal,
            ).step()

    def wait_until(self, job_id: int, word: str, timeout_s: float = 60.0) -> None:
        """Wait until Slurm says so of a job."""
        self.live.wait_for(
            lambda: word in self.live.run("squeue", "-h", "-a", "-j", str(job_id), "-o", "%T %r").split(),
            timeout_s,
            what=f"job {job_id} is {word}",
        )


@pytest.fixture(scope="module")
def small(release: str) -> Iterator[LiveCluster]:
    kept = "PartitionName=kept Nodes=ALL MaxTime=UNLIMITED State=UP"
    with started(LiveCluster(release, node_count=3, gpu_types=["h100"] * 3, shards={}, extra_lines=[kept])) as live:
        yield live


@pytest.fixture
def queue(small: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue on an empty cluster, with an empty journal; also for what runs in this process."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, small.env[name])
    small.reset()
    jobs = (
        small.submit(*LONG, SAVES),
        small.submit(*LONG),
        small.submit(*LONG, SAVES, "--partition=kept"),
        small.submit("--time=00:20:00", *NODE),
    )
    queue = Queue(
        live=small,
        journal=tmp_path / "journal.sqlite",
        victim=jobs[0],
        careless=jobs[1],
        elsewhere=jobs[2],
        gang=jobs[3],
    )
    for job_id in jobs[:3]:
        queue.wait_until(job_id, "RUNNING")
    queue.wait_until(queue.gang, "Resources")
    return queue


def stops(step: Step) -> list[tuple[int, int, Outcome]]:
    """Return which job was stopped for which gang, and what came of it."""
    return [
        (receipt.action.job_id, receipt.action.for_job_id, receipt.outcome)
        for receipt in step.applied
        if isinstance(receipt.action, Requeue)
    ]


def test_gang_gets_the_place_of_a_job_that_saves_its_work_and_of_no_other(queue: Queue) -> None:
    before = queue.jobs()

    off = queue.step(on=False)
    untouched = queue.jobs()
    on = queue.step(on=True)
    queue.wait_until(queue.gang, "RUNNING")
    queue.wait_until(queue.victim, "BeginTime")
    after = queue.jobs()

    assert stops(off) == [] and untouched[queue.victim].start_time == before[queue.victim].start_time
    assert stops(on) == [(queue.victim, queue.gang, Outcome.APPLIED)]
    for job_id in (queue.careless, queue.elsewhere):
        assert after[job_id].state is JobState.RUNNING
        assert after[job_id].start_time == before[job_id].start_time
    gang, victim = after[queue.gang].allocation, before[queue.victim].allocation
    assert gang is not None and victim is not None and gang.nodes == victim.nodes
    # Slurm holds it back, so that the gang starts first, and takes it for submitted anew.
    stopped = after[queue.victim]
    assert stopped.eligible_time is not None and stopped.submit_time > before[queue.victim].submit_time
    assert REQUEUE_HOLD_S - 2.0 <= stopped.eligible_time - stopped.submit_time <= REQUEUE_HOLD_S


# Slurm holds it back for two minutes on every release alike.
@pytest.mark.releases("22.05")
def test_stopped_job_starts_again_later_and_is_not_stopped_twice(queue: Queue) -> None:
    before = queue.jobs()[queue.victim]
    queue.step(on=True)
    queue.wait_until(queue.gang, "RUNNING")

    again = queue.step(on=True)
    queue.live.run("scancel", str(queue.gang))
    # By itself: a job that is let start sooner may find its credential revoked on the node, and ends for good.
    queue.wait_until(queue.victim, "RUNNING", REQUEUE_HOLD_S + 60.0)
    after = queue.jobs()[queue.victim]
    second = queue.live.submit("--time=00:20:00", *NODE)
    queue.wait_until(second, "Resources")
    late = queue.step(on=True, gangs=(second,))

    assert stops(again) == stops(late) == []
    assert before.start_time is not None and after.start_time is not None
    assert after.start_time >= before.start_time + REQUEUE_HOLD_S - 2.0
    assert after.allocation == before.allocation


def test_run_that_is_over_is_not_stopped_once_more(queue: Queue) -> None:
    victim = queue.jobs()[queue.victim]
    requeue = Requeue(job_id=queue.victim, for_job_id=queue.gang, before=victim.start_time)
    actuator = ScontrolActuator(SlurmCommands(timeout_s=30.0))

    first, second = actuator.apply(requeue), actuator.apply(requeue)
    unwilling = queue.jobs()[queue.careless]
    queue.live.run("scontrol", "update", f"JobId={queue.careless}", "Requeue=0")
    refused = actuator.apply(Requeue(job_id=queue.careless, for_job_id=queue.gang, before=unwilling.start_time))

    assert (first.outcome, first.text) == (Outcome.APPLIED, "")
    assert (second.outcome, second.text) == (Outcome.FAILED, NOT_RUNNING)
    assert refused.outcome is Outcome.FAILED and "disabled" in refused.text
