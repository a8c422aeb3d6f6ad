"""Why a job is not starting: each cause, what ranks first, where Slurm's word is not borne out."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.diagnose.causes import diagnose
from advisor.domain.diagnosis import Cause
from advisor.domain.gang import GpuScope, ShareCount, SwitchRequest
from advisor.domain.job import ArrayRecord, HetRecord, Job, JobState
from advisor.domain.node import Node
from advisor.domain.particulars import Particulars, PriorityFactors
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.features.nodes import node_table
from advisor.view.explanations import Obstacle, explanation
from tests.builders import (
    HOUR_S,
    TAKEN_AT,
    make_config,
    make_gang,
    make_job,
    make_node,
    make_partition,
    make_snapshot,
    make_topology,
)
from tests.diagnose.diagnosing import FULL, GPU, IDLE, causes, diagnosis
from tests.examples import examples
from tests.strategies import snapshots


def test_job_nobody_knows_is_absent() -> None:
    found = explanation(diagnose(make_snapshot(config=make_config(private_data=("jobs",)), unread=("nodes",)), 5))

    assert (found.job_id, found.first.cause, found.slurm_reason) == (5, Cause.ABSENT, "")
    assert found.unread == ("nodes", "jobs of other users, which PrivateData may hide")


def test_started_job_is_told_when_it_started() -> None:
    found = diagnosis(make_job(1, running_on=["n1"], started_ago_s=60, submitted_ago_s=100), IDLE)
    unknown = diagnosis(make_job(1, state=JobState.OTHER))

    assert found.first.evidence == {"state": "running", "start_time": TAKEN_AT - 60, "queueing_delay_s": 40.0}
    assert found.first.text == "it has started already"
    assert (unknown.first.cause, unknown.first.evidence) == (Cause.STARTED, {"state": "other"})
    assert unknown.first.text == "it is no longer pending"


@pytest.mark.parametrize(
    ("reason", "order"),
    [
        pytest.param("Resources", [Cause.GPUS, Cause.PRIORITY], id="Slurm looked for nodes"),
        pytest.param("Priority", [Cause.PRIORITY, Cause.GPUS], id="Slurm did not look"),
        pytest.param("None", [Cause.PRIORITY, Cause.GPUS], id="Slurm said nothing"),
        pytest.param("AssocGrpGRES", [Cause.ASSOCIATION_LIMIT, Cause.PRIORITY, Cause.GPUS], id="limit first"),
    ],
)
def test_slurm_decides_which_of_two_causes_binds_first(reason: str, order: list[Cause]) -> None:
    found = diagnosis(make_job(1, gang=GPU, reason=reason), FULL, [make_job(2, priority=2000)])

    assert causes(found) == order
    assert found.disagreement is None


def test_nodes_out_of_service_come_before_priority_where_nothing_else_would_do() -> None:
    nodes = [make_node("n1", used=8), make_node("n2", state="DOWN")]

    found = diagnosis(make_job(1, gang=make_gang(16)), nodes, [make_job(2, priority=2000)])

    assert causes(found) == [Cause.NODES_UNAVAILABLE, Cause.PRIORITY, Cause.GPUS]


SHORTER = "the user: a shorter time limit lets backfill start it between the others"


def test_jobs_ahead_are_those_slurm_considers_first_on_the_same_nodes() -> None:
    partitions = [
        make_partition("gpu", nodes=("n1", "n2")),
        make_partition("urgent", nodes=("n2",), priority_tier=2),
        make_partition("apart", nodes=("n3",), priority_tier=3),
    ]
    me = make_job(1, gang=GPU, priority=100, submitted_ago_s=100, nice=5, start_time=TAKEN_AT + 60)
    ahead = [
        make_job(2, gpus=4, priority=101),
        make_job(3, gpus=0, priority=100, submitted_ago_s=101),
        make_job(4, gang=make_gang(1, scope=GpuScope.SOCKET), priority=1, partitions=("urgent",)),
        make_job(5, gpus=2, priority=500, array=ArrayRecord(array_job_id=5, waiting="1-3"), reason="Resources"),
    ]
    not_ahead = [
        make_job(11, priority=99),
        make_job(12, priority=100, submitted_ago_s=100),
        make_job(13, priority=900, held=True),
        make_job(14, priority=900, dependency="singleton"),
        make_job(15, priority=900, eligible_time=TAKEN_AT + 1),
        make_job(16, priority=900, partitions=("apart",)),
        make_job(17, priority=900, reason="QOSMaxJobsPerUserLimit"),
        make_job(18, priority=900, running_on=["n1"]),
        make_job(19, priority=0),
        make_job(20, priority=None, array=ArrayRecord(array_job_id=20, waiting="1-2")),
    ]
    nodes = [*IDLE, make_node("n3")]

    found = diagnosis(me, nodes, [*ahead, *not_ahead], partitions=partitions)

    assert found.first == Obstacle(
        cause=Cause.PRIORITY,
        text="6 pending jobs of its own user come before it on the same nodes; by itself it would fit now on one node",
        evidence={
            "jobs_ahead": 6,
            "own_jobs_ahead": 6,
            "users_ahead": 0,
            "gpu_jobs_ahead": 5,
            "gpus_asked_ahead": 10,
            "priority": 100,
            "highest_priority_ahead": 500,
            "queueing_delay_s": 100.0,
            "slurm_expects_start_time": TAKEN_AT + 60,
        },
        remedies=(
            "its nice of 5 lowers its priority: scontrol update JobId=1 Nice=0",
            f"{SHORTER}: scontrol update JobId=1 TimeLimit=...",
            "wait for the jobs before it to start",
        ),
    )
    assert found.unread == ("the priority of 2 other pending jobs", "the parts of its priority (sprio)")


@pytest.mark.parametrize(("gpu_type", "ahead"), [("a100", 3), (None, 3), ("v100", 2)])
def test_jobs_of_another_partition_that_can_have_none_of_its_gpus_are_not_ahead(
    gpu_type: str | None, ahead: int
) -> None:
    # Both partitions have n2; the v100 are on n3. In its own partition all jobs before it count, as slurmctld has it.
    partitions = [make_partition("big", nodes=("n1", "n2")), make_partition("old", nodes=("n2", "n3"))]
    nodes = [make_node("n1", gpu_type="a100"), make_node("n2", gpu_type="a100"), make_node("n3", gpu_type="v100")]
    me = make_job(1, gang=make_gang(1, gpu_type=gpu_type, memory_mib_per_node=1), priority=100, partitions=("old",))
    others = [
        make_job(2, gpus=4, priority=900, partitions=("big",)),
        make_job(3, gpus=0, priority=900, partitions=("big", "old")),
        make_job(4, gang=make_gang(1, gpu_type="a100"), priority=900, partitions=("old",)),
    ]

    found = diagnosis(me, nodes, others, partitions=partitions)

    assert found.first.evidence["jobs_ahead"] == ahead


def test_parts_of_the_priority_stand_beside_it_as_far_as_they_were_read() -> None:
    snapshot = make_snapshot([make_job(1, gang=GPU, start_time=None), make_job(2, priority=2000)], FULL)

    asked = Particulars(factors=PriorityFactors(age=7, fair_share=0))
    found = explanation(diagnose(snapshot, 1, table=node_table(snapshot), particulars=asked))

    assert found.first.text == "1 pending job of its own user comes before it on the same nodes"
    parts = {name: value for name, value in found.first.evidence.items() if name.startswith("priority_")}
    assert parts == {"priority_age": 7, "priority_fair_share": 0}
    assert not any("sprio" in words for words in found.unread)


TWO_NODES = make_gang(
    8,
    scope=GpuScope.NODE,
    nodes_min=2,
    nodes_max=2,
    memory_mib_per_node=1,
    switches=SwitchRequest(count=1, max_wait_s=2 * HOUR_S),
)
APART = [make_node("n1"), make_node("n2", used=8), make_node("n3"), make_node("n4", used=8)]


def test_gang_that_waits_for_one_leaf_is_told_how_long() -> None:
    found = diagnosis(make_job(1, gang=TWO_NODES, reason="Resources"), APART)

    assert found.first == Obstacle(
        cause=Cause.SWITCHES,
        text="it fits now on several leaf switches, but asks Slurm to wait up to 2.0 h for one leaf switch",
        evidence={"switches": 1, "max_wait_s": 2 * HOUR_S, "queueing_delay_s": HOUR_S},
        remedies=(
            "the user: scontrol update JobId=1 Switches=0 to take what there is",
            "wait: it ends by itself",
        ),
    )
    assert found.unread == ("when Slurm's wait for one leaf switch began",)


@pytest.mark.parametrize(
    ("job", "nodes", "kind"),
    [
        pytest.param(make_job(1, gang=TWO_NODES, submitted_ago_s=3 * HOUR_S), APART, TopologyKind.TREE, id="wait over"),
        pytest.param(make_job(1, gang=TWO_NODES), [*APART[:3], make_node("n4")], TopologyKind.TREE, id="one leaf fits"),
        pytest.param(make_job(1, gang=TWO_NODES), FULL, TopologyKind.TREE, id="fits nowhere"),
        pytest.param(make_job(1, gang=TWO_NODES), APART, TopologyKind.BLOCK, id="no tree"),
        pytest.param(
            make_job(1, gang=replace(TWO_NODES, switches=SwitchRequest(count=2, max_wait_s=9))),
            APART,
            TopologyKind.TREE,
            id="two switches",
        ),
    ],
)
def test_switch_wait_is_not_blamed_where_it_does_not_bind(job: Job, nodes: list[Node], kind: TopologyKind) -> None:
    topology = make_topology({"leaf1": ["n1", "n2"], "leaf2": ["n3", "n4"]}, kind=kind)

    assert Cause.SWITCHES not in causes(explanation(diagnose(make_snapshot([job], nodes, topology=topology), 1)))


FITS = "; by itself the job fits now on one node"


@pytest.mark.parametrize(
    ("job", "nodes", "expected", "words"),
    [
        pytest.param(
            make_job(1, reason="Resources"),
            IDLE,
            [Cause.UNKNOWN],
            f"nothing in its way{FITS}",
            id="resources, but fits",
        ),
        pytest.param(
            make_job(1, reason="Priority"), IDLE, [Cause.PRIORITY], f"nothing in its way{FITS}", id="nobody is ahead"
        ),
        pytest.param(make_job(1), FULL, [Cause.GPUS, Cause.PRIORITY], "gpus", id="nobody is ahead, but GPUs are short"),
        pytest.param(
            make_job(1, reason="BeginTime"), IDLE, [Cause.BEGIN_TIME], f"nothing in its way{FITS}", id="begin time past"
        ),
        pytest.param(
            make_job(1, reason="ReqNodeNotAvail, UnavailableNodes:n1"),
            IDLE,
            [Cause.NODES_UNAVAILABLE],
            f"nothing in its way{FITS}",
            id="all nodes in service",
        ),
        pytest.param(
            make_job(1, reason="PartitionDown", partitions=("?",)),
            IDLE,
            [Cause.PARTITION_DOWN],
            "nothing in its way",
            id="partition that nobody knows",
        ),
    ],
)
def test_slurms_word_is_checked_against_the_snapshot(
    job: Job, nodes: Sequence[Node], expected: list[Cause], words: str
) -> None:
    found = diagnosis(job, nodes)

    assert causes(found) == expected
    assert found.disagreement == f"the snapshot does not confirm Slurm's reason; sadvise finds {words}"
    assert {"slurm_reason": job.reason} in [found.first.evidence, *(one.evidence for one in found.further)]


@pytest.mark.parametrize(
    ("gpus", "disagreement", "text"),
    [
        pytest.param(
            1,
            "Slurm finds no nodes that could ever be enough for it; sadvise finds some",
            "Slurm finds no nodes that could ever be enough for it",
            id="possible by the count of sadvise",
        ),
        pytest.param(17, None, "no nodes of its partitions are enough for 17 GPUs, even empty", id="agreed"),
    ],
)
def test_constraints_slurm_calls_bad_are_counted_again(gpus: int, disagreement: str | None, text: str) -> None:
    found = diagnosis(make_job(1, gpus=gpus, priority=0, held=True, reason="BadConstraints"))

    assert (causes(found), found.first.text) == ([Cause.IMPOSSIBLE], text)
    assert found.disagreement == disagreement


@pytest.mark.parametrize(
    ("job", "text"),
    [
        pytest.param(
            make_job(1, reason="BurstBufferStageIn"), "Slurm gives a reason that cannot be judged here", id="own reason"
        ),
        pytest.param(
            make_job(1, reason="Resources", reservation="team"),
            "Slurm gives a reason that cannot be judged here",
            id="inside a reservation",
        ),
        pytest.param(
            make_job(1, reason="Resources", gang=make_gang(0, gpus_known=False)),
            "Slurm gives a reason that cannot be judged here",
            id="request unknown",
        ),
        pytest.param(
            make_job(1, reason="None", gang=make_gang(0, gpus_known=False)),
            "what stands in its way could not be read",
            id="nothing known",
        ),
        pytest.param(
            make_job(1, reason="None", reservation="team"),
            "what stands in its way could not be read",
            id="reservation, nothing said",
        ),
    ],
)
def test_what_cannot_be_judged_is_called_unknown(job: Job, text: str) -> None:
    found = diagnosis(job)

    assert (found.first.cause, found.first.text) == (Cause.UNKNOWN, text)
    assert found.disagreement is None


@pytest.mark.parametrize(
    ("job", "words"),
    [
        pytest.param(make_job(1, gang=GPU, reason="None"), "Slurm's reason: it gives none", id="no reason"),
        pytest.param(make_job(1, gang=GPU, priority=None), "its priority, and so who comes before it", id="priority"),
        pytest.param(
            make_job(1, gang=GPU, reservation="x"), "the nodes and times of its reservation", id="reservation"
        ),
        pytest.param(
            make_job(1, gang=GPU, het=HetRecord(het_job_id=1, offset=0)),
            "whether the other components of its heterogeneous job fit",
            id="heterogeneous",
        ),
        pytest.param(make_job(1, gang=replace(GPU, features="a|b")), "which nodes have the features", id="features"),
        pytest.param(
            make_job(1, gang=replace(GPU, shares=(ShareCount(kind="mps", count=1),))),
            "where parts of GPUs",
            id="shares",
        ),
        pytest.param(make_job(1), "how much memory it needs on each node", id="memory"),
        pytest.param(
            make_job(1, gang=make_gang(2, scope=GpuScope.SOCKET, memory_mib_per_node=1)),
            "how many sockets",
            id="sockets",
        ),
        pytest.param(
            make_job(1, gang=replace(GPU, per_job=(), gpus_known=False)), "how many GPUs it asks for", id="GPUs asked"
        ),
        pytest.param(make_job(1, gang=GPU, partitions=("?", "gpu")), "all of its partitions", id="partition"),
    ],
)
def test_what_was_not_read_is_said(job: Job, words: str) -> None:
    assert [text for text in diagnosis(job).unread if text.startswith(words)]


def test_unknown_use_of_gpus_and_unknown_ends_are_said() -> None:
    endless = make_job(2, gpus=8, running_on=["n2"], time_limit_s=None)
    nodes = [make_node("n1", used=None), make_node("n2", used=8)]

    found = diagnosis(make_job(1, gang=GPU, reason="Resources"), nodes, [endless])

    assert found.first.cause is Cause.GPUS
    assert found.unread == (
        "how many GPUs are in use on 1 node of its partitions; all were assumed",
        "when all of the running jobs on its nodes end at the latest",
    )


def test_nothing_is_unread_where_all_was_read() -> None:
    snapshot = make_snapshot([make_job(1, gang=GPU, reason="Resources"), make_job(2, gpus=8, running_on=["n1"])], FULL)

    assert diagnose(snapshot, 1).unread == ()


def test_hostile_words_of_slurm_stay_raw_in_values_and_out_of_sentences() -> None:
    job = make_job(1, reason="\x1b[31mQ'|", dependency="\x00$(x)", name="\x1b]0;", priority=5)

    found = diagnosis(job)

    assert found.slurm_reason == "\x1b[31mQ'|"
    assert found.first.evidence == {"dependency": "\x00$(x)"}
    assert "\x1b" not in found.first.text + "".join(found.first.remedies)


@settings(max_examples=examples(50), deadline=None)
@given(snapshots(), st.randoms())
def test_every_job_of_every_snapshot_has_an_answer_that_listing_order_does_not_change(
    snapshot: Snapshot, random: Random
) -> None:
    jobs, nodes = list(snapshot.jobs), list(snapshot.nodes)
    random.shuffle(jobs)
    random.shuffle(nodes)
    shuffled = replace(snapshot, jobs=tuple(jobs), nodes=tuple(nodes))

    for job in snapshot.jobs:
        found = diagnose(snapshot, job.job_id)

        assert found == diagnose(shuffled, job.job_id)
        assert (found.first.cause is Cause.STARTED) is (not job.is_pending)
        assert found.unread[: len(snapshot.unread)] == snapshot.unread


@pytest.mark.parametrize(("eligible_time", "is_checked"), [(None, False), (TAKEN_AT - 60.0, True)])
def test_a_job_on_hold_that_slurm_never_checked_is_not_said_to_fit(
    eligible_time: float | None, is_checked: bool
) -> None:
    job = make_job(1, gpus=1, priority=0, held=True, reason="JobHeldUser", eligible_time=eligible_time)

    found = diagnose(make_snapshot([job], IDLE), 1)

    assert (found.tier_now is not None) is is_checked
    assert any("submitted with --hold" in line for line in found.unread) is not is_checked
