"""Which settings `sadvise tune` tries, and the lines that put them into effect."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.domain.tune_verdict import Preset
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, SlurmParameters, parse_cluster
from advisor.sim.policies import POLICIES
from advisor.sim.policies.lifted import policy_with
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.tried_settings import (
    Family,
    SettingLine,
    joined_settings,
    lift_settings,
    pin_settings,
    plain_setting,
    slurm_changes,
    slurm_settings,
)
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace

HOUR_S = 3600.0
OPTIONS = SimulationOptions(limits=Limits(fairness="user"), planning=PlanningSettings(priority_decades=3.0))


def cluster_with(**slurm: Any) -> Cluster:
    cluster = parse_cluster("nodes=2,gpus=8")
    return replace(cluster, slurm=replace(cluster.slurm, **slurm))


def trace_of(**columns: float) -> Trace:
    return make_trace([{"time_limit_s": HOUR_S, **columns}])


def test_lifts_are_tried_over_fairness_and_decades_with_those_in_force() -> None:
    settings = lift_settings(cluster_with(), OPTIONS)

    lifts = {setting.name: setting for setting in settings if setting.family is Family.LIFT}
    assert list(lifts) == [
        "lift site",
        "lift trade 0",
        "lift trade 2",
        "lift trade 3",
        "lift trade 4",
        "lift trade 6",
        "lift account",
        "lift user",
        "lift lane",
        "lift-forecast site",
        "lift-forecast trade 3",
        "lift-forecast lane",
    ]
    trade = lifts["lift trade 2"]
    assert (trade.options.limits.fairness, trade.options.planning.priority_decades) == ("trade", 2.0)
    assert [line.text for line in trade.lines] == [
        '[guard] fairness = "trade"',
        "[planning] priority_decades = 2.0",
        "[forecasts] enabled = false",
    ]
    assert [line.text for line in lifts["lift-forecast site"].lines] == [
        '[guard] fairness = "site"',
        "[forecasts] enabled = true",
    ]
    assert {line.file for line in trade.lines} == {"sadvise.toml"}
    assert {setting.policy for setting in settings} == {"lift", "lift-forecast", "lift-oracle"} <= set(POLICIES)


def test_open_gangs_are_pinned_under_plain_slurm_and_under_a_lift() -> None:
    trace = trace_of(gpus=8, nodes_max=0)
    lift = next(each for each in lift_settings(cluster_with(), OPTIONS) if each.policy == "lift-forecast")

    (plain,), none_left_out = pin_settings(plain_setting(cluster_with(), OPTIONS), trace)
    (under_lift,), _ = pin_settings(lift, trace)

    assert (plain.name, plain.family, plain.policy, none_left_out) == ("pin", Family.PIN, "pin", [])
    assert plain.lines == (SettingLine(file="sadvise_site.lua", text="pin_gangs = true"),)
    assert (under_lift.name, under_lift.family) == (f"{lift.name}, pin", Family.BOTH)
    assert under_lift.lines == (*lift.lines, *plain.lines)
    assert policy_with(under_lift.policy).pins


@pytest.mark.parametrize("columns", [{"gpus": 1, "nodes_max": 0}, {"gpus": 8, "nodes_min": 1, "nodes_max": 1}])
def test_without_open_gangs_pins_are_left_out(columns: dict[str, int]) -> None:
    assert pin_settings(plain_setting(cluster_with(), OPTIONS), trace_of(**columns)) == (
        [],
        ["pin_gangs: no gang of the trace leaves its node count open"],
    )


def test_presets_follow_from_who_can_lose() -> None:
    by_name = {setting.name: setting.preset for setting in lift_settings(cluster_with(), OPTIONS)}

    assert {name for name, preset in by_name.items() if preset is Preset.GENTLE} == {
        *(f"lift {fairness}" for fairness in ("account", "user", "lane")),
        "lift-forecast lane",
    }
    assert {name for name, preset in by_name.items() if preset is Preset.TRADE} == {
        *(f"lift trade {decades}" for decades in (0, 2, 3, 4, 6)),
        "lift-forecast trade 3",
    }


def test_pins_and_lifts_are_joined_with_reservations_and_keep_their_preset() -> None:
    trace, cluster = trace_of(gpus=8, nodes_max=0), cluster_with(bf_min_age_reserve_s=6 * HOUR_S)
    changes, _ = slurm_changes(trace, cluster)
    (pin,), _ = pin_settings(plain_setting(cluster, OPTIONS), trace)
    lift = next(each for each in lift_settings(cluster, OPTIONS) if each.name == "lift trade 2")
    fewer = [f"bf_min_age_reserve={age}" for age in (259200, 1209600, 2592000)] + ["bf_job_part_count_reserve=1"]

    of_pin, of_lift = (joined_settings(base, trace, changes) for base in (pin, lift))

    assert pin.preset is Preset.FREE
    assert [(each.name, each.preset) for each in of_pin] == [(f"pin, {each}", Preset.GENTLE) for each in fewer]
    assert [each.name for each in of_lift] == [
        "lift trade 2, pin",
        *(f"lift trade 2, {each}" for each in fewer),
        *(f"lift trade 2, pin, {each}" for each in fewer),
    ]
    assert {each.preset for each in of_lift} == {Preset.TRADE}
    assert {each.family for each in (*of_pin, *of_lift)} == {Family.BOTH}
    last = of_lift[-1]
    assert (last.policy, last.cluster.slurm.bf_job_part_count_reserve) == ("lift-pin", 1)
    assert [line.file for line in last.lines] == ["sadvise.toml"] * 3 + ["sadvise_site.lua", "slurm.conf"]


def test_without_open_gangs_or_changes_of_slurm_a_lift_is_joined_with_the_rest() -> None:
    lift = lift_settings(cluster_with(), OPTIONS)[0]

    assert joined_settings(lift, trace_of(gpus=1), []) == []
    assert [each.policy for each in joined_settings(lift, trace_of(gpus=8, nodes_max=0), [])] == ["lift-pin"]


def test_a_ceiling_cannot_be_set() -> None:
    ceilings = [setting for setting in lift_settings(cluster_with(), OPTIONS) if setting.family is Family.CEILING]

    assert [setting.name for setting in ceilings] == [
        "lift-oracle site",
        "lift-oracle trade 3",
        "lift-oracle lane",
        "lift-oracle account",
        "lift-oracle user",
    ]
    assert not any(setting.can_be_set or setting.lines for setting in ceilings)


def test_every_change_of_slurm_is_one_parameter_with_its_line() -> None:
    cluster = cluster_with()
    changes, left_out = slurm_changes(trace_of(time_limit_s=50 * HOUR_S, switches=1, time_min_s=60.0), cluster)

    settings = slurm_settings(plain_setting(cluster, OPTIONS), changes)

    assert left_out == []
    for setting, change in zip(settings, changes, strict=True):
        assert setting.cluster == replace(cluster, slurm=replace(cluster.slurm, **{change.field: change.value}))
        assert setting.cluster != cluster
        assert (setting.policy, setting.lines) == ("slurm", (change.line,))
    lines = [change.line for change in changes]
    assert lines == [
        SettingLine(file="slurm.conf", text=text)
        for text in (
            "PriorityWeightFairshare=3000",
            "PriorityWeightFairshare=30000",
            "PriorityWeightAge=300",
            "PriorityWeightAge=3000",
            "SchedulerParameters=...,bf_max_job_test=100",
            "SchedulerParameters=...,bf_max_job_test=2000",
            "SchedulerParameters=...,bf_resolution=300",
            "SchedulerParameters=...,bf_interval=120",
            "SchedulerParameters=...,bf_min_age_reserve=21600",
            "SchedulerParameters=...,bf_min_age_reserve=259200",
            "SchedulerParameters=...,bf_min_age_reserve=1209600",
            "SchedulerParameters=...,bf_min_age_reserve=2592000",
            "SchedulerParameters=...,bf_job_part_count_reserve=1",
            "SchedulerParameters=...,bf_window=3000",
            "SchedulerParameters=...,max_switch_wait=0",
            "SchedulerParameters=...,max_switch_wait=3600",
            "SchedulerParameters=...,time_min_as_soft_limit",
        )
    ]


def test_under_a_lift_the_lines_of_both_files_are_given() -> None:
    cluster = cluster_with()
    changes, _ = slurm_changes(trace_of(), cluster)
    lift = lift_settings(cluster, OPTIONS)[0]

    first = slurm_settings(lift, changes)[0]

    assert (first.name, first.family, first.policy) == ("lift site, PriorityWeightFairshare x0.3", Family.BOTH, "lift")
    assert [line.file for line in first.lines] == ["sadvise.toml", "sadvise.toml", "slurm.conf"]
    assert first.options == lift.options


def test_what_cannot_matter_to_a_trace_is_left_out_with_the_reason() -> None:
    changes, left_out = slurm_changes(trace_of(), cluster_with())

    assert {change.field for change in changes}.isdisjoint(
        {"bf_window_s", "max_switch_wait_s", "time_min_as_soft_limit"}
    )
    assert left_out == [
        "bf_window: already as long as the longest time limit of the trace",
        "max_switch_wait: no job of the trace asks for --switches",
        "time_min_as_soft_limit: no job of the trace has a --time-min",
    ]


def test_a_weight_of_0_is_not_scaled() -> None:
    changes, _ = slurm_changes(trace_of(), cluster_with(priority_weight_fairshare=0.0))

    assert {change.field for change in changes if change.field.startswith("priority")} == {"priority_weight_age"}


@pytest.mark.parametrize(("limit_s", "minutes"), [(24.5 * HOUR_S, "1500"), (9000 * HOUR_S, "43200")])
def test_the_window_of_backfill_grows_to_the_longest_limit_and_to_thirty_days_at_most(
    limit_s: float, minutes: str
) -> None:
    changes, _ = slurm_changes(trace_of(time_limit_s=limit_s), cluster_with())

    assert f"SchedulerParameters=...,bf_window={minutes}" in [change.line.text for change in changes]


def test_jobs_without_a_limit_need_no_longer_window() -> None:
    changes, _ = slurm_changes(trace_of(time_limit_s=np.inf), cluster_with())

    assert "bf_window_s" not in [change.field for change in changes]


def test_soft_limits_that_are_on_are_tried_off() -> None:
    on = cluster_with(time_min_as_soft_limit=True, max_switch_wait_s=3600.0)

    changes, _ = slurm_changes(trace_of(time_min_s=60.0, switches=1), on)

    words = {change.field: change for change in changes}
    assert words["time_min_as_soft_limit"].line.text == "SchedulerParameters without time_min_as_soft_limit"
    assert [change.value for change in changes if change.field == "max_switch_wait_s"] == [0.0]
    assert isinstance(SlurmParameters(bf_max_job_test=words["bf_max_job_test"].value), SlurmParameters)
