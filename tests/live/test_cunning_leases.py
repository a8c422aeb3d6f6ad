"""Users who try to keep a lift on live Slurm: who asks for more, requeues, or splits an array gets no more by it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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
from advisor.domain.lease import Ending, intended
from advisor.domain.plan import Outcome
from advisor.journal import opened
from advisor.settings import Limits
from tests.cli.conftest import Outcome as Answer
from tests.live.conftest import started
from tests.live.reading import sadvise_on
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

COMMANDS = SlurmCommands(timeout_s=30.0)
PRIORITY = (
    "PriorityWeightAge=0", "PriorityWeightJobSize=0", "PriorityWeightPartition=50000", "MaxArraySize=5001",
)  # fmt: skip
USER = "games"
ALL_GPUS = ("--gres=gpu:4", "-N2", "-n2")


@pytest.fixture(scope="module")
def nodes(release: str) -> Iterator[LiveCluster]:
    with started(
        LiveCluster(release, node_count=2, gpus_per_node=4, gpu_types=["a100"] * 2, shards={}, extra_lines=PRIORITY)
    ) as live:
        yield live


@pytest.fixture
def live(nodes: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> LiveCluster:
    """Two nodes of four GPUs, empty, in the environment of this process."""
    nodes.reset()
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, nodes.env[name])
    return nodes


@contextmanager
def applying(journal: Path) -> Iterator[Applier]:
    with opened(journal) as held:
        yield Applier(
            source=open_source("text", cluster=None, timeout_s=30.0, clock=SystemClock()),
            actuator=ScontrolActuator(COMMANDS),
            cycle=Cycle(limits=Limits(min_job_age_s=0.0)),
            journal=held,
            named=NamedJobs(COMMANDS, SystemClock(), SiteReader(COMMANDS, SystemClock())),
        )


def wait_until_considered(live: LiveCluster) -> None:
    live.wait_for(lambda: "None" not in live.run("squeue", "-h", "-t", "PD", "-o", "%r").split(), 60.0)


def wait_for_state(live: LiveCluster, job_id: int, state: str) -> None:
    live.wait_for(lambda: live.run("squeue", "-h", "-j", str(job_id), "-o", "%T").strip() == state, 60.0)


def places(live: LiveCluster) -> list[int]:
    """Return the pending jobs in the order in which slurmctld considers them."""
    return [int(job_id) for job_id in live.run("squeue", "-h", "-t", "PD", "-S", "-p,i", "-o", "%A").split()]


def nice_of(live: LiveCluster, job_id: int) -> int:
    return int(live.run("squeue", "-h", "-j", str(job_id), "-o", "%y"))


def crowd(live: LiveCluster) -> tuple[int, int, int]:
    """Fill the cluster, and let a long job and a short one of a user wait behind that."""
    first = live.submit(*ALL_GPUS, "--time=10:00:00")
    wait_for_state(live, first, "RUNNING")
    long = live.submit(*ALL_GPUS, "--time=1-00:00:00")
    short = live.submit("--gpus=1", "-n1", "--time=1", "--requeue", user=USER)
    wait_until_considered(live)
    return first, long, short


def test_a_job_that_grows_once_it_is_lifted_goes_back_to_its_own_place(live: LiveCluster, tmp_path: Path) -> None:
    _, long, short = crowd(live)
    with applying(tmp_path / "journal.sqlite") as applier:
        applier.step()
        lifted = places(live)
        for grown in ("TresPerJob=gres:gpu:8", "TimeLimit=7-0", "NumTasks=2", "NumNodes=2-2"):
            live.run("scontrol", "update", f"JobId={short}", grown, user=USER, check=False)
        wait_until_considered(live)
        ahead = places(live)

        step = applier.step()
        (closed,) = applier.journal.closed([short])
        left = applier.journal.leases()

    asked = live.run("scontrol", "-o", "show", "job", str(short))
    assert "TimeLimit=7-00:00:00" in asked and "gpu:8" in asked
    assert lifted == ahead == [short, long]
    assert [(receipt.action.job_id, receipt.outcome) for receipt in step.reconciled.taken_back] == [
        (short, Outcome.APPLIED)
    ]
    assert step.reconciled.taken_back[0].text.startswith("the job asks for 8 GPUs, for 1 GPU when it was changed")
    assert (closed.ending, closed.lost, left) == (Ending.TAKEN_BACK, step.reconciled.taken_back[0].text[8:], ())
    assert (nice_of(live, short), places(live)) == (0, [long, short])


def test_a_job_that_asks_for_less_keeps_its_lift(live: LiveCluster, tmp_path: Path) -> None:
    first, long, _ = crowd(live)
    wide = live.submit("--gpus=2", "-n2", "--time=2", user=USER)
    wait_until_considered(live)
    with applying(tmp_path / "journal.sqlite") as applier:
        applier.step()
        given = nice_of(live, wide)
        for smaller in ("TresPerJob=gres:gpu:1", "TimeLimit=1"):
            live.run("scontrol", "update", f"JobId={wide}", smaller, user=USER)
        wait_until_considered(live)

        step = applier.step()

        assert step.reconciled.taken_back == ()
        assert (nice_of(live, wide), given < 0) == (given, True)
        applier.revert(applier.leased())
    assert nice_of(live, wide) == 0 and len({first, long, wide}) == 3


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen as it ran", "between two rounds"])
def test_a_requeued_job_loses_its_lift(live: LiveCluster, tmp_path: Path, is_seen: bool) -> None:
    first, long, short = crowd(live)
    with applying(tmp_path / "journal.sqlite") as applier:
        applier.step()
        given = nice_of(live, short)
        live.run("scontrol", "hold", str(long))
        live.run("scancel", str(first))
        wait_for_state(live, short, "RUNNING")
        if is_seen:
            applier.reconcile(applier.source.snapshot())
        live.run("scontrol", "requeue", str(short), user=USER)
        wait_for_state(live, short, "PENDING")
        kept = nice_of(live, short)

        found = applier.reconcile(applier.source.snapshot())
        left = applier.journal.leases()

    assert (kept, given < 0) == (given, True)
    assert [receipt.text for receipt in found.taken_back] == ["the job was requeued since it was changed"]
    assert (nice_of(live, short), left) == (0, ())


@pytest.mark.parametrize("how", ["revert", "leave", "revert_due"])
def test_a_lift_of_an_array_whose_every_second_task_a_user_changed_is_taken_back(
    live: LiveCluster, tmp_path: Path, how: str
) -> None:
    first = live.submit(*ALL_GPUS, "--time=10:00:00")
    wait_for_state(live, first, "RUNNING")
    array = live.submit("--gpus=1", "-n1", "--time=1", "--array=1000-3999", user=USER)
    lift = SetNice(job_id=array, before=0, after=-1007)
    with applying(tmp_path / "journal.sqlite") as applier:
        applier.journal.claim(applier.source.snapshot().config.cluster)
        applier.journal.keep(intended(lift, SystemClock().now(), after_s=0.0 if how == "revert_due" else 3600.0))
        given = applier.actuator.apply(lift)
        for start in range(1001, 4000, 500):
            tasks = ",".join(str(task) for task in range(start, min(start + 500, 4000), 2))
            live.run("scontrol", "update", f"JobId={array}_[{tasks}]", "Nice=50", user=USER)

        reverted = getattr(applier, how)(applier.leased())
        left = applier.journal.leases()

    # The record of the array is whole; squeue leaves out the last task of an array in steps.
    records = live.run("scontrol", "-o", "show", "job", str(array))
    nices = Counter(re.findall(r" Nice=(-?\d+) ", records))
    assert given.outcome is Outcome.APPLIED
    assert [(receipt.outcome, receipt.text) for receipt in reverted.taken_back] == [(Outcome.APPLIED, "")]
    assert (nices, left) == ({"0": 1, "50": 1500}, ())
    assert "ArrayTaskId=1000-3998:2 " in records


def test_lifts_of_a_lost_journal_are_named_and_taken_back_by_their_mark(live: LiveCluster, tmp_path: Path) -> None:
    _, _, short = crowd(live)
    with applying(tmp_path / "journal.sqlite") as applier:
        applier.step()
    given = nice_of(live, short)
    for file in tmp_path.glob("journal.sqlite*"):
        file.unlink()

    named = sadvise(live, tmp_path, "revert", "--all")
    kept = nice_of(live, short)
    reverted = sadvise(live, tmp_path, "revert", "--strays", "--json")
    after = sadvise(live, tmp_path, "revert", "--all")

    assert named.exit_code == 1 and f"({short}): `sadvise revert --strays`" in named.err
    assert (kept, given < 0) == (given, True)
    assert [(row["job_id"], row["outcome"]) for row in json.loads(reverted.out)["changes"]] == [(short, "applied")]
    assert (nice_of(live, short), after.exit_code, after.out) == (0, 0, "nothing of ours is out\n")


def sadvise(live: LiveCluster, folder: Path, *arguments: str) -> Answer:
    return sadvise_on(live, *arguments, "--journal", str(folder / "journal.sqlite"))
