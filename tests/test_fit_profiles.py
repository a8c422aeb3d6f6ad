"""The fit of the job profiles: what is read of the data sets, what the search finds, what the check refuses."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from advisor.sim.profiles import PROFILE_DTYPE, PROFILE_FILE, inflation, step_s
from tools.data import profile_data
from tools.data.profile_data import Beside, MeasuredSpread, MeasuredStep, read_measurements
from tools.fit_profiles import LIMITS, faults_of, faults_of_page, fit, main, profiles_of, table_text
from tools.network_errors import network_page
from tools.profile_errors import ErrorLine, error_lines, markdown
from tools.profile_fit import (
    STEPS_FROM,
    fit_contention,
    fit_pairs,
    fit_pressure_slope,
    fit_spreads,
    fit_steps,
    folds,
    search,
    sensitivity_of_network,
    spreads_at,
    steps_at,
    traffic_of_sensitivity,
    without_batch,
)

PAGE = Path(__file__).parent.parent / "docs" / "profiles.md"
NETWORK_PAGE = PAGE.with_name("network.md")
Fitted = tuple[str, list[ErrorLine], str]
DATA = os.environ.get("SADVISE_DATA", "")
TYPE_SPEED = {"v100": 1.0, "t4": 0.5}


def make_step(**changes: float) -> MeasuredStep:
    """Return a step on two GPUs, half a batch each, as long as on one."""
    return MeasuredStep(**{"source": "", "model": "bert", "gpus": 2, "share": 0.5, "ratio": 1.0, **changes})  # type: ignore[arg-type]


def make_spread(**changes: float | str) -> MeasuredSpread:
    """Return a gang of four V100 on two nodes at 10 Gb/s, as fast as on one node."""
    plain = {"source": "", "model": "bert", "gpus": 4, "nodes": 2, "gbps": 10.0, "ratio": 1.0}
    return MeasuredSpread(**{**plain, **changes})  # type: ignore[arg-type]


def beside(mine: str, other: str, speed: float) -> Beside:
    """Return a measured speed of one job beside another."""
    return Beside(source="", mine=mine, other=other, speed=speed)


def write(folder: Path, name: str, *lines: str) -> Path:
    """Write a file of lines and return its path."""
    file = folder / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_the_search_finds_the_bottom_of_a_tilted_bowl() -> None:
    target = np.array([0.3, -0.7, 1.9])

    def loss(point: np.ndarray) -> float:
        """Return a distance whose axes hang together."""
        away = point - target
        return float(away @ away + 0.8 * away[0] * away[1])

    found = search(loss, (0.0, 0.0, 0.0), (-5.0,) * 3, (5.0,) * 3)

    assert found == pytest.approx(target, abs=2e-3)


def test_the_search_stays_within_its_bounds() -> None:
    found = search(lambda point: float(np.abs(point - 3.0).sum()), (0.5, 0.5), (0.0, 0.0), (1.0, 2.0))

    assert found.tolist() == [1.0, 2.0]


def test_step_numbers_are_found_again() -> None:
    truth = np.array([0.12, 0.03])
    sizes = [make_step(gpus=gpus, share=batch / gpus) for gpus in (1, 2, 4, 8, 16) for batch in (0.5, 1.0)]
    rows = [make_step(gpus=row.gpus, share=row.share, ratio=float(steps_at(truth, [row])[0])) for row in sizes]

    found = fit_steps(rows)

    assert found == pytest.approx(truth, abs=2e-3)


def test_a_step_time_is_that_of_the_simulator_where_the_batch_is_kept() -> None:
    profile = np.array([tuple(0.1 * place for place in range(1, 10))], PROFILE_DTYPE)[0]
    numbers = np.array([profile["serial_ratio"], profile["sync_ratio"]])

    ratios = steps_at(numbers, [make_step(gpus=gpus, share=1 / gpus) for gpus in (1, 3, 8)])

    assert ratios == pytest.approx([step_s(profile, gpus) for gpus in (1, 3, 8)])


def test_a_step_time_can_stand_over_that_of_another_size() -> None:
    row = make_step(gpus=32, share=1 / 32, base_gpus=16, base_share=1 / 16)

    ratio = steps_at(np.array([0.1, 0.0]), [row])[0]

    assert ratio == pytest.approx((0.1 + 0.9 / 32) / (0.1 + 0.9 / 16))


def test_network_numbers_are_found_again() -> None:
    truth = np.array([24.0, 0.5, 0.3])
    sizes = [
        make_spread(gpus=nodes * each, nodes=nodes, gbps=gbps)
        for nodes in (2, 3, 4)
        for each in (1, 2, 4)
        for gbps in (10.0, 40.0)
    ]
    ratios = spreads_at(truth, sizes, TYPE_SPEED)
    rows = [
        make_spread(gpus=row.gpus, nodes=row.nodes, gbps=row.gbps, ratio=float(ratio))
        for row, ratio in zip(sizes, ratios, strict=True)
    ]

    found = fit_spreads(rows, TYPE_SPEED)

    assert spreads_at(found, sizes, TYPE_SPEED) == pytest.approx(ratios, rel=0.02)


def test_few_rows_find_the_traffic_and_nothing_else() -> None:
    found = fit_spreads([make_spread(ratio=2.0)] * 3, TYPE_SPEED)

    # 1.5 times the traffic over 10 Gb/s is one step.
    assert found == pytest.approx([10.0 / 1.5, 0.0, 0.0], rel=1e-2)


def test_a_known_traffic_is_kept() -> None:
    found = fit_spreads([make_spread(nodes=4, best_nodes=2, best_gbps=10.0, ratio=1.5)], TYPE_SPEED, 20.0)

    # Exposed 3 on two nodes; five on four, 5/3 of the traffic.
    assert found == pytest.approx([20.0, np.log2(5.0 / 3.0), 0.0], abs=2e-3)


def test_the_network_fit_sees_what_the_simulator_does() -> None:
    profile = np.array([(0, 0, 30.0, 0.7, 0.4, 0, 0, 0, 0)], PROFILE_DTYPE)[0]
    numbers = np.array([30.0, 0.7, 0.4])
    rows = [
        make_spread(gpus=gpus, nodes=nodes, gbps=gbps, best_nodes=best, best_gbps=gbps, gpu_type="t4", pace=1.6)
        for gpus in (2, 8, 32)
        for nodes in (1, 2, 3, 4, 8)
        for best in (1, 2)
        for gbps in (5.0, 50.0)
    ]

    seen = spreads_at(numbers, rows, TYPE_SPEED)
    # A T4 computes half as fast, at a batch per GPU that steps 1.6 times as fast.
    simulated = [inflation(profile, x.gpus, x.nodes, x.gbps / 0.8, x.best_nodes, x.best_gbps / 0.8) for x in rows]

    assert seen == pytest.approx(simulated)


def test_speeds_of_pairs_are_found_again() -> None:
    needs, pressures = {"a": 0.6, "b": 1.1}, {"a": 0.7, "b": 0.9}
    rows = [beside(mine, other, 1.0 / max(1.0, needs[mine] + pressures[other])) for mine in "ab" for other in "ab"]

    found = fit_pairs(rows)

    for row in rows:
        assert 1.0 / (found[row.mine][0] + found[row.other][1]) == pytest.approx(row.speed, abs=5e-3)


def test_needs_and_pressures_have_one_mean() -> None:
    found = fit_pairs([beside("a", "b", 0.5), beside("b", "a", 0.6), beside("a", "a", 0.4)])

    assert sum(need for need, _ in found.values()) == pytest.approx(sum(pressure for _, pressure in found.values()))


def test_the_gang_that_presses_most_takes_an_equal_share() -> None:
    sensitivities, pressures = {"a": 0.8, "b": 0.2}, {"a": 1.0, "b": 0.3}
    rows = [beside(mine, other, 1 / (1 + sensitivities[mine] * pressures[other])) for mine in "ab" for other in "ab"]

    found = fit_contention(rows)

    assert max(pressure for _, pressure in found.values()) == 1.0
    assert found["a"] == pytest.approx((0.8, 1.0), abs=5e-3)
    assert found["b"] == pytest.approx((0.2, 0.3), abs=5e-3)


def test_an_even_split_leaves_only_sensitivities() -> None:
    found = fit_contention([beside("a", "b", 0.8), beside("b", "a", 0.625)], is_split_evenly=True)

    assert found["a"] == pytest.approx((0.25, 1.0), abs=5e-3)
    assert found["b"] == pytest.approx((0.6, 1.0), abs=5e-3)


def test_the_pressure_of_the_unmeasured_is_a_share_of_their_sensitivity() -> None:
    contention = {"a": (0.8, 0.4), "b": (0.5, 0.25)}
    rows = [
        beside(mine, other, 1 / (1 + contention[mine][0] * contention[other][1])) for mine in "ab" for other in "ab"
    ]

    slope = fit_pressure_slope(contention, rows)

    assert slope == pytest.approx(0.5, abs=5e-3)


@pytest.mark.parametrize("sensitivity", [0.1, 0.5, 0.9])
def test_a_sensitivity_and_its_traffic_say_the_same(sensitivity: float) -> None:
    network = np.array([traffic_of_sensitivity(sensitivity), 0.0, 0.0])

    assert sensitivity_of_network(network) == pytest.approx(sensitivity)


@pytest.mark.parametrize("count", [5, 6, 23])
def test_every_row_is_left_out_once(count: int) -> None:
    masks = folds(count)

    assert (np.sum(masks, axis=0) == 1).all()
    assert len(masks) == 5


def test_too_few_rows_are_not_left_out() -> None:
    assert folds(4) == []


def test_elasticflow_is_read_as_shares_of_the_largest_batch_on_one_gpu(tmp_path: Path) -> None:
    for model in ("bert", "gpt2", "inception3", "resnet50", "vgg16"):
        write(tmp_path, f"{model}.csv", "global_batch_size,1,2", "64,8,10", "128,5,8")

    steps = [step for step in profile_data._elasticflow(tmp_path) if step.model == "bert"]

    assert [(step.gpus, step.share, step.ratio) for step in steps] == [
        (1, 0.5, 5 / 8),
        (2, 0.25, 5 / 10),
        (2, 0.5, 5 / 8),
    ]


def test_pollux_compares_with_the_same_batch_per_gpu_on_one_node(tmp_path: Path) -> None:
    table = ("placement,local_bsz,step_time,sync_time", "1,8,1.0,0", "1,4,0.6,0", "4,4,0.8,0", "44,4,2.0,0", "22,8,9,0")
    for name in (*profile_data.POLLUX, "deepspeech2"):
        write(tmp_path, f"{name}-placements{'-1node' if name == 'deepspeech2' else ''}.csv", *table)

    steps, spreads = profile_data._pollux(tmp_path)

    assert [(x.gpus, x.share, x.ratio) for x in steps if x.model == "bert"] == [(1, 0.5, 0.6), (4, 0.5, 0.8)]
    # 2+2 GPUs at batch 8 have no measurement on one node to stand beside.
    assert [(x.gpus, x.nodes, x.pace, x.ratio) for x in spreads if x.model == "bert"] == [(8, 2, 1.25, 2.5)]


@pytest.mark.parametrize(
    ("placement", "gbps"), [("11", 200.0), ("22", 200.0), ("26", 200.0), ("35", 400.0), ("88", 800.0)]
)
def test_a_rubick_node_sends_through_one_nic_for_every_two_gpus(placement: str, gbps: float) -> None:
    assert profile_data._rubick_gbps(placement) == gbps


def test_full_nodes_are_what_large_models_are_compared_with(tmp_path: Path) -> None:
    head = "exec_plan,placement,iter_time,forward,overlap_sync,optimize"
    rows = (
        "224,88,2.0,0,0,0",
        "242,88,1.5,0,0,0",
        "224,4444,3.0,0,0,0",
        "248,8888,0.75,0,0,0",
        "zero-offload,8,9,0,0,0",
    )
    for model in ("llama7", "llama30"):
        write(tmp_path, f"{model}-placements.csv", head, *rows)

    steps, spreads = profile_data._rubick_large(tmp_path)

    assert [(x.gpus, x.base_gpus, x.ratio) for x in steps if x.model == "llama7"] == [(32, 16, 0.5)]
    spread = next(x for x in spreads if x.model == "llama7")
    assert (spread.gpus, spread.nodes, spread.best_nodes, spread.gbps, spread.best_gbps) == (16, 4, 2, 400.0, 800.0)
    assert (spread.ratio, spread.pace) == (2.0, 1.0)


def test_chronus_slow_downs_are_inverse_speeds(tmp_path: Path) -> None:
    file = tmp_path / "chronus.json"
    file.write_text(json.dumps({"vgg16": {"4": {"1": 1.0, "2": 0.5}}}))

    spreads = list(profile_data._chronus(file))

    assert [(x.model, x.gpus, x.nodes, x.ratio) for x in spreads] == [("vgg16", 4, 2, 2.0)]


def test_extrapolated_rows_are_left_out(tmp_path: Path) -> None:
    alone = write(
        tmp_path, "alone.csv", "model,gpus,nodes,samples_per_s,extrapolated",
        "DLRM,8,2,20,0", "DLRM,8,4,10,0", "DLRM,8,8,5,1",
    )  # fmt: skip
    shared = write(
        tmp_path, "shared.csv",
        "model,gpus,nodes,corunner_model,corunner_gpus,corunner_nodes,throughput_ratio,extrapolated",
        "DLRM,8,4,FSDP,8,4,0.5,0", "DLRM,8,8,FSDP,8,4,0.9,1",
    )  # fmt: skip

    spreads = list(profile_data._deepshare_spreads(alone))
    contention = list(profile_data._deepshare_contention(shared))

    assert [(x.nodes, x.best_nodes, x.ratio) for x in spreads] == [(4, 2, 2.0)]
    assert [(x.mine, x.other, x.speed) for x in contention] == [("dlrm", "fsdp", 0.5)]


def test_a_pair_is_seen_from_both_sides_and_once_from_equal_ones(tmp_path: Path) -> None:
    file = write(
        tmp_path, "pairs.csv",
        "gpu_type,model1,batch_size1,model2,batch_size2,isolated1,isolated2,colocated1,colocated2",
        "v100,LM,5,A3C,,10,8,5,2", "v100,LM,5,LM,5,10,10,6,6", "v100,LM,5,LM,80,10,4,0,0",
        "k80,ResNet-18,16,LM,5,4,4,3,1",
    )  # fmt: skip

    pairs = list(profile_data._gavel_pairs(file))

    assert [(x.source, x.mine, x.other, x.speed) for x in pairs] == [
        ("Gavel pairs", "lm/5", "a3c", 0.5),
        ("Gavel pairs", "a3c", "lm/5", 0.25),
        ("Gavel pairs", "lm/5", "lm/5", 0.6),
        ("Gavel pairs", "resnet18/16", "lm/5", 0.75),
        ("Gavel K80 pairs", "lm/5", "resnet18/16", 0.25),
    ]


def test_batch_sizes_can_be_forgotten() -> None:
    rows = without_batch([beside("lm/5", "a3c", 0.5)])

    assert [(row.mine, row.other) for row in rows] == [("lm", "a3c")]


def test_the_best_mixed_precision_rate_of_a_vendor_table_counts(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv.gz"
    heads = '"[""GPUs"", ""Throughput - TF32"", ""Throughput - mixed precision"", ""Throughput speedup""]"'
    readme = "PyTorch/Classification/ConvNets/resnet50v1.5/README.md"
    lines = (
        "readme_path,section_path,header_cells_json,row_cells_json",
        f'{readme},DGX A100,{heads},"[""1"", ""900 img/s"", ""2,400 img/s"", ""2.6x""]"',
        f'{readme},DGX A100,{heads},"[""8"", ""7000 img/s"", ""9,999 img/s"", ""2.6x""]"',
        f'{readme},DGX-1 16GB,{heads},"[""1"", ""300 img/s"", ""1200 img/s"", ""3.2x""]"',
        f'{readme},DGX-1 32GB,{heads},"[""1"", ""300 img/s"", ""1100 img/s"", ""3.2x""]"',
    )
    file.write_bytes(gzip.compress("\n".join(lines).encode()))

    speeds = list(profile_data._nvidia_speeds(file))

    assert [(x.model, x.gpu_type, x.speed) for x in speeds] == [("resnet50", "a100", 2.0)]


def make_line(source: str, mean: float, *, model: str = "", is_fitted: bool = True) -> ErrorLine:
    """Return the errors against a data set."""
    return ErrorLine(
        source=source, model=model, is_fitted=is_fitted, rows=3, mean=mean, median=mean, most=mean, unseen=None
    )


def test_an_error_above_its_limit_is_named() -> None:
    lines = [make_line("Chronus", 0.5), make_line("ElasticFlow", 0.0)]

    faults = faults_of(PROFILE_FILE.read_text(encoding="utf-8"), lines, PROFILE_FILE)

    assert len(faults) == 1
    assert faults[0].startswith("Chronus: mean error 0.5000 is above its limit")


def test_only_what_was_fitted_on_has_a_limit() -> None:
    lines = [make_line("Chronus", 0.5, is_fitted=False), make_line("Chronus", 0.5, model="vgg16")]

    faults = faults_of(PROFILE_FILE.read_text(encoding="utf-8"), lines, PROFILE_FILE)

    assert faults == []


@pytest.mark.parametrize("name", ["profiles.csv", "absent.csv"])
def test_a_table_that_differs_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, "profiles.csv", "edited by hand")

    faults = faults_of(PROFILE_FILE.read_text(encoding="utf-8"), [], tmp_path / name)

    assert faults == [f"{tmp_path / name} is not what the measurements give: run python -m tools.fit_profiles"]


def test_every_data_set_that_several_rows_were_fitted_to_has_a_limit() -> None:
    assert {*STEPS_FROM.values(), "Pollux nodes", "Rubick", "Gavel pairs", "DeepShare beside"} <= LIMITS.keys()


def test_errors_stand_as_percentages_of_times_and_as_differences_of_speeds() -> None:
    text = markdown([make_line("Chronus", 0.125), make_line("Gavel pairs", 0.0625, model="lm")])

    assert "| Chronus | inflation, 2-4 nodes | yes | 3 | 12.5% | 12.5% | 12.5% |  |" in text
    assert "| Gavel pairs | lm | yes | 3 | 0.062 | 0.062 | 0.062 |  |" in text


def test_without_a_folder_one_line_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SADVISE_DATA", raising=False)

    status = main([])

    assert status == 1
    assert capsys.readouterr().err == "no folder of published data: give --data DIR or set SADVISE_DATA\n"


def test_a_folder_without_measurements_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--data", str(tmp_path), "-o", str(tmp_path / "profiles.csv")])

    said = capsys.readouterr().err
    assert status == 1
    assert str(tmp_path) in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    """Return the table that the measurements give, its errors, and the page on the network model."""
    measured = read_measurements(Path(DATA))
    text = table_text(fit(measured))
    profiles = profiles_of(text)
    lines = error_lines(profiles, measured)
    return text, lines, network_page(profiles, measured, lines)


@pytest.mark.needs("measurements")
def test_the_shipped_table_is_what_the_measurements_give(fitted: Fitted) -> None:
    text, lines, _ = fitted

    assert faults_of(text, lines, PROFILE_FILE) == []


@pytest.mark.needs("measurements")
def test_the_page_shows_the_errors_of_the_shipped_table(fitted: Fitted) -> None:
    _, lines, _ = fitted

    assert markdown(lines) in PAGE.read_text(encoding="utf-8")


@pytest.mark.needs("measurements")
def test_the_page_on_the_network_is_what_the_measurements_give(fitted: Fitted) -> None:
    _, _, page = fitted

    assert faults_of_page(page, NETWORK_PAGE) == []
