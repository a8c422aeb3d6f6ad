"""What keeps a job from being considered at all: holds, dependencies, limits, partitions."""

from dataclasses import replace

import pytest

from advisor.diagnose.causes import diagnose
from advisor.domain.diagnosis import Cause, Finding
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.particulars import LicenceUse, Particulars, ReachedLimit, Reservation
from advisor.view.explanations import Obstacle
from advisor.view.gate_words import moment
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_gang, make_job, make_node, make_partition, make_snapshot
from tests.diagnose.diagnosing import GPU, IDLE, causes, diagnosis


@pytest.mark.parametrize(
    ("job", "cause", "remedy"),
    [
        pytest.param(
            make_job(1, held=True, priority=0, reason="JobHeldUser"),
            Cause.HELD_BY_USER,
            "the user: scontrol release 1",
            id="held by user",
        ),
        pytest.param(
            make_job(1, held=True, priority=0, reason="JobHeldAdmin"),
            Cause.HELD_BY_ADMIN,
            "an operator: scontrol release 1",
            id="held by administrator",
        ),
        pytest.param(
            make_job(1, priority=0, reason="job requeued in held state"),
            Cause.HELD,
            "the user or an operator: scontrol release 1",
            id="held after a requeue",
        ),
        pytest.param(
            make_job(1, held=True, reason="None"), Cause.HELD, "the user or an operator: scontrol release 1", id="held"
        ),
        pytest.param(
            make_job(1, dependency="afterok:5(unfulfilled)", reason="Dependency"),
            Cause.DEPENDENCY,
            "wait until the jobs it depends on have ended",
            id="dependent",
        ),
        pytest.param(
            make_job(1, dependency="afterok:5(failed)", reason="DependencyNeverSatisfied"),
            Cause.DEPENDENCY_NEVER,
            "the user: scontrol update JobId=1 Dependency= to start it all the same, or scancel 1",
            id="never satisfied",
        ),
        pytest.param(
            make_job(1, eligible_time=TAKEN_AT + HOUR_S, reason="BeginTime"),
            Cause.BEGIN_TIME,
            "the user: scontrol update JobId=1 StartTime=now",
            id="deferred",
        ),
        pytest.param(
            make_job(1, reason="AssocGrpGRES"),
            Cause.ASSOCIATION_LIMIT,
            "wait for jobs of the account or user to end; an operator sees the limit: sacctmgr show associations",
            id="association",
        ),
        pytest.param(
            make_job(1, reason="QOSMaxGRESPerUser"),
            Cause.QOS_LIMIT,
            "wait for jobs of the QOS to end, or ask for another QOS; the limits: sacctmgr show qos",
            id="QOS",
        ),
        pytest.param(
            make_job(1, reason="QOSMaxWallDurationPerJobLimit"),
            Cause.QOS_LIMIT,
            "waiting does not help: ask for what the limit allows",
            id="QOS, this job alone",
        ),
        pytest.param(
            make_job(1, reason="PartitionTimeLimit"),
            Cause.PARTITION_LIMIT,
            "ask for less time, memory or fewer nodes, or for another partition: scontrol show partition",
            id="partition, by Slurm's word",
        ),
        pytest.param(
            make_job(1, reason="Licenses"),
            Cause.LICENSES,
            "wait for the jobs that hold them to end: scontrol show licenses",
            id="licences",
        ),
        pytest.param(
            make_job(1, reason="Reservation", reservation="maint"),
            Cause.RESERVATION,
            "see when the reservation begins and ends: scontrol show reservation",
            id="reservation",
        ),
        pytest.param(
            make_job(1, gang=make_gang(17), reason="Resources"),
            Cause.IMPOSSIBLE,
            "waiting does not help: ask for less, for another partition or for more nodes",
            id="impossible",
        ),
        pytest.param(
            make_job(1, reason="None"), Cause.NOT_TRIED, "wait for Slurm's next pass over the queue", id="not tried"
        ),
    ],
)
def test_cause_is_named_with_what_would_change_it(job: Job, cause: Cause, remedy: str) -> None:
    found = diagnosis(job)

    assert found.first.cause is cause
    assert found.first.remedies[0] == remedy
    assert found.disagreement is None
    assert found.slurm_reason == job.reason


