import os
from pathlib import Path

import pytest

from advisor.backends import slurm_conf
from advisor.backends.site_reader import Identity, SiteReader, own_identity
from advisor.clock import ManualClock
from advisor.domain.load import RateLimit
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.errors import SlurmError, SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import CONFIG_TEXT, FakeSlurm

ADA = Identity(uid=1000, name="ada")
LEAF = Topology(kind=TopologyKind.TREE, switches=(Switch(name="leaf1", level=0, nodes=("n01", "n02")),))
NODES_TEXT = """NodeName=n01 Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=60 CPUTot=64 CPULoad=4.52
   Gres=gpu:a100:8
   RealMemory=64000 AllocMem=0 FreeMem=20293 Sockets=2 Boards=1
   CoreSpecCount=2 CPUSpecList=30-31,62-63 MemSpecLimit=1000
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=said CPUEfctv=999
NodeName=n02 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=N/A
   RealMemory=64000 AllocMem=0 FreeMem=N/A Sockets=2 Boards=1
"""
LEVEL_QUESTION = "sacctmgr -n -P show user where name=ada format=adminlevel"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=filed\nTopologyPlugin=topology/tree\nSlurmUser=slurm\n")
    (tmp_path / "topology.conf").write_text("SwitchName=leaf1 Nodes=n[01-02]\n")
    monkeypatch.setenv("SLURM_CONF", str(path))
    return path


@pytest.fixture
def no_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(slurm_conf, "_DEFAULT_PATHS", (str(tmp_path / "a"), str(tmp_path / "b")))


def reader(slurm: FakeSlurm, clock: ManualClock | None = None, identity: Identity = ADA) -> SiteReader:
    return SiteReader(slurm, clock or ManualClock(), identity=identity)


@pytest.mark.usefixtures("conf")
def test_files_are_read_without_asking_slurmctld() -> None:
    slurm = FakeSlurm()

    site = reader(slurm).read()

    assert (site.config.cluster, site.config.slurm_version, site.topology) == ("filed", "25.11.7", LEAF)
    assert slurm.asked == [("sinfo", "--version")]


@pytest.mark.usefixtures("no_conf")
def test_slurmctld_is_asked_where_there_are_no_files() -> None:
    slurm = FakeSlurm()

    site = reader(slurm).read()

    assert (site.config.cluster, site.config.slurm_version, site.topology) == ("fake", "25.11.7", LEAF)
    assert slurm.asked == [("scontrol", "show", part) for part in ("config", "topology", "node")]


@pytest.mark.parametrize("spelled", ["CoreSpecCount=2", "cpuspeclist=0-3", "MemSpecLimit=1024"])
def test_what_nodes_keep_from_jobs_is_asked_where_the_file_names_it(conf: Path, spelled: str) -> None:
    conf.write_text(f"{conf.read_text()}NodeName=DEFAULT {spelled}\n")
    slurm = FakeSlurm()
    slurm.texts["scontrol show node"] = NODES_TEXT

    assert reader(slurm).read().for_jobs == {"n01": (60, 63000)}
    assert slurm.asked == [("sinfo", "--version"), ("scontrol", "show", "node")]


def test_slurm_conf_that_is_not_there_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "gone.conf"))
    slurm = FakeSlurm()

    with pytest.raises(SlurmRefusedError, match=r"SLURM_CONF names .*gone\.conf, which is not there"):
        reader(slurm).read()
    assert slurm.asked == []


@pytest.mark.usefixtures("conf")
def test_files_here_say_nothing_about_another_cluster() -> None:
    slurm = FakeSlurm(cluster="green")

    assert reader(slurm).read().config.cluster == "fake"


def test_topology_that_cannot_be_read_is_asked_for(conf: Path) -> None:
    (conf.parent / "topology.conf").unlink()
    slurm = FakeSlurm()

    assert reader(slurm).read().topology == LEAF
    assert slurm.asked[-1] == ("scontrol", "show", "topology")


@pytest.mark.usefixtures("conf")
@pytest.mark.parametrize(
    ("passed_s", "times_read"), [(599.0, 1), (600.0, 2), (-5.0, 2)], ids=["fresh", "old", "clock set back"]
)
def test_site_is_kept_for_ten_minutes(passed_s: float, times_read: int) -> None:
    slurm, clock = FakeSlurm(), ManualClock(1000.0)
    site = reader(slurm, clock)
    site.read()

    clock.advance(passed_s)
    site.read()

    assert len(slurm.asked) == times_read


