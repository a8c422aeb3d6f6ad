"""The nodes of gangs on live clusters: what ReqNodeList does, and that named nodes are taken back from who waits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from advisor.apply.applier import Applier
from advisor.apply.step import Step
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.process import SlurmCommands
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle
from advisor.domain.actions import Action, Lever, SetNodeList
from advisor.domain.job import Job
from advisor.domain.lease import Ending
from advisor.domain.plan import Receipt
from advisor.domain.snapshot import Snapshot
from advisor.errors import SlurmUnavailableError
from advisor.features.policy import Policy
from advisor.journal import opened
from advisor.predict.library import Library
from advisor.predict.served_policy import open_policy
from advisor.settings import Limits, PlanningSettings
from tests.live.conftest import started
from tests.planning.test_gang_nodes import Places
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

NODES = 4
GANG = ("--time=01:00:00", "-N2", "--gpus-per-node=8")


class Later:
    """A clock that is some time ahead."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self._ahead_s = ahead_s

    def now(self) -> float:
        """Return the machine's time and what it is ahead."""
        return SystemClock().now() + self._ahead_s


@dataclass(frozen=True, slots=True, kw_only=True)
class AsReleased:
    """A reader that shows held jobs as released, so that Slurm does not start them before they were changed."""

    clock: Later
    name: str = "text"

    def snapshot(self) -> Snapshot:
        """Read the cluster."""
        snapshot = open_source("text", cluster=None, timeout_s=30.0, clock=self.clock).snapshot()
        jobs = (_released(job) if job.held else job for job in snapshot.jobs)
        return replace(snapshot, jobs=tuple(jobs))


def _released(job: Job) -> Job:
    return replace(job, held=False, priority=1000, reason="Priority", eligible_time=job.submit_time)


class Dying(ScontrolActuator):
    """An actuator whose process ends once the changes were sent."""

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Send the changes, and return nothing."""
        super().apply_all(changes)
        raise SlurmUnavailableError("killed")


@dataclass(slots=True, kw_only=True)
class Line:
    """A cluster whose first node is busy, and a journal."""

    live: LiveCluster
    journal: Path
    policy: Policy = field(default_factory=Places)
    submitted: list[int] = field(default_factory=list)

    def step(self, *, dies: bool = False, ahead_s: float = 0.0) -> Step | None:
        """Run one round of an advisor of its own; None where it dies once its changes were sent."""
        commands = SlurmCommands(timeout_s=30.0)
        with opened(self.journal) as journal:
            applier = Applier(
                source=AsReleased(clock=Later(ahead_s)),
                actuator=Dying(commands) if dies else ScontrolActuator(commands),
                cycle=Cycle(
                    planning=PlanningSettings(name_nodes=True),
                    limits=Limits(min_job_age_s=0.0, nice_min=0),
                    policy=self.policy,
                ),
                journal=journal,
            )
            try:
                return applier.step()
            except SlurmUnavailableError:
                return None

    def submit(self, *options: str) -> int:
        """Submit a job."""
        self.submitted.append(self.live.submit(*options))
        return self.submitted[-1]

    def release(self, job_id: int) -> None:
        """Let Slurm start a job."""
        self.live.run("scontrol", "release", str(job_id))

    def shown(self, job_id: int, name: str) -> str:
        """Return one field of `scontrol show job`."""
        words = self.live.run("scontrol", "-o", "show", "job", str(job_id)).split()
        return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), "")

    def wait_until(self, job_id: int, value: str, name: str = "JobState") -> None:
        """Wait until a field of a job has a value."""
        self.live.wait_for(lambda: self.shown(job_id, name) == value, 60.0, what=f"{name} of job {job_id} is {value}")

    def wait_for_node(self, name: str, *states: str) -> None:
        """Wait until Slurm shows a node in one of these states: 22.05 takes some seconds to show a reservation."""
        sinfo = ("sinfo", "-N", "-h", "-n", name, "-o", "%t")
        self.live.wait_for(
            lambda: self.live.run(*sinfo).split()[0] in states, 30.0, what=f"{name} is {' or '.join(states)}"
        )

    def run(self, *options: str) -> int:
        """Submit a job, and wait until it runs."""
        job_id = self.submit(*options)
        self.wait_until(job_id, "RUNNING")
        return job_id

    def named(self) -> int:
        """Submit a gang for which the advisor names the nodes of the second leaf; it waits for its release."""
        gang = self.submit("--hold", *GANG)
        self.step()
        assert self.shown(gang, "ReqNodeList") == "n03,n04"
        return gang

    def endings(self, job_id: int) -> list[Ending | None]:
        """Return how the leases of a job ended, None for those that are open."""
        with opened(self.journal) as journal:
            closed = [lease.ending for lease in journal.closed([job_id])]
            return [*closed, *(None for lease in journal.leases() if lease.job_id == job_id)]


@pytest.fixture(scope="module")
def four_nodes(release: str) -> Iterator[LiveCluster]:
    with started(LiveCluster(release, node_count=NODES, leaf_nodes=2, gpu_types=["a100"] * NODES, shards={})) as live:
        yield live


@pytest.fixture
def line(four_nodes: LiveCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """The cluster with a busy first node, and an empty journal."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, four_nodes.env[name])
    line = Line(live=four_nodes, journal=tmp_path / "journal.sqlite")
    # A reservation that was deleted is shown for some more seconds.
    line.wait_for_node("n04", "idle", "plnd")
    line.run("--time=01:00:00", "-N1", "--gpus-per-node=8", "--nodelist=n01")
    yield line
    four_nodes.run("scancel", *map(str, line.submitted), check=False)
    four_nodes.wait_for(lambda: not four_nodes.run("squeue", "-h").strip(), 30.0, what="the queue is empty")
    four_nodes.ask("scontrol", "delete", "ReservationName=course")
    # Only a drained node: Slurm takes any other for one that does not respond, and its jobs do not end within the time
    # of this test. Not RESUME, after which the node does not respond either until it has answered.
    if "DRAIN" in four_nodes.run("scontrol", "-o", "show", "node", "n04").partition(" State=")[2].split()[0]:
        four_nodes.run("scontrol", "update", "NodeName=n04", "State=UNDRAIN")


