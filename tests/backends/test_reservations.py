"""Reservations of parts of nodes: what they keep from other jobs, as readers put it into the snapshot."""

import pytest

from advisor.backends.reservations import decode_reservations
from advisor.domain.gang import GpuCount
from advisor.domain.node import NodeService
from advisor.domain.snapshot import Snapshot
from advisor.errors import SlurmRefusedError
from advisor.features.nodes import node_table
from tests.backends.fake_slurm import FakeSlurm, job_row, node_row, text_reader

SHOWN = "scontrol -o show reservation"
# Half the cores of n01, with two threads each.
CORES = (
    "ReservationName=lesson StartTime=1970-01-01T01:00:00 EndTime=1970-01-01T09:00:00 Duration=08:00:00 "
    "Nodes=n01 NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=gpu Flags=SPEC_NODES   NodeName=n01 CoreIDs=0-1,4,6 "
    "TRES=cpu=8{gpus} Users=ada Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null)\n"
)
WHOLE = CORES.replace("  NodeName=n01 CoreIDs=0-1,4,6", "").replace("cpu=8", "cpu=16").replace("CoreCnt=4", "CoreCnt=8")
RESERVED = node_row(StateComplete="idle+reserved", CPUsState="0/16/0/16", GresUsed="gpu:a100:0")


pytestmark = pytest.mark.usefixtures("filed")


def read(fake: FakeSlurm, shown: str | SlurmRefusedError) -> Snapshot:
    fake.texts[SHOWN] = shown
    return text_reader(fake, 10000.0).snapshot()


@pytest.mark.parametrize(
    ("gpus", "cpus_idle", "gpus_idle"), [("", 8, 8), (",gres/gpu=4", 8, 4), (",gres/gpu=4,gres/gpu:a100=4", 8, 4)]
)
def test_reservation_of_a_part_leaves_the_rest_to_other_jobs(gpus: str, cpus_idle: int, gpus_idle: int) -> None:
    snapshot = read(FakeSlurm(nodes=(RESERVED,)), CORES.format(gpus=gpus))

    table = node_table(snapshot)
    assert snapshot.nodes[0].service is NodeService.NOW
    assert (table.cpus_idle.tolist(), table.gpus_startable.tolist()) == ([cpus_idle], [[gpus_idle]])


def test_what_jobs_of_the_reservation_use_counts_once() -> None:
    job = job_row(
        State="RUNNING", Reservation="lesson", NodeList="n01", NumCPUs="6", tres_per_node="gres/gpu:2", EndTime="20000"
    )
    node = {**RESERVED, "StateComplete": "mixed+reserved", "CPUsState": "6/10/0/16", "GresUsed": "gpu:a100:2"}

    snapshot = read(FakeSlurm(jobs=(job,), nodes=(node,)), CORES.format(gpus=",gres/gpu=4"))

    table = node_table(snapshot)
    assert (snapshot.nodes[0].cpus_reserved, snapshot.nodes[0].gpus[0].reserved) == (2, 2)
    assert (table.cpus_idle.tolist(), table.gpus_startable.tolist()) == ([8], [[4]])


def test_reservation_of_a_whole_node_closes_it_until_it_ends() -> None:
    (node,) = read(FakeSlurm(nodes=(RESERVED,)), WHOLE.format(gpus="")).nodes

    assert (node.service, node.is_only_reserved, node.cpus_reserved) == (NodeService.LATER, True, None)


def test_reservations_that_cannot_be_read_close_the_node_with_a_line() -> None:
    snapshot = read(FakeSlurm(nodes=(RESERVED,)), SlurmRefusedError("scontrol: no"))

    assert snapshot.nodes[0].is_only_reserved
    assert snapshot.unread[-1].startswith("reservations, so that every reserved node counts as reserved in whole: ")


def test_reservations_are_asked_for_only_where_a_node_is_reserved() -> None:
    fake = FakeSlurm()

    read(fake, CORES.format(gpus=""))

    assert not any("reservation" in asked for asked in map(" ".join, fake.asked))


def test_licences_of_a_reservation_are_read() -> None:
    text = WHOLE.format(gpus="").replace("Nodes=n01", "Nodes=(null)")
    text = text.replace("Licenses=(null)", "Licenses=ansys:3,matlab:1")

    (reservation,) = decode_reservations(text)

    assert (reservation.licences, reservation.nodes, reservation.gpus) == (("ansys", "matlab"), (), ())


def test_gpus_of_a_reservation_of_several_nodes_are_those_of_each() -> None:
    (reservation,) = decode_reservations(CORES.format(gpus=",gres/gpu=8").replace("NodeCnt=1", "NodeCnt=2"))

    assert reservation.gpus == (GpuCount(count=4),)
