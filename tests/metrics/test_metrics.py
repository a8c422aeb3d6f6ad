"""The metrics say what the rounds did, under bounded labels, and never stop the daemon."""

import math
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from advisor.apply.step import Reconciled
from advisor.domain.actions import SetSwitches
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import Ending, LeaseState
from advisor.domain.load import ControllerLoad
from advisor.domain.memory import Wait
from advisor.domain.mode import Mode
from advisor.domain.plan import Outcome
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import standings_of
from advisor.domain.topology import LocalityTier
from advisor.guard.breakers import BREAKERS
from advisor.metrics.catalogue import METRICS, OTHER, BoundedValues, class_of
from advisor.metrics.health import Health
from advisor.metrics.observer import Metrics
from advisor.settings import EndpointSettings, LoopbackAddress, SocketFile, address_of
from advisor.trial.accuracy import Accuracy
from tests.builders import TAKEN_AT, make_job, make_node, make_snapshot, make_stretch, make_wait_sum
from tests.made_rounds import ROUND_S, change, lease, make_round, put_off, receipt, step

Labels = Mapping[str, str]


def metrics(journal: Path | None = None) -> Metrics:
    """Return the metrics of a daemon that has just started."""
    return Metrics(version="1.2.3", interval_s=ROUND_S, journal=journal)


