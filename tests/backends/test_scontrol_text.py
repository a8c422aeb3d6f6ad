import pytest

from advisor.backends import scontrol_text
from advisor.backends.slurm_conf import Link, shown_topology, topology_of
from advisor.domain.site import Partition
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.errors import DecodeError
from tests.backends import recorded

PARTITIONS = """PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   DefaultTime=1-00:00:00 DisableRootJobs=NO Hidden=NO
   MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=1
   Nodes=n[01-02]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO
   State=UP TotalCPUs=32 TotalNodes=2

PartitionName=day
   DefaultTime=NONE Hidden=YES
   MaxNodes=3 MaxTime=01:30:00 MinNodes=2
   Nodes=n01
   PriorityJobFactor=1 PriorityTier=5
   State=DRAIN TotalCPUs=16 TotalNodes=1

"""


def test_partitions_are_read() -> None:
    assert scontrol_text.partitions(PARTITIONS) == (
        Partition(
            name="day",
            is_up=False,
            nodes=("n01",),
            max_time_s=5400.0,
            priority_tier=5,
            min_nodes_per_job=2,
            max_nodes_per_job=3,
        ),
        Partition(name="gpu", nodes=("n01", "n02"), default_time_s=86400.0),
    )


def test_no_partitions_are_none() -> None:
    assert scontrol_text.partitions("") == ()


@pytest.mark.parametrize("text", ["No partitions in the system\n", "{}"])
def test_answer_without_blocks_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="gave no PartitionName"):
        scontrol_text.partitions(text)


def test_block_that_ends_early_is_refused() -> None:
    with pytest.raises(DecodeError, match="a PartitionName without "):
        scontrol_text.partitions(PARTITIONS[:100])


def test_first_value_of_a_key_counts() -> None:
    text = PARTITIONS.replace("State=UP", "State=UP PriorityTier=9 ")

    partitions = [each for each in scontrol_text.partitions(text) if isinstance(each, Partition)]
    assert [partition.priority_tier for partition in partitions] == [5, 1]


def test_shown_blocks_are_a_block_topology() -> None:
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=n[01-02] BlockSize=2\n"
        "BlockName=b2 BlockIndex=1 Nodes=n[03-04] BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[01-04] BlockSize=4\n"
    )

    assert shown_topology(TopologyKind.TREE, text) == Topology(
        kind=TopologyKind.BLOCK,
        switches=(
            Switch(name="b1", level=0, nodes=("n01", "n02")),
            Switch(name="b2", level=0, nodes=("n03", "n04")),
        ),
    )


def test_shown_topology_may_be_empty() -> None:
    assert shown_topology(TopologyKind.FLAT, "\n") == Topology(kind=TopologyKind.FLAT)


def test_described_tree_is_the_shown_tree() -> None:
    shown = recorded.site().topology
    links = [
        Link(name="spine", switches=("leaf1", "leaf2")),
        Link(name="leaf2", nodes=shown.switches[1].nodes),
        Link(name="leaf1", nodes=shown.switches[0].nodes),
    ]

    assert topology_of(TopologyKind.TREE, links) == shown


def chain(length: int) -> list[Link]:
    """Return switches of which each hangs on the one before, the last one with a node."""
    below = [Link(name=f"s{number}", switches=(f"s{number + 1}",)) for number in range(1, length)]
    return [*below, Link(name=f"s{length}", nodes=("n01",))]


def test_tree_of_more_than_thirty_three_levels_is_none() -> None:
    topology = topology_of(TopologyKind.TREE, chain(33))

    assert (topology.switches[-1].name, topology.switches[-1].level) == ("s1", 32)
    assert topology.switches[-1].nodes == ("n01",)
    with pytest.raises(DecodeError, match="hang on itself"):
        topology_of(TopologyKind.TREE, chain(34))


@pytest.mark.parametrize(
    ("links", "text"),
    [
        ([Link(name="a", switches=("b",)), Link(name="b", switches=("a",))], "hang on itself"),
        ([Link(name="a", switches=("b",))], "a switch b that it does not describe"),
    ],
)
def test_tree_that_is_none_is_refused(links: list[Link], text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        topology_of(TopologyKind.TREE, links)
