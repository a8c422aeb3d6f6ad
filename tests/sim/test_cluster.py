"""Cluster files and their short form."""

from pathlib import Path

import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, Costs, Failures, Network, NodeGroup, SlurmParameters, parse_cluster
from advisor.sim.slurm.queue_tables import AssociationTable, PartitionTable, QosTable

FULL = """
[[nodes]]
count = 2
gpus = 8
gpu_type = "a100"
cpus = 64
memory_mib = 500000
leaf = 1

[[nodes]]
count = 3
gpus = 4

[network]
node_gbps = 128
node_shared = true
nic_gbps = 200
oversubscription = 2.0
spine_oversubscription = 1.5

[costs]
restart_s = 30.0

[failures]
node_mtbf_h = 1000.0

[slurm]
bf_interval_s = 60
time_min_as_soft_limit = true

[[partitions]]
name = "short"
nodes = "n[1-2]"
priority_tier = 2
max_time_s = 3600

[[qos]]
name = "high"
priority = 100
group_gpus = 8

[[associations]]
account = "physics"
shares = 3.5
max_jobs = 4
"""


ONE = "[[nodes]]\ncount = 1\ngpus = 1\n"
TWO_DEFAULTS = ONE + "".join(f'[[partitions]]\nname = "{name}"\ndefault = true\n' for name in "ab")


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "cluster.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_the_short_form_describes_one_group() -> None:
    found = parse_cluster(
        "nodes=64,gpus=8,leaf=8,type=v100,node_gbps=128,node_shared=true,nic_gbps=25,oversubscription=4,"
        "spine_oversubscription=2,restart_s=10,cpus=96"
    )

    assert found == Cluster(
        nodes=(NodeGroup(count=64, gpus=8, leaf=8, gpu_type="v100", cpus=96),),
        network=Network(
            node_gbps=128.0, node_shared=True, nic_gbps=25.0, oversubscription=4.0, spine_oversubscription=2.0
        ),
        costs=Costs(restart_s=10.0),
    )
    assert found.gpus == 512


def test_a_file_says_everything(tmp_path: Path) -> None:
    found = parse_cluster(written(tmp_path, FULL))

    assert found == Cluster(
        nodes=(
            NodeGroup(count=2, gpus=8, gpu_type="a100", cpus=64, memory_mib=500_000, leaf=1),
            NodeGroup(count=3, gpus=4),
        ),
        network=Network(
            node_gbps=128.0, node_shared=True, nic_gbps=200.0, oversubscription=2.0, spine_oversubscription=1.5
        ),
        costs=Costs(restart_s=30.0),
        failures=Failures(node_mtbf_h=1000.0),
        slurm=SlurmParameters(
            bf_interval_s=60.0,
            time_min_as_soft_limit=True,
        ),
        partitions=(PartitionTable(name="short", nodes="n[1-2]", priority_tier=2, max_time_s=3600.0),),
        qos=(QosTable(name="high", priority=100.0, group_gpus=8),),
        associations=(AssociationTable(account="physics", shares=3.5, max_jobs=4),),
    )
    assert found.gpus == 28


