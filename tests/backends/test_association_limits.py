"""A job is given no size that its associations and QOS would not let it start with."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.assoc_text import decode_associations, partition_qos
from advisor.backends.association_limits import AssociationLimits, demand_of, exceeded
from advisor.domain.actions import SetGpus, SetNice
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.errors import AdvisorError, DecodeError, SlurmError, SlurmUnavailableError
from tests.backends.fake_slurm import FakeSlurm
from tests.builders import make_gang, make_job, make_recommendation, size_of

# Of 22.05: top (12 GPUs) > vision (8 GPUs, 2 in use) > sub (5 GPUs each job) > mail; QOS normal lets each user have 7
# GPUs and each account 9, QOS part each job 5 and all 16.
RECORDED = (Path(__file__).parent.parent / "recorded" / "22.05" / "assoc_mgr.txt").read_text()
CONFIG = "ClusterName = live\nSLURM_VERSION = 22.05.8\nAccountingStorageEnforce = associations,limits,qos\n"
PARTITIONS = "PartitionName=gpu AllowQos=ALL QoS=N/A Nodes=n[01-02]\nPartitionName=small QoS=part State=UP\n"
ASKED_CONFIG, ASKED_PARTITIONS = "scontrol show config", "scontrol -o -a show partition"
ASKED_LIMITS = "scontrol -o show assoc_mgr users=mail flags=assoc,qos"
MAIL = make_job(1, gang=make_gang(4, scope=GpuScope.NODE), user="mail", account="sub", qos="normal", time_limit_s=600.0)


@dataclass
class Site:
    """A cluster that answers as recorded, with a clock of its own."""

    shown: str | SlurmError = RECORDED
    config: str | SlurmError = CONFIG
    partitions: str = PARTITIONS
    privileged: bool = False
    now: float = 0.0
    slurm: FakeSlurm = field(init=False)
    limits: AssociationLimits = field(init=False)

    def __post_init__(self) -> None:
        texts = {ASKED_CONFIG: self.config, ASKED_PARTITIONS: self.partitions, ASKED_LIMITS: self.shown}
        self.slurm = FakeSlurm(texts=dict(texts))
        self.limits = AssociationLimits(self.slurm, privileged=lambda: self.privileged, monotonic=lambda: self.now)

    def against(self, gpus: int, job: Job = MAIL, before: int = 4) -> str | None:
        """Say what stands against a number of GPUs on each node."""
        return self.limits.against(resize(gpus, before=before, job_id=job.job_id), job)


def resize(gpus: int, *, before: int = 4, job_id: int = 1, limit_s: float = 600.0) -> Recommendation:
    action = SetGpus(
        job_id=job_id,
        scope=GpuScope.NODE,
        before=size_of(GpuCount(count=before), limit_s=600.0),
        after=size_of(GpuCount(count=gpus), limit_s=limit_s),
    )
    return make_recommendation(action)


def against(text: str, gpus: int, job: Job = MAIL, qos: Sequence[str] = ("normal",), others: int = 0) -> str:
    """Say what stands against a job of so many GPUs on its one node, "" for nothing."""
    gang = job.gang.with_counts(GpuScope.NODE, (GpuCount(count=gpus),))
    demand = demand_of(gang, job.time_limit_s, others)
    assert demand is not None
    return exceeded(job, demand, decode_associations(text), qos) or ""


def test_recorded_associations_are_read_with_limits_and_use() -> None:
    state = decode_associations(RECORDED)

    own = state.associations[-1]
    assert [each.account for each in state.associations] == ["root", "top", "vision", "sub", "sub"]
    assert (own.user, own.uid, own.parent_id) == ("mail", "8", None)
    assert own.amounts["MaxTRESPJ"]["gres/gpu"].most == 5
    assert [each.name for each in state.qos] == ["normal", "part"]
    assert (state.qos[0].by_uid["8"]["MaxTRESPU"]["gres/gpu"].most, state.qos[0].by_uid["5"].keys()) == (
        7,
        state.qos[0].by_uid["8"].keys(),
    )


def test_size_within_every_limit_passes() -> None:
    site = Site()

    assert site.against(5) is None
    assert [" ".join(command) for command in site.slurm.asked] == [ASKED_CONFIG, ASKED_LIMITS, ASKED_PARTITIONS]


LIFTED = RECORDED.replace("MaxTRESPJ=gres/gpu=5", "MaxTRESPJ=")


@pytest.mark.parametrize(
    ("text", "gpus", "qos", "said"),
    [
        (RECORDED, 6, ["normal"], "6 would be beyond MaxTRESPJ=gres/gpu=5, of user 'mail' in account 'sub'"),
        (LIFTED, 7, ["normal"], "7 would be beyond GrpTRES=gres/gpu=8, of which 2 are in use, of account 'vision'"),
        (LIFTED.replace("gres/gpu=8(2)", "gres/gpu=N(2)"), 8, ["normal"], "of 'mail' in QOS normal"),
        (LIFTED.replace("gres/gpu=8(2)", "gres/gpu=N(2)").replace("=7(0)", "=N(0)"), 10, ["normal"], "of 'sub' in QOS"),
        (LIFTED.replace("gres/gpu=8(2)", "gres/gpu=N(2)").replace("=7(0)", "=N(0)"), 11, [], "of account 'top'"),
        (LIFTED.replace("QOS=part(2)", "QOS=part(2) MaxTRESPN=gres/gpu=3", 1), 4, ["normal", "part"], "twice"),
        (RECORDED, 4, ["normal", "gone"], "slurmctld shows no QOS 'gone'"),
    ],
    ids=["each job", "account above", "user in QOS", "account in QOS", "root of the tree", "key twice", "unknown QOS"],
)
def test_limit_that_would_be_exceeded_is_named(text: str, gpus: int, qos: list[str], said: str) -> None:
    try:
        found = against(text, gpus, qos=qos)
    except DecodeError as err:
        found = str(err)

    assert said in found


OWN = RECORDED.split("\n")[6]
QOS_LINE = next(line for line in RECORDED.split("\n") if line.startswith("QOS=normal"))


def own_with(limit: str) -> str:
    """Return the recording with other limits of the user."""
    return RECORDED.replace(OWN, OWN.replace("MaxTRESPJ=gres/gpu=5", limit))


OWN_WALL = RECORDED.replace(OWN, OWN.replace("MaxWallPJ=", "MaxWallPJ=20"))
ROOT_WALL = RECORDED.replace("MaxWallPJ=", "MaxWallPJ=15", 1)
ALL_WALLS = ROOT_WALL.replace(OWN, OWN.replace("MaxWallPJ=", "MaxWallPJ=20"))
QOS_WALL = RECORDED.replace(QOS_LINE, QOS_LINE.replace("MaxWallPJ=", "MaxWallPJ=20"))


@pytest.mark.parametrize(
    ("limits", "gpus", "said"),
    [
        ("MaxTRESPJ=gres/gpu:a100=3", 4, "beyond MaxTRESPJ=gres/gpu:a100=3"),
        ("MaxTRESPJ=gres/gpu:a100=3", 3, ""),
        ("MaxTRESPJ=cpu=1,gres/gpu=5", 5, ""),
        ("MaxTRESPJ=billing=100", 4, "the job might not fit MaxTRESPJ=billing=100"),
        ("MaxTRESPJ=mem=100", 4, "the job might not fit MaxTRESPJ=mem=100"),
        ("MaxTRESPJ=node=1,fs/disk=4,license/x=1", 5, ""),
        ("MaxTRESPJ=gres/gpumem=1", 5, ""),
    ],
    ids=["type", "type that fits", "CPUs that stay", "billing", "memory", "others", "GPU memory"],
)
def test_limit_on_something_else_counts_as_far_as_gpus_have_a_part_in_it(limits: str, gpus: int, said: str) -> None:
    found = against(own_with(limits), gpus)

    assert said in found
    assert bool(found) is bool(said)


def test_gpus_of_another_type_have_no_part_in_the_limit_of_one() -> None:
    gang = MAIL.gang.with_counts(GpuScope.NODE, (GpuCount(gpu_type="v100", count=4),))
    demand = demand_of(gang, MAIL.time_limit_s)
    assert demand is not None

    none_left, four = (
        exceeded(MAIL, demand, decode_associations(own_with(f"MaxTRESPJ=gres/gpu:{limit}")), ["normal"])
        for limit in ("a100=0", "v100=3")
    )

    assert none_left is None
    assert four is not None and "4 would be beyond MaxTRESPJ=gres/gpu:v100=3" in four


@pytest.mark.parametrize(
    ("limit_s", "gpus", "fits"), [(600.0, 4, True), (600.0, 5, False), (None, 1, False)], ids=["fits", "longer", "open"]
)
def test_minutes_count_as_gpus_for_the_whole_time_limit(limit_s: float | None, gpus: int, fits: bool) -> None:
    text = own_with("MaxTRESPJ=gres/gpu=5").replace("MaxTRESMinsPJ=", "MaxTRESMinsPJ=gres/gpu=40")

    found = against(text, gpus, replace(MAIL, time_limit_s=limit_s), qos=())

    assert (found == "") is fits


def test_gpus_of_each_node_are_held_against_the_limit_of_each_node() -> None:
    text = own_with("MaxTRESPJ=").replace("MaxTRESPJ=gres/gpu=5", "MaxTRESPJ=")
    text = text.replace("MaxTRESPN=", "MaxTRESPN=gres/gpu=2", 5)
    two_nodes = replace(MAIL, gang=make_gang(1, scope=GpuScope.NODE, nodes_min=2))

    assert against(text, 2, two_nodes) == ""
    assert "beyond MaxTRESPN=gres/gpu=2" in against(text, 3, two_nodes)


def test_size_below_the_least_that_a_qos_takes_is_refused() -> None:
    text = LIFTED.replace("MinTRESPJ=", "MinTRESPJ=gres/gpu=4,cpu=2")

    assert against(text, 4) == ""
    assert "3 would be below MinTRESPJ=gres/gpu=4, of QOS normal" in against(text, 3)
    assert "might be below MinTRESPJ=mem=100" in against(LIFTED.replace("MinTRESPJ=", "MinTRESPJ=mem=100"), 4)


def test_cpus_that_follow_the_gpus_cannot_be_told() -> None:
    bound = replace(MAIL, gang=make_gang(4, scope=GpuScope.NODE, cpus_per_gpu=4))

    assert "the job might not fit GrpTRES=cpu=20" in against(RECORDED, 4, bound)


@pytest.mark.parametrize(
    "change",
    [
        {"user": "nobody"},
        {"account": "vision"},
        {"qos": ""},
        {"partitions": ("hidden",)},
    ],
    ids=["no association", "another account", "no QOS", "partition not shown"],
)
def test_what_cannot_be_told_is_not_changed(change: dict[str, object]) -> None:
    site = Site()
    site.slurm.texts["scontrol -o show assoc_mgr users=nobody flags=assoc,qos"] = RECORDED

    said = site.against(5, replace(MAIL, **change))  # type: ignore[arg-type]  # any field

    assert (said or "").startswith("limits: ")


def test_account_whose_parent_is_not_shown_or_its_own_is_not_told() -> None:
    orphan = RECORDED.replace("ParentAccount=top(3)", "ParentAccount=gone(99)")
    circle = RECORDED.replace("ParentAccount=top(3)", "ParentAccount=sub(5)")

    assert all("shows no association" in against(text, 4) for text in (orphan, circle))


def test_user_who_has_no_place_in_a_qos_yet_is_not_told() -> None:
    hidden = RECORDED.replace(" 8={", " 9={")

    assert against(hidden, 4) == "slurmctld does not show what QOS normal leaves to 'mail'"


def test_number_of_gpus_that_cannot_be_told_is_not_changed() -> None:
    job = replace(MAIL, gang=make_gang(1, scope=GpuScope.SOCKET))
    grown = SetGpus(
        job_id=1, scope=GpuScope.SOCKET, before=size_of(GpuCount(count=1)), after=size_of(GpuCount(count=2))
    )

    said = Site().limits.against(make_recommendation(grown), job)

    assert said == "limits: the number of GPUs that the job would use is unknown"


def test_qos_of_the_partition_binds_as_well() -> None:
    text = own_with("MaxTRESPJ=gres/gpu=9")

    elsewhere = Site(shown=text).against(6)
    there = Site(shown=text).against(6, replace(MAIL, partitions=("small",)))

    assert elsewhere is None
    assert there == "limits: 6 would be beyond MaxTRESPJ=gres/gpu=5, of QOS part"


def test_changes_let_pass_on_one_reading_count_as_use_until_the_next() -> None:
    site = Site()

    first, second = site.against(5), site.against(5, replace(MAIL, job_id=2))
    site.now = 30.0
    later = site.against(5, replace(MAIL, job_id=2))

    assert first is None
    assert second is not None
    assert "of which 7 are in use" in second
    assert later is None


@pytest.mark.parametrize(
    ("privileged", "gpus", "limit_s", "asks"),
    [(False, 5, 600.0, True), (False, 3, 600.0, False), (False, 3, 780.0, True), (True, 3, 600.0, True)],
    ids=["growth", "smaller", "smaller with a longer limit", "smaller as Operator"],
)
def test_smaller_size_is_checked_only_where_a_limit_can_be_exceeded_or_lifted(
    privileged: bool, gpus: int, limit_s: float, asks: bool
) -> None:
    site = Site(privileged=privileged)

    said = site.limits.against(resize(gpus, limit_s=limit_s), MAIL)

    assert said is None
    assert bool(site.slurm.asked) is asks


def test_minutes_of_a_raised_limit_count() -> None:
    text = own_with("MaxTRESPJ=gres/gpu=5").replace("MaxTRESMinsPJ=", "MaxTRESMinsPJ=gres/gpu=40")

    within, beyond = (Site(shown=text).limits.against(resize(2, limit_s=minutes * 60.0), MAIL) for minutes in (20, 21))

    assert within is None
    assert beyond == "limits: 42 would be beyond MaxTRESMinsPJ=gres/gpu=40, of user 'mail' in account 'sub'"


@pytest.mark.parametrize(
    ("text", "minutes", "said"),
    [
        (OWN_WALL, 20, None),
        (OWN_WALL, 21, "limits: 21 would be beyond MaxWallPJ=20, of user 'mail' in account 'sub'"),
        (ALL_WALLS, 21, "limits: 21 would be beyond MaxWallPJ=20, of user 'mail' in account 'sub'"),
        (ROOT_WALL, 16, "limits: 16 would be beyond MaxWallPJ=15, of user 'mail' in account 'sub'"),
        (QOS_WALL, 20, None),
        (QOS_WALL, 21, "limits: 21 would be beyond MaxWallPJ=20, of QOS normal"),
    ],
    ids=["at it", "the user's", "nearest", "root's", "at the QOS's", "the QOS's"],
)
def test_limit_is_not_raised_beyond_the_longest_of_an_association_or_a_qos(
    text: str, minutes: int, said: str | None
) -> None:
    assert Site(shown=text).limits.against(resize(2, limit_s=minutes * 60.0), MAIL) == said


def test_job_without_a_time_limit_is_held_against_no_longest_one() -> None:
    assert against(OWN_WALL, 2, replace(MAIL, time_limit_s=None)) == ""


def test_other_changes_and_sites_without_limits_are_let_pass() -> None:
    site = Site(config=CONFIG.replace("associations,limits,qos", "associations"))
    nice = make_recommendation(SetNice(job_id=1, before=0, after=5))

    assert site.limits.against(nice, MAIL) is None
    assert site.slurm.asked == []
    assert site.against(500) is None
    assert len(site.slurm.asked) == 1


@pytest.mark.parametrize(
    "site",
    [
        Site(shown=SlurmUnavailableError("slurmctld is gone")),
        Site(config=SlurmUnavailableError("slurmctld is gone")),
        Site(shown=""),
        Site(shown="Current Association Manager state\n\nNo associations currently cached in Slurm.\n"),
        Site(shown=RECORDED.replace("gres/gpu=8(2)", "gres/gpu=8(2", 1)),
        Site(shown=RECORDED.replace("UserName=mail(8)", "UserName=mail")),
        Site(shown=RECORDED.replace(" ID=5 ", " ")),
        Site(shown=RECORDED.replace("MaxTRESPJ=gres/gpu=5", "MaxTRESPJ=nonsense")),
    ],
    ids=["no limits", "no configuration", "empty", "no associations", "torn", "no uid", "no id", "no list"],
)
def test_limits_that_cannot_be_read_hold_the_change_back(site: Site) -> None:
    said = site.against(5)

    assert (said or "").startswith("limits: ")
    assert "\n" not in (said or "")


def test_hostile_user_name_is_never_an_argument() -> None:
    site = Site()
    site.slurm.texts["scontrol -o show assoc_mgr flags=assoc,qos"] = RECORDED

    said = site.against(5, replace(MAIL, user="mail,root flags=users"))

    assert said is not None
    assert not any("mail" in word for command in site.slurm.asked for word in command)


def test_partitions_without_a_qos_have_none() -> None:
    assert partition_qos(PARTITIONS) == {"gpu": "", "small": "part"}


@given(st.text(max_size=60), st.integers(0, len(RECORDED)))
def test_damaged_answer_is_refused_or_read_and_nothing_else(noise: str, at: int) -> None:
    try:
        found = against(RECORDED[:at] + noise + RECORDED[at:], 6)
    except AdvisorError:
        return

    assert isinstance(found, str)


@given(gpus=st.integers(1, 20), others=st.integers(0, 20))
def test_what_passes_stays_within_every_limit(gpus: int, others: int) -> None:
    passes = against(RECORDED, gpus, others=others) == ""

    assert passes is (gpus <= 5 and gpus + others + 2 <= 8 and gpus + others <= 7)