def value(filled: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of one series, None where there is none."""
    found = [
        sample.value
        for family in text_string_to_metric_families(filled.exposition().decode())
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found[0] if found else None


def test_every_metric_of_the_catalogue_is_exported() -> None:
    filled = metrics()

    names = {family.name for family in text_string_to_metric_families(filled.exposition().decode())}

    assert names == {metric.name.removesuffix("_total") for metric in METRICS}


def test_no_label_can_name_a_job_a_user_or_an_account() -> None:
    labels = {label for metric in METRICS for label in metric.labels}

    assert not labels & {"job", "job_id", "jobid", "user", "account", "name", "comment"}


def test_a_round_that_plans_is_a_good_cycle() -> None:
    filled = metrics()

    filled.observe(make_round(step()))
    filled.observe(make_round(number=1))

    assert value(filled, "sadvise_cycles_total", outcome="planned") == 1
    assert value(filled, "sadvise_cycles_total", outcome="no_plan") == 1
    assert value(filled, "sadvise_last_good_cycle_timestamp_seconds") == TAKEN_AT - 1.0
    assert value(filled, "sadvise_cycle_duration_seconds_count") == 2
    assert value(filled, "sadvise_cycle_cpu_seconds_total") == 0.5


def test_recommendations_count_by_kind_and_by_the_rule_that_refused() -> None:
    filled = metrics()
    judged = [
        change(1),
        replace(change(2), refused_by="fair_to_user"),
        replace(change(3), refused_by="fair_to_user"),
    ]

    filled.observe(make_round(step(judged=judged, left_alone={4: "not_held", 5: "not_held"})))

    assert value(filled, "sadvise_recommendations_total", kind="reorder", verdict="accepted") == 1
    assert value(filled, "sadvise_recommendations_total", kind="reorder", verdict="fair_to_user") == 2
    assert value(filled, "sadvise_recommended", kind="reorder") == 1
    assert value(filled, "sadvise_jobs_left_alone", rule="not_held") == 2


def test_what_is_no_more_goes_back_to_nothing() -> None:
    filled = metrics()
    filled.observe(make_round(step(left_alone={4: "not_held"}), held_to={"paused": "by root", "people_object": "4"}))

    filled.observe(make_round(step(), number=1))

    assert value(filled, "sadvise_jobs_left_alone", rule="not_held") == 0
    assert value(filled, "sadvise_held", by="people_object") == 0
    assert value(filled, "sadvise_breaker_open", breaker="people_object") == 0
    assert value(filled, "sadvise_paused") == 0


def test_a_pause_and_breakers_are_told() -> None:
    filled = metrics()

    filled.observe(make_round(step(), mode=Mode.RECOMMEND, held_to={"paused": "by root", "people_object": "4 of 3"}))

    assert value(filled, "sadvise_paused") == 1
    assert value(filled, "sadvise_held", by="people_object") == 1
    assert {name: value(filled, "sadvise_breaker_open", breaker=name) for name in BREAKERS} == {
        **dict.fromkeys(BREAKERS, 0),
        "people_object": 1,
    }
    assert value(filled, "sadvise_mode", mode="recommend") == 1
    assert value(filled, "sadvise_mode", mode="apply") == 0


def test_changes_and_returns_count_by_what_became_of_them() -> None:
    filled = metrics()
    sent = [receipt(1), receipt(2), receipt(3, Outcome.FAILED, "Invalid job id")]

    filled.observe(
        make_round(
            step(
                applied=sent,
                held_back=[put_off(4, "budget: 12 changes"), put_off(5, "user\x1b[31m: x"), put_off(6, "no colon")],
                reconciled=Reconciled(taken_back=(receipt(7),), put_off=(put_off(8, "deadline: passed"),)),
            )
        )
    )

    assert value(filled, "sadvise_changes_total", lever="nice", outcome="applied") == 2
    assert value(filled, "sadvise_changes_total", lever="nice", outcome="failed") == 1
    assert value(filled, "sadvise_changes_total", lever="switches", outcome="applied") == 0
    assert value(filled, "sadvise_held_back_total", by="budget") == 1
    assert value(filled, "sadvise_held_back_total", by=OTHER) == 2
    assert value(filled, "sadvise_returns_total", lever="nice", outcome="applied") == 1
    assert value(filled, "sadvise_returns_put_off_total", by="deadline") == 1


def test_returns_of_a_round_that_did_not_read_the_queue_count_too() -> None:
    filled = metrics()

    filled.observe(
        replace(make_round(), returned=Reconciled(taken_back=(receipt(7),), put_off=(put_off(8, "budget: x"),)))
    )

    assert value(filled, "sadvise_returns_total", lever="nice", outcome="applied") == 1
    assert value(filled, "sadvise_returns_put_off_total", by="budget") == 1


def test_an_objection_counts_once_and_only_since_the_start() -> None:
    filled = metrics()
    old = lease(1, ending=Ending.REVERTED, ended_time=TAKEN_AT - 3600.0)
    reverted = lease(2, ending=Ending.REVERTED, ended_time=TAKEN_AT + 10.0)
    overruled = lease(3, state=LeaseState.HANDS_OFF, overruled_time=TAKEN_AT + 10.0)
    gone = replace(overruled, ending=Ending.OVERRULED, ended_time=TAKEN_AT + 70.0)

    filled.observe(make_round(step()))
    filled.observe(make_round(step(leases=[old, reverted, overruled]), number=1))
    filled.observe(make_round(step(), number=2))
    filled.observe(make_round(step(leases=[old, reverted, gone]), number=3))

    assert value(filled, "sadvise_objections_total", kind="reverted") == 1
    assert value(filled, "sadvise_objections_total", kind="overruled") == 1


def test_leases_show_by_state_and_when_they_are_overdue() -> None:
    filled = metrics()
    late = lease(1, due_time=TAKEN_AT - 5.0)

    filled.observe(make_round(step(leases=[late, lease(2)]), open_leases={LeaseState.OUT: 2}))

    assert value(filled, "sadvise_leases", state="out") == 2
    assert value(filled, "sadvise_leases", state="intended") == 0
    assert value(filled, "sadvise_leases_overdue") == 1


def test_timers_that_are_out_show_by_the_tier_they_wait_for() -> None:
    filled = metrics()
    action = SetSwitches(job_id=1, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))
    timer = lease(1, action=action, undo=action.swapped())
    over = replace(timer, ending=Ending.NO_LONGER_PENDING, ended_time=TAKEN_AT)

    filled.observe(make_round(step(leases=[timer, over, replace(timer, state=LeaseState.HANDS_OFF), lease(2)])))

    assert value(filled, "sadvise_timers", tier="leaf") == 1
    assert value(filled, "sadvise_timers", tier="node") == 0


def test_waits_of_timers_show_by_tier() -> None:
    filled = metrics()
    wait = Wait(gpus=8, tier=LocalityTier.LEAF, waited_s=60.0, got=True, ended_time=TAKEN_AT)

    filled.observe(make_round(step(waits=[wait, wait, replace(wait, got=False)])))

    assert value(filled, "sadvise_timer_waits", tier="leaf", outcome="got") == 2
    assert value(filled, "sadvise_timer_waits", tier="leaf", outcome="gave_up") == 1
    assert value(filled, "sadvise_timer_waits", tier="node", outcome="got") == 0


def test_requests_count_on_where_the_daemon_counted_anew() -> None:
    filled = metrics()

    for number, count in enumerate((4, 9, 3)):
        filled.observe(make_round(step(), number=number, rpcs={"squeue": count}))

    assert value(filled, "sadvise_rpcs_total", kind="squeue") == 9 + 3


def test_the_load_of_the_controller_is_no_number_where_it_is_not_told() -> None:
    filled = metrics()
    filled.observe(make_round(step(), load=ControllerLoad(server_threads=7, cycle_s=0.5)))

    known = value(filled, "sadvise_controller_server_threads")
    filled.observe(make_round(number=1))
    unknown = value(filled, "sadvise_controller_server_threads")

    assert known == 7
    assert unknown is not None and math.isnan(unknown)


def test_idle_gpus_beside_running_jobs_are_fragmented() -> None:
    filled = metrics()
    nodes = [
        make_node("n01", used=6, gpu_type="a100"),
        make_node("n02", used=0, gpu_type="a100"),
        make_node("n03", used=8, gpu_type="a100"),
        make_node("n04", used=3, gpu_type="a100", state="DOWN"),
    ]
    done = step()
    snapshot = make_snapshot([make_job(1)], nodes)

    filled.observe(make_round(replace(done, record=replace(done.record, snapshot=snapshot))))

    where = {"partition": "gpu", "gpu_type": "a100"}
    assert value(filled, "sadvise_gpus", **where) == 32
    assert value(filled, "sadvise_idle_gpus", **where) == 10
    assert value(filled, "sadvise_fragmented_gpus", **where) == 2
    assert value(filled, "sadvise_largest_idle_gpus", **where) == 8


def test_how_good_forecasts_are_is_unknown_until_it_is_told() -> None:
    filled = metrics()
    names = ("sadvise_forecast_coverage_ratio", "sadvise_forecast_error_factor")
    before = [value(filled, name, of="start") for name in names]
    told = Accuracy(coverage_ratio=0.78, error_factor=2.5, jobs=120)

    filled.observe(replace(make_round(step()), accuracy={"start": told}))

    assert all(each is not None and math.isnan(each) for each in before)
    assert [value(filled, name, of="start") for name in names] == [0.78, 2.5]
    assert all(math.isnan(value(filled, name, of="run_time") or 0.0) for name in names)
    assert value(filled, "sadvise_forecast_coverage_jobs", of="start") == 120
    assert value(filled, "sadvise_forecast_coverage_jobs", of="run_time") == 0


def test_waits_without_advice_are_unknown_until_plain_slurm_was_run() -> None:
    filled = metrics()
    name, since = "sadvise_wait_difference_seconds", "sadvise_wait_difference_timestamp_seconds"
    before = value(filled, name, of="median"), value(filled, since)
    stretch = replace(make_stretch(), total=make_wait_sum(100.0, (300.0, 500.0), jobs=2, more_s=10.0))
    done = step()
    memory = replace(done.record.memory, standings=standings_of([stretch]))

    filled.observe(make_round(replace(done, record=replace(done.record, memory=memory))))

    assert before[0] is not None and math.isnan(before[0]) and before[1] == 0.0
    assert [value(filled, name, of=end) for end in ("low", "median", "high")] == [-195.0, -150.0, -110.0]
    assert value(filled, since) == stretch.until


def test_users_count_by_how_their_waits_compare() -> None:
    filled = metrics()
    waits = {"ann": (100.0, (300.0,)), "bob": (300.0, (200.0,)), "eve": (200.0, (100.0, 300.0)), "joe": (9.0, (9.0,))}
    stretch = replace(make_stretch(), by_user={user: make_wait_sum(*wait) for user, wait in waits.items()})
    done = step()
    memory = replace(done.record.memory, standings=standings_of([stretch]))

    filled.observe(make_round(replace(done, record=replace(done.record, memory=memory))))

    counts = {wait: value(filled, "sadvise_users_compared", wait=wait) for wait in ("shorter", "longer", "unclear")}
    assert counts == {"shorter": 1, "longer": 1, "unclear": 2}


def test_waits_so_far_are_those_of_gpu_jobs_that_can_start() -> None:
    filled = metrics()
    done = step()
    jobs = [make_job(number, user=f"u{number % 3}", submit_time=TAKEN_AT - 60.0 * number) for number in range(1, 11)]
    jobs += [make_job(11, submit_time=TAKEN_AT - 9e5, held=True), make_job(12, submit_time=TAKEN_AT - 9e5, gpus=0)]
    name = "sadvise_pending_wait_seconds"

    filled.observe(make_round(replace(done, record=replace(done.record, snapshot=make_snapshot(jobs=jobs)))))
    waits = [value(filled, name, of=of) for of in ("median", "p90", "longest")]
    filled.observe(make_round(replace(done, record=replace(done.record, snapshot=make_snapshot(jobs=[])))))

    assert waits == [300.0, 540.0, 600.0]
    assert math.isnan(value(filled, name, of="longest") or 0.0)


def test_users_count_once_however_many_jobs_they_have() -> None:
    filled = metrics()
    jobs = [make_job(1, user="ann"), make_job(2, user="ann"), make_job(3, user="bob")]
    done = step(leases=[lease(1), lease(2)])

    filled.observe(make_round(replace(done, record=replace(done.record, snapshot=make_snapshot(jobs=jobs)))))

    assert value(filled, "sadvise_users", state="pending") == 2
    assert value(filled, "sadvise_users", state="running") == 0
    assert value(filled, "sadvise_users_changed") == 1


def test_the_journal_is_measured_with_its_log(tmp_path: Path) -> None:
    filled = metrics(tmp_path / "journal.sqlite")
    (tmp_path / "journal.sqlite").write_bytes(b"x" * 100)
    filled.observe(make_round(step()))
    alone = value(filled, "sadvise_journal_size_bytes")

    (tmp_path / "journal.sqlite-wal").write_bytes(b"x" * 11)
    filled.observe(make_round(step(), number=1))

    assert alone == 100
    assert value(filled, "sadvise_journal_size_bytes") == 111


def test_a_part_that_cannot_be_filled_is_told_and_the_others_are_filled(tmp_path: Path) -> None:
    filled = metrics(tmp_path / "gone.sqlite")

    faults = filled.observe(make_round(step()))

    assert len(faults) == 1 and faults[0].startswith("journal: FileNotFoundError")
    assert value(filled, "sadvise_collector_success", collector="journal") == 0
    assert value(filled, "sadvise_collector_success", collector="plan") == 1
    assert value(filled, "sadvise_cycles_total", outcome="planned") == 1


@given(st.lists(st.text(max_size=60), max_size=200))
def test_labels_have_few_values_and_plain_ones(texts: list[str]) -> None:
    values = BoundedValues(most=16)

    shown = {values.of(text) for text in texts}

    assert len(shown) <= 17
    assert all(name.isascii() and name.replace("_", "").isalnum() for name in shown)


@pytest.mark.parametrize(
    ("text", "name"), [("budget: 12 sent", "budget"), ("mode: recommend: x", "mode"), ("no name", OTHER), ("", OTHER)]
)
def test_the_class_of_a_reason_stands_before_its_colon(text: str, name: str) -> None:
    found = class_of(text)

    assert found == name


def test_a_scrape_never_sees_half_a_round() -> None:
    filled = metrics()
    done = make_round(step(left_alone={4: "not_held"}))
    filled.observe(done)
    ended = threading.Event()

    def keep_filling() -> None:
        while not ended.is_set():
            filled.observe(done)

    filler = threading.Thread(target=keep_filling, daemon=True)
    filler.start()
    seen = [value(filled, "sadvise_gpus", partition="gpu", gpu_type="gpu") for _ in range(50)]
    ended.set()
    filler.join(10.0)

    assert set(seen) == {32}


def test_health_is_stale_after_three_intervals_without_a_good_cycle() -> None:
    instants = iter((0.0, 10.0, 190.0, 191.0))
    health = Health(interval_s=ROUND_S, monotonic=lambda: next(instants))

    health.observe(make_round(step()))
    lasting, stale = health.report(), health.report()

    assert (lasting.status, lasting.is_well, lasting.last_cycle_age_s) == ("ok", True, 180.0)
    assert (stale.status, stale.is_well) == ("stale", False)


def test_health_waits_for_the_first_cycle_before_it_complains() -> None:
    instants = iter((0.0, 100.0, 181.0))
    health = Health(interval_s=ROUND_S, monotonic=lambda: next(instants))

    early, late = health.report(), health.report()

    assert (early.status, early.is_well, early.last_cycle_age_s, early.mode) == ("starting", True, None, "unknown")
    assert (late.status, late.is_well) == ("stale", False)


def test_health_is_degraded_while_rounds_fail_or_the_preferred_reader_does() -> None:
    health, plain = Health(interval_s=ROUND_S), step()
    good = replace(plain, record=replace(plain.record, snapshot=replace(make_snapshot([]), source="pyslurm")))
    fallen_back = replace(good, record=replace(good.record, snapshot=read_as_text("pyslurm failed")))

    health.observe(make_round(good))
    well = health.report()
    health.observe(make_round(fault="slurmctld is down"))
    failing = health.report()
    health.observe(make_round(fallen_back))
    other_reader = health.report()

    assert (well.status, well.reader, well.fault) == ("ok", "pyslurm", "")
    assert (failing.status, failing.reader, failing.fault) == ("degraded", "pyslurm", "slurmctld is down")
    assert (other_reader.status, other_reader.reader, other_reader.fault) == ("degraded", "text", "pyslurm failed")
    assert all(report.is_well for report in (well, failing, other_reader))


def test_rounds_that_another_reader_had_to_read_are_counted() -> None:
    filled, good = metrics(), step()
    fallen_back = replace(good, record=replace(good.record, snapshot=read_as_text("pyslurm failed")))

    for each in (good, fallen_back, fallen_back):
        filled.observe(make_round(each))

    assert value(filled, "sadvise_reader_fallbacks_total") == 2


def read_as_text(fault: str) -> Snapshot:
    """Return a snapshot that was read as text since the preferred reader failed."""
    return replace(make_snapshot([]), source="text", reader_fault=fault)


def test_health_names_the_pause_and_the_open_breakers() -> None:
    health = Health(interval_s=ROUND_S)

    health.observe(make_round(step(), mode=Mode.RECOMMEND, held_to={"paused": "", "slurm_errors": "", "control": ""}))
    report = health.report()

    assert (report.mode, report.paused, report.breakers) == ("recommend", True, ("slurm_errors",))


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("", None),
        ("127.0.0.1:9341", LoopbackAddress(host="127.0.0.1", port=9341)),
        ("127.8.8.8:0", LoopbackAddress(host="127.8.8.8", port=0)),
        ("[::1]:9341", LoopbackAddress(host="::1", port=9341)),
        ("unix:/run/sadvise/metrics.sock", SocketFile(path="/run/sadvise/metrics.sock")),
    ],
)
def test_loopback_and_socket_files_are_addresses(listen: str, address: object) -> None:
    settings = EndpointSettings(listen=listen)

    assert address_of(settings.listen) == address


@pytest.mark.parametrize(
    "listen",
    [
        "0.0.0.0:9341",
        "[::]:9341",
        "10.0.0.1:9341",
        "localhost:9341",
        "127.0.0.1",
        "127.0.0.1:65536",
        ":9341",
        "9341",
        "[::ffff:10.0.0.1]:1",
        "unix:metrics.sock",
        "unix:",
        "unix:/run/\0",
        "unix:/" + "x" * 107,
    ],
)
def test_nothing_that_others_could_reach_is_an_address(listen: str) -> None:
    with pytest.raises(ValueError, match=r"^listen must be"):
        EndpointSettings(listen=listen)
