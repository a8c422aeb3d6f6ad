"""What Slurm's reason words stand for."""

import pytest

from advisor.domain.diagnosis import RESOURCES, Cause, causes_named, gives_no_reason


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Priority", Cause.PRIORITY),
        ("Dependency", Cause.DEPENDENCY),
        ("DependencyNeverSatisfied", Cause.DEPENDENCY_NEVER),
        ("BeginTime", Cause.BEGIN_TIME),
        ("JobHeldUser", Cause.HELD_BY_USER),
        ("JobHeldAdmin", Cause.HELD_BY_ADMIN),
        ("JobHoldMaxRequeue", Cause.HELD),
        ("job_requeued_in_held_state", Cause.HELD),
        ("job requeued in held state", Cause.HELD),
        ("launch failed requeued held", Cause.HELD),
        ("JobArrayTaskLimit", Cause.ARRAY_LIMIT),
        ("Licenses", Cause.LICENSES),
        ("BadConstraints", Cause.IMPOSSIBLE),
        ("PartitionDown", Cause.PARTITION_DOWN),
        ("PartitionInactive", Cause.PARTITION_DOWN),
        ("PartitionNodeLimit", Cause.PARTITION_LIMIT),
        ("PartitionTimeLimit", Cause.PARTITION_LIMIT),
        ("MaxMemPerLimit", Cause.PARTITION_LIMIT),
        ("AssocGrpGRES", Cause.ASSOCIATION_LIMIT),
        ("AssocMaxJobsLimit", Cause.ASSOCIATION_LIMIT),
        ("AssociationJobLimit", Cause.ASSOCIATION_LIMIT),
        ("InvalidAccount", Cause.ASSOCIATION_LIMIT),
        ("QOSMaxGRESPerUser", Cause.QOS_LIMIT),
        ("QOSUsageThreshold", Cause.QOS_LIMIT),
        ("QOSNotAllowed", Cause.QOS_LIMIT),
        ("InvalidQOS", Cause.QOS_LIMIT),
        ("MaxGRESPerAccount", Cause.QOS_LIMIT),
        ("Reservation", Cause.RESERVATION),
        ("ReservationDeleted", Cause.HELD),
        ("Reservation_course_was_deleted", Cause.HELD),
        ("NodeDown", Cause.NODES_UNAVAILABLE),
        ("Prolog", Cause.UNKNOWN),
        ("MaxOfSomethingNew", Cause.UNKNOWN),
        ("\x1b[31m'; DROP", Cause.UNKNOWN),
    ],
)
def test_word_names_one_cause(reason: str, cause: Cause) -> None:
    assert causes_named(reason) == {cause}


@pytest.mark.parametrize("reason", ["", "None"])
def test_no_reason_names_no_cause(reason: str) -> None:
    assert gives_no_reason(reason)
    assert not gives_no_reason("Resources")


@pytest.mark.parametrize(
    "reason",
    [
        "ReqNodeNotAvail, UnavailableNodes:n[1-4]",
        "ReqNodeNotAvail,_Reserved_for_maintenance",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
    ],
)
def test_missing_nodes_may_be_closed_or_reserved(reason: str) -> None:
    assert {Cause.NODES_UNAVAILABLE, Cause.RESERVATION} <= causes_named(reason)


@pytest.mark.parametrize("reason", ["Resources", "Insufficient_resources_in_topology_unit"])
def test_resources_stands_for_whatever_is_short(reason: str) -> None:
    assert causes_named(reason) == RESOURCES
    assert Cause.PRIORITY not in RESOURCES
