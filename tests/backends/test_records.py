from collections.abc import Mapping

import pytest

from advisor.backends.records import (
    DEPENDENCY_LENGTH,
    JobRecord,
    NodeRecord,
    UnreadJob,
    jobs_and_unread,
    jobs_of,
    node_of,
)
from advisor.backends.tres import Gres, Tres
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Job, JobState
from advisor.domain.node import Node
from advisor.errors import DecodeError

A100 = Gres(name="gpu", gres_type="a100", count=8)
V100 = Gres(name="gpu", gres_type="v100", count=8)


def node(*gres: Gres, **changes: object) -> Node:
    values = {"name": "n01", "states": ("MIXED",), "cpus": 16, "cpus_used": 4, "memory_mib": 64000, **changes}
    return node_of(NodeRecord(memory_used_mib=0, gres=gres, **values))  # type: ignore[arg-type]  # as in `record`


def test_other_resources_of_a_node_stand_beside_those_in_use() -> None:
    whole = [Gres(name="lustre", gres_type=None, count=4), Gres(name="mem", gres_type="hbm", count=80)]

    made = node(A100, *whole, gres_used=(Gres(name="lustre", gres_type=None, count=1),))

    assert [(pool.name, pool.gres_type, pool.total, pool.used) for pool in made.gres] == [
        ("lustre", None, 4, 1),
        ("mem", "hbm", 80, 0),
    ]


NODES = (node(A100), node(A100, name="n02"), node(V100, name="n03"))


def record(**changes: object) -> JobRecord:
    values: dict[str, object] = {"job_id": 7, "state": "PENDING", "submit_time": 1000.0, **changes}
    return JobRecord(**values)  # type: ignore[arg-type]  # the table of values is checked by the dataclass itself


def job(**changes: object) -> Job:
    (made,) = jobs_of([record(**changes)], NODES)
    return made


def requests(scope: GpuScope, count: int, gres_type: str | None = None) -> Mapping[GpuScope, tuple[Gres, ...]]:
    return {scope: (Gres(name="gpu", gres_type=gres_type, count=count),)}


EIGHT, TWELVE = requests(GpuScope.JOB, 8), requests(GpuScope.JOB, 12)
CPU_PER_GPU = (Gres(name="gpu", gres_type=None, count=1),)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("PENDING", JobState.PENDING),
        ("RUNNING", JobState.RUNNING),
        ("CONFIGURING", JobState.RUNNING),
        ("SUSPENDED", JobState.SUSPENDED),
        ("COMPLETING", JobState.COMPLETING),
        ("REQUEUED", JobState.PENDING),
        ("RESV_DEL_HOLD", JobState.PENDING),
        ("EXPEDITING", JobState.PENDING),
        ("REVOKED", JobState.OTHER),
    ],
)
def test_state_is_that_of_the_word_slurm_prints(word: str, state: JobState) -> None:
    assert job(state=word).state is state


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"])
def test_jobs_that_ended_are_left_out(state: str) -> None:
    assert jobs_of([record(state=state)], NODES) == ()


def test_jobs_come_by_id() -> None:
    made = jobs_of([record(job_id=9), record(job_id=3), record(job_id=7)], NODES)

    assert [each.job_id for each in made] == [3, 7, 9]


@pytest.mark.parametrize(
    ("changes", "node_range"),
    [
        ({"nodes_shown": 1, "nodes_max": 0, "tres": Tres(nodes=1)}, (1, 1)),
        ({"nodes_shown": 2, "nodes_max": 0, "tres": Tres(nodes=1)}, (1, 2)),
        ({"nodes_shown": 4, "nodes_max": 4, "tres": Tres(nodes=2)}, (2, 4)),
        ({"nodes_shown": 2, "nodes_max": 6, "tres": Tres(nodes=2)}, (2, 6)),
        ({"nodes_shown": 3, "nodes_max": 0}, (3, 3)),
        ({"state": "RUNNING", "nodes_shown": 3, "nodes_max": 8, "tres": Tres(nodes=3)}, (3, 3)),
    ],
    ids=["open, one will do", "open, one will not", "-N2-4", "-N2-6", "no TRES", "running"],
)
def test_node_range_is_the_cautious_reading(changes: dict[str, object], node_range: tuple[int, int]) -> None:
    gang = job(**changes).gang

    assert (gang.nodes_min, gang.nodes_max) == node_range


@pytest.mark.parametrize(
    ("scope", "cpus", "uncounted"),
    [(GpuScope.TASK, 5, ("--mincpus",)), (GpuScope.TASK, 6, ()), (GpuScope.JOB, 5, ()), (GpuScope.TASK, 0, ())],
)
def test_more_cpus_of_a_node_than_tasks_with_gpus_take_are_in_doubt(
    scope: GpuScope, cpus: int, uncounted: tuple[str, ...]
) -> None:
    assert job(requests=requests(scope, 1), cpus=cpus, cpus_per_node=6).gang.uncounted == uncounted


