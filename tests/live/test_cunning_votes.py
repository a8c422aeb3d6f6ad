"""Users on live Slurm who make their jobs wait for credit, or overrule lifts to switch the advisor off: no gain."""

import time
from collections.abc import Iterator
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
from advisor.domain.standings import standings_of
from advisor.guard.breakers import ALL_CLOSED, Vitals, judged
from advisor.journal import opened
from advisor.planning.objective import owed_to
from advisor.settings import BreakerSettings, Limits
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.wait_sums import stretch_of
from tests.live.conftest import started
from tools.stage import LiveCluster

pytestmark = [pytest.mark.live, pytest.mark.releases("22.05")]

COMMANDS = SlurmCommands(timeout_s=30.0)
PRIORITY = ("PriorityWeightAge=0", "PriorityWeightJobSize=0", "PriorityWeightPartition=50000")
LIMITS = Limits(min_job_age_s=0.0)
FIRST, SECOND, THIRD = "games", "news", "man"
# Longer than a job can fit without a start before it is out of the account.
WATCHED_S = 90.0


@pytest.fixture
def live(release: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    two = LiveCluster(release, node_count=2, gpus_per_node=4, gpu_types=["a100"] * 2, shards={}, extra_lines=PRIORITY)
    with started(two):
        for name in ("PATH", "SLURM_CONF"):
            monkeypatch.setenv(name, two.env[name])
        two.submit("--gres=gpu:4", "-n1", "--time=10:00:00", "-w", "n01")
        two.wait_for(lambda: bool(two.run("squeue", "-h", "-t", "R", "-o", "%A")), 60.0)
        yield two


def nices(live: LiveCluster, *job_ids: int) -> list[int]:
    return [int(live.run("squeue", "-h", "-j", str(job_id), "-o", "%y")) for job_id in job_ids]


def looked_at(live: LiveCluster) -> None:
    """Wait until slurmctld has looked at every job."""
    live.wait_for(lambda: live.run("squeue", "-h", "-t", "PD", "-o", "%r").split().count("None") == 0, 60.0)


def test_jobs_that_their_user_makes_wait_earn_no_credit(live: LiveCluster) -> None:
    source = open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock())
    twin = PlainTwin(source.snapshot())
    barred = [live.submit("--gres=gpu:1", "-n1", "--time=60", "-x", "n02", user=FIRST) for _ in range(5)]
    gang = live.submit("--gres=gpu:4", "-N2", "-n2", "--time=60", user=SECOND)
    looked_at(live)

    end = time.monotonic() + WATCHED_S
    shrinks = [("scontrol", "update", f"JobId={gang}", "TresPerNode=gres:gpu:1")]
    while time.monotonic() < end:
        twin.observe(source.snapshot())
        if shrinks and time.monotonic() > end - WATCHED_S / 2:
            live.run(*shrinks.pop(), user=SECOND)
        time.sleep(5.0)
    starts = twin.starts(draws=8)
    stretch = stretch_of(starts)
    standings = standings_of([stretch]).by_user

    assert set(live.run("squeue", "-h", "-t", "PD", "-o", "%A").split()) == {str(job_id) for job_id in (*barred, gang)}
    # The first in line fits by all that 22.05 shows, and the gang was changed: both are out of the accounts.
    assert set(starts.job_ids.tolist()) == set(barred[1:])
    # Plain Slurm as modelled would have started the others at once; that is not certain.
    assert standings[FIRST].difference_s.median > WATCHED_S / 2
    assert standings[FIRST].difference_s.low <= 0.0
    assert owed_to([standings[FIRST]], LIMITS).tolist() <= [0.0]
    assert {job_id for job_id, _ in stretch.late} <= set(barred[1:])


def test_two_users_who_overrule_two_lifts_each_switch_the_advisor_off_for_nobody(
    live: LiveCluster, tmp_path: Path
) -> None:
    live.submit("--gres=gpu:4", "-n1", "--time=10:00:00", "-w", "n02")
    live.submit("--gres=gpu:4", "-N2", "-n2", "--time=5-00:00:00")
    lifted = [live.submit("--gres=gpu:1", "-n1", "--time=10", user=user) for user in (FIRST, FIRST, SECOND, SECOND)]
    looked_at(live)
    with opened(tmp_path / "journal.sqlite") as journal:
        applier = Applier(
            source=open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()),
            actuator=ScontrolActuator(COMMANDS),
            cycle=Cycle(limits=LIMITS),
            journal=journal,
            named=NamedJobs(COMMANDS, SystemClock(), SiteReader(COMMANDS, SystemClock())),
        )

        first = applier.step()
        for job_id, user in zip(lifted, (FIRST, FIRST, SECOND, SECOND), strict=True):
            live.run("scontrol", "update", f"JobId={job_id}", "Nice=100", user=user)
        applier.step()
        now = time.time()
        leases = (*journal.closed((), since=now - BreakerSettings().objections_window_s), *journal.leases())
        breakers = judged(ALL_CLOSED, Vitals(now=now, leases=leases), BreakerSettings())
        third = live.submit("--gres=gpu:1", "-n1", "--time=10", user=THIRD)
        looked_at(live)
        later = applier.step()
        kept = nices(live, *lifted)
        applier.revert(applier.leased())

    assert {receipt.action.job_id for receipt in first.applied if receipt.outcome is Outcome.APPLIED} >= set(lifted)
    assert sum(lease.overruled_time is not None for lease in leases) == len(lifted)
    assert breakers.open == ()
    assert [receipt.action.job_id for receipt in later.applied if receipt.outcome is Outcome.APPLIED] == [third]
    # What was overruled is left alone, before and after the advisor takes its own changes back.
    assert kept == nices(live, *lifted) == [100] * len(lifted)
    assert nices(live, third) == [0]
