"""Job profiles: the formulas by hand, what always holds of them, and the table that ships."""

import csv
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import SimulationError
from advisor.sim.profiles import (
    MOST_NODES,
    PROFILE_DTYPE,
    PROFILE_FILE,
    Profiles,
    exposed_s,
    gpu_share_inflation,
    inflation,
    load_profiles,
    step_s,
)

SHIPPED = load_profiles()
ROWS = st.sampled_from(range(len(SHIPPED.names))).map(lambda row: SHIPPED.rows[row])
NODES = st.integers(1, 64)
BANDWIDTHS = st.floats(0.01, 3200.0)


def make_profile(**numbers: float) -> np.void:
    """Return a profile that scales perfectly and sends nothing, but for `numbers`."""
    rows = np.zeros(1, PROFILE_DTYPE)
    for field, number in numbers.items():
        rows[field] = number
    profile: np.void = rows[0]
    return profile


@pytest.mark.parametrize(
    ("serial", "sync", "gpus", "by_hand"),
    [
        (0.0, 0.0, 8, 0.125),
        (1.0, 0.0, 8, 1.0),
        (0.1, 0.0, 4, 0.325),  # 0.1 + 0.9 / 4
        (0.1, 0.02, 4, 0.365),  # two doublings more
        (0.0, 0.5, 2, 1.0),
    ],
)
def test_a_step_is_its_serial_part_its_share_and_a_cost_per_doubling(
    serial: float, sync: float, gpus: int, by_hand: float
) -> None:
    profile = make_profile(serial_ratio=serial, sync_ratio=sync)

    time_s = step_s(profile, gpus)

    assert time_s == pytest.approx(by_hand)


@pytest.mark.parametrize("name", SHIPPED.names)
def test_on_one_gpu_a_step_takes_one_step(name: str) -> None:
    profile = SHIPPED.rows[SHIPPED.names.index(name)]

    time_s = step_s(profile, 1)

    assert time_s == pytest.approx(1.0, abs=1e-12)


@given(serial=st.floats(0.0, 1.0), gpus=st.integers(1, 512))
def test_without_synchronisation_one_gpu_more_never_slows(serial: float, gpus: int) -> None:
    profile = make_profile(serial_ratio=serial)

    times = [step_s(profile, gpus), step_s(profile, gpus + 1)]

    assert times[1] <= times[0] + 1e-12


def test_synchronisation_can_make_more_gpus_slower() -> None:
    profile = make_profile(serial_ratio=0.5, sync_ratio=0.1)

    times = [step_s(profile, gpus) for gpus in (8, 64)]

    assert times == pytest.approx([0.8625, 1.1078125])


@pytest.mark.parametrize(
    ("exponent", "overlap", "gpus", "nodes", "gbps", "by_hand"),
    [
        (0.0, 0.0, 2, 2, 10.0, 1.0),  # 10 Gb/s * 2 * 1/2 over 10 Gb/s
        (0.0, 0.25, 2, 2, 10.0, 0.75),
        (0.0, 2.0, 2, 2, 10.0, 0.0),  # all of it hides
        (1.0, 0.2, 4, 4, 10.0, 2.8),  # twice the traffic of two nodes, times 3/2
        (-1.0, 0.0, 4, 4, 10.0, 0.75),
        (1.0, 0.0, 4, 1, 10.0, 0.0),
        (0.0, 0.0, 4, 2, 100.0, 0.15),
    ],
)
def test_what_does_not_hide_of_the_traffic_is_waited_for(
    exponent: float, overlap: float, gpus: int, nodes: int, gbps: float, by_hand: float
) -> None:
    profile = make_profile(traffic_gbps=10.0, spread_exponent=exponent, overlap_ratio=overlap)

    exposed = exposed_s(profile, gpus, nodes, gbps)

    assert exposed == pytest.approx(by_hand)


