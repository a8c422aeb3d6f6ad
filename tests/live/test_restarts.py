"""Running jobs on live clusters that restart with more GPUs: stopped, sized while Slurm holds them, and run again."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.apply.step import Step
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.process import SlurmCommands
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.domain.actions import Lever, Requeue, SetGpus
from advisor.domain.forecast import JobForecast
from advisor.domain.job import Job, JobState
from advisor.domain.lease import Ending, LeaseState
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.guard import job_rules
from advisor.journal import opened
from advisor.planning import running_sizes
from advisor.planning.preemption import REQUEUE_HOLD_S
from advisor.settings import Limits, PlanningSettings
from tests.live.conftest import started
from tests.planning.test_with_forecasts import FixedForecaster, runs
from tools.live_slurm import LiveCluster

# One release stands for all.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.timeout(600)]

# A second longer than a credential lives; `test_preempt` has Slurm's own hold.
HOLD_S = 21.0
# slurmctld looks at the queue within a minute of the end of the hold.
STARTS_WITHIN_S = HOLD_S + 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """A job of 2 GPUs and up to 8 that runs alone on a node of 8."""

    live: LiveCluster
    journal: Path
    job_id: int

    def snapshot(self) -> Snapshot:
        """Read the cluster."""
        return open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()).snapshot()

    def job(self) -> Job:
        """Read the job."""
        return self.snapshot().jobs_by_id[self.job_id]

    def applier(self, journal: object, *, on: bool = True) -> Applier:
        """Return an applier for which the job runs for 20 hours."""
        return Applier(
            source=open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()),
            actuator=ScontrolActuator(SlurmCommands(timeout_s=30.0)),
            cycle=Cycle(
                planning=PlanningSettings(resize_running=on),
                limits=Limits(preempt_partitions="gpu"),
                forecaster=FixedForecaster(by_job={self.job_id: JobForecast(run_time=runs(20))}),
                levers=frozenset({Lever.CHECKPOINT_REQUEUE, Lever.GPU_COUNT}),
            ),
            journal=journal,  # type: ignore[arg-type]
        )

    def step(self, *, on: bool = True) -> Step:
        """Run one step."""
        with opened(self.journal) as journal:
            return self.applier(journal, on=on).step()

    def wait_until(self, job_id: int, word: str, timeout_s: float = 60.0) -> None:
        """Wait until Slurm says so of a job."""
        self.live.wait_for(
            lambda: word in self.live.run("squeue", "-h", "-a", "-j", str(job_id), "-o", "%T %r").split(),
            timeout_s,
            what=f"job {job_id} is {word}",
        )

    def stop(self) -> Job:
        """Stop the job, wait until Slurm holds it, and return it as it waits."""
        assert [(type(one.action), one.outcome) for one in self.step().applied] == [(Requeue, Outcome.APPLIED)]
        self.wait_until(self.job_id, "BeginTime")
        return self.job()


@pytest.fixture(scope="module")
def node(release: str) -> Iterator[LiveCluster]:
    with started(LiveCluster(release, node_count=1, shards={}, cred_expire_s=round(HOLD_S) - 1)) as live:
        yield live


@pytest.fixture
def elastic(node: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elastic:
    """The job on an empty cluster, with an empty journal; it has run for long enough to be stopped."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, node.env[name])
    monkeypatch.setattr(job_rules, "QUANTUM_S", 0.0)
    node.reset()
    job_id = node.submit("--time=1-00:00:00", "--gpus=2", "-N1", "-n1", "--comment=sadvise: gpus=1-8 ckpt=300")
    elastic = Elastic(live=node, journal=tmp_path / "journal.sqlite", job_id=job_id)
    elastic.wait_until(job_id, "RUNNING")
    return elastic


def gpus_held(job: Job) -> int:
    """Return the GPUs that a running job holds."""
    assert job.allocation is not None
    return sum(gpus.count for gpus in job.allocation.gpus)


def test_running_job_restarts_with_more_gpus(elastic: Elastic) -> None:
    first = elastic.job()

    off = elastic.step(on=False)
    waiting = elastic.stop()
    sized = elastic.step()
    asks = elastic.job()
    again = elastic.step()
    elastic.wait_until(elastic.job_id, "RUNNING", STARTS_WITHIN_S)
    after = elastic.step()
    larger = elastic.job()

    assert off.applied == () and gpus_held(first) == 2
    # It keeps its id and its request; Slurm holds it, and its age begins at 0.
    assert waiting.gang.gpu_count == 2 and waiting.submit_time > first.submit_time
    assert waiting.eligible_time is not None
    assert HOLD_S - 2.0 <= waiting.eligible_time - waiting.submit_time <= HOLD_S
    assert [(type(one.action), one.outcome, one.text) for one in sized.applied] == [(SetGpus, Outcome.APPLIED, "")]
    assert asks.gang.gpu_count == 8 and again.applied == () and after.applied == ()
    assert larger.state is JobState.RUNNING and gpus_held(larger) == 8
    with opened(elastic.journal) as journal:
        leases = {lease.lever: lease for lease in journal.closed((elastic.job_id,))}
        assert journal.leases() == ()
    stop, size = leases[Lever.CHECKPOINT_REQUEUE], leases[Lever.GPU_COUNT]
    assert isinstance(stop.action, Requeue) and stop.action.gpus_after == 8
    assert (stop.ending, size.ending) == (Ending.DONE_FOR_GOOD, Ending.NO_LONGER_PENDING)
    # The wait is booked with the stop.
    assert stop.start_time == larger.start_time and stop.added_delay_s == REQUEUE_HOLD_S


def test_size_of_a_restart_is_reverted_and_its_stop_is_not(elastic: Elastic) -> None:
    elastic.stop()
    elastic.step()

    with opened(elastic.journal) as journal:
        reverted = elastic.applier(journal).revert(elastic.snapshot())
    after = elastic.step()

    assert [(type(one.action), one.outcome) for one in reverted.taken_back] == [(SetGpus, Outcome.APPLIED)]
    assert elastic.job().gang.gpu_count == 2
    # A person objected.
    assert after.applied == ()


def test_job_whose_gpus_are_taken_meanwhile_gets_its_own_size_back(
    elastic: Elastic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_sizes, "GROWTH_LEASE_S", HOLD_S + 30.0)
    elastic.stop()
    elastic.step()
    other = elastic.live.submit("--time=1-00:00:00", "--gpus=6", "-N1", "-n1")
    elastic.wait_until(other, "RUNNING")

    with opened(elastic.journal) as journal:
        (size,) = [lease for lease in journal.leases() if lease.state is LeaseState.OUT]
    due_time = size.due_time or 0.0
    elastic.live.wait_for(lambda: SystemClock().now() > due_time, 240.0, what="the lease of the size is due")
    step = elastic.step()
    elastic.wait_until(elastic.job_id, "RUNNING", 120.0)

    assert [one.outcome for one in step.reconciled.taken_back] == [Outcome.APPLIED]
    assert gpus_held(elastic.job()) == 2