@pytest.mark.parametrize(
    ("cpus_per_node", "changes", "is_doubted"),
    [
        pytest.param(6, {}, True, id="no whole tasks"),
        pytest.param(8, {}, False, id="two tasks"),
        pytest.param(4, {}, False, id="filled in"),
        pytest.param(1, {}, False, id="not asked"),
        pytest.param(6, {"cpus": 4, "tres": Tres(nodes=2)}, True, id="range of nodes"),
        pytest.param(4, {"cpus": 4, "tres": Tres(nodes=2)}, False, id="range of nodes, filled in"),
        pytest.param(8, {"requests": requests(GpuScope.TASK, 1)}, True, id="GPUs of tasks"),
        pytest.param(4, {"requests": requests(GpuScope.TASK, 1)}, False, id="GPUs of tasks, filled in"),
        pytest.param(6, {"nodes_max": 1, "nodes_shown": 1}, False, id="one node"),
        pytest.param(16, {"tasks_per_node": 2, "nodes_max": 1, "nodes_shown": 1}, True, id="tasks of a node"),
        pytest.param(8, {"tasks_per_node": 2}, False, id="tasks of a node, filled in"),
    ],
)
def test_least_cpus_of_several_nodes_are_in_doubt_unless_they_are_those_of_whole_tasks(
    cpus_per_node: int, changes: dict[str, object], *, is_doubted: bool
) -> None:
    asked = {"nodes_shown": 2, "nodes_max": 2, "tasks": 2, "cpus": 8, "requests": requests(GpuScope.NODE, 1), **changes}

    gang = job(cpus_per_node=cpus_per_node, **asked).gang

    assert gang.uncounted == (("--mincpus",) if is_doubted else ())
    assert gang.cpus_per_node == (1 if is_doubted else cpus_per_node)


@pytest.mark.parametrize(("eligible_time", "expected"), [(None, (2, 4)), (1000.0, (3, 6))])
def test_tasks_that_no_node_takes_count_unless_slurm_has_yet_to_check_the_request(
    eligible_time: float | None, expected: tuple[int, int]
) -> None:
    gang = job(nodes_max=1, tasks=3, cpus=6, tasks_per_node=2, eligible_time=eligible_time).gang

    assert (gang.tasks, gang.cpus) == expected


@pytest.mark.parametrize(
    ("scope", "tasks", "uncounted"),
    [
        (GpuScope.TASK, 3, ("--ntasks-per-node",)),
        (GpuScope.TASK, 4, ()),
        (GpuScope.JOB, 3, ("--ntasks-per-node",)),
        (GpuScope.NODE, 3, ()),
        (GpuScope.JOB, 1, ("--ntasks-per-node",)),
    ],
)
def test_unequal_numbers_of_tasks_with_gpus_are_in_doubt(
    scope: GpuScope, tasks: int, uncounted: tuple[str, ...]
) -> None:
    assert job(requests=requests(scope, 1), cpus=tasks, tasks=tasks, tasks_per_node=2).gang.uncounted == uncounted


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, ((1, 2), True, ("--ntasks",)), id="one task"),
        pytest.param({"tasks": 2}, ((1, 2), True, ()), id="two tasks"),
        pytest.param({"cpus_per_gres": CPU_PER_GPU}, ((1, 2), True, ()), id="CPUs with GPUs"),
        pytest.param({"requests": EIGHT}, ((1, 2), True, ()), id="one node holds it"),
        pytest.param({"nodes_max": 4, "nodes_open": False}, ((1, 4), False, ()), id="range"),
    ],
)
def test_one_task_with_more_gpus_than_a_node_has_is_in_doubt(
    changes: dict[str, object], expected: tuple[tuple[int, int], bool, tuple[str, ...]]
) -> None:
    made = record(**{"requests": TWELVE, "nodes_shown": 2, "nodes_open": True, "tres": Tres(nodes=1), **changes})

    [read], _ = jobs_and_unread([made], NODES, hides_lone_tasks=True)
    [elsewhere], _ = jobs_and_unread([made], NODES)

    gang = read.gang
    assert ((gang.nodes_min, gang.nodes_max), gang.nodes_open, gang.uncounted) == expected
    assert elsewhere.gang.uncounted == ()


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        pytest.param({"nodes_open": True, "requests": EIGHT}, True, id="the source knows"),
        pytest.param({"nodes_open": False, "requests": TWELVE}, False, id="the source knows that it is fixed"),
        pytest.param({"requests": TWELVE}, True, id="more than a node has"),
        pytest.param({"requests": EIGHT}, False, id="one node may be meant"),
        pytest.param({"requests": TWELVE, "nodes_shown": 2, "nodes_max": 2}, True, id="an estimate above the least"),
        pytest.param({"requests": TWELVE, "nodes_shown": 2, "nodes_max": 4}, False, id="a range"),
        pytest.param({"requests": TWELVE, "nodes_shown": 2, "tres": Tres(nodes=2)}, False, id="-N2"),
        pytest.param({"requests": requests(GpuScope.TASK, 5), "tasks": 2}, True, id="tasks on several nodes"),
        pytest.param({"requests": TWELVE, "state": "RUNNING"}, False, id="running"),
    ],
)
def test_an_estimate_of_slurm_is_no_request(changes: dict[str, object], is_open: bool) -> None:
    changes = {"tres": Tres(nodes=1)} | changes

    assert job(**changes).gang.nodes_open is is_open


