"""Smaller sizes on live clusters: the time limit rises in the same command, both are restored, and MaxTime holds."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.process import SlurmCommands
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import ClusterSource, Cycle
from advisor.domain.actions import Lever, SetGpus
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.lease import LeaseState
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.journal import opened
from advisor.settings import Limits
from tests.builders import size_of
from tests.live.conftest import started
from tests.live.test_advice import advice, sadvise, state_of
from tests.live.test_apply import AsUser
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

HOUR_S = 3600.0
# Two of four GPUs have twice the limit of an hour.
RAISED_MIN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A source that shows one snapshot again and again."""

    seen: Snapshot
    name: str = "seen"

    def snapshot(self) -> Snapshot:
        """Return the snapshot."""
        return self.seen


@pytest.fixture(scope="module")
def site(release: str) -> Iterator[LiveCluster]:
    """A node of 8 GPUs of which one job holds 6 for a day."""
    with started(LiveCluster(release, node_count=1, shards={})) as live:
        blocker = live.submit("--time=1-00:00:00", "--gpus=6", "-n1")
        live.wait_for(lambda: "RUNNING" in state_of(live, blocker), 60.0, what="the first job runs")
        yield live


@pytest.fixture
def elastic(site: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A job of 4 GPUs and one hour that could start on 2."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, site.env[name])
    job_id = site.submit("--time=60", "--gpus=4", "-N1", "-n1", "--comment=sadvise: gpus=1-8", user="games")
    site.wait_for(lambda: _reason(site, job_id) not in ("None", ""), 60.0, what="Slurm has looked at the job")
    yield job_id
    site.run("scancel", str(job_id))
    site.run("scontrol", "update", "PartitionName=gpu", "State=UP", "MaxTime=1-00:00:00")


def _reason(live: LiveCluster, job_id: int) -> str:
    return live.run("squeue", "-h", "-a", "-j", str(job_id), "-o", "%r").strip()


def queue() -> ClusterSource:
    return open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock())


def test_limit_rises_with_a_smaller_size_and_both_are_restored(site: LiveCluster, elastic: int, tmp_path: Path) -> None:
    before, snapshot = state_of(site, elastic), queue().snapshot()
    cycle = Cycle(limits=Limits(min_job_age_s=0.0, nice_min=0), levers=frozenset({Lever.GPU_COUNT}))
    actuator = ScontrolActuator(SlurmCommands(timeout_s=30.0))
    # Or the smaller job would start.
    site.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")

    with opened(tmp_path / "journal.sqlite") as journal:
        step = Applier(source=Seen(seen=snapshot), actuator=actuator, cycle=cycle, journal=journal).step()
        changed = queue().snapshot().jobs_by_id[elastic]
        leases = journal.leases()
        reverted = Applier(source=queue(), actuator=actuator, cycle=cycle, journal=journal).revert(queue().snapshot())

    assert [(one.action.job_id, one.outcome, one.text) for one in step.applied] == [(elastic, Outcome.APPLIED, "")]
    assert (changed.gang.gpu_count, changed.time_limit_s) == (2, RAISED_MIN * 60.0)
    assert [lease.state for lease in leases] == [LeaseState.OUT]
    assert [(one.outcome, one.text) for one in reverted.taken_back] == [(Outcome.APPLIED, "")]
    assert state_of(site, elastic) == before


def test_limit_that_the_user_changes_later_stays_with_the_size(site: LiveCluster, elastic: int, tmp_path: Path) -> None:
    snapshot = queue().snapshot()
    cycle = Cycle(limits=Limits(min_job_age_s=0.0, nice_min=0), levers=frozenset({Lever.GPU_COUNT}))
    actuator = ScontrolActuator(SlurmCommands(timeout_s=30.0))
    site.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")

    with opened(tmp_path / "journal.sqlite") as journal:
        Applier(source=Seen(seen=snapshot), actuator=actuator, cycle=cycle, journal=journal).step()
        site.run("scontrol", "update", f"JobId={elastic}", "TimeLimit=90", user="games")
        reverted = Applier(source=queue(), actuator=actuator, cycle=cycle, journal=journal).revert(queue().snapshot())
    left = queue().snapshot().jobs_by_id[elastic]

    assert reverted.taken_back == () and [lease.job_id for lease in reverted.overruled] == [elastic]
    assert (left.gang.gpu_count, left.time_limit_s) == (2, 90 * 60.0)