def test_deferred_job_says_how_long() -> None:
    found = diagnosis(make_job(1, eligible_time=TAKEN_AT + 90, reason="BeginTime"))

    begins = moment(TAKEN_AT + 90, TAKEN_AT)
    assert found.first.text == f"it is not to begin before {begins}: --begin, or Slurm's pause after a requeue"
    assert begins.endswith(" (in 2 min)")
    assert found.first.evidence == {"eligible_time": TAKEN_AT + 90, "wait_s": 90.0}


@pytest.mark.parametrize("reason", ["Priority", "Resources"])
def test_job_that_slurm_has_tried_is_not_called_early_by_another_clock(reason: str) -> None:
    found = diagnosis(make_job(1, eligible_time=TAKEN_AT + 5, reason=reason))

    assert Cause.BEGIN_TIME not in causes(found)


def test_begin_time_that_was_not_read_is_not_invented() -> None:
    found = diagnosis(make_job(1, eligible_time=None, reason="BeginTime"))

    assert found.first == Obstacle(
        cause=Cause.BEGIN_TIME,
        text="it is not to begin yet; its begin time could not be read",
        evidence={},
        remedies=(),
    )
    assert found.disagreement is None


TIME = "2.0 d, of which at most 24.0 h are allowed"
NODES = "2 nodes, of which at most 1 is allowed"


def test_job_whose_partitions_are_all_down_waits_for_one() -> None:
    down = make_partition("gpu", nodes=("n1",), is_up=False)
    job = make_job(1, reason="PartitionDown")

    assert diagnosis(job, partitions=[down]).first.evidence == {"partitions": "gpu"}
    both = diagnosis(
        replace(job, partitions=("gpu", "other"), reason="Priority"),
        partitions=[down, make_partition("other", nodes=("n2",))],
    )
    assert Cause.PARTITION_DOWN not in causes(both)


@pytest.mark.parametrize(
    ("job", "limits", "text"),
    [
        pytest.param(make_job(1, time_limit_s=2 * DAY_S), {"max_time_s": DAY_S}, TIME, id="time"),
        pytest.param(
            make_job(1, gang=make_gang(2, nodes_min=2), time_limit_s=None),
            {"max_nodes_per_job": 1, "max_time_s": DAY_S},
            NODES,
            id="nodes",
        ),
        pytest.param(
            make_job(1, gang=make_gang(2, nodes_max=2), time_limit_s=None),
            {"max_nodes_per_job": 1},
            NODES,
            id="the upper end of a range",
        ),
        pytest.param(
            make_job(1, gang=make_gang(2, nodes_max=1), time_limit_s=None),
            {"min_nodes_per_job": 2},
            "at most 1 node, where each job takes at least 2",
            id="fewer nodes",
        ),
        pytest.param(
            make_job(1, gang=make_gang(2, nodes_min=2), time_limit_s=2 * DAY_S),
            {"max_nodes_per_job": 1, "max_time_s": DAY_S},
            f"{TIME}, and {NODES}",
            id="both",
        ),
    ],
)
def test_job_beyond_every_partition_is_told_which_limit(job: Job, limits: dict[str, float], text: str) -> None:
    tight = replace(make_partition("gpu", nodes=("n1", "n2")), **limits)  # type: ignore[arg-type]  # one table of fields
    loose = make_partition("loose", nodes=("n1", "n2"))

    found = diagnosis(replace(job, reason="PartitionTimeLimit"), partitions=[tight, loose])
    elsewhere = diagnosis(replace(job, partitions=("gpu", "loose")), partitions=[tight, loose])

    assert found.first.text == f"it asks in partition gpu for {text}"
    assert causes(found).count(Cause.PARTITION_LIMIT) == 1
    assert Cause.PARTITION_LIMIT not in causes(elsewhere)


def test_job_whose_node_range_alone_is_beyond_a_limit_is_not_impossible() -> None:
    tight = make_partition("gpu", nodes=("n1", "n2"), max_nodes_per_job=1)
    job = make_job(1, gang=make_gang(2, nodes_max=2, memory_mib_per_node=1), reason="PartitionNodeLimit")

    assert causes(diagnosis(job, partitions=[tight])) == [Cause.PARTITION_LIMIT]


def test_job_with_as_many_nodes_at_most_as_tasks_is_in_doubt_beyond_a_limit() -> None:
    tight = make_partition("gpu", nodes=("n1", "n2"), max_nodes_per_job=1)
    job = make_job(1, gang=make_gang(2, nodes_max=2, tasks=2, cpus=2, memory_mib_per_node=1), reason="None")

    found = diagnosis(job, partitions=[tight])

    assert Cause.PARTITION_LIMIT not in causes(found)
    assert any("MaxNodes" in each for each in found.unread)


