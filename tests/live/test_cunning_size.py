"""On live Slurm a job counts with what it keeps from others, and arrays are lifted within a bound."""

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
from advisor.domain.actions import SetNice
from advisor.domain.plan import Outcome
from advisor.journal import opened
from advisor.settings import Limits
from tests.live.conftest import started
from tests.live.test_advice import EAGER, sadvise
from tools.stage import LiveCluster

pytestmark = [pytest.mark.live, pytest.mark.releases("22.05", "26.05")]

COMMANDS = SlurmCommands(timeout_s=30.0)
NODES, GPUS = 2, 8
# Equal priorities, so that the order of submission is that of the site.
PRIORITY = ("PriorityWeightAge=0", "PriorityWeightJobSize=0", "PriorityWeightPartition=50000", "MaxJobCount=30000")
HONEST, CUNNING = "mail", "games"
TWO_HOURS = "--time=2:00:00"


@pytest.fixture(scope="module")
def live(release: str) -> Iterator[LiveCluster]:
    cluster = LiveCluster(
        release,
        node_count=NODES,
        gpus_per_node=GPUS,
        gpu_types=["a100"] * NODES,
        shards={},
        extra_lines=PRIORITY,
    )
    with started(cluster) as running:
        yield running


@pytest.fixture
def full(live: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> LiveCluster:
    """The cluster with all GPUs in use, and a job of five days first in line."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, live.env[name])
    live.reset()
    for _ in range(NODES):
        live.submit("--gres=gpu:8", "-n1", "--time=10:00:00", user=HONEST)
    live.wait_for(lambda: len(live.run("squeue", "-h", "-t", "R", "-o", "%A").split()) == NODES, 60.0)
    live.submit("--gres=gpu:8", "-n1", "--time=5-00:00:00", user=HONEST)
    return live


def cpus_of_a_node(live: LiveCluster) -> int:
    return int(live.run("sinfo", "-h", "-n", "n01", "-o", "%c"))


def lifted(live: LiveCluster, folder: Path) -> list[int]:
    """Run one round, and return the jobs that were lifted, in the order in which slurmctld considers them."""
    live.wait_for(lambda: "None" not in live.run("squeue", "-h", "-t", "PD", "-o", "%r").split(), 60.0)
    with opened(folder / "journal.sqlite") as journal:
        step = Applier(
            source=open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()),
            actuator=ScontrolActuator(COMMANDS),
            cycle=Cycle(limits=Limits(min_job_age_s=0.0)),
            journal=journal,
            named=NamedJobs(COMMANDS, SystemClock(), SiteReader(COMMANDS, SystemClock())),
        ).step()
    done = {
        receipt.action.job_id
        for receipt in step.applied
        if receipt.outcome is Outcome.APPLIED and isinstance(receipt.action, SetNice)
    }
    line = live.run("squeue", "-h", "-t", "PD", "-S", "-p,i", "-o", "%A").split()
    return [job_id for job_id in map(int, line) if job_id in done]


def test_declared_range_does_not_make_a_job_count_as_its_smallest_size(full: LiveCluster, tmp_path: Path) -> None:
    cunning = full.submit("--gres=gpu:8", "-n1", TWO_HOURS, "--comment=sadvise: gpus=1-8", user=CUNNING)
    honest = full.submit("--gres=gpu:4", "-n1", TWO_HOURS, user=HONEST)

    order = lifted(full, tmp_path)

    assert order[0] == honest
    assert cunning not in order[:1]


@pytest.mark.parametrize("how", ["exclusive", "cpus", "memory", "all memory"])
def test_job_that_strands_a_node_counts_with_all_its_gpus(full: LiveCluster, tmp_path: Path, how: str) -> None:
    mib = int(full.run("sinfo", "-h", "-n", "n01", "-o", "%m"))
    asked = {
        "exclusive": ("--exclusive", "--mem=1"),
        "cpus": (f"-c{cpus_of_a_node(full)}", "--mem=1"),
        "memory": (f"--mem={mib}",),
        "all memory": ("--mem=0",),
    }[how]
    cunning = full.submit("--gres=gpu:1", "-n1", TWO_HOURS, *asked, user=CUNNING)
    honest = full.submit("--gres=gpu:4", "-n1", TWO_HOURS, "--mem=1", user=HONEST)

    order = lifted(full, tmp_path)

    assert order == [honest, cunning]
    size = sadvise(full, "explain", str(cunning), settings=EAGER)
    assert "1 GPU (it keeps 8 from other jobs)" in " ".join(size.split())


def test_arrays_of_one_user_are_lifted_within_the_bound_and_leave_room_for_others(
    full: LiveCluster, tmp_path: Path
) -> None:
    # By their limits 16.7 GPU-hours each, of 64 that one user can have.
    arrays = [full.submit("--gres=gpu:1", "-n1", "--time=1", "--array=1-1000", user=CUNNING) for _ in range(20)]
    too_large = full.submit("--gres=gpu:1", "-n1", "--time=5", "--array=1-1000", user=CUNNING)
    honest = full.submit("--gres=gpu:4", "-n1", "--time=10", user=HONEST)

    order = lifted(full, tmp_path)

    assert honest in order
    assert 0 < len(set(order) & set(arrays)) <= 3
    assert too_large not in order
    told = " ".join(sadvise(full, "explain", str(too_large), settings=EAGER).split())
    assert "it is not lifted: its 1000 tasks count as 83.3 GPU-hours" in told