def test_beyond_the_nodes_that_were_measured_the_traffic_does_not_grow() -> None:
    profile = make_profile(traffic_gbps=10.0, spread_exponent=1.5)

    exposed = [exposed_s(profile, 16, nodes, 10.0) for nodes in (2, int(MOST_NODES), int(MOST_NODES) + 1, 16)]

    assert exposed[0] < exposed[1] == exposed[2] == exposed[3]


def test_a_link_that_gives_nothing_is_waited_for_very_long() -> None:
    profile = make_profile(traffic_gbps=10.0)

    exposed = exposed_s(profile, 4, 2, 0.0)

    assert 1e9 < exposed < float("inf")


@given(profile=ROWS, gpus=st.integers(2, 256), nodes=NODES, gbps=BANDWIDTHS)
def test_a_faster_link_never_exposes_more(profile: np.void, gpus: int, nodes: int, gbps: float) -> None:
    slow, fast = exposed_s(profile, gpus, nodes, gbps), exposed_s(profile, gpus, nodes, 2.0 * gbps)

    assert 0.0 <= fast <= slow


@given(profile=ROWS, gpus=st.integers(2, 256), nodes=NODES, gbps=BANDWIDTHS, best_nodes=NODES, best_gbps=BANDWIDTHS)
def test_no_placement_is_faster_than_the_best_one(
    profile: np.void, gpus: int, nodes: int, gbps: float, best_nodes: int, best_gbps: float
) -> None:
    factor = inflation(profile, gpus, nodes, gbps, best_nodes, best_gbps)

    assert 1.0 <= factor < float("inf")


@given(profile=ROWS, gpus=st.integers(2, 256), nodes=NODES, gbps=BANDWIDTHS)
def test_the_best_placement_inflates_nothing(profile: np.void, gpus: int, nodes: int, gbps: float) -> None:
    factor = inflation(profile, gpus, nodes, gbps, nodes, gbps)

    assert factor == 1.0


def test_inflation_compares_two_placements() -> None:
    profile = make_profile(traffic_gbps=10.0)

    factors = [inflation(profile, 4, 4, 10.0, 1, 0.0), inflation(profile, 4, 4, 10.0, 2, 20.0)]

    # Exposed: 1.5 on four nodes at 10 Gb/s, 0.75 on two at 20 Gb/s.
    assert factors == pytest.approx([2.5, 2.5 / 1.75])


def test_a_model_that_runs_faster_spread_out_is_not_sped_up() -> None:
    profile = make_profile(traffic_gbps=10.0, spread_exponent=-1.0)

    factor = inflation(profile, 4, 4, 10.0, 2, 10.0)

    assert exposed_s(profile, 4, 4, 10.0) < exposed_s(profile, 4, 2, 10.0)
    assert factor == 1.0


@pytest.mark.parametrize(("need", "pressure", "by_hand"), [(0.4, 0.5, 1.0), (0.9, 0.6, 1.5), (1.0, 1.0, 2.0)])
def test_two_jobs_on_one_gpu_add_up(need: float, pressure: float, by_hand: float) -> None:
    factor = gpu_share_inflation(make_profile(gpu_need=need), make_profile(gpu_pressure=pressure))

    assert factor == pytest.approx(by_hand)


@given(mine=ROWS, other=ROWS)
def test_a_neighbour_never_speeds_a_job_up(mine: np.void, other: np.void) -> None:
    assert 1.0 <= gpu_share_inflation(mine, other) < 10.0


def test_the_table_opens_with_the_neutral_row_and_no_name_comes_twice() -> None:
    assert SHIPPED.names[0] == "neutral"
    assert len(set(SHIPPED.names)) == len(SHIPPED.names) == len(SHIPPED.rows) == len(SHIPPED.type_speed)