@pytest.mark.parametrize(
    ("tres", "memory_mib"),
    [(Tres(memory_mib=4000, nodes=2), 2000), (Tres(memory_mib=4000), 4000), (Tres(nodes=2), None)],
)
def test_memory_is_per_node_or_unknown(tres: Tres, memory_mib: int | None) -> None:
    assert job(tres=tres).gang.memory_mib_per_node == memory_mib


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"requests": requests(GpuScope.NODE, 4), "nodes": ("n01", "n02")}, (GpuCount(gpu_type="a100", count=8),)),
        ({"requests": requests(GpuScope.NODE, 4), "nodes": ("n01", "n03")}, (GpuCount(count=8),)),
        ({"requests": requests(GpuScope.NODE, 4, "v100"), "nodes": ("n03",)}, (GpuCount(gpu_type="v100", count=4),)),
        ({"requests": requests(GpuScope.JOB, 3), "nodes": ("n01",)}, (GpuCount(gpu_type="a100", count=3),)),
        (
            {"requests": requests(GpuScope.TASK, 1), "nodes": ("n01",), "tasks": 6},
            (GpuCount(gpu_type="a100", count=6),),
        ),
        ({"requests": requests(GpuScope.SOCKET, 1), "nodes": ("n01",)}, ()),
        ({"requests": requests(GpuScope.NODE, 4), "nodes": ("gone",)}, (GpuCount(count=4),)),
        (
            {"exclusive": True, "nodes": ("n01", "n03")},
            (GpuCount(gpu_type="a100", count=8), GpuCount(gpu_type="v100", count=8)),
        ),
        ({"gpus_known": False, "nodes": ("n01",)}, ()),
        ({"nodes": ("n01",)}, ()),
        (
            {"exclusive": True, "nodes": ("n01",), "tres": Tres(gpus=(GpuCount(count=2),))},
            (GpuCount(gpu_type="a100", count=2),),
        ),
        (
            {"nodes": ("n01", "n03"), "tres": Tres(gpus=(GpuCount(count=1), GpuCount(gpu_type="v100", count=4)))},
            (GpuCount(count=1), GpuCount(gpu_type="v100", count=4)),
        ),
    ],
    ids=[
        "per node",
        "two types",
        "typed",
        "per job",
        "per task",
        "per socket",
        "unknown node",
        "exclusive",
        "not told",
        "no GPUs",
        "counted by Slurm",
        "counted by type",
    ],
)
def test_allocated_gpus_are_worked_out(changes: dict[str, object], gpus: tuple[GpuCount, ...]) -> None:
    allocation = job(state="RUNNING", **changes).allocation

    assert allocation is not None
    assert allocation.gpus == gpus


@pytest.mark.parametrize(
    ("changes", "end_time"),
    [
        ({"state": "RUNNING", "limit_s": 60.0}, 5000.0),
        ({"state": "RUNNING", "limit_s": None}, None),
        ({"state": "RUNNING", "limit_s": 400 * 86400.0}, None),
        ({"state": "PENDING", "limit_s": 60.0}, None),
    ],
    ids=["limited", "unlimited", "above a year", "pending"],
)
def test_end_is_known_of_started_jobs_with_a_limit(changes: dict[str, object], end_time: float | None) -> None:
    assert job(end_time=5000.0, **changes).end_time == end_time


@pytest.mark.parametrize(
    ("changes", "held"),
    [({"priority": 0}, True), ({"priority": 5}, False), ({}, False), ({"priority": 0, "state": "RUNNING"}, False)],
)
def test_priority_zero_of_a_pending_job_is_a_hold(changes: dict[str, object], held: bool) -> None:
    assert job(**changes).held is held


