"""What a site lacks for each lever."""

from dataclasses import replace

import pytest

from advisor.domain.actions import Lever
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S, duration, gain, plural
from advisor.planning.levers import missing_by_lever, need_of
from advisor.settings import PlanningSettings
from tests.builders import make_config, make_snapshot, make_topology


def site(**config: object) -> Snapshot:
    """A snapshot of a site with some other configuration."""
    return make_snapshot([], config=make_config(**config))  # type: ignore[arg-type]


SOFT = {"max_switch_wait": "86400", "time_min_as_soft_limit": ""}


def test_every_lever_is_judged_and_a_full_site_lacks_none() -> None:
    assert all(need_of(lever).cost for lever in Lever)
    assert missing_by_lever(site(scheduler_parameters=SOFT)) == {}


@pytest.mark.parametrize(
    ("lever", "snapshot", "word"),
    [
        (Lever.NICE, site(priority_type="priority/basic"), "priority/basic"),
        (Lever.NICE, site(priority_type=""), "unknown"),
        (Lever.SWITCHES, site(scheduler_parameters={"max_switch_wait": "30"}), "max_switch_wait"),
        (Lever.SWITCHES, site(scheduler_parameters={"bf_topopt_enable": ""}), "bf_topopt_enable"),
        (Lever.NODE_RANGE, site(scheduler_parameters={"bf_topopt_enable": ""}), "bf_topopt_enable"),
        (Lever.SWITCHES, replace(site(), topology=make_topology(kind=TopologyKind.BLOCK)), "block"),
        (Lever.SWITCHES, replace(site(), topology=make_topology({"leaf1": ["n01"]})), "two leaf"),
        (Lever.GPU_COUNT, replace(site(), config=SiteConfig()), "could not be read"),
        (Lever.TIME_MIN, site(), "time_min_as_soft_limit is not in SchedulerParameters"),
        (Lever.TIME_MIN, site(slurm_version="22.05.8", scheduler_parameters=SOFT), "22.05.8 knows no soft limits"),
        (Lever.TIME_MIN, site(slurm_version="", scheduler_parameters=SOFT), "an unknown release"),
        (Lever.TIME_MIN, site(scheduler_type="sched/builtin", scheduler_parameters=SOFT), "sched/builtin"),
        (Lever.TIME_MIN, site(scheduler_type="", scheduler_parameters=SOFT), "unknown"),
    ],
)
def test_missing_lever_says_what_is_missing(lever: Lever, snapshot: Snapshot, word: str) -> None:
    assert word in missing_by_lever(snapshot)[lever]


@pytest.mark.parametrize(
    ("seconds", "words"), [(45, "45 s"), (720, "12 min"), (12_600, "3.5 h"), (181_440, "2.1 d"), (-720, "-12 min")]
)
def test_durations_read_in_their_largest_fitting_unit(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value_s", "low_s", "high_s", "words"),
    [
        pytest.param(9 * HOUR_S, -27.0, 41.4 * HOUR_S, "9.0 h (0 to 41.4)", id="little beside much is 0"),
        pytest.param(9 * HOUR_S, -0.4 * HOUR_S, 41.4 * HOUR_S, "9.0 h (-0.4 to 41.4)", id="a loss shows"),
        pytest.param(90.0, 0.0, 10 * MINUTE_S, "2 min (0 to 10)", id="minutes"),
        pytest.param(5.0, -9.0, 8.0, "5 s (-9 to 8)", id="seconds"),
        pytest.param(3 * DAY_S, HOUR_S, 4 * DAY_S, "3.0 d (0 to 4.0)", id="days"),
        pytest.param(1.5 * HOUR_S, 1.5 * HOUR_S, 1.5 * HOUR_S, "1.5 h", id="no range"),
        pytest.param(0.0, 0.0, 0.0, "0 s", id="nothing"),
    ],
)
def test_gain_reads_in_one_unit_with_its_range(value_s: float, low_s: float, high_s: float, words: str) -> None:
    assert gain(value_s, low_s, high_s) == words


def test_counts_agree_with_their_noun() -> None:
    assert (plural(1, "job"), plural(2, "job")) == ("1 job", "2 jobs")


@pytest.mark.parametrize(
    "values",
    [
        {"depth": 0},
        {"lift_lease_s": 0.0},
        {"used_limit_ratio_low": 0.0},
        {"soft_limit_ratio_high": 1.1},
        {"scaling_exponent": 1.1},
        {"leaf_inflation": 0.9},
        {"leaf_inflation": 1.4},
        {"min_saving_s": -1.0},
        {"spine_inflation": 1e308},
        {"lift_lease_s": 1e-300},
    ],
)
def test_senseless_planner_settings_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        PlanningSettings(**values)  # type: ignore[arg-type]
