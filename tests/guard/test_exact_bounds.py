"""Every bound of the guard at its exact value: what is just allowed, and what is just beyond."""

from dataclasses import replace

import pytest

from advisor.domain.actions import SetNodeList
from advisor.domain.gang import GpuScope
from advisor.domain.job import Job
from advisor.domain.lease import Ending
from advisor.domain.plan import Plan, Recommendation
from advisor.guard.breakers import ALL_CLOSED, Vitals, judged
from advisor.guard.circumstances import circumstances
from advisor.guard.ledger import ledger_of
from advisor.guard.rules import judge
from advisor.settings import BreakerSettings, Limits
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_gang, make_hints, make_job, make_node, make_snapshot
from tests.guard.proposals import PLAIN, gpus, lent, nice, refused_by, timer

RANGED = replace(PLAIN, time_limit_s=None, hints=make_hints(gpus=(2, 8)))


@pytest.mark.parametrize(
    ("change", "job", "limits", "rule"),
    [
        (nice(after=-1), PLAIN, Limits(), None),
        (nice(after=0), PLAIN, Limits(), "lifts_only"),
        (timer(delay_s=100.0), PLAIN, Limits(max_added_delay_s=100.0), None),
        (timer(delay_s=101.0), PLAIN, Limits(max_added_delay_s=100.0), "delay_within_limits"),
        (gpus(4, 2), RANGED, Limits(), None),
        (gpus(4, 8), RANGED, Limits(), None),
        (gpus(4, 1), RANGED, Limits(), "size_within_range"),
        (gpus(4, 9), RANGED, Limits(), "size_within_range"),
    ],
)
def test_change_at_its_bound_passes_and_beyond_does_not(
    change: Recommendation, job: Job, limits: Limits, rule: str | None
) -> None:
    assert refused_by(change, job, limits=limits) == rule


@pytest.mark.parametrize(("after_s", "rule"), [(0.0, None), (1.0, "not_deferred")])
def test_job_is_deferred_until_it_is_eligible(after_s: float, rule: str | None) -> None:
    assert refused_by(timer(), replace(PLAIN, eligible_time=TAKEN_AT + after_s)) == rule


def test_ids_of_26_bits_are_those_of_one_cluster() -> None:
    local, federated = (replace(PLAIN, job_id=job_id) for job_id in (67_108_863, 67_108_864))

    assert refused_by(timer(local.job_id), local) is None
    assert refused_by(timer(federated.job_id), federated) == "not_federated"


@pytest.mark.parametrize(
    ("waited_s", "delay_s", "rule"),
    [(1000.0, 600.0, None), (1001.0, 600.0, "long_waiter_not_delayed"), (1001.0, 1.0, "long_waiter_not_delayed"),
     (1001.0, 0.0, None)],
)  # fmt: skip
def test_long_waiter_waits_for_longer_than_the_bound_and_is_not_delayed_by_a_second(
    waited_s: float, delay_s: float, rule: str | None
) -> None:
    job = make_job(1, gpus=4, submitted_ago_s=waited_s)

    assert refused_by(timer(delay_s=delay_s), job, limits=Limits(max_job_wait_s=1000.0)) == rule


@pytest.mark.parametrize(("ago_s", "rule"), [(60.0, None), (59.0, "old_enough")])
def test_job_is_old_enough_at_the_least_age(ago_s: float, rule: str | None) -> None:
    job = make_job(1, gpus=4, submitted_ago_s=ago_s)

    assert refused_by(timer(), job, limits=Limits(min_job_age_s=60.0)) == rule


@pytest.mark.parametrize(("times", "rule"), [(2, None), (3, "nodes_named_rarely")])
def test_nodes_are_named_for_a_job_three_times(times: int, rule: str | None) -> None:
    job = make_job(1, gang=make_gang(16, nodes_min=2, nodes_max=2))
    action = SetNodeList(job_id=1, before=(), after=("n01", "n02"))
    change = replace(timer(delay_s=0.0), action=action, revert_after_s=120.0)
    snapshot = make_snapshot([job], [make_node("n01"), make_node("n02")])
    leases = [lent(job, ago_s=HOUR_S, ending=Ending.TAKEN_BACK, action=action) for _ in range(times)]

    around = circumstances(snapshot, Limits(cooldown_s=0.0), leases=leases, names_nodes=True)
    (verdict,) = judge(Plan(recommendations=(change,)), snapshot, around)

    assert verdict.refused_by == rule


@pytest.mark.parametrize(("ago_s", "booked"), [(DAY_S - 1, {"alice": 600.0}), (DAY_S, {})])
def test_user_is_charged_within_the_window_alone(ago_s: float, booked: dict[str, float]) -> None:
    back = lent(ago_s=ago_s + 600.0, ending=Ending.TAKEN_BACK, ended_ago_s=ago_s)
    lease = replace(back, would_start_time=back.applied_time, start_time=TAKEN_AT - ago_s)

    assert ledger_of([lease], TAKEN_AT, Limits(fairness_window_s=DAY_S)).delay_s_by_user == booked


def test_delay_of_a_second_is_booked() -> None:
    ledger = ledger_of([lent(delay_s=1.0)], TAKEN_AT, Limits())

    assert (ledger.delay_s_by_job, ledger.delay_s_by_user, ledger.delay_s_by_account) == (
        {1: 1.0},
        {"alice": 1.0},
        {"lab": 1.0},
    )


def test_nice_already_there_is_what_the_change_begins_with() -> None:
    changed = nice(before=7, after=-7)

    assert refused_by(changed, replace(PLAIN, nice=7)) is None
    assert refused_by(changed, PLAIN) == "before_still_true"


@pytest.mark.parametrize(("most", "rule"), [(2, None), (3, "update_has_no_side_effect")])
def test_gpus_per_node_on_a_fixed_number_of_nodes_may_be_changed(most: int, rule: str | None) -> None:
    gang = make_gang(4, scope=GpuScope.NODE, nodes_min=2, nodes_max=most)

    assert refused_by(timer(), replace(PLAIN, gang=gang)) == rule


@pytest.mark.parametrize(("rest_s", "is_open"), [(600.0, False), (601.0, True)])
def test_between_two_looks_no_more_than_ten_minutes_of_rest_count(rest_s: float, is_open: bool) -> None:
    settings = BreakerSettings(rest_s=rest_s)
    well = Vitals(now=1010.0, reads_failed=0, error_ratio=0.0, requests=1000)

    opened = judged(ALL_CLOSED, replace(well, now=1000.0, reads_failed=99), settings)
    resting = judged(opened, well, settings)
    later = judged(resting, replace(well, now=9000.0), settings)

    assert [breaker.name for breaker in resting.open] == ["slurm_errors"]
    assert bool(later.open) is is_open