def test_a_file_may_have_a_name_that_looks_like_the_short_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nodes=1").write_text("[[nodes]]\ncount = 7\ngpus = 1\n", encoding="utf-8")

    assert parse_cluster("nodes=1").gpus == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes=4,gpu=8", "--cluster nodes=4,gpu=8: 'gpu' is not known: did you mean gpus?"),
        ("nodes=4,xyz=8", "'xyz' is not known: known are nodes, gpus, type"),
        ("nodes=four,gpus=8", "--cluster nodes=four,gpus=8: nodes=four is no number"),
        ("nodes=4", "--cluster nodes=4: nodes.0.gpus is missing"),
        ("nodes=0,gpus=8", "nodes.0.count: Input should be greater than or equal to 1, not 0"),
        ("nodes=1,gpus=8,nic_gbps=nan", "network.nic_gbps"),
        ("nodes=1,gpus=8,oversubscription=0.5", "network.oversubscription"),
        ("nodes=1,gpus=8,spine_oversubscription=0.5", "network.spine_oversubscription"),
        ("nodes=1,gpus=8,node_gbps=-1", "network.node_gbps"),
        ("nodes=1,gpus=8,node_shared=yes", "node_shared=yes is neither true nor false"),
    ],
)
def test_a_wrong_short_form_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(SimulationError) as refused:
        parse_cluster(text)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[nodes]]\ncount = 1\ngpus = 1\nleafs = 2", "nodes.0.leafs is not known: did you mean leaf?"),
        ("[[nodes]]\ncount = 1\ngpus = 1\n[netwrk]\n", "netwrk is not known: did you mean network?"),
        ("[[nodes]]\ncount = 1\ngpus = 1\n[slurm]\nbf_intervall_s = 2", "did you mean bf_interval_s?"),
        (f"{ONE}[slurm]\nbf_one_resv_per_job = true", "bf_one_resv_per_job: the model of slurmctld leaves this"),
        (f"{ONE}[slurm.qos_priority]\nhigh = 1", "slurm.qos_priority is no longer read: write [[qos]] with name"),
        (f"{ONE}[slurm.account_shares]\na = 1", "slurm.account_shares is no longer read: write [[associations]]"),
        (f'{ONE}[[partitions]]\nname = "a"\n[[partitions]]\nname = "a"', "partitions.name: 'a' stands twice"),
        (f'{ONE}[[partitions]]\nname = "a"\nqos = "b"', "partitions.qos: 'b' of partition a is not among the QOS"),
        (f'{ONE}[[partitions]]\nname = "a"\nprio = 1', "partitions.0.prio is not known"),
        (f'{ONE}[[qos]]\nname = "a"\ngroup_gpu = 1', "qos.0.group_gpu is not known: did you mean group_gpus?"),
        (f'{ONE}[[associations]]\naccount = "a"\nparent = "a"', "associations.parent: 'a' stands below itself"),
        (f'{ONE}[[associations]]\naccount = "a"\nuser = "b"\nparent = "c"', "'b' is a user of a, which is its parent"),
        (TWO_DEFAULTS, "partitions.default: more than one is the default"),
        ("[network]\nnic_gbps = 10", "nodes is missing"),
        ("nodes = []", "nodes: "),
        ('[[nodes]]\ncount = "2"\ngpus = 1', "nodes.0.count: Input should be a valid integer, not '2'"),
        ("[[nodes]]\ncount = 1\ngpus = 2024-01-01", "nodes.0.gpus"),
        ("[[nodes]\n", "not valid TOML"),
        ("[[nodes]]\ncount = 1\ngpus = 0", "nodes.gpus: no node has a GPU"),
        ('[[nodes]]\ncount = 1\ngpus = 1\nnames = "n[1-2]"', "nodes.names: n[1-2] are 2 nodes, and count is 1"),
        ('[[nodes]]\ncount = 1\ngpus = 1\nnames = "n[1-"', "'n[1-' is not a node list such as n[01-08]"),
        ('[[nodes]]\ncount = 1\ngpus = 1\nnames = " "', "' ' names no node"),
        ('[[nodes]]\ncount = 1\ngpus = 1\nleaf = 1\nswitch = "s"', "nodes.switch: s stands beside leaf"),
        (
            '[[nodes]]\ncount = 1\ngpus = 1\n[[events]]\nnodes = "x"\ntime_s = 1\nstate = "resumed"',
            "there is no node x",
        ),
        (
            '[[nodes]]\ncount = 1\ngpus = 1\n[[reservations]]\nname = "r"\nnodes = "n1"\nstart_s = 2\nend_s = 2',
            "reservations.end_s: r ends before it starts",
        ),
        ('[[nodes]]\ncount = 1\ngpus = 1\nstate = "down"', "nodes.0.state"),
        ('[[nodes]]\ncount = 1\ngpus = 1\n[slurm]\nrelease = "24.11.5"', "slurm.release"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)

    with pytest.raises(SimulationError) as refused:
        parse_cluster(file)

    assert str(refused.value).startswith(f"{file}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(SimulationError, match=r"^nowhere\.toml: no such cluster file; write one, or a short form"):
        parse_cluster("nowhere.toml")


def test_a_folder_is_no_cluster_file(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="cannot be read: Is a directory"):
        parse_cluster(str(tmp_path))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(SimulationError, match="not UTF-8 text"):
        parse_cluster(str(file))


def test_any_type_is_a_declaration_and_no_name() -> None:
    cluster = parse_cluster("nodes=2,gpus=8,type=any")

    assert cluster.merges_types
    assert cluster.gpu_types == ("",)
    assert not parse_cluster("nodes=2,gpus=8").merges_types


def test_any_type_beside_a_named_one_is_refused(tmp_path: Path) -> None:
    groups = '[[nodes]]\ncount = 1\ngpus = 8\ngpu_type = "a100"\n[[nodes]]\ncount = 1\ngpus = 8\ngpu_type = "any"\n'

    with pytest.raises(SimulationError, match=r"nodes.gpu_type: 'any' stands beside 'a100': name the type of every"):
        parse_cluster(written(tmp_path, groups))
