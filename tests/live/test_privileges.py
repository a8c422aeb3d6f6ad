"""With slurmdbd: what is read of privileges and limits is what Slurm then lets pass, for each level."""

from collections.abc import Iterator

import pytest

from advisor.backends.actuator import ScontrolActuator
from advisor.backends.association_limits import AssociationLimits
from advisor.backends.privileges import Level, Privilege, read_privilege
from advisor.backends.site_reader import Identity, SiteReader
from advisor.backends.text_source import TextSource
from advisor.clock import SystemClock
from advisor.domain.actions import SetGpus, SetNice
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import Job
from advisor.domain.plan import Outcome, Recommendation
from tests.builders import make_recommendation, size_of
from tests.live.conftest import started
from tests.live.test_budget import Running
from tools.stage import LiveCluster

# slurmdbd is installed beside the host's own Slurm only.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.needs("slurmdbd")]

ORDINARY, OPERATOR, COORDINATOR, OUTSIDER = "games", "lp", "news", "man"
USERS = {ORDINARY: 5, OPERATOR: 7, COORDINATOR: 9, OUTSIDER: 6}


@pytest.fixture(scope="module")
def site(release: str) -> Iterator[LiveCluster]:
    """A cluster of 8 GPUs where account `vision` may have 6; its coordinator looks after `sub`, where `games` is."""
    lines = ("AccountingStorageEnforce=associations,limits,qos",)
    with started(LiveCluster(release, node_count=1, accounting=True, extra_lines=lines)) as live:
        for command in (
            "add account vision GrpTRES=gres/gpu=6",
            "add account sub parent=vision",
            "add account staff",
            f"add user {ORDINARY} account=sub",
            f"add user {COORDINATOR},{OUTSIDER} account=staff",
            f"add user {OPERATOR} account=staff AdminLevel=Operator",
            f"add coordinator account=vision names={COORDINATOR}",
        ):
            live.run("sacctmgr", "-i", *command.split())
        yield live


@pytest.fixture
def job(site: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A held job of two GPUs in `sub`."""
    job_id = site.submit("--hold", "--gres=gpu:2", "-n1", "--time=10", user=ORDINARY)
    monkeypatch.setenv("SLURM_CONF", site.env["SLURM_CONF"])
    yield read(site, job_id)
    site.run("scancel", str(job_id))


def read(site: LiveCluster, job_id: int) -> Job:
    commands = Running(live=site)
    return TextSource(commands, SystemClock(), SiteReader(commands, SystemClock())).snapshot().jobs_by_id[job_id]


def privilege_of(site: LiveCluster, user: str) -> Privilege:
    return read_privilege(Running(live=site, user=user), Identity(uid=USERS[user], name=user))


def resize(job: Job, gpus: int) -> Recommendation:
    before, after = size_of(*job.gang.per_node), size_of(GpuCount(count=gpus))
    return make_recommendation(SetGpus(job_id=job.job_id, scope=GpuScope.NODE, before=before, after=after))


@pytest.mark.parametrize(
    ("user", "level", "accounts"),
    [
        (ORDINARY, Level.NONE, set()),
        (OUTSIDER, Level.NONE, set()),
        (COORDINATOR, Level.COORDINATOR, {"vision", "sub"}),
        (OPERATOR, Level.OPERATOR, set()),
    ],
)
@pytest.mark.parametrize("nice", [7, -7])
def test_slurm_lets_pass_what_is_read_of_the_privilege(
    site: LiveCluster, job: Job, user: str, level: Level, accounts: set[str], nice: int
) -> None:
    change = make_recommendation(SetNice(job_id=job.job_id, before=0, after=nice))

    privilege = privilege_of(site, user)
    said = privilege.against(change, job)
    receipt = ScontrolActuator(Running(live=site, user=user)).apply(change.action)

    assert (privilege.level, privilege.accounts) == (level, frozenset(accounts))
    assert (said is None) is (receipt.outcome is Outcome.APPLIED)


def test_resize_within_the_limits_is_applied_and_one_beyond_is_held_back(site: LiveCluster, job: Job) -> None:
    running = site.submit("--gres=gpu:2", "-n1", "--time=10", user=ORDINARY)
    site.wait_for(lambda: site.run("squeue", "-h", "-j", str(running), "-o", "%T").strip() == "RUNNING")
    limits = AssociationLimits(Running(live=site, user=OPERATOR), privileged=lambda: True)
    actuator = ScontrolActuator(Running(live=site, user=OPERATOR))

    beyond = limits.against(resize(job, 5), job)
    within = limits.against(resize(job, 4), job)
    receipt = actuator.apply(resize(job, 4).action)

    assert beyond is not None
    assert beyond.startswith("limits: 5 would be beyond GrpTRES=gres/gpu=6, of which 2 are in use, of account 'vision'")
    assert within is None
    assert receipt.outcome is Outcome.APPLIED
    assert read(site, job.job_id).gang.gpu_count == 4
    site.run("scancel", str(running))


@pytest.mark.parametrize("user", [ORDINARY, OPERATOR])
def test_resize_beyond_a_limit_would_be_taken_by_slurm_and_never_start(site: LiveCluster, job: Job, user: str) -> None:
    change = resize(job, 8)

    said = AssociationLimits(Running(live=site, user=user), privileged=lambda: False).against(change, job)
    receipt = ScontrolActuator(Running(live=site, user=user)).apply(change.action)
    site.run("scontrol", "release", str(job.job_id))

    def stuck() -> bool:
        """Slurm says that the association does not allow it"""
        return site.run("squeue", "-h", "-j", str(job.job_id), "-o", "%T %r").split()[-1].startswith("Assoc")

    assert said is not None
    assert receipt.outcome is Outcome.APPLIED
    site.wait_for(stuck, 30.0)


@pytest.mark.parametrize(
    ("user", "shown"), [(ORDINARY, "AssocMaxWall"), (COORDINATOR, "AssocMaxWall"), (OPERATOR, "RUNNING")]
)
def test_limit_beyond_the_longest_of_an_account_is_held_back_which_slurm_would_take(
    site: LiveCluster, job: Job, user: str, shown: str
) -> None:
    site.run("sacctmgr", "-i", "modify", "account", "sub", "set", "MaxWall=15")
    before, after = size_of(*job.gang.per_node, limit_s=600.0), size_of(GpuCount(count=1), limit_s=960.0)
    action = SetGpus(job_id=job.job_id, scope=GpuScope.NODE, before=before, after=after)
    smaller = make_recommendation(action)

    said = AssociationLimits(Running(live=site, user=user), privileged=lambda: user == OPERATOR).against(smaller, job)
    receipt = ScontrolActuator(Running(live=site, user=user)).apply(action)
    site.run("scontrol", "release", str(job.job_id))

    def is_judged() -> bool:
        """The job never starts, or Slurm has lifted the limit for it"""
        return shown in site.run("squeue", "-h", "-j", str(job.job_id), "-o", "%T %r")

    assert said is not None
    assert said.startswith("limits: 16 would be beyond MaxWallPJ=15, of user")
    assert receipt.outcome is Outcome.APPLIED
    site.wait_for(is_judged, 30.0)
    site.run("sacctmgr", "-i", "modify", "account", "sub", "set", "MaxWall=-1")