def test_smaller_job_starts_with_the_longer_limit(site: LiveCluster, elastic: int, tmp_path: Path) -> None:
    arguments = ("apply", "-j", str(elastic), "--json", "--journal", str(tmp_path / "journal.sqlite"))
    document = json.loads(sadvise(site, *arguments))

    site.wait_for(lambda: "RUNNING" in state_of(site, elastic), 60.0, what="the smaller job runs")
    running = queue().snapshot().jobs_by_id[elastic]
    # Where it starts before its fields are read back, its change counts as one that found it no longer pending.
    assert [(row["job_id"], row["lever"]) for row in document["changes"] if row["done"] == "applied"] in (
        [(elastic, "gpu_count")],
        [],
    )
    assert running.time_limit_s == RAISED_MIN * 60.0
    assert running.allocation is not None
    assert sum(gpus.count for gpus in running.allocation.gpus) == 2


def test_smaller_job_that_slurmctld_would_not_start_stays_as_it_is(
    site: LiveCluster, elastic: int, tmp_path: Path
) -> None:
    before = state_of(site, elastic)
    # It begins after the job's limit of an hour, and before the two that a smaller size takes.
    site.run("scontrol", "create", "reservation", "ReservationName=soon", "StartTime=now+90minutes", "Duration=600",
             "Users=root", "Nodes=ALL", "Flags=IGNORE_JOBS")  # fmt: skip

    arguments = ("apply", "-j", str(elastic), "--json", "--journal", str(tmp_path / "journal.sqlite"))
    document = json.loads(sadvise(site, *arguments))
    site.run("scontrol", "delete", "ReservationName=soon")

    [text] = [row["text"] for row in document["changes"] if (row["job_id"], row["lever"]) == (elastic, "gpu_count")]
    assert text.startswith("slurmctld: at that size it would start in ")
    assert state_of(site, elastic) == before


@pytest.mark.parametrize(("minutes", "proposed"), [(RAISED_MIN, True), (RAISED_MIN - 1, False)])
def test_job_is_not_made_smaller_where_its_partition_admits_no_longer_limit(
    site: LiveCluster, elastic: int, minutes: int, proposed: bool
) -> None:
    site.run("scontrol", "update", "PartitionName=gpu", f"MaxTime={minutes}")

    levers = [change["lever"] for change in advice(site) if change["job_id"] == elastic]

    assert ("gpu_count" in levers) is proposed


def test_owner_raises_the_limit_up_to_that_of_the_partition_and_an_operator_beyond(
    site: LiveCluster, elastic: int
) -> None:
    site.run("scontrol", "update", "PartitionName=gpu", "State=DOWN", "MaxTime=120")

    def smaller(minutes: int) -> SetGpus:
        held = size_of(GpuCount(count=4), limit_s=HOUR_S)
        wanted = size_of(GpuCount(count=2), limit_s=minutes * 60.0)
        return SetGpus(job_id=elastic, scope=GpuScope.JOB, before=held, after=wanted)

    before = state_of(site, elastic)
    owner = ScontrolActuator(AsUser(live=site, user="games"))
    beyond = owner.apply(smaller(121))
    unchanged = state_of(site, elastic)
    within, back = owner.apply(smaller(120)), owner.apply(smaller(120).swapped())
    by_root = ScontrolActuator(SlurmCommands(timeout_s=30.0)).apply(smaller(121))

    # Slurm refuses it as a whole: the size stays, too.
    assert (beyond.outcome, unchanged) == (Outcome.FAILED, before)
    assert (within.outcome, back.outcome) == (Outcome.APPLIED, Outcome.APPLIED)
    # Which is why the guard sends no such change.
    assert by_root.outcome is Outcome.APPLIED