def test_switches_are_asked_for_only_by_a_count() -> None:
    assert job(switch_count=1, switch_wait_s=60.0).gang.switches == SwitchRequest(count=1, max_wait_s=60.0)
    assert job(switch_count=0, switch_wait_s=60.0).gang.switches is None
    assert job().gang.switches is None
    assert job(switch_count=1).gang.switches == SwitchRequest(count=1, max_wait_s=0.0)


def test_shares_are_never_whole_gpus() -> None:
    gang = job(requests={GpuScope.NODE: (Gres(name="shard", gres_type=None, count=4),)}).gang

    assert not gang.wants_gpus
    assert [(share.kind, share.count) for share in gang.shares] == [("shard", 4)]


@pytest.mark.parametrize(
    ("states", "cpus_used", "state", "flags"),
    [
        (("ALLOCATED", "DRAIN"), 4, "MIXED", ("DRAIN",)),
        (("ALLOCATED", "DRAIN"), 16, "ALLOCATED", ("DRAIN",)),
        (("ALLOCATED",), 14, "ALLOCATED", ()),
        (("IDLE", "PLANNED", "DRAIN"), 0, "IDLE", ("DRAIN", "PLANNED")),
        ((), 0, "UNKNOWN", ()),
    ],
)
def test_node_state_is_a_base_and_flags(
    states: tuple[str, ...], cpus_used: int, state: str, flags: tuple[str, ...]
) -> None:
    made = node(states=states, cpus_used=cpus_used)

    assert (made.state, made.flags) == (state, flags)


@pytest.mark.parametrize(("reason", "shown"), [("none", ""), ("(null)", ""), ("ECC error", "ECC error")])
def test_node_without_a_reason_has_none(reason: str, shown: str) -> None:
    assert node(reason=reason).reason == shown


DEPENDENCY = ",".join(f"afterany:{job_id}(unfulfilled)" for job_id in range(1, 100))
# Of which a part ends right behind what squeue prints.
SHORT_PARTS = "afterany:" + ":".join(str(job_id) for job_id in range(1_000_000, 1_000_099))


@pytest.mark.parametrize("text", [DEPENDENCY, SHORT_PARTS])
@pytest.mark.parametrize("length", [0, 10, 63, 64, 65, 66, 1000])
def test_dependency_that_squeue_cut_reads_as_the_whole_one(text: str, length: int) -> None:
    whole = text[:length]

    assert job(dependency=whole).dependency == job(dependency=whole[:DEPENDENCY_LENGTH]).dependency


def test_long_dependency_ends_after_a_whole_part() -> None:
    assert job(dependency=DEPENDENCY).dependency == "afterany:1(unfulfilled),afterany:2(unfulfilled),afterany:..."
    assert job(dependency=DEPENDENCY[:47]).dependency == "afterany:1(unfulfilled),afterany:2(unfulfilled)"


def test_jobs_that_cannot_be_read_are_listed_beside_the_others() -> None:
    unread = UnreadJob(job_id=9, why="its row is too long")
    late = record(job_id=5, submit_time=None)

    jobs, others = jobs_and_unread([record(job_id=8), unread, late, record(job_id=9), record(job_id=3)], NODES)

    assert [made.job_id for made in jobs] == [3, 8]
    assert others == (
        UnreadJob(job_id=5, why="Slurm gives no submit time for job 5: try another --source"),
        unread,
    )


def test_one_job_that_cannot_be_read_is_an_error_where_all_are_wanted() -> None:
    with pytest.raises(DecodeError, match="its row is too long"):
        jobs_of([record(), UnreadJob(job_id=9, why="its row is too long")], NODES)


@pytest.mark.parametrize(("eligible_time", "is_open"), [(None, True), (1000.0, False)])
def test_node_count_of_a_held_job_that_slurm_has_not_checked_is_an_estimate(
    eligible_time: float | None, *, is_open: bool
) -> None:
    asked = {"priority": 0, "nodes_shown": 1, "nodes_max": 1, "requests": requests(GpuScope.TASK, 1), "tasks": 3}

    assert job(**asked, eligible_time=eligible_time).gang.nodes_open is is_open


@pytest.mark.parametrize(("required", "gpus", "is_open"), [(("n01",), 12, True), (("n01",), 8, False), ((), 12, False)])
def test_most_nodes_that_are_the_required_ones_can_be_an_estimate(
    required: tuple[str, ...], gpus: int, *, is_open: bool
) -> None:
    asked = {"nodes_max": 1, "nodes_open": False, "eligible_time": 1000.0, "requests": requests(GpuScope.JOB, gpus)}

    assert job(**asked, required_nodes=required).gang.nodes_open is is_open