def task(job_id: int, array: ArrayRecord, *running_on: str) -> Job:
    """One task of an array."""
    return make_job(job_id, gang=GPU, array=array, running_on=running_on)


THROTTLED = ArrayRecord(array_job_id=7, waiting="2-9", max_running=2)
TASKS = [
    task(11, ArrayRecord(array_job_id=7, task_id=0), "n1"),
    task(12, ArrayRecord(array_job_id=7, task_id=1), "n1"),
    task(13, ArrayRecord(array_job_id=8, task_id=1), "n1"),
    task(14, ArrayRecord(array_job_id=7, task_id=2)),
    make_job(15),
]


@pytest.mark.parametrize(
    ("array", "limited"),
    [
        pytest.param(THROTTLED, True, id="two of two run"),
        pytest.param(replace(THROTTLED, max_running=3), False, id="two of three run"),
        pytest.param(replace(THROTTLED, max_running=None), False, id="no limit"),
        pytest.param(None, False, id="no array"),
    ],
)
def test_array_waits_for_its_own_tasks(array: ArrayRecord | None, limited: bool) -> None:
    found = diagnosis(make_job(1, gang=GPU, array=array, priority=2000, reason="JobArrayTaskLimit"), IDLE, TASKS)

    assert found.first.cause is Cause.ARRAY_LIMIT
    assert (found.disagreement is None) is limited
    if limited:
        assert found.first.evidence == {"array_tasks_running": 2, "array_max_running": 2}
        assert found.first.remedies[1] == "the user: scontrol update JobId=7 ArrayTaskThrottle=..."


def test_array_of_which_tasks_still_wait_is_pending() -> None:
    tasks = [
        make_job(5, array=ArrayRecord(array_job_id=5, waiting="2-3")),
        make_job(6, array=ArrayRecord(array_job_id=5, task_id=1), running_on=["n1"]),
        make_job(7, array=ArrayRecord(array_job_id=7, task_id=1), running_on=["n2"]),
    ]
    job = make_job(1, dependency="afterok:5(unfulfilled),afterok:7(unfulfilled)", reason="Dependency")

    found = diagnosis(job, IDLE, tasks).first

    assert (found.evidence["pending_jobs"], found.evidence["running_jobs"]) == ("5", "7")


@pytest.mark.parametrize(
    ("start_s", "end_s", "holders"), [(0.0, HOUR_S, "exam"), (1.0, HOUR_S, None), (-HOUR_S, 0.0, None)]
)
def test_reservation_that_holds_licences_now_is_named(start_s: float, end_s: float, holders: str | None) -> None:
    short = LicenceUse(name="matlab", asked=2, total=4, free=1, reserved=3)
    booked = Reservation(
        name="exam", start_time=TAKEN_AT + start_s, end_time=TAKEN_AT + end_s, licences=("matlab",), nodes=()
    )
    snapshot = make_snapshot([make_job(1, reason="Licenses")], IDLE)

    found = diagnose(snapshot, 1, particulars=Particulars(licences=(short,), reservations=(booked,))).first

    assert (found.cause, found.evidence.get("reservations")) == (Cause.LICENSES, holders)


def named(name: str, tres: str = "") -> ReachedLimit:
    """Return a limit of a QOS that is reached."""
    return ReachedLimit(name=name, most=1, tres=tres, qos="short")


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        pytest.param(named("MaxWallPJ"), 90, id="minutes of time limit"),
        pytest.param(named("GrpJobs"), None, id="jobs"),
        pytest.param(named("GrpTRES", "cpu"), 12, id="CPUs"),
        pytest.param(named("GrpTRES", "gres/gpu"), 2, id="GPUs"),
        pytest.param(named("GrpTRESMins", "gres/gpu"), 180, id="GPU-minutes"),
        pytest.param(named("MaxTRESPN", "gres/gpu"), None, id="GPUs of each node"),
        pytest.param(named("GrpTRES", "gres/gpu:h100"), None, id="GPUs of another type"),
        pytest.param(named("GrpTRES", "gres/gpu:a100"), 2, id="GPUs of a type"),
        pytest.param(named("GrpTRES", "mem"), None, id="memory"),
    ],
)
def test_limit_that_is_reached_stands_beside_what_the_job_asks_of_it(limit: ReachedLimit, asked: int | None) -> None:
    job = make_job(1, gang=make_gang(2, gpu_type="a100", cpus=12), time_limit_s=1.5 * HOUR_S, reason="QOSGrpGRES")

    known = Particulars(limit=limit)
    found = diagnose(make_snapshot([job], [make_node("n1", gpu_type="a100")]), 1, particulars=known).first

    assert (found.cause, found.evidence.get("asked")) == (Cause.QOS_LIMIT, asked)


