"""A job that becomes too late on live Slurm is lifted above jobs lifted before, and gets back what its user set."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.named_jobs import NamedJobs
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.domain.plan import Outcome
from advisor.domain.units import DAY_S
from advisor.journal import opened
from advisor.settings import Limits, PlanningSettings
from tests.builders import make_stretch
from tests.live.conftest import started
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

COMMANDS = SlurmCommands(timeout_s=30.0)
PRIORITY = ("PriorityWeightAge=0", "PriorityWeightJobSize=0", "PriorityWeightPartition=50000")
USERS_NICE = 50
LATE_S = 120.0
# Both fit: the jobs take days.
PLANNING = PlanningSettings(lift_work_s=30 * DAY_S)
LIMITS = Limits(max_lateness_s=60.0, max_lateness_ratio=0.0, min_job_age_s=0.0)


@pytest.fixture(scope="module")
def live(release: str) -> Iterator[LiveCluster]:
    node = LiveCluster(release, node_count=1, gpus_per_node=4, gpu_types=["a100"], shards={}, extra_lines=PRIORITY)
    with started(node):
        yield node


def places(live: LiveCluster) -> list[int]:
    """Return the pending jobs in the order in which slurmctld considers them."""
    return [int(job_id) for job_id in live.run("squeue", "-h", "-t", "PD", "-S", "-p,i", "-o", "%A").split()]


def nices(live: LiveCluster) -> set[int]:
    return {int(nice) for nice in live.run("squeue", "-h", "-t", "PD", "-o", "%y").split()}


def test_late_job_is_lifted_again_and_reverted(
    live: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, live.env[name])
    live.submit("--gres=gpu:4", "-n1", "--time=10:00:00")
    live.wait_for(lambda: bool(live.run("squeue", "-h", "-t", "R", "-o", "%A")), 60.0)
    nice = f"--nice={USERS_NICE}"
    huge = live.submit("--gres=gpu:4", "-n1", "--time=5-00:00:00", nice)
    large = live.submit("--gres=gpu:4", "-n1", "--time=1-00:00:00", nice)
    small = live.submit("--gres=gpu:1", "-n1", "--time=10", nice)
    live.wait_for(lambda: live.run("squeue", "-h", "-t", "PD", "-o", "%r").split().count("None") == 0, 60.0)
    with opened(tmp_path / "journal.sqlite") as journal:
        applier = Applier(
            source=open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()),
            actuator=ScontrolActuator(COMMANDS),
            cycle=Cycle(limits=LIMITS, planning=PLANNING),
            journal=journal,
            named=NamedJobs(COMMANDS, SystemClock(), SiteReader(COMMANDS, SystemClock())),
        )

        first = applier.step()
        after_first = places(live)
        now = time.time()
        stretch = make_stretch(anchor_time=now - 600.0, until=now)
        journal.keep_stretch(replace(stretch, late=((large, now - LATE_S),)))
        second = applier.step()
        after_second = places(live)
        third = applier.step()
        applier.revert(applier.leased())
        left = journal.leases()

    assert [receipt.outcome for receipt in first.applied] == [Outcome.APPLIED] * 2
    assert after_first == [small, large, huge]
    assert [(receipt.action.job_id, receipt.outcome) for receipt in second.applied] == [(large, Outcome.APPLIED)]
    assert after_second == [large, small, huge]
    assert third.applied == ()
    assert (nices(live), left) == ({USERS_NICE}, ())
    assert places(live) == [huge, large, small]
