from pathlib import Path

import pytest

from advisor.backends import slurm_conf
from advisor.backends.slurm_conf import ConfigFileError, conf_path, read_conf, read_topology
from advisor.domain.topology import Switch, Topology, TopologyKind

TREE = Topology(
    kind=TopologyKind.TREE,
    switches=(
        Switch(name="s1", level=0, nodes=("n1", "n2")),
        Switch(name="s2", level=0, nodes=("n3", "n4")),
        Switch(name="root", level=1, nodes=("n1", "n2", "n3", "n4")),
    ),
)
BLOCKS = Topology(kind=TopologyKind.BLOCK, switches=TREE.switches[:2])


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "slurm.conf"
    path.write_text("ClusterName=blue\n")
    return path


def test_own_keys_of_the_site_are_read(conf: Path) -> None:
    conf.write_text(
        "# PriorityType=priority/basic\n"
        "clustername=blue SlurmctldHost=ctl(10.0.0.1) # the controller\n"
        "SchedulerParameters=bf_interval=5,\\\n"
        "bf_continue\n"
        'PrivateData="jobs, usage"\n'
        "NodeName=DEFAULT Weight=7 Features=a\n"
        "PartitionName=gpu Nodes=ALL PriorityType=partition SelectTypeParameters=CR_Core\n"
        "priorityTYPE = priority/basic\n"
        "PriorityType=priority/multifactor\n"
    )

    assert read_conf(conf) == {
        "clustername": "blue",
        "slurmctldhost": "ctl(10.0.0.1)",
        "schedulerparameters": "bf_interval=5,bf_continue",
        "privatedata": "jobs, usage",
        "prioritytype": "priority/multifactor",
    }


def test_continued_line_is_one_line(conf: Path) -> None:
    conf.write_text("ClusterName=blue \\\n  SelectTypeParameters=CR_Core\n")

    assert read_conf(conf)["selecttypeparameters"] == "CR_Core"


def test_included_files_are_read_in_their_place(conf: Path) -> None:
    (conf.parent / "more").mkdir()
    (conf.parent / "more" / "a.conf").write_text("PriorityType=priority/basic\nPrivateData=jobs\n")
    conf.write_text("ClusterName=blue\nInclude more/a.conf\nPriorityType=priority/multifactor\n")

    assert read_conf(conf) == {"clustername": "blue", "prioritytype": "priority/multifactor", "privatedata": "jobs"}


def test_files_are_included_eight_deep(conf: Path) -> None:
    for depth in range(1, 10):
        (conf.parent / f"{depth}.conf").write_text(f"Include {depth + 1}.conf\n")
    (conf.parent / "8.conf").write_text("PriorityType=priority/basic\n")
    conf.write_text("ClusterName=blue\nInclude 1.conf\n")

    assert read_conf(conf)["prioritytype"] == "priority/basic"
    (conf.parent / "8.conf").write_text("Include 9.conf\n")
    (conf.parent / "9.conf").write_text("PriorityType=priority/basic\n")
    with pytest.raises(ConfigFileError, match=r"9.conf is included too deeply"):
        read_conf(conf)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PriorityType=priority/basic\n", "names no ClusterName"),
        ("Include gone.conf\nClusterName=x\n", "cannot be read"),
        ("Include slurm.conf\n", "included too deeply"),
        ("Include %c.conf\n", "depends on the host or cluster"),
    ],
)
def test_file_that_cannot_be_trusted_is_refused(conf: Path, text: str, said: str) -> None:
    conf.write_text(text)

    with pytest.raises(ConfigFileError, match=said):
        read_conf(conf)


def test_huge_file_is_refused(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_conf, "_SIZE_LIMIT_BYTES", 10)

    with pytest.raises(ConfigFileError, match="too large"):
        read_conf(conf)


def test_environment_names_the_file() -> None:
    assert conf_path({"SLURM_CONF": "/srv/blue/slurm.conf"}) == Path("/srv/blue/slurm.conf")