@pytest.mark.parametrize(
    "identity",
    [Identity(uid=0, name="root"), Identity(uid=64030, name="slurm"), Identity(uid=64030, name="other")],
    ids=["root", "SlurmUser", "SlurmUser by uid"],
)
@pytest.mark.usefixtures("no_conf")
def test_slurm_itself_sees_the_whole_queue(identity: Identity) -> None:
    slurm = FakeSlurm()
    slurm.texts["scontrol show config"] = CONFIG_TEXT.replace("SchedulerType", "PrivateData = jobs\nSchedulerType")

    assert reader(slurm, identity=identity).read().unread == ()


@pytest.mark.parametrize(
    ("hidden", "seen"),
    [
        (
            "jobs,usage,nodes",
            r"^Slurm shows ada only their own jobs \(PrivateData=jobs,nodes\), so there is no ",
        ),
        ("nodes", r"^Slurm hides nodes from ada \(PrivateData=nodes\), so there is no advice: run sadvise as "),
    ],
)
def test_hidden_queue_is_refused_in_one_plain_line(conf: Path, hidden: str, seen: str) -> None:
    conf.write_text(conf.read_text() + f"PrivateData={hidden}\n")

    with pytest.raises(SlurmRefusedError, match=seen):
        reader(FakeSlurm()).read()


def test_private_usage_hides_no_queue(conf: Path) -> None:
    conf.write_text(conf.read_text() + "PrivateData=usage,accounts\n")

    assert reader(FakeSlurm()).read().config.private_data == ("accounts", "usage")


@pytest.mark.parametrize(
    ("answer", "unread"),
    [
        ("Operator\n", 0),
        ("Administrator\n", 0),
        (SlurmUnavailableError("slurmdbd is down"), 1),
    ],
    ids=["operator", "administrator", "nobody knows"],
)
def test_accounting_database_knows_operators(conf: Path, answer: str | SlurmError, unread: int) -> None:
    conf.write_text(conf.read_text() + "PrivateData=jobs\nAccountingStorageType=accounting_storage/slurmdbd\n")
    slurm = FakeSlurm()
    slurm.texts[LEVEL_QUESTION] = answer

    assert len(reader(slurm).read().unread) == unread


@pytest.mark.parametrize("answer", ["None\n", ""])
def test_user_without_a_level_sees_no_queue(conf: Path, answer: str) -> None:
    conf.write_text(conf.read_text() + "PrivateData=jobs\nAccountingStorageType=accounting_storage/slurmdbd\n")
    slurm = FakeSlurm()
    slurm.texts[LEVEL_QUESTION] = answer

    with pytest.raises(SlurmRefusedError, match="sacctmgr modify user ada set adminlevel=Operator"):
        reader(slurm).read()


def test_own_identity_has_a_name_even_without_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 3_999_999)

    assert own_identity() == Identity(uid=3_999_999, name="3999999")


def test_own_identity_is_this_user() -> None:
    assert own_identity().uid == os.geteuid()


LIMITED = "ClusterName=filed\nSlurmUser=slurm\nSlurmctldParameters=enable_configless,{}\n"


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("rl_enable", RateLimit(size=30, per_s=2.0)),
        ("rl_enable,rl_bucket_size=10,rl_refill_rate=5,rl_refill_period=2", RateLimit(size=10, per_s=2.5)),
        ("rl_enable,rl_bucket_size=x,rl_refill_rate=0", RateLimit(size=30, per_s=2.0)),
        ("rl_bucket_size=10", None),
    ],
)
def test_limit_of_slurmctld_on_the_requests_of_a_user_is_read(conf: Path, words: str, limit: RateLimit | None) -> None:
    conf.write_text(LIMITED.format(words))

    assert reader(FakeSlurm()).read().limit == limit


@pytest.mark.parametrize("identity", [Identity(uid=0, name="root"), Identity(uid=64030, name="slurm")])
def test_slurm_limits_neither_root_nor_itself(conf: Path, identity: Identity) -> None:
    conf.write_text(LIMITED.format("rl_enable"))

    assert reader(FakeSlurm(), identity=identity).read().limit is None
