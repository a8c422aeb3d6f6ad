import pytest

from advisor.backends import scontrol_text
from advisor.backends.topology_text import Link, shown_topology, topology_of
from advisor.domain.job import ArrayRecord
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
   MaxNodes=3 MaxTime=01:30:00
   Nodes=n01
   PriorityJobFactor=1 PriorityTier=5
   State=DRAIN TotalCPUs=16 TotalNodes=1

"""


def test_partitions_are_read() -> None:
    assert scontrol_text.partitions(PARTITIONS) == (
        Partition(name="day", is_up=False, nodes=("n01",), max_time_s=5400.0, priority_tier=5, max_nodes_per_job=3),
        Partition(name="gpu", nodes=("n01", "n02"), default_time_s=86400.0),
    )


def test_no_partitions_are_none() -> None:
    assert scontrol_text.partitions("") == ()


@pytest.mark.parametrize("text", ["No partitions in the system\n", "{}"])
def test_answer_without_blocks_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="gave no PartitionName"):
        scontrol_text.partitions(text)


@pytest.mark.parametrize(
    ("read", "name", "what"),
    [
        (scontrol_text.job_records, "jobs.txt", "job"),
        (scontrol_text.node_records, "nodes.txt", "node"),
        (scontrol_text.partitions, "", "partition"),
    ],
)
def test_block_that_ends_early_is_refused(read: object, name: str, what: str) -> None:
    text = recorded.text(name) if name else PARTITIONS

    with pytest.raises(DecodeError, match=f"scontrol show {what} names no"):
        read(text[:100])  # type: ignore[operator]


def test_old_release_names_tres_its_own_way() -> None:
    # 22.05 has one line of TRES, for the request and the allocation alike.
    block = recorded.text("jobs.txt").split("\n\n")[0].replace("ReqTRES=", "TRES=").replace("   AllocTRES=", "   X=")

    assert scontrol_text.job_records(block)[0].tres.memory_mib == 64000


def test_job_block_of_a_new_release_has_an_exclusive_field() -> None:
    block = recorded.text("jobs.txt").split("\n\n")[0]
    text = block.replace("OverSubscribe=OK", "OverSubscribe=NO Exclusive=NODE")

    assert scontrol_text.job_records(text)[0].exclusive


@pytest.mark.parametrize(
    ("task", "array"),
    [
        ("3-6%2", ArrayRecord(array_job_id=4021, waiting="3-6", max_running=2)),
        ("5", ArrayRecord(array_job_id=4021, task_id=5)),
    ],
)
def test_array_task_of_a_block_is_read(task: str, array: ArrayRecord) -> None:
    text = recorded.text("jobs.txt").replace("ArrayTaskId=3-6%2", f"ArrayTaskId={task}")

    records = {record.job_id: record for record in scontrol_text.job_records(text)}

    assert records[4021].array == array


def test_first_value_of_a_key_counts() -> None:
    text = recorded.text("jobs.txt").replace("Network=(null)", "Network=(null)\n   Priority=9", 1)

    assert scontrol_text.job_records(text)[0].priority == 1


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
