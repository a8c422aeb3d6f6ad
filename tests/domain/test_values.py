"""Values that check themselves, and what they answer."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain.diagnosis import RESOURCES, Cause, causes_named, gives_no_reason
from advisor.domain.forecast import Interval
from advisor.domain.gang import GangRequest, GpuCount, GpuScope, share_of_gpu, whole_gpus
from advisor.domain.job import GpuRange, Job, JobState
from advisor.domain.mark import is_marked, marked
from advisor.domain.memory import Wait, gang_class
from advisor.domain.node import GpuPool, NodeService, is_known
from advisor.domain.site import SiteConfig
from advisor.domain.standings import NO_STANDINGS, standings_of
from advisor.domain.topology import LocalityTier
from tests.builders import (
    TAKEN_AT,
    gpu_counts,
    make_config,
    make_gang,
    make_job,
    make_node,
    make_snapshot,
    make_stretch,
    make_topology,
    make_wait_sum,
)
from tools.stage.node_states import NOT_SHOWN, PAGE, PART, NodeRow, disagreement, node_with, page, read_states


def test_negative_counts_and_empty_ranges_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        GpuCount(count=-1)
    with pytest.raises(ValueError, match="range"):
        GpuRange(low=4, high=2)
    with pytest.raises(ValueError, match="positive"):
        Job(job_id=0, state=JobState.PENDING, gang=GangRequest(), submit_time=0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: GpuCount(count=2**40),
        lambda: make_gang(1, nodes_min=0),
        lambda: make_gang(1, nodes_max=0),
        lambda: make_gang(1, memory_mib_per_node=2**80),
        lambda: make_job(2**60),
        lambda: make_job(1, priority=2**80),
        lambda: make_job(1, submit_time=-1e308),
        lambda: make_job(1, eligible_time=float("nan"), time_limit_s=1.0),
        lambda: make_job(1, time_limit_s=-1.0),
        lambda: make_job(1, time_min_s=1e12),
        lambda: make_gang(1, cpus_per_gpu=2**40),
        lambda: GpuRange(low=1, high=2**40),
        lambda: make_node(cpus=2**40),
        lambda: make_node(memory_mib=2**80),
        lambda: make_node(gpus=2**40),
        lambda: make_snapshot(taken_at=1e300),
    ],
)
def test_numbers_that_no_cluster_has_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        make()


@pytest.mark.parametrize(
    ("gang", "total"),
    [
        (make_gang(12), 12),
        (make_gang(4, scope=GpuScope.NODE, nodes_min=3), 12),
        (make_gang(1, scope=GpuScope.TASK, tasks=6), 6),
        (make_gang(2, scope=GpuScope.SOCKET), None),
        (make_gang(0), 0),
        (make_gang(0, gpus_known=False), None),
        (make_gang(per_job=gpu_counts(8), per_node=gpu_counts(4)), 8),
    ],
)
def test_total_follows_from_the_form_of_the_request(gang: GangRequest, total: int | None) -> None:
    assert gang.gpu_count == total


@pytest.mark.parametrize("scope", GpuScope)
def test_counts_change_in_one_form_only(scope: GpuScope) -> None:
    changed = make_gang(4, scope=scope).with_counts(scope, gpu_counts(2, "a100"))

    assert changed.counts(scope) == gpu_counts(2, "a100")
    assert changed.all_counts == gpu_counts(2, "a100")
    assert changed.gpu_type == "a100"


def test_several_types_are_no_one_type() -> None:
    assert make_gang(per_job=gpu_counts(2, "a100") + gpu_counts(2, "v100")).gpu_type is None


def test_queueing_delay_counts_from_eligibility_and_is_never_negative() -> None:
    assert make_job(1, submitted_ago_s=60, eligible_time=None).queueing_delay_s(TAKEN_AT) == 60
    assert make_job(1, eligible_time=TAKEN_AT + 60).queueing_delay_s(TAKEN_AT) == 0


def test_gpus_of_unknown_use_are_not_idle() -> None:
    assert GpuPool(total=8, used=None).idle == 0
    assert GpuPool(total=8, used=3).idle == 5


@pytest.mark.parametrize(
    ("state", "flags", "usable"),
    [("IDLE", (), True), ("MIXED", ("PLANNED",), True), ("DOWN", (), False), ("IDLE", ("DRAIN",), False)],
)
def test_node_in_service_is_usable(state: str, flags: tuple[str, ...], usable: bool) -> None:
    assert make_node(state=state, flags=flags).is_usable is usable


@pytest.mark.parametrize(
    ("nodes", "tier"),
    [
        (["n01"], LocalityTier.NODE),
        (["n01", "n02"], LocalityTier.LEAF),
        (["n02", "n03"], LocalityTier.SPINE),
        (["n02", "n99"], LocalityTier.CLUSTER),
    ],
)
def test_tier_is_the_smallest_that_holds_all_nodes(nodes: list[str], tier: LocalityTier) -> None:
    assert make_topology().tier_of(nodes) is tier


def test_switch_wait_read_from_the_configuration() -> None:
    assert SiteConfig().max_switch_wait_s == 300.0
    assert make_config(scheduler_parameters={"max_switch_wait": "60"}).max_switch_wait_s == 60.0


@pytest.mark.parametrize(
    ("version", "parameters", "taken", "lasting"),
    [
        ("22.05.8", {"time_min_as_soft_limit": ""}, False, False),
        ("23.11.4", {"time_min_as_soft_limit": ""}, True, False),
        ("24.11.5", {}, False, False),
        ("25.05.4-1", {"time_min_as_soft_limit": ""}, True, True),
        ("", {"time_min_as_soft_limit": ""}, False, False),
    ],
)
def test_soft_limits_are_known_by_release_and_parameter(
    version: str, parameters: dict[str, str], taken: bool, lasting: bool
) -> None:
    config = SiteConfig(slurm_version=version, scheduler_parameters=parameters)

    assert config.takes_soft_limits is taken
    assert config.traits.soft_limits_outlast_start is lasting


@pytest.mark.parametrize(
    ("words", "hides"), [((), False), (("accounts", "usage"), False), (("jobs", "usage"), True), (("all",), True)]
)
def test_users_who_do_not_see_the_jobs_of_others_are_known_by_private_data(words: tuple[str, ...], hides: bool) -> None:
    assert make_config(private_data=words).hides_jobs is hides
    assert SiteConfig(private_data=words).hides_jobs


def test_backfill_counts_in_minutes_unless_told_otherwise() -> None:
    assert SiteConfig().backfill_resolution_s == 60.0
    assert SiteConfig(scheduler_parameters={"bf_resolution": "600"}).backfill_resolution_s == 600.0
    assert SiteConfig(scheduler_parameters={"bf_resolution": "soon"}).backfill_resolution_s == 60.0


@pytest.mark.parametrize(
    ("gpu_type", "sevenths"),
    [
        ("1g.10gb", 1),
        ("nvidia_h200_nvl_4g.71gb", 4),
        ("a100_3g.20gb", 3),
        ("1g.5gb+me", 1),
        ("1c.3g.20gb", 3),
        ("A100-MIG-2g-10gb", 2),
        ("7g.80gb", 7),
        ("a100", 7),
        ("a100_80gb", 7),
        ("gh200_96gb", 7),
        ("rtx_6000", 7),
        (None, 7),
    ],
)
def test_slice_is_its_share_of_a_gpu(gpu_type: str | None, sevenths: int) -> None:
    assert share_of_gpu(gpu_type) == pytest.approx(sevenths / 7)


def test_gang_of_slices_counts_as_its_share() -> None:
    slices = make_gang(0).with_counts(GpuScope.JOB, (GpuCount(gpu_type="h100_2g.20gb", count=7),))

    assert (slices.gpu_count, slices.has_slices) == (7, True)
    assert slices.gpu_share == pytest.approx(2 / 7)
    assert (make_gang(4).gpu_share, make_gang(4).has_slices) == (1.0, False)


def test_totals_are_whole_gpus_rounded_up() -> None:
    assert whole_gpus([("1g.10gb", 7), ("a100", 2)]) == 3
    assert whole_gpus([("1g.10gb", 1)]) == 1
    assert whole_gpus([]) == 0


ROWS = [
    pytest.param(row, id=f"{release} {row.how}: {row.words}")
    for release, rows in read_states().items()
    for row in rows
    if row.words != NOT_SHOWN
]


@pytest.mark.parametrize("row", ROWS)
def test_service_is_what_slurmctld_did(row: NodeRow) -> None:
    node = node_with(row.words.split("+"))

    assert disagreement(row, replace(node, cpus_reserved=8) if PART in row.how else node) == ""


def test_page_shows_what_was_recorded() -> None:
    assert PAGE.read_text() == page(read_states())


def test_unknown_word_is_no_claim_that_a_node_is_out_of_service() -> None:
    node = make_node(flags=("SOMETHING_NEW",))

    assert not is_known("SOMETHING_NEW")
    assert (node.service, node.is_only_reserved, node.can_be_resumed) == (NodeService.LATER, False, False)


@pytest.mark.parametrize(
    ("state", "flags", "resumed"),
    [
        ("DOWN", (), True),
        ("IDLE", ("DRAIN",), True),
        ("DOWN", ("NOT_RESPONDING",), False),
        ("IDLE", ("DRAIN", "INVALID_REG"), False),
        ("MIXED", ("CLOUD", "NOT_RESPONDING", "POWERING_UP"), False),
        ("IDLE", ("RESERVED",), False),
    ],
)
def test_operator_resumes_only_what_slurmctld_would_resume(state: str, flags: tuple[str, ...], resumed: bool) -> None:
    assert make_node(state=state, flags=flags).can_be_resumed is resumed


NICES = st.integers(-2_147_483_000, 2_147_483_000)


@pytest.mark.parametrize(
    ("nice", "after"), [(0, 0), (1, 7), (7, 7), (8, 17), (50, 57), (547, 547), (-1, -7), (-20, -27), (-27, -27)]
)
def test_mark_is_the_last_digit(nice: int, after: int) -> None:
    assert marked(nice) == after


@given(NICES.filter(bool))
def test_marked_value_is_marked_near_and_on_the_same_side(nice: int) -> None:
    assert is_marked(marked(nice)) and marked(marked(nice)) == marked(nice)
    assert 0 <= abs(marked(nice)) - abs(nice) <= 9 and (marked(nice) > 0) is (nice > 0)


@given(NICES, NICES)
def test_marks_keep_the_order_of_nice_values(one: int, other: int) -> None:
    low, high = sorted((one, other))

    assert marked(low) <= marked(high)


@pytest.mark.parametrize("nice", [0, 1, 5, 10, 19, 20, 50, 100, 500, 1000, 10_000, -10, -100, -1000, 2_147_483_645])
def test_values_that_people_choose_carry_no_mark(nice: int) -> None:
    assert not is_marked(nice)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (33, 64), (64, 64), (65, 64), (4096, 64)],
)
def test_a_gang_is_counted_with_those_up_to_the_next_power_of_two(gpus: int, expected: int) -> None:
    assert gang_class(gpus) == expected


@pytest.mark.parametrize(("gpus", "waited_s"), [(0, 1.0), (8, -1.0)])
def test_a_wait_of_nobody_or_into_the_past_is_none(gpus: int, waited_s: float) -> None:
    with pytest.raises(ValueError, match="are no wait"):
        Wait(gpus=gpus, tier=LocalityTier.LEAF, waited_s=waited_s, got=True, ended_time=0.0)


DRAWS = tuple(float(value) for value in range(100, 111))


def test_nothing_compared_is_no_standing() -> None:
    empty = replace(make_stretch(), total=make_wait_sum(0.0, jobs=0, plain_s=(0.0,)), by_user={}, by_account={})

    assert standings_of([]) == standings_of([empty]) == NO_STANDINGS
    assert NO_STANDINGS.age_s(TAKEN_AT) is None


def test_difference_is_that_of_the_waits_with_eighty_percent_of_the_draws() -> None:
    total = standings_of([make_stretch(waited_s=90.0, plain_s=DRAWS)]).total

    assert total is not None
    assert total.plain_s == Interval(low=101.0, median=105.0, high=109.0)
    assert total.difference_s == Interval(low=-19.0, median=-15.0, high=-11.0)
    assert total.is_known


def test_errors_of_the_model_widen_the_interval_and_leave_no_wait_below_nothing() -> None:
    unsure = make_wait_sum(90.0, DRAWS, less_s=500.0, more_s=20.0)

    total = standings_of([replace(make_stretch(), total=unsure)]).total

    assert total is not None
    assert total.plain_s == Interval(low=0.0, median=105.0, high=129.0)
    assert not total.is_known


def test_stretches_add_up_draw_by_draw_and_a_job_that_waited_on_counts_once() -> None:
    first = replace(make_stretch(), total=make_wait_sum(100.0, (200.0, 300.0, 400.0), jobs=5, carried=2))
    second = replace(
        make_stretch(anchor_time=first.until), total=make_wait_sum(50.0, (40.0, 10.0, 60.0), jobs=4, carried=3)
    )

    standings = standings_of([second, first])

    assert standings.total is not None
    assert standings.total.jobs == 6
    assert standings.total.waited_s == 150.0
    assert standings.total.plain_s == Interval(low=254.0, median=310.0, high=430.0)
    assert (standings.since, standings.until) == (first.anchor_time, second.until)
    assert standings.age_s(second.until + 60.0) == 60.0


def test_users_and_accounts_stand_by_name_and_notes_once_the_newest_first() -> None:
    hostile = "__class__\x1b[2J\n"
    stretches = [
        make_stretch(user=hostile, account="b", notes=("old", "both")),
        make_stretch(anchor_time=TAKEN_AT + 3600.0, user="ann", account="b", notes=("new", "both")),
    ]

    standings = standings_of(stretches)

    assert list(standings.by_user) == [hostile, "ann"]
    assert {name: standing.jobs for name, standing in standings.by_account.items()} == {"b": 2}
    assert standings.notes == ("new", "both", "old")


@pytest.mark.parametrize(
    "fields", [{"carried": 2}, {"waited_s": -1.0}, {"plain_s": ()}, {"plain_s": (-1.0,)}, {"less_s": -1.0}]
)
def test_impossible_waits_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"jobs|waits"):
        make_wait_sum(**fields)  # type: ignore[arg-type]  # a test's own


def test_stretch_that_ends_before_its_anchor_is_refused() -> None:
    with pytest.raises(ValueError, match="after its anchor"):
        make_stretch(until=TAKEN_AT - 1.0)


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