@pytest.mark.parametrize(
    ("present", "chosen"),
    [(("etc",), "etc"), (("run",), "run"), (("etc", "run"), "etc"), ((), None), (("etc", "opt", "run"), None)],
    ids=["usual", "sent by slurmctld", "usual first", "nowhere", "two builds"],
)
def test_file_is_where_the_commands_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], chosen: str | None
) -> None:
    places = {"etc": tmp_path / "e/slurm.conf", "run": tmp_path / "r/slurm.conf", "opt": tmp_path / "o/etc/slurm.conf"}
    monkeypatch.setattr(slurm_conf, "_DEFAULT_PATHS", (str(places["etc"]), str(places["run"])))
    scontrol = tmp_path / "o/bin/scontrol"
    for path in (scontrol, *(places[name] for name in present)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    variables = {"PATH": str(scontrol.parent)}

    if chosen is None:
        with pytest.raises(ConfigFileError, match=r"slurm\.conf"):
            conf_path(variables)
    else:
        assert conf_path(variables) == places[chosen]


def test_file_is_looked_for_without_any_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_conf, "_DEFAULT_PATHS", (str(tmp_path / "a"), str(tmp_path / "b")))

    with pytest.raises(ConfigFileError, match=r"no slurm\.conf"):
        conf_path({"PATH": str(tmp_path)})


def test_tree_is_read_from_topology_conf(conf: Path) -> None:
    leaves = "# leaves\nSwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n[3-4] LinkSpeed=1\n"
    (conf.parent / "topology.conf").write_text(f"{leaves}SwitchName=root Switches=s[1-2]\n")

    assert read_topology(conf, TopologyKind.TREE) == TREE


def test_blocks_are_read_from_topology_conf(conf: Path) -> None:
    (conf.parent / "topology.conf").write_text("BlockName=s1 Nodes=n[1-2]\nBlockName=s2 Nodes=n[3-4]\nBlockSizes=2\n")

    assert read_topology(conf, TopologyKind.BLOCK) == BLOCKS


def test_flat_topology_needs_no_file(conf: Path) -> None:
    assert read_topology(conf, TopologyKind.FLAT) == Topology(kind=TopologyKind.FLAT)


YAML_TREE = """
- topology: other
  flat: true
- topology: main
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1
        nodes: n[1-2]
      - switch: s2
        nodes: n[3-4]
"""
YAML_BLOCKS = """
- topology: main
  block:
    block_sizes: [2]
    blocks:
      - block: s1
        nodes: n[1-2]
      - block: s2
        nodes: n[3-4]
"""


@pytest.mark.parametrize(
    ("text", "topology"),
    [
        (YAML_TREE, TREE),
        (YAML_BLOCKS, BLOCKS),
        ("- topology: a\n  flat: true\n", Topology(kind=TopologyKind.FLAT)),
        ("- topology: a\n  ring: {}\n", Topology(kind=TopologyKind.OTHER)),
    ],
    ids=["tree", "block", "flat", "other"],
)
def test_topology_yaml_takes_the_place_of_topology_conf(conf: Path, text: str, topology: Topology) -> None:
    (conf.parent / "topology.yaml").write_text(text)

    assert read_topology(conf, TopologyKind.TREE) == topology


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no YAML"),
        ("[]", "describes no topology"),
        ("tree: 1", "describes no topology"),
        ("- tree: {switches: [{nodes: n1}]}", "without its name"),
        ("- tree: {switches: [{switch: s, children: t}]}", "does not describe"),
        ("- tree: {switches: [{switch: s, nodes: 'n['}]}", "not a node list"),
    ],
)
def test_topology_yaml_that_cannot_be_read_is_refused(conf: Path, text: str, said: str) -> None:
    (conf.parent / "topology.yaml").write_text(text)

    with pytest.raises(ConfigFileError, match=said):
        read_topology(conf, TopologyKind.TREE)