def test_the_numbers_of_the_table_are_possible() -> None:
    rows = SHIPPED.rows

    assert all(np.isfinite(rows[field]).all() for field in PROFILE_DTYPE.names or ())
    assert ((rows["serial_ratio"] >= 0) & (rows["serial_ratio"] < 1) & (rows["sync_ratio"] >= 0)).all()
    assert (rows["traffic_gbps"] > 0).all()
    for field in ("overlap_ratio", "node_sensitivity", "node_pressure"):
        assert ((rows[field] >= 0) & (rows[field] <= 1)).all()
    assert (SHIPPED.type_speed > 0).all()
    assert (SHIPPED.type_speed[:, SHIPPED.gpu_types.index("v100")] == 1.0).all()


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("step", ("serial_ratio", "sync_ratio")),
        ("network", ("traffic_gbps", "spread_exponent", "overlap_ratio")),
        ("shared GPU", ("gpu_need", "gpu_pressure")),
        ("shared NIC", ("node_sensitivity", "node_pressure")),
    ],
)
def test_the_neutral_row_holds_the_medians_and_lends_them_to_what_was_not_measured(
    part: str, fields: tuple[str, ...]
) -> None:
    with PROFILE_FILE.open(newline="", encoding="utf-8") as lines:
        neutral, *others = list(csv.DictReader(lines))
    models = [line for line in others if "/" not in line["model"]]
    measured = [line for line in models if f"{part}: " in line["source"] and f"{part}: as " not in line["source"]]
    unknown = [line for line in models if f"{part}: " not in line["source"]]

    for field in fields:
        assert float(neutral[field]) == pytest.approx(median(float(line[field]) for line in measured), rel=1e-3)
        assert {line[field] for line in unknown} == {neutral[field]}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("bert", "bert"),
        ("BERT-base", "bert"),
        ("ResNet-50", "resnet50"),
        ("imagenet", "resnet50"),
        ("inception_v3", "inception3"),
        ("LM (batch size 5)", "lm/5"),
        ("Transformer (batch size 64)", "transformer"),
        ("ResNet-18 (batch size 7)", "resnet18"),
        ("LM (wikitext2)", "lm"),
        ("t5", "neutral"),
        ("a2c", "neutral"),
        ("", "neutral"),
    ],
)
def test_names_are_found_as_traces_write_them(written: str, name: str) -> None:
    codes = SHIPPED.codes((written,))

    assert codes.dtype == np.int32
    assert [SHIPPED.names[code] for code in codes] == [name]


def test_no_models_have_no_codes() -> None:
    assert SHIPPED.codes(()).shape == (0,)


def test_speeds_stand_by_model_and_type() -> None:
    speeds = dict(zip(SHIPPED.gpu_types, SHIPPED.type_speed[SHIPPED.names.index("resnet50")], strict=True))

    assert speeds["k80"] < speeds["t4"] < speeds["v100"] < speeds["a100"] == speeds["a800"]


def written(tmp_path: Path, edit: tuple[str, str]) -> Path:
    """Write a copy of the shipped table with the first occurrence of a text replaced."""
    file = tmp_path / "profiles.csv"
    file.write_text(PROFILE_FILE.read_text(encoding="utf-8").replace(*edit, 1), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (("sync_ratio", "sink_ratio"), "KeyError"),
        (("\nneutral,", "\nneutral,x"), "ValueError"),
        (("\nneutral,", "\nusual,"), "row 'neutral' must be the first"),
        (("\na3c,", "\nbert,"), "no name twice"),
    ],
)
def test_a_damaged_table_is_refused_by_name(tmp_path: Path, edit: tuple[str, str], fault: str) -> None:
    file = written(tmp_path, edit)

    with pytest.raises(SimulationError, match=fault) as refused:
        load_profiles(file)

    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "profiles.csv"
    file.write_text("")

    with pytest.raises(SimulationError, match="not a table of profiles"):
        load_profiles(file)


def test_a_table_loads_as_it_is_written(tmp_path: Path) -> None:
    copy = load_profiles(written(tmp_path, ("", "")))

    assert isinstance(copy, Profiles)
    assert copy.names == SHIPPED.names
    assert (copy.rows == SHIPPED.rows).all()