def test_gang_starts_on_the_chosen_nodes_and_a_requeue_gives_them_back(line: Line) -> None:
    gang = line.named()

    line.release(gang)
    line.wait_until(gang, "RUNNING")
    line.step()

    assert line.shown(gang, "NodeList") == "n[03-04]"
    assert line.endings(gang) == [Ending.NO_LONGER_PENDING]

    line.live.run("scontrol", "requeue", str(gang))
    line.wait_until(gang, "PENDING")
    kept = line.shown(gang, "ReqNodeList")
    line.step(ahead_s=180.0)

    assert (kept, line.shown(gang, "ReqNodeList")) == ("n03,n04", "(null)")
    assert None not in line.endings(gang)


def test_gang_starts_on_the_nodes_that_the_shipped_policy_names(line: Line, tmp_path: Path) -> None:
    line.policy = open_policy(Library(tmp_path), "marl")
    gang = line.submit("--hold", *GANG)

    taken = line.step()

    assert taken is not None
    assert [decision.lever for decision in taken.record.decisions] == [Lever.NODE_LIST] * 2
    assert not taken.record.policy_fault
    named = line.shown(gang, "ReqNodeList")
    line.release(gang)
    line.wait_until(gang, "RUNNING")
    assert named in {"n02,n03", "n02,n04", "n03,n04"}
    assert line.live.run("scontrol", "show", "hostnames", line.shown(gang, "NodeList")).split() == named.split(",")


@pytest.mark.parametrize("how", ["taken", "drained", "reserved"])
def test_nodes_that_are_no_longer_free_go_back_within_one_round(line: Line, how: str) -> None:
    gang = line.named()
    match how:
        case "taken":
            line.run("--time=01:00:00", "-N1", "--gpus-per-node=1", "--nodelist=n04")
        case "drained":
            line.live.drain("n04", "fans")
            line.wait_for_node("n04", "drain")
        case _:
            line.live.run(
                "scontrol", "create", "reservation", "ReservationName=course", "StartTime=now", "Duration=60",
                "Nodes=n04", "Users=root",
            )  # fmt: skip
            line.wait_for_node("n04", "resv")

    line.step()

    assert line.shown(gang, "ReqNodeList") == "(null)"
    assert line.endings(gang) == [Ending.TAKEN_BACK]
    line.release(gang)
    line.wait_until(gang, "RUNNING")
    assert line.shown(gang, "NodeList") == "n[02-03]"


def test_advisor_that_dies_once_it_has_named_nodes_leaves_nothing(line: Line) -> None:
    gang = line.submit("--hold", *GANG)

    assert line.step(dies=True) is None
    sent = line.shown(gang, "ReqNodeList")
    line.run("--time=01:00:00", "-N1", "--gpus-per-node=1", "--nodelist=n04")
    line.step()

    assert (sent, line.shown(gang, "ReqNodeList")) == ("n03,n04", "(null)")
    assert line.endings(gang) == [Ending.TAKEN_BACK]


def test_gang_that_names_a_busy_node_waits_for_it_while_others_pass(line: Line) -> None:
    gang, actuator = line.submit("--hold", *GANG), ScontrolActuator(SlurmCommands(timeout_s=30.0))
    actuator.apply(SetNodeList(job_id=gang, before=(), after=("n01", "n02")))
    line.release(gang)
    line.wait_until(gang, "Resources", "Reason")

    line.run(*GANG)

    assert line.shown(gang, "JobState") == "PENDING"
    actuator.apply(SetNodeList(job_id=gang, before=("n01", "n02"), after=()))
    assert line.shown(gang, "ReqNodeList") == "(null)"


def test_more_nodes_than_a_gang_can_have_block_it_on_22_05(line: Line, release: str) -> None:
    gang = line.submit("--hold", *GANG)
    names = ("n02", "n03", "n04")
    ScontrolActuator(SlurmCommands(timeout_s=30.0)).apply(SetNodeList(job_id=gang, before=(), after=names))

    line.release(gang)

    if release == "22.05":
        line.wait_until(gang, "BadConstraints", "Reason")
        assert line.shown(gang, "Priority") == "0"
    else:
        line.wait_until(gang, "RUNNING")