@pytest.mark.parametrize("limit", [named("MaxWallPJ"), named("GrpTRESMins", "gres/gpu")])
def test_job_without_a_time_limit_asks_for_no_known_number_of_minutes(limit: ReachedLimit) -> None:
    job = make_job(1, gang=make_gang(2), time_limit_s=None, reason="QOSGrpGRES")

    found = diagnose(make_snapshot([job], IDLE), 1, particulars=Particulars(limit=limit))

    assert "asked" not in found.first.evidence


def reserved(*nodes: str, start_s: float, end_s: float) -> Reservation:
    """Return a reservation of whole nodes, which begins and ends the given seconds from now."""
    return Reservation(name="exam", start_time=TAKEN_AT + start_s, end_time=TAKEN_AT + end_s, nodes=nodes)


def first(*reservations: Reservation, limit_s: float | None = 5 * HOUR_S) -> Finding:
    """Return what keeps a job from starting on two idle nodes."""
    job = make_job(1, gang=GPU, time_limit_s=limit_s, reason="Priority")
    return diagnose(make_snapshot([job], IDLE), 1, particulars=Particulars(reservations=reservations)).first


def test_job_that_would_still_run_at_a_reservation_fits_with_the_time_limit_up_to_it() -> None:
    found = first(reserved("n1", "n2", start_s=2 * HOUR_S, end_s=3 * HOUR_S))

    assert found.cause is Cause.RESERVATION
    assert (found.evidence["reservation"], found.evidence["time_limit_s"]) == ("exam", 5 * HOUR_S)
    assert found.evidence["time_limit_that_fits_s"] == 2 * HOUR_S


@pytest.mark.parametrize("start_s", [-HOUR_S, 0.0])
def test_no_time_limit_fits_before_a_reservation_that_has_begun(start_s: float) -> None:
    found = first(reserved("n1", "n2", start_s=start_s, end_s=HOUR_S))

    assert found.cause is Cause.RESERVATION
    assert "time_limit_that_fits_s" not in found.evidence


@pytest.mark.parametrize(
    "reservation",
    [
        pytest.param(reserved("n1", "n2", start_s=5 * HOUR_S, end_s=6 * HOUR_S), id="it begins as the job ends"),
        pytest.param(reserved("n1", "n2", start_s=-HOUR_S, end_s=0.0), id="it has just ended"),
        pytest.param(reserved("n1", start_s=HOUR_S, end_s=2 * HOUR_S), id="it leaves a node"),
        pytest.param(
            replace(reserved("n1", "n2", start_s=HOUR_S, end_s=2 * HOUR_S), cpus=127), id="it takes parts of nodes"
        ),
    ],
)
def test_reservation_that_leaves_a_node_or_the_time_keeps_no_job_waiting(reservation: Reservation) -> None:
    assert first(reservation).cause is not Cause.RESERVATION


def test_reservation_that_begins_just_before_the_job_ends_or_takes_every_cpu_is_in_the_way() -> None:
    early = reserved("n1", "n2", start_s=5 * HOUR_S - 1.0, end_s=6 * HOUR_S)
    whole = replace(reserved("n1", "n2", start_s=HOUR_S, end_s=2 * HOUR_S), cpus=128)

    assert [first(each).cause for each in (early, whole)] == [Cause.RESERVATION] * 2


def test_nodes_that_are_reserved_tell_of_a_reservation_that_was_not_read() -> None:
    nodes = [replace(make_node("n1"), flags=("RESERVED",)), make_node("n2", state="DOWN")]

    found = diagnose(make_snapshot([make_job(1, gang=GPU, reason="Resources")], nodes), 1).first

    assert (found.cause, found.evidence) == (Cause.RESERVATION, {"nodes_reserved": 1, "nodes_of_job": 2})


def test_of_two_reservations_the_one_that_takes_the_last_node_is_named() -> None:
    one = reserved("n1", start_s=HOUR_S, end_s=2 * HOUR_S)
    other = replace(reserved("n2", start_s=HOUR_S, end_s=2 * HOUR_S), name="service")

    assert first(one, other).evidence["reservation"] == "service"
    assert first(one, other, limit_s=None).evidence["reservation"] == "service"
