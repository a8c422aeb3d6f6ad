"""Gangs that starve, who has passed them, and what jobs that are scattered cost them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.diagnose.starving import Passing, passing, scattered, starved
from advisor.domain.gang import GangRequest, GpuScope
from advisor.domain.job import Job
from advisor.domain.outcome import JobOutcome
from advisor.domain.snapshot import Snapshot
from tests.builders import (
    DAY_S,
    HOUR_S,
    TAKEN_AT,
    gpu_counts,
    make_config,
    make_gang,
    make_job,
    make_nodes,
    make_partition,
    make_snapshot,
)
from tests.examples import examples

BOUND_S = 2 * DAY_S
NODES = ("n01", "n02", "n03", "n04")
GANG = make_gang(8, scope=GpuScope.NODE, nodes_min=2, nodes_max=2)
WAITING = make_job(1, gang=GANG, user="ada", submitted_ago_s=4 * DAY_S, time_limit_s=12 * HOUR_S)


def ended(ago_s: float, lasted_s: float, gpus: int = 8, **others: object) -> JobOutcome:
    """Return a run that began some time ago, of a job of another user that became eligible right then."""
    begun = TAKEN_AT - ago_s
    times = {"submit_time": begun, "eligible_time": begun, "start_time": begun, "last_start_time": begun}
    facts = {"job_id": 9, "user": "ben", "gpus": gpus, "nodes": ("n01",), "end_time": begun + lasted_s} | times | others
    return JobOutcome(**facts)  # type: ignore[arg-type]  # a test's own


def test_a_gang_starves_from_when_later_jobs_of_others_have_had_what_it_asks_for() -> None:
    late = make_job(2, gpus=8, user="eve", running_on=["n02"], submitted_ago_s=HOUR_S)

    [gang] = starved(make_snapshot([WAITING, late]), [ended(3.5 * DAY_S, DAY_S), ended(DAY_S, 8 * HOUR_S)], BOUND_S)

    # It asks for 16 GPUs times 12 hours: the first run had that after 24, before the bound of two days.
    assert (gang.job_id, gang.gpus, gang.work_gpu_s) == (1, 16, 192 * HOUR_S)
    assert gang.passed_gpu_s == (192 + 64 + 4) * HOUR_S
    assert (gang.passed_by, gang.users, gang.since_time) == (3, 2, TAKEN_AT - 2 * DAY_S)


@pytest.mark.parametrize(
    ("job", "runs"),
    [
        pytest.param(replace(WAITING, eligible_time=TAKEN_AT - DAY_S), [ended(0.9 * DAY_S, 0.9 * DAY_S, 99)], id="new"),
        pytest.param(WAITING, [ended(3 * DAY_S, DAY_S, 7)], id="too little has passed"),
        pytest.param(WAITING, [ended(5 * DAY_S, 5 * DAY_S)], id="the others were there before"),
        pytest.param(WAITING, [ended(3 * DAY_S, 2 * DAY_S, eligible_time=0.0)], id="the others are older"),
        pytest.param(WAITING, [ended(3 * DAY_S, 2 * DAY_S, user="ada")], id="its own user"),
        pytest.param(WAITING, [ended(3 * DAY_S, 2 * DAY_S, nodes=("x1",))], id="other nodes"),
        pytest.param(WAITING, [ended(3 * DAY_S, 2 * DAY_S, nodes=())], id="nodes that are not known"),
        pytest.param(replace(WAITING, held=True), [ended(3 * DAY_S, 2 * DAY_S)], id="held"),
        pytest.param(replace(WAITING, dependency="afterok:7"), [ended(3 * DAY_S, 2 * DAY_S)], id="dependent"),
        pytest.param(replace(WAITING, reason="QOSGrpGRES"), [ended(3 * DAY_S, 2 * DAY_S)], id="at a limit"),
        pytest.param(replace(WAITING, gang=make_gang(1)), [ended(3 * DAY_S, 2 * DAY_S)], id="no gang"),
    ],
)
def test_a_gang_that_nobody_passes_by_so_much_does_not_starve(job: Job, runs: list[JobOutcome]) -> None:
    assert starved(make_snapshot([job]), runs, BOUND_S) == ()


@st.composite
def _passed(draw: st.DrawFn) -> list[JobOutcome]:
    begins = st.floats(0.0, 3.9 * DAY_S)
    drawn = draw(st.lists(st.tuples(begins, st.floats(60.0, DAY_S), st.integers(1, 8)), max_size=12))
    return [ended(ago, min(lasted, ago), gpus, user=f"u{gpus}") for ago, lasted, gpus in drawn]


@given(_passed(), st.floats(0.5, 48.0))
@settings(max_examples=examples(200), deadline=None)
def test_from_since_on_others_have_had_as_much_and_not_before(runs: list[JobOutcome], limit_h: float) -> None:
    snapshot = make_snapshot([replace(WAITING, time_limit_s=limit_h * HOUR_S)])
    work_gpu_s = 16 * limit_h * HOUR_S

    def had(time: float) -> float:
        return sum(
            max(0.0, min(run.end_time or 0.0, time) - (run.start_time or 0.0)) * run.gpus
            for run in runs
        )  # fmt: skip

    found = starved(snapshot, runs, BOUND_S)

    assert bool(found) == (had(TAKEN_AT) >= work_gpu_s - 1e-3)
    for gang in found:
        assert gang.passed_gpu_s == pytest.approx(had(TAKEN_AT))
        assert gang.since_time >= TAKEN_AT - 2 * DAY_S and had(gang.since_time) >= work_gpu_s * (1 - 1e-6) - 16.0
        if gang.since_time > TAKEN_AT - 2 * DAY_S:
            assert had(gang.since_time) == pytest.approx(work_gpu_s, abs=16.0)


def test_what_would_end_it_names_settings_users_and_nodes() -> None:
    parameters = {"bf_max_job_test": "1", "bf_min_age_reserve": "604800", "bf_window": "60"}
    parameters |= {"bf_job_part_count_reserve": "2", "bf_min_prio_reserve": "9000"}
    first = make_job(5, priority=9000)
    jobs = [
        WAITING,
        first,
        make_job(2, gpus=8, user="eve", running_on=["n01"], submitted_ago_s=HOUR_S, time_limit_s=9 * HOUR_S),
        make_job(3, gpus=3, user="eve", running_on=["n02"], submitted_ago_s=HOUR_S, time_limit_s=8 * HOUR_S),
        make_job(4, gpus=1, user="ben", running_on=["n03"], submitted_ago_s=HOUR_S, time_limit_s=7 * HOUR_S),
        make_job(6, gpus=8, user="old", running_on=["n04"], submitted_ago_s=9 * DAY_S, time_limit_s=9 * DAY_S),
    ]

    seen = passing(make_snapshot(jobs, config=make_config(scheduler_parameters=parameters)), WAITING)
    open_one = passing(make_snapshot([replace(WAITING, gang=make_gang(16))]), replace(WAITING, gang=make_gang(16)))

    assert seen == Passing(
        running=(("eve", 2, 11), ("ben", 1, 1)),
        planned_time=None,
        fits_time=TAKEN_AT + 7.5 * HOUR_S,
        depth=1,
        low=9000,
        young_s=7 * DAY_S,
        kept=2,
        window_s=HOUR_S,
        nodes=("n02", "n03"),
    )
    assert (open_one.depth, open_one.low, open_one.young_s, open_one.kept, open_one.window_s) == (None,) * 5
    assert open_one.nodes == ()


def spread(used: list[int], *jobs: Job) -> Snapshot:
    """Return a queue on nodes on which jobs of one GPU hold some GPUs each."""
    running = [
        make_job(100 + 10 * place + number, running_on=[name])
        for place, (name, count) in enumerate(zip(NODES, used, strict=True))
        for number in range(count)
    ]
    return make_snapshot([*running, *jobs], make_nodes(NODES, running), partitions=[make_partition(nodes=NODES)])


def pending(job_id: int, gang: GangRequest, **others: int) -> Job:
    return make_job(job_id, gang=gang, reason="Resources", priority=others.get("priority", 1000))


ON_ONE = make_gang(8, scope=GpuScope.NODE)


@pytest.mark.parametrize(
    ("used", "jobs", "by_node"),
    [
        ([5, 3, 8, 8], [pending(1, ON_ONE)], (("n02", 5), ("n01", 3))),
        ([5, 4, 8, 8], [pending(1, ON_ONE)], ()),
        ([5, 3, 0, 8], [pending(1, ON_ONE)], ()),
        ([5, 3, 0, 8], [pending(1, make_gang(16, nodes_max=2))], (("n02", 5), ("n01", 3))),
        ([5, 3, 8, 8], [pending(1, make_gang(8))], ()),
        ([6, 6, 4, 8], [pending(1, ON_ONE), pending(2, make_gang(4))], (("n03", 4), ("n01", 2), ("n02", 2))),
        ([5, 3, 8, 8], [pending(1, ON_ONE), pending(2, ON_ONE)], (("n02", 5), ("n01", 3))),
        ([5, 3, 8, 8], [replace(pending(1, ON_ONE), reason="QOSGrpGRES")], ()),
        ([5, 3, 8, 8], [replace(pending(1, ON_ONE), partitions=("other",))], ()),
        ([5, 3, 8, 8], [pending(1, make_gang(8, scope=GpuScope.NODE, excluded_nodes=("n01",)))], ()),
        ([5, 3, 8, 8], [pending(1, make_gang(8, scope=GpuScope.NODE, features="big"))], ()),
        ([5, 3, 8, 8], [pending(1, make_gang(per_node=gpu_counts(8, "a100")))], ()),
    ],
)  # fmt: skip
def test_idle_gpus_count_where_jobs_on_fewer_nodes_would_let_a_gang_start(
    used: list[int], jobs: list[Job], by_node: tuple[tuple[str, int], ...]
) -> None:
    assert scattered(spread(used, *jobs)) == by_node


@given(st.lists(st.integers(0, 8), min_size=4, max_size=4), st.integers(2, 8), st.integers(1, 3))
@settings(max_examples=examples(300), deadline=None)
def test_a_gang_counts_just_if_it_fits_once_all_jobs_stand_on_the_fewest_nodes(
    used: list[int], size: int, count: int
) -> None:
    gang = pending(1, make_gang(size, scope=GpuScope.NODE, nodes_min=count, nodes_max=count))
    full, rest = divmod(sum(used), 8)
    packed = [8] * full + [rest] * (full < 4) + [0] * (3 - full)

    def parts(held: list[int]) -> int:
        return sum((8 - number) // size for number in held)

    found = dict(scattered(spread(used, gang)))

    assert bool(found) == (parts(used) < count <= parts(packed))
    assert sum(found.values()) == (max(0, count - parts(used)) * size if found else 0)
    idle = dict(zip(NODES, (8 - number for number in used), strict=True))
    assert all(0 < number <= idle[name] < 8 for name, number in found.items())
