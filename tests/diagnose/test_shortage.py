"""What keeps a gang from fitting now, and which other request would fit."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from advisor.diagnose.inquiry import Inquiry
from advisor.diagnose.shortage import impossible, shortages
from advisor.domain.diagnosis import Cause, Diagnosis, Finding
from advisor.domain.gang import GangRequest, GpuCount, GpuScope
from advisor.domain.job import Job
from advisor.domain.node import GpuPool, Node
from advisor.domain.particulars import NOTHING_ASKED
from advisor.domain.site import Partition
from advisor.domain.snapshot import Snapshot
from advisor.features.nodes import node_table
from advisor.view.explanations import Obstacle, obstacle
from advisor.view.request_words import asked_in_words
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

UNLESS_TAKEN = "if no other job takes what they free"


def case_of(snapshot: Snapshot) -> Inquiry:
    """The case of job 1."""
    return Inquiry.of(snapshot, node_table(snapshot), snapshot.jobs_by_id[1], NOTHING_ASKED)


def worded(snapshot: Snapshot, findings: Iterable[Finding | None]) -> list[Obstacle]:
    """Findings about job 1 in words."""
    job, unknown = snapshot.jobs_by_id[1], Finding(cause=Cause.UNKNOWN)
    diagnosis = Diagnosis(job_id=1, job=job, taken_at=snapshot.taken_at, slurm_reason="", first=unknown)
    return [obstacle(finding, diagnosis) for finding in findings if finding is not None]


def short(snapshot: Snapshot) -> list[Obstacle]:
    """What keeps job 1 from starting."""
    return worded(snapshot, shortages(case_of(snapshot)))


def found(gang: GangRequest, nodes: Iterable[Node], jobs: Iterable[Job] = ()) -> list[Obstacle]:
    """What keeps job 1, a gang of this kind, from starting on these nodes."""
    return short(make_snapshot([make_job(1, gang=gang), *jobs], nodes))


def idle(*gpus: int, gpu_type: str | None = None) -> list[Node]:
    """Nodes n1, n2, ... of eight GPUs with so many idle ones."""
    return [make_node(f"n{number}", used=8 - free, gpu_type=gpu_type) for number, free in enumerate(gpus, 1)]


def test_gang_that_fits_lacks_nothing() -> None:
    assert found(make_gang(8), idle(8)) == []


@pytest.mark.parametrize(
    ("gang", "partition"),
    [
        pytest.param(make_gang(9, nodes_max=1), make_partition("gpu", nodes=("n1",)), id="can never fit"),
        pytest.param(make_gang(1), make_partition("gpu", nodes=("n1",), is_up=False), id="its partition is down"),
        pytest.param(make_gang(0, gpus_known=False), make_partition("gpu", nodes=("n1",)), id="its GPUs unknown"),
        pytest.param(make_gang(1), make_partition("other", nodes=("n1",)), id="its partition unknown"),
    ],
)
def test_nothing_is_said_to_be_short_where_that_is_not_the_point(gang: GangRequest, partition: Partition) -> None:
    snapshot = make_snapshot([make_job(1, gang=gang)], idle(0), partitions=[partition])

    assert shortages(case_of(snapshot)) == []


def test_too_few_gpus_of_a_type_are_counted_where_most_are_idle() -> None:
    nodes = [
        *idle(2, 3, gpu_type="a100"),
        make_node("n3", used=0, gpu_type="v100"),
        make_node("n4", used=7, gpu_type="a100"),
    ]
    partitions = [make_partition("gpu", nodes=("n1", "n2", "n3")), make_partition("small", nodes=("n4",))]
    running = replace(make_job(2, gpus=5, running_on=["n2"]), end_time=TAKEN_AT + HOUR_S)
    job = make_job(1, gang=make_gang(8, gpu_type="a100"), partitions=("gpu", "small"))

    (finding,) = short(make_snapshot([job, running], nodes, partitions=partitions))

    assert finding == Obstacle(
        cause=Cause.GPUS,
        text="it asks for 8 a100 GPUs; 5 of 16 a100 in its partition are idle, 3 too few",
        evidence={
            "gpu_type": "a100",
            "gpus_asked": 8,
            "gpus_idle": 5,
            "gpus_in_partition": 16,
            "gpus_short": 3,
            "fits_by_limits_time": TAKEN_AT + HOUR_S,
        },
        remedies=(
            "it fits now if any type of GPU will do: leave a100 out of the request",
            "it fits now with 5 a100 GPUs in place of 8, if it can run on fewer",
            f"wait: by the time limits of running jobs it fits in 1.0 h at the latest, {UNLESS_TAKEN}",
        ),
    )


def test_without_another_request_that_fits_the_job_is_to_wait() -> None:
    (finding,) = found(make_gang(1), idle(0))

    assert finding.remedies == ("wait for running jobs to end",)


@pytest.mark.parametrize(
    ("settings", "tier", "words"),
    [
        (
            {"PreemptMode": "REQUEUE"},
            2,
            ("wait: Slurm can preempt 1 running job of partitions of a lower tier for it",),
        ),
        ({"PreemptMode": "REQUEUE"}, 1, ()),
        ({}, 2, ()),
    ],
)
def test_jobs_that_give_way_to_it_are_counted(settings: dict[str, str], tier: int, words: tuple[str, ...]) -> None:
    low, high = make_partition("low", nodes=("n1",)), make_partition("gpu", nodes=("n1",), priority_tier=tier)
    running = replace(make_job(2, gpus=8, running_on=["n1"], partitions=("low",)), end_time=TAKEN_AT + HOUR_S)
    snapshot = make_snapshot([make_job(1, gang=make_gang(8)), running], idle(0), partitions=[low, high])
    config = replace(snapshot.config, preempt_type="preempt/partition_prio", further_settings=settings)

    (finding,) = short(replace(snapshot, config=config))

    assert [remedy for remedy in finding.remedies if "preempt" in remedy] == [
        f"{text}, in its next passes (PreemptType)" for text in words
    ]


def test_job_that_cannot_begin_yet_is_not_said_to_fit_before() -> None:
    running = replace(make_job(2, gpus=8, running_on=["n1"]), end_time=TAKEN_AT + HOUR_S)
    late = make_job(1, gang=make_gang(8), eligible_time=TAKEN_AT + 3 * HOUR_S)
    dependent = make_job(1, gang=make_gang(8), dependency="afterok:2(unfulfilled)")

    (begins,), (depends,) = (short(make_snapshot([job, running], idle(0))) for job in (late, dependent))

    assert begins.evidence["fits_by_limits_time"] == TAKEN_AT + 3 * HOUR_S
    assert "fits_by_limits_time" not in depends.evidence


def test_job_that_insists_on_nodes_is_told_what_is_idle_there() -> None:
    pinned = make_gang(8, required_nodes=("n1",), nodes_max=1)

    (busy,) = found(pinned, idle(0, 8))
    (down,) = found(pinned, [make_node("n1", state="DOWN", reason="bad fan"), *idle(0, 8)[1:]])

    assert busy.cause is Cause.REQUIRED_NODES
    assert busy.text == "it insists on node n1 (--nodelist) for 8 GPUs on one node; 0 of 8 GPUs there are idle"
    assert "scontrol update JobId=1 ReqNodeList=" in busy.remedies[0]
    assert down.text == "it insists on node n1 (--nodelist), which is out of service (bad fan)"
    assert down.remedies[0] == "an operator: scontrol update NodeName=n1 State=RESUME"


def test_count_of_any_type_is_short_beside_one_that_is_not() -> None:
    pools = (GpuPool(gpu_type="a100", total=4), GpuPool(gpu_type="v100", total=4, used=4))
    gang = make_gang(per_job=(GpuCount(gpu_type="a100", count=3), GpuCount(count=3)))

    (finding,) = found(gang, [replace(make_node("n1"), gpus=pools)])

    assert finding.cause is Cause.GPUS
    assert finding.evidence == {"gpus_asked": 6, "gpus_idle": 4, "gpus_in_partition": 8, "gpus_short": 2}


def test_enough_gpus_in_the_wrong_places_are_fragmented() -> None:
    (finding,) = found(make_gang(8, nodes_max=1), idle(3, 4, 5, 0))

    assert finding == Obstacle(
        cause=Cause.FRAGMENTATION,
        text="enough GPUs are idle, but not as it asks for them: 8 GPUs on one node",
        evidence={
            "gpus_idle": 12,
            "nodes_with_idle_gpus": 3,
            "most_idle_on_one_node": 5,
            "most_idle_under_one_leaf": 7,
        },
        remedies=(
            "it fits now on 2 nodes: ask for --nodes=1-2",
            "it fits now with 5 GPUs in place of 8, if it can run on fewer",
        ),
    )


def test_flat_cluster_has_no_leaf_to_count_under() -> None:
    flat = replace(make_topology(), switches=())
    snapshot = make_snapshot([make_job(1, gang=make_gang(8, nodes_max=1))], idle(4, 4), topology=flat)

    (finding,) = short(snapshot)

    assert "most_idle_under_one_leaf" not in finding.evidence


def test_exclusive_gang_lacks_empty_nodes() -> None:
    (finding,) = found(make_gang(4, exclusive=True), idle(4, 7))

    assert finding.cause is Cause.FRAGMENTATION
    assert finding.text.endswith("4 GPUs, on nodes without other jobs")
    assert finding.remedies == ("it fits now if it may share its nodes: leave out --exclusive",)


def test_exclusive_is_no_way_out_where_the_partition_gives_whole_nodes() -> None:
    nodes = idle(4, 7)
    whole = replace(make_partition(nodes=[node.name for node in nodes]), over_subscribe="EXCLUSIVE")
    gang = make_gang(4, exclusive=True)

    (finding,) = short(make_snapshot([make_job(1, gang=gang)], nodes, partitions=[whole]))

    assert finding.cause is Cause.FRAGMENTATION
    assert finding.remedies == ("wait for running jobs to end",)


def test_cpus_that_a_partition_bounds_are_named_with_the_bound() -> None:
    nodes = [make_node("n1", used=4, cpus=32, cpus_used=12)]
    bounded = replace(make_partition(nodes=["n1"]), max_cpus_per_node=16)
    runs = make_job(2, gang=make_gang(4, cpus=12), running_on=["n1"], time_limit_s=None)

    (finding,) = short(make_snapshot([make_job(1, gang=make_gang(4, cpus=12)), runs], nodes, partitions=[bounded]))

    assert finding.text.endswith("; jobs of its partition hold at most 16 CPUs on a node (MaxCPUsPerNode)")


def test_gang_across_switches_that_nothing_joins_is_told_so() -> None:
    leaves = make_topology({"leaf1": ["n1", "n2"], "leaf2": ["n3", "n4"]})
    apart = replace(leaves, switches=tuple(switch for switch in leaves.switches if switch.level == 0))
    gang = make_gang(8, scope=GpuScope.NODE, nodes_min=2, nodes_max=2)

    (finding,) = short(make_snapshot([make_job(1, gang=gang)], idle(0, 8, 0, 8), topology=apart))

    assert finding.text.endswith("under switches that are joined; Slurm starts no job across others")


def test_gpus_per_socket_are_fragmented_unless_a_node_is_whole() -> None:
    (finding,) = found(make_gang(2, scope=GpuScope.SOCKET), idle(7, 7))

    assert finding.cause is Cause.FRAGMENTATION


BOTH = "GPUs are idle, but too few CPUs and too little memory beside them, for 2 GPUs"


@pytest.mark.parametrize(
    ("changes", "text", "remedies"),
    [
        pytest.param(
            {"cpus": 11},
            "GPUs are idle, but too few CPUs beside them, for 2 GPUs",
            ("it fits now with 10 CPUs in place of 11",),
            id="CPUs",
        ),
        pytest.param(
            {"cpus": 12, "tasks": 2, "nodes_max": 1},
            "GPUs are idle, but too few CPUs beside them, for 2 GPUs on one node",
            ("it fits now with 10 CPUs in place of 12",),
            id="CPUs of two tasks",
        ),
        pytest.param(
            {"memory_mib_per_node": 5120},
            "GPUs are idle, but too little memory beside them, for 2 GPUs",
            ("it fits now with 3 GiB of memory on each node, in place of 5 GiB",),
            id="memory",
        ),
        pytest.param(
            {"cpus": 16, "cpus_per_gpu": 8},
            "GPUs are idle, but too few CPUs beside them, for 2 GPUs",
            (
                "it fits now with 5 CPUs per GPU in place of 8",
                "it fits now with 1 GPU in place of 2, if it can run on fewer",
            ),
            id="CPUs per GPU",
        ),
        pytest.param({"cpus": 12, "memory_mib_per_node": 5120}, BOTH, ("wait for running jobs to end",), id="both"),
    ],
)
def test_idle_gpus_without_cpus_or_memory_beside_them_serve_nobody(
    changes: dict[str, int], text: str, remedies: tuple[str, ...]
) -> None:
    nodes = [make_node("n1", used=6, cpus_used=54, memory_mib=8192, memory_used_mib=4097), make_node("n2", used=8)]
    gang = replace(make_gang(2), **changes)  # type: ignore[arg-type]  # one table of fields

    (finding,) = found(gang, nodes)

    assert (finding.cause, finding.text, finding.remedies) == (Cause.CPUS_OR_MEMORY, text, remedies)
    assert finding.evidence["most_idle_cpus_there"] == 10
    assert finding.evidence["nodes_with_idle_gpus"] == 1


def test_partition_without_nodes_has_nothing_on_its_largest_node() -> None:
    partitions = [make_partition("gpu", nodes=()), make_partition("other", nodes=("n1",))]
    job = make_job(1, gang=make_gang(1, memory_mib_per_node=1))

    finding = impossible(case_of(make_snapshot([job], [make_node("n1", partitions=("other",))], partitions=partitions)))

    assert finding is not None
    largest = {name: value for name, value in finding.evidence.items() if name.endswith("_on_largest_node")}
    assert largest == {"gpus_on_largest_node": 0, "cpus_on_largest_node": 0, "memory_mib_on_largest_node": 0}


@pytest.mark.parametrize(("asked_mib", "idle_mib", "gib"), [(5120, 4096, 4), (2048, 1024, 1), (1536, 1535, 1)])
def test_most_memory_that_fits_is_told_in_whole_gib(asked_mib: int, idle_mib: int, gib: int) -> None:
    nodes = [make_node("n1", memory_mib=8192, memory_used_mib=8192 - idle_mib)]

    (finding,) = found(make_gang(2, memory_mib_per_node=asked_mib), nodes)

    assert finding.remedies[0].startswith(f"it fits now with {gib} GiB of memory on each node, in place of ")


def test_fewer_gpus_come_with_their_part_of_the_cpus() -> None:
    nodes = [make_node("n1", used=4, cpus_used=64 - 17)]

    (finding,) = found(replace(make_gang(4), cpus=32, cpus_per_gpu=8), nodes)

    assert finding.remedies[1] == "it fits now with 2 GPUs in place of 4, if it can run on fewer"


def test_less_than_a_gib_of_memory_is_not_worth_a_word() -> None:
    nodes = [make_node("n1", memory_mib=8192, memory_used_mib=7692)]

    (finding,) = found(make_gang(2, memory_mib_per_node=5000), nodes)

    assert finding.evidence["most_idle_memory_mib_there"] == 500
    assert finding.remedies == ("wait for running jobs to end",)


@pytest.mark.parametrize(
    ("gang", "text"),
    [
        pytest.param(make_gang(0, cpus=20), "too few CPUs or too little memory are idle for 20 CPUs", id="shared"),
        pytest.param(make_gang(0, exclusive=True), "too few nodes are empty for 1 CPU", id="exclusive"),
    ],
)
def test_job_without_gpus_lacks_cpus_or_memory(gang: GangRequest, text: str) -> None:
    (finding,) = found(gang, [make_node("n1", 0, cpus_used=60)])

    assert (finding.cause, finding.text) == (Cause.CPUS_OR_MEMORY, text)
    assert finding.evidence == {"cpus_asked": gang.cpus, "most_idle_cpus_there": 4}


def test_nodes_out_of_service_come_first_where_nothing_else_would_do() -> None:
    nodes = [
        make_node("n1", used=8),
        make_node("n2", state="DOWN", reason="bad fan\x1b[31m"),
        make_node("n3", flags=("DRAIN",), reason="bad fan\x1b[31m"),
        make_node("n4", 0, state="DOWN"),
    ]

    first, second = found(make_gang(16), nodes)

    assert first == Obstacle(
        cause=Cause.NODES_UNAVAILABLE,
        text="2 nodes of its partitions are out of service: n2,n3 (bad fan\x1b[31m); it does not fit without them, "
        "even if every running job ended",
        evidence={
            "nodes_unavailable": 2,
            "gpus_on_them": 16,
            "nodes": "n2,n3",
            "their_reasons": "bad fan\x1b[31m",
            "nodes_to_resume": "n2,n3",
        },
        remedies=("an operator: scontrol update NodeName=n2,n3 State=RESUME",),
    )
    assert second.cause is Cause.GPUS


def test_nodes_out_of_service_come_last_where_running_jobs_could_make_room() -> None:
    first, second = found(make_gang(8), [make_node("n1", used=8), make_node("n2", state="DOWN")])

    assert (first.cause, second.cause) == (Cause.GPUS, Cause.NODES_UNAVAILABLE)
    assert second.text == "1 node of its partitions is out of service: n2; with it back it would fit now"
    assert "their_reasons" not in second.evidence


def test_closed_nodes_that_would_not_help_are_not_blamed() -> None:
    (finding,) = found(make_gang(8), [make_node("n1", used=8), make_node("n2", used=8, state="DOWN")])

    assert finding.cause is Cause.GPUS


def test_cpu_job_may_miss_nodes_out_of_service() -> None:
    first, second = found(make_gang(0, cpus=65), [make_node("n1", 0), make_node("n2", 0, state="DOWN")])

    assert (first.cause, second.cause) == (Cause.NODES_UNAVAILABLE, Cause.CPUS_OR_MEMORY)


PER_NODE = make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=2)


@pytest.mark.parametrize(
    ("gang", "nodes", "remedies"),
    [
        pytest.param(
            PER_NODE,
            idle(3, 5),
            (
                "it fits now if its GPUs may be split unevenly over nodes: --gpus=8 in place of a count per node",
                "it fits now with 3 GPUs on each node in place of 4, if it can run on fewer",
            ),
            id="split left open",
        ),
        pytest.param(
            replace(PER_NODE, per_node=(GpuCount(gpu_type="a100", count=4), GpuCount(count=1))),
            idle(3, 7, gpu_type="a100"),
            ("it fits now if its GPUs may be split unevenly over nodes: --gpus=a100:8,2 in place of a count per node",),
            id="split left open, with a type",
        ),
        pytest.param(
            make_gang(2, scope=GpuScope.TASK, tasks=4, nodes_max=1),
            idle(4, 4),
            ("it fits now on 2 nodes: ask for --nodes=1-2",),
            id="tasks over nodes",
        ),
        pytest.param(
            make_gang(6, nodes_max=2),
            idle(1, 1, 1, 1, 1, 2),
            (
                "it fits now on 5 nodes: ask for --nodes=1-5",
                "it fits now with 3 GPUs in place of 6, if it can run on fewer",
            ),
            id="fewest nodes",
        ),
        pytest.param(
            make_gang(2, excluded_nodes=("n1",)),
            idle(2, 0),
            ("it fits now on the nodes it excludes (--exclude): scontrol update JobId=1 ExcNodeList=",),
            id="excluded",
        ),
        pytest.param(
            make_gang(2, required_nodes=("n2",)),
            idle(2, 0),
            ("it fits now on other nodes than those of --nodelist: scontrol update JobId=1 ReqNodeList=",),
            id="required",
        ),
        pytest.param(make_gang(2, nodes_max=2), idle(0, 0), (), id="nothing helps"),
        pytest.param(make_gang(2, gpu_type="a100"), idle(0, gpu_type="a100"), (), id="nor another type"),
        pytest.param(replace(make_gang(2), cpus_per_gpu=2), idle(0, 0), (), id="nor fewer CPUs per GPU"),
        pytest.param(make_gang(2, scope=GpuScope.NODE, cpus=3, memory_mib_per_node=9), idle(0, 0), (), id="nothing"),
    ],
)
def test_changes_of_the_request_are_named_if_they_would_fit(
    gang: GangRequest, nodes: list[Node], remedies: tuple[str, ...]
) -> None:
    (finding,) = found(gang, nodes)

    named = [remedy for remedy in finding.remedies if remedy.startswith("it fits now")]
    assert tuple(named) == remedies


@pytest.mark.parametrize(
    ("gang", "text", "evidence"),
    [
        pytest.param(
            make_gang(9, nodes_max=1, memory_mib_per_node=7),
            "9 GPUs on one node",
            {
                "gpus_in_partition": 16,
                "gpus_on_largest_node": 8,
                "cpus_asked": 1,
                "cpus_on_largest_node": 64,
                "memory_mib_asked_per_node": 7,
                "memory_mib_on_largest_node": 512_000,
            },
            id="one node",
        ),
        pytest.param(
            make_gang(1, gpu_type="h100"),
            "1 h100 GPU",
            {
                "h100_gpus_in_partition": 0,
                "h100_gpus_on_largest_node": 0,
                "cpus_asked": 1,
                "cpus_on_largest_node": 64,
            },
            id="type that no node has",
        ),
        pytest.param(make_gang(0, cpus=500), "500 CPUs", {"cpus_asked": 500, "cpus_on_largest_node": 64}, id="CPUs"),
    ],
)
def test_request_beyond_all_nodes_is_impossible(gang: GangRequest, text: str, evidence: dict[str, int]) -> None:
    snapshot = make_snapshot([make_job(1, gang=gang)], idle(0, 0))

    (finding,) = worded(snapshot, [impossible(case_of(snapshot))])

    assert finding.text == f"no nodes of its partitions are enough for {text}, even empty"
    assert finding.evidence == evidence


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job(1, gang=make_gang(16)), id="possible"),
        pytest.param(make_job(1, gang=make_gang(17), partitions=()), id="no partition"),
        pytest.param(make_job(1, gang=make_gang(17), partitions=("gpu", "?")), id="partition unknown"),
        pytest.param(make_job(1, gang=make_gang(0, cpus=999, gpus_known=False)), id="GPUs unknown"),
    ],
)
def test_nothing_is_called_impossible_on_half_knowledge(job: Job) -> None:
    assert impossible(case_of(make_snapshot([job], idle(0, 0)))) is None


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (make_gang(1), "1 GPU"),
        (make_gang(8, gpu_type="a100", nodes_max=1), "8 a100 GPUs on one node"),
        (make_gang(8, nodes_max=3), "8 GPUs on at most 3 nodes"),
        (make_gang(4, scope=GpuScope.NODE), "4 GPUs on one node"),
        (make_gang(4, scope=GpuScope.NODE, nodes_min=2), "4 GPUs on each of 2 nodes"),
        (make_gang(1, scope=GpuScope.TASK), "1 GPU for one task"),
        (make_gang(2, scope=GpuScope.TASK, tasks=3, nodes_max=1), "2 GPUs for each of 3 tasks on one node"),
        (make_gang(2, scope=GpuScope.SOCKET), "2 GPUs on each socket"),
        (make_gang(0, cpus=4, nodes_max=1), "4 CPUs on one node"),
        (make_gang(per_job=(GpuCount(gpu_type="a100", count=2), GpuCount(count=1))), "2 a100 GPUs and 1 GPU"),
    ],
)
def test_request_reads_as_a_phrase(gang: GangRequest, words: str) -> None:
    assert asked_in_words(gang) == words


def test_slice_is_not_advised_in_place_of_a_whole_gpu() -> None:
    nodes = [make_node("n1", used=8, gpu_type="b200"), make_node("n2", gpu_type="b200_1g.23gb")]

    (lacking,) = found(make_gang(1, gpu_type="b200"), nodes)

    assert lacking.cause is Cause.GPUS
    assert not any("any type" in remedy for remedy in lacking.remedies)


def test_node_that_comes_back_by_itself_is_no_work_for_an_operator() -> None:
    nodes = [make_node("n1", used=8), make_node("n2", flags=("POWERING_DOWN",))]

    coming = next(each for each in found(make_gang(8), nodes) if each.cause is Cause.NODES_UNAVAILABLE)

    assert coming.text == "1 node of its partitions takes no jobs yet: n2 (IDLE+POWERING_DOWN); it fits with it"
    assert coming.remedies == ("wait: Slurm takes them into use again without an operator; their state: sinfo -N -l",)


def test_node_that_slurmctld_would_not_resume_is_not_advised_to_be() -> None:
    nodes = [make_node("n1", used=8), make_node("n2", state="DOWN", flags=("NOT_RESPONDING",))]

    gone = next(each for each in found(make_gang(8), nodes) if each.cause is Cause.NODES_UNAVAILABLE)

    assert not any("RESUME" in remedy for remedy in gone.remedies)


def test_insisting_on_a_node_that_comes_back_is_a_wait() -> None:
    gang = make_gang(8, required_nodes=("n2",), nodes_max=1)

    (insists,) = found(gang, [make_node("n1", used=8), make_node("n2", flags=("NOT_RESPONDING",))])

    assert (
        insists.text == "it insists on node n2 (--nodelist), of which node n2 takes no jobs yet (IDLE+NOT_RESPONDING)"
    )


def test_job_is_not_impossible_where_powered_down_nodes_are_hidden() -> None:
    config = replace(make_config(), slurm_version="22.05.8", further_settings={"SuspendTime": "600"})
    job = make_job(1, gang=make_gang(16), start_time=TAKEN_AT + 7200.0)
    snapshot = replace(make_snapshot([job], [make_node("n1")]), config=config)

    (hidden,) = short(snapshot)

    assert hidden.cause is Cause.NODES_UNAVAILABLE
    assert "others are powered down and hidden (PrivateData has no cloud); Slurm expects a start at" in hidden.text
    assert impossible(case_of(snapshot)) is None
    assert impossible(case_of(replace(snapshot, config=replace(config, private_data=("cloud",))))) is not None
