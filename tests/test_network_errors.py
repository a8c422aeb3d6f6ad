"""The page on the network model: what its tables count, and that it is the page that ships."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.sim.profiles import Profiles, exposed_s, load_profiles
from tools.data.profile_data import MeasuredSpread, MeasuredStep, Measurements
from tools.fit_profiles import faults_of_page
from tools.network_errors import TEMPLATE, THEMIS, node_table, themis_table, tier_table
from tools.profile_errors import HALVED, ErrorLine

PAGE = Path(__file__).parent.parent / "docs" / "network.md"
SHIPPED = load_profiles()


def make_spread(source: str, model: str, **changes: float | str) -> MeasuredSpread:
    """Return a gang of two V100 on two nodes at 10 Gb/s, as fast as on one node."""
    plain = {"source": source, "model": model, "gpus": 2, "nodes": 2, "gbps": 10.0, "ratio": 1.0}
    return MeasuredSpread(**{**plain, **changes})  # type: ignore[arg-type]


def make_measurements(
    *, steps: tuple[MeasuredStep, ...] = (), spreads: tuple[MeasuredSpread, ...] = ()
) -> Measurements:
    """Return measurements with no more than steps and placements."""
    return Measurements(steps=steps, spreads=spreads, pairs=(), contention=(), speeds=())


def traffic_of(**gbps: float) -> Profiles:
    """Return the shipped profiles with models that send so much and hide none of it."""
    rows = SHIPPED.rows.copy()
    for model, traffic_gbps in gbps.items():
        row = SHIPPED.names.index(model)
        rows["traffic_gbps"][row], rows["overlap_ratio"][row], rows["spread_exponent"][row] = traffic_gbps, 0.0, 0.0
    return replace(SHIPPED, rows=rows)


def cells(table: str, start: str) -> list[str]:
    """Return the cells of the first line of a table that opens so."""
    line = next(line for line in table.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_limit_inside_the_node_is_held_against_the_rows_over_one_node() -> None:
    profiles = traffic_of(bert=10.0, gpt2=10.0, vgg16=10.0)
    rows = [("Pollux nodes", "bert"), ("Rubick", "gpt2"), ("Chronus", "vgg16")]
    spreads = tuple(make_spread(source, model, ratio=2.0) for source, model in rows)

    table = node_table(profiles, make_measurements(spreads=spreads))

    # Exposed is 1 at 10 Gb/s, and on one node 10 / 64 = 0.15625: 2 / 1.15625 is 13.5 % below 2.
    assert cells(table, "| Chronus") == ["Chronus", "1", "0.0%", "0.4%", "0.8%", "7.2%", "13.5%"]


def test_rows_that_do_not_start_from_one_node_say_nothing_of_its_links() -> None:
    profiles = traffic_of(bert=10.0, gpt2=10.0, vgg16=10.0)
    rows = [("Pollux nodes", "bert"), ("Rubick", "gpt2"), ("Chronus", "vgg16")]
    spreads = [make_spread(source, model, ratio=2.0) for source, model in rows]
    spreads.append(make_spread("Rubick", "gpt2", nodes=4, best_nodes=2, best_gbps=10.0, ratio=5.0))
    spreads.append(make_spread("Rubick", "bert", ratio=5.0))

    table = node_table(profiles, make_measurements(spreads=tuple(spreads)))

    assert cells(table, "| Rubick")[1:3] == ["1", "0.0%"]


def test_rows_are_gathered_by_tier_and_by_what_the_profile_rests_on() -> None:
    profiles = traffic_of(bert=10.0)
    spreads = (
        make_spread("Pollux nodes", "bert", ratio=1.6),
        make_spread("Pollux nodes", "bert", nodes=3, ratio=2.0),
        make_spread("Pollux nodes", "bert", nodes=4, ratio=4.0),
        make_spread("Rubick", "bert", nodes=8, ratio=1.0),
    )
    ratio = float(profiles.rows[profiles.names.index("bert")]["sync_ratio"])
    steps = (
        MeasuredStep(source="ElasticFlow", model="bert", gpus=16, share=1 / 16, ratio=1.0),
        MeasuredStep(source="ElasticFlow", model="bert", gpus=2, share=1.0, ratio=1.0 + ratio),
    )
    nic = ErrorLine(source=HALVED, model="", is_fitted=True, rows=7, mean=0.5, median=0.25, most=0.75, unseen=None)

    table = tier_table(profiles, make_measurements(steps=steps, spreads=spreads), [nic, replace(nic, model="dlrm")])

    assert table.splitlines()[2:] == [
        "| one node, step | ElasticFlow | yes | 1 | 0.0% | 0.0% | 0.0% |",
        "| 2 nodes, inflation | Pollux nodes | yes | 1 | 25.0% | 25.0% | 25.0% |",
        "| 3-4 nodes, inflation | Pollux nodes | yes | 2 | 25.0% | 25.0% | 50.0% |",
        "| 5-8 nodes, inflation | all others | no | 1 | 100.0% | 100.0% | 100.0% |",
        f"| NIC, two gangs | {HALVED} | yes | 7 | 0.500 | 0.250 | 0.750 |",
    ]


def test_the_speeds_beside_those_of_themis_are_worked_out_by_hand() -> None:
    profiles = traffic_of(vgg16=10.0, alexnet=2.0)

    table = themis_table(profiles)

    # Four GPUs: 1.5 times the traffic. VGG: 1 / (1 + 1.5) and 1 / (1 + 3); AlexNet: 1 / (1 + 0.3) and 1 / (1 + 0.6).
    assert cells(table, "| vgg16") == ["vgg16", "0.72", "0.40", "0.52", "0.25"]
    assert cells(table, "| alexnet") == ["alexnet", "0.80", "0.77", "0.64", "0.62"]
    assert "Of the 7 pairs of models that Themis tells apart, ours stand in the same order in 7 over machines" in table


@pytest.mark.parametrize("model", THEMIS)
def test_a_rack_is_never_better_than_a_machine(model: str) -> None:
    profile = SHIPPED.rows[SHIPPED.names.index(model)]

    machines, racks = THEMIS[model]
    assert racks < machines < 1.0
    assert exposed_s(profile, 4, 2, 5.0) > exposed_s(profile, 4, 2, 10.0)


def test_the_page_shows_what_the_shipped_profiles_say() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page.startswith(TEMPLATE.read_text(encoding="utf-8").partition("{")[0])
    assert page.endswith(themis_table(SHIPPED))


def test_a_page_that_differs_is_named(tmp_path: Path) -> None:
    page = tmp_path / "network.md"
    page.write_text("edited by hand", encoding="utf-8")

    assert faults_of_page("edited by hand", page) == []
    assert faults_of_page("made", page) == [
        f"{page} is not what the measurements give: run python -m tools.fit_profiles"
    ]
